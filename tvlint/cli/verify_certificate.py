"""`tvlint verify-certificate`."""

from __future__ import annotations

import argparse
import json
import os
import time
from textwrap import wrap

from tvlint import __version__
from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.cli.session import outputs, project, unreadable, write
from tvlint.findings import Problem
from tvlint.reporters.tally import seconds_text
from tvlint.reporters.visible import visible
from tvlint.rulebook.pages import load_rules
from tvlint.run.certificate import NotVerified, Verified, verify
from tvlint.run.exit_code import CLEAN, FOUND
from tvlint.run.pair import Pair
from tvlint.run.project import ProjectError


def run(options: argparse.Namespace) -> int:
    """Check one certificate against a pair of plans, say what it proves, and give the exit code."""
    wanted = outputs(options)
    if not options.reference and not os.path.isdir(options.parallel):
        fail("the reference plan is missing", "name the plan that says what is right, behind the parallel plan")
    started = time.perf_counter()
    try:
        operators = project(options, load_rules()).operators
    except ProjectError as error:
        return unreadable(*error.problems)
    with Progress() as progress:
        found = verify(options.certificate, Pair(options.parallel, options.reference, operators=operators), progress)
    if isinstance(found, Problem):
        return unreadable(found)
    seconds = time.perf_counter() - started
    write(wanted, lambda output: _text(found, options, seconds) if output.format == "text" else _json(found, options))
    return CLEAN if isinstance(found, Verified) else FOUND


def _text(found: Verified | NotVerified, options: argparse.Namespace, seconds: float) -> str:
    reference = options.reference or "its traced graph"
    if isinstance(found, NotVerified):
        subject = f"`{options.certificate}` does not prove {options.parallel} against {reference}"
        lines = [f"rejected: {subject}", f"  {found.reason}"]
        return "".join(f"{visible(line)}\n" for line in lines)
    lines = [f"verified: {options.parallel} trains the same model as {reference} ({seconds_text(seconds)})"]
    lines += [f"  {', '.join(f'{name} {value}' for name, value in found.facts)}"]
    lines += [f"  checked by tvlint {__version__}", "", "  assumed:"]
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
        content |= {"facts": dict(found.facts), "assumptions": list(found.assumptions)}
    else:
        content["reason"] = found.reason
    return json.dumps(content, indent=2) + "\n"
