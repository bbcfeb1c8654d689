"""The action in the checkouts that workflows make: shallow, merged, of a fork, of a monorepo, in a container, unchanged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders.action_runner import new_runner, run

FRAME = (
    "PP=2\n# the grid\n# of ranks\n"
    "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size {tp} --pipeline-model-parallel-size $PP \\\n"
    "  --num-layers {layers} --hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 \\\n"
    "  --micro-batch-size 1 --global-batch-size 8 --train-iters 10 --bf16\n"
)
RIGHT = FRAME.format(tp=2, layers=8)
WRONG = FRAME.format(tp=2, layers=9)


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    return new_runner(tmp_path)


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def origin(runner: Path, change: str) -> Path:
    """Return a repository with a right script on main, and a branch that makes it the other one."""
    folder = runner / "origin"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.sh").write_text(RIGHT)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    git(folder, "checkout", "-qb", "change")
    (folder / "train.sh").write_text(change)
    git(folder, "commit", "-qam", "second")
    return folder


def check_out(runner: Path, *arguments: str) -> Path:
    """Clone the origin into the workspace."""
    workspace = runner / "workspace"
    workspace.rmdir()
    git(runner, "clone", "-q", *arguments, (runner / "origin").as_uri(), str(workspace))
    return workspace


def test_a_shallow_clone_is_checked(runner: Path) -> None:
    origin(runner, WRONG)
    check_out(runner, "--depth=1", "--branch=change")
    step = run(runner)
    assert step.outputs["exit-code"] == "1"
    assert re.search(r"^::error file=train\.sh,line=5,.*::9 layers", step.log, re.MULTILINE), step.log


def test_a_comparison_in_a_shallow_clone_says_that_the_revision_is_missing(runner: Path) -> None:
    origin(runner, RIGHT.replace("bf16", "fp16"))
    check_out(runner, "--depth=1", "--branch=change")
    step = run(runner, compare="origin/main")
    assert step.outputs["exit-code"] == "2"
    assert re.search(r"^::error title=tvlint diff::.*`origin/main`", step.log, re.MULTILINE), step.log


def test_a_merge_commit_is_judged_as_what_is_merged(runner: Path) -> None:
    """Both branches are right; what GitHub merges for the pull request is not."""
    folder = origin(runner, RIGHT.replace("PP=2", "PP=4"))
    git(folder, "checkout", "-q", "main")
    (folder / "train.sh").write_text(RIGHT.replace("num-layers 8", "num-layers 10"))
    git(folder, "commit", "-qam", "other")
    git(folder, "checkout", "-qb", "pull")
    git(folder, "merge", "-q", "--no-edit", "change")
    workspace = check_out(runner, "--branch=pull")
    assert "num-layers 10" in (workspace / "train.sh").read_text()
    step = run(runner, compare="origin/main")
    assert step.outputs["exit-code"] == "1"
    assert "10 layers do not divide over 4 pipeline stages" in step.summary


def test_only_what_a_pull_request_brings_is_told_on_the_line_that_it_writes(runner: Path) -> None:
    folder = origin(runner, RIGHT.replace("num-layers 8", "num-layers 10").replace("PP=2", "PP=4"))
    git(folder, "checkout", "-q", "main")
    (folder / "old.sh").write_text(WRONG)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a mistake of somebody else")
    git(folder, "checkout", "-qb", "pull")
    git(folder, "merge", "-q", "--no-edit", "change")
    check_out(runner, "--branch=pull")
    step = run(runner, new_from="origin/main")
    assert step.outputs["exit-code"] == "1"
    assert re.findall(r"^::error file=([\w.]+),", step.log, re.MULTILINE) == ["train.sh"]
    assert run(runner, new_from="HEAD").outputs["exit-code"] == "0"


def test_a_fork_that_switches_rules_off_is_judged_by_the_base_branch(runner: Path) -> None:
    folder = origin(runner, WRONG)
    (folder / "tvlint.toml").write_text('ignore = ["layers-not-divisible-by-pp"]\n')
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "switch it off")
    check_out(runner, "--branch=change")
    assert run(runner).outputs["exit-code"] == "0"
    step = run(runner, policy="origin/main", ignore_comments="false")
    assert step.outputs["exit-code"] == "1"
    assert "9 layers do not divide" in step.summary


def test_the_folders_of_a_monorepo_have_their_own_project_reports_and_places(runner: Path) -> None:
    workspace = runner / "workspace"
    git(workspace, "init", "-q", "-b", "main")
    for name, text, limit in (
        ("speech", RIGHT, ""),
        ("vision", WRONG, ""),
        ("old", WRONG, 'ignore = ["layers-not-divisible-by-pp"]\n'),
    ):
        (workspace / name).mkdir()
        (workspace / name / "train.sh").write_text(text)
        (workspace / name / "tvlint.toml").write_text(limit or 'fail-on = "error"\n')
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "first")
    codes = {}
    for name in ("speech", "vision", "old"):
        step = run(runner, working_directory=name, sarif="tvlint.sarif")
        codes[name] = step.outputs["exit-code"]
        assert step.outputs["sarif"] == f"{name}/tvlint.sarif"
        assert step.outputs["category"] == f"tvlint/{name}"
        report = json.loads((workspace / name / "tvlint.sarif").read_text())["runs"][0]
        assert "automationDetails" not in report, "the category of the upload tells the reports apart"
        places = {
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            for result in report["results"]
            if "suppressions" not in result
        }
        assert places <= {f"{name}/train.sh"}
        if name == "vision":
            assert re.search(r"^::error file=vision/train\.sh,line=5,", step.log, re.MULTILINE), step.log
    assert codes == {"speech": "0", "vision": "1", "old": "0"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_in_a_container_the_workspace_may_belong_to_another_user(runner: Path) -> None:
    origin(runner, RIGHT.replace("bf16", "fp16"))
    workspace = check_out(runner, "--branch=change")
    (workspace / ".gitignore").write_text("out/\n")
    (workspace / "out").mkdir()
    (workspace / "out" / "train.sh").write_text(WRONG)
    for path in (workspace, *workspace.rglob("*")):
        os.chown(path, 1234, 1234, follow_symlinks=False)
    step = run(runner)
    assert step.outputs["exit-code"] == "0", step.log


def test_a_push_without_a_configuration_is_told_apart_from_a_clean_one(runner: Path) -> None:
    workspace = runner / "workspace"
    (workspace / "README.md").write_text("nothing here\n")
    step = run(runner)
    assert step.outputs["exit-code"] == "4"
    assert re.search(r"^::error title=tvlint::nothing to check", step.log, re.MULTILINE), step.log


def test_a_push_that_changes_nothing_compares_to_nothing(runner: Path) -> None:
    origin(runner, RIGHT.replace("bf16", "fp16"))
    check_out(runner, "--branch=main")
    step = run(runner, compare="origin/main")
    assert step.outputs["exit-code"] == "0", step.log


def test_a_checkout_without_git_is_checked(runner: Path) -> None:
    (runner / "workspace" / "train.sh").write_text(WRONG)
    shutil.rmtree(runner / "workspace" / ".git", ignore_errors=True)
    assert run(runner).outputs["exit-code"] == "1"
