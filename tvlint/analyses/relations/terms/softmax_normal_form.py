"""Normal forms of a softmax that is written out, with `e = exp(y)` and `d` its sum over a dimension.

- `e / d` is `softmax(y)`, and `(e v) / d` is `softmax(y) v`, since `d` is the same all along the dimension;
- the gradient of `e` is `g / d` through the numerator, and through `d` the sum of `-g e / d^2` along the dimension; `exp` makes
  of both what the softmax makes of `g`. With `(e v) / d` it is the same with `g v^T` in the place of `g`, and that of `v`,
  `e^T (g / d)`, is `softmax(y)^T g`;
- `softmax(x - m)` is `softmax(x)` for every `m` that is the same all along the dimension, and so are their gradients;
- `log(softmax(x))` is `log_softmax(x)`, and so are their gradients; `logsumexp(x)` is `log(sum(exp(x)))`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tvlint.analyses.relations.terms.loss_identities import term_of, unshifted
from tvlint.analyses.relations.terms.product_normal_form import NONE, PRODUCT, bare, product, renumbered, times
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

Head: TypeAlias = tuple[Any, ...]
Operands: TypeAlias = tuple[int, ...]
Rule: TypeAlias = Callable[[Terms, Head, Operands], "int | None"]

_G = (0, (0,))
"""In the head of a gradient: that of the first operand, from that of the only result."""


def _rows(count: int) -> tuple[int, ...]:
    return tuple(range(count))


def softmax(terms: Terms, scores: int, dim: int) -> int:
    scores = unshifted(terms, scores, dim)
    names = _rows(len(terms.shape[scores]))
    head = ("softmax", 0, (None,), (names, names, (), (), (dim,)), ())
    return terms.term(head, (scores,), terms.shape[scores], terms.slot[scores])


def softmax_gradient(terms: Terms, given: int, scores: int, dim: int) -> int:
    scores = unshifted(terms, scores, dim)
    (given, constant), names = bare(terms, given), _rows(len(terms.shape[scores]))
    pattern = (names, names, names, (), (), (dim,))
    shape, slot, key = terms.shape[scores], terms.slot[scores], terms.keys[given]
    if key[:3] == ("log gradient", _G, ()) and terms.operands[given][1] == softmax(terms, scores, dim):
        return times(terms, _log_softmax_gradient(terms, terms.operands[given][0], scores, dim), constant)
    found = terms.term(("softmax gradient", _G, (None,), pattern, ()), (given, scores), shape, slot)
    return times(terms, found, constant)


def _log_softmax_gradient(terms: Terms, given: int, scores: int, dim: int) -> int:
    scores = unshifted(terms, scores, dim)
    (given, constant), names = bare(terms, given), _rows(len(terms.shape[scores]))
    head = ("log-softmax gradient", _G, (None,), (names, names, names, (), (), (dim,)), ())
    return times(terms, term_of(terms, head, (given, scores), terms.shape[scores], terms.slot[scores]), constant)


def _is_real(attributes: Any) -> bool:
    """Return whether the one attribute is no type, or one of numbers that are not whole."""
    return attributes == (None,) or (len(attributes) == 1 and "float" in str(attributes[0]))


def _of_softmax(terms: Terms, head: Head, operands: Operands) -> int | None:
    (names, result, _, _, whole) = head[3]
    return softmax(terms, operands[0], whole[0]) if names == result and len(whole) == 1 and _is_real(head[2]) else None


def _of_softmax_gradient(terms: Terms, head: Head, operands: Operands) -> int | None:
    if head[1] != _G or len(operands) != 2 or len(set(head[3][:3])) != 1 or len(head[3][-1]) != 1 or not _is_real(head[2]):
        return None
    back = softmax_gradient if head[0] == "softmax gradient" else _log_softmax_gradient
    return back(terms, *operands, head[3][-1][0])


def _of_log(terms: Terms, head: Head, operands: Operands) -> int | None:
    """`log(softmax(x))`."""
    key = terms.keys[operands[0]]
    if key[:3] != ("softmax", 0, (None,)):
        return None
    scores = terms.operands[operands[0]]
    return terms.term(("log-softmax", *key[1:]), scores, terms.shape[scores[0]], terms.slot[scores[0]])


def _of_log_softmax(terms: Terms, head: Head, operands: Operands) -> int | None:
    (names, result, _, _, whole) = head[3]
    if names != result or len(whole) != 1 or not _is_real(head[2]):
        return None
    scores = unshifted(terms, operands[0], whole[0])
    return terms.term((*head[:2], (None,), *head[3:]), (scores,), terms.shape[scores], terms.slot[scores])


def _is_power(terms: Terms, term: int) -> bool:
    """Return whether a term is e to the power of another one."""
    head = terms.keys[term]
    return head[1:3] == (0, ()) and has_trait(str(head[0]), Trait.EXPONENTIAL)


def _sum_of_powers(terms: Terms, total: int) -> tuple[int, int, tuple[int, ...]] | None:
    """For a sum of `exp(y)` over one dimension: the power, that dimension, and the power's dimension for each of the sum's."""
    head = terms.keys[total]
    if len(head) != 5 or head[:3] != ("sum", 0, (None,)) or head[4] or len(head[3][2]) != 1:
        return None
    (power,) = terms.operands[total]
    if not _is_power(terms, power) or head[3][0] != _rows(len(terms.shape[power])):
        return None
    return power, head[3][2][0], head[3][1]


def _row_sums(terms: Terms, total: int, divisor: Sequence[int], powers: Sequence[int]) -> tuple[int, int] | None:
    """`y` and the dimension, where `total` with indices `divisor` is the sum of the rows of `exp(y)` with indices `powers`.

    The divisor then has the index of every dimension of the powers but that, and is 1 wide in all others.
    """
    found = _sum_of_powers(terms, total)
    if found is None or len(powers) != len(terms.shape[found[0]]) or len(divisor) != len(found[2]):
        return None
    power, dim, kept = found
    rows = [place for place in range(len(powers)) if place != dim]
    if sorted(place for place in kept if place >= 0) != rows:
        return None
    if any(source != (powers[place] if place >= 0 else -1) for source, place in zip(divisor, kept, strict=True)):
        return None
    return terms.operands[power][0], dim


def _of_quotient(terms: Terms, head: Head, operands: Operands) -> int | None:
    """`exp(y)`, or a product of it, divided by its sum along a dimension."""
    if head[1:3] != (0, ()) or len(operands) != 2 or head[3][0] != head[3][2]:
        return None
    left, right = head[3][:2]
    if _is_power(terms, operands[0]):
        found = _row_sums(terms, operands[1], right, left)
        is_same = found is not None and found[0] == terms.operands[operands[0]][0]
        return softmax(terms, *found) if found is not None and is_same else None
    inner, constant = bare(terms, operands[0])
    if terms.keys[inner][0] != PRODUCT:
        return None
    one, other, result = terms.keys[inner][1]
    named = dict(zip(result, left, strict=True))
    for (power, is_same), (value, more) in (((0, one), (1, other)), ((1, other), (0, one))):
        term = terms.operands[inner][power]
        found = _row_sums(terms, operands[1], right, [named.get(number, -2 - number) for number in is_same])
        if _is_power(terms, term) and found is not None and found[0] == terms.operands[term][0]:
            if is_same[found[1]] in named or is_same[found[1]] not in more:
                return None
            chances = softmax(terms, *found)
            return times(terms, product(terms, (chances, is_same), (terms.operands[inner][value], more), result), constant)
    return None


def without_powers(terms: Terms, term: int) -> int:
    """`exp(y)^T (g / d)`, with `d` the sum of `exp(y)` along the dimension that both lack, as `softmax(y)^T g`."""
    inner, constant = bare(terms, term)
    if terms.keys[inner][0] != PRODUCT:
        return term
    one, other, result = terms.keys[inner][1]
    first, second = terms.operands[inner]
    for power, kept, shared, more in ((first, one, second, other), (second, other, first, one)):
        given = terms.keys[shared]
        if not _is_power(terms, power) or given[:3] != ("div gradient", _G, ()) or given[3][0] != given[3][2]:
            continue
        named = dict(zip(given[3][0], more, strict=True))
        divisor = [named.get(number, -1) for number in given[3][1]]
        found = _row_sums(terms, terms.operands[shared][1], divisor, kept)
        if found is None or found[0] != terms.operands[power][0] or kept[found[1]] in more:
            continue
        changed = product(terms, (softmax(terms, *found), kept), (terms.operands[shared][0], more), result)
        return times(terms, changed, constant)
    return term


def _of_power(terms: Terms, head: Head, operands: Operands) -> int | None:
    """Return what `exp` makes of the two gradients of `e` in `e / sum(e)`, or in a product of `e` divided by it."""
    key, scores = terms.keys[operands[0]], operands[1] if len(operands) == 2 else -1
    if head[1:3] != (_G, ()) or scores < 0 or key[0] != GRADIENT_SUM or len(terms.operands[operands[0]]) != 2:
        return None
    addends = [bare(terms, addend) for addend in terms.operands[operands[0]]]
    if addends[0][1] != addends[1][1]:
        return None
    for (direct, constant), (through, _) in (addends, addends[::-1]):
        found = _of_two_ways(terms, direct, through, scores)
        if found is not None:
            return times(terms, found, constant)
    return None


def _of_two_ways(terms: Terms, direct: int, through: int, scores: int) -> int | None:
    spread = terms.keys[through]
    if spread[:3] != ("sum gradient", _G, (None,)):
        return None
    total = terms.operands[through][0]
    if terms.keys[total][:3] != ("div gradient", (1, (0,)), ()) or len(terms.operands[total]) != 3:
        return None
    given, above, divisor = terms.operands[total]
    gradient, upper, lower, result = terms.keys[total][3][:4]
    known = _sum_of_powers(terms, divisor)
    if known is None or terms.operands[known[0]][0] != scores or gradient != upper or lower != result:
        return None
    power, dim, kept = known
    if not _same_places(spread[3], kept):
        return None
    quotient = ("div", 0, (), (upper, lower, upper, (), (), ()), ())
    whole = _of_quotient(terms, quotient, (above, divisor))
    if whole is None:
        return None
    if above == power:
        expected = ("div gradient", _G, (), (upper, lower, upper, (), (), ()), ())
        same = terms.keys[direct] == expected and terms.operands[direct] == (given, divisor)
        return softmax_gradient(terms, given, scores, dim) if same else None
    return _of_product(terms, direct, (given, above, divisor), (upper, lower), power, scores, dim)


def _same_places(pattern: tuple[tuple[int, ...], ...], kept: Sequence[int]) -> bool:
    """Return whether the gradient of a sum goes back to where its elements came from."""
    source, result = pattern[:2]
    return len(source) == len(kept) and all(
        (source_place == -1) if place < 0 else result[place] == source_place
        for source_place, place in zip(source, kept, strict=True)
    )


def _of_product(
    terms: Terms, direct: int, parts: tuple[int, int, int], names: tuple[Any, Any], power: int, scores: int, dim: int
) -> int | None:
    """As `_of_two_ways`, of a product `n` of the powers that is divided: `direct` is `(g / d) v^T`."""
    given, above, divisor = parts
    upper, lower = names
    inner, constant = bare(terms, above)
    if terms.keys[inner][0] != PRODUCT or constant != NONE or power not in terms.operands[inner]:
        return None
    place = terms.operands[inner].index(power)
    places, more = terms.keys[inner][1][place], terms.keys[inner][1][1 - place]
    value, result = terms.operands[inner][1 - place], terms.keys[inner][1][2]
    head = ("div gradient", _G, (), (upper, lower, upper, (), (), ()), ())
    shared = terms.find(head, (given, divisor), terms.shape[above], terms.slot[above])
    if shared is None or direct != product(terms, (shared, result), (value, more), places):
        return None
    return softmax_gradient(terms, product(terms, (given, result), (value, more), places), scores, dim)


def _log_sum_exp(terms: Terms, scores: int, pattern: Sequence[Any]) -> tuple[int, int]:
    """`sum(exp(x))` and its logarithm, over the dimension that the pattern needs whole."""
    names, result, (dim,) = pattern
    every, rows = _rows(len(names)), _rows(len(result))
    shape, slot = terms.shape[scores], terms.slot[scores]
    power = terms.term(("exp", 0, (), (every, every, (), (), ()), ()), (scores,), shape, slot)
    kept = tuple(1 if number < 0 else shape[number] for number in result)
    place = result.index(slot) if slot in result and slot >= 0 else -1
    total = terms.term(("sum", 0, (None,), (every, result, (dim,), (), ()), ()), (power,), kept, place)
    return total, terms.term(("log", 0, (), (rows, rows, (), (), ()), ()), (total,), kept, place)


def _of_log_sum_exp(terms: Terms, head: Head, operands: Operands) -> int | None:
    names, result, _, _, whole = head[3]
    return _log_sum_exp(terms, operands[0], (names, result, whole))[1] if len(whole) == 1 else None


def _of_log_sum_exp_gradient(terms: Terms, head: Head, operands: Operands) -> int | None:
    if head[1] != _G or len(operands) != 2 or len(head[3][-1]) != 1 or head[3][1] != head[3][2]:
        return None
    (result, names, whole), scores = _turned(head[3]), operands[1]
    total, _ = _log_sum_exp(terms, scores, (names, result, whole))
    rows, every = _rows(len(result)), _rows(len(names))
    shape, slot = terms.shape[total], terms.slot[total]
    given = terms.term(("log gradient", _G, (), (rows, rows, rows, (), (), ()), ()), (operands[0], total), shape, slot)
    pattern = (*renumbered(result, names), (), (), ())
    sizes = (terms.shape[scores][whole[0]],)
    spread = terms.term(("sum gradient", _G, (None,), pattern, sizes), (given,), terms.shape[scores], terms.slot[scores])
    key = ("exp gradient", _G, (), (every, every, every, (), (), ()), ())
    return terms.term(key, (spread, scores), terms.shape[scores], terms.slot[scores])


def _turned(pattern: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the indices of a row's number, of the rows and of the whole dimension, numbered as the rows' dimensions."""
    names, result, whole = renumbered(pattern[1], pattern[0], pattern[-1])
    return result, names, whole


RULES: dict[str, Rule] = {
    "softmax": _of_softmax,
    "softmax gradient": _of_softmax_gradient,
    "log-softmax": _of_log_softmax,
    "log-softmax gradient": _of_softmax_gradient,
    "log": _of_log,
    "logsumexp": _of_log_sum_exp,
    "logsumexp gradient": _of_log_sum_exp_gradient,
    "div": _of_quotient,
    "exp gradient": _of_power,
}
"""By operator: the normal form, or None where the term is none of these."""
