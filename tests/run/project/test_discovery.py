"""Which files a run looks at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tvlint.findings import Finding, Severity
from tvlint.run.project.discovery import changed, discover, matches
from tvlint.run.project.project_file import Project


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("train.sh", "configs/a.yaml", "configs/old/b.yaml", "build/c.yaml", ".hidden/d.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(finding: Finding) -> tuple[str, str]:
    assert (finding.rule, finding.severity) == ("unjudged-file", Severity.NOTE)
    return finding.location.path, finding.message


def git(tree: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True)


def test_a_folder_without_git_gives_all_but_hidden_folders(tree: Path) -> None:
    assert discover((), Project(tree)).files == ("build/c.yaml", "configs/a.yaml", "configs/old/b.yaml", "train.sh")


def test_in_a_work_tree_what_git_ignores_is_left_out(tree: Path) -> None:
    git(tree, "init", "-q")
    (tree / ".gitignore").write_text("build/\n")
    git(tree, "add", "configs")
    assert discover(("configs", "build", "train.sh"), Project(tree)).files[:2] == ("configs/a.yaml", "configs/old/b.yaml")
    assert "build/c.yaml" not in discover((), Project(tree)).files
    assert "train.sh" in discover((), Project(tree)).files


def test_the_folder_of_the_project_is_all_of_it_by_whatever_name(tree: Path) -> None:
    assert [discover(paths, Project(tree)).is_whole for paths in ((), (".",), (str(tree), "train.sh"))] == [True] * 3
    assert not discover(("configs",), Project(tree)).is_whole
    assert not discover((".",), Project(tree.parent, paths=("configs",))).is_whole


def test_git_runs_no_program_that_the_repository_names(tree: Path) -> None:
    git(tree, "init", "-q")
    script = tree / "hook.sh"
    script.write_text("#!/bin/sh\ntouch ran\n")
    script.chmod(0o755)
    git(tree, "config", "core.fsmonitor", str(script))
    discover((), Project(tree))
    assert not (tree / "ran").exists()


def test_the_project_says_which_paths_and_which_not(tree: Path) -> None:
    project = Project(tree, paths=("configs", "build"), exclude=("configs/old",))
    assert discover((), project).files == ("configs/a.yaml", "build/c.yaml")
    assert discover(("configs/old/b.yaml",), project).files == ("configs/old/b.yaml",)
    assert changed(("configs/old/b.yaml", "train.sh"), project).files == ("train.sh",)


def test_a_path_that_does_not_exist_is_a_problem(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    found = discover(("gone.sh", "pipe"), Project(tree))
    assert [(problem.location.path, problem.message) for problem in found.problems] == [
        ("gone.sh", "no such file or folder"),
        ("pipe", "not a regular file"),
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("configs", True),
        ("configs/", True),
        ("*.yaml", True),
        ("configs/*.yaml", True),
        ("old", True),
        ("config", False),
        ("a/*", False),
    ],
)
def test_patterns(tree: Path, pattern: str, expected: bool) -> None:
    assert matches("configs/old/b.yaml", Project(tree), (pattern,)) is expected


def test_a_folder_that_cannot_be_opened_is_a_problem(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.scandir

    def closed(path: str) -> object:
        if Path(path).name == "configs":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path)

    monkeypatch.setattr(os, "scandir", closed)
    found = discover(("configs", "build"), Project(tree))
    assert [(problem.location.path, problem.message) for problem in found.problems] == [
        ("configs", "the folder cannot be opened: permission denied")
    ]
    assert found.files == ("build/c.yaml",)
    inside = discover((".",), Project(tree))
    assert "train.sh" in inside.files
    assert [told(finding) for finding in inside.findings] == [("./configs", "not judged: the folder cannot be opened")]


def test_a_link_that_leads_out_of_the_checkout_is_not_looked_at(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "launch.sh").write_text("launch\n")
    git(tree, "init", "-q")
    (tree / "out.sh").symlink_to(outside / "launch.sh")
    (tree / "in.sh").symlink_to("train.sh")
    (tree / "around").symlink_to(outside)
    found = discover((), Project(tree))
    assert "in.sh" in found.files
    assert "out.sh" not in found.files
    assert [told(finding) for finding in found.findings] == [
        ("around", "not judged: a link that leads out of the checkout"),
        ("out.sh", "not judged: a link that leads out of the checkout"),
    ]
    named = discover(("out.sh", "around/launch.sh", "around"), Project(tree))
    assert named.files == ()
    assert [problem.location.path for problem in named.problems] == ["out.sh", "around/launch.sh", "around"]
    assert {problem.message for problem in named.problems} == {"not looked at: a link that leads out of the checkout"}
    assert changed(("out.sh", "in.sh"), Project(tree)).files == ("in.sh",)
    assert discover((str(outside / "launch.sh"),), Project(tree)).files == (str(outside / "launch.sh"),)


def test_the_project_file_names_nothing_outside_of_its_checkout(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "launch.sh").write_text("launch\n")
    git(tree, "init", "-q")
    found = discover((), Project(tree, paths=(str(outside), "/proc", "..", "train.sh")))
    assert found.files == ("train.sh",)
    assert {problem.message for problem in found.problems} == {
        "not looked at: the project file names what lies outside of its checkout"
    }
    assert len(found.problems) == 3


def test_a_checkout_that_git_does_not_read_is_a_problem(tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git(tree, "init", "-q")
    (tree / ".gitignore").write_text("build\n")
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    os.chown(tree, 12345, 12345)
    os.chown(tree / ".git", 12345, 12345)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = discover((), Project(tree))
    (problem,) = found.problems
    assert "dubious ownership" in problem.message
    assert problem.help.endswith(f"git config --global --add safe.directory {tree}")
    assert "train.sh" in found.files


def test_a_checkout_without_git_installed_is_a_problem(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tree, "init", "-q")
    monkeypatch.setenv("PATH", str(tree))
    (problem,) = discover((), Project(tree)).problems
    assert problem.message == "which files git ignores is not known: git is not installed"


def test_more_files_than_are_looked_at_are_a_problem(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvlint.run.project.discovery.MAXIMAL_FILES", 2)
    found = discover((".",), Project(tree))
    assert len(found.files) == 2
    assert [problem.message for problem in found.problems] == ["the folder holds more than 2 files; the rest was not looked at"]
    monkeypatch.setattr("tvlint.run.project.discovery.MAXIMAL_FILES", 4)
    assert discover((".",), Project(tree)).problems == ()


def test_what_is_found_and_not_looked_at_is_a_finding(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvlint.run.project.discovery.MAXIMAL_SIZE", 100)
    (tree / "large.sh").write_text("#" * 101)
    (tree / "nowhere.sh").symlink_to("gone.sh")
    (tree / "empty.sh").write_text("")
    os.mkfifo(tree / "pipe.sh")
    found = discover((), Project(tree))
    assert [told(finding) for finding in found.findings] == [
        ("large.sh", "not judged: larger than 0 MiB; name it to check it"),
        ("nowhere.sh", "not judged: a link that leads nowhere"),
        ("pipe.sh", "not judged: not a regular file"),
    ]
    assert not {"large.sh", "nowhere.sh", "empty.sh", "pipe.sh"} & set(found.files)


def test_a_checkout_in_the_checkout_is_a_finding(tree: Path) -> None:
    git(tree, "init", "-q")
    inner = tree / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "train.sh").write_text("launch\n")
    git(inner, "add", "-A")
    git(inner, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "inner")
    git(tree, "add", "-A")
    found = discover((), Project(tree))
    assert [told(finding) for finding in found.findings] == [
        ("inner", "not judged: a checkout in the checkout: run tvlint there")
    ]
