"""Files are opened, and programs started, in one place each."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from shared import ROOT

from tests.builders.modules import nodes
from tvlint.checkout.following import content_listed, content_named, may_be_shown, why_not_followed, why_not_written
from tvlint.checkout.git import GitUnusable, ask, command_line, find_program
from tvlint.checkout.opening import (
    content,
    forget,
    instead,
    is_file,
    is_folder,
    is_link,
    is_there,
    kept,
    real_path,
    recording,
)

OPENERS = {
    "tvlint/checkout/opening.py": "the one opener",
    "tvlint/cache/store.py": "entries of the cache, which are signed",
    "tvlint/cache/address.py": "hashes what a reader opens",
    "tvlint/cache/secret.py": "the key of the cache, outside of every checkout",
    "tvlint/run/output/outputs.py": "reports",
    "tvlint/run/project/revision.py": "a revision, in a temporary folder",
    "tvlint/run/process/aside.py": "pipes of its own",
    "tvlint/run/process/supervisor.py": "its journal, a file without a name",
    "tvlint/readers/sources/resource_limits.py": "the memory of this process",
    "tvlint/cli/__init__.py": "/dev/null",
    "tvlint/cli/command.py": "/dev/null",
    "tvlint/cli/lsp.py": "the standard streams",
    "tvlint/frameworks/deepspeed.py": "a table of tvlint",
    "tvlint/frameworks/megatron.py": "a table of tvlint",
    "tvlint/frameworks/packaged.py": "a table of tvlint",
    "tvlint/rulebook/pages.py": "pages of tvlint",
    "tvlint/data.py": "files of tvlint",
    "tvlint/capture/processes.py": "runs a person's own program and reads what it wrote",
    "tvlint/cli/capture.py": "writes the plan of that program",
}
PACKAGED = ("data_path(", "with_suffix(")
"""How a line opens what tvlint itself brings."""


_OPENING = ("read_text", "read_bytes", "write_bytes", "fdopen", "mkstemp")


def calls(path: Path) -> Iterator[str]:
    """Yield the calls in a module that open a file."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if any(name in text for name in ("open", *_OPENING)) else ():
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        of_a_path = name in _OPENING and name != "mkstemp" and owner != ""
        opens = of_a_path or name == "mkstemp" or (name == "open" and owner in ("", "os"))
        if opens and not any(packaged in ast.unparse(node) for packaged in PACKAGED):
            yield f"{name} at line {node.lineno}"


def test_only_the_opener_opens_files() -> None:
    found = {path.relative_to(ROOT).as_posix(): list(calls(path)) for path in sorted((ROOT / "tvlint").rglob("*.py"))}
    assert {path: opens for path, opens in found.items() if opens and path not in OPENERS} == {}


ASKING = {
    "os.path": {"isfile", "isdir", "exists", "lexists", "islink", "realpath", "getsize", "getmtime", "samefile", "ismount"},
    "os": {"listdir", "scandir", "walk", "stat", "lstat", "readlink", "access", "open"},
}
OF_A_PATH = {"is_file", "is_dir", "exists", "is_symlink", "iterdir", "glob", "rglob", "stat", "lstat", "samefile", "readlink"}
ROOMS = ("readers", "checkout")
ASKED_ELSEWHERE = {
    "tvlint/checkout/opening.py": "the one place that asks",
    "tvlint/checkout/tracking.py": "git's own files, which `is_tracked` answers for as a whole",
    "tvlint/checkout/git.py": "looks for the program",
}


def questions(path: Path) -> Iterator[str]:
    """Yield where a module asks the disk itself, whether it calls what asks or passes it on."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in ASKING.get(ast.unparse(node.value), ()):
            yield f"{node.attr} at line {node.lineno}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OF_A_PATH:
            yield f"{node.func.attr} at line {node.lineno}"
        elif isinstance(node, ast.ImportFrom) and node.module in ASKING:
            yield from (f"{own.name} at line {node.lineno}" for own in node.names if own.name in ASKING[node.module])


def test_what_is_read_asks_the_disk_in_one_place() -> None:
    paths = [path for room in ROOMS for path in sorted((ROOT / "tvlint" / room).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix(): list(questions(path)) for path in paths}
    assert len(found) > 100
    assert {path: asks for path, asks in found.items() if asks and path not in ASKED_ELSEWHERE} == {}
    assert all(found[path] for path in ASKED_ELSEWHERE)


PURE = {
    "checkout/opening.py:_paths": "of what was asked until `forget`",
    "readers/shell/syntax.py:_grammar": "the grammar",
    "readers/languages.py:_by_part": "a table of tvlint",
    "readers/megatron/unknown_options.py:_spellings": "a table of tvlint",
    "readers/megatron/unknown_options.py:_vocabulary": "a table of tvlint",
    "readers/megatron/unknown_options.py:_by_letters": "a table of tvlint",
    "readers/megatron/unknown_options.py:_by_size": "a table of tvlint",
    "readers/megatron/unknown_options.py:_of_all": "a table of tvlint",
    "readers/megatron/unknown_options.py:_slip_of_any": "names of options",
    "readers/megatron/unknown_options.py:_words": "cuts what it is given",
    "readers/megatron/unknown_options.py:_split": "cuts what it is given",
    "readers/megatron/packaged_parser.py:_parser": "a table of tvlint",
    "readers/megatron/unknown_options.py:_option_near": "a table of tvlint",
    "readers/megatron/unknown_options.py:_beginnings": "cuts what it is given",
    "readers/megatron/section_values.py:_words": "a table of tvlint",
    "readers/sources/python_syntax.py:nodes": "walks what it was given",
    "readers/capture/rewriting/flat_gradients.py:made": "of the programs that one call is given",
    "readers/megatron/composed_files.py:_parsed": "parses what it is given",
    "readers/plan_json/schema_checker.py:form": "a schema of tvlint",
    "checkout/tracking.py:_tracked": "git's index, by what tells whether it was written",
}
"""What is kept for good, since it asks nothing of the disk that another call would be answered differently."""


def test_what_asks_the_disk_is_kept_with_what_it_asked() -> None:
    found = {
        f"{path.relative_to(ROOT / 'tvlint').as_posix()}:{node.name}"
        for path, node in nodes("cache", rooms=ROOMS)
        if isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(each) for each in node.decorator_list)
    }
    assert found == set(PURE)


def test_what_is_kept_counts_as_asked_each_time_until_a_file_is_written(tmp_path: Path) -> None:
    calls = []
    path = str(tmp_path / "parser.py")

    @kept
    def flags(name: str) -> bytes:
        calls.append(name)
        return content(name, 100) if is_file(name) else b""

    for _ in range(2):
        with recording() as asked:
            assert flags(path) == b""
        assert asked.all() == {("is_file", path): False}
    assert calls == [path]
    forget()
    Path(path).write_bytes(b"--flag")
    with recording() as outer, recording() as asked:
        assert flags(path) == b"--flag"
    assert [name for name, _ in asked.all()] == ["is_file", "content"]
    assert outer.all() == asked.all()
    with instead({path: b"--other"}):
        assert flags(path) == b"--other"
    assert flags(path) == b"--flag"
    assert len(calls) == 3


_BREAKING = ("is_file", "is_dir", "exists", "is_symlink")

OWN_FILES = {"tvlint/data.py", "tvlint/rulebook/pages.py"}
"""Modules that ask for files of tvlint itself."""


def test_nobody_asks_for_a_file_in_a_way_that_some_name_breaks() -> None:
    """`Path.is_file` and its kin raise where a name is too long; `os.path` says that there is no such file."""
    asked = {
        path.relative_to(ROOT).as_posix()
        for path, node in nodes(*_BREAKING)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in _BREAKING
        if ast.unparse(node.func.value) not in ("os.path", "entry")
    }
    assert asked == OWN_FILES


@pytest.mark.parametrize("name", ["a\0b", "/a\0/b", "\ud800", "/\ud800/a", "a" * 5000, "a/" * 5000])
def test_a_name_that_no_file_can_have_is_no_file_also_where_contents_are_given(tmp_path: Path, name: str) -> None:
    """Fixes are tried, and texts of an editor judged, with contents in the place of files."""
    script = str(tmp_path / "train.sh")
    with instead({script: b""}):
        assert not any(asks(name) for asks in (is_file, is_folder, is_there, is_link))
        assert isinstance(real_path(name), str)
        assert is_file(script)
    with instead({name: b""}):
        assert is_file(name)


def test_only_one_module_starts_programs() -> None:
    starts = {
        path.relative_to(ROOT).as_posix()
        for path, node in nodes("subprocess")
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "subprocess" in (getattr(node, "module", "") or "", *(alias.name for alias in node.names))
    }
    assert starts == {"tvlint/checkout/git.py"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    top = tmp_path / "checkout"
    (top / "inner").mkdir(parents=True)
    for name in ("plan.json", "model.py", "inner/model.py"):
        (top / name).write_text(name)
    (tmp_path / "outside.py").write_text("secret")
    links = {"out.py": "../outside.py", "in.py": "model.py", "git.py": ".git/config", "late.py": "untracked.py", "up": ".."}
    for name, target in links.items():
        (top / name).symlink_to(target)
    subprocess.run(["git", "init", "-q"], cwd=top, check=True)
    subprocess.run(["git", "add", "-A"], cwd=top, check=True)
    (top / "untracked.py").write_text("secret")
    (top / "new.json").write_text("plan")
    return top


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("plan.json", ""),
        ("untracked.py", ""),
        ("in.py", ""),
        ("out.py", "a link that leads out of the checkout"),
        ("up/outside.py", "a link that leads out of the checkout"),
        ("up/checkout/plan.json", "a link that leads out of the checkout"),
        ("git.py", "a link to what git keeps for itself"),
        ("late.py", "a link to a file that git does not track"),
        ("../outside.py", ""),
    ],
)
def test_links_stay_in_the_checkout(checkout: Path, name: str, reason: str) -> None:
    assert why_not_followed(str(checkout / name)) == reason
    assert bool(why_not_written(str(checkout / name))) is bool(reason and name != "late.py")


@pytest.mark.parametrize(
    ("document", "name", "opened"),
    [
        ("plan.json", "model.py", True),
        ("plan.json", "inner/model.py", True),
        ("inner/model.py", "../model.py", True),
        ("plan.json", "in.py", True),
        ("plan.json", "untracked.py", False),
        ("plan.json", "late.py", False),
        ("plan.json", "out.py", False),
        ("plan.json", "../outside.py", False),
        ("plan.json", ".git/config", False),
        ("new.json", "untracked.py", True),
        ("new.json", ".git/config", False),
        ("new.json", "../outside.py", False),
    ],
)
def test_a_file_of_the_commit_leads_to_files_of_the_commit(checkout: Path, document: str, name: str, opened: bool) -> None:
    path = os.path.join(os.path.dirname(checkout / document), name)
    if opened:
        assert content_named(path, str(checkout / document), 100)
    else:
        with pytest.raises(OSError, match=r"outside|git"):
            content_named(path, str(checkout / document), 100)


def test_lines_are_shown_of_files_that_git_tracks(checkout: Path) -> None:
    shown = {name for name in ("plan.json", "in.py", "late.py", "out.py", "untracked.py", ".git/config", "../outside.py", "a\0")
             if may_be_shown(name, checkout)}  # fmt: skip
    assert shown == {"plan.json", "in.py"}


def test_files_of_a_submodule_are_tracked_and_those_of_another_repository_inside_are_not(checkout: Path) -> None:
    for name in ("submodule", "stranger"):
        subprocess.run(["git", "init", "-q", name], cwd=checkout, check=True)
        (checkout / name / "model.py").write_text("text")
        subprocess.run(["git", "add", "model.py"], cwd=checkout / name, check=True)
        commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"]
        subprocess.run(commit, cwd=checkout / name, check=True)
    subprocess.run(["git", "add", "submodule"], cwd=checkout, check=True, capture_output=True)
    assert may_be_shown("submodule/model.py", checkout)
    assert not may_be_shown("stranger/model.py", checkout)


def test_without_git_nothing_is_known_to_be_tracked(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert may_be_shown("model.py", checkout)
    monkeypatch.setenv("PATH", str(checkout))
    assert not may_be_shown("model.py", checkout)
    with pytest.raises(OSError, match="does not track"):
        content_named(str(checkout / "model.py"), str(checkout / "plan.json"), 100)
    assert content_listed(checkout / "model.py", 100) == b"model.py"


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "/proc/self/environ", ".", "large"])
def test_only_regular_files_of_bounded_size_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("large").write_bytes(b"x" * 101)
    with pytest.raises(OSError, match=r"regular|larger|grows|directory"):
        content(name, 100)


def test_git_is_never_one_of_the_checkout(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "bin"
    for folder in (checkout, checkout / "inner", elsewhere):
        folder.mkdir(exist_ok=True)
        (folder / "git").write_text("#!/bin/sh\n")
        (folder / "git").chmod(0o755)
    (tmp_path / "link").symlink_to(checkout / "inner")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "git").symlink_to(checkout / "git")
    monkeypatch.chdir(checkout)
    path = ["", ".", "inner", str(checkout), str(checkout / "inner"), str(tmp_path / "link"), str(tmp_path / "linked")]
    assert find_program("git", {"PATH": os.pathsep.join(path)}, {str(checkout)}) is None
    found = find_program("git", {"PATH": os.pathsep.join([*path, str(elsewhere)])}, {str(checkout)})
    assert found == str(elsewhere / "git")


def test_the_environment_of_git_has_nothing_that_names_a_program_or_another_repository(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_PAGER", "GIT_TRACE", "EDITOR"):
        monkeypatch.setenv(name, "/evil")
    command, environment = command_line(str(checkout), "ls-files")
    assert "/evil" not in environment.values()
    assert os.path.isabs(command[0])
    assert "safe.bareRepository=explicit" in command


def test_why_git_does_not_read_a_checkout_is_told(checkout: Path) -> None:
    (checkout / ".git" / "config").write_text("[core]\nrepositoryformatversion = 99\n")
    with pytest.raises(GitUnusable, match=r"does not read the checkout .*repo version"):
        ask(str(checkout), "ls-files")
