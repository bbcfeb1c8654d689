"""wrong-gather-dim: shards are gathered along another dimension than they are split."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Gathers along a dimension that is not the sharded one."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    other = f"; the dimension is split over the axis `{defect.wants}`" if defect.wants else ""
    return (
        f"{defect.operator} joins `{defect.name}` along another dimension than it is "
        f"split over `{defect.axis}`: it is {defect.has}{other}"
    )


def _help(defect: Defect) -> str:
    return "gather along the dimension that is sharded" + (f", or over `{defect.wants}`" if defect.wants else "")
