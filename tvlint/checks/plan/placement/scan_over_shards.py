"""scan-over-shards: a running sum, a convolution or a shift ends at the shard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.findings import of_rule, report
from tvlint.analyses.placement.scans_and_convolutions import carries
from tvlint.findings import Finding, Severity
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Functions of neighbouring positions along a split dimension; a warning where ranks may hand on what a shard lacks."""
    findings = report(facts, rule, _message, _help)
    for defect, finding in zip(of_rule(facts, "scan-over-shards"), findings, strict=True):
        yield replace(finding, severity=Severity.WARNING) if carries(facts, defect.axis) else finding


def _message(_: Defect) -> str:
    return (
        "{operator} takes from neighbouring positions of `{name}`, but that dimension is split over "
        "`{axis}`: every rank starts anew at its shard"
    )


def _help(_: Defect) -> str:
    return "gather `{name}` over `{axis}`, trade the split for one of channels, or hand on what the shards lack"
