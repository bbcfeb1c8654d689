"""Files as they were in a revision of the checkout, read as objects: no work tree, no filter, no hook."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from tvlint.checkout.following import why_not_followed
from tvlint.checkout.git import GitError, GitUnusable, ask, read_blobs
from tvlint.checkout.opening import content
from tvlint.checkout.top import METADATA, top_of
from tvlint.ir.values import dataclass

MOST_FILES = 50_000
LARGEST_FILE = 1 << 20
"""Bytes of the largest file that is taken out of a revision; configurations and what they include are smaller."""
LARGEST_TREE = 512 << 20

_SHORTENED = ("refs/{}", "refs/tags/{}", "refs/heads/{}", "refs/remotes/{}", "refs/remotes/{}/HEAD")


class RevisionError(Exception):
    """A revision that cannot be had; says why, and `help` what to do."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.help = help


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a revision; `size` is None for links and submodules, which are not compared."""

    blob: bytes
    size: int | None


def checkout() -> str:
    """Return the top of the checkout around the current folder."""
    top = top_of(os.curdir)
    if top is None:
        raise RevisionError("not in a git repository")
    return top


def is_revision(name: str) -> bool:
    """Return whether the checkout around the current folder, if there is one, knows `name` as a commit."""
    if top_of(os.curdir) is None:
        return False
    try:
        return bool(commit(name))
    except UnknownRevision:
        return False


class UnknownRevision(RevisionError):
    """A name that the checkout does not know."""

    def __init__(self, message: str) -> None:
        fetched = "`git fetch` brings those of the remote (in GitHub Actions `fetch-depth: 0`)"
        super().__init__(message, f"name a branch, a tag or a commit that this clone has; {fetched}")


def commit(name: str) -> str:
    """Return the commit that `name` is. Raises `RevisionError`."""
    if not name or name.startswith("-") or not name.isprintable():
        raise UnknownRevision(f"no revision `{name}`")
    try:
        found = _commit(name)
        several = _refs(name)
        if len({_commit(ref) for ref in several}) > 1:
            help = f"give the whole name of the one that is meant, such as `{several[-1]}`"
            raise RevisionError(f"`{name}` stands for different commits: {', '.join(f'`{ref}`' for ref in several)}", help)
        return found
    except GitUnusable as error:
        raise RevisionError(str(error), error.help) from None
    except GitError:
        raise UnknownRevision(f"no revision `{name}`") from None


def _commit(name: str) -> str:
    return ask(checkout(), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").decode().strip()


def _refs(name: str) -> list[str]:
    """Return the refs that `name` may be short for, in the order in which git takes them: the first one, without a word."""
    short = re.split(r"[~^:]|@\{", name)[0]
    if short in ("", "@", "HEAD") or short.startswith("refs/"):
        return []
    known = [pattern.format(short) for pattern in _SHORTENED]
    there = ask(checkout(), "for-each-ref", "--format=%(refname)", *known).decode(errors="replace").splitlines()
    return [ref for ref in known if ref in there]


def entries(commit: str) -> dict[str, Entry]:
    """Return the files of a commit by path from the top."""
    try:
        listed = ask(checkout(), "ls-tree", "-r", "-z", "-l", "--full-tree", commit)
    except GitError as error:
        raise RevisionError(str(error)) from None
    found: dict[str, Entry] = {}
    for entry in filter(None, listed.split(b"\0")):
        head, _, name = entry.partition(b"\t")
        mode, _, blob, size = head.split()
        regular = mode in (b"100644", b"100755") and size.isdigit()
        found[os.fsdecode(name)] = Entry(blob, int(size) if regular else None)
    return found


def changed_files(before: dict[str, Entry], after: dict[str, Entry] | None, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the regular files under `paths` that are there before and after and differ; `after` None: on disk.

    Raises `RevisionError` for a path that is in neither.
    """
    within = _within(paths)
    known = before.keys() | (after or {}).keys()
    for path, name in zip(paths, within, strict=True):
        if not os.path.lexists(path) and not any(_lies_in(each_name, name) for each_name in known):
            raise RevisionError(f"no `{path}` in any of the versions", "name files or folders that are in one of them")
    top = checkout()
    folders = {os.path.dirname(name) for name in before} if after is None else set()
    left = {folder for folder in folders if why_not_followed(os.path.join(top, folder))}

    def differs(name: str, old: Entry) -> bool:
        if old.size is None or old.size > LARGEST_FILE or (within and not any(_lies_in(name, each) for each in within)):
            return False
        if after is None:
            return os.path.dirname(name) not in left and _differs_on_disk(os.path.join(top, name), old.blob)
        new = after.get(name)
        return new is not None and new.size is not None and new.blob != old.blob

    return tuple(name for name, old in before.items() if differs(name, old))


def came_and_gone(
    before: dict[str, Entry], after: dict[str, Entry] | None, paths: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the regular files under `paths` that are only there after, and those only there before; `after` None: on disk."""
    top, within = checkout(), _within(paths)
    if after is None:
        listed = ask(top, "ls-files", "-z", "-c", "-o", "--exclude-standard")
        names = {os.fsdecode(name) for name in listed.split(b"\0") if name}
        there = {name for name in names if os.path.isfile(path := os.path.join(top, name)) and not os.path.islink(path)}
        came = {name for name in there - before.keys() if not why_not_followed(os.path.join(top, os.path.dirname(name)))}
        gone = {name for name in before if not os.path.lexists(os.path.join(top, name))}
    else:
        came, gone = {name for name in after.keys() - before.keys() if _is_small(after[name])}, before.keys() - after.keys()
    left = {name for name in gone if _is_small(before[name])}
    return tuple(sorted(filter(_lying_in(within), came))), tuple(sorted(filter(_lying_in(within), left)))


def _within(paths: Iterable[str]) -> list[str]:
    return [_from_top(path) for path in paths]


def _lying_in(folders: list[str]) -> Callable[[str], bool]:
    return lambda name: not folders or any(_lies_in(name, each) for each in folders)


def _is_small(entry: Entry) -> bool:
    return entry.size is not None and entry.size <= LARGEST_FILE


def _from_top(path: str) -> str:
    return os.path.relpath(os.path.abspath(path), checkout()).replace(os.sep, "/")


def _lies_in(name: str, folder: str) -> bool:
    return folder in (os.curdir, name) or name.startswith(f"{folder}/")


def _differs_on_disk(path: str, blob: bytes) -> bool:
    """Return whether a regular file is there and holds something else; how lines end is git's to convert, and no difference."""
    if os.path.islink(path):
        return False
    try:
        data = content(path, LARGEST_FILE)
    except OSError:
        return False
    return blob not in (_name_of_blob(data, len(blob)), _name_of_blob(data.replace(b"\r\n", b"\n"), len(blob)))


def _name_of_blob(data: bytes, length: int) -> bytes:
    """Return the name that git gives to a file with this content, in a repository whose names have that length."""
    import hashlib

    make: Callable[..., hashlib._Hash] = hashlib.sha1 if length == 40 else hashlib.sha256
    return make(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest().encode()


def take_out(files: dict[str, Entry], folder: Path) -> None:
    """Write the regular files of a revision into a new folder; links, large files and odd names are left out.

    The folder is a checkout of its own, so that its files lead to each other and to nothing else.
    """
    wanted = {name: entry for name, entry in files.items() if _is_wanted(name, entry)}
    if len(wanted) > MOST_FILES or sum(entry.size or 0 for entry in wanted.values()) > LARGEST_TREE:
        raise RevisionError("the revision holds too many files to compare; compare two files instead")
    (folder / METADATA).mkdir(parents=True)
    _write(wanted, folder)


def _is_wanted(name: str, entry: Entry) -> bool:
    path = PurePosixPath(name)
    odd = path.is_absolute() or {"..", METADATA} & {part.lower() for part in path.parts}
    return entry.size is not None and entry.size <= LARGEST_FILE and not odd


def _write(wanted: dict[str, Entry], folder: Path) -> None:
    contents: Iterable[bytes | None] = read_blobs(checkout(), (entry.blob for entry in wanted.values()))
    for name, data in zip(wanted, contents, strict=True):
        if data is None:
            raise RevisionError(f"`{name}` cannot be read from the repository")
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
