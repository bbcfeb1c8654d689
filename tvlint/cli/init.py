"""`tvlint init`."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

from tvlint import __version__
from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.cli.session import note, session, with_files
from tvlint.findings import Report, Severity
from tvlint.home import HOME
from tvlint.plurals import counted
from tvlint.reporters.escape.terminal import terminal
from tvlint.rulebook.pages import load_rules
from tvlint.run.judge.check import check
from tvlint.run.output.exit_code import CLEAN, INPUT
from tvlint.run.output.outputs import OutputError, say, write_file
from tvlint.run.project.discovery import discover
from tvlint.run.project.project_file import Project, ProjectError, find
from tvlint.run.project.start import pairs, project_file
from tvlint.run.silence.baseline import NAME, baselines, compare_all, entries_of, save

FILE = "tvlint.toml"
HOOKS = f"""\
  - repo: {HOME}
    rev: v{__version__}
    hooks:
      - id: tvlint          # changed files, on commit and merge
      - id: tvlint-config   # tvlint.toml, when it changes
      - id: tvlint-prove    # everything and the proofs, on push"""
STEP = f"""\
      - uses: {HOME.removeprefix("https://github.com/")}@v{__version__}"""


def run(options: argparse.Namespace) -> int:
    """Write a project file for what is found here, and a baseline where there are errors; say what comes next."""
    here = Path.cwd()
    known = find(here)
    if known is not None and known.parent == here:
        fail(f"`{os.path.relpath(known)}` is the project file already", "`tvlint config verify` looks for mistakes in it")
    settings = Project(here)
    rules = load_rules()
    settings, candidates = with_files(options, settings, rules, partial(discover, (), settings))
    with Progress() as progress:
        report, _ = check(candidates, rules, rules, settings, session(options, settings, progress))
    try:
        findings = compare_all(report, baselines(settings, ""), settings).new
        errors = tuple(finding for finding in findings if finding.severity is Severity.ERROR)
        if errors:
            save(here / NAME, entries_of(findings, here))
        write_file(FILE, terminal(project_file(report, NAME if errors else "").split("\n")[:-1]))
    except (OutputError, ProjectError) as error:
        fail(str(error), getattr(error, "help", ""))
    _tell(report, len(errors), len(findings))
    if known is not None:
        note(f"`{FILE}` judges the files in this folder from now on, and nothing in `{os.path.relpath(known)}` does")
    return INPUT if report.problems else CLEAN


def _tell(report: Report, errors: int, findings: int) -> None:
    note(f"wrote `{FILE}`: {counted(len(report.checked), 'file')} to check")
    if errors:
        also = f" and {counted(findings - errors, 'milder one')}" if findings > errors else ""
        note(f"wrote `{NAME}` with what was here before: {counted(errors, 'error')}{also}; only new ones fail from now on")
    if report.problems:
        note(f"{counted(len(report.problems), 'file')} cannot be read: `tvlint check` says why; `exclude` leaves files out")
    say("", "next:", *_steps(errors > 0, any(pairs(report))))


def _steps(has_baseline: bool, has_pairs: bool) -> list[str]:
    steps = ["  tvlint check                      the gate, green from now on"]
    if has_baseline:
        steps.append("  tvlint check --no-baseline        what was here before")
    steps.append("  tvlint check --diff               what tvlint can repair")
    if has_pairs:
        steps.append(f"  {FILE}                       without its `#`, `[[proof]]` has plans proved")
    return [*steps, "", "for `.pre-commit-config.yaml`:", *HOOKS.splitlines(), "", "for a job of GitHub Actions:", STEP]
