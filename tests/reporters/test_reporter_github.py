"""`github`: commands that the runner obeys are ours, all of ours arrive, and nothing that was linted is one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.builders import reports
from tvlint.findings import Finding, Report, Severity
from tvlint.ir.location import Location
from tvlint.reporters.escape import workflow
from tvlint.reporters.forge import github


@dataclass
class Command:
    name: str
    properties: dict[str, str]
    data: str


def obeyed(log: str) -> Iterator[Command]:
    """The commands that a GitHub runner finds in `log`, both notations, `stop-commands` honoured."""
    stopped_by = None
    for line in log.split("\n"):
        command = modern(line) or legacy(line)
        if command is None or (stopped_by is not None and command.name != stopped_by):
            continue
        if stopped_by is not None:
            stopped_by = None
            continue
        yield command
        if command.name == "stop-commands":
            stopped_by = command.data


def modern(line: str) -> Command | None:
    found = re.match(r"::(?P<head>.*?)::(?P<data>.*)", line.lstrip())
    if found is None:
        return None
    name, _, rest = found["head"].partition(" ")
    pairs = (pair.split("=", 1) for pair in rest.split(",") if "=" in pair)
    return Command(name, {key.strip(): unescaped(value) for key, value in pairs}, unescaped(found["data"]))


def legacy(line: str) -> Command | None:
    found = re.search(r"##\[(?P<name>[^\]\s;]+)[^\]]*\](?P<data>.*)", line)
    return None if found is None else Command(found["name"], {}, found["data"])


def unescaped(text: str) -> str:
    for code, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, character)
    return text


def written(report: Report, root: Path, **changes: object) -> str:
    reports.write_sources(root)
    return github.write(report, reports.context(root, **changes)).text


def annotations(report: Report, root: Path) -> list[Command]:
    return [command for command in obeyed(written(report, root)) if command.name in ("error", "warning", "notice")]


def test_github_is_as_reviewed(tmp_path: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "urandom", bytes)
    golden("reports/full.github.txt", written(reports.FULL, tmp_path, show_unknown=True))


@pytest.mark.parametrize("name", reports.ALL)
def test_only_our_own_commands_are_obeyed(name: str, tmp_path: Path) -> None:
    log = written(reports.ALL[name], tmp_path, color=True, show_unknown=True)
    names = [command.name for command in obeyed(log)]
    assert names[:3] == ["group", "stop-commands", "endgroup"]
    assert set(names[3:]) <= {"error", "warning", "notice"}
    assert "##[" not in log
    assert "\x1b" not in log
    report = reports.ALL[name]
    proofs = [verdict for verdict in report.verdicts if verdict.outcome.value != "proved"]
    assert len(names[3:]) == len(report.problems) + len(report.findings) + len(proofs)


def test_a_file_named_like_a_command_is_none(tmp_path: Path) -> None:
    finding = Finding("some-rule", Severity.ERROR, "message", Location("::add-mask::x.sh", 1))
    lines = written(Report((finding,)), tmp_path).split("\n")
    assert not [line for line in lines if line.startswith("::add-mask")]


def test_the_token_that_switches_commands_on_again_is_new_every_time(tmp_path: Path) -> None:
    first, second = (re.findall(r"::stop-commands::(\w{32})\n", written(reports.FULL, tmp_path)) for _ in range(2))
    assert len(first) == len(second) == 1
    assert first != second


def test_messages_and_properties_arrive_whole(tmp_path: Path) -> None:
    message = "100%, a: b, 50%0A off"
    (one,) = annotations(
        Report((Finding("a-rule", Severity.WARNING, message, Location("train.sh", 4, 18, 4, 20), "x"),)), tmp_path
    )
    assert one.data == f"{message}\nhelp: x"
    assert one.properties == {
        "file": "train.sh",
        "line": "4",
        "endLine": "4",
        "col": "18",
        "endColumn": "20",
        "title": "a-rule",
    }


def test_paths_with_commas_colons_and_percents_arrive(tmp_path: Path) -> None:
    name = "a,b:c%3A d.sh"
    (tmp_path / name).write_text("x\n", encoding="utf-8")
    (one,) = annotations(Report((Finding("a-rule", Severity.WARNING, "m", Location(name, 1)),)), tmp_path)
    assert one.properties == {"file": name, "line": "1", "title": "a-rule"}


@pytest.mark.parametrize("place", [(4, 3, 6, 1), (4, None, 6, None), (4, 9, 4, 2), (4, None, 4, 3), (10**12, 5, 1, 1)])
def test_github_never_drops_an_annotation_for_its_columns(place: tuple[int, ...], tmp_path: Path) -> None:
    (one,) = annotations(Report((Finding("a-rule", Severity.ERROR, "m", Location("train.sh", *place)),)), tmp_path)
    line, end = int(one.properties["line"]), int(one.properties.get("endLine", one.properties["line"]))
    assert 1 <= line <= end
    if "col" in one.properties:
        assert line == end
        assert int(one.properties.get("endColumn", one.properties["col"])) >= int(one.properties["col"])


@pytest.mark.parametrize(
    ("errors", "shown", "last"), [(9, 9, "m"), (10, 10, "m"), (11, 10, "2 more errors"), (500, 10, "491 more errors")]
)
def test_more_than_github_shows_is_counted(errors: int, shown: int, last: str, tmp_path: Path) -> None:
    finding = Finding("a-rule", Severity.ERROR, "m", Location("train.sh", 4))
    report = Report((*[finding] * errors, *[replace(finding, severity=Severity.WARNING)] * 3))
    found = annotations(report, tmp_path)
    kinds = [one.name for one in found]
    assert kinds == ["error"] * shown + ["warning"] * 3
    assert found[shown - 1].data.startswith(last)
