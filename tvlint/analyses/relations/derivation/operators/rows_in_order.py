"""Lookups at positions that are counted in ones: slices of what is looked up in.

`embedding(arange(4, 8), w)` is `w[4:8]`, and so is every lookup that gives what stands at each of its indices and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.transfer.memo import Form
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Compute, Literal
from tvlint.ops.spec import Bound, Family, OpSpec, UnsupportedError


def rows_in_order(
    machine: Machine, spec: OpSpec, form: Form, values: tuple[Value, ...], evaluate: Callable[[Form, tuple[Value, ...]], Saved]
) -> Saved | None:
    """Return the slice that a lookup is; None where it looks up elsewhere, or does more than that."""
    terms = machine.world.terms
    if not terms.arithmetic or len(values) != 2 or not any(value.term in terms.counted for value in values):
        return None
    try:
        bound = spec.bind(replace(form.call(map(machine.world.local_shape, values)), outputs=()))
    except UnsupportedError:
        return None
    at = _index_of(bound)
    if at < 0 or values[at].term not in terms.counted or not values[at].clean:
        return None
    (first, step, _), ((low, high),), table = terms.counted[values[at].term], values[at].box, values[1 - at]
    dim = bound.operands[1 - at].index(bound.indices[at])
    size = terms.shape[table.term][dim]
    is_whole = table.box[dim] == bound.ranges.get(bound.indices[at], (0, size)) == (0, size) and dim != terms.slot[table.term]
    if step != 1 or not is_whole or not 0 <= first + low < first + high <= size:
        return None
    operands = ("0", Literal(dim), Literal(first + low), Literal(high - low))
    cut = evaluate(machine.cases.form(Compute("torch.narrow", operands, ("",)), {}), (table,))
    return Saved(spec.name, bound, Family.INDEXED, values, cut.outputs, ((cut, (1 - at,)),))


def _index_of(bound: Bound) -> int:
    """Return which of two operands has the indices at which the operator looks up the other one, and does nothing else; -1
    where neither has.
    """
    if len(bound.operands) != 2 or len(bound.indices) != 1 or bound.ranges.keys() - set(bound.indices.values()):
        return -1
    ((at, name),) = bound.indices.items()
    table, index = bound.operands[1 - at], bound.operands[at]
    looked_up = tuple(index[0] if each == name else each for each in table) if len(index) == 1 and name in table else ()
    alone = bound.linear == (frozenset({1 - at}),) and not any(value is not None for value in bound.attributes)
    return at if alone and bound.outputs == (looked_up,) and bound.zero_gradient == frozenset({at}) else -1
