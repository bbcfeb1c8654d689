"""A plan that has the name that a rewriting would give to a value of its own is left as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tvlint.equivalence.verdict.gathered_reductions import with_reductions_over_ranks
from tvlint.equivalence.verdict.prove import prove
from tvlint.equivalence.verdict.squared_norms import with_sums_of_squares
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan
from tvlint.readers.plan_text import reader

NORM = """input x f32[4,8]
output y f32[4,8]
program
  {name} = relu(x)
  n: f32[] = norm(x)
  y = add({name}, n)
"""
GATHERED = """mesh dp=2
input x f32[4,8] dp:S(0)
output y
program
  {name}: f32[4,8] = relu(x)
  n0: f32[] = sum(x)
  n1: f32[1] = view(n0, [1])
  n2: f32[2] = all-gather(n1, dim=0) over dp
  g: f32[2] = square(n2)
  s: f32[] = sum(g)
  y: f32[4,8] = add({name}, s)
"""


def plan(text: str) -> Plan:
    made = reader.read("a.plan", text).plan
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("text", "rewritten", "names"),
    [
        (NORM, with_sums_of_squares, ("n: squares", "n: sum")),
        (GATHERED, with_reductions_over_ranks, ("g: piece", "s: part")),
    ],
)
def test_a_name_that_the_plan_has_is_given_to_nothing_else(
    text: str, rewritten: Callable[[Plan], Plan], names: tuple[str, ...]
) -> None:
    free = plan(text.format(name="r"))
    changed = rewritten(free)
    assert changed is not free
    assert all(name in changed.tensors for name in names)
    for name in names:
        taken = plan(text.format(name=f"`{name}`"))
        assert rewritten(taken) is taken


def test_squares_in_the_place_of_another_value_are_not_proved() -> None:
    reference = "input x f32[4,8]\noutput y f32[4,8]\nprogram\n  q = pow(x, 2)\n  n: f32[] = norm(x)\n  y = add(q, n)\n"
    verdict = prove(plan(NORM.format(name="`n: squares`")), plan(reference))
    assert verdict.outcome is Outcome.REFUTED
    assert "other-numbers" in {reason.name for reason in verdict.reasons if reason.refutes}
