"""Every format states what a report holds, whatever its form is."""

from __future__ import annotations

import html
from importlib import import_module
from pathlib import Path

import pytest

from tests.builders import reports
from tvlint.reporters import FORMATS

STATED = (
    *(finding.message for finding in reports.FULL.findings),
    *(finding.rule for finding in reports.FULL.findings),
    *(problem.message for problem in reports.FULL.problems),
    *(reason.message for verdict in reports.FULL.verdicts for reason in verdict.reasons),
    *(reason.name for verdict in reports.FULL.verdicts for reason in verdict.reasons),
    "plans/other.pkl",
    "broken.json",
)


@pytest.mark.parametrize("format", FORMATS)
def test_findings_problems_and_verdicts_that_prove_nothing_are_stated(tmp_path: Path, format: str) -> None:
    reports.write_sources(tmp_path)
    written = import_module(f"tvlint.reporters.{FORMATS[format]}").write(reports.FULL, reports.context(tmp_path)).text
    assert [text for text in STATED if plain(text) not in plain(written)] == []


def plain(text: str) -> str:
    """Return the letters and digits of a text, without marks and escapes of a format."""
    return "".join(filter(str.isalnum, html.unescape(text).replace("<code>", "").replace("</code>", "")))
