"""Files that depend on others: those that tvlint opens these for, as it reads them.

Names are put together, shared by many files and left out in imports, so nothing but reading tells which file opens which. What
each asked of the disk is kept: the next run reads those again of which an answer is another one. Where many were not read yet,
as in CI, a search of their texts tells first which of them open any script or YAML.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from time import process_time
from typing import TYPE_CHECKING

from tvlint.cache.remember import MANY
from tvlint.checkout.opening import content, recording
from tvlint.ir.values import replace
from tvlint.readers.document import ReadError
from tvlint.readers.opened_by_name import is_opened_by_name, opens_by_name
from tvlint.readers.read import read

if TYPE_CHECKING:
    from tvlint.cache.files import Book
    from tvlint.cache.remember import Cache

LARGEST = 1 << 20
"""Bytes of the largest text that is read for the files that it opens."""
LONG = 20.0
"""Seconds of work that is kept though the budget of the run ends before all files are read: the next run goes on from there."""

_ABOUT_FILES = ("content", "is_file", "is_tracked")
"""Questions by which a file opens another one; of one that is gone it may learn no more than that git does not track it."""


def dependents(files: Iterable[str], others: Collection[str], cache: Cache | None = None) -> list[str]:
    """Return those of the files that depend on one of `others`, themselves left out."""
    wanted = {os.path.realpath(path) for path in others}
    paths = dict.fromkeys(path for path in files if os.path.realpath(path) not in wanted)
    are_named = all(map(is_opened_by_name, wanted.union(others)))
    book = _opened(paths, are_named, cache if len(paths) >= MANY else None)

    def is_wanted(name: str, path: str, *_: str) -> bool:
        return name in _ABOUT_FILES and os.path.realpath(path) in wanted

    asking = {file.path for file in book.asking(is_wanted)}
    return [path for path in paths if path in asking]


def opened_in(cache: Cache, book: Book) -> dict[str, Book]:
    """Return what files open, by shelf, from a book of what was found in them: a check has asked all that reading asks."""
    from tvlint.cache.files import EMPTY, bound

    shelf = _shelf(cache)
    if shelf is None:
        return {}
    known = {file.path for file in book.files}
    old = cache.book(shelf) or EMPTY
    others = replace(old, files=tuple(file for file in old.files if file.path not in known))
    return {shelf: bound((), (replace(book, files=tuple(replace(file, text="") for file in book.files)), others))}


def _shelf(cache: Cache) -> str | None:
    return cache.shelf(("opened", os.getcwd()))


def _opened(paths: Collection[str], are_named: bool, cache: Cache | None) -> Book:
    """Return what reading the files asks of the disk; where what they open is named, of those at least that open by name."""
    from tvlint.cache.files import EMPTY, Writer, answering, bound, digest

    shelf = _shelf(cache) if cache is not None else None
    old = (cache.book(shelf) if cache is not None and shelf is not None else None) or EMPTY
    book = replace(old, files=old.holding(paths, answering()))
    known = {file.path for file in book.files}
    texts = ((path, _text(path)) for path in paths if path not in known)
    unread = [path for path, text in texts if text and (not are_named or opens_by_name(path, text))]
    writer, pages, begun = Writer(os.getpid()), [], process_time()
    for path in unread:
        with recording(digest) as asked, suppress(ReadError, OSError):
            read(path)
        pages.append(writer.page(path, asked, ""))
        if cache is not None and shelf is not None and (path == unread[-1] or process_time() - begun > LONG):
            cache.bind({shelf: bound(pages, (book,))})
            begun = process_time()
    return bound(pages, (book,)) if pages else book


def _text(path: str) -> bytes:
    """Return the text of a file that may name others; empty for plans and data, which do not, and take long to read."""
    with suppress(OSError):
        data = content(path, LARGEST)
        return data if b"\0" not in data[:1024] else b""
    return b""
