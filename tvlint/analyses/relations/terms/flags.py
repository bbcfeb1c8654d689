"""Masks in sums of products: a flag is a factor that is one or zero.

Filling with minus infinity is adding the logarithm of such a factor, of which the power is the factor again. A mask that
compares positions with positions, or that is a triangle of ones, is a band: the flag of row `r` and column `c` says whether
`c - r` is at least some number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import TypeAlias

from tvlint.analyses.relations.terms.constant_factors import NONE, TIMES, Constant, Pattern, bare
from tvlint.analyses.relations.terms.expressions import (
    BAND,
    FLAG,
    FUNCTION,
    MERGE,
    ONE,
    PAD,
    PLACE,
    SLICE,
    SPLIT,
    SUM_OF_PRODUCTS,
    TOTAL,
    Expression,
    Factor,
    TooLargeError,
    is_flag,
)
from tvlint.analyses.relations.terms.joined_sums import Algebra
from tvlint.analyses.relations.terms.loss_identities import CLASSES
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ops.spec import Trait
from tvlint.ops.table import EQUAL, has_trait, spec_of

_SAME, _OTHER = frozenset({0}), frozenset({-1, 1})
"""The signs of differences for which two numbers are equal, and for which they are not."""

_GIVEN = ("weight", "buffer", "input")
_KEEP_NUMBERS = (Trait.NEGATION, Trait.VIEW, Trait.BROADCAST, Trait.RANGES, Trait.SELECTION)
"""Operators that make of numbers that are not whole others that are not."""

_DEEPEST = 64

_Band: TypeAlias = tuple[Pattern, int, bool]


@dataclass(frozen=True, slots=True)
class _Mask:
    """A mask at some indices, and whether it counts where it is not set."""

    term: int
    places: Pattern
    negated: bool


def flag(algebra: Algebra, term: int, pattern: Sequence[int], negated: bool) -> Expression:
    """Return the mask as a factor: one where it is set, or where it is not.

    Of the masks that all have to be set each is asked once, without going into itself: a mask is as deep as a plan is long.
    """
    waiting, seen, made = [_Mask(term, tuple(pattern), negated)], set[_Mask](), algebra.number(NONE)
    while waiting:
        mask = waiting.pop()
        if mask in seen:
            continue
        seen.add(mask)
        found = _factor_or_masks(algebra, mask)
        if isinstance(found, list):
            waiting += found
        else:
            made = algebra.multiplied(made, found)
    return made


def _factor_or_masks(algebra: Algebra, mask: _Mask) -> Expression | list[_Mask]:
    """Return a mask as a factor, or the masks that all have to be set where it counts."""
    terms, term, negated = algebra.terms, mask.term, mask.negated
    while _is(terms, term, Trait.LOGICAL_NOT):
        term, negated = terms.operands[term][0], not negated
    ((constant, factors),) = algebra.alone(algebra.of_term(term, mask.places))
    if constant == NONE and factors and are_flags(terms, factors):
        found = _all_set(algebra, ((constant, factors),), negated)
        if found is not None:
            return found
    if len(factors) != 1 or factors[0][2] != ONE:
        raise TooLargeError
    inner, places, _ = factors[0]
    head = terms.keys[inner]
    counted = _of_count(algebra, inner, places, negated)
    if counted is not None:
        return counted
    if _holds(head[0]) == _OTHER:
        inner = terms.term((EQUAL, *head[1:]), terms.operands[inner], terms.shape[inner], terms.slot[inner])
        negated = not negated
        head = terms.keys[inner]
    place = _place(algebra, inner, places) if _holds(head[0]) == _SAME and not negated else None
    if place is not None:
        return place
    if _holds(head[0]) == _SAME and negated and _is_no_place(terms, inner):
        terms.assumptions.add(CLASSES)
        return algebra.number(NONE)
    negates = _is(terms, inner, Trait.LOGICAL_NOT)
    if negates or (_is(terms, inner, Trait.CONVERSION) and head[2] == ("bool",)):
        if head[3][0] != head[3][1]:
            raise TooLargeError
        return [_Mask(terms.operands[inner][0], places, negated is not negates)]
    if _is(terms, inner, Trait.LOGICAL_OR if negated else Trait.LOGICAL_AND) and not head[2]:
        *patterns, result = head[3][:3]
        indices = dict(zip(result, places, strict=True))
        return [
            _Mask(operand, tuple(indices.get(index, -1) for index in pattern), negated)
            for operand, pattern in zip(terms.operands[inner], patterns, strict=True)
        ]
    band = _band(algebra, inner, places)
    if band is not None:
        at, least, out = band
        return of_band(algebra, at, least, negated is not out)
    made = terms.term((FLAG, negated), (inner,), terms.shape[inner], terms.slot[inner])
    return ((NONE, ((made, places, ONE),)),)


def _is(terms: Terms, term: int, trait: Trait) -> bool:
    """Return whether the operator of a term has a trait."""
    return has_trait(str(terms.keys[term][0]), trait)


def _holds(op: object) -> frozenset[int]:
    """Return the signs of a difference for which a comparison is true; none for other operators."""
    spec = spec_of(op) if isinstance(op, str) else None
    return frozenset() if spec is None else spec.holds


def _ordered(op: object) -> tuple[int, int, int] | None:
    """Return of a comparison of two positions, which may not be exchanged, which operand has the columns and which the rows,
    and the least `c - r`.
    """
    holds = _holds(op)
    if (1 in holds) is (-1 in holds):
        return None
    column, least = int(-1 in holds), int(0 not in holds)
    return column, 1 - column, least


def are_flags(terms: Terms, factors: Sequence[Factor]) -> bool:
    """Return whether all factors are flags, so that their product is one or zero."""
    return all(terms.keys[term][0] == FLAG and power == ONE for term, _, power in factors)


def _all_set(algebra: Algebra, flags: Expression, negated: bool) -> Expression | None:
    """Return a product of flags, or what says that they are not all set; None where that is no product."""
    terms, ((_, factors),) = algebra.terms, flags
    if not negated:
        return flags
    (term, places, _), *more = factors
    if more or terms.keys[term] == PLACE:
        return None
    (_, is_not, *rest), operands = terms.keys[term], terms.operands[term]
    made = terms.term((FLAG, not is_not, *rest), operands, terms.shape[term], terms.slot[term])
    return ((NONE, ((made, places, ONE),)),)


def _of_count(algebra: Algebra, comparison: int, places: Pattern, negated: bool) -> Expression | list[_Mask] | None:
    """Return what a comparison of a number with ones and zeros says: that they are ones, or that they are zeros."""
    terms = algebra.terms
    head, operands = terms.keys[comparison], terms.operands[comparison]
    holds = _holds(head[0])
    if not holds or len(operands) != 1 or len(head[2]) != 2 or not isinstance(head[2][1], int | float):
        return None
    (literal, number), pattern = head[2], head[3]
    if isnan(number):
        return None
    differences = (number - value if literal == 0 else value - number for value in (0, 1))
    of_zero, of_one = ((difference > 0) - (difference < 0) in holds for difference in differences)
    if of_zero is of_one:
        return None
    at = dict(zip(pattern[1], places, strict=True))
    counted = tuple(at.get(index, -1) for index in pattern[0])
    if is_of_flags(terms, operands[0]):
        return [_Mask(operands[0], counted, negated is of_one)]
    given = ones_and_zeros(algebra, operands[0], counted)
    if len(given) != 1 or given[0][0] != NONE or not given[0][1] or not are_flags(terms, given[0][1]):
        return None
    return _all_set(algebra, given, negated is of_one)


def ones_and_zeros(algebra: Algebra, term: int, pattern: Sequence[int]) -> Expression:
    """Return a term as an expression; flags, and triangles of ones, as ones where they are set and zeros where they are not."""
    if is_of_flags(algebra.terms, term):
        return flag(algebra, term, pattern, negated=False)
    inner, constant = bare(algebra.terms, term)
    if constant == NONE and has_trait(str(algebra.terms.keys[inner][0]), Trait.TRIANGLE) and not algebra.parts:
        triangle = _triangle(algebra.terms, inner, tuple(pattern))
        if triangle is not None and triangle[0] in (1, -inf):
            value, (at, least, out) = triangle
            keeps = of_band(algebra, at, least, out is (value == 1))
            return keeps if value == 1 else logarithm(algebra.terms, keeps)
    return algebra.of_term(term, pattern)


def _place(algebra: Algebra, term: int, places: Pattern) -> Expression | None:
    """Return the factor of a comparison with all positions along a dimension, which says where what is compared is."""
    terms, operands = algebra.terms, algebra.terms.operands[term]
    if len(operands) != 2 or terms.keys[term][2]:
        return None
    *patterns, result = terms.keys[term][3][:3]
    at = dict(zip(result, places, strict=True))
    for position, counted in ((0, 1), (1, 0)):
        dims = [index for index in patterns[counted] if index >= 0]
        inner, constant = bare(terms, operands[counted])
        if (
            len(dims) == 1
            and dims[0] not in patterns[position]
            and constant == NONE
            and _counted(algebra, inner, patterns[counted])
        ):
            return algebra.place_of(operands[position], [at.get(index, -1) for index in patterns[position]], at[dims[0]])
    return None


def _is_no_place(terms: Terms, comparison: int) -> bool:
    """Return whether indices that the reference looks up are compared with a number at which nothing can be looked up."""
    attributes, operands = terms.keys[comparison][2], terms.operands[comparison]
    if len(operands) != 1 or len(attributes) != 2 or not isinstance(attributes[1], int) or isinstance(attributes[1], bool):
        return False
    sizes = [terms.shape[place][-1] for place in terms.within if terms.operands[place] == operands]
    return any(not 0 <= attributes[1] < size for size in sizes)


def of_band(algebra: Algebra, places: Pattern, least: int, negated: bool) -> Expression:
    """Return the factor that is one where column minus row is at least, or is less than, a number.

    What is said of rows and columns is said of columns and rows: `c - r >= n` where `r - c >= 1 - n` is not so.
    """
    if least < 1:
        places, least, negated = (places[1], places[0]), 1 - least, not negated
    shape = tuple(algebra.sizes[index][0] for index in places)
    if any(algebra.sizes[index][1] for index in places):
        raise TooLargeError
    return ((NONE, ((algebra.terms.term((FLAG, negated, BAND, least), (), shape, -1), places, ONE),)),)


def _band(algebra: Algebra, term: int, places: Pattern) -> _Band | None:
    """Return the indices of rows and columns of a band, the least difference in it, and whether it is what is not set."""
    terms = algebra.terms
    head, operands = terms.keys[term], terms.operands[term]
    ordered = _ordered(head[0])
    if ordered is not None and len(operands) == 2 and not head[2]:
        return _of_positions(algebra, term, places, *ordered)
    if ordered is not None and len(operands) == 1 and len(head[2]) == 2:
        return _of_difference(algebra, term, places, *ordered)
    if has_trait(str(head[0]), Trait.TRIANGLE):
        triangle = _triangle(terms, term, places)
        return triangle[1] if triangle is not None and triangle[0] in (1, True) else None
    return None


def _triangle(terms: Terms, term: int, places: Pattern) -> tuple[float, _Band] | None:
    """Return the number that a triangle is of, beside zeros, and the band that it is; None where it is of no one number."""
    (below, diagonal), (operand,) = terms.keys[term][2], terms.operands[term]
    inner, constant = bare(terms, operand)
    filled = terms.keys[inner]
    if len(places) != 2 or -1 in places or constant != NONE or isinstance(diagonal, bool):
        return None
    if not has_trait(str(filled[0]), Trait.FILLED) or not isinstance(filled[2][0], int | float):
        return None
    return filled[2][0], (places, diagonal + below, below)


def _of_positions(algebra: Algebra, term: int, places: Pattern, column: int, row: int, least: int) -> _Band | None:
    """Return the band of a comparison of positions that are counted from zero along two dimensions."""
    terms = algebra.terms
    pattern, operands = terms.keys[term][3], terms.operands[term]
    at = dict(zip(pattern[2], places, strict=True))
    found = []
    for place in (row, column):
        inner, constant = bare(terms, operands[place])
        dims = [index for index in pattern[place] if index >= 0]
        counted = _counted(algebra, inner, pattern[place])
        if constant != NONE or len(dims) != 1 or not counted:
            return None
        found.append(at[dims[0]])
    return (tuple(found), least, False) if found[0] != found[1] else None


def _of_difference(algebra: Algebra, term: int, places: Pattern, column: int, row: int, least: int) -> _Band | None:
    """Return the band of a comparison of a whole number with the difference of two positions that are counted from zero."""
    terms = algebra.terms
    _, _, (literal, number), pattern, _ = terms.keys[term]
    (operand,) = terms.operands[term]
    if type(number) is not int:
        return None
    given = algebra.of_term(operand, [dict(zip(pattern[1], places, strict=True)).get(index, -1) for index in pattern[0]])
    found: dict[int, int] = {}
    for (sign, square), factors in given:
        if square != 1 or len(factors) != 1 or factors[0][2] != ONE or len(factors[0][1]) != 1:
            return None
        if not _counted(algebra, factors[0][0], factors[0][1]):
            return None
        found[sign] = factors[0][1][0]
    if len(given) != 2 or set(found) != {1, -1} or len(set(found.values())) != 2 or -1 in found.values():
        return None
    more, less = (found[1], found[-1]) if literal == row else (found[-1], found[1])
    return (less, more), (number if literal == row else -number) + least, False


def _counted(algebra: Algebra, term: int, pattern: Sequence[int]) -> bool:
    """Return whether the term is the positions along its one dimension, counted from zero."""
    this_algebra = Algebra(algebra.terms)
    ((_, factors),) = this_algebra.alone(this_algebra.of_term(term, pattern))
    ((inner, _, power),) = factors if len(factors) == 1 else ((term, (), ONE),)
    head = algebra.terms.keys[inner]
    return power == ONE and _is(algebra.terms, inner, Trait.POSITIONS) and head[2][:2] == (0, 1)


def is_of_flags(terms: Terms, term: int) -> bool:
    """Return whether the term is true or false everywhere."""
    term, constant = _without_views(terms, term)
    while constant == NONE and has_trait(str(terms.keys[term][0]), Trait.TRIANGLE):
        term, constant = _without_views(terms, terms.operands[term][0])
    head = terms.keys[term]
    if constant != NONE:
        return False
    if head[0] in _GIVEN:
        return bool(head[2] == "bool")
    if has_trait(str(head[0]), Trait.FILLED):
        return bool(head[2][1] == "bool")
    if has_trait(str(head[0]), Trait.CONVERSION) and head[2] == ("bool",):
        return True
    return has_trait(str(head[0]), Trait.COMPARISON)


def _without_views(terms: Terms, term: int) -> tuple[int, Constant]:
    """Return what a term has the elements of, and a constant that they are multiplied with."""
    term, constant = bare(terms, term)
    while constant == NONE and terms.keys[term][0] in (MERGE, SPLIT, SUM_OF_PRODUCTS) and len(terms.operands[term]) == 1:
        addends = terms.keys[term][1] if terms.keys[term][0] == SUM_OF_PRODUCTS else ()
        if len(addends) > 1 or any(constant != NONE or power != ONE for constant, factors in addends for _, power in factors):
            break
        term, constant = bare(terms, terms.operands[term][0])
    return term, constant


def is_of_numbers(terms: Terms, term: int) -> bool:
    """Return whether the elements are numbers that are not whole, so that a mask is one to add and not one of flags."""
    return _is_of_numbers(terms, term, _DEEPEST, {})


def _is_of_numbers(terms: Terms, term: int, deepest: int, known: dict[int, bool]) -> bool:
    head, operands = terms.keys[term], terms.operands[term]
    if term in known or not deepest:
        return known.get(term, False)
    of_operands = [_is_of_numbers(terms, operand, deepest - 1, known) for operand in operands]
    if head[0] in _GIVEN:
        found = is_real(head[2])
    elif has_trait(str(head[0]), Trait.CONVERSION):
        found = len(head[2]) == 1 and is_real(head[2][0])
    elif head[0] in (SUM_OF_PRODUCTS, TOTAL) or has_trait(str(head[0]), Trait.SUM, Trait.SCALING):
        found = any(of_operands)
    elif head[0] == "embedding":
        found = of_operands[1]
    else:
        found = bool(operands) and _keeps_numbers(str(head[0])) and all(of_operands)
    return known.setdefault(term, found)


def may_be_whole(terms: Terms, term: int) -> bool:
    """Return whether the elements may be whole numbers, of which what does not fit their type is lost before a cast."""
    known, waiting = terms.may_be_whole, [term]
    while waiting:
        last = waiting[-1]
        head, operands = terms.keys[last], terms.operands[last]
        unknown = [operand for operand in operands if operand not in known]
        if not unknown:
            given = head[2:3] if head[0] in _GIVEN else head[2] if has_trait(str(head[0]), Trait.CONVERSION) else ()
            known[waiting.pop()] = not all(map(is_real, given)) if given else all(known[operand] for operand in operands)
        waiting += unknown
    return known[term]


def is_real(dtype: object) -> bool:
    return str(dtype).removeprefix("torch.").startswith(("float", "bfloat"))


def _keeps_numbers(head: str) -> bool:
    """Return whether the operator makes of numbers that are not whole others that are not."""
    return head in (TIMES, MERGE, SPLIT, SLICE, PAD) or has_trait(head, *_KEEP_NUMBERS)


def counts_flags(terms: Terms, term: int) -> bool:
    """Return whether the term is how many flags are set: a flag, or a sum of products of flags."""
    waiting, seen = [term], {term}
    while waiting:
        each = waiting.pop()
        head, operands = terms.keys[each], terms.operands[each]
        if is_flag(terms, each):
            continue
        counts = head[0] in (MERGE, SPLIT) or (head[0] == TOTAL and all(power == ONE for _, power in head[1]))
        if head[0] == SUM_OF_PRODUCTS:
            counts = all(constant == NONE and all(power == ONE for _, power in factors) for constant, factors in head[1])
        if not counts:
            return False
        waiting += [operand for operand in operands if operand not in seen]
        seen.update(operands)
    return True


def logarithm(terms: Terms, factor: Expression) -> Expression:
    """Return the logarithm of a product of flags: zero, and minus infinity where one is not set."""
    ((constant, flags),) = factor
    logarithms = ((terms.term((FUNCTION, "log"), (term,), terms.shape[term], terms.slot[term]), at) for term, at, _ in flags)
    return tuple(sorted(((constant, ((made, at, ONE),)) for made, at in logarithms), key=lambda addend: addend[1]))
