"""Every name of every fixture, hostile: no command shows it raw, in any format."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import bidirectional, category
from xml.etree import ElementTree

import pytest
from test_reporter_github import obeyed
from test_reporter_html import Page

from tests.builders.plan_equality import assert_same_plan
from tests.sampling import sampled
from tvlint.cli import main
from tvlint.ir.plan import Plan
from tvlint.readers.document import ReadError
from tvlint.readers.plan_json import reader as plan_json
from tvlint.readers.plan_text import reader as plan_text
from tvlint.reporters.plan import json as json_writer
from tvlint.reporters.plan import text_words as plan_text_words
from tvlint.run.project.reading import read_plan

ROOT = Path(__file__).parents[2]
EVIL = (
    "\n::add-mask::e\r##[error]boo\x1b[2J\x1b[8m\x07\u202ex\u2028\u3164\x9b1m</title></script>"
    "<img src=http://evil/p.png onerror=x> ![x](http://evil) @octocat #1 `|*_~$ ]]> & \" ' %0A"
)
FIXTURES = sorted(
    path
    for path in (ROOT / "fixtures").rglob("*")
    if path.suffix in (".plan", ".json") and any(own.recognise(path.read_text("utf-8")) for own in (plan_text, plan_json))
)
NAMED = ("tensors", "segments", "attributes", "placements")
"""Objects of a plan whose keys are names."""


def names(value: Any, shape: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every string of a document, with where it stands, numbers and names left out."""
    if isinstance(value, str):
        yield shape, value
    elif isinstance(value, list):
        for item in value:
            yield from names(item, (*shape, "*"))
    elif isinstance(value, dict):
        for key, item in value.items():
            named = bool(shape) and shape[-1] in NAMED
            if named:
                yield (*shape, "key"), key
            yield from names(item, (*shape, "*" if named else key))


def renamed(value: Any, other: dict[str, str]) -> Any:
    """The document with other strings wherever one of them stands, as a value or as a name."""
    if isinstance(value, str):
        return other.get(value, value)
    if isinstance(value, list):
        return [renamed(item, other) for item in value]
    if isinstance(value, dict):
        return {other.get(key, key): renamed(item, other) for key, item in value.items()}
    return value


def plan_of(path: Path) -> Plan:
    plan = read_plan(str(path))
    assert isinstance(plan, Plan)
    return plan


def assert_inert(shown: str) -> None:
    """Nothing in it is hidden, moves the cursor, reorders a line or is a command."""
    assert not {category(character) for character in shown.replace("\n", "")} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {bidirectional(character) for character in shown} & {"RLO", "LRO", "RLE", "LRE", "RLI", "LRI"}
    assert "\u3164" not in shown
    assert "##[" not in shown


def assert_formats_inert(folder: Path) -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    for name, text in written.items():
        assert_inert(text)
        kind = name.partition(".")[2]
        if name != "github.log":
            assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]
        if kind == "json":
            json.loads(text)
        if kind == "xml":
            ElementTree.fromstring(text)
        if kind == "html":
            page = Page(text)
            assert page.open == []
            assert not page.tags & {"script", "img", "link", "iframe", "object", "form", "a", "base"}
            assert not {attribute for attribute in page.attributes if attribute.startswith("on")}
        if kind == "md":
            tags = set(re.findall(r"</?(\w+)", text))
            assert tags <= {"code", "pre", "details", "summary"}
            assert not re.search(r"@\w|https?:|!\[|\]\(", text)
    if "github.log" in written:
        obeyed_names = {command.name for command in obeyed(written["github.log"])}
        assert obeyed_names <= {"group", "stop-commands", "endgroup", "error", "warning", "notice"}


def outputs(folder: Path, *names: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [word for name in names for word in ("-o", f"{name.partition(':')[0]}:{folder / name.partition(':')[2]}")]


REPORTS = (
    "concise:concise.txt", "json:report.json", "sarif:sarif.json", "junit:junit.xml", "github:github.log", "markdown:report.md",
    "html:report.html", "gitlab:gitlab.json", "rdjson:rdjson.json", "summary:summary.md",
)  # fmt: skip


def commands(path: Path, folder: Path) -> Iterator[list[str]]:
    yield ["check", str(path), "-o", "text", *outputs(folder, *REPORTS), "--show-unknown", "--no-cache"]
    yield ["prove", str(path), "--reference", str(path), "-o", "text", *outputs(folder, *REPORTS), "--no-cache"]
    yield ["topology", str(path), "-o", "text", *outputs(folder, "json:topology.json", "html:topology.html")]
    yield ["convert", str(path), "-o", "text", *outputs(folder, "json:plan.json")]


def assert_command_inert(command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The command ends as documented and writes nothing that acts; its standard output."""
    assert main(command) in (0, 1, 2, 4, 5), command
    shown = capsys.readouterr()
    assert_inert(shown.out)
    assert_inert(shown.err)
    assert not [line for line in (shown.out + shown.err).split("\n") if line.lstrip().startswith("::")]
    assert_formats_inert(folder)
    return shown.out


def is_readable(document: Any) -> bool:
    try:
        return plan_json.read("plan.json", json.dumps(document)).plan is not None
    except ReadError:
        return False


@pytest.mark.parametrize("fixture", sampled(FIXTURES, 8), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_name_of_a_plan_reaches_a_person_raw(fixture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(json_writer.write(plan_of(fixture)))
    shapes: dict[tuple[str, ...], set[str]] = {}
    for shape, name in names(document):
        shapes.setdefault(shape, set()).add(name)
    path, folder = tmp_path / "plan.json", tmp_path / "out"
    free: set[str] = set()
    for own in shapes.values():
        other = renamed(document, {name: f"{name}{EVIL}" for name in own})
        path.write_text(json.dumps(other), encoding="utf-8")
        assert_command_inert(next(commands(path, folder)), folder, capsys)
        free |= own if is_readable(other) else set()
    assert len(free) > 5
    path.write_text(json.dumps(renamed(document, {name: f"{name}{EVIL}" for name in free})), encoding="utf-8")
    for command in commands(path, folder):
        shown = assert_command_inert(command, folder, capsys)
    (tmp_path / "again.plan").write_text(shown, encoding="utf-8")
    assert_same_plan(plan_of(tmp_path / "again.plan"), plan_of(path))


AXIS = """
mesh dp=4 AXIS=2
weight w f32[8,8]
input x f32[8,8]
loss l f32[]
program AXIS=0
  h = all-gather(x, dim=0) over dp async a
  y = linear(h, w)
  l = sum(y)
  wait a
program AXIS=1
  h = all-gather(x, dim=0) over dp async a
  wait a
  y = linear(h, w)
  l = sum(y)
"""


def test_ranks_are_told_by_axes_whose_names_are_inert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "axis.plan"
    path.write_text(AXIS.replace("AXIS", plan_text_words.name(EVIL)), encoding="utf-8")
    for command in commands(path, tmp_path / "out"):
        shown = assert_command_inert(command, tmp_path / "out", capsys)
        if command[0] == "check":
            assert "every \\n::add-mask::e\\r#\\x23[error]boo\\x1b[2J" in shown
            assert "=0 rank" in shown


SOURCES = ("a" * 20_000, "a/" * 50_000 + "b.py", EVIL, "..", "/", "\udce9.py", "C:\\x", "http://evil/x.py", "~root/x")


@pytest.mark.parametrize("name", sampled(SOURCES, 3), ids=range(len(SOURCES)))
def test_an_operator_may_come_from_a_file_of_any_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "fixtures" / "tour" / "dp2-tp2-broken.plan").read_text(encoding="utf-8")
    document = json.loads(json_writer.write(plan_text.read("a.plan", text).plan))
    for segment in document["segments"].values():
        for operator in segment["operators"]:
            operator["source"] = {"path": name, "line": 3}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    for command in commands(path, tmp_path / "out"):
        assert_command_inert(command, tmp_path / "out", capsys)
    assert main(["check", str(path), "--no-cache"]) == 1


FILES = ("lat\udce9in.sh", "a\n::error::b.sh", "\x1b[2J\u202e.sh", "##[error]x.sh", "<script>.sh", "%41 b#?.sh", "\u00a0::x.sh")


@pytest.mark.parametrize("name", FILES)
def test_no_name_of_a_file_reaches_a_person_raw(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    source = next((ROOT / "fixtures" / "broken").glob("layers*")) / "pretrain.sh"
    (folder / name).write_bytes(source.read_bytes())
    old = Path.cwd()
    os.chdir(folder)
    try:
        for named in (name, "."):
            assert main(["check", named, "-o", "text", *outputs(tmp_path / "out", *REPORTS), "--no-cache"]) == 1
            shown = capsys.readouterr()
            assert_inert(shown.out)
            assert_inert(shown.err)
            sarif = json.loads((tmp_path / "out" / "sarif.json").read_text())
            assert_formats_inert(tmp_path / "out")
            (uri,) = {
                result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in sarif["runs"][0]["results"]
            }
            assert bytes_of(uri) == os.fsencode(name)
    finally:
        os.chdir(old)


def bytes_of(uri: str) -> bytes:
    from urllib.parse import unquote_to_bytes

    assert re.fullmatch(r"[!-~]+", uri)
    return unquote_to_bytes(uri)
