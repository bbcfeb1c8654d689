"""All-to-alls that split and join along the dimensions from which, and to which, programs move the ranks' parts.

Let x have the dimensions (ranks, ...), of which an all-to-all sends the k-th index to rank k; what it gives has the rank that
sent as its first. For any of the other dimensions a and b it is the all-to-all that splits (.., ranks a, ..) along that
dimension and joins along b, with the joined dimension cut to (ranks, b) and the ranks moved to the front. Where x is moved from
a value that has the one dimension, and what is received is moved to values that have the other, that all-to-all leads from one
to the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from tvlint.readers.capture.lifting.dead import without_dead
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, inputs_of, makers_of, readers_of
from tvlint.readers.capture.lifting.program import Exchange, Ref

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Places: TypeAlias = NDArray[np.int64]

_TURN = "torch.permute"
_MOVED = (_TURN, "torch.Tensor.view")
_DIMS, _MOVES, _ELEMENTS = 6, 8, 1 << 20
"""So many dimensions are tried in each order, and so many moves are followed before and behind an all-to-all of so many."""


def with_exchanged_places(lifted: Lifted) -> Lifted:
    """Return the program with all-to-alls of equal parts along the dimensions that these are taken from and put into."""
    makers, readers = makers_of(lifted), readers_of(lifted)
    changed: dict[int, list[LiftedNode]] = {}
    for node in lifted.nodes:
        if not isinstance(node, Exchange) or node.kind != "all-to-all" or node.splits or node.handle:
            continue
        shape, ranks = lifted.program.shape(node.inputs[0]), len(node.group)
        if (node.dim, node.joined) != (0, None) or shape[0] % ranks or prod(shape) > _ELEMENTS:
            continue
        parts = (ranks, *shape[1:]) if shape[0] == ranks else (ranks, shape[0] // ranks, *shape[1:])
        targets = _targets(node, readers, lifted, parts)
        dims = tuple(dict.fromkeys(dim for dim, _, _ in targets))
        sources = _sources(node, makers, lifted, parts)
        for source, joined in ((source, dim) for source in sources for dim in dims):
            found = [target for target in targets if target[0] == joined]
            moved = {id(call) for _, call, _ in found}
            is_all = id(node) in moved or _are_all_read(node.outputs[0], moved, readers)
            if joined != source[1] and is_all:
                changed |= _moved(lifted, node, source, found)
                break
    if not changed:
        return lifted
    return without_dead(replace(lifted, nodes=[each for node in lifted.nodes for each in changed.get(id(node), [node])]))


def _sources(
    node: Exchange, makers: dict[str, LiftedNode], lifted: Lifted, parts: tuple[int, ...]
) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Yield each value that what is sent is moved from, the dimension that is split, and the order of its dimensions for it."""
    name = node.inputs[0]
    sent = places = _counted(lifted.program.shape(name))
    for _ in range(_MOVES):
        for dim in range(len(parts) - 1):
            order = _order(_merged(sent.reshape(parts), dim), places)
            if order is not None:
                yield name, dim, order
        maker = makers.get(name)
        if not isinstance(maker, Call) or maker.op not in _MOVED:
            return
        name = inputs_of(maker)[0]
        dims = _turn(maker)
        places = places.transpose(sorted(range(len(dims)), key=dims.__getitem__)) if dims else places
        places = places.reshape(lifted.program.shape(name))


def _targets(
    node: Exchange, readers: dict[str, list[LiftedNode]], lifted: Lifted, parts: tuple[int, ...]
) -> list[tuple[int, Call | Exchange, tuple[int, ...]]]:
    """Return the dimensions that can be joined, each with a call that moves what is received to it, and the order it has.

    What is received as it is read comes last, with the all-to-all itself.
    """
    found: list[tuple[int, Call | Exchange, tuple[int, ...]]] = []
    received = _counted(lifted.program.shape(node.outputs[0]))
    ahead = [(node.outputs[0], received, 0)]
    while ahead:
        name, places, moves = ahead.pop()
        for reader in readers.get(name, ()) if moves < _MOVES else ():
            if isinstance(reader, Call) and reader.op in _MOVED:
                dims = _turn(reader)
                moved = (places.transpose(dims) if dims else places).reshape(lifted.program.shape(reader.outputs[0]))
                ahead.append((reader.outputs[0], moved, moves + 1))
                orders = ((dim, _order(moved, _merged(received.reshape(parts), dim))) for dim in range(len(parts) - 1))
                found += [(dim, reader, order) for dim, order in orders if order is not None]
    orders = ((dim, _order(received, _merged(received.reshape(parts), dim))) for dim in range(len(parts) - 1))
    return found + [(dim, node, order) for dim, order in orders if order is not None]


def _are_all_read(name: str, moved: set[int], readers: dict[str, list[LiftedNode]]) -> bool:
    """Return whether a value is read by permutations and views alone, and the ends of these are the calls that are moved."""
    moves = [reader for reader in readers.get(name, []) if isinstance(reader, Call) and reader.op in _MOVED]
    ends = (id(move) in moved or _are_all_read(move.outputs[0], moved, readers) for move in moves)
    return bool(moves) and len(moves) == len(readers[name]) and all(ends)


def _moved(
    lifted: Lifted,
    node: Exchange,
    source: tuple[str, int, tuple[int, ...]],
    targets: list[tuple[int, Call | Exchange, tuple[int, ...]]],
) -> dict[int, list[LiftedNode]]:
    """Return the all-to-all along the dimensions in place of it, and what moves its result in place of the targets."""
    (name, split, order), joined = source, targets[0][0]
    type = lifted.program.types[name]
    shape = [type.shape[dim] for dim in order]
    given = lifted.program.fresh(type.of_shape(tuple(shape)))
    shape[split] //= len(node.group)
    shape[joined] *= len(node.group)
    made = lifted.program.fresh(type.of_shape(tuple(shape)))
    along = replace(node, inputs=(given,), outputs=(made,), dim=split, joined=joined)
    changed: dict[int, list[LiftedNode]] = {id(node): [Call(_TURN, (Ref(name),), {"dims": order}, (given,), node.mark), along]}
    for _, call, dims in targets:
        changed[id(call)] = [*changed.get(id(call), ()), Call(_TURN, (Ref(made),), {"dims": dims}, call.outputs, call.mark)]
    return changed


def _counted(shape: tuple[int, ...]) -> Places:
    import numpy as np

    return np.arange(prod(shape)).reshape(shape)


def _turn(call: Call) -> tuple[int, ...]:
    """Return the order in which a permutation puts dimensions; nothing for a view."""
    dims = call.attributes.get("dims") if call.op == _TURN else None
    return tuple(dim for dim in dims if isinstance(dim, int)) if isinstance(dims, tuple) else ()


def _merged(parts: Places, dim: int) -> Places:
    """Return the parts with their first dimension before another one, as one with it."""
    rest = parts.shape[1:]
    front = (*range(1, dim + 1), 0, *range(dim + 1, parts.ndim))
    merged: Places = parts.transpose(front).reshape(*rest[:dim], -1, *rest[dim + 1 :])
    return merged


def _order(moved: Places, places: Places) -> tuple[int, ...] | None:
    """Return the order of the dimensions of `places` in which they are what is moved; None where there is none."""
    if moved.ndim > _DIMS or sorted(moved.shape) != sorted(places.shape):
        return None
    orders = (order for order in permutations(range(moved.ndim)) if places.transpose(order).shape == moved.shape)
    return next((order for order in orders if (places.transpose(order) == moved).all()), None)
