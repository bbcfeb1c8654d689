"""`gitlab` and `rdjson`: what the services' documentation asks for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.builders import reports
from tvlint.findings import Edit, Finding, Fix, Problem, Report, Severity
from tvlint.home import HOME
from tvlint.ir.location import Location
from tvlint.reporters.forge import gitlab, rdjson

GITLAB: Any = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "minLength": 1},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": "^(?!\\./).+"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": {"type": "integer", "minimum": 1}},
                    },
                },
            },
        },
    },
}
"""The properties that GitLab documents for a Code Quality report."""
POSITION: Any = {
    "type": "object",
    "additionalProperties": False,
    "required": ["line"],
    "properties": {"line": {"type": "integer", "minimum": 1}, "column": {"type": "integer", "minimum": 1}},
}
RANGE: Any = {
    "type": "object",
    "additionalProperties": False,
    "required": ["start"],
    "properties": {"start": POSITION, "end": POSITION},
}
RDJSON: Any = {
    "type": "object",
    "additionalProperties": False,
    "required": ["diagnostics"],
    "properties": {
        "source": {"type": "object", "properties": {"name": {"type": "string"}, "url": {"type": "string"}}},
        "diagnostics": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["message", "location"],
                "properties": {
                    "suggestions": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["range", "text"],
                            "properties": {"range": RANGE, "text": {"type": "string"}},
                        },
                    },
                    "message": {"type": "string", "minLength": 1},
                    "location": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["path"],
                        "properties": {
                            "path": {"type": "string", "minLength": 1},
                            "range": RANGE,
                        },
                    },
                    "severity": {"enum": ["ERROR", "WARNING", "INFO"]},
                    "code": {"type": "object", "required": ["value"]},
                },
            },
        },
    },
}
"""The messages of reviewdog's diagnostic format."""


def written(format: Any, report: Report, root: Path, **changes: object) -> Any:
    reports.write_sources(root)
    return json.loads(format.write(report, reports.context(root, **changes)).text)


@pytest.mark.parametrize("name", reports.ALL)
def test_they_are_what_is_documented(name: str, tmp_path: Path) -> None:
    jsonschema.validate(written(gitlab, reports.ALL[name], tmp_path), GITLAB)
    jsonschema.validate(written(rdjson, reports.ALL[name], tmp_path), RDJSON)


def test_every_remark_is_there_once(tmp_path: Path) -> None:
    log = written(gitlab, reports.FULL, tmp_path)
    expected = [
        ("unreadable-input", "broken.json", 1, "critical"),
        ("missing-allreduce", "tvlint.toml", 1, "critical"),
        ("layers-not-divisible-by-pp", "train.sh", 4, "critical"),
        ("heads-not-divisible-by-tp", "train.sh", 6, "critical"),
        ("missing-allreduce", "tvlint.toml", 1, "minor"),
        ("unsupported-operator", "tvlint.toml", 1, "minor"),
    ]
    assert [
        (item["check_name"], item["location"]["path"], item["location"]["lines"]["begin"], item["severity"]) for item in log
    ] == expected
    found = written(rdjson, reports.FULL, tmp_path)["diagnostics"]
    assert [(item["code"]["value"], item["location"]["path"]) for item in found] == [row[:2] for row in expected]
    assert [item["message"] for item in found] == [item["description"] for item in log]
    assert found[2]["code"]["url"].startswith(HOME)
    [layers] = [item for item in found if "suggestions" in item]
    assert layers["code"]["value"] == "layers-not-divisible-by-pp"
    place = {"start": {"line": 4, "column": 18}, "end": {"line": 4, "column": 20}}
    assert layers["suggestions"] == [{"range": place, "text": "48"}]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (Edit(Location("train.sh", 4, 18, 4, 20), "48"), ({"line": 4, "column": 18}, {"line": 4, "column": 20}, "48")),
        (Edit(Location("train.sh", 4, 1, 5, 1), ""), ({"line": 4}, {"line": 4}, "")),
        (Edit(Location("train.sh", 4, 1, 5, 1), "    --num-layers 48\n"), ({"line": 4}, {"line": 4}, "    --num-layers 48")),
        (Edit(Location("train.sh", 5, 1, 6, 1), ""), None),
        (Edit(Location("train.sh", 4, 1, 6, 1), ""), None),
        (Edit(Location("other.sh", 4, 18, 4, 20), "48"), None),
    ],
)
def test_a_suggestion_replaces_the_lines_of_its_comment(edit: Edit, expected: Any, tmp_path: Path) -> None:
    """Of any other one reviewdog writes an error into the comment."""
    finding = Finding("some-rule", Severity.ERROR, "message", Location("train.sh", 4, 18, 4, 20), fixes=(Fix("", (edit,)),))
    (found,) = written(rdjson, Report((finding,)), tmp_path)["diagnostics"]
    suggested = [(each["range"]["start"], each["range"]["end"], each["text"]) for each in found.get("suggestions", ())]
    assert suggested == ([] if expected is None else [expected])


def test_a_fingerprint_is_its_own_and_stays(tmp_path: Path) -> None:
    finding = Finding("some-rule", Severity.ERROR, "`a` is wrong", Location("train.sh", 4))
    moved = replace(finding, location=Location("train.sh", 6), message="`a` is still wrong, by 2")
    report = Report(
        (finding, moved, replace(finding, location=Location("evil.sh", 1)), replace(finding, message="`b` is wrong"))
    )
    prints = [item["fingerprint"] for item in written(gitlab, report, tmp_path)]
    assert len(set(prints)) == 4
    assert written(gitlab, Report((moved,)), tmp_path)[0]["fingerprint"] in prints


def test_what_fails_the_run_is_an_error(tmp_path: Path) -> None:
    report = Report((Finding("some-rule", Severity.NOTE, "message", Location("train.sh", 4)),))
    for fail_on, severities in ((Severity.ERROR, ("info", "INFO")), (Severity.NOTE, ("critical", "ERROR"))):
        (one,) = written(gitlab, report, tmp_path, fail_on=fail_on)
        (other,) = written(rdjson, report, tmp_path, fail_on=fail_on)["diagnostics"]
        assert (one["severity"], other["severity"]) == severities


@pytest.mark.parametrize(
    ("place", "span"),
    [
        ((1, 1, 1, 3), ((1, 1), (1, 5))),
        ((1, 3, 1, 4), ((1, 5), (1, 9))),
        ((1, 3, 2, 1), ((1, 5), (2, 1))),
        ((1, None, None, None), ((1, None), (1, None))),
        ((1, 2, None, None), ((1, None), (1, None))),
        ((1, 3, 1, 99), ((1, None), (1, None))),
    ],
)
def test_columns_count_bytes(place: tuple[int, ...], span: object, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("éé🙂x\ny\n", encoding="utf-8")
    report = Report((Finding("some-rule", Severity.NOTE, "message", Location("a.sh", *place)),), checked=("a.sh",))
    (item,) = written(rdjson, report, tmp_path)["diagnostics"]
    found = item["location"]["range"]
    assert tuple((found[end]["line"], found[end].get("column")) for end in ("start", "end")) == span


def test_a_file_outside_keeps_its_path(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    report = Report(problems=(Problem("no such file", Location("../train.sh")),))
    assert written(gitlab, report, root)[0]["location"]["path"] == f"{tmp_path}/train.sh"
