"""Group replicas that run the same code: generated files compared exactly, with their ranks shifted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RANKS = re.compile(
    r"^[ \t]*#.*$"
    r"|init_group\(ranks=\[[\d, ]*\]\)"
    r"|Reducer\(ranks=\[(?P<reducer>[\d, ]*)\]"
    r"|\branks=\[(?P<group>[\d, ]*)\]"
    r"|\b(?:src|dst)=(?P<peer>\d+)"
    r"|^[ \t]+rank = (?P<own>\d+)$",
    re.MULTILINE | re.ASCII,
)
_NUMBER = re.compile(r"\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first line in which a rank's file is not that of the first replica."""

    rank: int
    line: int
    other: int
    """The rank in the replica that it was compared with."""


def in_first_replica(text: str, shift: int, size: int) -> str:
    """Return the generated text of a rank of another replica, as the same rank of the first one would have it.

    Ranks of groups and peers are shifted back. Reducers that reach beyond their replica, and the list of groups that all
    ranks create, name the same ranks everywhere and stay.
    """
    if shift == 0:
        return text

    def back(match: re.Match[str]) -> str:
        whole = match[0]
        given = match["group"] or match["peer"] or match["own"]
        if match["reducer"] is not None:
            ranks = [int(number) for number in _NUMBER.findall(match["reducer"])]
            if all(shift <= rank < shift + size for rank in ranks):
                given = match["reducer"]
        if not given:
            return whole
        start = whole.index(given, whole.index("=") + 1)
        shifted = _NUMBER.sub(lambda number: str(int(number[0]) - shift), given)
        return whole[:start] + shifted + whole[start + len(given) :]

    return _RANKS.sub(back, text)


def first_difference(one: str, other: str) -> int:
    """Return the number of the first line that differs."""
    left, right = one.split("\n"), other.split("\n")
    for number, (a, b) in enumerate(zip(left, right, strict=False), 1):
        if a != b:
            return number
    return min(len(left), len(right)) + 1


def classes_of(texts: Sequence[str], size: int) -> list[list[int]]:
    """Return the replicas (by number) that run one code, each class in order, the largest first; `size` ranks a replica."""
    found: dict[tuple[str, ...], list[int]] = {}
    for replica in range(len(texts) // size):
        low = replica * size
        key = tuple(in_first_replica(text, low, size) for text in texts[low : low + size])
        found.setdefault(key, []).append(replica)
    return sorted(found.values(), key=lambda members: (-len(members), members[0]))


def differences(texts: Sequence[str], size: int, replica: int, other: int) -> list[Difference]:
    """Return where the files of `replica` are not those of `other`, a line a rank."""
    found = []
    for offset in range(size):
        rank, against = replica * size + offset, other * size + offset
        name = in_first_replica(texts[rank], replica * size, size)
        theirs = in_first_replica(texts[against], other * size, size)
        if name != theirs:
            found.append(Difference(rank, first_difference(name, theirs), against))
    return found


def smallest_replica(texts: Sequence[str]) -> int:
    """Return the least number of ranks whose code most others repeat, or that most reducers repeat; all where nothing repeats.

    A replica keeps its communication to itself and shares its reducers with all others; what nearly all files say decides.
    """
    count = len(texts)
    named = [_named(text) for text in texts]
    for size in range(1, count):
        if count % size == 0 and (_repeats(named, size) or 2 * len(classes_of(texts, size)[0]) > count // size):
            return size
    return count


def _named(text: str) -> tuple[set[int], list[set[int]]]:
    """Return the ranks that a file communicates with, and those of each of its reducers."""
    partners: set[int] = set()
    reducers = []
    for match in _RANKS.finditer(text):
        if match["reducer"] is not None:
            reducers.append({int(number) for number in _NUMBER.findall(match["reducer"])})
        partners.update(int(number) for number in _NUMBER.findall(match["group"] or match["peer"] or ""))
    return partners, reducers


def _repeats(named: Sequence[tuple[set[int], list[set[int]]]], size: int) -> bool:
    count = len(named)
    apart = sum(all(partner // size == rank // size for partner in partners) for rank, (partners, _) in enumerate(named))
    all_reducers = [reducer for _, reducers in named for reducer in reducers]
    shared = sum({(rank + size) % count for rank in reducer} == reducer for reducer in all_reducers)
    return 4 * apart > 3 * count and 4 * shared > 3 * len(all_reducers)
