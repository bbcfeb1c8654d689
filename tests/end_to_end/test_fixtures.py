"""The shipped inputs: clean ones stay silent, broken ones show the expected screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from shared import ROOT

from tests.sampling import sampled
from tvlint.cli import main

CLEAN = sorted(path.name for path in (ROOT / "fixtures" / "clean").iterdir())
BROKEN = sorted(path.name for path in (ROOT / "fixtures" / "broken").iterdir())


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`check(folder, ...)`: the exit code and the screen of `tvlint check . ...` in the folder."""

    def run(folder: Path, *arguments: str) -> tuple[int, str]:
        monkeypatch.chdir(folder)
        code = main(["check", ".", "-o", "concise", *arguments])
        return code, capfd.readouterr().out

    return run


@pytest.mark.parametrize("name", CLEAN)
def test_clean_inputs_stay_silent(name: str, check: Run) -> None:
    code, text = check(ROOT / "fixtures" / "clean" / name)
    assert code == 0
    assert [line for line in text.splitlines() if not re.match(r"note: .* (could not be evaluated|silenced \()", line)] == []


@pytest.mark.parametrize("name", sampled(BROKEN, 3))
def test_broken_inputs_show_their_mistake(name: str, check: Run, golden: Callable[[str, str], None]) -> None:
    """The folder is named after the rule, or the reason of a proof, that finds it."""
    code, text = check(ROOT / "fixtures" / "broken" / name, "--fail-on", "warning")
    assert code == 1
    assert f"[{name.partition('--')[0]}]" in text
    golden(f"fixtures/{name}.txt", text)
