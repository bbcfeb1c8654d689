"""A folder of signed entries: what is not wholly and exactly what was put there under that address is not there."""

from __future__ import annotations

import hmac
import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

FOLDER = ".tvlint_cache"
LARGEST_ENTRY = 32 << 20
"""Bytes of the largest entry that is written or read."""
LARGEST_FOLDER = 256 << 20
"""Bytes of all entries; beyond it those that were not used for longest go."""
MOST_FILES = 4096
"""Entries of the folder; beyond it those that were not used for longest go."""
_MOST_LISTED = 100_000
_ABANDONED = 3600.0
"""Seconds after which a temporary file is that of a run that was killed."""
_OURS = re.compile(r"[0-9a-f]{64}\.entry|\.[0-9a-f]{16}\.new", re.ASCII)
_OPEN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# A cache of tvlint; see docs/cache.md. It may be deleted at any time.\n"


@dataclass(frozen=True, slots=True)
class Store:
    """The entries in `folder` that are signed with `key`."""

    folder: str
    key: bytes

    def get(self, address: str) -> bytes | None:
        """Return what was put under the address; None where there is nothing, or anything else."""
        try:
            if not stat.S_ISDIR(os.lstat(self.folder).st_mode):
                return None
            signed = read_regular(self._path(address), LARGEST_ENTRY)
            if signed is None:
                return None
            content = signed[65:]
            if not hmac.compare_digest(signed[:65], self._signature(address, content)):
                return None
            with suppress(OSError, NotImplementedError):
                os.utime(self._path(address), follow_symlinks=False)
            return content
        except OSError:
            return None

    def put(self, address: str, content: bytes) -> None:
        """Keep the content under the address, wholly or not at all; where it cannot be kept, nothing happens."""
        if len(content) + 65 > LARGEST_ENTRY:
            return
        temporary = os.path.join(self.folder, f".{os.urandom(8).hex()}.new")
        try:
            if not self._prepared():
                return
            _create(temporary, self._signature(address, content) + content)
            os.replace(temporary, self._path(address))
            self._evict()
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)

    def _path(self, address: str) -> str:
        return os.path.join(self.folder, f"{address}.entry")

    def _signature(self, address: str, content: bytes) -> bytes:
        message = b"tvlint cache entry\0" + address.encode("ascii") + b"\0" + content
        return hmac.new(self.key, message, sha256).hexdigest().encode("ascii") + b"\n"

    def _prepared(self) -> bool:
        """Return whether the folder is one; a new one is left out of version control and of backups."""
        with suppress(FileExistsError):
            os.mkdir(self.folder)
        if not stat.S_ISDIR(os.lstat(self.folder).st_mode):
            return False
        for name, text in ((".gitignore", "*\n"), ("CACHEDIR.TAG", _TAG)):
            with suppress(FileExistsError):
                _create(os.path.join(self.folder, name), text.encode("ascii"))
        return True

    def _evict(self) -> None:
        """Remove what killed runs have left and, where there is too much, what was not used for longest."""
        now = time.time()
        kept: list[tuple[float, int, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in islice(entries, _MOST_LISTED):
                if not _OURS.fullmatch(entry.name):
                    continue
                information = entry.stat(follow_symlinks=False)
                if entry.name.endswith(".entry"):
                    kept.append((information.st_mtime, information.st_size, entry.path))
                elif now - information.st_mtime > _ABANDONED:
                    _remove(entry.path)
        size, count = sum(size for _, size, _ in kept), len(kept)
        if size <= LARGEST_FOLDER and count <= MOST_FILES:
            return
        for _, size_of_file, path in sorted(kept):
            _remove(path)
            size, count = size - size_of_file, count - 1
            if size <= LARGEST_FOLDER * 3 // 4 and count <= MOST_FILES * 3 // 4:
                return


def read_regular(path: str, largest: int) -> bytes | None:
    """Return the content of a regular file of at most so many bytes; None for another. A link is not followed, a pipe not
    waited for.

    Raises OSError where it cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | _OPEN | getattr(os, "O_NONBLOCK", 0))
    try:
        information = os.fstat(handle)
        if not stat.S_ISREG(information.st_mode) or information.st_size > largest:
            return None
        with open(handle, "rb", closefd=False) as file:
            data = file.read(largest + 1)
        return data if len(data) <= largest else None
    finally:
        os.close(handle)


def _create(path: str, content: bytes) -> None:
    """A new file with the content; one that exists, were it a link to nowhere, is an error."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o666), "wb") as file:
        file.write(content)


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
