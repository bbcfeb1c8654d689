"""Defects of a schedule as its rules report them, once per root cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tvlint.analyses.schedule.coverage import Fault, FaultKind
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.steps import BACKWARDS, Step, numbered
from tvlint.findings import Related
from tvlint.ir.location import Location
from tvlint.ir.schedule import ActionKind
from tvlint.rule import Sighting

MAXIMAL_RELATED = 8
MAXIMAL_FINDINGS = 100
"""Findings of one rule; the last one counts the rest."""
_MISSING = {
    FaultKind.NO_FORWARD: (ActionKind.FORWARD,),
    FaultKind.NO_BACKWARD: BACKWARDS,
    FaultKind.NO_INPUT_GRADIENT: (ActionKind.INPUT_GRADIENT,),
    FaultKind.NO_WEIGHT_GRADIENT: (ActionKind.WEIGHT_GRADIENT,),
}
"""What would have to be there."""


def coverage(facts: ScheduleFacts, sentences: Mapping[FaultKind, str]) -> Iterator[Sighting]:
    """Yield one defect for the pipeline stages that have the same fault with the same micro-batches.

    A sentence holds `{}` for the micro-batches. What a stray explains is left to the rule about the stray.
    """
    by_stage: dict[tuple[FaultKind, int], list[Fault]] = {}
    for fault in facts.faults:
        if fault.kind in sentences:
            by_stage.setdefault((fault.kind, fault.stage), []).append(fault)
    alike: dict[tuple[FaultKind, tuple[int, ...]], list[list[Fault]]] = {}
    for (kind, _), faults in by_stage.items():
        if _explained(facts, faults):
            continue
        alike.setdefault((kind, tuple(fault.micro_batch for fault in faults)), []).append(faults)
    for (kind, micro_batches), groups in alike.items():
        stages = [group[0].stage for group in groups]
        what = sentences[kind].format(numbered("micro-batch", micro_batches))
        at = [place for group in groups for place in places(facts, group[0])]
        ranks = sorted({rank for group in groups if (rank := _rank(facts, group[0])) is not None})
        related = tuple(Related("the same stands here", place) for place in at[1 : MAXIMAL_RELATED + 1])
        yield Sighting(at[0], tuple(ranks), {"stages": numbered("pipeline stage", stages), "what": what}, related)


def _explained(facts: ScheduleFacts, faults: list[Fault]) -> bool:
    """Return whether what is missing is probably there with a wrong number, which another rule reports."""
    first = faults[0]
    if first.kind not in _MISSING:
        return False
    if len(facts.extent.stray_stages) + len(facts.extent.stray_micro_batches) < len(faults):
        return False
    rank = facts.placement.rank(first.stage, first.micro_batch)
    strays = facts.strays_for(_MISSING[first.kind], first.stage, first.micro_batch, rank)
    return len(faults) <= strays


def places(facts: ScheduleFacts, fault: Fault) -> list[Location]:
    """Return where a fault is seen: its last step first, or the row of its rank where nothing is left of it."""
    if fault.steps:
        return [step.location for step in (*fault.steps[1:], fault.steps[0])]
    rank = _rank(facts, fault)
    return [facts.schedule.ranks[rank].location if rank is not None else Location(facts.schedule.path)]


def _rank(facts: ScheduleFacts, fault: Fault) -> int | None:
    return fault.steps[0].rank if fault.steps else facts.placement.rank(fault.stage, fault.micro_batch)


def each(steps: Iterable[Step], say: Callable[[Step], Mapping[str, object]] = lambda _: {}) -> Iterator[Sighting]:
    """Yield one defect for the steps of each rank, pipeline stage and kind; `say(first)` are words beside those of a step."""
    alike: dict[tuple[int, int, str], list[Step]] = {}
    for step in steps:
        alike.setdefault((step.rank, step.stage, step.kind.value), []).append(step)
    left = sum(len(group) for group in list(alike.values())[MAXIMAL_FINDINGS:])
    for number, group in enumerate(list(alike.values())[:MAXIMAL_FINDINGS], 1):
        others = len(group) - 1 + (left if number == MAXIMAL_FINDINGS else 0)
        more = f" (and {others:,} more like it)" if others else ""
        related = tuple(Related(f"{step} is another one", step.location) for step in group[1 : MAXIMAL_RELATED + 1])
        step = group[0]
        words = {"step": step, "rank": step.rank, "stage": step.stage, "micro_batch": step.micro_batch, "more": more}
        yield Sighting(step.location, (step.rank,), {**words, **say(step)}, related)
