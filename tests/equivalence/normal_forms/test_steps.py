"""Operators that are others in sequence: proved against what they are written out as, and against nothing else."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled
from tvlint.findings import Outcome

HEAD = "weight w f32[8,4]\ninput x f32[6,4]{placed}\nloss l\nprogram\nh = linear(x, w)\n"
ENDS = "s = mul(y, y)\nl0: f32[] = sum(s)\nl: f32[] = all-reduce(l0) over dp\nend reduce-gradients w over dp\n"
WRITTEN_OUT = {
    "amin": ("y = amin(h, dim=-1)\n", "n = neg(h)\nm = amax(n, dim=-1)\ny = neg(m)\n", ("amax", "amin")),
    "addcmul": ("y = addcmul(h, h, h, value=2)\n", "m = mul(h, h)\nk = mul(m, 2)\ny = add(h, k)\n", ("(m, 2)", "(m, 3)")),
    "addcdiv": ("e = exp(h)\ny = addcdiv(h, h, e)\n", "e = exp(h)\nm = div(h, e)\ny = add(h, m)\n", ("(h, e)", "(e, e)")),
    "normalize": (
        "y = normalize(h, dim=-1)\n",
        "n = norm(h, dim=-1, keepdim=True)\nc = clamp_min(n, 1e-12)\ny = div(h, c)\n",
        ("1e-12", "1e-6"),
    ),
    "lerp": ("e = exp(h)\ny = lerp(h, e, 0.25)\n", "e = exp(h)\nd = sub(e, h)\nm = mul(d, 0.25)\ny = add(h, m)\n",
             ("0.25", "0.5")),
    "lerp by a tensor": ("e = exp(h)\nk = sin(h)\ny = lerp(h, e, k)\n", "e = exp(h)\nk = sin(h)\nd = sub(e, h)\n"
                         "m = mul(d, k)\ny = add(h, m)\n", ("sub(e, h)", "sub(h, e)")),
    "softmin": ("y = softmin(h, dim=-1)\n", "n = neg(h)\ny = softmax(n, dim=-1)\n", ("neg(h)", "exp(h)")),
    "cosine_similarity": (
        "e = exp(h)\ny = cosine_similarity(h, e, dim=-1)\n",
        "e = exp(h)\nm = mul(h, e)\np = sum(m, dim=-1)\na = norm(h, dim=-1)\nb = clamp_min(a, 1e-8)\n"
        "c = norm(e, dim=-1)\nd = clamp_min(c, 1e-8)\nf = mul(b, d)\ny = div(p, f)\n",
        ("mul(b, d)", "mul(b, b)"),
    ),
    "remainder": ("y = remainder(h, 0.75)\n", "y = remainder(h, 0.75)\n", ("remainder", "fmod")),
    "floor_divide": ("e = floor_divide(h, 2) || none\ny = mul(h, e)\n", "e = floor_divide(h, 2) || none\ny = mul(h, e)\n",
                     ("floor_divide", "div")),
    "round": ("e = round(h)\ny = mul(h, e)\n", "e = round(h)\ny = mul(h, e)\n", ("round", "trunc")),
    "sort": ("k, i = sort(h, dim=-1)\ny = mul(k, h)\n",
             "k, i = sort(h, dim=-1)\ny = mul(k, h)\n", ("dim=-1", "dim=-1, descending=True")),
    "movedim": ("u = unsqueeze(h, 0)\ny = movedim(u, 0, -1)\n", "y = unsqueeze(h, -1)\n", ("(h, -1)", "(x, -1)")),
    "swapaxes": ("u = swapaxes(h, 0, 1)\nt = swapaxes(u, 0, 1)\ny = tanh(t)\n", "y = tanh(h)\n", ("tanh", "sin")),
    "unflatten": (
        "u = unflatten(h, -1, (2, 4))\ny = amax(u, dim=-1)\n",
        "u = view(h, (-1, 2, 4))\ny = amax(u, dim=-1)\n",
        ("2, 4", "4, 2"),
    ),
    "broadcast_to": (
        "u = unsqueeze(h, 0)\ny = broadcast_to(u, (3, {rows}, 8))\n",
        "u = unsqueeze(h, 0)\ny = expand(u, 3, -1, -1)\n",
        ("3, -1", "2, -1"),
    ),
}  # fmt: skip


def _plan(text: str) -> str:
    return "mesh dp=2\n" + HEAD.format(placed=" dp:S(0)") + text.replace("{rows}", "3") + ENDS


def _reference(text: str) -> str:
    return HEAD.format(placed="") + text.replace("{rows}", "6") + "s = mul(y, y)\nl: f32[] = sum(s)\n"


@pytest.mark.parametrize("name", sampled(WRITTEN_OUT, 3))
def test_an_operator_is_what_it_is_written_out_as_and_nothing_else(name: str) -> None:
    whole, written, (before, after) = WRITTEN_OUT[name]
    for one, other in ((whole, whole), (written, written), (whole, written), (written, whole)):
        verdict = verdict_on(with_backward(_plan(one)), with_backward(_reference(other)))
        assert verdict.outcome is Outcome.PROVED, (one, other, verdict.reasons)
    assert before in written
    wrong = verdict_on(with_backward(_plan(written.replace(before, after))), with_backward(_reference(whole)))
    assert wrong.outcome is not Outcome.PROVED
    assert wrong.reasons
