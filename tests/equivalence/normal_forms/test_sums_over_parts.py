"""Sums over all parts of a dimension that a view splits are sums over the dimension (docs/soundness.md, L18)."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tvlint.equivalence.verdict.numbers.outcome import Difference
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

PLAN = """MESH
weight w f32[8,6] CUT
weight g f32[8] CUT
input x f32[5,6]
loss l
program
h = linear(x, w)
MADE
z = tanh(s)
l: f32[] = sum(z)
"""


def of(made: str, *wrong: tuple[str, str], mesh: str = "", cut: str = "") -> Idiom:
    reference = PLAN.replace("MADE", "m = mul(h, g)\ns = sum(m, dim=1)").replace("MESH", "").replace("CUT", "")
    return Idiom(reference, PLAN.replace("MADE", made).replace("MESH", mesh).replace("CUT", cut), wrong)


IDIOMS = {
    "parts in another order": of(
        "hw = view(h, size=[5,2,4])\nhv = transpose(hw, dim0=1, dim1=2)\ngw = view(g, size=[2,4])\n"
        "gv = transpose(gw, dim0=0, dim1=1)\nm = mul(hv, gv)\ns = sum(m, dim=[1,2])",
        ("gw = view(g, size=[2,4])\ngv = transpose(gw, dim0=0, dim1=1)", "gv = view(g, size=[4,2])"),
    ),
    "three parts, one after the other": of(
        "hv = view(h, size=[5,2,2,2])\ngv = view(g, size=[2,2,2])\nm = mul(hv, gv)\ns1 = sum(m, dim=3)\ns = sum(s1, dim=[1,2])",
        ("gv = view(g, size=[2,2,2])", "gw = view(g, size=[2,2,2])\ngv = transpose(gw, dim0=0, dim1=1)"),
        ("gv = view(g, size=[2,2,2])", "gw = view(g, size=[2,2,2])\ngv = permute(gw, dims=[1,2,0])"),
        ("hv = view(h, size=[5,2,2,2])", "hw = view(h, size=[5,2,2,2])\nhv = transpose(hw, dim0=2, dim1=3)"),
        ("s = sum(s1, dim=[1,2])", "s2 = mul(s1, s1)\ns = sum(s2, dim=[1,2])"),
    ),
    "parts beside what rows are joined with": of(
        "m0 = mul(h, g)\nhv = view(m0, size=[20,2])\ns0 = sum(hv, dim=1)\ns1 = view(s0, size=[5,4])\ns = sum(s1, dim=1)",
        ("s1 = view(s0, size=[5,4])", "s2 = view(s0, size=[4,5])\ns1 = transpose(s2, dim0=0, dim1=1)"),
    ),
    "parts of what a rank holds": of(
        "hv = view(h, size=[5,2,2])\ngv = view(g, size=[2,2])\nm = mul(hv, gv)\ns0 = sum(m, dim=[1,2])\n"
        "s = all-reduce(s0) over tp",
        ("gv = view(g, size=[2,2])", "gw = view(g, size=[2,2])\ngv = transpose(gw, dim0=0, dim1=1)"),
        ("s = all-reduce(s0) over tp", "s = all-reduce avg(s0) over tp || same"),
        ("weight g f32[8] tp:S(0)", "weight g f32[8] tp:S(0, order=[[1],[0]])"),
        mesh="mesh tp=2",
        cut="tp:S(0)",
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_a_sum_over_parts_is_proved(name: str) -> None:
    numbers_of_proved(IDIOMS[name])


@pytest.mark.parametrize(("name", "before", "after"), twins(IDIOMS))
def test_its_wrong_twins_are_refuted(name: str, before: str, after: str) -> None:
    assert isinstance(on_numbers_of(*IDIOMS[name].plans(before, after)), Difference)
    assert IDIOMS[name].verdict(before, after).outcome is Outcome.REFUTED
