"""Dimensions that an operator turns round: of the piece that a rank holds, it gives the piece as far from the other end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.terms.terms import PIECES
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ops.spec import Bound


def mirrored(machine: Machine, bound: Bound, value: Value, evaluate: Callable[[tuple[Value]], Saved]) -> Saved:
    """Return the operator's result on a piece of the dimensions that it turns round, as a piece of what it makes of all."""
    terms, values = machine.world.terms, machine.world.values
    shape, turned = terms.shape[value.term], [dim for dim, name in enumerate(bound.operands[0]) if name in bound.whole]
    cut = [dim for dim in turned if value.box[dim] != (0, shape[dim])]
    if not cut or terms.keys[value.term][0] == PIECES or terms.slot[value.term] in cut:
        return evaluate((value,))
    whole = tuple((0, shape[dim]) if dim in cut else bounds for dim, bounds in enumerate(value.box))
    saved = evaluate((values.with_box(value, whole),))
    (made,) = saved.outputs
    if made is None:
        return saved
    box = tuple(
        (shape[dim] - high, shape[dim] - low) if dim in cut else (low, high) for dim, (low, high) in enumerate(value.box)
    )
    return replace(saved, inputs=(value,), outputs=(values.with_box(made, box),))
