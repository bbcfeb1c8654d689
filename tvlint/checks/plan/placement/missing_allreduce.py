"""missing-allreduce: a partial sum is used as if it were complete."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Partial sums that are added to complete values, multiplied with shards, or handed out."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    if defect.other == "claim":
        return f"`{defect.name}` is a partial value over `{defect.axis}`, but the plan claims it complete"
    if defect.other == "output":
        return f"output `{defect.name}` is a partial value over `{defect.axis}`"
    if defect.operator == "identity":
        return f"`{defect.name}` is one of several addends, but `{defect.other}` is claimed complete without a sum"
    with_other = f" with `{defect.other}`" if defect.other and defect.other != defect.name else ""
    return f"`{defect.name}` is a partial value over `{defect.axis}`, but {defect.operator} uses it{with_other} as complete"


def _help(defect: Defect) -> str:
    return f"reduce `{defect.name}` over `{defect.axis}` first"
