"""`tvlint prove`."""

from __future__ import annotations

import argparse
import os

from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.cli.session import assumptions, deliver, judging_one, outputs, project, session, unreadable
from tvlint.findings import Problem, Report, Severity
from tvlint.rulebook.pages import load_rules
from tvlint.run.output.exit_code import INPUT, exit_code
from tvlint.run.project.discovery import pairings
from tvlint.run.project.project_file import ProjectError
from tvlint.run.proof.captures import is_capture
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.proofs import joined, with_sources
from tvlint.run.proof.prove import prove_pairs


def run(options: argparse.Namespace) -> int:
    """Prove each parallel plan against the reference, report, and give the exit code."""
    from tempfile import TemporaryDirectory

    if not options.captured:
        if not options.reference and not all(map(os.path.isdir, options.parallel)):
            fail("--reference is missing", "name the plan that says what is right; a folder of generated code brings its own")
        return _prove(options, tuple(options.parallel), options.reference)
    with TemporaryDirectory(prefix="tvlint-captures-") as temporary:
        made = _captured(options, options.captures or temporary)
        return unreadable(made) if isinstance(made, Problem) else _prove(options, made[:1], made[1])


def _prove(options: argparse.Namespace, parallel: tuple[str, ...], reference: str) -> int:
    """Prove the plans, report, and give the exit code."""
    wanted = outputs(options)
    known = load_rules()
    try:
        settings = judging_one(options, project(options, known), known, parallel[0])
    except ProjectError as error:
        deliver(Report(problems=error.problems), wanted, options, known)
        return INPUT
    assume = assumptions(options)
    seconds = float(options.solver_timeout) if options.solver == "all" else None
    pairs = tuple(Pair(name, reference, assume, seconds, settings.operators, options.replay) for name in parallel)
    options.plans = {}
    with Progress() as progress:
        shared = session(options, settings, progress)
        report = joined(Report(pairings=pairings(settings)), *prove_pairs(pairs, shared, options.plans))
        report = with_sources(report, settings, shared)
    report = deliver(report, wanted, options, known)
    return exit_code(report, Severity.ERROR)


def _captured(options: argparse.Namespace, folder: str) -> tuple[str, str] | Problem:
    """Capture a program and its reference; return their captures, or why there are none."""
    from tvlint.cli.capture import capture_to, launch_of

    launch = launch_of(options.parallel, options)
    parallel = capture_to(launch, folder, "parallel", float(options.timeout))
    if isinstance(parallel, Problem):
        return parallel
    if is_capture(options.reference):
        return parallel, options.reference
    single = launch_of(options.reference, options) if options.reference else launch.single
    reference = capture_to(single, folder, "reference", float(options.timeout))
    return reference if isinstance(reference, Problem) else (parallel, reference)
