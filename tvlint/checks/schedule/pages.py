"""Schedule rules: which defects each page is about, and the findings in the words of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from tvlint.analyses.schedule.coverage import FaultKind
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.findings import coverage, each
from tvlint.analyses.schedule.order import Deadlock, crossed
from tvlint.analyses.schedule.stage_placement import Shape
from tvlint.analyses.schedule.steps import Step, words
from tvlint.checks.schedule import messages
from tvlint.findings import Finding, Related
from tvlint.ir.once import first_of_each
from tvlint.ir.ranks import describe
from tvlint.ir.schedule import ActionKind
from tvlint.rule import Rule, Sighting

_MAXIMAL_GAPS = 20
_MAXIMAL_SHOWN = 8


def findings_of_schedule(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
    """Yield the defects of `rule` in the words of its page, whose `{...}` are words of the defect."""
    yield from map(rule.said_of, SOURCES[rule.name](facts))


def _early_reductions(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield reductions that a backward of the same pipeline stage follows."""
    for step, last in facts.reductions.early:
        related = (Related("the last backward of the pipeline stage stands here", last.location),)
        yield Sighting(step.location, (step.rank,), {"step": step, "last": last, "rank": step.rank}, related)


def _missing_reductions(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield pipeline stages without a reduction, in schedules that reduce others."""
    for step in facts.reductions.missing:
        yield Sighting(step.location, (step.rank,), {"step": step, "stage": step.stage, "rank": step.rank})


def _empty_ranks(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield rows in which nothing is computed."""
    empty = [rank for rank, row in enumerate(facts.rows) if not any(step.computes for step in row)]
    for rank in empty[:20]:
        row = facts.schedule.ranks[rank]
        holds = "holds nothing that is computed" if row.actions else "is blank"
        yield Sighting(row.location, (rank,), {"rank": rank, "holds": holds})


def _circle(found: Deadlock | None) -> Iterator[Sighting]:
    """Yield the circle in which ranks wait for each other."""
    if found is None:
        return
    waits = found.waits[:_MAXIMAL_SHOWN]
    said = "; ".join(f"rank {step.rank} in {step} waits for {need} of rank {need.rank}" for step, need in waits)
    related = tuple(Related(f"{need} of rank {need.rank} stands here", need.location) for _, need in waits)
    yield Sighting(waits[0][0].location, tuple(sorted({step.rank for step, _ in found.waits})), {"waits": said}, related)


def _needs_buffering(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield the circle in which ranks wait when a send waits for its receive, unless they wait anyway."""
    if facts.sends and facts.buffered is None and not any(crossed(facts.messages)):
        yield from _circle(facts.rendezvous)


def _gaps(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield gaps in the numbers of the pipeline stages and of the micro-batches."""
    extent = facts.extent
    for noun, plural, name, gaps, count in (
        ("pipeline stage", "pipeline stages", "stage", extent.missing_stages, extent.stages),
        ("micro-batch", "micro-batches", "micro_batch", extent.missing_micro_batches, extent.micro_batches),
    ):
        for first, last in gaps[:_MAXIMAL_GAPS]:
            after = next(step for step in facts.steps if step.computes and getattr(step, name) == last + 1)
            what = f"{noun} {first}" if first == last else f"{plural} {first}-{last}"
            yield Sighting(after.location, (after.rank,), {"what": what, "after": after, "count": count, "plural": plural})


def _out_of_order(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield compute steps that do not stand after what they need on their rank, once per pipeline stage and kind."""
    inversions = ((pair.early, pair.late) for pair in facts.inversions)
    for early, late in first_of_each(inversions, lambda pair: tuple((step.kind, step.stage) for step in pair)):
        given = {
            "rank": early.rank, "early": early, "late": late, "kind": words(late.kind),
            "when": "at the same time as" if early.position == late.position else "before",
            "owner": "its" if early.stage == late.stage else f"pipeline stage {late.stage}'s",
        }  # fmt: skip
        yield Sighting(early.location, (early.rank,), given, (Related(f"{late} stands here", late.location),))


def _over_budget(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield the rank that goes furthest beyond the budget."""
    if facts.budget is None:
        return
    held = {rank: facts.placement.micro_batches(rank, peak.chunks) for rank, peak in facts.peaks.items()}
    over = {rank: count for rank, count in held.items() if count > facts.budget}
    if not over:
        return
    worst = max(over, key=lambda rank: (over[rank], -rank))
    step = facts.peaks[worst].step
    others = f" (over budget: {describe(over)})" if len(over) > 1 else ""
    given = {"rank": worst, "held": f"{over[worst]:g}", "step": step, "budget": facts.budget, "others": others}
    yield Sighting(step.location, tuple(sorted(over)), given)


def _short_warm_ups(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield ranks that run no more forwards before their first backward than the next rank, although there are more to run."""
    sound = not facts.suspect and not facts.inversions and facts.buffered is None
    if not sound or len(facts.placement.directions) > 1 or facts.placement.shape not in (Shape.SINGLE, Shape.LOOP):
        return
    rows = [[step for step in row if step.computes] for row in facts.rows]
    counts = [next((at for at, step in enumerate(row) if step.kind is not ActionKind.FORWARD), len(row)) for row in rows]
    for rank, (count, following) in enumerate(pairwise(counts)):
        forwards = sum(step.kind is ActionKind.FORWARD for step in rows[rank])
        if count > following or count == forwards:
            continue
        step = rows[rank][count]
        related = (Related(f"the first backward of rank {rank + 1}", rows[rank + 1][following].location),)
        given = {"rank": rank, "count": count, "step": step, "next": rank + 1}
        yield Sighting(step.location, (rank, rank + 1), given, related)


def _misplaced(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield actions away from the rank that runs most of their pipeline stage."""

    def say(step: Step) -> Mapping[str, object]:
        home = facts.placement.rank(step.stage, step.micro_batch)
        return {"where": describe(facts.placement.ranks_of(step.stage) if home is None else (home,))}

    return each(facts.placement.misplaced, say)


def _unpaired_unshards(facts: ScheduleFacts) -> Iterator[Sighting]:
    """Yield unshards of what is whole, reshards of what is sharded, and pipeline stages that stay whole."""
    found = facts.unshards
    yield from each(found.repeated, lambda _: {"what": "comes while the pipeline stage is unsharded already"})
    yield from each(found.needless, lambda _: {"what": "comes while the pipeline stage is not unsharded"})
    what = "is never followed by a reshard: the next step unshards the pipeline stage again"
    yield from each(found.left, lambda _: {"what": what})


SOURCES: Mapping[str, Callable[[ScheduleFacts], Iterator[Sighting]]] = {
    "schedule-compute-on-sharded-stage": lambda facts: each(facts.unshards.sharded),
    "schedule-early-gradient-reduction": _early_reductions,
    "schedule-early-send": messages.early_sends,
    "schedule-empty-rank": _empty_ranks,
    "schedule-fifo-inversion": messages.fifo_inversions,
    "schedule-infeasible": lambda facts: _circle(facts.buffered),
    "schedule-late-receive": messages.late_receives,
    "schedule-message-without-peer": messages.without_peer,
    "schedule-micro-batch-out-of-range": lambda facts: each(
        facts.extent.stray_micro_batches, lambda _: {"last": facts.extent.micro_batches - 1}
    ),
    "schedule-missing-backward": lambda facts: coverage(
        facts,
        {
            FaultKind.NO_BACKWARD: "never runs {} backward",
            FaultKind.NO_INPUT_GRADIENT: "computes the weight gradient of {}, but never the input gradient",
            FaultKind.NO_WEIGHT_GRADIENT: "computes the input gradient of {}, but never the weight gradient",
        },
    ),
    "schedule-missing-forward": lambda facts: coverage(facts, {FaultKind.NO_FORWARD: "never runs {} forward"}),
    "schedule-missing-gradient-reduction": _missing_reductions,
    "schedule-missing-message": messages.missing_messages,
    "schedule-missing-stage": _gaps,
    "schedule-missing-wait": messages.unwaited,
    "schedule-needs-buffering": _needs_buffering,
    "schedule-out-of-order": _out_of_order,
    "schedule-over-activation-budget": _over_budget,
    "schedule-repeated-backward": lambda facts: coverage(
        facts, {FaultKind.REPEATED_BACKWARD: "runs {} backward more than once"}
    ),
    "schedule-repeated-forward": lambda facts: coverage(facts, {FaultKind.REPEATED_FORWARD: "runs {} forward more than once"}),
    "schedule-repeated-gradient-reduction": lambda facts: each(facts.reductions.repeated),
    "schedule-short-warm-up": _short_warm_ups,
    "schedule-stage-on-two-ranks": _misplaced,
    "schedule-stage-out-of-range": lambda facts: each(facts.extent.stray_stages, lambda _: {"last": facts.extent.stages - 1}),
    "schedule-unmatched-receive": messages.unmatched_receives,
    "schedule-unmatched-send": messages.unmatched_sends,
    "schedule-unmatched-wait": messages.loose_waits,
    "schedule-unpaired-unshard": _unpaired_unshards,
}
"""By rule: its defects."""
