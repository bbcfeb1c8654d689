"""What a process runs and reads: the files of the program and its data, and the folders that packages are installed in."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from typing import Any

_INSTALLED = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("purelib", "platlib")})
_FOREIGN = (os.path.realpath(sysconfig.get_path("stdlib")) + os.sep, "/proc/", "/sys/", "/dev/", "/etc/")
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Ran:
    """The files that this process opens to read from now on."""

    def __init__(self) -> None:
        self.opened: set[str] = set()
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes) or (arguments[2] or 0) & _WRITES:
            return
        self.opened.add(os.path.realpath(os.fsdecode(arguments[0])))

    def found(self) -> tuple[list[str], list[str]]:
        """Return the files of the program, and the folders of packages that it has used."""
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        every = self.opened | {os.path.realpath(path) for path in paths if isinstance(path, str)}
        folders = sorted({folder for folder in _INSTALLED for path in every if path.startswith(folder)})
        skipped = (*_INSTALLED, *_FOREIGN, _OWN)
        files = [path for path in every if not path.startswith(skipped) and not path.endswith(".pyc") and _is_regular(path)]
        return sorted(files), folders


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
