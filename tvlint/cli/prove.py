"""`tvlint prove`."""

from __future__ import annotations

import argparse
import os

from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.cli.session import assumptions, cache, deliver, note, outputs, project
from tvlint.findings import Outcome, Report, Severity
from tvlint.rulebook.pages import load_rules
from tvlint.run.exit_code import INPUT, exit_code
from tvlint.run.pair import Pair
from tvlint.run.project import ProjectError
from tvlint.run.proofs import joined
from tvlint.run.prove import NO_CERTIFICATE, prove_pairs


def run(options: argparse.Namespace) -> int:
    """Prove each parallel plan against the reference, report, and give the exit code."""
    wanted = outputs(options)
    if not options.reference and not all(map(os.path.isdir, options.parallel)):
        fail("--reference is missing", "name the plan that says what is right; a folder of generated code brings its own")
    if options.certificate and len(options.parallel) > 1:
        fail("--certificate takes the proof of one plan", "give each plan a run of its own")
    known = load_rules()
    try:
        operators = project(options, known).operators
    except ProjectError as error:
        deliver(Report(problems=error.problems), wanted, options, known)
        return INPUT
    assume = assumptions(options)
    seconds = float(options.solver_timeout) if options.solver == "all" else None
    rest = (options.reference, assume, seconds, operators, options.certificate)
    pairs = tuple(Pair(parallel, *rest) for parallel in options.parallel)
    report = Report()
    options.plans = {}
    with Progress() as progress:
        remembered = None if options.certificate else cache(options)
        for proved in prove_pairs(pairs, options.jobs, progress, options.plans, remembered):
            report = joined(report, proved)
    deliver(report, wanted, options, known)
    facts = [fact for verdict in report.verdicts for fact in verdict.facts]
    for reason in [text for name, text in facts if name == NO_CERTIFICATE]:
        note(f"no certificate is written to `{options.certificate}`: the checker does not follow the proof: {reason}")
    if options.certificate and any(verdict.outcome is not Outcome.PROVED for verdict in report.verdicts):
        note(f"no certificate is written to `{options.certificate}`: there is no proof")
    return exit_code(report, Severity.ERROR)
