"""Calls that the operator table does not have: nothing that they can reach is known after them.

A call that gives something may have changed its operands, and so does a step of an optimizer. Another one that gives nothing is
made for its effect, which may be on anything that its rank holds: all weights, values, gradients and random streams.
"""

from __future__ import annotations

import re

from tvlint.analyses.dataflow.attention import is_any_attention
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.analyses.relations.derivation.operators.alike import copies_in_a_row
from tvlint.analyses.relations.derivation.operators.overwriting import forget_what_was_read
from tvlint.analyses.relations.derivation.state import Machine, RankState, Slot
from tvlint.analyses.relations.transfer.apply import incomplete
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.index_maps import Pieces, in_pieces
from tvlint.analyses.relations.transfer.pending_ranges import Pending
from tvlint.analyses.relations.transfer.relation import Leaf, Value
from tvlint.ir.operators import NOT_UNDERSTOOD, Backward, Compute
from tvlint.ir.plan import Role
from tvlint.ops.annotations.declared import AnnotationError, parse
from tvlint.ops.spelling import is_captured, without_overload
from tvlint.ops.table import is_nonlinear, row_of, spec_of

_RANDOM = re.compile(r"(?i)drop|noise|rand|sampl|bernoulli|gumbel|jitter|stochastic")
"""Names of functions that draw random numbers."""
_FRAMEWORKS = ("torch", "nnscaler", "_operator", "builtins")
"""Modules whose functions a project does not declare."""


_OTHERWISE = "choose an implementation that computes it from other operators of torch"


def why_unknown(operator: Compute) -> str:
    """Return why it is not known what a call does, with the declaration of it for a function of the project's own code."""
    if NOT_UNDERSTOOD in operator.attributes:
        return str(operator.attributes[NOT_UNDERSTOOD])
    if operator.in_place:
        return f"`{operator.op}` overwrites its operand"
    if spec_of(operator.op) is not None:
        return f"`{operator.op}` gives nothing, and its effect is not known"
    if is_captured(operator.op):
        return f"`{without_overload(operator.op)}` is captured and not lifted; {_OTHERWISE}"
    lacks = f"`{operator.op}` is not in the operator table"
    if not operator.outputs:
        lacks += ", and its effect is not known"
    module, _, name = operator.op.rpartition(".")
    if not module or module.split(".")[0] in _FRAMEWORKS:
        return lacks
    meaning = f"`annotation = {_claimed(operator)!r}`" if operator.outputs else "`same-as = 'print'` if it has none"
    drawn = " `random = true`, since its name says that it draws random numbers" if _RANDOM.search(name) else ""
    return f"{lacks}; if it is your own, declare it: `[[operator]]` `name = {name!r}` {meaning}{drawn}"


def _claimed(operator: Compute) -> str:
    """Return the annotation that the exporter gives an operator, where the project file accepts it."""
    try:
        parse(operator.annotation)
    except AnnotationError:
        return "..."
    return operator.annotation


def attended(machine: Machine, rank: RankState, operator: Compute) -> Slot:
    """Return what attention gives of which it is not known what it computes: as much of its result as it has of its queries.

    It has to have keys and values of all positions, or of those that it has queries of.
    """
    given, (queries, *_) = _attending(machine, rank, operator)
    if not given:
        return None
    terms, whole = machine.world.terms, machine.world.terms.whole
    head, of = ("kernel", operator.op), tuple(whole(value.term) for value in given)
    term = terms.term(head, of, terms.shape[of[0]], terms.slot[of[0]])
    return machine.world.values.clean(*in_pieces(terms, term, queries))


def attended_gradients(machine: Machine, rank: RankState, operator: Backward) -> tuple[Slot, ...]:
    """Return the gradients of queries, keys and values of such a kernel: those of keys of which a rank has other queries than
    others are parts of a sum over all queries.
    """
    given, (queries, keys) = _attending(machine, rank, operator.forward)
    name = (operator.inputs[0] if operator.inputs else "") or ""
    gradient = rank.local.get(name)
    if not given or not name or (gradient is None and name in machine.names_made) or (gradient and not gradient.clean):
        return ()
    values, terms = machine.world.values, machine.world.terms
    of = tuple(terms.whole(value.term) for value in (*given, gradient) if value is not None)
    apart = [dim for dim, (one, other) in enumerate(zip(queries, keys, strict=True)) if one != other]
    found = []
    for place in range(3):
        term = terms.term(("kernel gradient", operator.forward.op, place), of, terms.shape[of[place]], terms.slot[of[place]])
        held = in_pieces(terms, term, keys if place else queries)
        lacking = [
            Pending(term, dim, *queries[dim][0], terms.shape[of[0]][dim], one_replica=False, one_micro_batch=False)
            for dim in (apart if place else ())
        ]
        leaf = Leaf(terms.token(("from", term)), 1, frozenset(lacking))
        found.append(values.of_leaves(*held, (leaf,)) if lacking else values.clean(*held))
    return tuple(found)


def _attending(
    machine: Machine, rank: RankState, operator: Compute
) -> tuple[list[Value], tuple[tuple[Pieces, ...], tuple[Pieces, ...]]]:
    """Return queries, keys and values of a kernel, and the pieces of queries and keys; nothing where the rank may lack some."""
    held = [rank.local.get(name) for name in operator.tensor_operands][:3]
    given = [value for value in held if value is not None and value.clean]
    if len(given) < 3 or not is_any_attention(operator):
        return [], ((), ())
    queries, keys, others = (machine.world.values.pieces_of(value) for value in given)
    terms = machine.world.terms
    sizes = terms.shape[terms.whole(given[1].term)]
    fits = keys == others and len(queries) == len(keys) and all(len(piece) == 1 for piece in queries)
    alike = (held in (asked, ((0, size),)) for asked, held, size in zip(queries, keys, sizes, strict=False))
    return (given, (queries, keys)) if fits and all(alike) else ([], ((), ()))


def takes_parts(machine: Machine, rank: RankState, operator: Compute) -> Mismatch | None:
    """Return what is wrong with a part of a sum that a function takes of which no more is known than that it is not linear."""
    if not is_nonlinear(operator.op):
        return None
    held = ((place, rank.local.get(name)) for place, name in enumerate(operator.inputs) if isinstance(name, str))
    parts = ((place, value) for place, value in held if value is not None and (value.leaves or value.fold is not None))
    return next((incomplete(machine.world, value, place) for place, value in parts), None)


def other_values(machine: Machine, rank: RankState, operator: Compute) -> Mismatch | None:
    """Return what is wrong with a kernel whose queries, keys and values are of other positions, heads or samples."""
    names = operator.tensor_operands[:3]
    if len(names) < 3 or not is_any_attention(operator):
        return None
    world, terms = machine.world, machine.world.terms
    queries, keys, values = (value if value is not None and value.clean else None for value in map(rank.local.get, names))
    given = [value for value in (keys, values) if value is not None]
    shapes = {world.local_shape(value)[:-1] for value in given}
    held_alike = {(world.values.pieces_of(value)[:-1], terms.shape[terms.whole(value.term)][:-1]) for value in given}
    text = f"takes the keys `{names[1]}` and the values `{names[2]}`, which are of other positions or heads"
    if len(given) < 2 or len(shapes) > 1 or len(held_alike) == 1:
        if queries is None or keys is None or not _have_other_heads(machine, operator, queries, keys):
            return None
        text = f"takes the queries `{names[0]}` and the keys `{names[1]}`, which are of other heads"
    return Mismatch("mismatched-shards", text, refutes=True)


def _have_other_heads(machine: Machine, operator: Compute, queries: Value, keys: Value) -> bool:
    """Return whether the kernel pairs a head of queries with another head of keys than all heads together would.

    Each head of keys, and all its copies, serves as many heads of queries in a row: two pairings that agree up to their second
    steps agree. Nothing is known of kernels that have no one layout.
    """
    row, terms, pieces = row_of(operator.op), machine.world.terms, machine.world.values.pieces_of
    if row is None or row.sequence is None or {len(queries.box), len(keys.box)} != {4}:
        return False
    dim = 3 - row.sequence % 4
    (size, held), (all_keys, own_keys) = (
        (terms.shape[terms.whole(value.term)][dim], pieces(value)[dim]) for value in (queries, keys)
    )
    (low, high), (first, last) = held[0], own_keys[0]
    count, served = high - low, last - first
    if len(held) > 1 or len(own_keys) > 1 or size % all_keys or count % served:
        return False
    here, everywhere = count // served, size // all_keys
    steps = (here, 2 * here, everywhere - low % everywhere, 2 * everywhere - low % everywhere)
    heads = {0, count - 1, *(step + side for step in steps for side in (-1, 0))}
    alike = copies_in_a_row(terms, terms.whole(keys.term), dim)
    pairs = [((low + head) // everywhere, first + head // here) for head in heads if 0 <= head < count]
    return any(one != other and one // alike != other // alike for one, other in pairs)


def forget_what_it_reaches(machine: Machine, rank: RankState, operator: Compute) -> None:
    """Make unknown all that a call of unknown effect may have changed on the rank."""
    names = set(operator.tensor_operands)
    if not names or not (operator.outputs or is_step(operator)):
        _forget_all(machine, rank)
        return
    reached = {id(value) for name in names if (value := rank.local.get(name)) is not None}
    for held in (rank.local, rank.environment):
        held.update((name, None) for name, value in held.items() if name in names or id(value) in reached)
    rank.local.update(dict.fromkeys(names))
    rank.changed.update(names)
    rank.renewed.update((name, None) for name in rank.renewed if name in names)
    rank.gradients.update((machine.weight_of[name], None) for name in names if name in machine.weight_of)
    machine.derived.changed.update((rank.number, name) for name in names)
    forget_what_was_read(rank, names)


def _forget_all(machine: Machine, rank: RankState) -> None:
    rank.unknown = True
    for held in (rank.local, rank.environment):
        held.update(dict.fromkeys(held))
    rank.renewed.update(dict.fromkeys(rank.renewed))
    weights = [name for name, tensor in machine.plan.tensors.items() if tensor.role is Role.WEIGHT]
    rank.gradients.update(dict.fromkeys(weights))
    lasting = [name for name, tensor in machine.plan.tensors.items() if tensor.role in (Role.WEIGHT, Role.STATE)]
    machine.derived.changed.update((rank.number, name) for name in lasting)
