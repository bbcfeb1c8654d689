"""`tvlint check`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tvlint.checkout.opening import instead
from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.cli.session import cache, deliver, looked_for, note, outputs, project, session, with_files
from tvlint.findings import Problem, Report, Severity
from tvlint.ir.location import Location
from tvlint.ir.values import dataclass, replace
from tvlint.plurals import counted
from tvlint.rule import RuleKind
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import Rules, check
from tvlint.run.output.exit_code import CLEAN, FOUND, INPUT, NOTHING, UNKNOWN, exit_code
from tvlint.run.output.outputs import Output, OutputError, read_stdin
from tvlint.run.process.session import Session
from tvlint.run.project.discovery import Candidates, changed, discover
from tvlint.run.project.nested import given, projects
from tvlint.run.project.project_file import Project, ProjectError

if TYPE_CHECKING:
    from tvlint.ir.plan import Plan
    from tvlint.run.proof.launches import Capturing
    from tvlint.run.silence.baseline import Baseline

STDIN = "-"
LARGEST_STDIN = 64 << 20
SHOWING_FIXES = ("json", "sarif", "rdjson")
"""Formats that hold the fixes of a finding; to try these takes several readings of its file."""
_WITHOUT_HELP = ("concise",)


def run(options: argparse.Namespace) -> int:
    """Check the files, prove the project's pairs, report, and give the exit code."""
    code = _run_on_files(options)
    return CLEAN if options.exit_zero and code in (FOUND, UNKNOWN) else code


def _run_on_files(options: argparse.Namespace) -> int:
    if STDIN not in options.paths:
        return _run(options)
    if options.fix or options.add_ignores:
        fail("the standard input cannot be rewritten", "`--diff` shows what `--fix` would change")
    data = options.steps.do(STDIN, partial(_given, options.stdin_filename or STDIN), "the standard input")
    if isinstance(data, Problem):
        deliver(Report(problems=(data,)), outputs(options), options, load_rules())
        return INPUT
    name = options.stdin_filename or STDIN
    options.paths = [name if path == STDIN else path for path in options.paths]
    with instead({name: data}):
        return _run(options)


def _given(name: str) -> bytes | Problem:
    """Return what the standard input holds, which stands for the file of that name."""
    try:
        return read_stdin(LARGEST_STDIN)
    except OutputError as error:
        return Problem(str(error), Location(name))


def _run(options: argparse.Namespace) -> int:
    wanted = outputs(options)
    known = load_rules()
    try:
        settings = project(options, known)
        without = replace(settings, exclude=(*settings.exclude, *_from(settings.folder, options.exclude)))
        search = partial(discover, tuple(options.paths), without)
        if options.changed:
            _hold_files(options.paths)
            search = partial(changed, tuple(options.paths), without, cache(options, settings))
        settings, candidates = with_files(options, settings, known, search)
        if options.exclude:
            candidates = replace(candidates, is_whole=False)
        baselines = {} if options.no_baseline else _baselines(settings, options.baseline)
    except ProjectError as error:
        deliver(Report(problems=error.problems), wanted, options, known)
        return INPUT
    if options.show_files:
        from tvlint.cli.show_files import show_files

        return show_files(options, candidates, settings)
    if options.policy:
        from tvlint.run.project.policy import changed_policy

        changes = changed_policy(options.policy, settings, candidates.files)
        candidates = replace(candidates, findings=(*candidates.findings, *changes))
    rules = looked_for(options, settings, known)
    if options.select:
        settings = given(settings, select=())
    if options.world_size is not None:
        settings = given(settings, world_size=options.world_size, world_size_location=Location("--world-size"))
    fail_on = Severity(options.fail_on) if options.fail_on else settings.fail_on
    applied = Rules(rules, known, settings)
    run = _Run(options, candidates, applied, baselines)
    judged = run.judged()
    if options.fix or options.diff:
        from tvlint.cli.fix import make, show

        session = Session(options.steps)
        if options.diff:
            return FOUND if show(options, judged.report, applied, session) else exit_code(judged.report, fail_on)
        if make(options, judged.report, applied, session):
            judged = run.judged()
    if options.add_ignores:
        from tvlint.cli.fix import ignore

        if ignore(options, judged.report, applied, Session(options.steps)):
            judged = run.judged()
    report = _with_fixes(judged.report, wanted, applied, Session(options.steps))
    report = deliver(report, wanted, options, known, fail_on)
    if not options.quiet:
        _tell(judged)
    code = exit_code(report, fail_on)
    if code == NOTHING:
        if options.changed or options.may_be_empty:
            return CLEAN
        where = ", ".join(f"`{path}`" for path in options.paths or settings.paths or (os.curdir,))
        note(f"nothing to check in {where}: no launch script, configuration or plan was found")
    return code


def _from(folder: Path, patterns: list[str]) -> list[str]:
    """Return the patterns of the command line as the project in the folder would have them."""
    return [os.path.relpath(pattern, folder) if os.path.isabs(pattern) else pattern for pattern in patterns]


def _tell(judged: _Judged) -> None:
    """Say what the report does not."""
    if judged.stale:
        gone, them = ("is", "it") if judged.stale == 1 else ("are", "them")
        stale = counted(judged.stale, "finding")
        note(f"{stale} of the baseline {gone} gone: `tvlint baseline prune` removes {them}")
    if judged.elsewhere:
        pairs = counted(judged.elsewhere, "pair")
        note(f"{pairs} of `[[proof]]` with no plan in what was named: `tvlint check` alone proves all")


def _hold_files(paths: list[str]) -> None:
    """End the run where a revision stands in the place of the files that changed since; say so where no file is named."""
    if not paths:
        note("`--changed` checks the files that are named, as pre-commit does, and none is; `--new-from HEAD` asks git")
    for path in paths:
        if os.path.isdir(path) and _is_part_of_this_checkout(path):
            help = "name its files, or leave out `--changed` to check all of it"
            fail(f"`{path}` is a folder, and `--changed` takes the files that changed", help)
    if len(paths) != 1 or os.path.lexists(paths[0]):
        return
    from tvlint.run.project.revision import RevisionError, is_revision

    try:
        found = is_revision(paths[0])
    except RevisionError as error:
        fail(str(error), error.help)
    if found:
        help = f"`--new-from {paths[0]}` reports what is new since then, in all files"
        fail(f"`{paths[0]}` is a revision, and `--changed` takes the files that changed", help)


def _is_part_of_this_checkout(folder: str) -> bool:
    """Return whether a folder holds files of this checkout; a submodule, which pre-commit names like a file, holds none."""
    if Path.cwd().is_relative_to(os.path.realpath(folder)):
        return True
    with suppress(OSError):
        return bool(os.listdir(folder)) and not os.path.lexists(os.path.join(folder, ".git"))
    return False


def _baselines(project: Project, named: str) -> Mapping[str, Baseline]:
    """Return the baseline that was named, else those of the project files, by folder."""
    if not named and not any(each_project.baseline for each_project in projects(project)):
        return {}
    from tvlint.run.silence.baseline import baselines

    return baselines(project, named)


@dataclass(frozen=True, slots=True)
class _Judged:
    """The report of a run, how many pairs were not asked for, and stale entries."""

    report: Report
    elsewhere: int
    stale: int


@dataclass(frozen=True, slots=True)
class _Run:
    """The files of a run and what they are compared with."""

    options: argparse.Namespace
    candidates: Candidates
    rules: Rules
    baselines: Mapping[str, Baseline]

    def judged(self) -> _Judged:
        """Return the report on the files as they are, without the findings that are known."""
        options, settings = self.options, self.rules.project
        elsewhere, stale = 0, 0
        with Progress() as progress:
            plans: dict[str, Plan] = {}
            shared = session(options, settings, progress)
            report, _ = check(self.candidates, self.rules.applied, self.rules.known, settings, shared, plans)
            if not options.no_prove and any(project.proofs for project in projects(settings)):
                from tvlint.run.proof.launches import prove_launches
                from tvlint.run.proof.proofs import joined, prove_project

                proved, elsewhere = prove_project(settings, shared, plans, tuple(options.paths))
                launched = prove_launches(settings, shared, tuple(options.paths), self._capturing())
                report = joined(report, proved, launched)
        if self.baselines:
            from tvlint.run.silence.baseline import Scope, compare_all

            scope = Scope(self.rules.known.keys() - self.rules.applied, self.candidates.is_whole)
            found = compare_all(report, self.baselines, settings, scope)
            report = replace(report, findings=found.new, known=len(found.known))
            stale = sum(entry.count for entry in found.stale)
        if options.new_from:
            from tvlint.cli.new_from import before_change

            before = before_change(options, report, self.rules.applied, self.rules.known, settings)
            report = replace(report, findings=before.new, known=report.known + len(before.known))
        return _Judged(report, elsewhere, stale)

    def _capturing(self) -> Capturing:
        """Return how programs are captured, where this run may run those of the checkout at all."""
        from tvlint.cli.capture import capture_proof
        from tvlint.run.proof.launches import Capturing

        options = self.options
        capture = partial(capture_proof, options=options) if options.capture else None
        return Capturing(capture, (options.layers, options.hidden, options.sequence))


def _with_fixes(report: Report, wanted: tuple[Output, ...], rules: Rules, session: Session) -> Report:
    """Return the report with the fixes that hold, where an output shows them, and with help that was tried."""
    shows = any(output.format in SHOWING_FIXES for output in wanted)
    judged = (rules.applied.get(finding.rule) for finding in report.findings)
    helps = any(output.format not in _WITHOUT_HELP for output in wanted)
    if not shows and not (helps and any(rule is not None and rule.kind is RuleKind.PLAN for rule in judged)):
        return report
    from tvlint.run.repair.fixes import with_fixes, with_tried_help

    report = with_tried_help(report, rules, session)
    return with_fixes(report, rules, session) if shows else report
