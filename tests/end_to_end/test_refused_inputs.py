"""What `topology` and `schedule` write for a file that they cannot read: the same reason in every format."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tvlint.cli import main
from tvlint.data import data_path

BROKEN = '{"train_batch_size": 64, "zero_optimization": {"stage": 3},\n'


@pytest.mark.parametrize("command", ["topology", "schedule"])
@pytest.mark.parametrize("name", ["nosuch.json", "broken.json", "empty.json"])
def test_every_output_has_the_reason(command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.json").write_text(BROKEN)
    (tmp_path / "empty.json").write_text("{}\n")
    path, page = str(tmp_path / name), tmp_path / "page.html"
    assert main([command, path, "-o", "json", "-o", f"html:{page}"]) == 2
    out, err = capsys.readouterr()
    written = json.loads(out)
    schema = json.loads((data_path("schemas") / "report.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(written, schema, jsonschema.Draft202012Validator)
    (problem,) = written["problems"]
    assert problem["message"] in err
    assert problem["message"].split("`")[0] in page.read_text(encoding="utf-8")


def test_text_for_the_screen_stays_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", str(tmp_path / "nosuch.sh")]) == 2
    assert capsys.readouterr().out == ""


def test_a_file_without_a_configuration_is_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedule = tmp_path / "schedule.csv"
    schedule.write_text("0F0,0B0\n")
    assert main(["topology", str(schedule), "-o", "json"]) == 4
    assert json.loads(capsys.readouterr().out) == {"topologies": []}


def test_a_schedule_has_its_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedule = tmp_path / "schedule.csv"
    schedule.write_text("0F0,0F1,0B0,0B1\n")
    assert main(["schedule", str(schedule), "--activation-budget", "1", "-o", "json"]) == 1
    assert "schedule-over-activation-budget" in [finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]]
