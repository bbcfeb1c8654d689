"""Findings that one change repairs: reports for people show its place and the change once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tvlint.findings import Comparison, Finding
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class OneCause:
    """Findings that one change repairs, and where: at the place of the finding, where it is one."""

    location: Location
    findings: tuple[Finding, ...]

    def apart(self, finding: Finding) -> Location | None:
        """Return where a finding stands; None where that is the place of all."""
        return None if finding.location == self.location else finding.location


def of_one_cause(findings: Iterable[Finding]) -> Iterator[OneCause]:
    """Yield the findings in their order, those together that name one place and have help in common."""
    groups: list[tuple[dict[Location, str], list[Finding]]] = []
    last: dict[object, tuple[dict[Location, str], list[Finding]]] = {}
    for finding in findings:
        key = (finding.severity, finding.ranks, finding.found_in or finding.location.path, finding.help.rpartition("; ")[2])
        named = {finding.location: finding.message} | {each.location: each.message for each in finding.related}
        places, group = last.get(key, ({}, []))
        common = {place: said for place, said in places.items() if place in named}
        if finding.help and common:
            group.append(finding)
            places.clear()
            places.update(common)
        else:
            last[key] = (named, [finding])
            groups.append(last[key])
    for places, group in groups:
        yield OneCause(group[0].location if len(group) == 1 else _cause(places, common_help(group)), tuple(group))


def _cause(places: Mapping[Location, str], help: str) -> Location:
    """Return the place, of those that all findings name, of the setting that the help changes; the first else."""
    return next((place for place, said in places.items() if said.split(" is ")[0].strip("`") in help), next(iter(places)))


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
