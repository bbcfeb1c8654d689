"""The line of the user's code that runs."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from types import FrameType, TracebackType

import torch
import typing_extensions

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_DECORATORS = os.path.abspath(typing_extensions.__file__)
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = os.path.join(_STANDARD, "site-packages") + os.sep
_ENGINE = _TORCH + os.path.join("autograd", "graph.py")


class Places:
    """The lines that operators were issued from, each numbered once."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], int] = {}
        self.new: list[dict[str, object]] = []
        self.foreign: dict[str, bool] = {}

    def current(self) -> int | None:
        """Return the number of the innermost line outside torch; None inside the autograd engine's own operators."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            if path == _ENGINE:
                return None
            if not self.is_foreign(path):
                return self._number(path, frame.f_lineno)
            frame = frame.f_back
        return None

    def is_foreign(self, path: str) -> bool:
        """Return whether the file is torch's, Python's own or ours."""
        known = self.foreign.get(path)
        if known is None:
            whole = os.path.abspath(path)
            standard = whole.startswith(_STANDARD) and not whole.startswith(_PACKAGES)
            known = path.startswith("<") or whole.startswith((_TORCH, _OWN)) or whole == _DECORATORS or standard
            self.foreign[path] = known
        return known

    def _number(self, path: str, line: int) -> int:
        number = self.numbers.get((path, line))
        if number is None:
            number = self.numbers[path, line] = len(self.numbers)
            text = linecache.getline(path, line).strip()[:200]
            self.new.append({"place": number, "path": _short(path), "line": line, "text": text})
        return number


def _short(path: str) -> str:
    """Return the path from the working folder, or from the folder that packages are installed in."""
    whole = os.path.abspath(path)
    here = os.getcwd() + os.sep
    if whole.startswith(here):
        return whole.removeprefix(here)
    for folder in sorted(sys.path, key=len, reverse=True):
        if folder and whole.startswith(folder.rstrip(os.sep) + os.sep):
            return whole.removeprefix(folder.rstrip(os.sep) + os.sep)
    return os.path.basename(whole)


def own_line(trace: TracebackType | None) -> tuple[str, int] | None:
    """Return the innermost line outside torch and this package that an error went through; None where there is none."""
    places, found = Places(), None
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not places.is_foreign(path):
            found = (_short(path), trace.tb_lineno)
        trace = trace.tb_next
    return found
