"""The line on the terminal that says what is being done."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tvlint.cli import progress as module
from tvlint.cli.progress import Progress

COLUMNS = 60


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard error, of which the other end is given."""
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(COLUMNS))
        yield ours
    os.close(ours)


def line_of(monkeypatch: pytest.MonkeyPatch, what: str, share: float) -> str:
    """What the terminal shows while this is done."""
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with terminal(monkeypatch) as ours, Progress() as progress:
        progress(what, share)
        shown = ""
        patience = threading.Event()
        for _ in range(100):
            shown += os.read(ours, 1 << 16).decode()
            if what[:7] in shown:
                return shown
            patience.wait(0.05)
    return shown


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the system has no pseudo-terminals")
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_long_name_leaves_room_for_the_bar_and_the_time(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    shown = line_of(monkeypatch, f"reading {'long' * 100}.pkl", share)
    line = re.sub(r"\x1b\[\d*m", "", shown).rpartition("\x1b[2K")[2]
    assert re.fullmatch(r". [━╸╺]{24} 0:00:\d\d reading long[long]*…", line)
    assert len(line) <= COLUMNS


def test_nothing_is_shown_where_no_terminal_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with Progress() as progress:
        progress("reading", 0.0)
    assert capsys.readouterr().err == ""
