"""Other files that a file names: only such as lie in its own folder or below, and only regular ones within bounds."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def content_beside(path: str, name: str, largest: int) -> tuple[str, bytes] | None:
    """The path and content of the file that `name` names from the folder of `path`.

    None where it is absolute, leads out of that folder (links followed), is no regular file, or is larger than `largest`.
    """
    if not name or "\0" in name or os.path.isabs(name):
        return None
    folder = os.path.dirname(path) or os.curdir
    wanted = os.path.normpath(os.path.join(folder, name))
    return content_within(folder, wanted, largest)


def content_within(folder: str, wanted: str, largest: int) -> tuple[str, bytes] | None:
    """The path and content of the file `wanted`; None where it does not lie in `folder`, or as above."""
    try:
        inside = os.path.realpath(folder)
        if os.path.commonpath((inside, os.path.realpath(wanted))) != inside:
            return None
        information = os.stat(wanted)
        if not stat.S_ISREG(information.st_mode) or information.st_size > largest:
            return None
        return wanted, Path(wanted).read_bytes()
    except (OSError, ValueError):
        return None
