"""root-only-result-used: a result that only the root holds is used on other ranks."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding, Severity

SEVERITY = Severity.ERROR


def check(facts: Facts) -> Iterator[Finding]:
    """Uses of a reduce or gather result on ranks that do not hold it."""
    return report(facts, "root-only-result-used", SEVERITY, _message, _help)


def _message(defect: Defect) -> str:
    return f"`{defect.name}` is {defect.has} of `{defect.axis}`, but {defect.operator} uses it on every rank"


def _help(_: Defect) -> str:
    return "use all-reduce or all-gather, or broadcast the result"
