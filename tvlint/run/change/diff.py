"""Compare configurations before and after a change: what was written, what follows from it, and what was not meant."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from tvlint.checkout.following import content_listed
from tvlint.findings import Comparison, Difference, Finding, NotEvaluated, Problem, Report, Severity, Silenced
from tvlint.identity import fingerprint
from tvlint.ir.configuration import Configuration
from tvlint.ir.location import Location
from tvlint.readers.document import NOTHING, Document, ReadError
from tvlint.readers.read import LARGEST
from tvlint.rule import Rule, RuleKind
from tvlint.rulebook.change import changes
from tvlint.run.change.comparison import compared
from tvlint.run.change.new_from import at_change
from tvlint.run.judge.known_settings import as_project_says, as_stated
from tvlint.run.judge.reported import once
from tvlint.run.process.worker import Steps
from tvlint.run.project.nested import judging
from tvlint.run.project.project_file import Project
from tvlint.run.project.world_size import Stated, stated
from tvlint.run.silence.ignores import RULE, silence

LINE = re.compile(r"line \d+")
FILE = "the file"


@dataclass(frozen=True, slots=True)
class FilePair:
    """One file before and after a change, where each can be read; `shown` is what it is called in the report.

    `before` is empty for a file that came, `after` for one that is gone; `was` is the name before, where that is another one.
    """

    before: str
    after: str
    shown: str = ""
    was: str = ""

    @property
    def name(self) -> str:
        return self.shown or self.after


@dataclass
class _Said:
    findings: list[Finding] = field(default_factory=list)
    not_evaluated: list[NotEvaluated] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    checked: dict[str, set[RuleKind]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    moved: dict[Finding, Finding] = field(default_factory=dict)
    """Findings, each as it stands at what the change has written; comments silence it where it stands otherwise."""

    def add(self, other: _Said) -> None:
        """Add what was said of the next pair."""
        self.findings += other.findings
        self.not_evaluated += other.not_evaluated
        self.problems += other.problems
        self.comparisons += other.comparisons
        self.checked |= other.checked
        self.notes += other.notes
        self.moved |= other.moved


def diff(
    pairs: tuple[FilePair, ...],
    rules: Mapping[str, Rule],
    known: Mapping[str, Rule],
    project: Project,
    steps: Steps | None = None,
) -> tuple[Report, tuple[str, ...]]:
    """Return the report of what each pair of files changes, and remarks on what could not be compared."""
    said = _Said()
    steps = steps or Steps()
    for pair in pairs:
        found = steps.do(pair.name, partial(_compared, pair, rules, judging(pair.name, project)))
        if isinstance(found, Problem):
            said.problems.append(found)
        else:
            said.add(found)

    hidden: tuple[Finding, ...] = ()
    kept = tuple(once(said.findings, known))
    if project.heeds_comments:
        kept, hidden = silence(kept, said.checked, lambda path, rule: False, known)
    report = Report(
        findings=tuple(said.moved.get(finding, finding) for finding in kept if finding.rule != RULE),
        not_evaluated=tuple(said.not_evaluated),
        problems=tuple(said.problems),
        checked=tuple(said.checked),
        comparisons=tuple(said.comparisons),
        silenced=tuple(Silenced(finding, by_comment=True) for finding in hidden),
    )
    return report, tuple(dict.fromkeys(said.notes))


def _compared(pair: FilePair, rules: Mapping[str, Rule], project: Project) -> _Said:
    said = _Said()
    _compare(pair, rules, project, said)
    return said


def _compare(pair: FilePair, rules: Mapping[str, Rule], project: Project, said: _Said) -> None:
    if not pair.before or not pair.after:
        _say_alone(pair, rules, project, said)
        return
    before, after = _read(pair.before, pair.name, said), _read(pair.after, pair.name, said)
    if before is None or after is None:
        if not pair.shown and not said.problems:
            said.notes.append(f"`{pair.name}` is no configuration that tvlint knows; it was not compared")
        return
    if not after.configurations or not before.configurations:
        said.notes.append(f"`{pair.name}` is no configuration in both versions; it was not compared")
        return
    said.checked[pair.name] = {RuleKind.CHANGE}
    before, after = (
        replace(document, configurations=_as_run(document, stated(path), project))
        for document, path in ((before, pair.before), (after, pair.after))
    )
    place = _Place(pair)
    written = (_refused(before, rules), _refused(after, rules))
    _add(said, place, _beyond(written[1], written[0]))
    fixed = _fixed(_beyond(written[0], written[1]))
    moved = (Difference(FILE, pair.was, pair.name),) if pair.was else ()
    for old, new in _paired(before, after, pair.name, said):
        for result in changes(old, new, rules):
            if isinstance(result, Finding):
                said.findings.append(place.of_finding(result))
            else:
                said.not_evaluated.append(replace(result, location=place.of(result.location)))
        comparison = compared(old, new, pair.name)
        was, now = _broken(old, rules), _broken(new, rules)
        _add(said, place, (finding for rule, finding in now.items() if rule not in was))
        fixed = (*fixed, *_fixed(finding for rule, finding in was.items() if rule not in now))
        comparison, fixed = replace(comparison, follows=(*comparison.follows, *fixed)), ()
        comparison, moved = replace(comparison, written=(*moved, *comparison.written)), ()
        if comparison.written or comparison.follows:
            said.comparisons.append(comparison)


def _add(said: _Said, place: _Place, findings: Iterable[Finding]) -> None:
    for finding in map(place.of_finding, findings):
        said.findings.append(finding)
        said.moved[finding] = at_change(finding, place.is_written)


def _say_alone(pair: FilePair, rules: Mapping[str, Rule], project: Project, said: _Said) -> None:
    """Say that a file with configurations came or is gone, and what is wrong in one that came."""
    path = pair.after or pair.before
    document = _read(path, pair.name, said)
    if document is None or not document.configurations:
        return
    said.checked[pair.name] = {RuleKind.CHANGE}
    states = ("not there", "new") if pair.after else ("there", "gone")
    said.comparisons.append(Comparison(pair.name, "", (Difference(FILE, *states),), ()))
    if not pair.after:
        return
    place = _Place(pair)
    said.findings += map(place.of_finding, _refused(document, rules))
    for configuration in _as_run(document, stated(path), project):
        said.findings += map(place.of_finding, _broken(configuration, rules).values())


def _as_run(document: Document, comments: Stated, project: Project) -> tuple[Configuration, ...]:
    return tuple(as_project_says(as_stated(configuration, comments), project) for configuration in document.configurations)


def _broken(configuration: Configuration, rules: Mapping[str, Rule]) -> dict[str, Finding]:
    """Return the rules about configurations that are broken, with what is found; notes are no mistakes."""
    from tvlint.rulebook.evaluate import evaluate

    found = (each for each in evaluate(configuration, rules) if isinstance(each, Finding))
    return {finding.rule: finding for finding in found if finding.severity is not Severity.NOTE}


def _refused(document: Document, rules: Mapping[str, Rule]) -> tuple[Finding, ...]:
    """Return the mistakes that the reader itself found."""
    from tvlint.readers.megatron.invalid_options import still_refused

    found = still_refused(document.findings, document.configurations)
    return tuple(finding for finding in found if finding.rule in rules and finding.severity is not Severity.NOTE)


def _beyond(findings: tuple[Finding, ...], others: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield the findings that are more than the others that are the same."""
    known = Counter(map(fingerprint, others))
    for finding in findings:
        if known[fingerprint(finding)] > 0:
            known[fingerprint(finding)] -= 1
        else:
            yield finding


def _fixed(findings: Iterable[Finding]) -> tuple[Difference, ...]:
    return tuple(Difference(finding.rule, finding.message, "fixed") for finding in findings)


class _Place:
    """Places in the file as it was read, given as places in the file as it is called, each with its line."""

    def __init__(self, pair: FilePair) -> None:
        self._pair = pair

    @cached_property
    def _kept(self) -> frozenset[str]:
        return frozenset(_lines(self._pair.before))

    def is_written(self, location: Location) -> bool:
        """Return whether the change has written the line."""
        line = location.line
        if location.path != self._pair.name or line is None or not 0 < line <= len(self._all):
            return False
        return self._all[line - 1] not in self._kept

    @cached_property
    def _all(self) -> list[str]:
        return _lines(self._pair.after)

    def of_finding(self, finding: Finding) -> Finding:
        related = tuple(replace(related, location=self.of(related.location)) for related in finding.related)
        return replace(finding, location=self.of(finding.location), related=related)

    def of(self, location: Location) -> Location:
        if location.path != self._pair.after or self._pair.name == self._pair.after:
            return location
        line = location.line
        text = self._all[line - 1] if line is not None and 0 < line <= len(self._all) else ""
        return replace(location, path=self._pair.name, text=text)


def _lines(path: str) -> list[str]:
    return content_listed(path, LARGEST).decode("utf-8", "replace").splitlines()


def _read(path: str, name: str, said: _Said) -> Document | None:
    from tvlint.readers.read import read

    try:
        document = read(path)
    except ReadError as error:
        problem = error.problem
        said.problems.append(replace(problem, location=replace(problem.location, path=name)))
        return None
    except OSError as error:
        said.problems.append(Problem(f"cannot be read: {(error.strerror or 'unknown reason').lower()}", Location(name)))
        return None
    return None if document is None or document.format == NOTHING else document


def _paired(before: Document, after: Document, path: str, said: _Said) -> Iterator[tuple[Configuration, Configuration]]:
    """Yield the configurations of the same section; by order where none has the same name, or all are named after lines."""
    old = {configuration.section: configuration for configuration in before.configurations}
    new = {configuration.section: configuration for configuration in after.configurations}
    by_line = all(LINE.fullmatch(section) for section in (*old, *new))
    if len(before.configurations) == len(after.configurations) and (by_line or not set(old) & set(new)):
        yield from zip(before.configurations, after.configurations, strict=True)
        return
    for section, each_configuration in new.items():
        if section in old:
            yield old[section], each_configuration
        else:
            said.notes.append(f"`{path}`: the configuration `{section}` is new; there is nothing to compare it with")
    said.notes.extend(f"`{path}`: the configuration `{section}` is gone" for section in old if section not in new)


def same_named(before: Path, after: Path) -> tuple[FilePair, ...]:
    """Return the files of two folders that have the same place in both."""
    found = []
    for parent, folders, files in os.walk(after):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            new = Path(parent, name)
            old = before / new.relative_to(after)
            if _differ(str(old), str(new)):
                found.append(FilePair(str(old), str(new)))
    return tuple(found)


def _differ(old: str, new: str) -> bool:
    """Return whether both are files that may be read and hold different bytes."""
    try:
        return content_listed(old, LARGEST) != content_listed(new, LARGEST)
    except OSError:
        return False
