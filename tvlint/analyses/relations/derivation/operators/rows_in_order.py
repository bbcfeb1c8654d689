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
from tvlint.ops.families.slicing import looked_up_at
from tvlint.ops.spec import Family, OpSpec


def rows_in_order(
    machine: Machine, spec: OpSpec, form: Form, values: tuple[Value, ...], evaluate: Callable[[Form, tuple[Value, ...]], Saved]
) -> Saved | None:
    """Return the slice that a lookup is; None where it looks up elsewhere, or does more than that."""
    terms = machine.world.terms
    if not terms.arithmetic or len(values) != 2 or not any(value.term in terms.counted for value in values):
        return None
    bound = spec.bound(replace(form.call(map(machine.world.local_shape, values)), outputs=()))
    if bound is None:
        return None
    at = looked_up_at(bound)
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
