"""Paths as a report publishes them."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from tvlint.checkout.opening import LONGEST_PATH
from tvlint.ir.location import Location


def resolved(path: str, root: Path) -> Path | None:
    """Return where `path` really is, links followed; None where no such path can exist."""
    if len(path) > LONGEST_PATH:
        return None
    try:
        return (root / path).resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def relative(path: str, root: Path) -> str:
    """`path` from `root` with forward slashes; as it stands when it is not below `root`. Never starts like a command, `::`."""
    pure = PurePath(_without_returns(path, root))
    path = str(pure)
    if pure.is_absolute():
        for base in (root, resolved(".", root) or root):
            if pure.is_relative_to(base):
                path = str(pure.relative_to(base))
                break
    path = path.replace(os.sep, "/").removeprefix("./")
    return f"./{path}" if path.lstrip().startswith(":") else path


def _without_returns(path: str, root: Path) -> str:
    """Return `scripts/../common.sh` as `common.sh`, unless a link leads elsewhere."""
    short = os.path.normpath(path) if ".." in PurePath(path).parts else path
    return short if short == path or resolved(short, root) == resolved(path, root) else path


def below_root(path: str, root: Path) -> str | None:
    """Return the real path of an existing regular file relative to `root`; None for anything else."""
    real, top = resolved(path, root), resolved(".", root)
    if real is None or top is None or not real.is_relative_to(top):
        return None
    return real.relative_to(top).as_posix() if os.path.isfile(real) else None


_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/-._~+@=,")


def uri(path: str) -> str:
    """Return a relative path as a URI reference: the bytes of its name percent-encoded, never taken for a scheme."""
    try:
        name = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        name = path.encode("utf-8", "backslashreplace")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in name)


def place(location: Location, root: Path) -> str:
    """`path:line:column`, as far as it is known."""
    text = relative(location.path, root)
    if location.line is None:
        return text
    text += f":{location.line}"
    return text if location.column is None else f"{text}:{location.column}"
