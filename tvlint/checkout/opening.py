"""The one way to open a file that tvlint did not write itself."""

from __future__ import annotations

import errno
import os
import stat


def content(path: str | os.PathLike[str], largest: int) -> bytes:
    """Return what a regular file of at most `largest` bytes holds.

    Raises OSError for everything else: pipes and devices, which may never end; files of the system whose size is not told; a
    file that grows while it is read. Nothing is waited for.
    """
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
