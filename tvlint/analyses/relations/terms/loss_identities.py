"""Identities of real arithmetic that make one term of two ways to write a loss.

With `x` the scores of a row, `t` its target and `L(x) = log sum e^x` over the classes:

- `nll(log_softmax(x), t)` is `cross_entropy(x, t)`, by definition; so are their gradients, by the chain rule;
- `log(sum(exp(x))) - x[t]` is `cross_entropy(x, t)` where `t` is a class, and `cross_entropy(x - m, t)` is
  `cross_entropy(x, t)` for every `m` that is the same for all classes, since `L(x - m) = L(x) - m`;
- the gradient `g` of that goes to `x` as `e^x g / sum(e^x)` and `-g` at `t`, whose sum is the gradient of `cross_entropy`, the
  same for `x` and for `x - m`.

The second and third hold for targets that are classes only; what is none has no score, and `cross_entropy` leaves it out.
They are used where the reference has the loss as one operator, and their use is an assumption that the verdict lists.

And `n` times `x / n` is `x`, which is what an all-reduce makes of `n` equal copies that are divided by their number.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from tvlint.analyses.relations.terms.numbers import number_of
from tvlint.analyses.relations.terms.terms import GRADIENT_SUM, Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import adds_both, has_trait, scaling_of

Head: TypeAlias = tuple[Any, ...]
Operands: TypeAlias = tuple[int, ...]

CLASSES = "every target of a `cross_entropy` that is written out is a class: none is ignored"

_LOSS: Head = ("cross-entropy-rows", 0, (), ((0, 1), (0,), (0,), (), (), (1,)), ())
_LOSS_GRADIENT: Head = ("cross-entropy-rows gradient", (0, (0,)), (), ((0,), (0, 1), (0,), (0, 1), (), (), (1,)), ())
_ROWS = ((0, 1), (0, 1), (), (), (1,))
_ROWS_GRADIENT = ((0, 1), (0, 1), (0, 1), (), (), (1,))
_PICK = ((0, 1), (0,), (0,), (1,), (), ())
_LINE = ((0,), (0,), (0,), (), (), ())


def term_of(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int:
    """Return the term of operator `head` on `operands`, or the one that an identity gives in its place."""
    rule = _RULES.get(head[0])
    found = rule(terms, head, operands, shape, slot) if rule is not None else None
    return terms.term(head, operands, shape, slot) if found is None else found


def summed(terms: Terms, term: int) -> int:
    """Return the term of a sum of gradients, or the one that an identity gives in its place."""
    operands = terms.operands[term]
    if terms.keys[term][0] != GRADIENT_SUM or len(operands) != 2:
        return term
    for one, other in (operands, operands[::-1]):
        found = _written_gradient(terms, one, other)
        if found is not None:
            return found
    return term


def scaled_term(terms: Terms, term: int, coefficient: int | Fraction) -> int | None:
    """Return the term that this many times the term is, where constant factors and divisors of it cancel that."""
    total = Fraction(coefficient)
    while terms.is_own(term):
        below = multiplied(terms, term)
        if below is None:
            return None
        factor, term = below
        total *= factor
        if total == 1:
            return term
    return None


def multiplied(terms: Terms, term: int) -> tuple[Fraction, int] | None:
    """Return the constant that the term's own operator multiplies its one operand with, and that; None where it does not."""
    head, operands = terms.keys[term], terms.operands[term]
    factor = factor_of(head[0].removesuffix(" gradient"), head[2]) if len(operands) == 1 and len(head) == 5 else None
    if factor is None or head[1] not in (0, (0, (0,))) or terms.shape[operands[0]] != terms.shape[term]:
        return None
    return factor, operands[0]


def factor_of(op: str, attributes: Any) -> Fraction | None:
    """Return the number that `op` multiplies its one operand with, given its constant and the place of that; None if it does
    not.
    """
    scaling = scaling_of(op, attributes)
    number = number_of(scaling[0]) if scaling is not None else None
    if scaling is None or not number:
        return None
    return number if scaling[1] == 1 else 1 / number


def multiplies_with_zero(terms: Terms) -> bool:
    """Return whether anything is multiplied with the constant zero: an addend may then be zero, however often it is added."""
    scalings = (scaling_of(head[0].removesuffix(" gradient"), head[2]) for head in terms.keys if len(head) == 5)
    return any(scaling is not None and scaling[1] == 1 and number_of(scaling[0]) == 0 for scaling in scalings)


def multiple_of(terms: Terms, term: int) -> tuple[Fraction, int]:
    """Return how many times which value the term is, by all constants that multiply it."""
    times = Fraction(1)
    while (below := multiplied(terms, term)) is not None:
        times, term = times * below[0], below[1]
    return times, term


def bare_term(terms: Terms, term: int) -> int:
    """Return what the term is a multiple of by constants."""
    return multiple_of(terms, term)[1]


def is_gradient(terms: Terms, term: int) -> bool:
    """Return whether the term is a gradient, in which all that follows is linear."""
    head = terms.keys[term]
    return bool(head[0] in ("one", GRADIENT_SUM) or str(head[0]).endswith(" gradient"))


def summands(terms: Terms, term: int) -> tuple[int, ...]:
    """Return the values that the term's own operator adds up; none where it does something else."""
    head, operands = terms.keys[term], terms.operands[term]
    return operands if len(head) == 5 and len(operands) == 2 and adds_both(head[0], head[2]) else ()


def taken_away(terms: Terms) -> frozenset[int]:
    """Return the values of which anything is made by subtracting them, or multiples of them, or by adding negative ones."""
    return frozenset(value for found in subtractions(terms).values() for _, value, _ in found)


def subtractions(terms: Terms) -> dict[int, list[tuple[int, int, Fraction]]]:
    """Return, by the term that it makes, what a multiple of a value is subtracted from, which value, and how often."""
    found = dict[int, list[tuple[int, int, Fraction]]]()
    for term, (head, operands) in enumerate(zip(terms.keys, terms.operands, strict=True)):
        if len(head) != 5 or len(operands) != 2 or not has_trait(str(head[0]), Trait.SUM):
            continue
        signs = (Fraction(1), (number_of(head[2][0]) if head[2] else None) or Fraction(1))
        signs = (signs[0], -signs[1]) if has_trait(str(head[0]), Trait.DIFFERENCE) else signs
        for sign, operand, other in zip(signs, operands, operands[::-1], strict=True):
            factor, value = sign, operand
            while (below := multiplied(terms, value)) is not None:
                factor, value = factor * below[0], below[1]
            if factor < 0:
                found.setdefault(term, []).append((other, value, -factor))
    return found


def gradients_added(terms: Terms, term: int) -> tuple[int, ...]:
    """Return the gradients that the term's own operator adds up; none where it adds anything else."""
    added = summands(terms, term)
    return added if all(is_of_gradients(terms, each) for each in added) else ()


def is_of_gradients(terms: Terms, term: int) -> bool:
    """Return whether the term is a multiple of a gradient, or of a sum of gradients.

    What sums add up is asked without going into itself: a sum of gradients is as deep as a value has uses.
    """
    known = terms.of_gradients
    waiting, seen = [term], set[int]()
    while waiting:
        inner = bare_term(terms, waiting.pop())
        if inner in seen or known.get(inner, False) or is_gradient(terms, inner):
            continue
        added = () if inner in known else summands(terms, inner)
        if not added:
            known[bare_term(terms, term)] = False
            return False
        seen.add(inner)
        waiting += added
    known.update(dict.fromkeys(seen, True))
    return True


def _likelihood(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int | None:
    scores = _operands(terms, operands[0], "log-softmax", 0, (None,), _ROWS)
    return None if scores is None else terms.term(_LOSS, (scores[0], operands[1]), shape, slot)


def _chances_gradient(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int | None:
    if head[1:4] != ((0, (0,)), (None,), _ROWS_GRADIENT):
        return None
    given = _operands(terms, operands[0], "nll-rows gradient", (0, (0,)), (), ((0,), (0,), (0, 1), (), (), (1,)))
    return None if given is None else terms.term(_LOSS_GRADIENT, (given[0], operands[1], given[1]), shape, slot)


def _written_loss(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int | None:
    """`log(sum(exp(x))) - x[t]`."""
    if head[1:4] != (0, (1,), _LINE):
        return None
    scores, target = _sum_and_target(terms, operands)
    return None if target < 0 else _known(terms, _LOSS, (_unshifted(terms, scores), target), shape, slot)


def _sum_and_target(terms: Terms, operands: Operands) -> tuple[int, int]:
    """Return the scores and the target of a log-sum-exp and a picked score; -1 where they are not of the same scores."""
    total = _operands(terms, operands[0], "log", 0, (), ((0,), (0,), (), (), ()))
    picked = _operands(terms, operands[1], "masked-gather", 0, (), _PICK)
    scores = _summed_scores(terms, total[0]) if total is not None else -1
    if picked is None or picked[0] != scores:
        return -1, -1
    return scores, picked[1]


def _summed_scores(terms: Terms, total: int) -> int:
    """`x` of a sum over classes of `exp(x)`; -1 where the term is none."""
    powers = _operands(terms, total, "sum", 0, (None,), ((0, 1), (0,), (1,), (), ()))
    scores = _operands(terms, powers[0], "exp", 0, (), ((0, 1), (0, 1), (), (), ())) if powers is not None else None
    return scores[0] if scores is not None else -1


def _written_gradient(terms: Terms, through_sum: int, through_target: int) -> int | None:
    """Return the two addends of the gradient of a loss that is written out."""
    power = _operands(terms, through_sum, "exp gradient", (0, (0,)), (), ((0, 1), (0, 1), (0, 1), (), (), ()))
    spread = _operands(terms, power[0], "sum gradient", (0, (0,)), (None,), ((0,), (0, 1), (), (), ())) if power else None
    log = _operands(terms, spread[0], "log gradient", (0, (0,)), (), ((0,), (0,), (0,), (), (), ())) if spread else None
    left = _operands(terms, log[0], "sub gradient", (0, (0,)), (1,), ((0,), (0,), (), (), ())) if log else None
    left = log[:1] if log and terms.normal else left
    picked = _operands(terms, through_target, "masked-gather gradient", (0, (0,)), (), ((0,), (0,), (0, 1), (), (), ()))
    right = _operands(terms, picked[0], "sub gradient", (1, (0,)), (1,), ((0,), (0,), (), (), ())) if picked else None
    if power is None or log is None or picked is None or left is None or left != right:
        return None
    scores = power[1]
    if _summed_scores(terms, log[1]) != scores or terms.shape[through_sum] != terms.shape[through_target]:
        return None
    operands = (left[0], _unshifted(terms, scores), picked[1])
    return _known(terms, _LOSS_GRADIENT, operands, terms.shape[through_sum], terms.slot[through_sum])


def _of_shifted(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int | None:
    """Return the gradient of `x` in `x - m` or `x + m`, where it comes from a loss: the gradient of the difference itself."""
    first = (0, (0,)) if head[0] == "sub gradient" else ()
    if head[1] != first or head[3] != ((0, 1), (0, 1), (), (), ()) or terms.shape[operands[0]] != shape:
        return None
    from_loss = terms.keys[operands[0]][0] == _LOSS_GRADIENT[0] and (head[0] == "sub gradient" or head[2] == (1,))
    return operands[0] if from_loss else None


def _unshifted(terms: Terms, scores: int) -> int:
    """Return the scores without what is added to or subtracted from those of all classes alike, and is always a number."""
    head, operands = terms.keys[scores], terms.operands[scores]
    while has_trait(str(head[0]), Trait.SUM) and len(operands) == 2 and head[1] == 0 and len(head[2]) == 1:
        left, right, result = head[3][:3]
        if left == result and result[1] not in right:
            kept, shift = operands
        elif right == result and result[1] not in left and adds_both(str(head[0]), head[2]):
            shift, kept = operands
        else:
            break
        if not is_always_a_number(terms, shift):
            break
        scores = kept
        head, operands = terms.keys[scores], terms.operands[scores]
    return scores


def is_always_a_number(terms: Terms, term: int) -> bool:
    """Return whether the term has a value wherever what the reference computes has one."""
    waiting, seen = [term], {term}
    while waiting:
        inner = waiting.pop()
        if not terms.foreign(inner):
            continue
        if is_restricted(terms, inner):
            return False
        waiting += [operand for operand in terms.operands[inner] if operand not in seen]
        seen.update(terms.operands[inner])
    return True


def is_restricted(terms: Terms, term: int) -> bool:
    """Return whether the term's own operator has no value for some numbers."""
    name = str(terms.keys[term][0]).removesuffix(" gradient")
    return has_trait(name, Trait.RESTRICTED) and multiplied(terms, term) is None


def _operands(terms: Terms, term: int, op: str, which: Any, attributes: Any, pattern: Any) -> Operands | None:
    """Return the operands of a term of exactly that operator; None where it is another."""
    head = terms.keys[term]
    return terms.operands[term] if len(head) == 5 and head[:4] == (op, which, attributes, pattern) else None


def _known(terms: Terms, head: Head, operands: Operands, shape: tuple[int, ...], slot: int) -> int | None:
    """Return a term that the reference has; in normal forms, any."""
    found = terms.term(head, operands, shape, slot) if terms.normal else terms.find(head, operands, shape, slot)
    if terms.normal:
        terms.assumptions.add(CLASSES)
        return found
    if found is None or terms.sealed < 0 or terms.foreign(found):
        return None
    terms.assumptions.add(CLASSES)
    return found


_RULES: dict[str, Callable[[Terms, Head, Operands, tuple[int, ...], int], int | None]] = {
    "nll-rows": _likelihood,
    "log-softmax gradient": _chances_gradient,
    "sub": _written_loss,
    "sub gradient": _of_shifted,
    "add gradient": _of_shifted,
}
