"""`--new-from`: what was not there where a change begins."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tvlint.cli.arguments import fail
from tvlint.cli.progress import Progress
from tvlint.findings import Report
from tvlint.rule import Rule
from tvlint.run.change.new_from import compared_with, merge_base
from tvlint.run.process.session import Session
from tvlint.run.project.project_file import Project
from tvlint.run.project.revision import RevisionError, entries
from tvlint.run.silence.baseline import Compared


def before_change(
    options: argparse.Namespace, report: Report, rules: Mapping[str, Rule], known: Mapping[str, Rule], settings: Project
) -> Compared:
    """Return which findings were there where the change begins; ends the process where that is unknown."""
    folder = options.steps.conclude(os.curdir, lambda: tempfile.mkdtemp(prefix="tvlint-new-"))
    try:
        files = entries(merge_base(options.new_from))
        with Progress() as progress:
            shared = Session(options.steps, progress)
            return compared_with(files, report, Path(os.path.realpath(folder)) / "before", rules, known, settings, shared)
    except RevisionError as error:
        fail(str(error), error.help)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
