"""Decide which paths are followed and whose lines are shown: what a commit names must be in the commit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tvlint.checkout.git import GitError
from tvlint.checkout.opening import LONGEST_PATH, content, is_file, is_link, is_there, kept, real_path
from tvlint.checkout.top import METADATA, folder_around, is_within, top_of
from tvlint.checkout.tracking import is_tracked
from tvlint.ir.values import dataclass


@dataclass(frozen=True, slots=True)
class _Step:
    """A link on a path: where it stands and leads, in the checkout at `top` (None: in none)."""

    link: str
    target: str
    top: str | None


def why_not_followed(path: str) -> str:
    """Return why a link on the path, or at its end, is not followed; empty where nothing speaks against it.

    A link in a checkout does not lead out of it or to git's own files, and one that git tracks leads to files that git tracks:
    whoever wrote it chose no more than that.
    """
    steps = _links_of(path)
    if reason := next(filter(None, map(_why_not_inside, steps)), ""):
        return reason
    written = next((step.top for step in steps if step.top is not None and _is_committed(step.link, step.top)), None)
    if written is not None and is_file(path) and not _is_known_tracked(real_path(path), written):
        return "a link to a file that git does not track"
    return ""


def why_not_written(path: str) -> str:
    """Return why nothing is written to the path: a link on it, or at its end, leads out of the checkout that it stands in."""
    return next(filter(None, map(_why_not_inside, _links_of(path))), "")


def _why_not_inside(step: _Step) -> str:
    if step.top is None:
        return ""
    if not is_within(step.target, step.top):
        return "a link that leads out of the checkout"
    if METADATA in step.target[len(step.top) :].split(os.sep):
        return "a link to what git keeps for itself"
    return ""


def _links_of(path: str) -> tuple[_Step, ...]:
    """Return the links that are met on the way to the path, from the root."""
    folder, name = os.path.split(os.path.abspath(path))
    links, here, top = _way_to(folder)
    step = os.path.join(here, name)
    return (*links, _Step(step, real_path(step), top)) if is_link(step) else links


@kept
def _way_to(folder: str) -> tuple[tuple[_Step, ...], str, str | None]:
    """Return the links that are met on the way to the folder, where they lead, and the checkout that this lies in."""
    here, *parts = Path(folder).parts
    links: list[_Step] = []
    top: str | None = None
    for part in parts:
        step = os.path.join(here, part)
        if is_link(step):
            links.append(_Step(step, real_path(step), top))
            step = links[-1].target
        here = step
        if is_there(os.path.join(here, METADATA)):
            top = here
    return tuple(links), here, top


def why_not_named(path: str, document: str) -> str:
    """Return why a file that `document` names is not opened; empty where nothing speaks against it.

    It lies in the folder around the document (`folder_around`), and where git tracks the document, it tracks the file.
    """
    bound, real = folder_around(document), real_path(path)
    if not is_within(real, bound):
        return "it lies outside of the checkout"
    if METADATA in real[len(bound) :].split(os.sep):
        return "git keeps it for itself"
    home = real_path(os.path.dirname(document) or os.curdir)
    top = top_of(home)
    written = os.path.join(home, os.path.basename(document))
    if top is not None and _is_committed(written, top) and not _is_known_tracked(real, top):
        return "git does not track it"
    return ""


def content_named(path: str, document: str, largest: int) -> bytes:
    """Return what a file holds that `document` names. Raises OSError as `content` does, and where it is not to be opened."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "the name holds a NUL character")
    reason = why_not_named(path, document)
    if reason:
        raise OSError(errno.EACCES, reason, path)
    return content(path, largest)


def content_listed(path: str | os.PathLike[str], largest: int) -> bytes:
    """Return what a file holds that lies in a folder which is read. Raises OSError as `content_named` does."""
    text = os.fspath(path)
    return content_named(text, text, largest) if is_link(text) else content(text, largest)


def may_be_shown(path: str, root: str | os.PathLike[str]) -> bool:
    """Return whether lines of a file may be shown though it was not named: git tracks it in the checkout around `root`.

    Outside of every checkout: it lies below `root` and is not hidden.
    """
    if "\0" in path or len(path) > LONGEST_PATH:
        return False
    real, base = real_path(os.path.join(root, path)), real_path(root)
    top = top_of(base)
    if top is not None:
        return METADATA not in real[len(top) :].split(os.sep) and _is_known_tracked(real, top)
    return is_within(real, base) and not any(part.startswith(".") for part in Path(os.path.relpath(real, base)).parts)


def _is_committed(path: str, top: str) -> bool:
    """Return whether a commit may hold the path: git tracks it, or does not tell."""
    try:
        return is_tracked(path, top)
    except GitError:
        return True


def _is_known_tracked(path: str, top: str) -> bool:
    try:
        return is_tracked(path, top)
    except GitError:
        return False
