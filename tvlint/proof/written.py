"""A normal form in which it makes no difference whether attention, a softmax or a loss is one operator or written out.

With `z = c q k^T` and `p = softmax(z)`, attention is `p v`. For the gradient `g` of its result that of `v` is `p^T g`; with
`dz` for what the softmax makes of `g v^T`, those of `q` and `k` are `c dz k` and `c dz^T q`. The gradient of `x` in `x - m` and
`x + m` is that of the result, where `x` is not repeated. All gradients are linear in those of the result, so that a constant
factor may stand before or behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tvlint.proof.identities import summed, term_of
from tvlint.proof.products import NONE, Constant, bare, constant_of, normal_product, product, times
from tvlint.proof.softmaxes import RULES, Head, Operands, Rule, softmax, softmax_gradient, without_powers
from tvlint.proof.terms import GRADIENT_SUM, Terms

ATTENTION = "scaled-dot-product-attention"
_G = (0, (0,))
"""In the head of a gradient: that of the first operand, from that of the only result."""

_LINEAR = ((), *((position, (0,)) for position in range(8)))
"""In the head of a gradient: that of some operand, from that of the only result, in which it is linear."""


def normal(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int:
    """The normal form of operator `head` on `operands`, which are in normal form."""
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
    """The normal form of a sum of gradients: a constant factor that all addends have is one of the sum."""
    if terms.keys[term][0] != GRADIENT_SUM:
        return term
    addends = [bare(terms, addend) for addend in terms.operands[term]]
    constants = {constant for _, constant in addends}
    if len(constants) > 1:
        return summed(terms, term)
    total = terms.gradient_sum(terms.keys[term][1], [addend for addend, _ in addends])
    return times(terms, summed(terms, total), constants.pop())


def _of_difference(terms: Terms, head: Head, operands: Operands) -> int | None:
    """The gradient of `x` in `x - m` or `x + m`, where `x` is not repeated."""
    alone = len(operands) == 1 and head[3][0] == head[3][1] and not any(head[3][2:])
    first = head[1] == _G or (head[0] == "add gradient" and head[2] == (1,))
    return operands[0] if alone and first and len(head[2]) == 1 else None


def _root(size: int) -> Constant:
    """One by the root of a number."""
    return 1, Fraction(1, size)


def _scores(terms: Terms, head: Head, operands: Operands, names: Sequence[Sequence[int]]) -> tuple[int, Constant] | None:
    """The scores of attention to keys, and the constant in them."""
    causal, scale = head[2]
    query, key = names[0], names[1]
    constant = _root(terms.shape[operands[0]][-1]) if scale is None else constant_of(scale)
    if causal or constant is None:
        return None
    rows = (*query[:-1], key[-2])
    found = times(terms, product(terms, (operands[0], query), (operands[1], key), rows), constant)
    return found, constant


def _of_attention(terms: Terms, head: Head, operands: Operands) -> int | None:
    if head[1] != 0 or len(operands) != 3 or len(head[2]) != 2:
        return None
    names = head[3][:4]
    scores = _scores(terms, head, operands, names)
    if scores is None:
        return None
    rows = (*names[0][:-1], names[1][-2])
    return product(terms, (softmax(terms, scores[0], len(rows) - 1), rows), (operands[2], names[2]), names[3])


def _of_attention_gradient(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Operands are the gradient of the result, queries and keys, and values too where the gradient is not that of values."""
    position = head[1][0] if len(head[1]) == 2 and head[1][1] == (0,) else -1
    if len(head[2]) != 2 or (position, len(operands)) not in ((0, 4), (1, 4), (2, 3)):
        return None
    given, query, key = head[3][:3]
    scores = _scores(terms, head, operands[1:3], (query, key))
    if scores is None:
        return None
    rows, result = (*query[:-1], key[-2]), head[3][len(operands)]
    last = len(rows) - 1
    if position == 2:
        return product(terms, (softmax(terms, scores[0], last), rows), (operands[0], given), result)
    chances = product(terms, (operands[0], given), (operands[3], head[3][3]), rows)
    below = times(terms, softmax_gradient(terms, chances, scores[0], last), scores[1])
    return product(terms, (below, rows), (operands[2 - position], key if position == 0 else query), result)


_RULES: dict[str, Rule] = {
    **RULES,
    "sub gradient": _of_difference,
    "add gradient": _of_difference,
    ATTENTION: _of_attention,
    f"{ATTENTION} gradient": _of_attention_gradient,
}
