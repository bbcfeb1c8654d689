"""Which files change with another one: those that tvlint opens it for."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tvlint.cache.remember import MANY, Cache
from tvlint.checkout.opening import forget, recording
from tvlint.cli import main
from tvlint.readers.document import ReadError
from tvlint.readers.opened_by_name import is_opened_by_name, opens_by_name
from tvlint.run.project import dependents as module
from tvlint.run.project.dependents import dependents
from tvlint.run.project.discovery import changed
from tvlint.run.project.project_file import Project

LAUNCH = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 4 --num-attention-heads 32 --num-layers $LAYERS\n"
)
YAML = "defaults:\n  - model: small\n  - _self_\ntensor_model_parallel_size: 2\nnum_attention_heads: 32\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    return tmp_path


def written(tree: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return sorted(files)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"run.sh": f"source a/env.sh\n{LAUNCH}"}, ["run.sh"]),
        ({"run.sh": f". a/env.sh\n{LAUNCH}"}, ["run.sh"]),
        ({"a/run.sh": f'source "$(dirname "$0")/env.sh"\n{LAUNCH}'}, ["a/run.sh"]),
        ({"run.sh": f"E=en; V=v.sh\nsource a/$E$V\n{LAUNCH}"}, ["run.sh"]),
        ({"run.sh": f"source mid.sh\n{LAUNCH}", "mid.sh": "source a/env.sh\n"}, ["run.sh"]),
        ({"run.sh": f"source mid.sh\n{LAUNCH}", "mid.sh": "E=en; V=v.sh\nsource a/$E$V\n"}, ["run.sh"]),
        ({"run.sh": f"source first.sh\n{LAUNCH}", "first.sh": "source 'a@1.sh'\n", "a@1.sh": "source a/env.sh\n"}, ["run.sh"]),
        ({"b/run.sh": f'source "$(dirname "$0")/env.sh"\n{LAUNCH}', "b/env.sh": "LAYERS=2\n"}, []),
        ({"run.sh": f"# as in a/env.sh\nLAYERS=2\n{LAUNCH}"}, []),
        ({"run.sh": f"echo a/env.sh\nLAYERS=2\n{LAUNCH}"}, []),
        ({"run.sh": f"source a/env.sh.old\nLAYERS=2\n{LAUNCH}", "a/env.sh.old": "LAYERS=2\n"}, []),
        ({"notes.txt": "see a/env.sh\n"}, []),
    ],
)
def test_a_script_depends_on_what_it_sources(tree: Path, files: dict[str, str], expected: list[str]) -> None:
    written(tree, {"a/env.sh": "export LAYERS=4\n"})
    assert dependents(written(tree, files), ("a/env.sh",)) == expected


@pytest.mark.parametrize(
    ("start", "is_read"),
    [("LAYERS=2 bash a/run.sh\n", True), ("export LAYERS=2\n./a/run.sh\n", True), ("bash a/run.sh\n", False)],
)
def test_a_script_depends_on_what_it_starts_with_values_of_its_own(tree: Path, start: str, is_read: bool) -> None:
    written(tree, {"a/run.sh": LAUNCH})
    assert dependents(written(tree, {"start.sh": start}), ("a/run.sh",)) == (["start.sh"] if is_read else [])


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("left", ["", None])
@pytest.mark.parametrize(
    ("path", "files", "expected"),
    [
        ("a/env.sh", {"run.sh": f"source a/env.sh\n{LAUNCH}", "other.sh": f"source b/env.sh\n{LAUNCH}"}, "run.sh"),
        ("a/env.sh", {"run.sh": f"source mid.sh\n{LAUNCH}", "mid.sh": "source a/env.sh\n"}, "run.sh"),
        ("conf/model/small.yaml", {"conf/config.yaml": YAML, "other/config.yaml": YAML}, "conf/config.yaml"),
    ],
)
def test_what_opens_a_file_is_checked_where_that_is_empty_or_gone(
    tree: Path, path: str, files: dict[str, str], expected: str, left: str | None, tracked: bool
) -> None:
    written(tree, {path: "LAYERS=4\n" if path.endswith(".sh") else "num_layers: 4\n", **files})
    if tracked:
        (tree / ".git").rmdir()
        subprocess.run(["git", "init", "-q"], check=True)
        subprocess.run(["git", "add", "-A"], check=True)
    if left is None:
        (tree / path).unlink()
        subprocess.run(["git", "add", "-A"], check=tracked, capture_output=True)
    else:
        (tree / path).write_text(left)
    forget()
    assert [file for file in changed((path,), Project(tree)).files if file != "mid.sh"] == [expected]
    assert changed(("notes/gone.sh",), Project(tree)).files == ()


def test_a_launch_depends_on_its_program(tree: Path) -> None:
    launch = LAUNCH.replace("pretrain_gpt.py", "a/train.py")
    files = written(tree, {"run.sh": launch, "other.sh": launch.replace("a/", "b/"), "b/train.py": "import megatron.core\n"})
    written(tree, {"a/train.py": "import megatron.core\n"})
    assert dependents(files, ("a/train.py",)) == ["run.sh"]


def test_a_configuration_depends_on_its_defaults(tree: Path) -> None:
    other = {"other/config.yaml": YAML, "other/model/small.yaml": "a: 1\n"}
    files = written(tree, {"conf/config.yaml": YAML, "conf/without_ending": YAML, **other})
    written(tree, {"conf/model/small.yaml": "num_layers: 4\n"})
    assert dependents(files, ("conf/model/small.yaml",)) == ["conf/config.yaml", "conf/without_ending"]


def test_only_what_depends_on_a_changed_file_is_checked(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = LAUNCH.replace("--num-attention-heads 32", "--num-attention-heads 30")
    written(tree, {"a/env.sh": "LAYERS=4\n", "run.sh": f"source a/env.sh\n{wrong}", "other.sh": f"# a/env.sh\n{wrong}"})
    assert changed(("a/env.sh",), Project(tree)).files == ("a/env.sh", "run.sh")
    assert changed((), Project(tree)).files == ()
    assert main(["check", "--changed", "--no-cache", "-o", "concise", "a/env.sh"]) == 1
    out = capsys.readouterr().out
    assert "run.sh:2:" in out
    assert "other.sh" not in out


def test_each_launch_depends_on_the_parser_of_its_tree(tree: Path) -> None:
    """What is read once for all launches of a tree counts for each of them, and so does what was looked for in vain."""
    parser = "def add_args(parser):\n    parser.add_argument('--num-layers')\n"
    launch = LAUNCH.replace("pretrain_gpt.py", "train.py")
    files = written(tree, {"one.sh": launch, "two.sh": launch})
    written(tree, {"train.py": "import options\n", "options.py": parser})
    assert dependents(files, ("options.py",)) == files
    (tree / "options.py").unlink()
    assert dependents(files, ("options.py",)) == files


def test_only_files_that_open_others_are_read_for_a_script(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook without a cache, as in CI, does not read the whole repository; for a program it does."""
    opening = {
        "a.sh": f"source a/env.sh\n{LAUNCH}",
        "b.sh": f"RUN=.;\n$RUN a/env.sh\n{LAUNCH}",
        "c": f"#!/bin/sh\n. a/env.sh\n{LAUNCH}",
        "d.py": f"#!/bin/bash\n[ 1 ] && source a/env.sh\n{LAUNCH}",
    }
    others = {"conf/config.yaml": YAML, "e.sh": LAUNCH, "f.sh": "source a/env.sh\n", "g.md": f"source it\n{LAUNCH}"}
    files = written(tree, opening | others)
    written(tree, {"a/env.sh": "LAYERS=4\n", "pretrain_gpt.py": "import megatron.core\n"})
    seen: list[str] = []
    read = module.read
    monkeypatch.setattr(module, "read", lambda path: (seen.append(path), read(path))[1])
    assert dependents(files, ("a/env.sh",)) == ["a.sh", "b.sh", "c", "d.py"]
    assert not {"e.sh", "f.sh"}.intersection(seen)
    seen.clear()
    dependents(files, ("pretrain_gpt.py",))
    assert seen == files


@pytest.mark.heavy
def test_texts_that_open_named_files_are_found_without_reading() -> None:
    """What reading any example opens by name, the search expects."""
    for path in filter(Path.is_file, (*Path("fixtures").rglob("*"), *Path("tests/data").rglob("*.sh"))):
        data = path.read_bytes()
        with recording() as asked, suppress(ReadError, OSError):
            module.read(str(path))
        opened = {os.path.realpath(name) for kind, name, *_ in asked.all() if kind == "content"} - {str(path.resolve())}
        if any(map(is_opened_by_name, opened)):
            assert opens_by_name(str(path), data), path


def test_what_many_files_open_is_remembered(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only files of which an answer is another one are read again; what they rest on now counts."""
    monkeypatch.setenv("TVLINT_CACHE_KEY", "a key of the tests of dependents")
    files = written(tree, {f"run{number}.sh": f"source a/env.sh\n{LAUNCH}" for number in range(MANY)})
    written(tree, {"a/env.sh": "LAYERS=4\n", "b/env.sh": "LAYERS=4\n"})
    seen: list[str] = []
    read = module.read
    monkeypatch.setattr(module, "read", lambda path: (seen.append(path), read(path))[1])

    def found(other: str) -> list[str]:
        seen.clear()
        forget()
        return dependents(files, (other,), Cache(tree))

    assert found("b/env.sh") == []
    assert seen == files
    assert found("a/env.sh") == files
    assert seen == []
    written(tree, {"run1.sh": f"source b/env.sh\n{LAUNCH}"})
    assert found("b/env.sh") == ["run1.sh"]
    assert seen == ["run1.sh"]
    assert found("a/env.sh") == [name for name in files if name != "run1.sh"]
    assert seen == []
    written(tree, {"a/env.sh": "LAYERS=8\n"})
    assert found("a/env.sh") == [name for name in files if name != "run1.sh"]
    assert len(seen) == MANY - 1


@pytest.mark.heavy
def test_what_was_read_before_the_budget_ended_is_not_read_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVLINT_CACHE_KEY", "a key of the tests of dependents")
    monkeypatch.setattr(module, "LONG", 0.0)
    files = written(tree, {f"run{number:02}.sh": f"source a/env.sh\n{LAUNCH}" for number in range(MANY)})
    written(tree, {"a/env.sh": "LAYERS=4\n"})
    seen: list[str] = []
    read = module.read

    def ended(path: str) -> None:
        if len(seen) == 10:
            raise KeyboardInterrupt
        seen.append(path)
        read(path)

    monkeypatch.setattr(module, "read", ended)
    with pytest.raises(KeyboardInterrupt):
        dependents(files, ("a/env.sh",), Cache(tree))
    monkeypatch.setattr(module, "read", lambda path: (seen.append(path), read(path))[1])
    forget()
    assert dependents(files, ("a/env.sh",), Cache(tree)) == files
    assert seen == files


def test_what_a_check_of_many_files_has_opened_is_remembered(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first hook after `tvlint init` reads no file again."""
    monkeypatch.setenv("TVLINT_CACHE_KEY", "a key of the tests of dependents")
    (tree / ".git").rmdir()
    files = written(tree, {f"run{number:02}.sh": f"source a/env.sh\n{LAUNCH}" for number in range(MANY)})
    written(tree, {"a/env.sh": "LAYERS=4\n"})
    assert main(["check", "--quiet"]) == 0
    forget()
    seen: list[str] = []
    monkeypatch.setattr(module, "read", seen.append)
    assert dependents(files, ("a/env.sh",), Cache(tree)) == files
    assert seen == []
