"""Files of a folder that are not what their names say: told with the reason, in every format, and only those."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tvlint.cli import main
from tvlint.reporters import FORMATS

BROKEN = {
    "a.json": b'{"name": "x",\n "sizes": [1, 2\n',
    "b.yaml": b"name: x\nsizes: [1, 2\n",
    "c.toml": b"name = \n",
    "d.yml": b"name:\n\t- x\n",
    "e.json": '{"name": 1'.encode("utf-16"),
    "f.toml": b'name = "\xff"\n',
    "g.json": b"/* { //",
    "h.json": b'{"sizes_of_the_model": [8, 16],\n' * 200,
}
ORDINARY = {
    "workflow.yaml": b"on: [push]\njobs: &jobs\n  a: !secret x\nagain: *jobs\n---\nother: {}\n",
    "chart.yaml": b"{{- if .Values.x }}\nname: {{ .Values.y }}\n{{- end }}\n",
    "template.json": b'{"size": ${SIZE}, }',
    "settings.json": b'{\n  // "of an editor"\n  "a": "// no comment", /* one */\n  "b": [1, 2,],\n}\n',
    "lines.json": b'{"a": 1}\n{"a": 2}\n',
    "measured.json": b'{"loss": [' + b"1.25, " * 1_000,
    "notes.txt": b"{",
    "script.sh": b"echo {\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, data in {**BROKEN, **ORDINARY}.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_broken_file_is_a_note_at_its_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--no-cache", ".", "-o", "json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {(each["path"], each["rule"], each["severity"]) for each in found} == {
        (name, "unjudged-file", "note") for name in BROKEN
    }
    assert all(each["message"].startswith("not judged: ") and each["line"] for each in found)


@pytest.mark.parametrize("format", sorted(set(FORMATS) - {"text"}))
def test_every_format_has_them(format: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--no-cache", ".", "-o", format])
    written = capsys.readouterr().out
    assert [name for name in BROKEN if name not in written] == []


@pytest.mark.parametrize("name", ["a.json", "b.yaml", "c.toml"])
def test_one_that_is_named_is_a_problem(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--no-cache", name]) == 2
