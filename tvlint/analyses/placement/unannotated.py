"""Operators without an annotation for this use: the dimension that they must have whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.analyses.dataflow.attention import is_any_attention, is_attention
from tvlint.analyses.placement.axes import DATA_AXES, SEQUENCE_AXES
from tvlint.analyses.placement.domain import On, is_whole
from tvlint.ir.operators import Compute
from tvlint.ir.placement import Replicate, Shard
from tvlint.ops.spec import Bound, Call, OpSpec, Trait, UnsupportedError, stars
from tvlint.ops.table import has_kind, row_of


def over_shards(operator: Compute, operands: Sequence[On], ranks: Sequence[int], axis: str) -> tuple[str, int]:
    """Return the rule that the operator breaks on `axis`, and the operand concerned; an empty rule: none that is known."""
    if not operands or not ranks:
        return "", 0
    first, rank = operands[0], ranks[0]
    if len(operands) > 2 and is_whole(first) and _holds_some_keys(operator, operands[1], rank):
        return "attention-over-local-keys", 1
    if not isinstance(first, Shard) or not rank:
        return "", 0
    dim = first.dim % rank
    if has_kind(operator.op, Trait.NORMALISATION) and dim == rank - 1:
        return "norm-over-shards", 0
    if has_kind(operator.op, Trait.CLASS_LOSS) and dim == rank - 1 == 1:
        return "loss-over-shards", 0
    if is_attention(operator) and axis in DATA_AXES - SEQUENCE_AXES:
        return "", 0
    if is_attention(operator) and len(operands) > 2 and is_whole(operands[1]) and operands[2] == first and dim < rank - 1:
        return "attention-over-local-keys", 2
    if is_attention(operator) and len(operands) > 1 and dim < rank - 1:
        keys = operands[1]
        row = row_of(operator.op)
        known = row is not None and row.sequence is not None and rank == 4 and dim == row.sequence % rank
        sequence = known or rank == 2 or (rank == 3 and axis in SEQUENCE_AXES)
        local = sequence and isinstance(keys, Shard) and keys.dim % rank == dim
        return ("attention-over-local-keys", 1) if local else ("", 0)
    return "", 0


def _holds_some_keys(operator: Compute, keys: On, rank: int) -> bool:
    """Return whether attention whose results nothing can put together goes to the keys of some positions alone."""
    row = row_of(operator.op)
    known = row is not None and row.sequence is not None and rank == 4 and len(operator.outputs) == 1 and is_attention(operator)
    return known and row is not None and isinstance(keys, Shard) and keys.dim % rank == (row.sequence or 0) % rank


def attended(operator: Compute, operands: Sequence[Mapping[str, On]], axes: Sequence[str]) -> dict[str, On]:
    """Return how the result of attention that fetches keys from other ranks lies: like its queries, where keys and values do
    or are whole.
    """
    if not is_any_attention(operator) or is_attention(operator):
        return {}
    each = {axis: [operand.get(axis) for operand in operands[:3]] for axis in axes}
    return {
        axis: placement for axis, (placement, keys, values) in each.items()
        if isinstance(placement, Replicate | Shard) and keys == values and (keys == placement or isinstance(keys, Replicate))
    }  # fmt: skip


def loss_spec(operator: Compute) -> OpSpec | None:
    """Cross-entropy of rows of scores with the indices of their targets: a mean or a sum over the rows."""
    return _LOSS if has_kind(operator.op, Trait.CLASS_LOSS) else None


def _loss(call: Call) -> Bound:
    call.reject_unknown("reduction")
    call.expect(2)
    rows = stars(len(call.shape(0)) - 1)
    reduction = call.attributes.get("reduction", "mean")
    if not rows or len(call.shape(1)) != len(rows) or reduction not in ("mean", "sum", "none"):
        raise UnsupportedError(f"`{call.op}` with the reduction {reduction}")
    gone = frozenset(rows)
    return Bound(
        ((*rows, "class"), rows),
        (rows if reduction == "none" else (),),
        reduced=gone if reduction == "sum" else frozenset(),
        averaged=gone if reduction == "mean" else frozenset(),
        whole=frozenset({"class"}),
        zero_gradient=frozenset({1}),
    )


_LOSS = OpSpec("cross-entropy", (), _loss)
