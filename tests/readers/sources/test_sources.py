"""Findings about a plan stand at the line of the checkout that the plan was traced from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tvlint.cli import main
from tvlint.readers.sources.yaml_nodes import YamlMapping, YamlScalar, YamlSequence, documents

MODEL = "import torch\n\n\ndef forward(x, w):\n    y = gather(w)\n    return y @ x\n"
PLAN = """
mesh dp=2
weight w f32[8,8] dp:S(0)
input x f32[4,8] dp:S(0)
program
  whole: f32[8,8] = all-gather(w, dim=0) over dp async h0 at "/build/job-7/src/model/llama.py":5 "    y = gather(w)"
  y = linear(x, whole) at "/build/job-7/src/model/llama.py":6 "    return y @ x"
  wait h0
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.plan").write_text(PLAN)
    (tmp_path / "tvlint.toml").write_text("")
    return tmp_path


def place(capsys: pytest.CaptureFixture[str]) -> tuple[str, int]:
    assert main(["check", "a.plan", "-o", "json", "--no-cache", "--select", "missing-wait"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    return finding["path"], finding["line"]


def source(folder: Path, text: str = MODEL) -> None:
    folder.mkdir(parents=True)
    (folder / "llama.py").write_text(text)


def test_the_file_with_the_longest_common_end_that_has_the_line_is_meant(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place(capsys) == ("/build/job-7/src/model/llama.py", 6)
    source(checkout / "model")
    assert place(capsys) == ("model/llama.py", 6)
    source(checkout / "src" / "model")
    assert place(capsys) == ("src/model/llama.py", 6)


def test_a_line_that_moved_is_found_and_one_that_changed_is_not(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source(checkout / "model", "# new\n\n" + MODEL)
    assert place(capsys) == ("model/llama.py", 8)
    (checkout / "model" / "llama.py").write_text(MODEL.replace("y @ x", "x @ y"))
    assert place(capsys) == ("/build/job-7/src/model/llama.py", 6)
    (checkout / "model" / "llama.py").write_text(2 * MODEL.replace("def", "\ndef"))
    assert place(capsys) == ("/build/job-7/src/model/llama.py", 6)


def test_the_project_says_where_sources_lie(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source(checkout / "third" / "party")
    assert place(capsys) == ("/build/job-7/src/model/llama.py", 6)
    (checkout / "tvlint.toml").write_text('source-roots = ["none", "third/party"]\n')
    assert place(capsys) == ("third/party/llama.py", 6)


def test_a_comment_at_the_line_silences_the_finding(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source(checkout / "model", MODEL.replace("y @ x", "y @ x  # tvlint: ignore[missing-wait] measured"))
    (checkout / "a.plan").write_text(PLAN.replace("return y @ x", "return y @ x  # tvlint: ignore[missing-wait] measured"))
    assert main(["check", "a.plan", "-o", "json", "--no-cache", "--select", "missing-wait"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_a_path_that_leaves_the_project_is_not_followed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source(checkout.parent / f"{checkout.name}-outside")
    leaving = f"/build/../../{checkout.name}-outside/llama.py"
    (checkout / "a.plan").write_text(PLAN.replace("/build/job-7/src/model/llama.py", leaving))
    assert place(capsys) == (os.path.normpath(leaving), 6)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x85", "\u2028"])
@pytest.mark.parametrize("note", ["# plain", "# \U0001f600", "'# \U0001f600': \"b\""])
def test_a_scalar_of_yaml_stands_where_its_line_begins_for_those_who_show_it(end: str, note: str) -> None:
    """YAML ends lines at characters that end none in an editor, in SARIF or on a site."""
    text = f"a: 1\n{note}{end}b: [2, 'three']\nc: four\n"
    (root,) = documents("a.yaml", text)
    assert isinstance(root, YamlMapping)
    lines = text.split("\n")
    found = {}
    for key, value in root.entries:
        for scalar in (key, *(value.items if isinstance(value, YamlSequence) else (value,))):
            assert isinstance(scalar, YamlScalar)
            place = scalar.location
            assert place.line == place.end_line
            found[scalar.text] = lines[(place.line or 0) - 1][(place.column or 0) - 1 : (place.end_column or 0) - 1]
    assert {"a", "1", "b", "2", "three", "c", "four"} <= found.keys()
    assert all(text == shown for text, shown in found.items())
