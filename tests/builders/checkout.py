"""A copy of the checkout in a repository of its own, for tests that build, install or run what is delivered."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from shared import ROOT


def copy_of_checkout(folder: Path) -> Path:
    """The files that git tracks or would add, committed in a repository of their own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    commit_all(folder)
    return folder


def commit_all(folder: Path) -> None:
    """Make the folder a repository with one commit."""
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def run_clean(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that knows nothing of the tests' own environment; skips where there is no package index."""
    unwanted = ("PYTHON", "GITHUB_", "GIT_", "VIRTUAL_ENV", "PYTEST_", "COVERAGE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **environment}, capture_output=True, text=True, timeout=400, stdin=subprocess.DEVNULL
    )
    said = done.stdout + done.stderr
    if done.returncode and ("No matching distribution found for hatchling" in said or "Could not find a version" in said):
        pytest.skip("no package index here to install from")
    return done
