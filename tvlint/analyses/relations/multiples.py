"""Which constant multiple of which other value a value is, and what numbers of the run a gradient is multiplied with."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from math import prod

from tvlint.analyses.relations.derivation.single_plan import Alone
from tvlint.analyses.relations.terms.loss_identities import bare_term, gradients_added, is_gradient, multiplied
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_KEEPS = (Trait.CONVERSION, Trait.VIEW, Trait.DETACHED, Trait.RANGES, Trait.APART, Trait.JOIN)
_GIVEN = ("input", "state", "buffer")
"""Values that nothing says the numbers of: one of them may be a loss scale."""


def computed_factors(alone: Alone, term: int) -> tuple[Fraction, int, tuple[int, ...]]:
    """Return with what constants a gradient is multiplied, what is, and with which numbers that the run computes.

    Such a number is a product or a quotient of one element, as the factor of clipped gradients is; the terms that take it are
    returned in its place where they divide.
    """
    factor, inner = bare(alone, term)
    computed: list[int] = []
    while not is_gradient(alone.world.terms, inner):
        number, carried = _of_number(alone.world.terms, inner), _carried(alone, inner)
        if number is not None:
            computed.append(number[1])
            carried = number[0]
        if carried < 0:
            break
        more, inner = bare(alone, carried)
        factor *= more
    return factor, inner, tuple(sorted(computed))


def _carried(alone: Alone, term: int) -> int:
    """Return the one gradient that a product takes, of which it is then a multiple as often; -1 where it takes none."""
    terms = alone.world.terms
    if not has_trait(str(terms.keys[term][0]), Trait.CONTRACTION):
        return -1
    gradients = [operand for operand in terms.operands[term] if is_gradient(terms, bare(alone, operand)[1])]
    return gradients[0] if len(gradients) == 1 else -1


def gradients_within(alone: Alone, term: int) -> frozenset[Fraction]:
    """Return with what constants the gradients are multiplied that a number is computed of.

    Empty where it is also computed of values that nothing says the numbers of, or of no gradient.
    """
    terms, found, seen, waiting = alone.world.terms, set[Fraction](), {term}, [term]
    while waiting:
        factor, inner = bare(alone, waiting.pop())
        if str(terms.keys[inner][0]) in _GIVEN:
            return frozenset()
        if is_gradient(terms, inner):
            found.add(factor)
            continue
        below = set(terms.operands[inner]) - seen
        seen |= below
        waiting.extend(below)
    return frozenset(found)


def bounds_within(terms: Terms, number: int) -> Iterator[tuple[int, list[Fraction]]]:
    """Yield the values with their bounds that a number of the run is computed of, on the way to gradients."""
    seen, waiting = {number}, [number]
    while waiting:
        term = waiting.pop()
        head = terms.keys[term]
        if is_gradient(terms, term):
            continue
        is_bounded = has_trait(str(head[0]), Trait.BOUNDED) and len(head) > 2 and isinstance(head[2], tuple)
        bounds = [Fraction(each) for each in head[2] if isinstance(each, int | float) and each] if is_bounded else []
        yield from [(term, bounds)] if bounds else []
        below = set(terms.operands[term]) - seen
        seen |= below
        waiting.extend(below)


def _of_number(terms: Terms, term: int) -> tuple[int, int] | None:
    """Return the gradient that the term's own operator multiplies with a number, or divides by one, and that number."""
    name, operands = str(terms.keys[term][0]), terms.operands[term]
    if not has_trait(name, Trait.SCALING) or len(operands) != 2:
        return None
    numbers = [operand for operand in operands if prod(terms.shape[operand]) == 1]
    others = [operand for operand in operands if prod(terms.shape[operand]) != 1]
    multiplies = has_trait(name, Trait.PRODUCT)
    if len(numbers) != 1 or (not multiplies and others[0] != operands[0]):
        return None
    return others[0], numbers[0] if multiplies else term


def bare(alone: Alone, term: int) -> tuple[Fraction, int]:
    """Return with what constants in all the term is multiplied, and what is; kept for whatever is made of it."""
    waiting = [] if term in alone.bare else [term]
    while waiting:
        each = waiting[-1]
        needed = [added for added in gradients_added(alone.world.terms, each) if added not in alone.bare]
        below = None if needed else _below(alone, each)
        if below is not None and below[1] not in alone.bare:
            needed = [below[1]]
        if needed:
            waiting += needed
            continue
        waiting.pop()
        factor, inner = (Fraction(1), each) if below is None else alone.bare[below[1]]
        alone.bare[each] = factor * (below[0] if below is not None else 1), inner
    return alone.bare[term]


def _below(alone: Alone, term: int) -> tuple[Fraction, int] | None:
    """Return what the term is a multiple of, in whatever shape or part, and by which constant; None where it is none.

    Constants on the way of a gradient back from where it starts count too. A sum of gradients has those that all have alike.
    """
    terms = alone.world.terms
    below, operands = _kept(terms, term), terms.operands[term]
    added = gradients_added(terms, term)
    if len({alone.bare[each][0] for each in added}) == 1:
        return Fraction(1), added[0]
    if below is not None or not is_gradient(terms, term):
        return below
    found = next((operand for operand in operands if is_gradient(terms, bare_term(terms, operand))), None)
    return None if found is None else (Fraction(1), found)


def _kept(terms: Terms, term: int) -> tuple[Fraction, int] | None:
    """Return which multiple of which value the term's own operator gives, in whatever shape or part, if it gives one."""
    name, operands = str(terms.keys[term][0]), terms.operands[term]
    below = None if name.endswith(" gradient") else multiplied(terms, term)
    if below is None and len(operands) == 1 and has_trait(name, *_KEEPS):
        return _piece(terms, term, operands[0])
    return below


def unchanged(terms: Terms, term: int) -> int:
    """Return the value that the term is a multiple of, by constants or by a number that the run computes, in whatever shape or
    part.
    """
    return numbered(terms, term)[1]


def numbered(terms: Terms, term: int) -> tuple[Fraction, int, tuple[int, ...]]:
    """Return by which constants and of what the term is a multiple, as `unchanged` does, and which numbers scale it."""
    factor, numbers = Fraction(1), list[int]()
    while True:
        kept, by_number = _kept(terms, term), _of_number(terms, term)
        if kept is not None:
            factor, term = factor * kept[0], kept[1]
        elif by_number is not None:
            numbers += [operand for operand in terms.operands[term] if operand != by_number[0]]
            term = by_number[0]
        else:
            return factor, term, tuple(numbers)


def _piece(terms: Terms, term: int, whole: int) -> tuple[Fraction, int]:
    """Return what a range of a flat bucket holds, and how many times: the tensor that was put there, or the whole bucket."""
    factor, bucket = Fraction(1), whole
    while (below := multiplied(terms, bucket)) is not None:
        factor, bucket = factor * below[0], below[1]
    if len(terms.shape[term]) != 1 or len(terms.shape[bucket]) != 1 or not has_trait(str(terms.keys[bucket][0]), Trait.JOIN):
        return Fraction(1), whole
    low = start_in_flat(terms, term)
    if low is None:
        return Fraction(1), whole
    starts = accumulate((terms.shape[operand][0] for operand in terms.operands[bucket]), initial=0)
    held = zip(starts, terms.operands[bucket], strict=False)
    found = next((piece for start, piece in held if start == low and terms.shape[piece] == terms.shape[term]), None)
    return (Fraction(1), whole) if found is None else (factor, found)


def start_in_flat(terms: Terms, term: int) -> int | None:
    """Return where a range of a flat tensor starts in it; None for what is no such range."""
    head = terms.keys[term]
    if len(terms.shape[term]) != 1:
        return None
    if has_trait(str(head[0]), Trait.APART):
        return int(sum(head[2][: head[1]]))
    if has_trait(str(head[0]), Trait.RANGES) and isinstance(head[2][0], tuple) and head[2][0][2:] == (1,):
        return int(head[2][0][0])
    return None
