"""Find the top of a checkout."""

from __future__ import annotations

import os

from tvlint.checkout.opening import is_there, kept, real_path

METADATA = ".git"
"""The name that git keeps its own files under; no commit can hold a file of this name."""


def top_of(path: str | os.PathLike[str]) -> str | None:
    """Return the real path of the nearest folder at or above `path`, links followed, that git has its files in.

    None outside of every checkout. A bare repository is no checkout: a commit can hold the files of one.
    """
    return _top_around(real_path(path))


@kept
def _top_around(folder: str) -> str | None:
    while True:
        if is_there(os.path.join(folder, METADATA)):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def is_within(path: str, folder: str) -> bool:
    """Return whether a real path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def folder_around(path: str) -> str:
    """Return the real path of the folder that bounds what a file may name.

    It is the checkout that the file lies in; outside of every checkout the current folder where that holds the file, else the
    file's own folder.
    """
    folder = real_path(os.path.dirname(path) or os.curdir)
    current = real_path(os.curdir)
    return top_of(folder) or (current if is_within(folder, current) else folder)
