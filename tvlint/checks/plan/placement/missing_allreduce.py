"""missing-allreduce: a partial sum is used as if it were complete."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Partial sums that the plan claims to be complete."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    if defect.other == "claim":
        return "`{name}` is a partial value over `{axis}`, but the plan claims it complete"
    return "`{name}` is one of several addends, but `{other}` is claimed complete without a sum"


def _help(_: Defect) -> str:
    return "reduce `{name}` over `{axis}` first"
