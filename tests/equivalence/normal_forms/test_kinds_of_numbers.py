"""Functions of flags and whole numbers that torch computes otherwise than real arithmetic does."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

GIVEN = (
    "weight w f32[3]\ninput x f32[3]\ninput i i64[3]\ninput b bool[3]\ninput c bool[3]\ninput k i8[3]\ninput n u8[3]\n"
    "loss l\nprogram\n"
)
TRAINED = "h = mul(x, w)\nz = mul(h, y)\nl: f32[] = sum(z)\n"


def outcome(made: str, reference: str) -> Outcome:
    """Return the outcome on what is made in one way and in another, both of which scale what is trained."""
    plans = (
        with_backward(GIVEN + "".join(f"{line} || none\n" for line in each.split("; ")) + TRAINED) for each in (made, reference)
    )
    return verdict_on(*plans).outcome


@pytest.mark.parametrize(
    ("made", "reference"),
    [
        ("y = add(b, c)", "y = logical_or(b, c)"),
        ("u = gt(x, 0.0); y = add(u, c)", "u = gt(x, 0.0); y = logical_or(c, u)"),
        ("y = mul(b, 2)", "v = add(b, 1); y = add(v, -1); y = mul(b, 2)"),
        ("u = add(b, 1); y = sub(u, 1)", "y = mul(b, 1)"),
        ("u = add(i, i); y = mul(u, 0.5)", "y = mul(i, 1.0)"),
        ("u = sum(b, 0); y = add(u, u)", "u = sum(b, 0); y = mul(u, 2)"),
        ("u = float(b); y = add(u, u)", "u = float(b); y = mul(u, 2)"),
        ("v = sum(n, 0); y = add(v, v)", "v = sum(n, 0); y = mul(v, 2)"),
        ("v = add(n, 0.5); y = sub(v, 0.5)", "y = mul(n, 1.0)"),
        ("v = tanh(k); y = mul(v, 2.0)", "v = tanh(k); u = mul(v, 4.0); y = mul(u, 0.5)"),
        ("u = sum(b, 0); v: f32[] = float(u); y = mul(v, 2.0)", "u = float(b); v = sum(u, 0); y = mul(v, 2.0)"),
        ("v = masked_fill(k, c, 5); y = mul(v, 1.0)", "v = masked_fill(k, c, 5); u = mul(v, 0.5); y = mul(u, 2.0)"),
    ],
)
def test_what_torch_computes_alike_is_proved(made: str, reference: str) -> None:
    assert outcome(made, reference) is Outcome.PROVED


@pytest.mark.parametrize(
    ("made", "reference"),
    [
        ("y = add(b, b)", "y = mul(b, 2)"),
        ("u = sum(b, 0); v: f16[] = half(u); y = mul(v, 2.0)", "u = float(b); v = sum(u, 0); y = mul(v, 2.0)"),
        ('u = sum(b, 0); v: u8[] = to(u, dtype="uint8"); y = mul(v, 2.0)', "u = float(b); v = sum(u, 0); y = mul(v, 2.0)"),
        ("y = add(b, c)", "u = mul(b, 1); y = add(u, c)"),
        ("u = add(b, b); y = mul(u, 0.5)", "y = mul(b, 1)"),
        ("u = gt(x, 0.0); y = add(u, u)", "u = gt(x, 0.0); y = mul(u, 2)"),
        ("u: f32[3] = gt(x, 0.0); y = add(u, u)", "u: f32[3] = gt(x, 0.0); y = mul(u, 2)"),
        ("u: f32[3] = clone(b); v: f32[3] = clone(u); y = add(v, v)", "u: f32[3] = clone(b); y = mul(u, 2)"),
        ("u = mul(b, c); y = add(u, u)", "u = mul(b, c); y = mul(u, 2)"),
        ("u = masked_fill(b, c, 2); y = mul(u, 1)", "y = where(c, 2, b)"),
        ("u = masked_fill(i, c, 0.5); y = mul(u, 1)", "y = where(c, 0.5, i)"),
        ("u = where(b, c, 1); y = bitwise_not(u)", "u = where(b, c, 1); y = logical_not(u)"),
        ("u = pow(2, i); y = mul(u, 1)", "u = float(i); y = pow(2, u)"),
        ("y = sub(1, b)", "y = logical_not(b)"),
        ("u = neg(b); y = mul(u, 0.5)", "y = mul(b, -0.5)"),
        ("v = neg(n); y = mul(v, 0.5)", "y = mul(n, -0.5)"),
        ("v = mul(n, 2); y = mul(v, i)", "v = mul(n, i); y = mul(v, 2)"),
        ("v = add(k, k); y = sum(v, 0)", "v = sum(k, 0); y = mul(v, 2)"),
        ("v = sub(k, 1); y = add(v, i)", "v = add(k, i); y = sub(v, 1)"),
    ],
)
def test_what_torch_computes_otherwise_is_not(made: str, reference: str) -> None:
    assert outcome(made, reference) is not Outcome.PROVED
    assert outcome(reference, made) is not Outcome.PROVED


@pytest.mark.parametrize(("given", "proved"), [("i", True), ("n", False), ("k", False), ("b", False)])
def test_sums_over_ranks_of_flags_and_of_few_bits_are_not_those_of_real_numbers(given: str, proved: bool) -> None:
    made, reference = (
        f"{GIVEN}{lines}{TRAINED}"
        for lines in (f"s = all-reduce({given}) over dp || none\ny = mul(s, 0.5) || none\n", f"y = mul({given}, 1.0) || none\n")
    )
    average = "end reduce-gradients w over dp by avg\n"
    verdict = verdict_on(with_backward(f"mesh dp=2\n{made}{average}"), with_backward(reference))
    assert (verdict.outcome is Outcome.PROVED) == proved, [reason.message for reason in verdict.reasons]


RECEIVED = """program pp=0
send {sent} to pp+1
h = mul(x, w)
send h to pp+1
recv grad(h) from pp+1
_, grad(w) = backward h (grad(h))
program pp=1
recv u{declared} from pp-1
recv h: f32[3] from pp-1
y = add(u, u)
z = mul(h, y)
l: f32[] = sum(z)
grad(z) = backward l (grad(l))
grad(h), _ = backward z (grad(z))
send grad(h) to pp-1
"""


@pytest.mark.parametrize(
    ("sent", "declared", "proved"),
    [("b", ": i64[3]", False), ("b", "", False), ("b", ": f32[3]", False), ("i", ": i64[3]", True), ("x", ": f32[3]", True)],
)
def test_what_is_received_holds_what_is_sent(sent: str, declared: str, proved: bool) -> None:
    parallel = "mesh pp=2\n" + GIVEN.removesuffix("program\n") + RECEIVED.format(sent=sent, declared=declared)
    reference = f"{GIVEN}u = mul({sent}, 1) || none\ny = add(u, u) || none\n{TRAINED}"
    assert (verdict_on(parallel, with_backward(reference)).outcome is Outcome.PROVED) == proved


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ('u: i64[3] = full([3], 3, dtype="int64"); y: f32[3] = full([3], 3)', Outcome.PROVED),
        ("u: i64[3] = tanh(x); y: f32[3] = full([3], 3)", Outcome.REFUTED),
    ],
)
def test_a_type_is_wrong_where_the_operator_gives_other_numbers(made: str, expected: Outcome) -> None:
    """The same value may be a whole number in one place, and a real one in another, as their operators give it."""
    assert outcome(made, "u = tanh(x); y: f32[3] = full([3], 3)") is expected
