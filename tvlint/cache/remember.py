"""Asking whether a result is known, and keeping it when it was found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tvlint.ir.values import dataclass, field

if TYPE_CHECKING:
    from tvlint.cache.address import Content
    from tvlint.cache.files import Book
    from tvlint.cache.store import Store

T = TypeVar("T")

MANY = 64
"""So many files are sooner looked up than read again, and worth processes of their own."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about plans, by address."""

    address: str
    plans: tuple[str, ...]
    contents: tuple[Content, ...]


@dataclass(slots=True)
class Cache:
    """The results that are remembered in `.tvlint_cache` of `folder`.

    A file counts as what it held when this run first asked about it, so ask before it is read. Nothing of the disk is touched
    before the first question.
    """

    folder: Path
    _store: Store | None = None
    _opened: bool = False
    _contents: dict[str, Content | None] = field(default_factory=dict)

    def question(self, kind: str, asked: object, plans: tuple[str, ...]) -> Question | None:
        """Return the question as an address; None where nothing can be remembered here, or a file cannot be read.

        `asked` is everything that the result depends on beside this program and the content of the plans.
        """
        from tvlint.cache.address import address, program

        engine = program() if self._opened_store() is not None else None
        paths = _files(plans) if engine is not None else ()
        contents = [self._content(path) for path in paths]
        found = tuple(content for content in contents if content is not None)
        if engine is None or not found or len(found) < len(contents):
            return None
        return Question(address(kind, engine, asked, found), plans, found)

    def look(self, plan: str) -> None:
        """Note what the plan holds now, for questions that are asked when it has been read."""
        if self._opened_store() is not None:
            for path in _files((plan,)):
                self._content(path)

    def recall(self, question: Question | None, type: type[T]) -> T | None:
        """Return the result that was kept for the question."""
        return None if question is None else self._decoded(question.address, type)

    def keep(self, question: Question | None, result: T, type: type[T]) -> None:
        """Remember the result, unless a file was written, added or removed since the question was asked, or tvlint itself.

        A result that would come back as anything but itself is not remembered.
        """
        from tvlint.cache.address import content, installed, program
        from tvlint.cache.values import decode, encode

        store = self._opened_store()
        if question is None or store is None or _files(question.plans) != tuple(known.path for known in question.contents):
            return
        if installed() != program() or any(content(known.path) != known for known in question.contents):
            return
        try:
            data = encode(result)
            same = decode(data, type) == result
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        if same:
            store.put(question.address, data)

    def shelf(self, asked: object) -> str | None:
        """Return the address of what was found in many files, each asked the same; None where nothing can be remembered."""
        from tvlint.cache.address import address, program

        engine = program() if self._opened_store() is not None else None
        try:
            return None if engine is None else address("files", engine, asked, ())
        except TypeError:
            return None

    def book(self, shelf: str) -> Book | None:
        """Return what earlier runs found, whether it holds or not."""
        from tvlint.cache.files import Book

        return self._decoded(shelf, Book)

    def bind(self, books: Mapping[str, Book]) -> None:
        """Remember what was found, by shelf, unless tvlint itself was written since."""
        from tvlint.cache.address import installed, program
        from tvlint.cache.values import encode

        store = self._opened_store()
        if store is not None and installed() == program():
            for shelf, book in books.items():
                store.put(shelf, encode(book))

    def _decoded(self, address: str, type: type[T]) -> T | None:
        from tvlint.cache.values import decode

        store = self._opened_store()
        data = store.get(address) if store is not None else None
        if data is None:
            return None
        try:
            return decode(data, type)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    def _content(self, path: str) -> Content | None:
        from tvlint.cache.address import content

        if path not in self._contents:
            self._contents[path] = content(path)
        return self._contents[path]

    def _opened_store(self) -> Store | None:
        if not self._opened:
            from tvlint.cache.secret import secret
            from tvlint.cache.store import FOLDER, Store

            self._opened = True
            key = secret((self.folder, Path.cwd()))
            self._store = Store(str(self.folder / FOLDER), key) if key is not None else None
        return self._store


def _files(plans: tuple[str, ...]) -> tuple[str, ...]:
    """Return every file that the plans are read from; none where a folder cannot be listed."""
    from tvlint.readers.plan_files import files_of

    try:
        return tuple(dict.fromkeys(file for plan in plans for file in files_of(plan)))
    except (OSError, ValueError):
        return ()
