"""The numbers that a rank starts from, and what collectives do with the pieces of ranks."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import reduce

import numpy as np

from oracle.functions import Array, FailureError, rounded
from tvlint.ir.operators import Collective, Communicate
from tvlint.ir.placement import Partial, Shard
from tvlint.ir.plan import Box, Plan, Tensor


def is_integer(dtype: str) -> bool:
    return dtype.rsplit(".", 1)[-1].startswith(("int", "uint", "long"))


def logical_array(name: str, shape: tuple[int, ...], dtype: str, below: int, seed: int) -> Array:
    """The value that every plan gives the logical name: small reals, or integers under `below`."""
    random = np.random.default_rng([zlib.crc32(name.encode()), seed])
    if dtype.rsplit(".", 1)[-1] == "bool":
        return random.integers(0, 2, shape).astype(float)
    if is_integer(dtype):
        return random.integers(0, below, shape).astype(float)
    return np.asarray(random.uniform(0.3, 1.0, shape) * random.choice([-1.0, 1.0], shape))


def box_of(tensor: Tensor, plan: Plan, rank: int) -> tuple[tuple[int, ...], Box]:
    """The whole shape of `tensor`, and the box of it that `rank` holds, from its region or its placements."""
    whole = tensor.whole if tensor.whole is not None else tensor.shape
    box = tensor.region if tensor.region is not None else tuple((0, size) for size in whole)
    placements = (tensor.placements or {}) if tensor.region is None else {}
    for name in (axis.name for axis in plan.mesh.axes):
        placement = placements.get(name)
        if isinstance(placement, Partial) or (isinstance(placement, Shard) and (placement.order or placement.parts)):
            raise NotImplementedError("a start value that is partial or placed in several pieces")
        if isinstance(placement, Shard):
            if not -len(box) <= placement.dim < len(box):
                raise FailureError(f"`{tensor.name}` is split along dimension {placement.dim}")
            dim = placement.dim % len(box)
            low, high = box[dim]
            size, rest = divmod(high - low, plan.mesh.axis_size(name))
            if rest:
                raise FailureError(f"`{tensor.name}` does not divide over `{name}`")
            at = low + plan.mesh.coordinates(rank)[name] * size
            box = (*box[:dim], (at, at + size), *box[dim + 1 :])
    if len(box) != len(whole) or any(not 0 <= low < high <= size for (low, high), size in zip(box, whole, strict=True)):
        raise FailureError(f"`{tensor.name}` claims {box} of {whole}")
    if tuple(high - low for low, high in box) != tensor.shape:
        raise FailureError(f"`{tensor.name}` claims {box} but has shape {tensor.shape}")
    return whole, box


def start_value(tensor: Tensor, plan: Plan, rank: int, below: int, seed: int) -> Array:
    """What `rank` holds of a weight or buffer before the step."""
    whole, box = box_of(tensor, plan, rank)
    value = logical_array(tensor.logical or tensor.name, whole, tensor.dtype, below, seed)
    return rounded(value[tuple(slice(low, high) for low, high in box)] / tensor.part[1], tensor.dtype)


def combine(values: Sequence[Array], how: str) -> Array:
    if len({value.shape for value in values}) > 1:
        raise FailureError(f"a reduction over shapes {sorted({value.shape for value in values})}")
    if how in ("", "sum"):
        return reduce(np.add, values)
    if how in ("avg", "mean"):
        return reduce(np.add, values) / len(values)
    if how in ("max", "min"):
        return reduce(np.maximum if how == "max" else np.minimum, values)
    raise FailureError(f"no reduction `{how}`")


def cut(value: Array, dim: int | None, count: int, splits: tuple[int, ...]) -> list[Array]:
    if dim is None or not -value.ndim <= dim < value.ndim:
        raise FailureError(f"a cut along {dim} of shape {value.shape}")
    size = value.shape[dim]
    if splits and (len(splits) != count or sum(splits) != size):
        raise FailureError(f"splits {splits} of {size} over {count} ranks")
    if not splits and size % count:
        raise FailureError(f"{size} does not divide over {count} ranks")
    return np.split(value, np.cumsum(splits)[:-1] if splits else count, axis=dim)


def joined(pieces: Sequence[Array], dim: int | None) -> Array:
    try:
        return np.concatenate(pieces, axis=0 if dim is None else dim)
    except ValueError as error:
        raise FailureError(f"a join of shapes {[piece.shape for piece in pieces]}: {error}") from error


def exchange(operators: Sequence[Communicate], values: Sequence[Array | None], members: Sequence[int]) -> list[Array | None]:
    """What each of `members`, in rank order, has after the collective; None: nothing for it."""
    kinds = {(each.kind, each.reduce, each.dim, each.concat_dim, each.root) for each in operators}
    if len(kinds) > 1:
        raise FailureError(f"ranks {tuple(members)} run different collectives: {sorted(str(kind[0].value) for kind in kinds)}")
    own, count, kind = operators[0], len(members), operators[0].kind
    if kind is Collective.BARRIER:
        return [None] * count
    root = None
    if kind in (Collective.BROADCAST, Collective.REDUCE, Collective.SCATTER, Collective.GATHER):
        if own.root is None or own.root not in members:
            raise FailureError(f"the root {own.root} is not one of {tuple(members)}")
        root = list(members).index(own.root)
    if kind in (Collective.BROADCAST, Collective.SCATTER):
        assert root is not None
        sent = values[root]
        if sent is None:
            raise FailureError("the root has nothing to send")
        return [sent] * count if kind is Collective.BROADCAST else list(cut(sent, own.dim, count, own.splits))
    given = [value for value in values if value is not None]
    if len(given) != count:
        raise FailureError("a member of a collective has no value")
    if kind is Collective.ALL_REDUCE:
        return [combine(given, own.reduce)] * count
    if kind is Collective.REDUCE:
        return [combine(given, own.reduce) if i == root else None for i in range(count)]
    if kind is Collective.ALL_GATHER:
        return [joined(given, own.dim)] * count
    if kind is Collective.GATHER:
        return [joined(given, own.dim) if i == root else None for i in range(count)]
    if kind is Collective.REDUCE_SCATTER:
        return list(cut(combine(given, own.reduce), own.dim, count, own.splits))
    if kind is Collective.ALL_TO_ALL:
        parts = [cut(value, own.dim, count, each.splits) for value, each in zip(given, operators, strict=True)]
        return [joined([part[i] for part in parts], own.concat_dim) for i in range(count)]
    raise FailureError(f"no collective `{kind.value}`")
