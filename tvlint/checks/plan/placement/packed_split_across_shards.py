"""packed-split-across-shards: a packed dimension is split although its shards do not follow the packing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import of_rule, report
from tvlint.findings import Finding, Severity
from tvlint.ir.operators import Compute
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Splits along a dimension that is sharded as one piece; into two parts only a warning, since weights of gated units are
    often stored with the parts of every rank side by side."""
    found = report(facts, rule, _message, _help)
    for defect, finding in zip(of_rule(facts, "packed-split-across-shards"), found, strict=True):
        operator = facts.plan.segments[defect.where[0]].operators[defect.where[1]]
        parts = len(operator.outputs) if isinstance(operator, Compute) else 0
        yield finding if parts > 2 else replace(finding, severity=Severity.WARNING)


def _message(_: Defect) -> str:
    return (
        "{operator} splits `{name}` along the dimension that is sharded over `{axis}`, "
        "as if each shard held all parts"
    )


def _help(_: Defect) -> str:
    return "shard each packed part on its own (`S(DIM, parts=[..])`), or interleave the parts by head"
