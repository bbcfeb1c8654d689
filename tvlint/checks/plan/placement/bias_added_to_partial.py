"""bias-added-to-partial: a bias is added on every rank to a partial sum."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Weights and constants that are added to a partial sum, and so once per rank."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    what = f"`{defect.other}`" if defect.other else "a constant"
    axis = f"`{defect.axis}`"
    return f"{defect.operator} adds {what} to `{defect.name}`, a partial value over {axis}: once per rank of {axis}"


def _help(defect: Defect) -> str:
    return f"reduce `{defect.name}` over `{defect.axis}` first, then add once"
