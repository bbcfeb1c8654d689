"""`json`: what programs read; the schema is the contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.builders import reports
from tvlint.findings import Problem, Report
from tvlint.ir.location import Location
from tvlint.reporters.json import report as reporter

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "report.schema.json").read_text(encoding="utf-8"))


def written(name: str, root: Path) -> Any:
    reports.write_sources(root)
    return json.loads(reporter.write(reports.ALL[name], reports.context(root)).text)


def test_the_schema_is_a_schema_and_closed() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for definition in (SCHEMA, *SCHEMA["$defs"].values()):
        assert definition["additionalProperties"] is False
        assert definition["required"] == list(definition["properties"])


@pytest.mark.parametrize("name", reports.ALL)
def test_every_report_is_valid(name: str, tmp_path: Path) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(written(name, tmp_path))


def test_json_is_as_reviewed(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    reports.write_sources(tmp_path)
    golden("reports/full.json", reporter.write(reports.FULL, reports.context(tmp_path)).text)


def test_json_is_ascii_and_keeps_every_character(tmp_path: Path) -> None:
    assert reporter.write(reports.HOSTILE, reports.context(tmp_path)).text.isascii()
    messages = [finding["message"] for finding in written("hostile", tmp_path)["findings"]]
    assert reports.EVIL in messages
    assert "\ud800 lone \0" in messages


def test_paths_below_the_root_are_relative(tmp_path: Path) -> None:
    paths = (str(tmp_path / "a" / "train.sh"), "./b.sh", "/elsewhere/c.sh")
    problems = tuple(Problem("message", Location(path)) for path in paths)
    read = json.loads(reporter.write(Report(problems=problems, checked=paths), reports.context(tmp_path)).text)
    assert read["checked"] == ["a/train.sh", "b.sh", "/elsewhere/c.sh"]
    assert [problem["path"] for problem in read["problems"]] == read["checked"]
