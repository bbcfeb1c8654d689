"""The key that entries are signed with: it never lies where the files under judgement lie."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from tvlint.cache.store import read_regular

VARIABLE = "TVLINT_CACHE_KEY"
SHORTEST = 16
"""Characters of the shortest `$TVLINT_CACHE_KEY` that is a key; a shorter one, such as `off`, means that there is none."""
LENGTH = 32
"""Bytes of a key file."""
_NAME = "cache-key"


def secret(guarded: tuple[Path, ...]) -> bytes | None:
    """Return the key of this user or of this build; None where there is none and none can be made.

    `$TVLINT_CACHE_KEY` where it is set, else the key file in the user's state folder, which is made at first use. `guarded`
    are folders that may hold what somebody else wrote: a key that lies in one of them, or in the repository around it, could
    be theirs and is not used.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        return hashlib.sha256(b"tvlint cache key\0" + os.fsencode(text)).digest() if len(text) >= SHORTEST else None
    folder = _state_folder()
    if folder is None:
        return None
    try:
        real = folder.resolve()
        if any(real.is_relative_to(_repository(each.resolve())) for each in guarded):
            return None
        path = real / _NAME
        if not os.path.lexists(path):
            _make(path)
        return _read(path)
    except (OSError, ValueError, RuntimeError):
        return None


def _state_folder() -> Path | None:
    """Return where programs keep what they remember for this user; None where the system does not tell."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Application Support")
    else:
        base = os.environ.get("XDG_STATE_HOME", "")
        base = base if os.path.isabs(base) else os.path.expanduser("~/.local/state")
    return Path(base) / "tvlint" if os.path.isabs(base) else None


def _repository(folder: Path) -> Path:
    """Return the top of the repository that holds the folder; the folder itself outside of one."""
    return next((each for each in (folder, *folder.parents) if os.path.exists(each / ".git")), folder)


def _make(path: Path) -> None:
    """A new key is in the file wholly, or there is no file; of two that are made at a time, one stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{_NAME}.{os.urandom(8).hex()}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with open(handle, "wb") as file:
            file.write(os.urandom(LENGTH))
        os.replace(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def _read(path: Path) -> bytes | None:
    """Return the key in the file; None where the file is not this user's alone, or no key."""
    information = os.lstat(path)
    if sys.platform != "win32" and (information.st_uid != os.geteuid() or information.st_mode & 0o077):
        return None
    key = read_regular(str(path), LENGTH)
    return key if key is not None and len(key) == LENGTH else None
