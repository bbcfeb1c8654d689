"""Files that depend on others: those that tvlint opens these for, as it reads them.

Names are put together, shared by many files and left out in imports, so nothing but reading tells which file opens which. What
each asked of the disk is kept: the next run reads those again of which an answer is another one.
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
from tvlint.readers.read import read

if TYPE_CHECKING:
    from tvlint.cache.files import Book
    from tvlint.cache.remember import Cache

LARGEST = 1 << 20
"""Bytes of the largest text that is read for the files that it opens."""
LONG = 20.0
"""Seconds of work that is kept though the budget of the run ends before all files are read: the next run goes on from there."""


def dependents(files: Iterable[str], others: Collection[str], cache: Cache | None = None) -> list[str]:
    """Return those of the files that depend on one of `others`, themselves left out."""
    wanted = {os.path.realpath(path) for path in others}
    paths = dict.fromkeys(path for path in files if os.path.realpath(path) not in wanted)
    book = _opened(paths, cache if len(paths) >= MANY else None)

    def is_wanted(name: str, path: str, *_: str) -> bool:
        return name in ("content", "is_file") and os.path.realpath(path) in wanted

    asking = {file.path for file in book.asking(is_wanted)}
    return [path for path in paths if path in asking]


def remember(cache: Cache, book: Book) -> None:
    """Remember what files open, by a book of what was found in them: a check has asked all that reading asks."""
    from tvlint.cache.files import EMPTY, bound

    shelf = _shelf(cache)
    if shelf is None:
        return
    known = {file.path for file in book.files}
    old = cache.book(shelf) or EMPTY
    others = replace(old, files=tuple(file for file in old.files if file.path not in known))
    cache.bind(shelf, bound((), (replace(book, files=tuple(replace(file, text="") for file in book.files)), others)))


def _shelf(cache: Cache) -> str | None:
    return cache.shelf(("opened", os.getcwd()))


def _opened(paths: Collection[str], cache: Cache | None) -> Book:
    """Return what reading each of the files asks of the disk."""
    from tvlint.cache.files import EMPTY, Writer, answering, bound, digest

    shelf = _shelf(cache) if cache is not None else None
    old = (cache.book(shelf) if cache is not None and shelf is not None else None) or EMPTY
    book = replace(old, files=old.holding(paths, answering()))
    known = {file.path for file in book.files}
    unread = [path for path in paths if path not in known and _is_text(path)]
    writer, pages, begun = Writer(os.getpid()), [], process_time()
    for path in unread:
        with recording(digest) as asked, suppress(ReadError, OSError):
            read(path)
        pages.append(writer.page(path, asked, ""))
        if cache is not None and shelf is not None and (path == unread[-1] or process_time() - begun > LONG):
            cache.bind(shelf, bound(pages, (book,)))
            begun = process_time()
    return bound(pages, (book,)) if pages else book


def _is_text(path: str) -> bool:
    """Return whether the file may name others: plans and data do not, and take long to read."""
    with suppress(OSError):
        return b"\0" not in content(path, LARGEST)[:1024]
    return False
