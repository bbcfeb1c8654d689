"""Findings at one place that one change repairs: reports for people show the place and the change once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tvlint.findings import Finding


def of_one_cause(findings: Iterable[Finding]) -> Iterator[list[Finding]]:
    """Yield the findings in their order, those together that stand at one place and have help in common."""
    group: list[Finding] = []
    for finding in findings:
        if group and not (_place_of(finding) == _place_of(group[0]) and common_help([*group, finding])):
            yield group
            group = []
        group.append(finding)
    if group:
        yield group


def common_help(findings: Sequence[Finding]) -> str:
    """Return what the help of every finding says, among other things."""
    said = [finding.help.split("; ") for finding in findings]
    return "; ".join(part for part in said[0] if part and all(part in other for other in said[1:]))


def _place_of(finding: Finding) -> tuple[object, ...]:
    return finding.severity, finding.location, finding.ranks, finding.found_in
