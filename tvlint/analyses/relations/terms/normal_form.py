"""A normal form in which constants stand outside of what they multiply, and a loss is one operator however it is written.

All gradients are linear in those of the result, so that a constant factor may stand before or behind them, and so are casts to
numbers that are not whole. The gradient of `x` in `x - m` and `x + m` is that of the result, where `x` is not repeated.
`log(softmax(x))` is `log_softmax(x)`, and so are their gradients. What a loss is written as is `loss_identities.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvlint.analyses.relations.terms.constant_factors import NONE, bare, constant_of, times
from tvlint.analyses.relations.terms.flags import is_real, may_be_whole
from tvlint.analyses.relations.terms.loss_identities import Head, Operands, summed, term_of
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.ops.table import scaling_of

Rule: TypeAlias = Callable[[Terms, Head, Operands], "int | None"]

_G = (0, (0,))
"""In the head of a gradient: that of the first operand, from that of the only result."""

_FORWARD_OR_FIRST = (0, (0, (0,)))
"""Forward, and the gradient of the first operand from that of the only result."""

_SOFTMAX = ("softmax", 0, (None,))
"""What the head of a softmax begins with."""

_LINEAR = ((), *((position, (0,)) for position in range(8)))
"""In the head of a gradient: that of some operand, from that of the only result, in which it is linear."""


def normal(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int:
    """Return the normal form of operator `head` on `operands`, which are in normal form."""
    if len(head) != 5:
        return terms.term(head, operands, shape, slot)
    given, constant = bare(terms, operands[0]) if head[1] in _LINEAR and str(head[0]).endswith(" gradient") else (-1, NONE)
    if constant != NONE:
        return times(terms, normal(terms, head, (given, *operands[1:]), shape, slot), constant)
    found = _RULES.get(head[0], _scaled)(terms, head, operands)
    if found is None or (terms.shape[found], terms.slot[found]) != (shape, slot):
        return term_of(terms, head, operands, shape, slot)
    return found


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


def _scaled(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Return a multiplication with a constant, or the gradient of one, as what is multiplied and the constant."""
    op, which, attributes, pattern, sizes = head
    is_alone = len(operands) == 1 and pattern[0] == pattern[1] and not any(pattern[-2:]) and not sizes
    if which not in _FORWARD_OR_FIRST or not is_alone:
        return None
    scaling = scaling_of(str(op).removesuffix(" gradient"), attributes)
    constant = constant_of(scaling[0]) if scaling is not None else None
    if scaling is None or constant is None or (scaling[1] == -1 and not constant[1]):
        return None
    return times(terms, operands[0], constant if scaling[1] == 1 else (constant[0], 1 / constant[1]))


def _of_difference(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Return the gradient of `x` in `x - m` or `x + m`, where `x` is not repeated."""
    alone = len(operands) == 1 and head[3][0] == head[3][1] and not any(head[3][2:])
    first = head[1] == _G or (head[0] == "add gradient" and head[2] == (1,))
    return operands[0] if alone and first and len(head[2]) == 1 else None


def _of_conversion(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Return numbers of another type that are not whole: a constant factor stands behind the conversion, as shares do."""
    inner, constant = bare(terms, operands[0])
    if constant == NONE or len(head[2]) != 1 or not is_real(head[2][0]) or may_be_whole(terms, inner):
        return None
    return times(terms, terms.term(head, (inner,), terms.shape[inner], terms.slot[inner]), constant)


def _of_log(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Return `log(softmax(x))` as one operator."""
    key = terms.keys[operands[0]]
    if key[:3] != _SOFTMAX:
        return None
    scores = terms.operands[operands[0]]
    return terms.term(("log-softmax", *key[1:]), scores, terms.shape[scores[0]], terms.slot[scores[0]])


def _of_softmax_gradient(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Return the gradient of `x` in `log(softmax(x))` as that of one operator."""
    given, scores = operands if len(operands) == 2 else (operands[0], -1)
    if head[1:3] != (_G, (None,)) or terms.keys[given][:3] != ("log gradient", _G, ()):
        return None
    above, chances = terms.operands[given]
    if terms.keys[chances][:3] != _SOFTMAX or terms.operands[chances] != (scores,):
        return None
    if terms.keys[chances][3][-1] != head[3][-1]:
        return None
    return term_of(terms, ("log-softmax gradient", *head[1:]), (above, scores), terms.shape[scores], terms.slot[scores])


_RULES: Mapping[str, Rule] = {
    "sub gradient": _of_difference,
    "add gradient": _of_difference,
    "to": _of_conversion,
    "log": _of_log,
    "softmax gradient": _of_softmax_gradient,
}
