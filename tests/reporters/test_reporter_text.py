"""`text` and `concise`: what people and editors read."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import reports
from tvlint.findings import Finding, NotEvaluated, Outcome, Problem, Recognised, Related, Report, Severity
from tvlint.ir.location import Location
from tvlint.reporters.escape.escaped import Escaped
from tvlint.reporters.escape.visible import display_width
from tvlint.reporters.text import concise
from tvlint.reporters.text import report as text

UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    reports.write_sources(tmp_path)
    return tmp_path


def finding(path: str, line: int = 1, **place: int) -> Finding:
    return Finding("some-rule", Severity.ERROR, "message", Location(path, line, **place))


@pytest.mark.parametrize("name", reports.ALL)
def test_text_is_as_reviewed(name: str, root: Path, golden: Callable[[str, str], None]) -> None:
    golden(f"reports/{name}.txt", text.write(reports.ALL[name], reports.context(root, show_unknown=True)).text)


@pytest.mark.parametrize("name", ["full", "hostile"])
def test_concise_is_as_reviewed(name: str, root: Path, golden: Callable[[str, str], None]) -> None:
    golden(f"reports/{name}.concise.txt", concise.write(reports.ALL[name], reports.context(root)).text)


@pytest.mark.parametrize("write", [text.write, concise.write])
def test_nothing_from_a_file_reaches_the_terminal_raw(write: Callable[..., Escaped], root: Path) -> None:
    shown = write(reports.HOSTILE, reports.context(root, show_unknown=True)).text
    assert not UNSEEN.search(shown)
    assert "##[" not in shown


def test_folding_puts_no_command_at_the_start_of_a_line(root: Path) -> None:
    verdict = replace(reports.PROVED, facts=(("", "::add-mask::x"),), assumptions=(("word " * 12 + "::add-mask::x ") * 9,))
    for width in range(40, 120, 7):
        shown = text.write(Report(verdicts=(verdict,)), reports.context(root, width=width)).text
        assert not re.search(r"^\s*::", shown, re.MULTILINE)


def test_concise_has_one_line_a_remark(root: Path) -> None:
    report = reports.HOSTILE
    lines = concise.write(report, reports.context(root)).text.splitlines()
    assumed = sum(bool(verdict.assumptions) for verdict in report.verdicts)
    assert lines.pop() == "note: 1 rule could not be evaluated; `--show-unknown` lists them"
    assert len(lines) == len(report.problems) + len(report.findings) + len(report.verdicts) + assumed
    assert all(re.search(r":\d+:\d+: (error|warning|note): ", line) for line in lines)
    asked = concise.write(reports.FULL, reports.context(root, show_unknown=True)).text.splitlines()[-1]
    needs = "needs the world size: depends on `$NNODES`"
    assert asked == f"train.sh:8:27: note: not evaluated: {needs} [world-size-not-divisible]"
    assert "evaluated" not in concise.write(reports.CLEAN, reports.context(root)).text


def test_of_several_files_it_says_how_many_rules_of_one_could_not_be_evaluated(root: Path) -> None:
    at = [("one.sh", "a"), ("two.sh", "a"), ("two.sh", "b"), ("two.sh", "b"), ("three.sh", "c")]
    items = tuple(NotEvaluated(rule, Location(path), "unknown") for path, rule in at)
    report = Report(not_evaluated=items, checked=("one.sh",))
    last = concise.write(report, reports.context(root)).text.splitlines()[-1]
    assert last.startswith("note: rules could not be evaluated in 3 files, up to 2 in one; ")
    shown = text.write(report, reports.context(root)).text
    assert shown.startswith("no findings in 1 file; rules not evaluated in 3 files, up to 2 in one ")


def test_colour_only_when_asked_and_only_colour(root: Path) -> None:
    plain = text.write(reports.FULL, reports.context(root)).text
    coloured = text.write(reports.FULL, reports.context(root, color=True)).text
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain != coloured
    assert not UNSEEN.search(re.sub(r"\x1b\[[0-9;]*m", "", text.write(reports.HOSTILE, reports.context(root, color=True)).text))


@pytest.mark.parametrize(
    ("line", "start", "end", "span"),
    [
        ("--num-layers 47", 14, 16, "47"),
        ("\t\t--num-layers 47 \\", 16, 18, "47"),
        ("日本 --tp 3 x", 11, 12, "x"),
        ("日本 --tp 3", 1, 3, "日本"),
        ("a\x1b[31m b", 8, 9, "b"),
        ("x" * 300 + " WORD " + "y" * 300, 302, 306, "WORD"),
        ("é" * 300 + " WORD " + "é" * 300, 302, 306, "WORD"),
        ("日" * 100 + " WORD " + "日" * 100, 102, 106, "WORD"),
    ],
)
def test_carets_stand_under_the_span(line: str, start: int, end: int, span: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(f"{line}\n", encoding="utf-8")
    report = Report((finding("a.sh", column=start, end_line=1, end_column=end),))
    _, source, carets, *_ = text.write(report, reports.context(tmp_path)).text.splitlines()
    before = carets.index("^")
    under = "".join(
        character
        for index, character in enumerate(source)
        if before <= display_width(source[:index]) < before + carets.count("^")
    )
    assert under == span
    assert display_width(source) <= 100


def test_the_line_that_the_artefact_carries_wins_over_another_line_on_disk(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("a = new\n", encoding="utf-8")
    report = Report((Finding("some-rule", Severity.ERROR, "message", Location("model.py", 1, text="a = old")),))
    shown = text.write(report, reports.context(tmp_path)).text
    assert "a = old" in shown
    assert "a = new" not in shown


def _root_with_secrets(tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    """Return a folder and names of files in and around it that no report shows unasked."""
    root = tmp_path / "repository"
    root.mkdir()
    (tmp_path / "outside").write_text("SECRET\n", encoding="utf-8")
    (root / ".env").write_text("SECRET\n", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "link-to-hidden").symlink_to(root / ".env")
    (root / "binary").write_bytes(b"SECRET\0")
    (root / "latin").write_bytes(b"SECRET\xe9\n")
    os.mkfifo(root / "fifo")
    hidden = ("../outside", str(tmp_path / "outside"), ".git/config", ".env", "link", "link-to-hidden")
    return root, (*hidden, "binary", "latin", "fifo", "/dev/zero", ".", "missing", "a\0b", "n" * 5000)


def test_outside_of_a_checkout_unhidden_files_in_named_folders_are_shown(tmp_path: Path) -> None:
    root, names = _root_with_secrets(tmp_path)
    (root / "model.py").write_text("SHOWN\n", encoding="utf-8")
    report = Report(tuple(finding(name) for name in (*names, "model.py")))
    shown = text.write(report, reports.context(root)).text
    assert "SECRET" not in shown
    assert shown.count("SHOWN") == 1
    assert shown.count("message [some-rule]") == len(names) + 1
    assert "SHOWN" not in text.write(report, reports.context(root, named=frozenset({root / "plans"}))).text


def test_in_a_checkout_the_files_that_git_tracks_are_shown(tmp_path: Path) -> None:
    root, names = _root_with_secrets(tmp_path)
    (root / "untracked.txt").write_text("SECRET\n", encoding="utf-8")
    (root / "link-to-untracked").symlink_to("untracked.txt")
    (root / "model.py").write_text("SHOWN\n", encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "model.py", "link-to-untracked"], cwd=root, check=True)
    (root / ".git" / "config").open("a").write("# SECRET\n")
    report = Report(tuple(finding(name) for name in (*names, "untracked.txt", "link-to-untracked", "model.py")))
    shown = text.write(report, reports.context(root)).text
    assert "SECRET" not in shown
    assert shown.count("SHOWN") == 1


def test_files_that_a_person_named_are_shown_where_they_were_read(tmp_path: Path) -> None:
    root, names = _root_with_secrets(tmp_path)
    report = Report(tuple(finding(name) for name in names), checked=("../outside", "fifo", "/dev/zero"))
    named = frozenset({tmp_path / "outside", root / "fifo", Path("/dev/zero")})
    assert text.write(report, reports.context(root, named=named)).text.count("SECRET") == 3
    assert "SECRET" not in text.write(report, reports.context(root)).text
    assert "SECRET" not in text.write(replace(report, checked=()), reports.context(root, named=named)).text
    unread = Report(problems=(Problem("message", Location("../outside", 1)),))
    assert "SECRET" not in text.write(unread, reports.context(root)).text
    assert "SECRET" in text.write(unread, reports.context(root, named=named)).text


def test_places_that_no_file_has_are_survived(root: Path) -> None:
    places = [
        (0, 0, 0, 0),
        (-1, -1, -1, -1),
        (4, 10**9, 4, 10**9),
        (10**9, 1, 1, 1),
        (4, 5, 2, 1),
        (4, 5, 4, 2),
        (4, 18, 4, 10**9),
    ]
    report = Report(tuple(Finding("some-rule", Severity.NOTE, "message", Location("train.sh", *place)) for place in places))
    shown = text.write(report, reports.context(root)).text
    assert shown.count("message [some-rule]") == len(places)


def test_the_last_line_sums_up(root: Path) -> None:
    last = text.write(replace(reports.FULL, problems=(), not_evaluated=()), reports.context(root)).text.splitlines()[-1]
    assert last == "2 errors, 1 warning in 3 files; 1 proof proved; 1 proof refuted; 1 proof unknown"


@pytest.mark.parametrize(("outcome", "is_said"), [(Outcome.PROVED, False), (Outcome.UNKNOWN, True), (Outcome.REFUTED, True)])
def test_what_is_not_understood_is_counted_where_a_proof_may_need_it(outcome: Outcome, is_said: bool, root: Path) -> None:
    report = replace(reports.CLEAN, verdicts=(replace(reports.PROVED, outcome=outcome),))
    assert ("understood 118 of 140" in text.write(report, reports.context(root)).text) is is_said


def test_many_related_places_are_cut(root: Path) -> None:
    related = tuple(Related("here too", Location("a.sh", line)) for line in range(2, 32))
    finding = Finding("some-rule", Severity.ERROR, "said often", Location("a.sh", 1), related=related)
    said = text.write(Report(findings=(finding,)), reports.context(root)).text
    assert 0 < said.count("here too") < 30
    assert said.count("here too") + int(re.findall(r"and (\d+) more places", said)[0]) == 30


def test_the_frameworks_of_configurations_are_told_with_the_rules_that_hold_for_them(tmp_path: Path) -> None:
    recognised = (Recognised("megatron-lm", 1200, 262, 315), Recognised("verl", 1, 98, 315), Recognised("own", 2, 0, 315))
    shown = text.write(Report(recognised=recognised, checked=("a.sh",)), reports.context(tmp_path)).text
    assert shown.splitlines()[-2] == (
        "recognised 1,200 files as megatron-lm (262 of 315 rules apply), 1 as verl (98), 2 as own (no rule applies)"
    )
