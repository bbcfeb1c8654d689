"""Weights of whose rows the ranks hold unequal shards, each as a flat weight in which it lies alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tvlint.ir.placement import Replicate, Shard
from tvlint.readers.capture.rewriting.flat_gradients import FlatWeight, NotFlatError
from tvlint.readers.capture.tapes.communicators import group_along
from tvlint.readers.capture.tapes.tape import Laid, Named, Tape


def uneven_shards(tapes: Sequence[Tape]) -> list[dict[str, FlatWeight]]:
    """Return the weights whose rows one axis cuts into unequal shards, by name, for each rank.

    Raises NotFlatError for a weight that is cut in another way.
    """
    shards: dict[str, dict[int, Named]] = {}
    for tape in tapes:
        for event in tape.events:
            if isinstance(event, Named) and event.whole is not None and event.placements:
                shards.setdefault(event.name, {}).setdefault(tape.rank, event)
    found: list[dict[str, FlatWeight]] = [{} for _ in tapes]
    for name, held in shards.items():
        shapes = {rank: tapes[rank].windows[named.window].shape for rank, named in held.items()}
        if len(set(shapes.values())) > 1:
            for rank, named in held.items():
                found[rank][name] = _as_flat(named, shapes, tapes[rank])
    return found


def _as_flat(named: Named, shapes: Mapping[int, tuple[int, ...]], tape: Tape) -> FlatWeight:
    """Return a weight as a flat one: each rank of an axis holds as many rows, but for the last ones, that hold what is left."""
    whole, cut = named.whole or (), {axis: lies for axis, lies in (named.placements or {}).items() if lies != Replicate()}
    if [*cut.values()] != [Shard(0)] or not whole:
        raise NotFlatError(named.name, None)
    group = group_along(tape, tuple(cut))
    rows = -(-whole[0] // len(group))
    laid = Laid(named.name, whole, 0, named.trained)
    flat = replace(named, flat=(laid,), group=group)
    found = FlatWeight(flat, rows * prod(whole[1:]), tape.rank, {(0, prod(whole)): laid}, prod(whole))
    for place, member in enumerate(group):
        if shapes.get(member) != (max(0, min(rows, whole[0] - place * rows)), *whole[1:]):
            raise NotFlatError(named.name, None)
    return found
