"""packed-split-across-shards: a packed dimension is split although its shards do not follow the packing."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.facts import Facts
from tvlint.analyses.placed import Defect
from tvlint.analyses.placement_findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.WARNING


def check(facts: Facts) -> Iterator[Finding]:
    """Splits along a dimension that is sharded as one piece."""
    return report(facts, "packed-split-across-shards", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return (
        f"{defect.operator} splits `{defect.name}` along the dimension that is sharded over `{defect.axis}`, "
        "as if each shard held all parts"
    )


def _help(_: Defect) -> str:
    return "shard each packed part on its own (`S(DIM, parts=[..])`), or interleave the parts by head"
