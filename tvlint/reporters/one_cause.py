"""Findings at one place that one change repairs: reports for people show the place and the change once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tvlint.findings import Comparison, Finding
from tvlint.ir.values import replace


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


def of_equal_edits(findings: Iterable[Finding], comparisons: Iterable[Comparison]) -> list[Finding]:
    """Return the findings without those that say the same of other files which were edited in the same way: the first says of
    how many.
    """
    edits: dict[str, list[object]] = {}
    for comparison in comparisons:
        edits.setdefault(comparison.path, []).append((comparison.section, comparison.written, comparison.follows))
    if not edits:
        return [*findings]
    said: dict[object, list[Finding]] = {}
    for each in findings:
        edit = edits.get(each.location.path, each.location.path)
        same = (str(edit), each.rule, each.severity, each.message, each.help, each.section)
        said.setdefault(same, []).append(each)
    return [shown for same in said.values() for shown in _first_of(same)]


def _first_of(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings of the first file, with the number of the others."""
    others = len({finding.location.path for finding in findings}) - 1
    more = f"the same in {others} other file{'s' if others > 1 else ''}"
    for finding in findings:
        if finding.location.path == findings[0].location.path:
            yield replace(finding, help=f"{finding.help}; {more}" if finding.help else more) if others else finding


def common_help(findings: Sequence[Finding]) -> str:
    """Return what the help of every finding says, among other things."""
    said = [finding.help.split("; ") for finding in findings]
    return "; ".join(part for part in said[0] if part and all(part in other for other in said[1:]))


def _place_of(finding: Finding) -> tuple[object, ...]:
    return finding.severity, finding.location, finding.ranks, finding.found_in
