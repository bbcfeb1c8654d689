"""`tvlint check --show-files`."""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial

from tvlint.findings import Problem
from tvlint.plurals import counted
from tvlint.reporters.escape.terminal import terminal
from tvlint.run.judge.files import applicable
from tvlint.run.output.exit_code import CLEAN, INPUT
from tvlint.run.output.outputs import write_stdout
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.nested import judging
from tvlint.run.project.project_file import Project
from tvlint.run.project.reading import read_document


def show_files(options: argparse.Namespace, candidates: Candidates, settings: Project) -> int:
    """Say of each file what it is taken for, or why it is not read, and check none; return the exit code."""
    said, problems = [], list(candidates.problems)
    for path in candidates.files:
        found = options.steps.do(path, partial(_taken_for, path, settings), "the file")
        problems += [found] if isinstance(found, Problem) else []
        said.append(f"{path}: {f'unreadable: {found.message}' if isinstance(found, Problem) else found}")
    said += [f"{problem.location.path}: unreadable: {problem.message}" for problem in candidates.problems]
    said += [f"{finding.location.path}: {finding.message}" for finding in candidates.findings]
    write_stdout(terminal(said, False))
    return INPUT if problems else CLEAN


def _taken_for(path: str, settings: Project) -> str | Problem:
    document = read_document(path, judging(path, settings).operators)
    if isinstance(document, Problem):
        return document
    if document is None:
        return "not read: no configuration, plan or schedule that tvlint reads"
    if not document.format:
        return "; ".join(finding.message for finding in document.findings)
    if not document.configurations:
        return document.format
    frameworks = Counter((each.framework, applicable(each.framework, each.version)) for each in document.configurations)
    said = [f"{counted(count, f'{name} configuration')}, {counted(held, 'rule')}" for (name, held), count in frameworks.items()]
    return f"{document.format}: {'; '.join(said)}"
