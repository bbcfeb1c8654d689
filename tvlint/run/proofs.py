"""The pairs that a project wants proved: all, or those of which somebody names a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tvlint.findings import Pairing, Problem, Report
from tvlint.ir.location import Location
from tvlint.ir.plan import Plan
from tvlint.run.discovery import shown, why_not_in_project
from tvlint.run.pair import Pair, Progress
from tvlint.run.project import Project
from tvlint.run.prove import prove_pairs
from tvlint.run.sources import at_sources

if TYPE_CHECKING:
    from tvlint.cache.remember import Cache


def joined(one: Report, two: Report) -> Report:
    """Both reports in one; what was checked or drawn twice stands once, drawn with what the second found in it."""
    outlines = {outline.path: outline for outline in (*one.outlines, *two.outlines)}
    return Report(
        findings=one.findings + two.findings,
        verdicts=one.verdicts + two.verdicts,
        not_evaluated=one.not_evaluated + two.not_evaluated,
        problems=tuple(dict.fromkeys(one.problems + two.problems)),
        checked=tuple(dict.fromkeys(one.checked + two.checked)),
        outlines=tuple(outlines.values()),
        comparisons=one.comparisons + two.comparisons,
        pairings=tuple(dict.fromkeys(one.pairings + two.pairings)),
    )


def prove_project(
    project: Project,
    progress: Progress | None,
    plans: Mapping[str, Plan],
    cache: Cache | None = None,
    within: tuple[str, ...] = (),
) -> tuple[Report, int]:
    """The verdicts of the project's `[[proof]]` pairs, and how many were left out.

    `plans` are those that have been read already. Where somebody names files or folders (`within`), only pairs that have a
    plan there are proved; all where the project file is one of them, which says what is proved and under which assumptions.
    """
    stated = tuple(pairs(project))
    within = () if _lies_in(project.path, within) else within
    asked = tuple(pair for pair in stated if not within or _lies_in(pair.parallel, within) or _lies_in(pair.reference, within))
    problems = tuple(_not_in_project(asked, project))
    report = Report(problems=problems)
    for proved in prove_pairs(() if problems else asked, 1, progress, dict(plans), cache):
        report = joined(report, at_sources(proved, project))
    return report, len(stated) - len(asked)


def pairings(project: Project) -> tuple[Pairing, ...]:
    """Where the project names the plans of its pairs."""
    return tuple(
        Pairing(shown(project.folder / path), proof.location)
        for proof in project.proofs
        for path in (*proof.parallel, *((proof.reference,) if proof.reference else ()))
    )


def _not_in_project(asked: tuple[Pair, ...], project: Project) -> Iterator[Problem]:
    """Yield a problem for each plan that the project file may not name."""
    for path in dict.fromkeys(path for pair in asked for path in (pair.parallel, pair.reference) if path):
        if reason := why_not_in_project(path, project):
            yield Problem(f"not looked at: {reason}", Location(path), "prove it with `tvlint prove`")


def _lies_in(path: str, folders: tuple[str, ...]) -> bool:
    """Whether the path is one of the files and folders, lies in one of them, or is a folder of generated code around one."""
    if not path:
        return False
    here = Path(os.path.realpath(path))
    given = tuple(Path(os.path.realpath(folder)) for folder in folders)
    return any(here.is_relative_to(folder) or folder.is_relative_to(here) for folder in given)


def pairs(project: Project) -> Iterator[Pair]:
    """The project's `[[proof]]` pairs, with paths as a person in the current folder writes them."""
    for proof in project.proofs:
        for parallel in proof.parallel:
            reference = shown(project.folder / proof.reference) if proof.reference else ""
            yield Pair(shown(project.folder / parallel), reference, proof.assume, operators=project.operators)
