"""Names that are another one but for a slip of the one who wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

SHORTEST_WORD = 3
"""A shorter word of a name is another one with another letter (`step_a`, `TP_SIZE`)."""
MOST_LETTERS = 80
"""Nothing is near to a longer name."""


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
    """Yield what names share that are a letter off or have the same letters in other words; nothing of a very long one."""
    if len(name) <= MOST_LETTERS:
        yield from ((-2, name.replace("_", "")), (-1, name))
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
