"""A pipeline schedule as JSON, for programs; `schemas/schedule.schema.json` describes it."""

from __future__ import annotations

from tvlint.analyses.schedule.summary import Summary
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped


def write(summary: Summary) -> Escaped:
    """Family, sizes, bubble and peaks, and the start of every compute step."""
    timing = summary.timing
    ranks = []
    for rank in range(summary.ranks):
        steps = timing.ranks[rank] if timing is not None else ()
        ranks.append(
            {
                "rank": rank,
                "pipelineStages": list(summary.chunks[rank]),
                "peakActivations": summary.peaks[rank],
                "idle": timing.idle[rank] if timing is not None else None,
                "steps": [{"action": str(timed.step.action), "start": timed.start, "end": timed.end} for timed in steps],
            }
        )
    content = {
        "path": summary.path,
        "family": None if summary.family == "unknown" else summary.family,
        "placement": summary.placement,
        "pipelineStages": summary.stages,
        "microBatches": summary.micro_batches,
        "makespan": timing.makespan if timing is not None else None,
        "bubble": round(timing.bubble, 6) if timing is not None else None,
        "ranks": ranks,
    }
    return data(content)
