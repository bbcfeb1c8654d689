"""Reasons of verdicts are silenced like findings, counted, and never make a verdict Proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.equivalence.verdicts.test_text_plans import PARALLEL, REFERENCE
from tvlint.cli import main

WRONG = PARALLEL.replace("  y = all-reduce(p) over tp\n", "  y = identity(p)\n")
PAIR = '[[proof]]\nparallel = ["parallel.plan"]\nreference = "reference.plan"\n'
PROVE = ("prove", "parallel.plan", "--reference", "reference.plan")
CHECK = ("check", "parallel.plan", "--ignore", "partial-through-nonlinear,missing-allreduce")
"""Only the proof speaks: what the command line leaves out holds for findings."""
NOTHING: dict[str, list[str]] = {"by_comments": [], "by_project": []}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parallel.plan").write_text(WRONG)
    (tmp_path / "reference.plan").write_text(REFERENCE)
    (tmp_path / "tvlint.toml").write_text(PAIR)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list[str]], list[str]]:
    """Return the exit code, the rules of what is silenced, by what silences it, and the outcomes of the proofs."""
    code = main([*arguments, "-o", "json"])
    said = json.loads(capsys.readouterr().out)
    silenced = {way: [finding["rule"] for finding in found] for way, found in said["silenced"].items()}
    return code, silenced, [verdict["verdict"] for verdict in said["verdicts"]]


def test_a_reason_fails_the_run(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *CHECK) == (1, NOTHING, ["refuted"])


@pytest.mark.parametrize("keys", ['ignore = ["RULE"]\n', '[per-file-ignores]\n"*.plan" = ["RULE"]\n'])
def test_the_project_file_silences_a_reason(project: Path, capsys: pytest.CaptureFixture[str], keys: str) -> None:
    (project / "tvlint.toml").write_text(keys.replace("RULE", "missing-allreduce") + PAIR)
    assert run(capsys, *CHECK) == (0, {"by_comments": [], "by_project": ["missing-allreduce"]}, [])
    assert run(capsys, *PROVE) == (1, NOTHING, ["refuted"])


def test_a_comment_silences_a_reason_at_its_place(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "  s = softmax(y, dim=1)\n"
    comment = "  # tvlint: ignore[missing-allreduce] a test\n"
    (project / "parallel.plan").write_text(WRONG.replace(line, line.rstrip() + comment))
    assert run(capsys, *CHECK) == (0, {"by_comments": ["missing-allreduce"], "by_project": []}, [])
    assert run(capsys, *CHECK, "--no-ignore-comments") == (1, NOTHING, ["refuted"])


@pytest.mark.heavy
def test_gaps_that_are_left_are_unknown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = WRONG.replace("  dh = backward a (da)\n", "  dh = frobnicate(da)\n")
    (project / "parallel.plan").write_text(wrong)
    (project / "tvlint.toml").write_text('ignore = ["missing-allreduce"]\n' + PAIR)
    code, silenced, outcomes = run(capsys, *CHECK)
    assert (code, outcomes) == (5, ["unknown"])
    assert silenced["by_project"] == ["missing-allreduce"]
