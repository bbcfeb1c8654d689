"""Transfer function of collectives: placements on the axes of the group before and after."""

from __future__ import annotations

from tvlint.analyses.placement.domain import On, Shuffled, is_whole
from tvlint.ir.operators import Collective, Communicate
from tvlint.ir.placement import Partial, Replicate, Shard


def after(operator: Communicate, before: On, rank: int, members: int) -> tuple[On, str]:
    """Return the placement on one axis of the group, and the rule that is broken (empty: none).

    `rank` is the number of dimensions of the operand. The axis has `members` ranks.
    """
    dim = operator.dim % rank if operator.dim is not None and rank and -rank <= operator.dim < rank else operator.dim
    if operator.kind is Collective.ALL_REDUCE:
        return _reduced(operator, before, Replicate())
    if operator.kind is Collective.REDUCE:
        return _reduced(operator, before, None)
    if operator.kind is Collective.REDUCE_SCATTER:
        scattered = None if dim is None else Shard(dim)
        return _reduced(operator, before, scattered)
    if operator.kind in (Collective.ALL_GATHER, Collective.GATHER):
        return _gathered(operator, before, dim, rank)
    if operator.kind is Collective.ALL_TO_ALL:
        return _exchanged(operator, before, dim, rank, members)
    if operator.kind is Collective.BROADCAST:
        return Replicate(), ""
    if operator.kind in (Collective.CHUNK, Collective.SCATTER):
        return (Shard(dim) if is_whole(before) and dim is not None else None), ""
    return before, ""


def _reduced(operator: Communicate, before: On, result: On) -> tuple[On, str]:
    reduce = operator.reduce or "sum"
    if isinstance(before, Shard):
        return None, ""
    if is_whole(before):
        return (None if reduce == "sum" else result), ""
    if not isinstance(before, Partial) or before.reduce == reduce or (before.reduce, reduce) == ("avg", "sum"):
        return result, ""
    return None, "wrong-reduce-op"


def _gathered(operator: Communicate, before: On, dim: int | None, rank: int) -> tuple[On, str]:
    result: On = None if operator.kind is Collective.GATHER else Replicate()
    if is_whole(before) or isinstance(before, Partial):
        return None, ""
    if isinstance(before, Shard):
        if dim is not None and rank and before.dim % rank != dim:
            return None, ""
        if before.parts or operator.splits:
            return None, ""
        order = tuple(piece for pieces in before.order for piece in pieces)
        if order != tuple(range(len(order))):
            return (Shuffled(before.dim % max(rank, 1), order) if isinstance(result, Replicate) else None), ""
    return result, ""


def _exchanged(operator: Communicate, before: On, dim: int | None, rank: int, members: int) -> tuple[On, str]:
    uneven = len({*operator.splits}) > 1 or len({*operator.receive_splits}) > 1
    if uneven or dim is None or operator.concat_dim is None or not rank:
        return None, ""
    joined = operator.concat_dim % rank
    if isinstance(before, Shard) and not before.parts and before.dim % rank == joined == dim:
        return _traded(before, dim, members), ""
    if isinstance(before, Shard) and not before.order and not before.parts:
        return (Shard(dim), "") if before.dim % rank == joined else (None, "wrong-all-to-all-dim")
    return None, ""


def _traded(before: Shard, dim: int, members: int) -> On:
    """Every rank sends its j-th piece to rank j: what the ranks of an axis hold is transposed."""
    order = before.order or tuple(tuple(range(rank * members, (rank + 1) * members)) for rank in range(members))
    if members > 256 or len(order) != members or any(len(pieces) % members for pieces in order):
        return None
    each = len(order[0]) // members
    if any(len(pieces) != each * members for pieces in order):
        return None
    traded = tuple(
        tuple(piece for pieces in order for piece in pieces[rank * each : (rank + 1) * each]) for rank in range(members)
    )
    flat = tuple(piece for pieces in traded for piece in pieces)
    return Shard(dim) if flat == tuple(range(len(flat))) else Shard(dim, traded)


def faulty_splits(operator: Communicate, shape: tuple[int, ...], members: int) -> str:
    """Return what is wrong with the sizes that an all-to-all sends and receives, in words; empty: nothing."""
    for what, splits in (("splits", operator.splits), ("receive-splits", operator.receive_splits)):
        if splits and len(splits) != members:
            return f"{len(splits)} {what} for {members} ranks"
    dim = operator.dim if operator.dim is not None else 0
    if not -len(shape) <= dim < len(shape):
        return ""
    if operator.splits and sum(operator.splits) != shape[dim]:
        return f"splits {list(operator.splits)} add up to {sum(operator.splits)}, the dimension has {shape[dim]}"
    if not operator.splits and shape[dim] % members:
        return f"a dimension of {shape[dim]} for {members} ranks"
    return ""
