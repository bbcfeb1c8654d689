"""The greatest and the least elements, whose places nothing reads, on ranks that hold parts of what they are taken of."""

from __future__ import annotations

import pytest

from tests.builders.used_plans import in_use
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.readers.plan_text.reader import read

REFERENCE = "mesh tp=1\ninput x f32[4,8]\nloss l\nprogram\n  m, i = OP(x, dim=1)\n  l = sum(m)\n"
PARALLEL = (
    "mesh tp=2\ninput x f32[4,8] tp:S(1)\nloss l\nprogram\n"
    "  p, i = OP(x, dim=1)\n  m = all-reduce HOW(p) over tp\n  l = sum(m)\n"
)


def outcome(op: str, how: str, more: str = "") -> Outcome:
    plans = [read("a.plan", (text + more).replace("OP", op).replace("HOW", how)).plan for text in (PARALLEL, REFERENCE)]
    assert plans[0] is not None
    assert plans[1] is not None
    return prove(in_use(plans[0]), in_use(plans[1])).outcome


@pytest.mark.parametrize(("op", "how"), [("max", "max"), ("torch.max", "max"), ("min", "min"), ("torch.Tensor.min", "min")])
def test_the_parts_of_ranks_are_completed(op: str, how: str) -> None:
    assert outcome(op, how) is Outcome.PROVED


def behind(function: str, how: str = "max") -> Outcome:
    """Return the verdict on a function of the greatest of each rank, which the ranks put together after it."""
    texts = [
        PARALLEL.replace("  m = all-reduce", f"  q = {function}\n  m = all-reduce").replace("HOW(p)", f"{how}(q)"),
        REFERENCE.replace("  m, i", "  p, i").replace("  l =", f"  m = {function}\n  l ="),
    ]
    plans = [read("a.plan", text.replace("OP", "max")).plan for text in texts]
    assert plans[0] is not None
    assert plans[1] is not None
    return prove(in_use(plans[0]), in_use(plans[1])).outcome


@pytest.mark.parametrize(("function", "how"), [("exp(p)", "max"), ("relu(p)", "max"), ("floor(p)", "max"), ("neg(p)", "min")])
def test_what_grows_with_the_greatest_is_completed_behind_it(function: str, how: str) -> None:
    assert behind(function, how) is Outcome.PROVED


@pytest.mark.usefixtures("without_repairs")
@pytest.mark.parametrize(
    ("function", "how"),
    [("neg(p)", "max"), ("exp(p)", "sum"), ("softplus(p, 1, 1)", "max"), ("gelu(p)", "max"), ("sub(1.0, p)", "max")],
)
def test_what_does_not_grow_with_it_is_not(function: str, how: str) -> None:
    assert behind(function, how) is not Outcome.PROVED


@pytest.mark.usefixtures("without_repairs")
@pytest.mark.parametrize(("op", "how"), [("max", "min"), ("min", "max"), ("max", "sum")])
def test_another_reduction_is_not(op: str, how: str) -> None:
    assert outcome(op, how) is Outcome.REFUTED


@pytest.mark.usefixtures("without_repairs")
def test_places_that_are_read_are_those_of_a_part() -> None:
    assert outcome("max", "max", "  k = gelu(i)\noutput k\n") is not Outcome.PROVED


@pytest.mark.usefixtures("without_repairs")
@pytest.mark.parametrize("call", ["amax(x, dim=1)", "torch.amax(x, 1)", "max(x)", "torch.Tensor.min(x)"])
def test_what_gives_no_places_gives_its_rows_where_two_names_take_it(call: str) -> None:
    """`m, i = amax(x, 1)` takes the results of two rows apart, or fails."""
    whole = call.replace("max(x)", "amax(x)").replace("min(x)", "amin(x)")
    reference = f"input x f32[2,8]\nloss l\nprogram\n  m = {whole}\n  l = sum(m)\n"
    plans = [read("a.plan", text).plan for text in (reference.replace("m =", "m, i ="), reference)]
    assert plans[0] is not None
    assert plans[1] is not None
    assert prove(in_use(plans[1]), plans[1]).outcome is Outcome.PROVED
    assert prove(in_use(plans[0]), in_use(plans[1])).outcome is not Outcome.PROVED
