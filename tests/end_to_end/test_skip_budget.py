"""A run in which more tests skip than may fails, whatever else passes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from shared import ROOT

from tests.skip_budget import ALLOWED, over_budget, reason_of, report


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Skipped: the shared plans are not here; set TVLINT_SHARED to their folder", "the shared plans are not here"),
        ("Skipped: torch is not installed: pip install 'tvlint[capture]'", "torch is not installed"),
        ("one processor only", "one processor only"),
    ],
)
def test_a_reason_is_what_a_skip_says_first(said: str, reason: str) -> None:
    assert reason_of(said) == reason
    assert reason in ALLOWED


def test_as_many_as_are_listed_may_skip_and_not_one_more() -> None:
    assert over_budget(ALLOWED) == {}
    assert over_budget({"torch is not installed": ALLOWED["torch is not installed"] + 1, "nobody knows why": 1}) == {
        "torch is not installed": (ALLOWED["torch is not installed"] + 1, ALLOWED["torch is not installed"]),
        "nobody knows why": (1, 0),
    }
    assert report(Counter({"nobody knows why": 2})) == ["2 skipped, at most 0 may: nobody knows why (too many)"]


@pytest.mark.parametrize(("reason", "code"), [("one processor only", 0), ("nobody knows why", 1)])
def test_the_run_fails_for_what_is_not_listed(reason: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(f"import pytest\n\ndef test_it():\n    pytest.skip({reason!r})\n")
    settings = ["-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command = [sys.executable, "-m", "pytest", "-q", *settings, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"may: {reason}{' (too many)' * code}" in done.stdout
