"""Runs that are killed, and runs beside others: what they write is whole, or not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

LAUNCH = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers {} --pipeline-model-parallel-size 4 --hidden-size 64"
    " --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of 30 launches, some of them wrong, with a baseline of those that were wrong before."""
    (tmp_path / "tvlint.toml").write_text('paths = ["."]\nbaseline = "known.json"\n')
    for number in range(8, 38):
        (tmp_path / f"{number}.sh").write_text(LAUNCH.format(number if number < 18 else 8 + number % 8))
    ended(tmp_path, "baseline", "write")
    for number in range(18, 38):
        (tmp_path / f"{number}.sh").write_text(LAUNCH.format(number))
    return tmp_path


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tvlint", *arguments]
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = started(folder, *arguments)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def test_a_killed_run_leaves_the_baseline_and_the_cache_whole(project: Path) -> None:
    expected = ended(project, "check", "--no-cache", "--no-baseline", "-o", "concise")
    assert expected[0] == 1
    for arguments in (("check",), ("baseline", "write"), ("baseline", "prune")):
        for seconds in (0.1, 0.3):
            process = started(project, *arguments)
            time.sleep(seconds)
            process.kill()
            process.communicate()
            json.loads((project / "known.json").read_text())
    assert ended(project, "check", "--no-baseline", "-o", "concise") == expected
    assert not [path.name for path in project.iterdir() if path.suffix not in (".sh", ".toml", ".json") and path.is_file()]


@pytest.mark.heavy
def test_runs_at_the_same_time_say_the_same(project: Path) -> None:
    expected = ended(project, "check", "--no-cache", "-o", "concise")[:2]
    processes = [started(project, "check", "-o", "concise") for _ in range(2)]
    found = [(process.communicate(timeout=60)[0], process.returncode) for process in processes]
    assert [(status, output) for output, status in found] == [expected] * 2
    assert ended(project, "check", "-o", "concise")[:2] == expected
