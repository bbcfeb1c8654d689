"""schedule-short-warm-up: a rank starts its backwards so early that the next rank runs dry."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.analyses.schedule.stage_placement import Shape
from tvlint.findings import Finding, Related
from tvlint.ir.schedule import ActionKind
from tvlint.rule import Rule


def check(facts: ScheduleFacts, rule: Rule) -> Iterator[Finding]:
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
        yield rule.finding(
            f"pipeline rank {rank} runs {count} forwards before its first backward {step}, and rank {rank + 1} as many: it has "
            "nothing to run while the gradient travels",
            step.location,
            f"run one more forward before {step}",
            (Related(f"the first backward of rank {rank + 1}", rows[rank + 1][following].location),),
            (rank, rank + 1),
        )
