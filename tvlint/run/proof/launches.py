"""The launches that a project wants proved: each is captured, with its reference, and proved, or remembered.

A capture runs the program of the checkout, so nothing here does unless the command line asks for it. A report is remembered by
what was asked and by all that ran: the content of each file, and the packages that are installed beside those it used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tvlint.findings import Outcome, Pairing, Problem, Reason, Report, Verdict
from tvlint.ir.location import Location
from tvlint.run.process.session import Session
from tvlint.run.project.discovery import shown, why_not_in_project
from tvlint.run.project.nested import projects
from tvlint.run.project.project_file import Project
from tvlint.run.project.values import ProofPair
from tvlint.run.proof.captures import is_capture
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.proofs import is_named, joined
from tvlint.run.proof.prove import lasts, prove_pairs, recalled

if TYPE_CHECKING:
    from tvlint.cache.remember import Cache, Question


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran for a proof: files, and folders that packages are installed in."""

    files: tuple[str, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """The captures of a program and of its reference, by path, and what ran for them."""

    parallel: str
    reference: str
    ran: Ran


@dataclass(frozen=True, slots=True)
class Capturing:
    """How the program of a `[[proof]]` and its reference are captured into a folder, and with which sizes; None: not at all."""

    capture: Callable[[ProofPair, str], Made | Problem] | None
    sizes: tuple[int, int, int]


def prove_launches(project: Project, session: Session, within: tuple[str, ...], how: Capturing) -> Report:
    """Return the verdicts of the project's launches; what is neither remembered nor run is unknown."""
    asked = [
        (each_project, proof)
        for each_project in projects(project)
        if is_named(each_project, within)
        for proof in each_project.proofs
        if proof.launch
    ]
    return joined(*(_proved(each_project, proof, session, how) for each_project, proof in asked))


def _proved(project: Project, proof: ProofPair, session: Session, how: Capturing) -> Report:
    """Return the report on one launch."""
    memory = _Memory(project, proof, session.cache, how.sizes)
    report = memory.report()
    if report is not None:
        return report
    if how.capture is None:
        return _not_captured(proof)
    if is_capture(proof.reference) and (reason := why_not_in_project(shown(project.folder / proof.reference), project)):
        return Report(problems=(Problem(f"not looked at: {reason}", proof.location),))
    with TemporaryDirectory(prefix="tvlint-captures-") as folder, _inside(project.folder):
        made = how.capture(proof, folder)
        if isinstance(made, Problem):
            return Report(problems=(made,))
        pair = Pair(made.parallel, made.reference, proof.assume, operators=project.operators)
        (report,) = prove_pairs((pair,), replace(session, cache=None))
    report = _named(report, proof, {made.parallel: proof.launch, made.reference: _single(proof)})
    memory.keep(made.ran, report)
    return report


def _not_captured(proof: ProofPair) -> Report:
    """Return the verdict on a launch of which nothing is known as it is now, and that this run may not run."""
    message = "not captured as it is now; `--capture` runs this program of the checkout, and proves it"
    reason = Reason("not-captured", False, message, proof.location)
    return Report(verdicts=(Verdict(_single(proof), proof.launch, Outcome.UNKNOWN, reasons=(reason,)),))


def _single(proof: ProofPair) -> str:
    """Return what the reference of a launch is called."""
    return proof.reference or f"{proof.launch} (one process)"


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Be in a folder."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _named(report: Report, proof: ProofPair, names: dict[str, str]) -> Report:
    """Return the report with the commands in place of the captures that were made of them, which are gone."""

    def placed(location: Location) -> Location:
        return replace(location, path=names.get(location.path, location.path))

    def said(verdict: Verdict) -> Verdict:
        reasons = tuple(
            replace(
                reason,
                location=placed(reason.location),
                related=tuple(replace(related, location=placed(related.location)) for related in reason.related),
            )
            for reason in verdict.reasons
        )
        return replace(
            verdict,
            parallel=names[verdict.parallel],
            reference=names.get(verdict.reference, verdict.reference),
            reasons=reasons,
        )

    return Report(
        findings=report.findings,
        verdicts=tuple(map(said, report.verdicts)),
        problems=tuple(replace(problem, location=placed(problem.location)) for problem in report.problems),
        checked=tuple(names.get(path, path) for path in report.checked),
        pairings=tuple(Pairing(name, proof.location) for name in names.values()),
    )


# ---- what is remembered ----


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the cache knows of a launch: which files ran when it was proved last, and the report if they are what they were."""

    project: Project
    proof: ProofPair
    cache: Cache | None
    sizes: tuple[int, int, int]

    def report(self) -> Report | None:
        """Return the report that is remembered; None where anything that ran is another now."""
        ran = self.cache.recall(self._of_files(), Ran) if self.cache is not None else None
        return recalled(self.cache, self._of_report(ran)) if ran is not None else None

    def keep(self, ran: Ran, report: Report) -> None:
        """Remember a report and what it depends on, where proving again would give the same."""
        if self.cache is not None and lasts(report):
            self.cache.keep(self._of_files(), ran, Ran)
            self.cache.keep(self._of_report(ran), report, Report)

    def _asked(self) -> tuple[object, ...]:
        return self.proof.launch, self.proof.reference, self.proof.assume, self.sizes, self.project.operators

    def _of_files(self) -> Question | None:
        if self.cache is None or not self.project.path:
            return None
        return self.cache.question("launch: files", self._asked(), (self.project.path,))

    def _of_report(self, ran: Ran) -> Question | None:
        if self.cache is None:
            return None
        packages = tuple((folder, tuple(_packages(folder))) for folder in ran.folders)
        return self.cache.question("launch", (self._asked(), packages), tuple(map(shown, map(Path, ran.files))))


def _packages(folder: str) -> list[str]:
    """Return the names of what is installed in a folder, which hold the versions."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info", ".pth", ".egg-link")))
    except OSError:
        return []
