"""List the files that git tracks."""

from __future__ import annotations

import os
from functools import lru_cache

from tvlint.checkout.git import GitError, ask
from tvlint.checkout.opening import content, noted
from tvlint.checkout.top import METADATA, is_within, top_of


def is_tracked(path: str, top: str) -> bool:
    """Return whether git tracks a path in the checkout at `top`, or in a submodule of it; its links are not followed.

    Where `.git` is no repository, every path is the checkout's own but those in `.git`. Raises `GitError` where git does not
    tell.
    """
    try:
        return noted("is_tracked", path, _is_tracked(path, top), top)
    except GitError:
        noted("is_tracked", path, "no answer", top)
        raise


def _is_tracked(path: str, top: str) -> bool:
    if path == top or not is_within(path, top) or METADATA in path[len(top) :].split(os.sep):
        return False
    if not is_repository(top):
        return True
    if os.path.relpath(path, top).replace(os.sep, "/") in tracked(top):
        return True
    inner = top_of(os.path.dirname(path))
    if inner is None or inner == top or not is_within(inner, top):
        return False
    return is_tracked(inner, top) and is_tracked(path, inner)


def tracked(top: str) -> frozenset[str]:
    """Return the paths that the index of the checkout holds, from its top, with `/`. Raises `GitError`."""
    return _tracked(top, _stamp(top))


@lru_cache(maxsize=8)
def _tracked(top: str, stamp: object) -> frozenset[str]:
    return frozenset(os.fsdecode(name) for name in ask(top, "ls-files", "-z").split(b"\0") if name)


def _stamp(top: str) -> object:
    """Return what changes whenever the index does; a new object, which equals no other, where there is no index to be seen."""
    try:
        information = os.stat(os.path.join(_metadata_of(top), "index"))
    except (OSError, ValueError):
        return object()
    return (information.st_mtime_ns, information.st_size, information.st_ino, os.environ.get("PATH"))


def is_repository(top: str) -> bool:
    """Return whether `.git` there is more than a folder of that name."""
    try:
        os.stat(os.path.join(_metadata_of(top), "HEAD"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return True


def _metadata_of(top: str) -> str:
    """Return the folder that git has its files in: `.git`, or what the file `.git` of a linked work tree or submodule names."""
    place = os.path.join(top, METADATA)
    try:
        text = content(place, 4096)
    except OSError:
        return place
    return os.path.join(top, os.fsdecode(text.removeprefix(b"gitdir:").strip()))
