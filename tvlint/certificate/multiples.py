"""Constants that stand in a value in two ways: as an operator of the plan, and as a factor of the relation.

`c` times (`x` times `k`) is `c k` times `x`, for numbers `c` and `k`. A constant is the decimal number that the plan writes.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite

from tvlint.certificate.form import Part, Relation, Term
from tvlint.certificate.sums import fold_of, scaled, total
from tvlint.certificate.tables import Tables

_LONGEST = 10**9
"""Constants of longer fractions are rounded ones."""


def agreed(tables: Tables, value: Relation, claim: Relation | None) -> bool:
    """Whether the claim is the value: the same relation, or one that has its constants in other places."""
    return claim is value or (claim is not None and plain(tables, value) is plain(tables, claim))


def plain(tables: Tables, own: Relation) -> Relation:
    """The relation with the constants that its term was multiplied with, last, among its factors."""
    while fold_of(own) is None:
        term = tables.terms[own.term]
        factor = _factor(tables, term)
        if factor is None:
            break
        parts = []
        for part in own.parts:
            for path in part.paths:
                kind, bases, at, position = tables.paths[path]
                if (kind, at, position) != ("through", own.term, 0):
                    return own
                parts.append(Part(frozenset(bases), part.coefficient * factor, part.sums))
        (below,) = term.operands
        if parts:
            own = total(tables, below, own.box, parts)
        else:
            own = scaled(tables, tables.relation(below, own.box, own.coefficient), factor)
    return own


def _factor(tables: Tables, own: Term) -> Fraction | None:
    """The number that the term's operator, or its gradient, multiplies its one operand with; None where it does not."""
    if len(own.head) != 5 or len(own.operands) != 1 or own.head[1] not in (0, (0, (0,))):
        return None
    op, attributes = str(own.head[0]).removesuffix(" gradient"), own.head[2]
    if op not in ("mul", "div") or not isinstance(attributes, tuple) or len(attributes) != 2:
        return None
    place, number = attributes
    below = tables.terms[own.operands[0]]
    if type(number) not in (int, float) or not isfinite(number) or (op == "div" and place != 1):
        return None
    exact = Fraction(str(number))
    longest = max(abs(exact.numerator), exact.denominator)
    if not exact or longest > _LONGEST or (below.shape, below.slot) != (own.shape, own.slot):
        return None
    return exact if op == "mul" else 1 / exact
