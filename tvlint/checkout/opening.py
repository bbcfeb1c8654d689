"""The one way to open a file that tvlint did not write itself, and to ask whether it is there.

What is asked of the disk while a file is read can be recorded: what the reader finds depends on the answers and on nothing
else. So everything that is kept for the next file, or for the next run, is kept with the questions that it rests on.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

Question = tuple[str, ...]
"""The name of the function that was asked, and its arguments, the first a path."""

LONGEST_PATH = 4096
"""Characters of the longest path that a file has; what calls itself longer is looked for nowhere, part by part."""

_INSTEAD: ContextVar[Mapping[str, bytes]] = ContextVar("instead", default={})  # noqa: B039 - never changed
_ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)
_DIGEST: ContextVar[Callable[[bytes], str] | None] = ContextVar("digest", default=None)
_KEPT: dict[object, _Kept] = {}
"""What `kept` functions have returned."""


class Asked:
    """Questions that were asked of the disk, with answers, and in `others` those of each part and kept value that was taken."""

    def __init__(self) -> None:
        self.questions: dict[tuple[Question, Hashable], None] = {}
        self.others: dict[Asked, None] = {}

    def all(self) -> dict[Question, Hashable]:
        """Return every question with its answer."""
        left, seen = [self], {self}
        found: dict[Question, Hashable] = {}
        while left:
            asked = left.pop()
            found.update(asked.questions.keys())
            left += [other for other in asked.others if other not in seen]
            seen.update(asked.others)
        return found


class _Kept:
    """What a `kept` function has returned, and what was asked for it."""

    def __init__(self, value: object, asked: Asked) -> None:
        self.value = value
        self.asked = asked

    def rests_on(self, given: Mapping[str, bytes]) -> bool:
        """Return whether a file was asked for of which a content is given."""
        return bool(given) and not self._paths.isdisjoint(given)

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(_real(path) for path in {question[1] for question in self.asked.all()})


@contextmanager
def recording(digest: Callable[[bytes], str] | None = None) -> Iterator[Asked]:
    """Give what is asked of the disk in the block, also of what cannot be read, with the answers.

    The answer to `content` is a digest of what was read, where one is given, else what tells if it was written since.
    """
    asked = Asked()
    outer = _ASKED.get()
    token = _ASKED.set(asked)
    digesting = _DIGEST.set(digest or _DIGEST.get())
    try:
        yield asked
    finally:
        _DIGEST.reset(digesting)
        _ASKED.reset(token)
        if outer is not None:
            outer.others[asked] = None


def kept(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, which is asked once for the same arguments until `forget`, as long as no content is given for a
    file that it rests on. What it asks of the disk counts as asked each time.
    """

    @wraps(function)
    def found(*arguments: P.args, **named: P.kwargs) -> T:
        key = (function, arguments, tuple(named.items()))
        known = _KEPT.get(key)
        given = _INSTEAD.get()
        if known is not None and not known.rests_on(given):
            outer = _ASKED.get()
            if outer is not None:
                outer.others[known.asked] = None
            return known.value  # type: ignore[return-value]
        with recording() as asked:
            value = function(*arguments, **named)
        new = _Kept(value, asked)
        if not new.rests_on(given):
            _KEPT[key] = new
        return value

    return found


def forget() -> None:
    """Forget what `kept` functions have found: files were written, or may have been."""
    _KEPT.clear()


def noted(name: str, path: str | os.PathLike[str], answer: H, *more: str) -> H:
    """Return the answer to a question, and record it."""
    asked = _ASKED.get()
    if asked is not None:
        question = (name, os.fspath(path), *more)
        asked.questions[(question, answer)] = None
    return answer


@contextmanager
def answered(name: str, path: str | os.PathLike[str], *more: str) -> Iterator[None]:
    """Record as the answer to a question that the block raises an error, where it does."""
    try:
        yield
    except (OSError, ValueError) as error:
        noted(name, path, failure(error), *more)
        raise


def failure(error: OSError | ValueError) -> str:
    """Return the answer to a question that ends with the error."""
    return f"{type(error).__name__} {error.errno if isinstance(error, OSError) else ''}"


@contextmanager
def instead(contents: Mapping[str, bytes]) -> Iterator[None]:
    """Let the files at the paths hold these contents for every reader in the block, whatever is on disk.

    Inner blocks add to outer ones. So a text that is not saved is checked beside the files that it names and that name it.
    """
    given = {_real(path): data for path, data in contents.items()}
    token = _INSTEAD.set({**_INSTEAD.get(), **given})
    try:
        yield
    finally:
        _INSTEAD.reset(token)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether the path is a regular file, or a content is given for it."""
    given = _INSTEAD.get()
    return noted("is_file", path, os.path.isfile(path) or (bool(given) and _real(path) in given))


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether the path is a folder."""
    return noted("is_folder", path, os.path.isdir(path))


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether anything has the path, also a link that leads nowhere."""
    return noted("is_there", path, os.path.lexists(path))


def is_link(path: str | os.PathLike[str]) -> bool:
    """Return whether the path is a link."""
    return noted("is_link", path, os.path.islink(path))


def real_path(path: str | os.PathLike[str]) -> str:
    """Return the path without links."""
    folder, name = os.path.split(os.fspath(path))
    if not os.path.isabs(folder) or name in ("", os.curdir, os.pardir) or "\0" in name:
        return noted("real_path", path, _real(path))
    real = os.path.join(_real_folder(folder), name)
    return noted("real_path", path, os.path.realpath(real) if os.path.islink(real) else real)


@kept
def _real_folder(folder: str) -> str:
    return noted("real_path", folder, _real(folder))


def _real(path: str | os.PathLike[str]) -> str:
    """Return the path without links; as it is where no file can have it."""
    try:
        return os.path.realpath(os.fspath(path))
    except ValueError:
        return os.fspath(path)


def names_in(folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the names in a folder that somebody named, in order. Raises OSError where it cannot be listed."""
    with answered("names_in", folder):
        return noted("names_in", folder, tuple(sorted(os.listdir(folder))))


def names_ending(folder: str | os.PathLike[str], ending: str) -> tuple[str, ...]:
    """Return the names in a folder that end so, in order; none where it cannot be listed, or is not there."""
    try:
        found = tuple(sorted(name for name in os.listdir(folder) if name.endswith(ending)))
    except (OSError, ValueError):
        found = ()
    return noted("names_ending", folder, found, ending)


def is_empty(path: str | os.PathLike[str]) -> bool:
    """Return whether a file, or the content that is given for it, holds nothing. Raises OSError where there is none."""
    given = _INSTEAD.get()
    real = os.path.realpath(path)
    return not given[real] if real in given else os.path.getsize(path) == 0


def content(path: str | os.PathLike[str], largest: int) -> bytes:
    """Return what a regular file of at most `largest` bytes holds.

    Raises OSError for everything else: pipes and devices, which may never end; files of the system whose size is not given; a
    file that grows while it is read. Nothing is waited for.
    """
    given = _INSTEAD.get()
    if given and (real := os.path.realpath(path)) in given:
        noted("content", path, "given")
        if len(given[real]) > largest:
            raise OSError(errno.EFBIG, f"the text is larger than the {largest:,} bytes that are read", os.fspath(path))
        return given[real]
    with answered("content", path):
        data, information = _read(path, largest)
    digest = _DIGEST.get()
    noted("content", path, stamp(information) if digest is None else digest(data))
    return data


def _read(path: str | os.PathLike[str], largest: int) -> tuple[bytes, os.stat_result]:
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
    return data, information


def stamp(information: os.stat_result) -> tuple[int, ...]:
    """Return what tells whether a file was written since."""
    return (information.st_dev, information.st_ino, information.st_size, information.st_mtime_ns, information.st_ctime_ns)
