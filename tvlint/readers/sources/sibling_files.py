"""Other files that a file names: only such as lie in a given folder or below, and may be opened for that file."""

from __future__ import annotations

import os

from tvlint.checkout.following import content_named
from tvlint.checkout.opening import real_path
from tvlint.checkout.top import is_within


def content_beside(path: str, name: str, largest: int) -> tuple[str, bytes] | None:
    """Return the path and content of the file that `name` names from the folder of `path`.

    None where it is absolute, leads out of that folder (links followed), is no regular file, is larger than `largest`, or is
    not to be opened for the file at `path`.
    """
    if not name or "\0" in name or os.path.isabs(name):
        return None
    folder = os.path.dirname(path) or os.curdir
    return content_within(folder, os.path.normpath(os.path.join(folder, name)), path, largest)


def content_within(folder: str, wanted: str, document: str, largest: int) -> tuple[str, bytes] | None:
    """Return the path and content of the file `wanted` that `document` names; None outside of `folder`, or as above."""
    try:
        if not is_within(real_path(wanted), real_path(folder)):
            return None
        return wanted, content_named(wanted, document, largest)
    except (OSError, ValueError):
        return None
