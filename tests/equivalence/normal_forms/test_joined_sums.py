"""Sums over ranges of an index, on one rank or on several, are the sum over the index where the ranges make it up."""

from __future__ import annotations

import pytest

from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

EXPERTS = "weight r f32[4,6]\nweight u f32[4,6,3]{ep}\ninput x f32[5,6]\nloss l\n"
ROUTER = "g0 = linear(x, r)\ng = softmax(g0, dim=-1)\n"
MIX = 'h = einsum("th,ehf->etf", x, u)\na = silu(h)\nt = transpose({g}, 0, 1)\nw = unsqueeze(t, -1)\n'
MIX += "y = mul(a, w)\no{part} = sum(y, dim=0)\n"
LOSS = "z = tanh(o)\nl: f32[] = sum(z)\n"


def _experts(start: int) -> str:
    own = MIX.format(g="c", part="0")
    return f"{ROUTER}c = narrow(g, 1, {start}, 2)\n{own}o = all-reduce(o0) over ep\n{LOSS}end reduce-gradients r over ep\n"


SCORES = "weight k f32[3,6]\nweight v f32[3,6]\ninput x f32[4,6]\nloss l\nprogram\nb = linear(x, k)\nc = linear(x, v)\n"
SCORES += "t = transpose(c, 0, 1)\ns = matmul(b, t)\np = exp(s)\n"
COLUMNS = "e = narrow(p, 1, 0, 2)\ng: f32[] = sum(e)\n"
ROWS = "f = narrow(p, 0, 2, 2)\nh: f32[] = sum(f)\nl: f32[] = add(g, h)\n"
IDIOMS = {
    "experts on ranks, of which each takes its gates": Idiom(
        EXPERTS.format(ep="") + "program\n" + ROUTER + MIX.format(g="g", part="") + LOSS,
        "mesh ep=2\n" + EXPERTS.format(ep=" ep:S(0)") + f"program ep=0\n{_experts(0)}program ep=1\n{_experts(2)}",
        (
            ("narrow(g, 1, 2, 2)", "narrow(g, 1, 0, 2)"),
            ("narrow(g, 1, 2, 2)", "narrow(g, 1, 1, 2)"),
            ("reduce-gradients r over ep", "reduce-gradients r over ep by avg"),
            ("end reduce-gradients r over ep\n", ""),
            (_experts(2), _experts(2).replace("softmax", "log_softmax")),
        ),
    ),
    "columns in two blocks": Idiom(
        SCORES + "q = sum(p, dim=1)\nz = log(q)\nl: f32[] = sum(z)\n",
        SCORES
        + "e = narrow(p, 1, 0, 3)\nf = narrow(p, 1, 3, 1)\ng = sum(e, dim=1)\nh = sum(f, dim=1)\n"
        + "q = add(g, h)\nz = log(q)\nl: f32[] = sum(z)\n",
        (
            ("f = narrow(p, 1, 3, 1)", "f = narrow(p, 1, 2, 1)"),
            ("e = narrow(p, 1, 0, 3)", "e = narrow(p, 1, 1, 2)"),
            ("q = add(g, h)", "q = mul(g, h)"),
            ("f = narrow(p, 1, 3, 1)", "f = narrow(p, 0, 3, 1)"),
        ),
    ),
    "two blocks of columns, and all": Idiom(
        SCORES + COLUMNS + ROWS.replace("p, 0", "p, 1"),
        SCORES + "l: f32[] = sum(p)\n",
        (
            ("l: f32[] = sum(p)\n", COLUMNS + ROWS),
            ("linear(x, v)", "linear(x, k)"),
            ("l: f32[] = sum(p)\n", "e = narrow(p, 1, 0, 3)\nl: f32[] = sum(e)\n"),
        ),
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_sums_over_ranges_are_the_sum(name: str) -> None:
    assert isinstance(numbers_of_proved(IDIOMS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), twins(IDIOMS))
def test_sums_over_other_ranges_are_not(name: str, before: str, after: str) -> None:
    verdict = IDIOMS[name].verdict(before, after)
    assert verdict.outcome is Outcome.REFUTED, [reason.message for reason in verdict.reasons]
