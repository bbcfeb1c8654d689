"""A pipeline schedule as JSON, for programs; `schemas/schedule.schema.json` describes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tvlint.analyses.schedule.summary import Summary
from tvlint.findings import Finding
from tvlint.reporters.escape.data import data
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.json.report import finding_data


def write(summary: Summary, findings: Sequence[Finding], root: Path) -> Escaped:
    """Family, sizes, bubble and peaks, the start of every compute step, and what is wrong."""
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
        "findings": [finding_data(finding, root) for finding in findings],
    }
    return data(content)
