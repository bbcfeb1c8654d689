"""The steps of the action as they are written, and the hooks by pre-commit, in a checkout full of traps."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from shared import ROOT

from hostile.audit import has_strace, traced
from hostile.workspace import SECRET, Workspace, build, fill
from tests.builders.checkout import copy_of_checkout, run_clean

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the traps need links and pipes"),
]


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_checkout(tmp_path_factory.mktemp("delivered") / "tvlint")


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return build(tmp_path / "space")


def wrapped(script: str) -> list[str]:
    return ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]


@pytest.mark.skipif(not has_strace(), reason="strace is not here, or may not trace")
@pytest.mark.parametrize("inputs", [{}, {"compare": "HEAD", "working-directory": "launch"}], ids=["top", "launch"])
def test_the_steps_run_nothing_of_the_workspace(
    space: Workspace, delivered: Path, tmp_path: Path, inputs: dict[str, str]
) -> None:
    temp, commands = tmp_path / "temp", tmp_path / "commands"
    for folder in (temp, commands):
        folder.mkdir()
    (commands / "python").symlink_to(sys.executable)
    values = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()} | inputs
    files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment = kept | {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(space.home),
        "PYTHONPATH": ".",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(space.top),
        "RUNNER_TEMP": str(temp),
        **{name: str(file) for name, file in files.items()},
    }
    for step in ACTION["runs"]["steps"][1:-1]:
        passed = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
            .replace("${{ github.action_path }}", str(delivered))
            for name, text in step["env"].items()
        }  # fmt: skip
        trace = traced(wrapped(step["run"]), space.top, environment | passed, seconds=600)
        if "No matching distribution" in trace.said or "Could not find a version" in trace.said:
            pytest.skip("no package index here to install from")
        assert trace.code == 0, trace.said[-3000:]
        assert space.sprung() == []
        assert SECRET not in trace.said
        assert [path for path in trace.executed if path.startswith(str(space.top))] == []
        written = {path for path in trace.changed if path.startswith((str(space.top), str(space.outside)))}
        assert {path for path in written if not re.search(r"/\.tvlint_cache|tvlint\.sarif", path)} == set()
        assert [path for path in trace.read if path.startswith(str(space.outside))] == []
    outputs = files["GITHUB_OUTPUT"].read_text()
    assert "exit-code=2" in outputs or "exit-code=1" in outputs
    assert SECRET not in files["GITHUB_STEP_SUMMARY"].read_text()


def test_the_hooks_run_nothing_of_the_workspace(delivered: Path, tmp_path: Path) -> None:
    space = fill(tmp_path / "space")  # pre-commit itself runs the filters that the owner of a checkout has configured
    command = [sys.executable, "-I", "-m", "pre_commit", "try-repo", str(delivered), "--hook-stage", "manual"]
    done = run_clean([*command, "--color", "never", "--all-files"], space.top, PRE_COMMIT_HOME=str(tmp_path / "home"))
    assert space.sprung() == [], done.stdout[-3000:]
    assert SECRET not in done.stdout + done.stderr
    assert done.stdout.count("Failed") == 3, done.stdout[-3000:]
    assert not list(space.top.glob("pwned*"))
    assert (space.outside / "victim.txt").read_text() == "as it was\n"
