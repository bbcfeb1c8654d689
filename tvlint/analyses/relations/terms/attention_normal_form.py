"""A normal form in which it makes no difference whether attention, a softmax or a loss is one operator or written out.

With `z = c q k^T`, to which a mask of numbers is added if there is one, and `p = softmax(z)`, attention is `p v`. For the
gradient `g` of its result that of `v` is `p^T g`; with `dz` for what the softmax makes of `g v^T`, those of `q` and `k` are
`c dz k` and `c dz^T q`, and that of the mask is `dz`, summed over the dimensions that the mask lacks. A query that a mask of
minus infinity leaves no key is zero in one operator and not a number in several: that there is none is an assumption. The
gradient of `x` in `x - m` and `x + m` is that of the result, where `x` is not repeated. All gradients are linear in those of
the result, so that a constant factor may stand before or behind them, and so are casts to numbers that are not whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tvlint.analyses.relations.terms.expressions import (
    MERGE,
    PAD,
    SLICE,
    SPLIT,
    SUM_OF_PRODUCTS,
    TOTAL,
)
from tvlint.analyses.relations.terms.loss_identities import summed, term_of
from tvlint.analyses.relations.terms.product_normal_form import (
    NONE,
    TIMES,
    Constant,
    bare,
    constant_of,
    normal_product,
    product,
    renumbered,
    times,
)
from tvlint.analyses.relations.terms.softmax_normal_form import (
    RULES,
    Head,
    Operands,
    Rule,
    softmax,
    softmax_gradient,
    without_powers,
)
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_KEEP_NUMBERS = (Trait.NEGATION, Trait.VIEW, Trait.BROADCAST, Trait.RANGES, Trait.SELECTION)
"""Operators that make of numbers that are not whole others that are not."""

_DEEPEST = 64

SEES = "every query of attention that is written out with a mask sees a key"

ATTENTION = "scaled-dot-product-attention"
_G = (0, (0,))
"""In the head of a gradient: that of the first operand, from that of the only result."""

_LINEAR = ((), *((position, (0,)) for position in range(8)))
"""In the head of a gradient: that of some operand, from that of the only result, in which it is linear."""


def normal(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int:
    """Return the normal form of operator `head` on `operands`, which are in normal form."""
    if len(head) != 5:
        return terms.term(head, operands, shape, slot)
    given, constant = bare(terms, operands[0]) if head[1] in _LINEAR and str(head[0]).endswith(" gradient") else (-1, NONE)
    if constant != NONE:
        return times(terms, normal(terms, head, (given, *operands[1:]), shape, slot), constant)
    rule = _RULES.get(head[0])
    found = rule(terms, head, operands) if rule is not None else None
    if found is None:
        found = normal_product(terms, head, operands, shape, slot)
    if found is None or (terms.shape[found], terms.slot[found]) != (shape, slot):
        return term_of(terms, head, operands, shape, slot)
    return without_powers(terms, found)


def normal_sum(terms: Terms, term: int) -> int:
    """Return the normal form of a sum of gradients: the constant factor of its first addend is one of the sum."""
    if terms.keys[term][0] != GRADIENT_SUM:
        return term
    found = summed(terms, term)
    addends = sorted(bare(terms, addend) for addend in terms.operands[term])
    sign, square = addends[0][1]
    if found != term or (sign, square) == NONE or not square:
        return found
    rest = [times(terms, addend, (sign * constant[0], constant[1] / square)) for addend, constant in addends]
    return times(terms, summed(terms, terms.gradient_sum(terms.keys[term][1], rest)), (sign, square))


def _of_difference(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Return the gradient of `x` in `x - m` or `x + m`, where `x` is not repeated."""
    alone = len(operands) == 1 and head[3][0] == head[3][1] and not any(head[3][2:])
    first = head[1] == _G or (head[0] == "add gradient" and head[2] == (1,))
    return operands[0] if alone and first and len(head[2]) == 1 else None


def _of_conversion(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Return numbers of another type that are not whole: a constant factor stands behind the conversion, as shares do."""
    inner, constant = bare(terms, operands[0])
    if constant == NONE or len(head[2]) != 1 or not _is_real(head[2][0]):
        return None
    return times(terms, terms.term(head, (inner,), terms.shape[inner], terms.slot[inner]), constant)


def _root(size: int) -> Constant:
    """One by the root of a number."""
    return 1, Fraction(1, size)


def _scores(
    terms: Terms, head: Head, operands: Operands, names: Sequence[Sequence[int]], mask: tuple[int, Sequence[int]] | None
) -> tuple[int, Constant] | None:
    """Return the scores of attention to keys, with the mask that is added to them, and the constant in them."""
    causal, scale = head[2]
    query, key = names[0], names[1]
    constant = _root(terms.shape[operands[0]][-1]) if scale is None else constant_of(scale)
    if causal or constant is None:
        return None
    rows = (*query[:-1], key[-2])
    found = times(terms, product(terms, (operands[0], query), (operands[1], key), rows), constant)
    if mask is None:
        return found, constant
    if not is_of_numbers(terms, mask[0]):
        return None
    terms.assumptions.add(SEES)
    (one, left), (other, right) = sorted(((found, tuple(rows)), (mask[0], tuple(mask[1]))))
    pattern = (*renumbered(left, right, rows), (), (), ())
    return terms.term(("add", 0, (1,), pattern, ()), (one, other), terms.shape[found], terms.slot[found]), constant


def is_of_numbers(terms: Terms, term: int) -> bool:
    """Return whether the elements are numbers that are not whole, so that a mask is one to add and not one of flags."""
    return _is_of_numbers(terms, term, _DEEPEST, {})


def _is_of_numbers(terms: Terms, term: int, deepest: int, known: dict[int, bool]) -> bool:
    head, operands = terms.keys[term], terms.operands[term]
    if term in known or not deepest:
        return known.get(term, False)
    of_operands = [_is_of_numbers(terms, operand, deepest - 1, known) for operand in operands]
    if head[0] in ("weight", "buffer", "input"):
        found = _is_real(head[2])
    elif has_trait(str(head[0]), Trait.CONVERSION):
        found = len(head[2]) == 1 and _is_real(head[2][0])
    elif head[0] in (SUM_OF_PRODUCTS, TOTAL) or has_trait(str(head[0]), Trait.SUM, Trait.SCALING):
        found = any(of_operands)
    elif head[0] == "embedding":
        found = of_operands[1]
    else:
        found = bool(operands) and _keeps_numbers(str(head[0])) and all(of_operands)
    return known.setdefault(term, found)


def _is_real(dtype: object) -> bool:
    return str(dtype).removeprefix("torch.").startswith(("float", "bfloat"))


def _of_attention(terms: Terms, head: Head, operands: Operands) -> int | None:
    if head[1] != 0 or len(operands) not in (3, 4) or len(head[2]) != 2:
        return None
    names, result = head[3][: len(operands)], head[3][len(operands)]
    scores = _scores(terms, head, operands, names, (operands[3], names[3]) if len(operands) == 4 else None)
    if scores is None:
        return None
    rows = (*names[0][:-1], names[1][-2])
    return product(terms, (softmax(terms, scores[0], len(rows) - 1), rows), (operands[2], names[2]), result)


def _of_attention_gradient(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Operands are the gradient of the result, queries, keys, values where the gradient is not that of values, and a mask."""
    position = head[1][0] if len(head[1]) == 2 and head[1][1] == (0,) else -1
    least = 3 if position == 2 else 4
    if len(head[2]) != 2 or not 0 <= position <= 3 or len(operands) not in (least, least + 1):
        return None
    given, query, key = head[3][:3]
    masked = len(operands) > least
    scores = _scores(terms, head, operands[1:3], (query, key), (operands[least], head[3][least]) if masked else None)
    if scores is None or (position == 3 and not masked):
        return None
    rows, result = (*query[:-1], key[-2]), head[3][len(operands)]
    last = len(rows) - 1
    if position == 2:
        return product(terms, (softmax(terms, scores[0], last), rows), (operands[0], given), result)
    chances = product(terms, (operands[0], given), (operands[3], head[3][3]), rows)
    below = softmax_gradient(terms, chances, scores[0], last)
    if position == 3:
        return _summed_to(terms, below, rows, result)
    below = times(terms, below, scores[1])
    return product(terms, (below, rows), (operands[2 - position], key if position == 0 else query), result)


def _summed_to(terms: Terms, gradient: int, rows: Sequence[int], names: Sequence[int]) -> int | None:
    """Return the gradient of what is added to the scores, from that of the scores."""
    if tuple(rows) == tuple(names):
        return gradient
    inner, constant = bare(terms, gradient)
    source, result = renumbered(rows, names)
    gone = tuple(sorted(set(source) - set(result)))
    if -1 in result or terms.slot[inner] >= 0:
        return None
    shape = tuple(terms.shape[inner][source.index(number)] for number in result)
    head = ("add gradient", (), (1,), (source, result, gone, (), ()), ())
    return times(terms, terms.term(head, (inner,), shape, -1), constant)


_RULES: dict[str, Rule] = {
    **RULES,
    "sub gradient": _of_difference,
    "add gradient": _of_difference,
    "to": _of_conversion,
    ATTENTION: _of_attention,
    f"{ATTENTION} gradient": _of_attention_gradient,
}


def _keeps_numbers(head: str) -> bool:
    """Return whether the operator makes of numbers that are not whole others that are not."""
    return head in (TIMES, MERGE, SPLIT, SLICE, PAD) or has_trait(head, *_KEEP_NUMBERS)
