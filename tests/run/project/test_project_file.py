"""`tvlint.toml`: strict keys, places, the search upward, the schema and the documentation."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
from shared import ROOT

from tvlint.findings import Severity
from tvlint.run.project.project_file import Project, ProjectError, find, load

SCHEMA = json.loads((ROOT / "schemas" / "config.schema.json").read_text())


EITHER = "a `[[proof]]` needs `parallel`, or `launch`, and not both"


def project(folder: Path, text: str, name: str = "tvlint.toml") -> Project:
    (folder / name).write_text(text)
    return load(folder / name, name)


def problems(folder: Path, text: str, name: str = "tvlint.toml") -> list[tuple[str, int | None, int | None, str]]:
    with pytest.raises(ProjectError) as raised:
        project(folder, text, name)
    return [(found.message, found.location.line, found.location.column, found.help) for found in raised.value.problems]


def documented() -> str:
    match = re.search(r"```toml project\n(.*?)```", (ROOT / "docs" / "configuration.md").read_text(), re.DOTALL)
    assert match is not None
    return match[1]


def toml(text: str) -> object:
    tomllib = pytest.importorskip("tomllib" if __import__("sys").version_info >= (3, 11) else "tomli")
    return tomllib.loads(text)


def test_the_documented_file_is_read_wholly(tmp_path: Path) -> None:
    found = project(tmp_path, documented())
    assert found.paths == ("configs", "launch")
    assert found.severity == {"global-batch-not-divisible": Severity.WARNING}
    assert found.per_file_ignores == {"plans/*.json": ("missing-wait",)}
    assert found.fail_on is Severity.WARNING
    assert found.world_size == 64
    assert found.world_size_location is not None
    assert found.world_size_location.line == 6
    assert found.proofs[0].parallel == ("plans/tp8.pkl.xz", "plans/tp8-pp4.pkl.xz")
    assert found.proofs[0].assume == {"declared-piece-order"}
    assert [name for name, _ in found.names] == ["query-groups-ignored", "global-batch-not-divisible", "missing-wait"]


def test_the_documented_file_uses_every_key_but_two_and_follows_the_schema() -> None:
    document = toml(documented())
    assert isinstance(document, dict)
    jsonschema.validate(document, SCHEMA)
    assert document.keys() | {"select", "extends"} == SCHEMA["properties"].keys()


@pytest.mark.parametrize(
    ("text", "message", "line", "column", "help"),
    [
        ("paths = []\nfial-on = 'error'", "unknown key `fial-on`", 2, 1, "did you mean `fail-on`?"),
        ("[[proof]]\nrefrence = 'a'\nparallel = []", "unknown key `refrence`", 2, 1, "did you mean `reference`?"),
        ("paths = []\n[[prof]]\nreference = 'a'", "unknown key `prof`", 2, 3, "did you mean `proof`?"),
        ("fail-on = 'never'", "`fail-on` must be `error`, `warning` or `note`, not 'never'", 1, 1, ""),
        ("\nworld-size = 0", "`world-size` must be a positive number, not 0", 2, 1, ""),
        ("world-size = true", "`world-size` must be a positive number, not True", 1, 1, ""),
        ("paths = 'a'", "`paths` must be a list of strings, not 'a'", 1, 1, ""),
        ('paths = ["a\\u0000"]', "`paths` must be a list of names without NUL characters, not 'a\\x00'", 1, 1, ""),
        ('baseline = "a\\u0000"', "`baseline` must be a name without a NUL character, not 'a\\x00'", 1, 1, ""),
        ("[budget]\nfile-cpu = 0", "`file-cpu` must be a number above 0, up to 10,000,000, not 0", 2, 1, ""),
        ("[budget]\nfile = 3", "unknown key `file`", 2, 1, "did you mean `file-cpu`?"),
        ("severity = 3", "`severity` must be a table of rule and severity, not 3", 1, 1, ""),
        ("[severity]\n\nx = 'bad'", "`x` must be `error`, `warning` or `note`, not 'bad'", 3, 1, ""),
        ("[proof]\nreference = 'a'", "`proof` must be tables, each written as `[[proof]]`, not a dict", 1, 2, ""),
        ("[[proof]]\nreference = 'a'\nparallel = []\n[[proof]]\nreference = 'a'", EITHER, 4, 3, ""),
        ("[[proof]]\nlaunch = 'a'\nparallel = ['b']", EITHER, 1, 3, ""),
    ],
)
def test_a_mistake_is_named_at_its_place(tmp_path: Path, text: str, message: str, line: int, column: int, help: str) -> None:
    assert (message, line, column, help) in problems(tmp_path, text)
    document = toml(text)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)


@pytest.mark.parametrize("text", ["paths = [", "a = 1\na = 2", "\x00", "= 3", "x = " + "[" * 100_000])
def test_what_is_no_toml_is_a_problem_with_a_line(tmp_path: Path, text: str) -> None:
    [(message, line, _, _)] = problems(tmp_path, text)
    assert message.startswith("not TOML: ")
    assert line is None if "deeply" in message else line == text.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("\n" + ".".join("a" * 500) + " = 1", "not TOML: a key of more than 64 parts", 2, 1),
        ("x = {" + " . ".join(["'a b'"] * 500) + " = 1}", "not TOML: a key of more than 64 parts", 1, 6),
        ("[" + ".".join(["a"] * 500) + "]", "not TOML: a key of more than 64 parts", 1, 2),
        ("\nworld-size = " + "9" * 5000, "not TOML: a number is too large", 2, 14),
        ("world-size = 0x" + "F" * 5000, "not TOML: a number is too large", None, None),
    ],
)
def test_what_a_parser_would_take_for_ever_to_read_is_a_problem(
    tmp_path: Path, text: str, message: str, line: int | None, column: int | None
) -> None:
    assert problems(tmp_path, text) == [(message, line, column, "")]


def test_keys_of_many_parts_in_a_text_are_no_keys(tmp_path: Path) -> None:
    assert project(tmp_path, f"paths = ['{'.'.join('a' * 500)}']").paths == (".".join("a" * 500),)


def test_bytes_that_are_no_text_and_huge_files_are_problems(tmp_path: Path) -> None:
    (tmp_path / "tvlint.toml").write_bytes(b"paths = ['\xff']")
    with pytest.raises(ProjectError, match="not UTF-8"):
        load(tmp_path / "tvlint.toml", "tvlint.toml")
    (tmp_path / "tvlint.toml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(ProjectError, match="larger than"):
        load(tmp_path / "tvlint.toml", "tvlint.toml")


def test_a_table_of_pyproject_is_read_with_its_own_lines(tmp_path: Path) -> None:
    text = "[project]\nname = 'x'\nselct = 1\n\n[tool.tvlint]\nselct = ['a']\n"
    assert problems(tmp_path, text, "pyproject.toml") == [("unknown key `selct`", 6, 1, "did you mean `select`?")]
    assert project(tmp_path, text.replace("selct = ['a']", "ignore = ['a']"), "pyproject.toml").ignore == ("a",)


def test_names_of_rules_keep_the_place_of_each(tmp_path: Path) -> None:
    found = project(tmp_path, "select = [\n  'one',\n  \"two\",\n]\n")
    assert [(name, at.line, at.column) for name, at in found.names] == [("one", 2, 3), ("two", 3, 3)]


def test_the_search_goes_up_and_ends_at_the_top_of_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "repository" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "tvlint.toml").write_text("")
    assert find(inner) == tmp_path / "tvlint.toml"
    (tmp_path / "repository" / ".git").mkdir()
    assert find(inner) is None
    (tmp_path / "repository" / "pyproject.toml").write_text("[project]\nname = 'tvlint-user'\n")
    assert find(inner) is None
    (tmp_path / "repository" / "pyproject.toml").write_text("[tool.tvlint]\n")
    assert find(inner) == tmp_path / "repository" / "pyproject.toml"
    (tmp_path / "repository" / "a" / "tvlint.toml").write_text("")
    assert find(inner) == tmp_path / "repository" / "a" / "tvlint.toml"


def test_a_pipe_in_the_place_of_a_project_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("pyproject.toml", "tvlint.toml"):
        os.mkfifo(tmp_path / name)
    assert find(tmp_path) == tmp_path / "tvlint.toml"
    with pytest.raises(ProjectError, match="not a regular file"):
        load(tmp_path / "tvlint.toml", "tvlint.toml")


def test_a_link_out_of_the_checkout_in_the_place_of_a_project_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    (tmp_path / "tvlint.toml").write_text("")
    link = tmp_path / "checkout" / "tvlint.toml"
    link.symlink_to("../tvlint.toml")
    with pytest.raises(ProjectError, match="a link that leads out of the checkout"):
        load(link, "tvlint.toml")
