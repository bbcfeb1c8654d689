"""divergent-replicas: ranks that are claimed to hold the same value compute it differently."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Operators that give one value, or shards of one, on several ranks, and differ in function, constants or attributes."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    if defect.operator == "mates":
        return "`{name}` is computed otherwise than on {other} of `{axis}`: with {has}"
    return "`{name}` is claimed to be the same on {axis} and {other}, which compute it with {has}"


def _help(_: Defect) -> str:
    return "let all ranks compute the value alike"
