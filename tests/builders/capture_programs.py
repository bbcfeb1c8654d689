"""The programs of torch that tests capture, and tvlint run beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from shared import ROOT

PROGRAMS = ROOT / "fixtures" / "capture"


def tvlint(*arguments: str, cwd: Path = PROGRAMS) -> subprocess.CompletedProcess[str]:
    """Run tvlint with arguments in a folder, that of the programs unless told."""
    command = [sys.executable, "-m", "tvlint", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900)
