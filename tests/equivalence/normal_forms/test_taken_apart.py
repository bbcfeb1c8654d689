"""Dimensions that are taken apart index by index, in steps, and in halves of another layout than the reference's."""

from __future__ import annotations

import pytest

from tests.equivalence.idiom import Idiom, assert_wrong_mutants_are_not_proved, numbers_of_proved, twins
from tests.equivalence.normal_forms.test_multiplied_out import SQUARED
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

GATED = "weight w f32[16,4]{first}\nweight v f32[4,8]{second}\ninput x f32[6,4]\nloss l\nprogram\nz = linear(x, w)\n"
IN_STEPS = "g = slice(z, 1, 0, {wide}, 2)\nu = slice(z, 1, 1, {wide}, 2)\n"
INDEX_BY_INDEX = "z2 = view(z, [6, {half}, 2])\ng, u = unbind(z2, dim=-1)\n"
GATE = "a = silu(g)\nm = mul(a, u)\n"
ONE, PARTS = GATED.format(first="", second=""), "mesh tp=2\n" + GATED.format(first=" tp:S(0)", second=" tp:S(1)")
WHOLE, SUMMED = GATE + "y = linear(m, v)\n" + SQUARED, GATE + "y0 = linear(m, v)\ny = all-reduce(y0) over tp\n" + SQUARED

HEADS = (
    "weight q f32[8,8]{rows}\nweight k f32[8,8]{rows}\nweight u f32[8,8]{rows}\nweight o f32[8,8]{columns}\n"
    "buffer co f32[4,2]\nbuffer si f32[4,2]\ninput x f32[2,4,8]\nloss l\nprogram\n"
)
ANGLES = (
    "cx = cat([co, co], dim=-1) || none\nsx = cat([si, si], dim=-1) || none\n"
    "cc = view(cx, {shape}) || none\nss = view(sx, {shape}) || none\n"
)
TURNED = "".join(
    f"{n}1, {n}2 = torch.chunk({n}h, 2, dim=-1)\n{n}n = neg({n}2)\n{n}r = cat([{n}n, {n}1], dim=-1)\n"
    f"{n}c = mul({n}h, cc)\n{n}s = mul({n}r, ss)\n{n}e = add({n}c, {n}s)\n"
    for n in "qk"
)
BATCH_FIRST = (
    HEADS.format(rows="", columns="") + ANGLES.format(shape=[1, 1, 4, 4])
    + "".join(f"{n}0 = linear(x, {n})\n{n}3 = view({n}0, [2, 4, 2, 4])\n{n}h = transpose({n}3, 1, 2)\n" for n in "qku")
    + TURNED + "a = scaled_dot_product_attention(qe, ke, uh, is_causal=True)\n"
    "at = transpose(a, 1, 2)\nam = reshape(at, [2, 4, 8])\ny = linear(am, o)\n" + SQUARED
)  # fmt: skip
SEQUENCE_FIRST = (
    "mesh tp=2\n" + HEADS.format(rows=" tp:S(0)", columns=" tp:S(1)") + "xt = transpose(x, 0, 1) || none\n"
    + ANGLES.format(shape=[4, 1, 1, 4])
    + "".join(f"{n}0 = linear(xt, {n})\n{n}h = view({n}0, [4, 2, 1, 4])\n" for n in "qku") + TURNED
    + "".join(f"{n}p = permute({own}, [1, 2, 0, 3])\n" for n, own in (("q", "qe"), ("k", "ke"), ("u", "uh")))
    + "a = scaled_dot_product_attention(qp, kp, up, is_causal=True)\nat = permute(a, [2, 0, 1, 3])\n"
    "am = reshape(at, [4, 2, 4])\ny0 = linear(am, o)\ny1 = all-reduce(y0) over tp\ny = transpose(y1, 0, 1)\n" + SQUARED
)  # fmt: skip

SUM_AND_COUNT = (
    "{mesh}weight w f32[8,6]\ninput x f32[4,6]{cut}\ninput k f32[4]{cut}\nloss l\nprogram\nh = linear(x, w)\nt = tanh(h)\n"
    "s{of} = sum(t)\nn{of} = sum(k)\n{joined}l: f32[] = div(s, n)\n{end}"
)
TOGETHER = "st = stack([s0, n0], dim=0)\nsr = all-reduce(st) over dp\n"


def _together(taken: str) -> Idiom:
    """Return a sum and a count that ranks add up as one tensor, and take apart again."""
    end = "end reduce-gradients w over dp\n"
    plan = SUM_AND_COUNT.format(mesh="mesh dp=2\n", cut=" dp:S(0)", of="0", joined=TOGETHER + taken, end=end)
    wrong = (("[s0, n0]", "[n0, s0]"), ("n0 = sum(k)", "n0 = amax(k)"), ("w over dp", "w over dp by avg"))
    return Idiom(SUM_AND_COUNT.format(mesh="", cut="", of="", joined="", end=""), plan, wrong)


IDIOMS = {
    "a sum and a count added up together": _together("s, n = unbind(sr, dim=0)\n"),
    "a sum and a count taken by their places": _together("s = select(sr, 0, 0)\nn = select(sr, 0, 1)\n"),
    "gate and up in steps": Idiom(
        ONE + IN_STEPS.format(wide=16) + WHOLE,
        PARTS + IN_STEPS.format(wide=8) + SUMMED,
        ((" tp:S(0)", " tp:S(0, parts=[8,8])"), ("slice(z, 1, 1, 8, 2)", "slice(z, 1, 0, 8, 2)")),
    ),
    "gate and up index by index": Idiom(
        ONE + INDEX_BY_INDEX.format(half=8) + WHOLE,
        PARTS + INDEX_BY_INDEX.format(half=4) + SUMMED,
        (("g, u = unbind", "u, g = unbind"), (" tp:S(1)", " tp:S(1, order=[[1],[0]])")),
    ),
    "in steps for index by index": Idiom(
        ONE + INDEX_BY_INDEX.format(half=8) + WHOLE,
        PARTS + IN_STEPS.format(wide=8) + SUMMED,
        (("slice(z, 1, 0, 8, 2)", "slice(z, 1, 0, 4, 1)"), ("slice(z, 1, 0, 8, 2)", "slice(z, 1, 1, 8, 2)")),
    ),
    "index by index for in steps": Idiom(
        ONE + IN_STEPS.format(wide=16) + WHOLE,
        PARTS + INDEX_BY_INDEX.format(half=4) + SUMMED,
        (("[6, 4, 2])\ng, u = unbind(z2, dim=-1)", "[6, 2, 4])\ng, u = unbind(z2, dim=1)"),),
    ),
    "rotary embedding with the sequence first": Idiom(
        BATCH_FIRST,
        SEQUENCE_FIRST,
        (("qn = neg(q2)", "qn = neg(q1)"), ("kr = cat([kn, k1], dim=-1)", "kr = cat([k1, kn], dim=-1)")),
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_a_right_plan_is_proved(name: str) -> None:
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
