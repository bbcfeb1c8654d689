"""`markdown`: readable where GitHub shows it, inert, and never too long."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.builders import reports
from tvlint.findings import Finding, Report, Severity
from tvlint.ir.location import Location
from tvlint.reporters.escape import markdown as escape
from tvlint.reporters.forge import markdown, summary

TAGS = {
    "h2",
    "h3",
    "p",
    "strong",
    "em",
    "code",
    "pre",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "ul",
    "li",
}


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(text: str) -> Page:
    library = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")
    page = Page()
    page.feed(library.MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    return page


def written(report: Report, root: Path) -> str:
    reports.write_sources(root)
    return markdown.write(report, reports.context(root, show_unknown=True)).text


@pytest.mark.parametrize("name", ["full", "hostile"])
def test_markdown_is_as_reviewed(name: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    golden(f"reports/{name}.md", written(reports.ALL[name], tmp_path))


@pytest.mark.parametrize("name", reports.ALL)
def test_linted_text_formats_nothing(name: str, tmp_path: Path) -> None:
    page = rendered(written(reports.ALL[name], tmp_path))
    assert page.tags <= TAGS
    assert page.attributes <= {"style"}


def test_linted_text_is_read_as_it_stands(tmp_path: Path) -> None:
    message = "<b> & [x](y) **a** _b_ ~~c~~ | # $x$ \\ ![i](j) <!-- -->"
    page = rendered(written(Report((Finding("a-rule", Severity.ERROR, message, Location("train.sh", 4)),)), tmp_path))
    assert message in page.text


@pytest.mark.parametrize("text", ["@octocat", "x@y", "#12", "a/b#12", "GH-12", "https://evil.example/x", "www.evil.example"])
def test_nobody_is_notified_and_nothing_is_linked(text: str) -> None:
    html = escape.markdown(escape.Paragraph((f"see {text} now",))).text
    assert not re.search(r"@\w|&#35;\d|GH-\d|https?:|www\.", html)


def test_a_summary_counts_by_rule_and_file_and_draws_plans(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    reports.write_sources(tmp_path)
    golden("reports/full.summary.md", summary.write(reports.FULL, reports.context(tmp_path)).text)


def test_a_summary_has_a_table_of_all_that_a_comment_cannot_hold(tmp_path: Path) -> None:
    findings = tuple(
        Finding(f"rule-{number % 60}", severity, "é" * 300, Location(f"{number % 7}.sh", number))
        for number in range(1, 3001)
        for severity in (Severity.ERROR, Severity.NOTE)
    )
    written = summary.write(Report(findings), reports.context(tmp_path)).text
    assert 900_000 < len(written.encode()) <= 1_000_000
    page = rendered(written)
    assert page.tags <= TAGS
    assert "10 more rules | 500 |  | 500 |" in written
    rows = re.findall(r"^\| <code>(\d\.sh)</code> \| (\d+) \|  \| (\d+) \|$", written, re.MULTILINE)
    assert {(int(errors), int(notes)) for _, errors, notes in rows} == {(428, 428), (429, 429)}
    assert len(rows) == 7


def test_it_fits_where_it_goes(tmp_path: Path) -> None:
    finding = Finding("a-rule", Severity.ERROR, "é" * 500, Location("train.sh", 4))
    report = Report(tuple([finding] * 3000), (replace(reports.REFUTED, reasons=reports.REFUTED.reasons * 2),))
    comment = markdown.write(report, reports.context(tmp_path)).text
    assert 60_000 < len(comment.encode()) <= 65_000
    assert re.search(r"_\d[\d,]* remarks more; ", comment.splitlines()[-1])
    assert "refuted" in comment.splitlines()[2]
