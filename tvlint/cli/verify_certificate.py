"""`tvlint verify-certificate`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from textwrap import wrap

from tvlint import __version__
from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.cli.session import note, project
from tvlint.findings import Problem
from tvlint.reporters.tally import seconds_text
from tvlint.reporters.visible import visible
from tvlint.rulebook.pages import load_rules
from tvlint.run.certificate import NotVerified, Verified, verify
from tvlint.run.exit_code import CLEAN, FOUND, INPUT
from tvlint.run.outputs import OutputError, parse_outputs, write_file, write_stdout
from tvlint.run.pair import Pair
from tvlint.run.project import ProjectError

FORMATS = ("text", "json")


def run(options: argparse.Namespace) -> int:
    """Check one certificate against a pair of plans, say what it proves, and give the exit code."""
    try:
        outputs = parse_outputs(options.output, FORMATS) or parse_outputs(["text"], FORMATS)
    except OutputError as error:
        fail(str(error), error.help)
    if not options.reference and not os.path.isdir(options.parallel):
        fail("the reference plan is missing", "name the plan that says what is right, behind the parallel plan")
    started = time.perf_counter()
    try:
        operators = project(options, load_rules()).operators
    except ProjectError as error:
        return _unreadable(error.problems[0])
    with Progress() as progress:
        found = verify(options.certificate, Pair(options.parallel, options.reference, operators=operators), progress)
    if isinstance(found, Problem):
        return _unreadable(found)
    seconds = time.perf_counter() - started
    for output in sorted(outputs, key=lambda output: not output.path):
        text = _text(found, options, seconds) if output.format == "text" else _json(found, options)
        try:
            write_file(output.path, text) if output.path else write_stdout(text)
        except OutputError as error:
            fail(str(error), error.help)
    return CLEAN if isinstance(found, Verified) else FOUND


def _unreadable(problem: Problem) -> int:
    note(f"{problem.location.path}: {problem.message}")
    if problem.help:
        print(f"  help: {visible(problem.help)}", file=sys.stderr)
    return INPUT


def _text(found: Verified | NotVerified, options: argparse.Namespace, seconds: float) -> str:
    reference = options.reference or "its traced graph"
    if isinstance(found, NotVerified):
        subject = f"`{options.certificate}` does not prove {options.parallel} against {reference}"
        lines = [f"rejected: {subject}", f"  {found.reason}"]
        return "".join(f"{visible(line)}\n" for line in lines)
    lines = [f"verified: {options.parallel} trains the same model as {reference} ({seconds_text(seconds)})"]
    lines += [f"  {', '.join(f'{name} {value}' for name, value in found.facts)}"]
    lines += [f"  proof written by tvlint {found.engine}, checked by tvlint {__version__}", "", "  assumed:"]
    for assumption in found.assumptions:
        lines += wrap(assumption, 96, initial_indent="    - ", subsequent_indent="      ")
    return "".join(f"{visible(line)}\n" for line in lines)


def _json(found: Verified | NotVerified, options: argparse.Namespace) -> str:
    content: dict[str, object] = {
        "tool": "tvlint",
        "version": __version__,
        "certificate": options.certificate,
        "parallel": options.parallel,
        "reference": options.reference,
        "outcome": "verified" if isinstance(found, Verified) else "rejected",
    }
    if isinstance(found, Verified):
        content |= {"engine": found.engine, "facts": dict(found.facts), "assumptions": list(found.assumptions)}
    else:
        content["reason"] = found.reason
    return json.dumps(content, indent=2) + "\n"
