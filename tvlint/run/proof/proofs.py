"""The pairs that a project wants proved: all, or those of which somebody names a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tvlint.findings import Problem, Report
from tvlint.ir.location import Location
from tvlint.ir.plan import Plan
from tvlint.run.process.session import Session
from tvlint.run.project.discovery import shown, why_not_in_project
from tvlint.run.project.nested import projects
from tvlint.run.project.project_file import Project
from tvlint.run.project.sources import at_sources
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pairs
from tvlint.run.silence.silenced_reasons import without_silenced_reasons


def joined(*reports: Report) -> Report:
    """Return all reports in one; what was checked or drawn twice stands once, drawn with what the last one found in it."""
    outlines = {outline.path: outline for report in reports for outline in report.outlines}
    return Report(
        findings=tuple(finding for report in reports for finding in report.findings),
        verdicts=tuple(verdict for report in reports for verdict in report.verdicts),
        not_evaluated=tuple(unknown for report in reports for unknown in report.not_evaluated),
        problems=tuple(dict.fromkeys(problem for report in reports for problem in report.problems)),
        checked=tuple(dict.fromkeys(path for report in reports for path in report.checked)),
        outlines=tuple(outlines.values()),
        comparisons=tuple(comparison for report in reports for comparison in report.comparisons),
        silenced=tuple(silenced for report in reports for silenced in report.silenced),
        known=sum(report.known for report in reports),
        pairings=tuple(dict.fromkeys(pairing for report in reports for pairing in report.pairings)),
    )


def prove_project(
    project: Project,
    session: Session,
    plans: Mapping[str, Plan],
    within: tuple[str, ...] = (),
) -> tuple[Report, int]:
    """Return the verdicts of the project's `[[proof]]` pairs, and how many were left out.

    `plans` are those that have been read already. Where somebody names files or folders (`within`), only pairs that have a
    plan there are proved; all where the project file is one of them, which says what is proved and under which assumptions.
    """
    given = tuple(Path(os.path.realpath(path)) for path in within)
    stated = 0
    asked: list[Pair] = []
    problems: list[Problem] = []
    for each_project in projects(project):
        every = tuple(pairs(each_project))
        some = not is_named(each_project, within)
        named = [pair for pair in every if _lies_in(pair.parallel, given) or _lies_in(pair.reference, given)] if some else every
        stated += len(every)
        asked += named
        problems += _not_in_project(tuple(named), each_project)
    proved = prove_pairs(() if problems else tuple(asked), session, dict(plans))
    report = with_sources(joined(Report(problems=tuple(problems)), *proved), project, session)
    return without_silenced_reasons(report, project), stated - len(asked)


def is_named(project: Project, within: tuple[str, ...]) -> bool:
    """Return whether all proofs of a project are asked for: nothing is named, or its project file is."""
    return not within or _lies_in(project.path, tuple(Path(os.path.realpath(path)) for path in within))


def with_sources(report: Report, project: Project, session: Session) -> Report:
    """Return the report with places in the project's sources, or what keeps it from that."""
    found = session.steps.conclude(project.path or os.curdir, lambda: at_sources(report, project))
    return Report(problems=(found,)) if isinstance(found, Problem) else found


def _not_in_project(asked: tuple[Pair, ...], project: Project) -> Iterator[Problem]:
    """Yield a problem for each plan that the project file may not name."""
    for path in dict.fromkeys(path for pair in asked for path in (pair.parallel, pair.reference) if path):
        if reason := why_not_in_project(path, project):
            yield Problem(f"not looked at: {reason}", Location(path), "prove it with `tvlint prove`")


def _lies_in(path: str, given: tuple[Path, ...]) -> bool:
    """Return whether the path is one of the files and folders, lies in one of them, or is a folder of generated code around
    one.
    """
    if not path:
        return False
    here = Path(os.path.realpath(path))
    return any(here.is_relative_to(folder) or folder.is_relative_to(here) for folder in given)


def pairs(project: Project) -> Iterator[Pair]:
    """Yield the project's `[[proof]]` pairs, with paths as a person in the current folder writes them."""
    for proof in project.proofs:
        for parallel in proof.parallel:
            reference = shown(project.folder / proof.reference) if proof.reference else ""
            yield Pair(shown(project.folder / parallel), reference, proof.assume, operators=project.operators)
