"""Classify gradients that nothing makes: a root, zero for a reason, or a mistake."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tvlint.analyses.dataflow.def_use import reads
from tvlint.analyses.gradients.roots import named_after
from tvlint.analyses.relations.derivation.localisation.localise import tell
from tvlint.analyses.relations.derivation.state import Machine, RankState, Root, Slot, Uses
from tvlint.analyses.relations.terms.loss_identities import bare_term, is_of_gradients
from tvlint.analyses.relations.terms.numbers import number_of
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Backward, Communicate, Compute, Operator
from tvlint.ir.plan import Program, Role
from tvlint.ops.spec import Family, Trait
from tvlint.ops.table import has_trait, spec_of


def unmade(machine: Machine, rank: RankState, operator: Operator, name: str, taken: Sequence[tuple[str, Slot]]) -> Slot | str:
    """Return what the gradient `name` is, which nothing on the rank has made: where it starts, or "absent" for zero.

    It is `taken` for the gradient of one of these values. Raises Mismatch for a gradient that is neither.
    """
    owners = owners_of(machine, name)
    never = name not in machine.names_made and rank.inward.get(name, name) not in machine.names_made
    starts = [(of, value) for of, value in taken if never and is_root(machine, rank, owners, name, of, value)]
    if starts:
        of, value = next(((of, value) for of, value in starts if value is not None), starts[0])
        if value is not None and value.fold is None:
            return started(machine, rank, operator, name, of, value)
        machine.derived.roots_open = True
        return None
    if any(of in owners and not is_differentiated(machine, rank, of) for of, _ in taken):
        return "absent"
    if machine.alone and (not never or machine.derived.roots):
        raise Mismatch("use-before-definition", f"reads the gradient `{name}`, which nothing on {{ranks}} makes", refutes=True)
    hint = f": if gradients start at `{taken[0][0]}`, its name is `grad({taken[0][0]})`" if taken and never else ""
    raise Mismatch("absent-gradient", f"reads the gradient `{name}`, which nothing makes{hint}", refutes=False)


def owners_of(machine: Machine, gradient: str) -> Sequence[str]:
    """Return the tensors that `gradient` is the gradient of, by declarations or by its own name."""
    named = named_after(gradient)
    return machine.forward_of.get(gradient) or ((named,) if named else ())


def is_root(machine: Machine, rank: RankState, owners: Sequence[str], name: str, of: str, value: Slot) -> bool:
    """Return whether the gradient `name` starts at `of`.

    It does where it is named after that, or after what is that in another shape or is put together from it by a collective, and
    where that is the loss, or a copy or part of it.
    """
    named = named_after(name)
    if named in owners and _is_put_together(uses_on(machine, rank), named, of):
        return True
    results = returned(machine)
    if not any(owner in results for owner in owners):
        return False
    shown = machine.shown.get(of, of)
    if shown in results:
        return machine.losses is None or of in owners or shown in owners
    if machine.losses is None or value is None:
        return False
    return not {value.term, machine.world.values.without_constants(value).term}.isdisjoint(machine.losses)


def _is_put_together(used: Uses, name: str, of: str) -> bool:
    """Return whether one value is another, in whatever shape, or is put together from it by collectives."""
    if name != of and name not in used.behind:
        waiting, seen = [name], {name}
        while waiting:
            parts = used.parts.get(waiting.pop(), set()) - seen
            seen |= parts
            waiting += parts
        used.behind[name] = seen
    return name == of or of in used.behind[name]


def returned(machine: Machine) -> set[str]:
    """Return the names of the losses, or of all that the plan returns where it does not say which are losses."""
    return set(machine.plan.losses or machine.plan.outputs)


def started(machine: Machine, rank: RankState, operator: Operator, name: str, of: str, value: Value) -> Value:
    """Return the gradient that starts at a value: one, for every element."""
    machine.derived.roots.append(Root(of, value, rank.number, rank.segment.name if rank.segment else "", operator))
    seed = throughout(machine, value)
    tensor, shape = machine.plan.tensors.get(name), machine.world.local_shape(seed)
    if tensor is not None and tensor.shape != shape:
        text = f"starts from `{name}` of shape {tensor.shape}, the gradient of a value of shape {shape}"
        tell(machine, rank, operator, Mismatch("wrong-shape-claim", text, refutes=True), fatal=True)
    known = machine.dtypes.get(value.term, "")
    if tensor is not None and known and (tensor.dtype or known, tensor.role) != (known, Role.GRADIENT):
        text = f"starts from `{name}`, declared as {tensor.role.value} of {tensor.dtype}, the gradient of a value of {known}"
        tell(machine, rank, operator, Mismatch("wrong-dtype", text, refutes=False), fatal=True)
    return seed


def throughout(machine: Machine, value: Value) -> Value:
    """Return one for every element of what is like the value."""
    terms, values = machine.world.terms, machine.world.values
    whole = terms.whole(value.term)
    shape, slot = terms.shape[whole], terms.slot[whole]
    one = terms.term(("one", shape, slot), (), shape, slot)
    return values.with_pieces(values.clean(one, values.out_of_pieces(value).box), values.pieces_of(value))


def given(machine: Machine, rank: RankState, operator: Operator, of: str, value: Slot, gradient: Value) -> Value:
    """Return the gradient of `of` that an operator is given; one that is a number throughout starts there, with that number.

    A multiple of a gradient is one that started elsewhere.
    """
    terms = machine.world.terms
    if is_of_gradients(terms, terms.whole(gradient.term)):
        return gradient
    head = terms.keys[terms.whole(gradient.term)]
    number = number_of(head[2][0]) if has_trait(str(head[0]), Trait.FILLED) and gradient.clean else None
    if number is None or value is None:
        machine.derived.roots_open = True
        machine.derived.given_starts.add(bare_term(terms, terms.whole(gradient.term)))
        return gradient
    segment = rank.segment.name if rank.segment else ""
    machine.derived.roots.append(Root(of, value, rank.number, segment, operator, Fraction(number)))
    return machine.world.values.scaled(throughout(machine, gradient), number)


def is_differentiated(machine: Machine, rank: RankState, name: str) -> bool:
    """Return whether a gradient may reach the value `name`: whether what gradients start from may depend on it.

    It may where the value is communicated, or goes on by another name. Otherwise operators say what their operands get: none
    where they take whole numbers, or only the shape, and none where no gradient may reach their results.
    """
    used = uses_on(machine, rank)
    waiting, seen = [name], {name}
    while waiting:
        word = waiting.pop()
        if word in used.differentiated:
            return True
        for operator in used.readers.get(word, ()):
            if not isinstance(operator, Compute):
                return True
            spec = spec_of(operator.op)
            if spec is not None and spec.family is Family.INERT:
                continue
            ran, saved = rank.saved.get(operator.outputs, (None, None))
            if saved is None or ran != operator:
                return True
            operands = operator.tensor_operands
            none = () if saved.bound is None else saved.bound.zero_gradient | saved.bound.shape_only
            if any(operand == word and position not in none for position, operand in enumerate(operands)):
                waiting.extend(result for result in operator.outputs if result not in seen)
                seen.update(operator.outputs)
    return False


def uses_on(machine: Machine, rank: RankState) -> Uses:
    """Return who reads what on the rank; found once for all ranks of a program."""
    program = next(program for program in machine.plan.programs if rank.number in program.ranks)
    if program.ranks not in machine.uses:
        machine.uses[program.ranks] = _uses(machine, program)
    return machine.uses[program.ranks]


def is_same(operator: Compute) -> bool:
    """Return whether the operator gives its operand, in whatever shape."""
    spec = spec_of(operator.op)
    return spec is not None and spec.family in (Family.IDENTITY, Family.RESHAPE)


def _uses(machine: Machine, program: Program) -> Uses:
    plan, results, used = machine.plan, returned(machine), Uses()
    used.differentiated.update(results)
    for step in program.steps:
        segment = plan.segments[step.segment]
        for names, outside in zip((segment.inputs, segment.outputs), step.outside(segment), strict=True):
            renamed = (inner for inner, outer in zip(names, outside, strict=True) if inner != outer)
            used.differentiated.update(renamed if step.micro_batch <= 0 else ())
    operators = [operator for _, _, operator in plan.run_by(program)]
    for operator in operators:
        for name in () if isinstance(operator, Backward) else reads(operator):
            used.readers.setdefault(name, []).append(operator)
        if isinstance(operator, Communicate) or (isinstance(operator, Compute) and is_same(operator)):
            for name in operator.outputs:
                used.parts.setdefault(name, set()).update(reads(operator))
    for operator in (operator for operator in operators if isinstance(operator, Backward)):
        for gradient, of in zip(operator.inputs, operator.forward.outputs, strict=False):
            named = named_after(gradient)
            starts = _is_put_together(used, named, of) or not results.isdisjoint(owners_of(machine, gradient))
            if starts and gradient not in machine.names_made:
                used.differentiated.add(of)
    return used
