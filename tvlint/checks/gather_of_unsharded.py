"""gather-of-unsharded: a value that every rank holds is gathered."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.facts import Facts
from tvlint.analyses.placed import Defect
from tvlint.analyses.placement_findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Gathers over an axis on which the value is not sharded."""
    return report(facts, "gather-of-unsharded", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} gathers `{defect.name}` over `{defect.axis}`, where every rank holds the whole value"


def _help(_: Defect) -> str:
    return "remove the gather, or gather over the axis on which the value is sharded"
