"""What earlier runs found in large files, and in many, and what of this run later ones will know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tvlint.cache.remember import MANY
from tvlint.checkout.opening import recording
from tvlint.findings import Severity
from tvlint.ir.values import replace
from tvlint.rule import Rule
from tvlint.run.judge.found import Found, FoundValues
from tvlint.run.project.discovery import Candidates
from tvlint.run.project.project_file import Project

if TYPE_CHECKING:
    from tvlint.cache.files import Book, Page, Writer
    from tvlint.cache.remember import Cache

LARGE = 64 << 10
"""Bytes of the smallest file of which is kept what is found in it, however few are checked."""


class Remembered:
    """What earlier runs said of large files, and of many that were found in folders, and this one will have said; of others
    nothing, since they are checked sooner than looked up."""

    def __init__(
        self, cache: Cache | None, candidates: Candidates, rules: Mapping[str, Rule], project: Project, repairs: int
    ) -> None:
        self._cache, self._shelf = cache, ""
        self._named = candidates.named
        many = len(candidates.files) - len(candidates.named) >= MANY
        self._files = frozenset(path for path in candidates.files if (many and path not in self._named) or _is_large(path))
        if cache is not None and self._files:
            severities = tuple((name, rule.severity) for name, rule in rules.items())
            self._shelf = cache.shelf((os.getcwd(), severities, _of_files(project), repairs)) or ""
        self._old: Book | None = None
        """What holds still, or was not asked for."""
        self._writers: dict[int, Writer] = {}

    def unchanged(self) -> dict[str, Found]:
        """Return what was said of the files for which nothing has changed that it rests on."""
        if self._cache is None or not self._shelf:
            return {}
        from tvlint.cache.files import EMPTY, answering
        from tvlint.cache.values import decode

        book = self._cache.book(self._shelf) or EMPTY
        others = (file for file in book.files if file.path not in self._files and os.path.lexists(file.path))
        try:
            holding = book.holding(self._files, answering())
            said = {file.path: decode(file.text.encode(), FoundValues).said() for file in holding}
            self._old = replace(book, files=(*holding, *others))
        except (ValueError, TypeError, KeyError, IndexError):
            self._old, said = EMPTY, {}
        return {path: each_said for path, each_said in said.items() if self._is_kept(path, each_said)}

    def looked(self, path: str, check_one: Callable[[str], Found]) -> tuple[Found, Page | None]:
        """Return what is said of the file, with what it rests on."""
        if not self._shelf or path not in self._files:
            return check_one(path), None
        from tvlint.cache.files import Writer, digest
        from tvlint.cache.values import encode

        with recording(digest) as asked:
            said = check_one(path)
        if not self._is_kept(path, said):
            return said, None
        writer = self._writers.setdefault(os.getpid(), Writer(os.getpid()))
        return said, writer.page(path, asked, encode(FoundValues.of(said)).decode())

    def _is_kept(self, path: str, found: Found) -> bool:
        """Return whether the same is said of the file whether it is named or found: it was judged."""
        return path not in self._named or path in found.checked

    def keep(self, pages: Sequence[Page]) -> None:
        """Keep what was said of the files that were looked at, of those that are unchanged, and of those not asked for."""
        if self._cache is None or self._old is None or not pages:
            return
        from tvlint.cache.files import bound

        again = {page.found.path for page in pages}
        left = replace(self._old, files=tuple(file for file in self._old.files if file.path not in again))
        book = bound(pages, (left,))
        books = {self._shelf: book}
        if len(pages) >= MANY:
            from tvlint.run.project.dependents import opened_in

            books |= opened_in(self._cache, book)
        self._cache.bind(books)


def _is_large(path: str) -> bool:
    """Return whether a file is not quickly checked anyway."""
    try:
        return os.path.isdir(path) or os.path.getsize(path) >= LARGE
    except OSError:
        return False


def _of_files(project: Project) -> Project:
    """Return the project without what decides nothing but which files are checked and what of their findings is reported."""
    return replace(
        project,
        path=project.path if project.world_size is not None else "",
        paths=(),
        exclude=(),
        select=(),
        ignore=(),
        per_file_ignores={},
        pattern_locations={},
        fail_on=Severity.ERROR,
        baseline="",
        names=(),
        nested={folder: _of_files(each_project) for folder, each_project in project.nested.items()},
    )
