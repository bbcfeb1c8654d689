"""A normal form of products, transposes and constant factors, in which it makes no difference how a product is written.

`linear`, `matmul`, `einsum` of two operands and the gradients of all of them are sums of products over indices that they share.
Transposing an operand or the result renames indices; a constant factor of an operand is one of the result. A product is thus
told by its two operands without transposes and constants, in one order, and by which indices they share:

    sum_k (c x)[i, k] y^T[k, j]  =  c sum_k x[i, k] y[j, k]

A constant is told by its square and its sign, so that `1 / sqrt(d)` is exact; a number of a plan that is the double nearest to
the root of a small fraction is that root.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from tvlint.analyses.relations.terms.numbers import square_of
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait, scaling_of

Pattern: TypeAlias = tuple[int, ...]
"""An index for every dimension; -1 for one of size 1 that stands for nothing."""

PRODUCT, PERMUTE, TIMES = "product", "permute", "times"
_FIRST = (0, (0, (0,)))
"""Forward, and the gradient of the first operand from that of the only result."""

Constant: TypeAlias = tuple[int, Fraction]
"""Sign and square."""

NONE: Constant = (1, Fraction(1))
"""The constant that changes nothing."""


def normal_product(
    terms: Terms, head: tuple[Any, ...], operands: tuple[int, ...], shape: tuple[int, ...], slot: int
) -> int | None:
    """Return the normal form of a product, a transpose or a multiplication with a constant; None for other operators."""
    if len(head) != 5 or head[4] or any(head[3][-2:]):
        return None
    op, which, attributes, pattern, _ = head
    forward = op.removesuffix(" gradient")
    if has_trait(forward, Trait.CONTRACTION) and has_trait(forward, Trait.PRODUCT) and len(operands) == 2 and not attributes:
        return product(terms, (operands[0], pattern[0]), (operands[1], pattern[1]), pattern[2])
    if (
        has_trait(forward, Trait.TRANSPOSE)
        and len(operands) == 1
        and sorted(pattern[0]) == sorted(pattern[1])
        and -1 not in pattern[0]
    ):
        return permuted(terms, operands[0], tuple(pattern[0].index(number) for number in pattern[1]))
    scaling = scaling_of(forward, attributes) if which in _FIRST and len(operands) == 1 and pattern[0] == pattern[1] else None
    if scaling is None or (terms.shape[operands[0]], terms.slot[operands[0]]) != (shape, slot):
        return None
    constant = constant_of(scaling[0])
    if constant is None or (scaling[1] == -1 and not constant[1]):
        return None
    return times(terms, operands[0], constant if scaling[1] == 1 else (constant[0], 1 / constant[1]))


def constant_of(value: Any) -> Constant | None:
    """Return the number as its sign and square; None where it is no finite number."""
    square = square_of(value)
    return None if square is None else ((-1 if value < 0 else 1), square)


def rational(value: int | Fraction) -> Constant:
    """Return the number as its sign and square."""
    return (-1 if value < 0 else 1), Fraction(value) ** 2


def times(terms: Terms, term: int, constant: Constant) -> int:
    """Return the term times the constant."""
    sign, square = constant
    if terms.keys[term][0] == TIMES:
        _, before, other = terms.keys[term]
        (term,) = terms.operands[term]
        sign, square = sign * before, square * other
    if (sign, square) == NONE:
        return term
    return terms.term((TIMES, sign, square), (term,), terms.shape[term], terms.slot[term])


def bare(terms: Terms, term: int) -> tuple[int, Constant]:
    """Return the term without its constant factor, and that."""
    head = terms.keys[term]
    return (terms.operands[term][0], (head[1], head[2])) if head[0] == TIMES else (term, NONE)


def permuted(terms: Terms, term: int, order: Sequence[int]) -> int:
    """Return the term with its dimensions in another order: dimension `i` of the result is dimension `order[i]`."""
    inner, constant = bare(terms, term)
    head, operands = terms.keys[inner], terms.operands[inner]
    if head[0] == PRODUCT:
        one, other, result = head[1]
        return times(terms, product(terms, (operands[0], one), (operands[1], other), [result[i] for i in order]), constant)
    if head[0] == PERMUTE:
        (inner,), order = operands, [head[1][i] for i in order]
    if list(order) == list(range(len(order))):
        return times(terms, inner, constant)
    shape, slot = terms.shape[inner], terms.slot[inner]
    place = -1 if slot < 0 else list(order).index(slot)
    moved = terms.term((PERMUTE, tuple(order)), (inner,), tuple(shape[i] for i in order), place)
    return times(terms, moved, constant)


def product(terms: Terms, one: tuple[int, Sequence[int]], other: tuple[int, Sequence[int]], result: Sequence[int]) -> int:
    """Return the sum of products over the indices that the result lacks."""
    (first, left, some), (second, right, more) = _plain(terms, *one), _plain(terms, *other)
    ways = [(first, left, second, right)] * (first <= second) + [(second, right, first, left)] * (second <= first)
    pattern, operands = min((renumbered(a, b, result), (x, y)) for x, a, y, b in ways)
    sizes = {
        number: (terms.shape[term][dim], dim == terms.slot[term])
        for term, numbers in zip(operands, pattern, strict=False)
        for dim, number in enumerate(numbers)
    }
    sizes[-1] = (1, False)
    shape = tuple(sizes[number][0] for number in pattern[2])
    slot = next((dim for dim, number in enumerate(pattern[2]) if sizes[number][1]), -1)
    found = terms.term((PRODUCT, pattern), operands, shape, slot)
    return times(terms, found, (some[0] * more[0], some[1] * more[1]))


def _plain(terms: Terms, term: int, numbers: Sequence[int]) -> tuple[int, list[int], Constant]:
    """Return an operand without its constant factor and transposes, the indices of its dimensions, and the factor."""
    inner, constant = bare(terms, term)
    placed = list(numbers)
    if terms.keys[inner][0] == PERMUTE:
        order = terms.keys[inner][1]
        placed = [numbers[order.index(dim)] for dim in range(len(order))]
        (inner,) = terms.operands[inner]
    return inner, placed, constant


def renumbered(*tensors: Sequence[int]) -> tuple[Pattern, ...]:
    """Return the indices in the order in which they appear."""
    numbers = {-1: -1}
    for tensor in tensors:
        for number in tensor:
            numbers.setdefault(number, len(numbers) - 1)
    return tuple(tuple(numbers[number] for number in tensor) for tensor in tensors)
