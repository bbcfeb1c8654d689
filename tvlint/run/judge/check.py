"""Check files, each by itself, in several processes where there are many, and report what was found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tvlint.cache.remember import MANY
from tvlint.findings import Finding, Problem, Report
from tvlint.ir.values import dataclass, replace
from tvlint.readers.sources.resource_limits import without_collection
from tvlint.rule import Rule
from tvlint.run.judge.files import check_file
from tvlint.run.judge.found import MOST_REPAIRED, Found
from tvlint.run.judge.remembered import Remembered
from tvlint.run.judge.reported import report_of, unused_patterns, with_severities
from tvlint.run.process.aside import Aside, Relay
from tvlint.run.process.session import Session
from tvlint.run.project.discovery import Candidates, pairings
from tvlint.run.project.nested import folder_of, judging, projects
from tvlint.run.project.project_file import Project

if TYPE_CHECKING:
    from tvlint.cache.files import Page
    from tvlint.ir.plan import Plan

T = TypeVar("T")
NEIGHBOURS = 16
"""Files one after the other that one process checks: they often lie beside each other, and read the same."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that apply, all that exist, and the project that they are applied for."""

    applied: Mapping[str, Rule]
    known: Mapping[str, Rule]
    project: Project


def check(
    candidates: Candidates,
    rules: Mapping[str, Rule],
    known: Mapping[str, Rule],
    project: Project,
    session: Session | None = None,
    plans: dict[str, Plan] | None = None,
    repairs: int = MOST_REPAIRED,
) -> tuple[Report, tuple[str, ...]]:
    """Return the report of the rules over the files, and the named files that hold nothing that tvlint reads.

    `rules` are those that apply, `known` all that exist. Plans that the project's proofs need are left in `plans`, where
    they were read; what is found in large files, and in many, is kept in the cache. Until a file has `repairs` errors, the
    nearest settings that repair them are searched.
    """
    session = session or Session()
    said = Found(problems=list(candidates.problems), findings=list(candidates.findings))
    needed = {pairing.path for each_project in projects(project) for pairing in pairings(each_project)}
    severities = {folder: with_severities(rules, known, each_project) for folder, each_project in project.nested.items()}

    relay = Relay(session.steps.keep)
    remembered = Remembered(session.cache, candidates, rules, project, repairs)

    @without_collection()
    def check_one(path: str) -> Found:
        said = Found(repairs=repairs)

        def keep(found: Sequence[Finding]) -> None:
            if found:
                relay.keep([_found_in(path, finding) for finding in found])

        if session.cache is not None and path in needed:
            session.cache.look(path)
        applied = severities.get(folder_of(path, project), rules)
        plan = check_file(path, path in candidates.named, applied, judging(path, project), said, keep)
        said.findings = [_found_in(path, finding) for finding in said.findings]
        if plan is not None and plans is not None and path in needed:
            plans[path] = plan
        return said

    look = partial(remembered.looked, check_one=check_one)
    found = session.steps.do(os.curdir, remembered.unchanged, "what is remembered")
    unchanged = {} if isinstance(found, Problem) else found
    pages: list[Page] = []
    with ExitStack() as stack:
        aside: dict[str, tuple[Aside[tuple[Found, Page | None]], int]] = {}
        alone = session.jobs == 1 or len(candidates.files) - len(unchanged) < MANY or not hasattr(os, "fork")

        def checked(index: int) -> tuple[Found, Page | None]:
            path = candidates.files[index]
            if alone or path in needed:
                return look(path)
            if not aside:
                others = [other for other in candidates.files[index:] if other not in needed and other not in unchanged]
                aside.update(_shared_out(others, look, session.jobs, relay, stack))
            share, place = aside[path]
            return share.value(place)

        for index, path in enumerate(candidates.files):
            if session.progress is not None:
                session.progress(f"checking {path}", index / len(candidates.files))
            if path in unchanged:
                said.add(unchanged[path])
                continue
            looked = session.steps.do(path, partial(checked, index), unfinished=_unfinished)
            if isinstance(looked, Problem):
                said.problems.append(looked)
            else:
                said.add(looked[0])
                pages += filter(None, looked[1:])
    session.steps.do(os.curdir, partial(remembered.keep, pages), "what is remembered")
    if candidates.is_whole:
        paths = {*candidates.files, *(finding.location.path for finding in said.findings)}
        said.findings += [finding for each_project in projects(project) for finding in unused_patterns(each_project, paths)]
    report = session.steps.conclude(project.path or os.curdir, lambda: report_of(said, rules, known, project))
    if isinstance(report, Problem):
        report = Report(problems=(*said.problems, report), checked=tuple(said.checked))
    return report, tuple(said.skipped)


def _unfinished(kept: list[list[Finding]], problem: Problem) -> tuple[Found, None]:
    """Return what was found in a file before its budget ended, and that this is not all."""
    return Found([*dict.fromkeys(finding for findings in kept for finding in findings)], problems=[problem]), None


def _shared_out(
    paths: Sequence[str], check_one: Callable[[str], T], jobs: int, relay: Relay, stack: ExitStack
) -> dict[str, tuple[Aside[T], int]]:
    """Return the process that checks each file from now on, and the file's place among those that it checks."""
    shares: list[list[str]] = [[] for _ in range(jobs)]
    for index, path in enumerate(paths):
        shares[index // NEIGHBOURS % jobs].append(path)
    found = {}
    for share in filter(None, shares):
        aside = stack.enter_context(Aside(*(partial(check_one, path) for path in share), relay=relay))
        found.update({path: (aside, place) for place, path in enumerate(share)})
    return found


def _found_in(path: str, finding: Finding) -> Finding:
    """The finding, with the checked file where it stands elsewhere."""
    return finding if finding.location.path == path else replace(finding, found_in=path)
