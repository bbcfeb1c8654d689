"""Files as they were in a revision of the repository."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

MOST_FILES = 50_000
LARGEST_FILE = 1 << 20
"""Bytes of the largest file that is taken out of a revision; configurations and what they include are smaller."""
LARGEST_TREE = 512 << 20


class RevisionError(Exception):
    """A revision that cannot be had; says why."""


def repository() -> Path:
    """The root of the repository around the current folder."""
    try:
        return Path(_git("rev-parse", "--show-toplevel").decode().rstrip("\n"))
    except RevisionError:
        raise RevisionError("not in a git repository") from None


def is_revision(name: str) -> bool:
    """Whether the repository knows `name` as a commit."""
    try:
        return bool(commit(name))
    except RevisionError:
        return False


def commit(name: str) -> str:
    """The commit that `name` is."""
    if not name or name.startswith("-"):
        raise RevisionError(f"no revision `{name}`")
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").decode().strip()
    except RevisionError:
        raise RevisionError(f"no revision `{name}`") from None


def changed_files(before: str, after: str | None, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The files under `paths` that are there before and after and differ, from the repository's root; `after` None: on disk."""
    revisions = (before,) if after is None else (before, after)
    listed = _git("diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--diff-filter=M", *revisions, "--", *paths)
    return tuple(os.fsdecode(name) for name in listed.split(b"\0") if name)


def take_out(revision: str, folder: Path) -> None:
    """Write the regular files of a revision into an empty folder; links, large files and odd names are left out."""
    listed = _git("ls-tree", "-r", "-z", "-l", "--full-tree", revision)
    wanted: list[tuple[bytes, str]] = []
    total = 0
    for entry in listed.split(b"\0"):
        head, _, name = entry.partition(b"\t")
        parts = head.split()
        if len(parts) != 4 or parts[0] not in (b"100644", b"100755") or not parts[3].isdigit():
            continue
        path = PurePosixPath(os.fsdecode(name))
        size = int(parts[3])
        total += size if size <= LARGEST_FILE else 0
        odd = path.is_absolute() or {"..", ".git"} & set(path.parts)
        if size <= LARGEST_FILE and not odd:
            wanted.append((parts[2], str(path)))
    if len(wanted) > MOST_FILES or total > LARGEST_TREE:
        raise RevisionError("the revision holds too many files to compare; compare two files instead")
    _write(wanted, folder)


def _write(wanted: list[tuple[bytes, str]], folder: Path) -> None:
    command = ["git", "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("pipes were asked for")
        for blob, name in wanted:
            process.stdin.write(blob + b"\n")
            process.stdin.flush()
            head = process.stdout.readline().split()
            if len(head) != 3:
                raise RevisionError(f"`{name}` cannot be read from the repository")
            content = process.stdout.read(int(head[2]))
            process.stdout.read(1)
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _git(*arguments: str) -> bytes:
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *arguments]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise RevisionError(f"git {arguments[0]} fails") from error
