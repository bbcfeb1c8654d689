"""Reducers of gradients of which a rank is left no part: those of the ranks that are left them.

With several instances of a distributed optimizer, the ranks of an instance scatter each gradient, and each rank then sums what
it was left with the same part in the other instances. A rank that was left nothing of a weight does not take part in that sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.readers.capture.rank import Prepared
from tvlint.readers.capture.reducers import Reducer


def with_reducers_of_left_parts(prepared: Sequence[Prepared]) -> list[Prepared]:
    """Return the ranks, each with the reducers that the parts of its gradients pass through on other ranks."""
    known = [_by_weight(each.reduced.reducers) for each in prepared]
    return [_completed(rank, prepared, known) if each.reduced.none else each for rank, each in enumerate(prepared)]


def _by_weight(reducers: Sequence[Reducer]) -> dict[str, list[Reducer]]:
    found: dict[str, list[Reducer]] = {}
    for reducer in reducers:
        found.setdefault(reducer.weight, []).append(reducer)
    return found


def _completed(rank: int, prepared: Sequence[Prepared], known: Sequence[dict[str, list[Reducer]]]) -> Prepared:
    reduced = prepared[rank].reduced
    completed = {
        weight: _of_others(rank, weight, prepared, known) if weight in reduced.none else reducers
        for weight, reducers in known[rank].items()
    }
    every = tuple(reducer for reducers in completed.values() for reducer in reducers)
    return replace(prepared[rank], reduced=replace(reduced, reducers=every))


def _of_others(
    rank: int, weight: str, prepared: Sequence[Prepared], known: Sequence[dict[str, list[Reducer]]]
) -> list[Reducer]:
    """Return the reducers of a rank that is left a part, between the ranks that stand where this rank does in their groups."""
    given = known[rank][weight]
    scatter = next(reducer for reducer in given if reducer.scatter)
    for other in scatter.group:
        there = known[other].get(weight, [])
        begins = list(map(_kind, there[: len(given)])) == list(map(_kind, given))
        factors = [prepared[each].reduced.left.get(weight) for each in (rank, other)]
        if weight in prepared[other].reduced.none or not begins or factors[0] != factors[1]:
            continue
        moved = [_seen_from(rank, other, weight, each, scatter.group, known) for each in there[len(given) :]]
        if None not in moved:
            return [*there[: len(given)], *(each for each in moved if each is not None)]
    return given


def _kind(reducer: Reducer) -> tuple[object, ...]:
    return reducer.group, reducer.reduce, reducer.scatter


def _seen_from(
    rank: int,
    other: int,
    weight: str,
    reducer: Reducer,
    group: tuple[int, ...],
    known: Sequence[dict[str, list[Reducer]]],
) -> Reducer | None:
    """Return a reducer of another rank of the group between the ranks whose places in their groups this rank has in its own."""
    found = []
    for member in reducer.group:
        scattered = [each.group for each in known[member].get(weight, ()) if each.scatter]
        if not scattered or len(scattered[0]) != len(group) or scattered[0].index(member) != group.index(other):
            return None
        found.append(scattered[0][group.index(rank)])
    return replace(reducer, group=tuple(sorted(found)))
