"""The report of what was found: without what is silenced, and without what says the same again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from tvlint.findings import Finding, Recognised, Report, Severity, Silenced
from tvlint.identity import CONDITION
from tvlint.ir.values import replace
from tvlint.rule import Rule, RuleKind
from tvlint.run.judge.found import Found
from tvlint.run.project.discovery import matches, pairings
from tvlint.run.project.nested import judged_by, judging, projects
from tvlint.run.project.project_file import Project
from tvlint.run.project.sources import at_sources
from tvlint.run.silence.ignores import RULE as UNUSED
from tvlint.run.silence.ignores import silence

T = TypeVar("T")


def report_of(said: Found, rules: Mapping[str, Rule], known: Mapping[str, Rule], project: Project) -> Report:
    """Return what was said without what comments and the project silence."""

    def judged(path: str, rule: str) -> bool:
        return rule in rules and rules[rule].kind in said.checked.get(path, ())

    hidden: tuple[Finding, ...] = ()
    findings = _firsts(said.findings, lambda reported: (reported.found_in, _said_by(reported, known)))
    for one in projects(project):
        findings = at_sources(findings, one)
    if project.heeds_comments:
        findings, hidden = silence(findings, said.checked, judged, known)
    silenced = [Silenced(finding, by_comment=True) for finding in hidden if finding.rule in rules]
    kept: list[Finding] = []
    for finding in findings:
        this_project = judging(finding.found_in or finding.location.path, project)
        if finding.rule in rules and _is_ignored(finding, this_project):
            silenced.append(Silenced(finding, by_comment=False))
        elif finding.rule in rules:
            severity = this_project.severity.get(finding.rule)
            kept.append(finding if severity is None else replace(finding, severity=severity))
    return Report(
        findings=tuple(_once_a_run(once(kept, known), known)),
        silenced=_firsts(silenced, lambda reported: _said_by(reported.finding, known)),
        not_evaluated=tuple(each for each in said.not_evaluated if _applies(each.rule, judging(each.location.path, project))),
        problems=tuple(said.problems),
        checked=tuple(said.checked),
        outlines=tuple(said.outlines),
        pairings=tuple(pairing for one in projects(project) for pairing in pairings(one)),
        judged_by=tuple(judged_by(project, said.checked)),
        recognised=_recognised(said, known),
    )


def with_severities(rules: Mapping[str, Rule], known: Mapping[str, Rule], project: Project) -> Mapping[str, Rule]:
    """Return the rules with the severities of another project."""
    return {name: replace(known[name], severity=project.severity.get(name, known[name].severity)) for name in rules}


def _firsts(items: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    """Return the first of all items that have the same key."""
    found: dict[object, T] = {}
    for item in items:
        found.setdefault(key(item), item)
    return tuple(found.values())


def _said_by(finding: Finding, rules: Mapping[str, Rule]) -> tuple[object, ...]:
    """Return what the finding says of which place, however its file is named: configurations, and files, may share a place."""
    path = os.path.abspath(finding.location.path)
    once = finding.rule in rules and rules[finding.rule].once != ""
    return (finding.rule, path) if once else (finding.rule, replace(finding.location, path=path), finding.message)


def once(findings: Iterable[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Return the findings without those that say the same again, or the same of one place with a condition added.

    The condition is that of a file that is judged alone, which a file that sources it decides.
    """
    kept = _firsts(findings, lambda reported: _said_by(reported, rules))
    said: dict[object, list[str]] = {}
    for each_finding in kept:
        said.setdefault(_said_by(each_finding, rules)[:2], []).append(f"{each_finding.message}{CONDITION}")
    return [finding for finding in kept if not finding.message.startswith(tuple(said[_said_by(finding, rules)[:2]]))]


def _once_a_run(findings: list[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Return the findings, with one in the place of all that say of a run the same: the first, which counts the others."""
    reported = Counter(finding.rule for finding in findings if finding.rule in rules and rules[finding.rule].once == "run")
    kept: list[Finding] = []
    for finding in findings:
        others = reported.pop(finding.rule, 0) - 1
        if others > 0:
            said = f"the same in {others} other file{'s' if others > 1 else ''}"
            kept.append(replace(finding, help=f"{finding.help}; {said}" if finding.help else said))
        elif others == 0 or finding.rule not in rules or rules[finding.rule].once != "run":
            kept.append(finding)
    return kept


def _recognised(said: Found, known: Mapping[str, Rule]) -> tuple[Recognised, ...]:
    every = sum(rule.kind is RuleKind.CONFIG for rule in known.values())
    by_framework: dict[str, list[tuple[int, bool]]] = {}
    for (framework, _), value in said.recognised.items():
        by_framework.setdefault(framework, []).append(value)
    found = (
        Recognised(name, len(files), max(count for count, _ in files), every, sum(unsized for _, unsized in files))
        for name, files in by_framework.items()
    )
    return tuple(sorted(found, key=lambda each: (-each.files, each.framework)))


def unused_patterns(project: Project, paths: Collection[str]) -> Iterator[Finding]:
    """Yield the patterns of the project file's `per-file-ignores` that match none of the paths."""
    for pattern, place in project.pattern_locations.items():
        if not any(matches(path, project, (pattern,)) for path in paths):
            message = f"the pattern `{pattern}` of `per-file-ignores` matches no file"
            help = "delete it, or write it from the folder of the project file"
            yield Finding(UNUSED, Severity.WARNING, message, place, help)


def _is_ignored(finding: Finding, project: Project) -> bool:
    """Return whether the project file says that the rule does not apply, or not to the file."""
    patterns = [pattern for pattern, ignored in project.per_file_ignores.items() if finding.rule in ignored]
    return not _applies(finding.rule, project) or matches(finding.location.path, project, patterns)


def _applies(rule: str, project: Project) -> bool:
    return rule not in project.ignore and (not project.select or rule in project.select)
