"""Weights and states that all ranks of an axis hold whole, and in whose place each of them puts another value."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.state import Copied
from tvlint.analyses.relations.held_apart import Numbers, axes_apart, is_split
from tvlint.analyses.relations.matchers.projection import Projection


def copies_of_different_values(projection: Projection) -> Iterator[Defect]:
    """Yield the copies into weights and states of which the ranks of an axis hold one, that make them differ."""
    alone, plan = projection.alone, projection.plan
    by_name: dict[str, dict[int, list[Copied]]] = {}
    for copy in alone.derived.copies:
        by_name.setdefault(copy.into, {}).setdefault(copy.rank, []).append(copy)
    for name, of_rank in by_name.items():
        last = {rank: copies[-1] for rank, copies in of_rank.items()}
        numbers = Numbers(plan, {rank: copy.opaque for rank, copy in last.items()})
        for rank, copy in last.items():
            for axis in axes_apart(plan, rank, copy.opaque, numbers):
                if not is_split(plan, name, axis):
                    differs = f"`{copy.taken}`, which differs between the ranks of `{axis}`"
                    text, cause = f"`{name}` is overwritten on {{ranks}} with {differs}", ("copied", name, axis)
                    yield at(copy.operator, copy.segment, Defect("divergent-replicas", True, text, rank, cause=cause))
                    break
