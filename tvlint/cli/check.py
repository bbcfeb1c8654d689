"""`tvlint check`."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from functools import partial

from tvlint.cli.progress import Progress
from tvlint.cli.session import deliver, looked_for, note, outputs, project, session
from tvlint.findings import Problem, Report, Severity
from tvlint.ir.location import Location
from tvlint.ir.plan import Plan
from tvlint.reporters.text.totals import counted
from tvlint.rulebook.pages import load_rules
from tvlint.run.baseline import compare, load, path_of
from tvlint.run.check import check
from tvlint.run.discovery import Candidates, changed, discover
from tvlint.run.exit_code import CLEAN, INPUT, NOTHING, exit_code
from tvlint.run.project import ProjectError
from tvlint.run.proofs import joined, prove_project


def run(options: argparse.Namespace) -> int:
    """Check the files, prove the project's pairs, report, and give the exit code."""
    wanted = outputs(options)
    known = load_rules()
    try:
        settings = project(options, known)
        baseline = path_of(settings, options.baseline)
        entries = load(baseline) if baseline is not None else ()
    except ProjectError as error:
        deliver(Report(problems=error.problems), wanted, options, known)
        return INPUT
    rules = looked_for(options, settings, known)
    settings = replace(settings, select=() if options.select else settings.select)
    if options.world_size is not None:
        settings = replace(settings, world_size=options.world_size, world_size_location=Location("--world-size"))
    search = partial(changed if options.changed else discover, tuple(options.paths), settings)
    candidates = options.steps.do(os.curdir, search, "the search for files")
    if isinstance(candidates, Problem):
        candidates = Candidates((), problems=(candidates,))
    elsewhere = 0
    with Progress() as progress:
        plans: dict[str, Plan] = {}
        shared = session(options, settings, progress)
        report, skipped = check(candidates, rules, known, settings, shared, plans)
        if not options.no_prove and settings.proofs:
            proved, elsewhere = prove_project(settings, shared, plans, tuple(options.paths))
            report = joined(report, proved)
    stale = 0
    if baseline is not None:
        found = compare(report, entries, baseline.parent)
        report = replace(report, findings=found.new, known=len(found.known))
        stale = sum(entry.count for entry in found.stale)
    if options.new_from:
        from tvlint.cli.new_from import before_change

        before = before_change(options, report, rules, known, settings)
        report = replace(report, findings=before.new, known=report.known + len(before.known))
    fail_on = Severity(options.fail_on) if options.fail_on else settings.fail_on
    report = deliver(report, wanted, options, known, fail_on)
    for path in skipped:
        note(f"`{path}` is no configuration or plan that tvlint knows; it was not checked")
    if stale:
        note(f"{counted(stale, 'finding')} of the baseline is no more: `tvlint baseline prune` takes out what is fixed")
    if elsewhere:
        note(f"{counted(elsewhere, 'pair')} of `[[proof]]` with no plan in what was named: `tvlint check` alone proves all")
    for text in candidates.notes:
        note(text)
    code = exit_code(report, fail_on)
    if code == NOTHING:
        if options.changed or options.may_be_empty:
            return CLEAN
        where = ", ".join(f"`{path}`" for path in options.paths or settings.paths or (os.curdir,))
        note(f"nothing to check in {where}: no launch script, configuration or plan was found")
    return code
