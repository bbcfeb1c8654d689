"""Sums that one plan multiplies out and the other keeps, and dimensions of one index that are left out."""

from __future__ import annotations

import pytest

from tests.equivalence.idiom import Idiom, assert_wrong_mutants_are_not_proved, numbers_of_proved, twins
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

SQUARED = "s = pow(y, 2)\nl: f32[] = sum(s)\n"
NORM = "weight g f32[8]\nweight b f32[8]\nweight w f32[8,8]\ninput x f32[6,8]{placed}\nloss l\nprogram\nz = linear(x, w)\n"
VARIANCE = (
    "mu = mean(z, dim=-1, keepdim=True)\nz2 = mul(z, z)\n"
    "e2 = mean(z2, dim=-1, keepdim=True)\nmm = mul(mu, mu)\nva = sub(e2, mm)\n"
    "ve = add(va, 1e-05)\niv = rsqrt(ve)\nzc = sub(z, mu)\nn = mul(zc, iv)\nn1 = mul(n, g)\ny = add(n1, b)\n"
)
ACTIVATION = "weight w f32[8,4]{first}\nweight v f32[4,8]{second}\ninput x f32[6,4]\nloss l\nprogram\nh = linear(x, w)\n"
TANH = (
    "h2 = mul(h, h)\n"
    "h3 = mul(0.044715, h2)\nh4 = add(h3, 1.0)\nh5 = mul(h, h4)\nh6 = mul(h5, 0.7978845608028654)\nh7 = tanh(h6)\n"
    "h8 = add(h7, 1.0)\nhh = mul(h, 0.5)\na = mul(hh, h8)\ny0 = linear(a, v)\ny = all-reduce(y0) over tp\n"
)
LOGITS = "weight w f32[8,4]{placed}\ninput x f32[6,4]\ninput t i64[6]\nloss l\n"
BOTH = "q2 = pow(q, 2)\nk: f32[] = mean(q2)\nkk = mul(k, 0.0001)\nl: f32[] = add(ce, kk)\n"
EXPERTS = "weight e f32[4,4]\nweight w f32[2,4,4]{placed}\ninput x f32[6,4]\nloss l\n"
ROUTER = "r = linear(x, e)\np = softmax(r, dim=-1)\n"


def _logits(rank: int) -> str:
    return (
        f"program tp={rank}\nz = linear(x, w)\n"
        "m0 = amax(z, dim=-1, keepdim=True) || none\nm = all-reduce max(m0) over tp || none\n"
        "s = sub(z, m)\ne = exp(s)\np0 = sum(e, dim=-1)\np = all-reduce(p0) over tp\nlg = log(p)\n"
        f"g0 = masked_gather(s, t, dim=1, start={4 * rank}, stop={4 * rank + 4})\ng = all-reduce(g0) over tp\nr = sub(lg, g)\n"
        f"ce: f32[] = mean(r)\nm1 = squeeze(m, -1) || none\nq = add(lg, m1)\n{BOTH}"
    )


def _expert(rank: int) -> str:
    return (
        f"program ep={rank}\n{ROUTER}pc = copy(p) over ep\nw0 = squeeze(w, 0)\nh0 = matmul(x, w0)\n"
        f"g0 = narrow(pc, 1, {rank}, 1)\no0 = mul(h0, g0)\ny = all-reduce(o0) over ep\n{SQUARED}"
    )


IDIOMS = {
    "a variance as the mean of squares less the square of the mean": Idiom(
        NORM.format(placed="") + "y = layer_norm(z, [8], g, b)\n" + SQUARED,
        "mesh dp=2\n" + NORM.format(placed=" dp:S(0)") + VARIANCE + SQUARED.replace("l:", "l0:")
        + "l: f32[] = all-reduce(l0) over dp\nend reduce-gradients g, b, w over dp\n",
        (("va = sub(e2, mm)", "va = sub(e2, mu)"), ("rsqrt(ve)", "rsqrt(va)"), ("add(va, 1e-05)", "add(va, 1e-06)")),
    ),
    "an activation written out with its polynomial in another order": Idiom(
        ACTIVATION.format(first="", second="") + 'a = gelu(h, approximate="tanh")\ny = linear(a, v)\n' + SQUARED,
        "mesh tp=2\n" + ACTIVATION.format(first=" tp:S(0)", second=" tp:S(1)") + TANH + SQUARED,
        (("h8 = add(h7, 1.0)", "h8 = add(h7, 2.0)"), ("0.044715", "0.04"), ("h2 = mul(h, h)", "h2 = add(h, h)")),
    ),
    "the square of a logarithm of sums that was shifted": Idiom(
        LOGITS.format(placed="") + "program\nz = linear(x, w)\n"
        + "ce: f32[] = cross_entropy(z, t)\nq = logsumexp(z, dim=-1)\n" + BOTH,
        "mesh tp=2\n" + LOGITS.format(placed=" tp:S(0)") + _logits(0) + _logits(1),
        (("q2 = pow(q, 2)", "q2 = pow(lg, 2)"), ("kk = mul(k, 0.0001)", "kk = mul(k, 0.001)")),
    ),
    "one expert on each rank, its dimension left out": Idiom(
        EXPERTS.format(placed="") + "program\n" + ROUTER
        + "w0 = select(w, 0, 0)\nw1 = select(w, 0, 1)\nh0 = matmul(x, w0)\nh1 = matmul(x, w1)\ng0 = narrow(p, 1, 0, 1)\n"
        + "g1 = narrow(p, 1, 1, 1)\no0 = mul(h0, g0)\no1 = mul(h1, g1)\ny = add(o0, o1)\n" + SQUARED,
        "mesh ep=2\n" + EXPERTS.format(placed=" ep:S(0)") + _expert(0) + _expert(1),
        (("narrow(pc, 1, 1, 1)", "narrow(pc, 1, 0, 1)"), ("pc = copy(p) over ep", "pc = identity(p)")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IDIOMS)
def test_what_is_the_same_multiplied_out_is_proved(name: str) -> None:
    assert isinstance(numbers_of_proved(IDIOMS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_what_differs_is_not_proved(name: str, before: str, after: str) -> None:
    verdict = IDIOMS[name].verdict(before, after)
    assert verdict.outcome is not Outcome.PROVED
    assert verdict.reasons


@pytest.mark.heavy
@pytest.mark.parametrize("name", IDIOMS)
def test_no_mutant_that_computes_something_else_is_proved(name: str) -> None:
    assert_wrong_mutants_are_not_proved(IDIOMS[name])
