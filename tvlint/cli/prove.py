"""`tvlint prove`."""

from __future__ import annotations

import argparse
import os

from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.cli.session import assumptions, deliver, outputs, project, session
from tvlint.findings import Report, Severity
from tvlint.rulebook.pages import load_rules
from tvlint.run.exit_code import INPUT, exit_code
from tvlint.run.pair import Pair
from tvlint.run.project import ProjectError
from tvlint.run.proofs import joined, pairings, with_sources
from tvlint.run.prove import prove_pairs


def run(options: argparse.Namespace) -> int:
    """Prove each parallel plan against the reference, report, and give the exit code."""
    wanted = outputs(options)
    if not options.reference and not all(map(os.path.isdir, options.parallel)):
        fail("--reference is missing", "name the plan that says what is right; a folder of generated code brings its own")
    known = load_rules()
    try:
        settings = project(options, known)
    except ProjectError as error:
        deliver(Report(problems=error.problems), wanted, options, known)
        return INPUT
    assume = assumptions(options)
    seconds = float(options.solver_timeout) if options.solver == "all" else None
    rest = (options.reference, assume, seconds, settings.operators)
    pairs = tuple(Pair(parallel, *rest) for parallel in options.parallel)
    options.plans = {}
    with Progress() as progress:
        shared = session(options, settings, progress)
        report = joined(Report(pairings=pairings(settings)), *prove_pairs(pairs, options.jobs, shared, options.plans))
        report = with_sources(report, settings, shared)
    report = deliver(report, wanted, options, known)
    return exit_code(report, Severity.ERROR)
