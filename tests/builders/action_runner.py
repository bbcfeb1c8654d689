"""A runner of workflows: the folders and files that it gives the action, and its main step run with them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from shared import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
RUN = STEPS["Run tvlint"]


@dataclass(frozen=True)
class Step:
    """What a step left behind."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


def shim(python: Path) -> None:
    """Put a Python there in which tvlint is installed."""
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)


def new_runner(folder: Path) -> Path:
    """Return a runner's folders: the workspace, and the place where the step before installed tvlint."""
    (folder / "workspace").mkdir()
    shim(folder / "temp" / "tvlint" / "bin" / "python")
    return folder


def run(runner: Path, extra: dict[str, str] | None = None, **inputs: str) -> Step:
    defaults = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()}
    values = defaults | {name.replace("_", "-"): value for name, value in inputs.items()}
    passed = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], expression)
        for name, expression in RUN["env"].items()
    }
    files = {name: runner / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    environment = {
        "PATH": os.environ["PATH"],
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(runner / "workspace"),
        "RUNNER_TEMP": str(runner / "temp"),
        **{name: str(file) for name, file in files.items()},
        **passed,
        **(extra or {}),
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", RUN["run"]],
        cwd=runner / "workspace", env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    written = files["GITHUB_OUTPUT"].read_text()
    outputs = dict(re.findall(r"^([\w-]+)=(.*)$", written, re.MULTILINE))
    outputs |= {name: value for name, _, value in re.findall(r"^([\w-]+)<<(.*)\n(.*)\n\2$", written, re.MULTILINE)}
    return Step(done.returncode, done.stdout + done.stderr, outputs, files["GITHUB_STEP_SUMMARY"].read_text())
