"""Lines of files that a plan names as its source are shown, and findings stand in them, only where that gives nothing away."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tvlint.checkout.opening import forget
from tvlint.cli import main

PLAN = """\
mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[4,8] tp:S(1)
program
  y = linear(x, w) at "notes.txt":1
  z = gelu(y) at "notes.txt":1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    (tmp_path / "a.plan").write_text(PLAN)
    (tmp_path / "notes.txt").write_text("secret\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("check", "a.plan"), False),
        (("prove", "a.plan", "--reference", "a.plan"), False),
        (("check", "a.plan", "notes.txt"), False),
        (("check", "."), True),
        (("check",), True),
        (("check", "--changed", "a.plan"), False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_without_a_repository_lines_are_shown_of_what_lies_in_named_folders(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], shown: bool
) -> None:
    assert main([*arguments, "-o", "text"]) in (1, 2, 5)
    assert ("secret" in capsys.readouterr().out) is shown


@pytest.mark.parametrize("tracked", [True, False])
def test_findings_stand_in_files_that_git_tracks_or_that_were_checked(
    folder: Path, capsys: pytest.CaptureFixture[str], tracked: bool
) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    if tracked:
        subprocess.run(["git", "add", "notes.txt"], check=True)
    forget()
    expected = "notes.txt" if tracked else "a.plan"
    assert main(["check", "a.plan", "-o", "github"]) == 1
    out = capsys.readouterr().out
    assert f"::error file={expected},line=1" in out
    assert ("secret" in out) is tracked
    for format in ("sarif", "gitlab", "rdjson"):
        assert main(["check", "a.plan", "-o", format]) == 1
        document = json.loads(capsys.readouterr().out)
        assert f'"{expected}"' in json.dumps(document)
        assert ('"notes.txt"' in json.dumps(document)) is tracked, format
