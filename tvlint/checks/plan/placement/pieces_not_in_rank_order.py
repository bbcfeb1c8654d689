"""pieces-not-in-rank-order: pieces are cut or joined in another order than the plan claims."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Return chunks that take another piece than claimed, and gathers whose pieces are not in the order of the ranks."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    if defect.operator == "output":
        return "output `{name}` is {has} over `{axis}`"
    if not defect.ranks:
        return "`{name}` is {has} over `{axis}`, but is used or claimed as {other}"
    return (
        "{operator} over {axis} goes by rank order: `{name}` is {has}, "
        "where the plan claims {other}"
    )


def _help(_: Defect) -> str:
    return "place the pieces in the order of the sorted ranks: a process group has no other"
