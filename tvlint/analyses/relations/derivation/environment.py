"""Reading and writing of relations by the names that the plan uses."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.analyses.gradients.roots import named_after
from tvlint.analyses.relations.derivation.given.trusted_inputs import (
    as_declared,
    parameter,
    parameter_head,
    pieces_held,
    whole_shape,
)
from tvlint.analyses.relations.derivation.gradients.over_the_step import of_all_micro_batches
from tvlint.analyses.relations.derivation.gradients.starts import owners_of, unmade
from tvlint.analyses.relations.derivation.localisation.claims import check_claims, contradicted
from tvlint.analyses.relations.derivation.localisation.localise import tell
from tvlint.analyses.relations.derivation.operators.opaque_values import added, made_by, of_value
from tvlint.analyses.relations.derivation.operators.overwriting import forget_what_shares, note_shared
from tvlint.analyses.relations.derivation.state import Machine, Opaque, RankState, Slot
from tvlint.analyses.relations.terms.flags import counts_flags
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.index_maps import in_pieces
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Value
from tvlint.analyses.relations.transfer.rounding import rounded_from
from tvlint.ir.operators import Backward, Communicate, Compute, Operand, Operator, Receive
from tvlint.ir.plan import Role, Tensor
from tvlint.ops.dtypes import DIGITS
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.kinds import Kind, kind_of, kinds_given
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind
from tvlint.plurals import counted

_MOST_CONTRIBUTIONS = 256
"""Behind each layer a part of a sum that was taken for complete is a part of more sums, in three times as many ways. A right
plan has up to six.
"""


def accumulated(machine: Machine, rank: RankState, name: str, value: Slot, before: Slot | str) -> Slot:
    """Return what `name` holds after `value` is produced; gradients add up. `before` is "" where nothing was produced yet."""
    tensor = machine.plan.tensors.get(name)
    gradient = name in machine.gradient_names if tensor is None else tensor.role is Role.GRADIENT
    if isinstance(before, str) or not gradient:
        return value
    if before is None or value is None:
        return None
    values, of = machine.world.values, forward_term(machine, rank, name)
    try:
        total = (
            values.sum_over(of, (before, value)) if parts_of_one(before, value) else values.gradient_sum(of, (before, value))
        )
    except AmbiguousSumError:
        text = f"adds to `{name}` what is a part of it already, in another way"
        tell(machine, rank, None, Mismatch("ambiguous-sum", text, refutes=False))
        return None
    if total is None:
        mismatch = Mismatch("mismatched-shards", f"adds gradients of different slices into `{name}`", refutes=True)
        tell(machine, rank, None, mismatch)
    rank.trail.append(total)
    return total


def parts_of_one(one: Value, other: Value) -> bool:
    """Return whether two values are different parts of one value, so that their sum is more of it and not a multiple."""
    nothing = any(value.coefficient == 0 and not value.leaves for value in (one, other))
    partial = one is not other and bool(one.leaves or other.leaves)
    return one.term == other.term and (nothing or partial) and one.fold is None and other.fold is None


def forward_term(machine: Machine, rank: RankState, gradient: str) -> int:
    """Return the term that the gradient `gradient` belongs to, as far as this rank knows it; -1 otherwise."""
    for name in machine.forward_of.get(gradient, ()):
        if name in rank.terms:
            return rank.terms[name]
        value = rank.local.get(name) or rank.environment.get(name)
        if value is not None:
            return value.term
        if machine.plan.has_role(name, Role.WEIGHT):
            found = held_parameter(machine, rank, name)
            return found.term if found is not None else -1
    return -1


def held_parameter(machine: Machine, rank: RankState, name: str) -> Slot:
    key = (name, rank.number)
    machine.derived.used.add((rank.number, name))
    if key not in machine.parameters:
        try:
            machine.parameters[key] = _parameter(machine, machine.plan.tensors[name], rank.number)
        except Mismatch as mismatch:
            tell(machine, rank, None, mismatch, fatal=True)
            return None
    return machine.parameters[key]


def _parameter(machine: Machine, tensor: Tensor, rank: int) -> Value:
    if machine.alone:
        return as_declared(machine.world, machine.plan, tensor, rank, parameter_head(machine.plan, tensor))
    return parameter(machine.world, machine.plan, tensor, rank)


def declared_value(machine: Machine, rank: RankState, name: str) -> Slot:
    """Return what a plan without a reference declares that `name` is, where nothing else says; None for nothing."""
    tensor = machine.plan.tensors.get(name)
    if not machine.alone or tensor is None or tensor.placements is None:
        return None
    try:
        return as_declared(machine.world, machine.plan, tensor, rank.number, ("declared", name))
    except Mismatch:
        return None


def input_value(machine: Machine, rank: RankState, name: str) -> Slot:
    tensor = machine.plan.tensors[name]
    number = machine.inputs.position(tensor)
    if number is None:
        tell(
            machine, rank, None, Mismatch("unknown-input", f"reads the input `{name}`, which has no counterpart", refutes=False)
        )
        return None
    head, slot = ("input", number, tensor.dtype), machine.slots[number]
    try:
        if machine.alone:
            return as_declared(machine.world, machine.plan, tensor, rank.number, head, slot)
        pieces = pieces_held(machine.plan, tensor, rank.number)
    except Mismatch as mismatch:
        tell(machine, rank, None, mismatch, fatal=True)
        return None
    shape = machine.inputs.shapes[number]
    term = machine.world.terms.term(head, (), shape, slot)
    if (machine.world.slots, machine.world.parts) != (1, 1) and machine.slots[number] >= 0:
        if pieces != tuple(((0, size),) for size in whole_shape(tensor)):
            text = f"reads only a part of the input `{name}`, of which a reference reads all"
            tell(machine, rank, None, Mismatch("part-of-input", text, refutes=False), fatal=True)
            return None
        pieces = tuple(((0, size // (machine.world.parts if i == slot else 1)),) for i, size in enumerate(shape))
    if slot >= 0 and len(pieces[slot]) > 1:
        text = f"`{name}` is placed in several pieces of the batch, which replicas and micro-batches cut"
        tell(machine, rank, None, Mismatch("declared-placement", text, refutes=False), fatal=True)
        return None
    return machine.world.values.clean(*in_pieces(machine.world.terms, term, pieces))


def read(machine: Machine, rank: RankState, operator: Operator, name: str) -> Slot:
    """Return the relation of the tensor that the operator reads; raises Mismatch when nothing gives it a value."""
    value = rank.local.get(name)
    if value is not None:
        return value
    if name in rank.local:
        if name in rank.undefined:
            raise Mismatch("undefined-value", f"uses `{name}`: {rank.undefined[name]}", refutes=False)
        return None
    tensor = machine.plan.tensors.get(name)
    if name in rank.renewed:
        return rank.renewed[name]
    if name in rank.stepped and machine.alone and not _is_product(operator):
        return declared_value(machine, rank, name)
    if name in rank.stepped:
        raise Mismatch(
            "updated-weight", f"uses `{name}` after an optimizer step that the plan does not write out", refutes=False
        )
    if tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE):
        return None if rank.unknown or name in rank.changed else held_parameter(machine, rank, name)
    if tensor is not None and tensor.role is Role.INPUT and name not in machine.loaded:
        return None if rank.unknown or name in rank.changed else input_value(machine, rank, name)
    if name in rank.zero:
        raise Mismatch("absent-gradient", f"uses `{name}`, a gradient that none reaches", refutes=False)
    if name in rank.at_root:
        text = f"uses `{name}`, which rank {rank.at_root[name]} alone has, as the root"
        raise Mismatch("root-only-result-used", text, refutes=True)
    text = f"uses `{name}`, which nothing on {{ranks}} produces before"
    refutes = rank.inward.get(name, name) not in machine.of_runs
    raise Mismatch("use-before-definition", text, refutes=refutes, source=rank.unbound.get(name))


def gradient_value(
    machine: Machine, rank: RankState, operator: Operator, name: str, of: str = "", value: Slot = None
) -> Slot | str:
    """Return the gradient `name`; "absent" for one that is zero, since no gradient reaches what it is the gradient of.

    That of a weight is what has added up of it so far. An operator that takes it as the gradient of a value says which one,
    `of`, with its relation. Raises Mismatch for one that nothing makes and that is neither zero nor where gradients start.
    """
    if name in rank.local:
        return rank.local[name]
    if rank.unknown:
        return None
    weight = machine.weight_of.get(name, "")
    if weight in rank.gradients:
        if not rank.of_step:
            text = f"reads `{name}` in every micro-batch, while it still adds up"
            raise Mismatch("read-per-micro-batch", text, refutes=False)
        if weight in rank.scattered:
            text = f"reads `{name}`, of which a reducer has left each rank a shard, and no plan says which"
            raise Mismatch("scattered-gradient", text, refutes=False)
        return of_all_micro_batches(machine, rank, weight)
    if name in rank.zero:
        return "absent"
    given = declared_value(machine, rank, name) if name not in machine.names_made else None
    if given is not None:
        return given
    taken = [(of, value)] if of else [(owner, forward_value(machine, rank, owner)) for owner in owners_of(machine, name)]
    return unmade(machine, rank, operator, name, taken)


def _is_product(operator: Operator) -> bool:
    """Return whether an operator is of a forward or backward pass, to which a weight after its step is another one."""
    return isinstance(operator, Backward) or (isinstance(operator, Compute) and has_kind(operator.op, Trait.CONTRACTION))


def forward_value(machine: Machine, rank: RankState, name: str) -> Slot:
    """Return what the rank holds as the value `name` inside or outside of the segment that it runs, if anything."""
    return rank.local.get(name) or rank.environment.get(name) or rank.environment.get(machine.shown.get(name, ""))


def incoming(machine: Machine, rank: RankState, operator: Backward, name: str, of: str, value: Slot) -> Slot | str:
    """Return what a gradient operator is given as `name`, the gradient of `of`: a gradient, or any other value.

    Raises Mismatch for what nothing makes.
    """
    tensor = machine.plan.tensors.get(name)
    if tensor is None or tensor.role is Role.GRADIENT:
        return gradient_value(machine, rank, operator, name, of, value)
    if name in machine.forward_of and not _is_given(tensor.role, operator):
        return gradient_value(machine, rank, operator, name, of, value)
    return read(machine, rank, operator, name)


def is_gradient(machine: Machine, name: str) -> bool:
    """Return whether a name is that of a gradient, by its type, or by that of a value of which no type is known."""
    tensor = machine.plan.tensors.get(name)
    return named_after(name) in machine.names_made if tensor is None else tensor.role is Role.GRADIENT


def is_absent(machine: Machine, rank: RankState, operator: Operator, name: str) -> bool:
    """Return whether `name` is a gradient that nothing produces, which is zero."""
    if not is_gradient(machine, name) or machine.weight_of.get(name, "") in rank.gradients:
        return False
    return gradient_value(machine, rank, operator, name) == "absent"


def operand_value(machine: Machine, rank: RankState, operator: Operator, name: str) -> Slot:
    if is_gradient(machine, name):
        found = gradient_value(machine, rank, operator, name)
        if isinstance(found, str):
            raise Mismatch("use-before-definition", f"uses `{name}`, which nothing on {{ranks}} produces before", refutes=True)
        return found
    return read(machine, rank, operator, name)


def which(machine: Machine, rank: RankState, name: str) -> Opaque | None:
    """Return which value the rank holds as `name`, of a plan without a reference; None where nothing tells it from others."""
    weight, tensor = machine.weight_of.get(name, ""), machine.plan.tensors.get(name)
    slot = rank.gradients.get(weight) if weight in rank.gradients else rank.local.get(name)
    if slot is None and name not in rank.local and tensor is not None and name not in rank.changed | rank.stepped:
        if tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE) and name not in rank.renewed:
            slot = held_parameter(machine, rank, name)
        elif tensor.role is Role.INPUT and name not in machine.loaded:
            slot = input_value(machine, rank, name)
    return rank.opaque.get(name) if slot is None else of_value(machine, slot)


def _rounded_from(machine: Machine, operator: Operator, name: str, value: Value) -> str:
    """Return the type of the numbers that an operator rounds where the other plan may not, empty where none is.

    What the reference has, with the type of its result, a plan has likewise; forms of terms tell nothing of types.
    """
    is_reference = machine.losses is None
    if machine.alone or (is_reference and machine.world.terms.telling is Telling.AS_WRITTEN):
        return ""
    return "" if not is_reference and value.term in machine.dtypes else rounded_from(machine.plan, operator, name)


def _other_type(machine: Machine, operator: Operator, tensor: Tensor, value: Value) -> Mismatch | None:
    """Return how a value is declared with another type than it has elsewhere; None where it is the same number in both.

    What counts flags is, and so is a whole number that stands as a real one of as many digits as are followed, where the
    operator gives it in the type that is declared. One that gives none of that kind is declared as what it is not.
    """
    terms, known = machine.world.terms, machine.dtypes.setdefault(value.term, tensor.dtype) if tensor.dtype else ""
    if known == tensor.dtype or (terms.arithmetic and counts_flags(terms, terms.whole(value.term))):
        return None
    whole = [holds_whole_numbers(each) for each in (known, tensor.dtype)]
    given = _kind_given(machine, operator, tensor.name) if any(whole) and not all(whole) else None
    as_declared = given is not None and (given is not Kind.REAL) == whole[1]
    if as_declared and DIGITS.get(known, 0) + DIGITS.get(tensor.dtype, 0) >= DIGITS["float32"]:
        return None
    text = f"makes `{tensor.name}` as {tensor.dtype} where the same value is {known} before"
    sure = given is not None and not as_declared
    return Mismatch("wrong-dtype", text, refutes=sure, compared=(known, tensor.dtype))


def _kind_given(machine: Machine, operator: Operator, name: str) -> Kind | None:
    """Return which kind of numbers an operator gives as `name`; None where that is not known."""
    tensors = machine.plan.tensors
    if not isinstance(operator, Compute):
        return None
    given = [kind_of(tensors[each].dtype) if each in tensors else None for each in operator.tensor_operands]
    made = kinds_given(operator, tensors, given)
    return None if made is None else dict(zip(operator.outputs, made, strict=True)).get(name)


def assign(machine: Machine, rank: RankState, operator: Operator, name: str, value: Slot, inputs: Sequence[Operand]) -> None:
    if value is not None and len(value.leaves) > _MOST_CONTRIBUTIONS:
        text = f"makes `{name}` of {counted(len(value.leaves), 'contribution')}, of which {_MOST_CONTRIBUTIONS} are followed"
        tell(machine, rank, operator, Mismatch("ambiguous-sum", text, refutes=False))
        value = None
    rank.trail.append(value)
    if value is None:
        machine.derived.unknown[id(operator)] = operator
    tensor = machine.plan.tensors.get(name)
    renews = tensor is not None and tensor.role in (Role.WEIGHT, Role.STATE) and rank.of_step
    if renews:
        forget_what_shares(machine, rank, {name}, "an operator")
    note_shared(rank, operator, name, inputs)
    if tensor is not None and _is_given(tensor.role, operator) and not renews:
        text = f"overwrites the {tensor.role.value} `{name}`"
        tell(machine, rank, operator, Mismatch("overwritten", text, refutes=False), fatal=True)
    if value is not None and tensor is not None:
        value = _as_declared(machine, rank, operator, tensor, value)
    if renews:
        rank.renewed[name] = value
        return
    if value is not None and tensor is not None and not machine.alone:
        check_claims(machine, rank, operator, tensor, value)
    if value is not None and (tensor is None or tensor.role is not Role.GRADIENT):
        rank.terms[name] = value.term
    if name in inputs and isinstance(operator, Communicate | Receive) and name not in machine.forward_of:
        for outputs in rank.readers.get(name, ()):
            ran, _ = rank.saved.get(outputs, (None, None))
            if ran is not None and name in ran.inputs:
                rank.replaced.setdefault(outputs, set()).add(name)
    weight = machine.weight_of.get(name)
    replaces = name in inputs or (weight is not None and weight in made_of(machine, rank, inputs))
    adds = not replaces and (weight in rank.gradients if weight is not None else name in rank.local)
    before = which(machine, rank, name) if machine.alone and adds else None
    if weight is not None:
        machine.paired.add((name, weight))
        if rank.named.setdefault(weight, name) != name:
            text = f"makes the gradient of `{weight}` under two names, `{rank.named[weight]}` and `{name}`"
            tell(machine, rank, operator, Mismatch("gradient-of-two-names", text, refutes=False), fatal=True)
            value = None
        if rank.of_step and weight in rank.gradients:
            of_all_micro_batches(machine, rank, weight)
        rank.gradients[weight] = value if replaces else accumulated(machine, rank, name, value, rank.gradients.get(weight, ""))
    elif name in inputs or name not in rank.local:
        rank.local[name] = value
    else:
        rank.local[name] = accumulated(machine, rank, name, value, rank.local[name])
    if machine.alone and (rank.gradients if weight is not None else rank.local)[weight or name] is None:
        known = None if value is None else of_value(machine, value)
        opaque = known or made_by(machine, rank, operator, name, lambda given: which(machine, rank, given))
        rank.opaque[name] = added(machine, before, opaque) if adds else opaque
    rank.made_of[name] = made_of(machine, rank, inputs)
    if value is not None and isinstance(operator, Compute | Backward):
        _note_carried(machine, rank, operator, name, value, inputs if isinstance(operator, Compute) else operator.inputs)


def _as_declared(machine: Machine, rank: RankState, operator: Operator, tensor: Tensor, value: Value) -> Slot:
    """Return the value as it goes on under the name of a tensor; tell how the tensor is declared as what it is not."""
    shape, name = machine.world.local_shape(value), tensor.name
    instead = contradicted(machine, rank, operator, tensor, value) if machine.alone else None
    if instead is not None:
        return instead if tensor.shape == shape else None
    if tensor.shape != shape:
        text, compared = f"makes shape {shape} where `{name}` is declared {tensor.shape}", (str(tensor.shape), str(shape))
        tell(machine, rank, operator, Mismatch("wrong-shape-claim", text, refutes=True, compared=compared))
        return None
    if wide := _rounded_from(machine, operator, name, value):
        text = f"makes `{name}` as {tensor.dtype} of {wide}: it rounds, so that both plans need the same"
        tell(machine, rank, operator, Mismatch("wrong-dtype", text, refutes=False), fatal=True)
    elif (other := _other_type(machine, operator, tensor, value)) is not None:
        tell(machine, rank, operator, other, fatal=True)
    return value


def _note_carried(
    machine: Machine, rank: RankState, operator: Compute | Backward, name: str, value: Value, read: Sequence[Operand]
) -> None:
    """Note the operator and the name with which each partial sum in a value came to the rank."""
    forward = operator if isinstance(operator, Compute) else operator.forward
    follows = forward.op.endswith((".identity", ".multiref"))
    for pending in {entry for leaf in value.leaves for entry in leaf.pending}:
        if pending.origin not in rank.carriers:
            machine.makers.setdefault(pending.origin, []).append(rank.number)
        if pending.origin not in rank.carriers or (follows and rank.carriers[pending.origin][0] in read):
            rank.carriers[pending.origin] = (name, operator)


def made_of(machine: Machine, rank: RankState, inputs: Sequence[Operand]) -> frozenset[str]:
    """Return the weights out of whose gradients the operands are made."""
    names = [name for name in inputs if isinstance(name, str)]
    made = (rank.made_of.get(name, frozenset()) for name in names)
    owners = (machine.weight_of.get(name) or machine.addends.get(name, "") for name in names)
    return frozenset(owner for owner in owners if owner).union(*made)


def _is_given(role: Role, operator: Operator) -> bool:
    """Return whether nothing may produce a tensor of the role; inputs may be communicated."""
    return role in (Role.WEIGHT, Role.BUFFER, Role.STATE) or (role is Role.INPUT and isinstance(operator, Compute | Backward))
