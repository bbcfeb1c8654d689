"""Which numbers the constants of plans stand for: small fractions, roots of them, and nothing nearby."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan, nextafter, sqrt

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.analyses.relations.terms.numbers import number_of, square_of
from tvlint.findings import Outcome

FRACTIONS = (Fraction(1), Fraction(1, 3), Fraction(2, 3), Fraction(1, 1024), Fraction(7, 12), Fraction(-5, 7), Fraction(1, 10))


@pytest.mark.parametrize("fraction", FRACTIONS, ids=str)
def test_the_nearest_number_to_a_small_fraction_stands_for_it_and_no_other_does(fraction: Fraction) -> None:
    near = float(fraction)
    assert number_of(near) == fraction
    assert square_of(near) == fraction**2
    for other in (nextafter(near, inf), nextafter(near, -inf)):
        assert number_of(other) not in (fraction, None)
        assert square_of(other) != fraction**2


@pytest.mark.parametrize("square", [2, 3, 64, 96, 128, 5120])
def test_a_root_is_told_by_its_square(square: int) -> None:
    assert square_of(sqrt(square)) == square_of(-sqrt(square)) == square
    assert square_of(1 / sqrt(square)) == square_of(square**-0.5) == Fraction(1, square)
    for way in (inf, -inf):
        assert square_of(nextafter(nextafter(nextafter(sqrt(square), way), way), way)) != square


@pytest.mark.parametrize("value", [nan, inf, -inf, True, "1", None, (1,)])
def test_what_is_no_finite_number_stands_for_none(value: object) -> None:
    assert number_of(value) is square_of(value) is None


@pytest.mark.parametrize("value", [1e300, -1e300, 1e-300, 5e-324, 10**400])
def test_very_large_and_very_small_numbers_are_what_they_are(value: float) -> None:
    exact = Fraction(value) if isinstance(value, int) else Fraction(str(value))
    assert (number_of(value), square_of(value)) == (exact, exact**2)


REFERENCE = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  g = gelu(h)
  l: f32[] = sum(g)
  dg = backward l (grad(l))
  dh = backward g (dg)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("number", ["1.0000000000000002", "0.9999999999999999", "1.0000001"])
@pytest.mark.parametrize("call", ["mul(h, {})", "mul({}, h)", "div(h, {})"])
def test_a_factor_next_to_one_is_not_one(call: str, number: str) -> None:
    def scaled(factor: str) -> str:
        text = REFERENCE.replace("  g = gelu(h)\n", f"  k = {call.format(factor)}\n  g = gelu(k)\n")
        return text.replace("  dh = backward g (dg)\n", "  dk = backward g (dg)\n  dh = backward k (dk)\n")

    assert verdict_on(scaled("1.0"), REFERENCE).outcome is Outcome.PROVED
    assert verdict_on(scaled(number), REFERENCE).outcome is not Outcome.PROVED
    seed = REFERENCE.replace("  dh = backward", f"  dq = {call.format(number).replace('h', 'dg')}\n  dh = backward").replace(
        "(dg)\n  _", "(dq)\n  _"
    )
    assert verdict_on(seed, REFERENCE).outcome is not Outcome.PROVED
