"""Find the reference value nearest to one that the reference does not compute."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from tvlint.analyses.relations.terms.terms import Terms


@dataclass(frozen=True, slots=True)
class Near:
    """A value of the reference that differs from a foreign one in one respect."""

    term: int
    kind: str
    text: str
    expected: str
    actual: str
    difference: tuple[Any, Any] | None = None
    """The two constants, where the difference is one constant."""


class Nearest:
    """An index of the reference's terms by their operands."""

    def __init__(self, terms: Terms, computed: Callable[[int], Set[int]]) -> None:
        """`computed` gives the terms that a rank computes anyway; they are in the place of nothing there."""
        self._terms = terms
        self._computed = computed
        self._by_operands: dict[tuple[int, ...], list[int]] = {}
        for term in range(terms.sealed):
            self._by_operands.setdefault(terms.operands[term], []).append(term)

    def to(self, term: int, rank: int) -> Near | None:
        """Return the reference's term with the same operands and shape that differs in attributes, else in its operator."""
        terms = self._terms
        operands = terms.operands[term]
        if not operands:
            return None
        head = terms.keys[term]
        near = [other for other in self._by_operands.get(operands, ()) if terms.shape[other] == terms.shape[term]]
        for other in near:
            if terms.keys[other][:2] == head[:2] and terms.keys[other] != head:
                expected, actual, is_all = _difference(terms.keys[other], head)
                text = f"uses {actual} where the reference uses {expected}"
                difference = (expected, actual) if is_all else None
                return Near(other, "other-constant", text, str(expected), str(actual), difference)
        near = [other for other in near if terms.keys[other][0] != head[0] and other not in self._computed(rank)]
        if len(near) == 1:
            expected, actual = str(terms.keys[near[0]][0]), str(head[0])
            text = f"applies `{actual}` where the reference applies `{expected}`"
            return Near(near[0], "operator", text, expected, actual)
        return None


def _difference(expected: tuple[Any, ...], actual: tuple[Any, ...]) -> tuple[Any, Any, bool]:
    """Return the first part in which two heads of the same operator differ, and whether that is all.

    Of several attributes that differ it is the first one; of several numbers in one attribute all.
    """
    left: Any = expected[2:]
    right: Any = actual[2:]
    depth, is_all = 0, True
    while isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        differing = [(one, other) for one, other in zip(left, right, strict=True) if one != other]
        if depth >= _ATTRIBUTES and len(differing) > 1:
            break
        is_all = is_all and len(differing) == 1
        left, right = differing[0]
        depth += 1
    return left, right, is_all


_ATTRIBUTES = 2
"""How deep the values of single attributes lie in what follows the first two parts of a head."""
