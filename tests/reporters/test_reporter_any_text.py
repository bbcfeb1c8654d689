"""Every reporter, on reports with any text in any field: what it writes is well-formed and inert."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import reports
from tvlint.findings import Finding, NotEvaluated, Outcome, Problem, Reason, Related, Report, Severity, StageCounts, Verdict
from tvlint.ir.location import Location
from tvlint.reporters import FORMATS
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.forge import github, junit
from tvlint.reporters.json import report as json_reporter
from tvlint.reporters.sarif import report as sarif
from tvlint.reporters.text import concise
from tvlint.reporters.text import report as text

PIECES = [
    "::",
    "##[",
    "`",
    "|",
    "</script>",
    "]](",
    "%0A",
    "\n",
    "\r\n",
    "\x1b[",
    "\u202e",
    "\ud800",
    "\0",
    "&lt;",
    "{0}",
    "\ufffe",
    "日",
]
WORDS = st.lists(st.sampled_from(PIECES) | st.text(st.characters(), max_size=4), max_size=6).map("".join)
NUMBERS = st.none() | st.integers(-2, 12) | st.sampled_from([2**31, 10**12])
PATHS = st.sampled_from(["train.sh", "evil.sh", "plans/parallel.pkl", "/etc/passwd", "."]) | WORDS
LOCATIONS = st.builds(Location, PATHS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, WORDS, WORDS)
RELATED = st.lists(st.builds(Related, WORDS, LOCATIONS), max_size=2).map(tuple)
RANKS = st.lists(st.integers(0, 9), max_size=4).map(tuple)
NAMES = st.sampled_from(["layers-not-divisible-by-pp", "no-page-for-this"])
FINDINGS = st.builds(Finding, NAMES, st.sampled_from(Severity), WORDS, LOCATIONS, WORDS, RELATED, RANKS)
REASONS = st.builds(Reason, NAMES, st.booleans(), WORDS, LOCATIONS, RANKS, WORDS, WORDS, WORDS, WORDS, RELATED)
VERDICTS = st.builds(
    Verdict,
    PATHS,
    PATHS,
    st.sampled_from(Outcome),
    st.just(StageCounts(9, 3, 7, 1, 1)),
    st.lists(REASONS, max_size=2).map(tuple),
    st.lists(WORDS, max_size=2).map(tuple),
    st.lists(st.tuples(WORDS, WORDS), max_size=2).map(tuple),
)
REPORTS = st.builds(
    Report,
    st.lists(FINDINGS, max_size=3).map(tuple),
    st.lists(VERDICTS, max_size=2).map(tuple),
    st.lists(st.builds(NotEvaluated, NAMES, LOCATIONS, WORDS), max_size=2).map(tuple),
    st.lists(st.builds(Problem, WORDS, LOCATIONS, WORDS), max_size=2).map(tuple),
    st.lists(PATHS, max_size=2).map(tuple),
    st.just((reports.OUTLINE,)),
)
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
WRITERS: dict[str, Callable[..., Escaped]] = {
    name: import_module(f"tvlint.reporters.{module}").write for name, module in FORMATS.items()
}
FOR_MACHINES = ("json", "sarif", "gitlab", "rdjson")
"""Formats that are JSON; people read all others."""
WITH_A_TOKEN = "github"
"""The format that ends what it shows by a word that nobody can know before."""


@pytest.fixture(scope="module")
def root() -> Path:
    folder = Path(tempfile.mkdtemp())
    reports.write_sources(folder)
    return folder


@settings(max_examples=60)
@given(report=REPORTS)
def test_people_see_every_character(root: Path, report: Report) -> None:
    for name in (name for name in WRITERS if name not in FOR_MACHINES):
        shown = WRITERS[name](report, reports.context(root, show_unknown=True)).text
        assert not UNSEEN.search(shown), name
        assert "##[" not in shown, name
        assert not shown.isspace(), name
        shown.encode("utf-8")


@settings(max_examples=60)
@given(report=REPORTS)
def test_machines_parse_it(root: Path, report: Report) -> None:
    context = reports.context(root)
    suites = ElementTree.fromstring(junit.write(report, context).text)
    assert suites.findall("testsuite/testcase")
    read = json.loads(json_reporter.write(report, context).text)
    assert sorted(finding["message"] for finding in read["findings"]) == sorted(finding.message for finding in report.findings)
    (run,) = json.loads(sarif.write(report, context).text)["runs"]
    proofs = [verdict for verdict in report.verdicts if verdict.outcome is not Outcome.PROVED]
    remarks = len(report.problems) + len(report.findings) + sum(max(1, len(verdict.reasons)) for verdict in proofs)
    assert len(run["results"]) == remarks
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert re.fullmatch(r"(file:///)?[^\s:\\]+", place["artifactLocation"]["uri"])


@settings(max_examples=60)
@given(report=REPORTS)
def test_a_line_that_starts_like_a_command_is_ours(root: Path, report: Report) -> None:
    for line in github.write(report, reports.context(root)).text.split("\n"):
        if line.lstrip().startswith("::"):
            assert re.match(r"::(group|stop-commands|endgroup|error|warning|notice|[0-9a-f]{32})[: ]", line)
    for write in (text.write, concise.write):
        assert not [line for line in write(report, reports.context(root)).text.split("\n") if line.lstrip().startswith("::")]


@settings(max_examples=60)
@given(report=REPORTS)
def test_json_is_ascii_that_parses(root: Path, report: Report) -> None:
    for name in FOR_MACHINES:
        written = WRITERS[name](report, reports.context(root)).text
        assert written.isascii(), name
        json.loads(written)


@settings(max_examples=30)
@given(report=REPORTS)
def test_a_report_is_written_the_same_twice(root: Path, report: Report) -> None:
    for write in (write for name, write in WRITERS.items() if name != WITH_A_TOKEN):
        assert write(report, reports.context(root)) == write(replace(report), reports.context(root))
