"""attention-over-local-keys: attention sees only the keys of its own shard."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import report
from tvlint.findings import Finding
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Attention calls whose keys are split along the sequence over an axis."""
    return report(facts, rule, _message, _help)


def _message(defect: Defect) -> str:
    what = defect.other or "keys"
    return f"{defect.operator} sees only the {what} `{defect.name}` of its own shard of `{defect.axis}`"


def _help(defect: Defect) -> str:
    return f"gather keys and values over `{defect.axis}`, pass them around a ring, or exchange sequence for heads"
