"""Weights and states that all ranks of an axis hold whole, and in whose place each of them puts another value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import joins
from tvlint.analyses.relations.derivation.localisation.sure import Parts, joined_and_summed
from tvlint.analyses.relations.derivation.state import Copied
from tvlint.analyses.relations.held_apart import Numbers, axes_apart, is_split
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Plan

_REPAIR = "gather or reduce what the ranks have before it is copied"


def copies_of_different_values(projection: Projection) -> Iterator[Defect]:
    """Yield the copies into weights and states of which the ranks of an axis hold one, that make them differ.

    What another operator makes anew, as an average over the ranks, is not judged.
    """
    alone, plan = projection.alone, projection.plan
    by_name: dict[str, dict[int, list[Copied]]] = {}
    for copy in alone.derived.copies:
        by_name.setdefault(copy.into, {}).setdefault(copy.rank, []).append(copy)
    yield from _not_addends(projection, by_name)
    made_anew = _written(plan) if by_name else set()
    for name, of_rank in by_name.items():
        if name in made_anew:
            continue
        last = {rank: copies[-1] for rank, copies in of_rank.items()}
        numbers = Numbers(plan, {rank: copy.opaque for rank, copy in last.items()})
        for rank, copy in last.items():
            for axis in axes_apart(plan, rank, copy.opaque, numbers):
                if not is_split(plan, name, axis) and not _is_addend(plan, name, axis):
                    differs = f"`{copy.taken}`, which differs between the ranks of `{axis}`"
                    text, cause = f"`{name}` is overwritten on {{ranks}} with {differs}", ("copied", name, axis)
                    yield at(
                        copy.operator, copy.segment, Defect("divergent-replicas", True, text, rank, repair=_REPAIR, cause=cause)
                    )
                    break


def _not_addends(projection: Projection, by_name: Mapping[str, Mapping[int, list[Copied]]]) -> Iterator[Defect]:
    """Yield what adds a value that all ranks hold to an addend, where that is put in the place of a state of addends."""
    derived, plan = projection.alone.derived, projection.plan
    summed = joined_and_summed(derived, projection.alone.world.terms)
    for name, of_rank in by_name.items():
        parts = Parts(plan, {rank: copies[-1].value for rank, copies in of_rank.items()})
        for rank, copies in of_rank.items():
            value = copies[-1].value
            joined = derived.joined.get(value.term) if value is not None and value.term not in summed else None
            axes = (axis for axis in projection.axes if _is_addend(plan, name, axis) and parts.is_part_over(rank, axis))
            if joined is not None and next(axes, ""):
                yield joins(plan, joined, rank, projection.alone.operators.segment_of(joined.operator), parts)


def _written(plan: Plan) -> set[str]:
    """Return what operators give, which copies into their operand do not."""
    return {name for operator in plan.operators() for name in writes(operator)}


def _is_addend(plan: Plan, name: str, axis: str) -> bool:
    """Return whether a tensor is declared to be a part of a sum over the axis."""
    return isinstance((plan.tensors[name].placements or {}).get(axis), Partial)
