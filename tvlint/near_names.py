"""Names that are another one but for a slip of the one who wrote them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

SHORTEST_WORD = 3
"""A shorter word of a name is another one with another letter (`step_a`, `TP_SIZE`)."""
MOST_LETTERS = 80
"""Nothing is near to a longer name."""
COMPARED = 6
"""Of the names that share most with a word, so many are compared with it letter by letter."""
MOST_LISTED = 8
MOST_NAMES = 20
"""Of so many names all are said where none is near."""
ALIKE = 0.6
"""The share of letters in order, as difflib counts them, from which on a name is near."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a help line for an unknown word: the nearest known one, those that hold it, or all of them where there are few."""
    names = tuple(sorted(known))
    if found := nearest(word, names):
        return f"did you mean `{found}`?"
    plain = _plain(word)
    holding = [name for name in names if plain and plain in _plain(name)]
    if len(holding or names) == 1:
        return f"did you mean `{(holding or names)[0]}`?"
    listed = holding or (names if len(names) <= MOST_NAMES else ())
    more = ", ..." if len(listed) > MOST_LISTED else ""
    return f"one of {', '.join(f'`{name}`' for name in listed[:MOST_LISTED])}{more}" if listed else ""


def nearest(word: str, known: Iterable[str], alike: float = ALIKE) -> str:
    """Return the known name that is most like a word, without a look at each letter by letter; empty where none is."""
    return _nearest(_plain(word[:MOST_LETTERS]), tuple(sorted(known)), alike)


@lru_cache(maxsize=1 << 10)
def _nearest(word: str, names: tuple[str, ...], alike: float) -> str:
    from difflib import get_close_matches

    index, shared = _by_pair(names), Counter[str]()
    for pair in _pairs(word):
        shared.update(index.get(pair, ()))
    candidates = sorted(shared, key=lambda name: (-shared[name], abs(len(name) - len(word)), name))[:COMPARED]
    plain = {_plain(name): name for name in reversed(candidates)}
    return next((plain[name] for name in get_close_matches(word, plain, 1, alike)), "")


@lru_cache(maxsize=8)
def _by_pair(names: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the names that hold each pair of letters, their ends counted as letters."""
    found: dict[str, list[str]] = {}
    for name in names:
        for pair in _pairs(_plain(name)):
            found.setdefault(pair, []).append(name)
    return found


def _pairs(word: str) -> set[str]:
    padded = f" {word} "
    return {padded[place : place + 2] for place in range(len(padded) - 1)}


def _plain(name: str) -> str:
    """Return a name without how its words are joined and written."""
    return name.lower().replace("_", "-").lstrip("-")


def by_slips(names: Iterable[str]) -> Mapping[tuple[int, str], list[str]]:
    """Return the names by what they share with those that `near` finds near to them."""
    found: dict[tuple[int, str], list[str]] = {}
    for name in names:
        for key in _keys(name):
            found.setdefault(key, []).append(name)
    return found


def near(name: str, known: Mapping[tuple[int, str], list[str]]) -> Iterable[str]:
    """Return the known names that may be a letter off, or have the same letters in other words, without a look at each."""
    return dict.fromkeys(each for key in _keys(name) for each in known.get(key, ()))


def _keys(name: str) -> Iterator[tuple[int, str]]:
    """Yield what names share that are a letter off, or have the same letters or words otherwise; nothing of a very long one."""
    if len(name) <= MOST_LETTERS:
        yield from ((-3, "_".join(sorted(name.split("_")))), (-2, name.replace("_", "")), (-1, name))
        without = [(at, name[:at] + name[at + 1 :]) for at in range(len(name))]
        yield from (key for at, rest in without for key in ((at, rest), (-1, rest)))


def are_swapped(name: str, meant: str) -> bool:
    """Return whether two letters that stand beside each other are all that differs."""
    at = next((place for place, letters in enumerate(zip(name, meant, strict=False)) if letters[0] != letters[1]), len(name))
    both = name[at : at + 2]
    return both.isalpha() and len(both) == 2 and f"{name[:at]}{both[::-1]}{name[at + 2 :]}" == meant


def is_a_letter_off(name: str, meant: str) -> bool:
    """Return whether one letter is changed, too many or missing; digits tell names apart."""
    short, long = sorted((name, meant), key=len)
    at = next((place for place, letters in enumerate(zip(short, long, strict=False)) if letters[0] != letters[1]), len(short))
    if len(short) == len(long):
        return short[at + 1 :] == long[at + 1 :] and (short[at : at + 1] + long[at : at + 1]).isalpha()
    return len(long) == len(short) + 1 and long[at + 1 :] == short[at:] and long[at].isalpha()


def is_a_slip(name: str, meant: str) -> bool:
    """Return whether one letter, or the order of two, is all that differs."""
    return is_a_letter_off(name, meant) or are_swapped(name, meant)


def has_same_words(name: str, meant: str) -> bool:
    """Return whether the words of a name are put in another order."""
    return name != meant and sorted(name.split("_")) == sorted(meant.split("_"))


def is_a_word_misspelled(name: str, meant: str) -> bool:
    """Return whether one letter of a word is changed, too many or missing, or words are joined in another way; a plural is
    another word.
    """
    words, others = name.split("_"), meant.split("_")
    if "".join(words) == "".join(others):
        return True
    differ = [each for each in zip(words, others, strict=False) if each[0] != each[1]]
    if len(words) != len(others) or len(differ) != 1 or not is_a_letter_off(*differ[0]):
        return False
    short, long = sorted(differ[0], key=len)
    return len(short) >= SHORTEST_WORD and f"{short}s".casefold() != long.casefold()


def distance(one: str, other: str, most: int) -> int:
    """Return how many letters are put in, taken out, changed or swapped to make one of the other; some number above `most`
    else.
    """
    before: list[int] = []
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        last, before, row = before, row, [place]
        for at, against in enumerate(other, 1):
            cost = min(before[at] + 1, row[at - 1] + 1, before[at - 1] + (letter != against))
            if place > 1 and at > 1 and letter == other[at - 2] and one[place - 2] == against:
                cost = min(cost, last[at - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]
