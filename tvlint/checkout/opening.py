"""The one way to open a file that tvlint did not write itself."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_INSTEAD: ContextVar[Mapping[str, bytes]] = ContextVar("instead", default={})  # noqa: B039 - never changed


_OPENED: ContextVar[set[str] | None] = ContextVar("opened", default=None)


@contextmanager
def recording() -> Iterator[set[str]]:
    """Give the set of the real paths of all files that are opened in the block, also of those that cannot be read."""
    opened: set[str] = set()
    token = _OPENED.set(opened)
    try:
        yield opened
    finally:
        _OPENED.reset(token)


@contextmanager
def instead(contents: Mapping[str, bytes]) -> Iterator[None]:
    """Let the files at the paths hold these contents for every reader in the block, whatever is on disk.

    Inner blocks add to outer ones. So a text that is not saved is checked beside the files that it names and that name it.
    """
    given = {os.path.realpath(path): data for path, data in contents.items()}
    token = _INSTEAD.set({**_INSTEAD.get(), **given})
    try:
        yield
    finally:
        _INSTEAD.reset(token)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether the path is a regular file, or a content is given for it."""
    return os.path.isfile(path) or os.path.realpath(path) in _INSTEAD.get()


def is_empty(path: str | os.PathLike[str]) -> bool:
    """Return whether a file, or the content that is given for it, holds nothing. Raises OSError where there is none."""
    given = _INSTEAD.get()
    real = os.path.realpath(path)
    return not given[real] if real in given else os.path.getsize(path) == 0


def content(path: str | os.PathLike[str], largest: int) -> bytes:
    """Return what a regular file of at most `largest` bytes holds.

    Raises OSError for everything else: pipes and devices, which may never end; files of the system whose size is not told; a
    file that grows while it is read. Nothing is waited for.
    """
    given, opened = _INSTEAD.get(), _OPENED.get()
    if opened is not None:
        opened.add(os.path.realpath(path))
    if given and (real := os.path.realpath(path)) in given:
        if len(given[real]) > largest:
            raise OSError(errno.EFBIG, f"the text is larger than the {largest:,} bytes that are read", os.fspath(path))
        return given[real]
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    try:
        information = os.fstat(handle)
        if not stat.S_ISREG(information.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if information.st_size > largest:
            raise OSError(errno.EFBIG, f"the file is larger than the {largest:,} bytes that are read", os.fspath(path))
        with open(handle, "rb", closefd=False) as file:
            data = file.read(information.st_size + 1)
    finally:
        os.close(handle)
    if len(data) > information.st_size:
        raise OSError(errno.EINVAL, "the file grows while it is read", os.fspath(path))
    return data
