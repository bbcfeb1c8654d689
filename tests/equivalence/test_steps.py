"""Operators that are others in sequence: proved against what they are written out as, and against nothing else."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.test_text_plans import verdict_on
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


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_an_operator_is_what_it_is_written_out_as_and_nothing_else(name: str) -> None:
    whole, written, (before, after) = WRITTEN_OUT[name]
    for one, other in ((whole, whole), (written, written), (whole, written), (written, whole)):
        verdict = verdict_on(with_backward(_plan(one)), with_backward(_reference(other)))
        assert verdict.outcome is Outcome.PROVED, (one, other, verdict.reasons)
    assert before in written
    wrong = verdict_on(with_backward(_plan(written.replace(before, after))), with_backward(_reference(whole)))
    assert wrong.outcome is not Outcome.PROVED
    assert wrong.reasons
