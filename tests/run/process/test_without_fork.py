"""A system as Windows is: without fork, limits, most signals and the flags of POSIX that files are opened with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

_AS_WINDOWS = """
import sys, os, signal
import asyncio, importlib.metadata, multiprocessing, platform, shutil, subprocess, tempfile  # which ask for the system
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in ("fork", "geteuid", "getuid", "killpg", "memfd_create", "sched_getaffinity", "setsid"):
    vars(os).pop(name, None)
flags = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_APPEND", "O_CREAT", "O_EXCL", "O_TRUNC"}
for name in [name for name in vars(os) if name.startswith("O_") and name not in flags]:
    delattr(os, name)
kept = {"SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_DFL", "SIG_IGN"}
for name in [name for name in vars(signal) if name.startswith("SIG") and name not in kept]:
    delattr(signal, name)
for name in ("alarm", "pthread_sigmask", "setitimer"):
    delattr(signal, name)
sys.platform = "win32"
from tvlint.cli import main
sys.exit(main(sys.argv[1:]))
"""


def _without_measures(report: Any) -> Any:
    """Return a report without what two runs of one input measure differently."""
    if isinstance(report, dict):
        return {key: _without_measures(value) for key, value in report.items() if key not in ("seconds", "peak_bytes")}
    return list(map(_without_measures, report)) if isinstance(report, list) else report


def test_a_system_without_fork_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "git.exe").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    command = ("check", "--no-cache", "--output", "json", "--jobs", "2", "fixtures/tour")
    there, here = (
        subprocess.run([sys.executable, *how, *command], capture_output=True, cwd=ROOT, check=False)
        for how in (("-c", _AS_WINDOWS), ("-m", "tvlint"))
    )
    assert (there.returncode, there.stderr) == (here.returncode, here.stderr) == (1, b"")
    assert _without_measures(json.loads(there.stdout)) == _without_measures(json.loads(here.stdout))
