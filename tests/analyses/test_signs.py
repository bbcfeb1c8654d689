"""What is known of the signs of sums that a band of flags is a factor of."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tvlint.analyses.relations.terms.expressions import BAND, FLAG, FUNCTION, ONE, PLACE, TOTAL
from tvlint.analyses.relations.terms.signs import is_positive
from tvlint.analyses.relations.terms.terms import Terms

ROWS, COLUMNS, OVER_COLUMNS, OVER_ROWS = (0, 1), (1, 0), (0, -2), (-2, 0)


def is_sum_positive(flag: tuple[object, ...], shape: tuple[int, int], pattern: tuple[int, int]) -> bool:
    """Return whether the sum of the powers of e of a matrix, at what is flagged, is known to be positive."""
    terms = Terms()
    power = terms.term((FUNCTION, "exp"), (terms.term(("input", "x"), (), shape, -1),), shape, -1)
    factors = ((pattern, ONE), (pattern, ONE))
    left = tuple(size for index, size in zip(pattern, shape, strict=True) if index >= 0)
    return is_positive(terms, terms.term((TOTAL, factors), (terms.term(flag, (), shape, -1), power), left, -1))


@pytest.mark.parametrize("pattern", [ROWS, OVER_COLUMNS, OVER_ROWS])
@pytest.mark.parametrize("negated", [True, False])
def test_a_sum_is_positive_where_every_row_or_column_has_a_flag(pattern: tuple[int, int], negated: bool) -> None:
    for rows, columns, least in product(range(1, 5), range(1, 5), range(1, 4)):
        distance = np.arange(columns) - np.arange(rows)[:, None]
        flags = (distance < least) if negated else (distance >= least)
        dims = tuple(dim for dim, index in enumerate(pattern) if index < 0)
        known = is_sum_positive((FLAG, negated, BAND, least), (rows, columns), pattern)
        assert known == (bool(dims) and bool(flags.any(axis=dims).all())), (rows, columns, least)


def test_other_flags_and_diagonals_may_be_nowhere() -> None:
    for flag, pattern in ((PLACE, OVER_COLUMNS), ((FLAG, True), OVER_COLUMNS), ((FLAG, True, BAND, 1), (-2, -2))):
        assert not is_sum_positive(flag, (3, 3), pattern)


def test_two_bands_may_leave_nothing() -> None:
    terms = Terms()
    bands = [terms.term((FLAG, negated, BAND, 1), (), (3, 4), -1) for negated in (True, False)]
    assert not is_positive(
        terms, terms.term((TOTAL, ((OVER_COLUMNS, ONE), (OVER_COLUMNS, Fraction(1)))), tuple(bands), (3,), -1)
    )
