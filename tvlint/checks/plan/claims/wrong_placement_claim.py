"""wrong-placement-claim: a result lies otherwise on the mesh than the plan claims."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Results whose derived placement is not the claimed one."""
    return report(facts, "wrong-placement-claim", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"`{defect.name}` is {defect.has} over `{defect.axis}`, but the plan claims {defect.other}"


def _help(_: Defect) -> str:
    return "insert the collective that leads from the one to the other, or correct the claim"
