"""The steps of the action as they are written, and the hooks by pre-commit, in a checkout full of traps."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from shared import ROOT

from hostile.audit import Trace, has_strace, traced
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


@dataclass(frozen=True)
class Runner:
    """What a runner of the forge hands to the steps of the action, over a workspace."""

    space: Workspace
    delivered: Path
    folder: Path

    def outputs(self) -> dict[str, Path]:
        """Return the files that steps write for the forge."""
        return {name: self.folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}

    def prepare(self) -> None:
        """Make the folders of the runner, with the Python that it has set up."""
        for name in ("temp", "commands"):
            (self.folder / name).mkdir()
        (self.folder / "commands" / "python").symlink_to(sys.executable)

    def run(self, step: dict[str, Any], inputs: dict[str, str]) -> Trace:
        """Run one step as it is written, below strace."""
        values = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()} | inputs
        passed = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
            .replace("${{ github.action_path }}", str(self.delivered))
            for name, text in step["env"].items()
        }  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if name.startswith("PIP_")} | {
            "PATH": f"{self.folder / 'commands'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.space.home),
            "PYTHONPATH": ".",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.space.top),
            "RUNNER_TEMP": str(self.folder / "temp"),
            **{name: str(file) for name, file in self.outputs().items()},
        }
        for file in self.outputs().values():
            file.write_text("")
        return traced(wrapped(step["run"]), self.space.top, environment | passed, seconds=600)


@pytest.mark.skipif(not has_strace(), reason="strace is not here, or may not trace")
def test_the_steps_run_nothing_of_the_workspace(space: Workspace, delivered: Path, tmp_path: Path) -> None:
    runner = Runner(space, delivered, tmp_path)
    runner.prepare()
    steps = {step["name"]: step for step in ACTION["runs"]["steps"] if "run" in step}
    install, check = steps["Install tvlint"], steps["Run tvlint"]
    assert_untouched(space, runner.run(steps["Name the packages"], {}))
    installed = runner.run(install, {})
    if "No matching distribution" in installed.said or "Could not find a version" in installed.said:
        pytest.skip("no package index here to install from")
    assert_untouched(space, installed)
    for inputs in ({}, {"compare": "HEAD", "working-directory": "launch"}):
        assert_untouched(space, runner.run(check, inputs))
        outputs = runner.outputs()
        assert re.search("exit-code=[12]\n", outputs["GITHUB_OUTPUT"].read_text())
        assert SECRET not in outputs["GITHUB_STEP_SUMMARY"].read_text()


def assert_untouched(space: Workspace, trace: Trace) -> None:
    assert trace.code == 0, trace.said[-3000:]
    assert space.sprung() == []
    assert SECRET not in trace.said
    assert [path for path in trace.executed if path.startswith(str(space.top))] == []
    written = {path for path in trace.changed if path.startswith((str(space.top), str(space.outside)))}
    assert {path for path in written if not re.search(r"/\.tvlint_cache|tvlint\.sarif", path)} == set()
    assert [path for path in trace.read if path.startswith(str(space.outside))] == []


def test_the_hooks_run_nothing_of_the_workspace(delivered: Path, tmp_path: Path) -> None:
    space = fill(tmp_path / "space")  # pre-commit itself runs the filters that the owner of a checkout has configured
    command = [sys.executable, "-I", "-m", "pre_commit", "try-repo", str(delivered), "--hook-stage", "manual"]
    done = run_clean([*command, "--color", "never", "--all-files"], space.top, PRE_COMMIT_HOME=str(tmp_path / "home"))
    assert space.sprung() == [], done.stdout[-3000:]
    assert SECRET not in done.stdout + done.stderr
    assert done.stdout.count("Failed") == 3, done.stdout[-3000:]
    assert not list(space.top.glob("pwned*"))
    assert (space.outside / "victim.txt").read_text() == "as it was\n"
