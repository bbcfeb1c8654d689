"""scale-of-another-tensor: codes are dequantised with the scale of another tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.gradients.dequantisation import misread_codes
from tvlint.findings import Finding, Severity
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield codes that are dequantised with another scale; a warning where the plan makes no other codes with that."""
    for misread in misread_codes(facts.plan):
        of = f", the scale of `{misread.of}`" if misread.of else ""
        found = rule.finding(
            f"`{misread.codes}` was quantised with `{misread.right}` and is dequantised with `{misread.scale}`{of}",
            facts.place(misread.segment, misread.index),
            f"take `{misread.codes}` back with `{misread.right}`, or with what is made of it",
            ranks=facts.fold.everywhere(misread.ranks),
            about=(misread.codes, misread.right, misread.scale),
        )
        yield found if misread.of else replace(found, severity=Severity.WARNING)
