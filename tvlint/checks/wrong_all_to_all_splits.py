"""wrong-all-to-all-splits: an all-to-all sends or receives sizes that do not add up."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.facts import Facts
from tvlint.analyses.placed import Defect
from tvlint.analyses.placement_findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Splits whose number or sum does not fit the group and the tensor."""
    return report(facts, "wrong-all-to-all-splits", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"{defect.operator} of `{defect.name}`: {defect.other}"


def _help(_: Defect) -> str:
    return "give one size per member, adding up to the dimension"
