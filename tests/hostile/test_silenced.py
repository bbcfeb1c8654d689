"""What comments and the project file silence is counted in every format, and written to SARIF as suppressions."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from shared import ROOT

from tvlint.cli import main

WRONG = (ROOT / "fixtures" / "tour" / "train.sh").read_text()
COMMENT = "# tvlint: ignore[layers-not-divisible-by-pp] one layer less"
PROJECTS = {
    "ignore": 'ignore = ["global-batch-not-divisible"]\n',
    "select": 'select = ["layers-not-divisible-by-pp"]\n',
    "per-file-ignores": '[per-file-ignores]\n"*.sh" = ["global-batch-not-divisible"]\n',
}


@pytest.fixture(params=PROJECTS)
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text(WRONG.replace("--num-layers 47", f"--num-layers 47 {COMMENT}"))
    (tmp_path / "tvlint.toml").write_text(PROJECTS[request.param])
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    return main(["check", "train.sh", *arguments]), capsys.readouterr().out


@pytest.mark.parametrize("format", ["text", "concise", "markdown", "summary", "github", "html", "gitlab", "rdjson"])
def test_it_is_counted(project: Path, capsys: pytest.CaptureFixture[str], format: str) -> None:
    code, out = check(capsys, "-o", format)
    assert code == 0
    assert "2 findings silenced (1 by comments, 1 by the project file)" in out


def test_junit_skips_a_case(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, "-o", "junit")
    assert code == 0
    assert 'name="findings silenced"' in out
    assert "47 layers do not divide" in out


def test_json_has_the_findings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, "-o", "json")
    document = json.loads(out)
    jsonschema.validate(document, json.loads((ROOT / "schemas" / "report.schema.json").read_text()))
    assert code == 0
    assert document["findings"] == []
    names = {way: [finding["rule"] for finding in found] for way, found in document["silenced"].items()}
    assert names == {"by_comments": ["layers-not-divisible-by-pp"], "by_project": ["global-batch-not-divisible"]}


def test_sarif_has_suppressions(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(capsys, "-o", "sarif")
    (run,) = json.loads(out)["runs"]
    assert code == 0
    assert {result["ruleId"]: result["suppressions"] for result in run["results"]} == {
        "layers-not-divisible-by-pp": [{"kind": "inSource"}],
        "global-batch-not-divisible": [{"kind": "external"}],
    }


def test_what_the_command_line_leaves_out_is_not_silenced(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--ignore", "layers-not-divisible-by-pp,global-batch-not-divisible", "-o", "concise")
    assert "silenced" not in check(capsys, *arguments)[1]
    code, out = check(capsys, "--select", "global-batch-not-divisible", "--no-ignore-comments", "-o", "concise")
    assert "layers-not-divisible-by-pp" not in out
    assert code in (0, 1)
