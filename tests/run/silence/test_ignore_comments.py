"""`# tvlint: ignore[rule] reason`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tvlint.findings import Finding, Related, Severity
from tvlint.ir.location import Location
from tvlint.run.silence.ignores import ignores, silence

KNOWN = ("one", "two", "unused-ignore")


def said(path: Path, *places: tuple[str, int], judged: bool = True) -> list[tuple[str, int | None, str]]:
    findings = [Finding(rule, Severity.ERROR, "wrong", Location(str(path), line)) for rule, line in places]
    kept, _ = silence(findings, [str(path)], lambda path, rule: judged, KNOWN)
    return [(finding.rule, finding.location.line, finding.message) for finding in kept]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text("A=1 # tvlint: ignore[one] because\n# tvlint: ignore[two]\n\nrun \\\n  --x 1 \\\n  --y 2\nB=2\n")
    return path


def test_a_comment_at_the_end_of_a_line_is_about_the_line(script: Path) -> None:
    assert said(script, ("one", 1), ("two", 4)) == []
    assert said(script, ("one", 1), ("one", 4), ("two", 4)) == [("one", 4, "wrong")]


@pytest.mark.parametrize("line", [4, 5, 6])
def test_a_comment_of_its_own_is_about_the_next_statement(script: Path, line: int) -> None:
    assert said(script, ("one", 1), ("two", line)) == []


def test_a_statement_ends_where_no_backslash_continues_it(script: Path) -> None:
    assert ("two", 7, "wrong") in said(script, ("two", 7))


def test_a_comment_that_silences_nothing_is_reported(script: Path) -> None:
    assert said(script) == [
        ("unused-ignore", 1, "the comment ignores `one`, which finds nothing here"),
        ("unused-ignore", 2, "the comment ignores `two`, which finds nothing here"),
    ]


def test_a_comment_about_a_rule_that_did_not_run_is_left_alone(script: Path) -> None:
    assert said(script, judged=False) == []


def test_unknown_and_missing_names_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1 # tvlint: ignore[onne]\nb: 2 # tvlint: ignore\n")
    assert said(path, judged=False) == [
        ("unused-ignore", 1, "the comment ignores `onne`, which is no rule"),
        ("unused-ignore", 2, "the comment names no rule and ignores nothing"),
    ]


def test_names_of_one_comment_that_are_no_rules_are_one_finding(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"a: 1 # tvlint: ignore[{', '.join(f'n{number}' for number in range(9))}]\n")
    assert said(path) == [("unused-ignore", 1, "the comment ignores `n0`, `n1`, `n2` and 6 more, which are no rules")]


def test_a_whole_file_and_several_rules(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    path.write_text("# tvlint: ignore-file[one, two] generated\nx\ny\n")
    assert said(path, ("one", 3), ("two", 2)) == []


def test_a_comment_counts_at_a_related_place(script: Path) -> None:
    finding = Finding("one", Severity.ERROR, "m", Location(str(script), 7), "", (Related("", Location(str(script), 1)),))
    assert silence([finding], [str(script.parent / "plan.json")], lambda path, rule: False, KNOWN) == ((), (finding,))


@pytest.mark.parametrize("content", [b"\x00# tvlint: ignore[one]", b"\xff# tvlint: ignore[one]", b""])
def test_what_is_no_text_has_no_comments(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    assert ignores(str(tmp_path / "x")) == ()


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path), "a\0b"):
        assert ignores(path) == ()
