"""A line on the terminal that says what is being done, for anything that takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from tvlint.reporters.escape.visible import visible

if TYPE_CHECKING:
    import threading

    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PATIENCE = 1.0
"""Seconds of silence."""

_BAR = 24
_REST = _BAR + len("s 0:00:00   ")
"""The columns of a line that its words leave to the bar, the spinner, the time and the space between them."""


class Progress:
    """Shown on stderr, only on a terminal, only after a second; gone when the work is done."""

    def __init__(self) -> None:
        self._state = ("starting", 0.0)
        self._started = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._lock: threading.Lock | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            import threading

            self._lock = threading.Lock()
            self._timer = threading.Timer(PATIENCE, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is None or self._lock is None:
            return
        self._timer.cancel()
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
            self._timer = None
            self._bar = None

    def __call__(self, what: str, share: float) -> None:
        what = visible(what)
        self._state = (what, share)
        if self._bar is not None and self._task is not None:
            _update(self._bar, self._task, what, share)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        assert self._lock is not None
        with self._lock:
            if self._timer is None:
                return
            words = TextColumn("{task.description}", markup=False)
            columns = (SpinnerColumn(), BarColumn(_BAR), TimeElapsedColumn(), words)
            console = Console(stderr=True)
            console.show_cursor = _keep_cursor  # type: ignore[method-assign]
            bar = Bar(*columns, console=console, transient=True, refresh_per_second=8)
            self._task = bar.add_task("")
            bar.tasks[0].start_time = bar.get_time() - (time.monotonic() - self._started)
            self._bar = bar
            _update(bar, self._task, *self._state)  # after `_bar`: what is reported from now on is reported to it
            bar.start()


def _update(bar: Bar, task: TaskID, what: str, share: float) -> None:
    """Show what is done; a bar that only moves where it is not known yet which share of it is done."""
    from rich.text import Text

    words = Text(what)
    words.truncate(max(bar.console.width - _REST, 1), overflow="ellipsis")
    bar.update(task, description=words.plain, total=1.0 if share else None, completed=share)


def _keep_cursor(show: bool = True) -> bool:
    """A cursor that is never hidden needs no one to bring it back when Ctrl-C ends the process."""
    return False
