"""What was found in each of several files, with every question to the disk that it rests on, and the answer.

A result counts as long as each of its questions has the same answer; of what was read, the answer is a digest. Files that lie
beside each other ask much the same, so a question stands once in a book, and questions that were asked together are a group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import cache
from types import MappingProxyType

from tvlint.cache.address import LARGEST
from tvlint.checkout import opening, tracking
from tvlint.checkout.git import GitError
from tvlint.checkout.opening import Asked, Question
from tvlint.ir.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class Group:
    """Questions that were asked together, by number: those of its own, and groups that were asked before."""

    asked: tuple[int, ...]
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in a file, as text, and the number of the group that it rests on."""

    path: str
    group: int
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """What one more file adds to the book of a process: questions, answers and groups after so many, and what was found."""

    writer: int
    before: tuple[int, int]
    questions: tuple[tuple[str, ...], ...]
    answers: tuple[str, ...]
    groups: tuple[Group, ...]
    found: Found


@dataclass(frozen=True, slots=True)
class Book:
    """What one process found in files."""

    questions: tuple[tuple[str, ...], ...]
    answers: tuple[str, ...]
    groups: tuple[Group, ...]
    files: tuple[Found, ...]

    def holding(self, paths: Collection[str], answer: Callable[[Question], str | None]) -> tuple[Found, ...]:
        """Return the files at the paths of which every question has its answer still."""
        files = tuple(file for file in self.files if file.path in paths)
        hold: dict[int, bool] = {}
        for number in self.groups_of(files):
            group = self.groups[number]
            same = (answer(self.questions[number]) == self.answers[number] for number in group.asked)
            hold[number] = all(hold[other] for other in group.others) and all(same)
        return tuple(file for file in files if hold[file.group])

    def asking(self, is_meant: Callable[..., bool]) -> tuple[Found, ...]:
        """Return the files for which a question was asked that is meant, given its name and its arguments."""
        meant = [is_meant(*question) for question in self.questions]
        found: list[bool] = []
        for group in self.groups:
            found.append(any(meant[number] for number in group.asked) or any(found[other] for other in group.others))
        return tuple(file for file in self.files if found[file.group])

    def groups_of(self, files: Iterable[Found]) -> list[int]:
        """Return the numbers of the groups that the files rest on, each after those that it takes."""
        needed = {file.group for file in files}
        for number in range(len(self.groups) - 1, -1, -1):
            if number in needed:
                needed.update(self.groups[number].others)
        return sorted(needed)


EMPTY = Book((), (), (), ())


class Writer:
    """Writes the pages of one process, by its number."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._questions: dict[tuple[Question, Hashable], int] = {}
        self._groups: dict[Asked, int] = {}
        self._new: tuple[list[tuple[Question, Hashable]], list[Group]] = ([], [])
        self._written = (0, 0)

    def page(self, path: str, asked: Asked, text: str) -> Page:
        """Return the page about a file."""
        group = self._group(asked)
        before, (new, groups) = self._written, self._new
        self._written, self._new = (before[0] + len(new), before[1] + len(groups)), ([], [])
        questions, answers = tuple(question for question, _ in new), tuple(_text(answer) for _, answer in new)
        return Page(self._number, before, questions, answers, tuple(groups), Found(path, group, text))

    def _group(self, asked: Asked) -> int:
        """Return the number of the group, which is added with those that it takes."""
        if asked not in self._groups:
            others = tuple(self._group(other) for other in asked.others)
            self._groups[asked] = self._written[1] + len(self._new[1])
            self._new[1].append(Group(tuple(self._question(pair) for pair in asked.questions), others))
        return self._groups[asked]

    def _question(self, pair: tuple[Question, Hashable]) -> int:
        if pair not in self._questions:
            self._questions[pair] = len(self._questions)
            self._new[0].append(pair)
        return self._questions[pair]


def bound(pages: Iterable[Page], books: Iterable[Book]) -> Book:
    """Return one book of all pages and books."""
    begun: dict[int, tuple[list[tuple[str, ...]], list[str], list[Group], list[Found]]] = {}
    for page in pages:
        questions, answers, groups, found = begun.setdefault(page.writer, ([], [], [], []))
        if page.before == (len(questions), len(groups)):
            questions += page.questions
            answers += page.answers
            groups += page.groups
            found.append(page.found)
    added = [Book(*map(tuple, parts)) for parts in begun.values()]  # type: ignore[arg-type]
    return _joined([*books, *added])


def _joined(books: Iterable[Book]) -> Book:
    """Return one book with the questions and groups that files of the books rest on."""
    numbers: dict[tuple[tuple[str, ...], str], int] = {}
    groups: list[Group] = []
    files: list[Found] = []
    for book in books:
        places: dict[int, int] = {}
        for number in book.groups_of(book.files):
            group = book.groups[number]
            pairs = ((book.questions[renumbered], book.answers[renumbered]) for renumbered in group.asked)
            renumbered = tuple(numbers.setdefault(pair, len(numbers)) for pair in pairs)
            places[number] = len(groups)
            groups.append(Group(renumbered, tuple(places[other] for other in group.others)))
        files += [replace(file, group=places[file.group]) for file in book.files]
    return Book(tuple(question for question, _ in numbers), tuple(answer for _, answer in numbers), tuple(groups), tuple(files))


def digest(data: bytes) -> str:
    """Return what stands for the content of a file."""
    return hashlib.sha256(data).hexdigest()


def answering() -> Callable[[Question], str | None]:
    """Return what asks a question again, once, and gives the answer as a book has it; None where there is none."""
    return cache(_answer)


def _answer(question: Question) -> str | None:
    name, *arguments = question
    try:
        return _text(_ASKING[name](*arguments))
    except (OSError, ValueError) as error:
        return _text(opening.failure(error))
    except (GitError, KeyError):
        return None


def _text(answer: Hashable) -> str:
    text = repr(answer)
    return text if len(text) < 80 else digest(text.encode("utf-8", "surrogatepass"))


_ASKING: Mapping[str, Callable[..., Hashable]] = MappingProxyType(
    {
        "content": lambda path: digest(opening.content(path, LARGEST)),
        "is_file": opening.is_file,
        "is_folder": opening.is_folder,
        "is_link": opening.is_link,
        "is_there": opening.is_there,
        "is_tracked": tracking.is_tracked,
        "names_ending": opening.names_ending,
        "names_in": opening.names_in,
        "real_path": opening.real_path,
    }
)
"""The functions that readers ask, by the names that they note."""
