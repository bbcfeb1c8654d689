"""gather-of-unsharded: a value that every rank holds is gathered."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Gathers over an axis on which the value is not sharded."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    other = f"; the dimension is split over the axis `{defect.wants}`" if defect.wants else ""
    return f"{defect.operator} gathers `{defect.name}` over `{defect.axis}`, where every rank holds the whole value{other}"


def _help(defect: Defect) -> str:
    over = f"`{defect.wants}`" if defect.wants else "the axis on which the value is sharded"
    return f"remove the gather, or gather over {over}"
