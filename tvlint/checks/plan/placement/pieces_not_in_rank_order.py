"""pieces-not-in-rank-order: pieces are cut or joined in another order than the plan claims."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Chunks that take another piece than claimed, and gathers whose pieces are not in the order of the ranks."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    if defect.operator == "output":
        return f"output `{defect.name}` is {defect.has} over `{defect.axis}`"
    if not defect.ranks:
        return f"`{defect.name}` is {defect.has} over `{defect.axis}`, but is used or claimed as {defect.other}"
    return (
        f"{defect.operator} over {defect.axis} goes by rank order: `{defect.name}` is {defect.has}, "
        f"where the plan claims {defect.other}"
    )


def _help(_: Defect) -> str:
    return "place the pieces in the order of the sorted ranks: a process group has no other"
