"""Bind an operator to its annotation for the shapes that it is used with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.analyses.dataflow.attention import is_attention
from tvlint.analyses.placement.state import Walk
from tvlint.analyses.placement.unannotated import loss_spec
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.placement import Shard
from tvlint.ops.spec import ONE, Bound, Call, OpSpec, UnsupportedError
from tvlint.ops.table import spec_of


def bind(walk: Walk, operator: Compute) -> tuple[OpSpec, Bound, list[str]] | None:
    """Return the operator's meaning, its annotation for this use and its tensor operands; None where the table does not have
    it.
    """
    spec = spec_of(operator.op) or loss_spec(operator)
    names = [name for name in operator.inputs if not isinstance(name, Literal)]
    if spec is None or (is_attention(operator) and _packs_heads(walk, names)):
        return None
    for shape_of in (walk.whole, walk.shape):
        shapes = [operand if isinstance(operand, Literal) else shape_of(operand) for operand in operator.inputs]
        outputs = [walk.shape(name) for name in operator.outputs]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes):
            continue
        try:
            bound = spec.bind(Call(operator.op, tuple(known), operator.attributes, tuple(o or () for o in outputs)))
        except (UnsupportedError, IndexError, ValueError, TypeError):
            continue
        if len(bound.operands) <= len(names):
            return spec, _spread(walk, bound, names), names
    return None


def _packs_heads(walk: Walk, names: Sequence[str]) -> bool:
    """Return whether queries, keys and values of three dimensions are split along the last, where each rank has heads of its
    own.
    """
    if len(names) < 3 or any(len(walk.shape(name) or ()) != 3 for name in names[:3]):
        return False
    return any(
        all(isinstance(on, Shard) and on.dim % 3 == 2 for on in (walk.value(name).on.get(axis) for name in names[:3]))
        for axis in walk.axes
    )


def _spread(walk: Walk, bound: Bound, names: Sequence[str]) -> Bound:
    """The annotation where dimensions of size 1 stand for all of a dimension that is only locally of size 1 elsewhere."""
    sizes: dict[str, int] = {}
    wholes = [walk.whole(name) for name in names[: len(bound.operands)]]
    for dims, whole in zip(bound.operands, wholes, strict=True):
        for dim, size in zip(dims, whole or (), strict=False):
            sizes[dim] = max(size, sizes.get(dim, 1))
    operands = tuple(
        dims if whole is None or len(whole) != len(dims)
        else tuple(ONE if size == 1 < sizes[dim] else dim for dim, size in zip(dims, whole, strict=True))
        for dims, whole in zip(bound.operands, wholes, strict=True)
    )  # fmt: skip
    return bound if operands == bound.operands else replace(bound, operands=operands)
