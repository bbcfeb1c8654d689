"""Micro-batches that a program writes out one by one, in place of segments that it runs for each."""

from __future__ import annotations

from tests.builders.plan_tapes import with_backward
from tests.kinds.kind import Kind

_DECLARED = "weight w f32[8,4]\nweight v f32[4,8]\ninput x f32[{n},4]{dp}\ninput t f32[{n},4]{dp}\nloss l\n"
_REFERENCE = with_backward(
    _DECLARED.format(n=8, dp="") + "program\nh = linear(x, w)\na = gelu(h)\ny = linear(a, v)\nl: f32[1] = mse_loss(y, t)"
)
_LOSS = "y = linear(a, v)\nl0: f32[1] = mse_loss(y, t)\nl1 = div(l0, 2)\n"
_BACK = "dl = backward l1 (grad(l))\ndy, _ = backward l0 (dl)\nda, grad(v) = backward y (dy)\n"
_FIRST = "h = linear(x, w)\na = gelu(h)\n"
_LAST = "dh = backward a (da)\n_, grad(w) = backward h (dh)\n"


def _each(*parts: str) -> str:
    """Each part for both micro-batches, one after the other."""
    return "".join(f"micro-batch {batch}\n{part}" for part in parts for batch in (0, 1))


def _second(part: str, changed: str) -> tuple[str, str]:
    """A mistake in the second micro-batch alone."""
    return f"micro-batch 1\n{part}", f"micro-batch 1\n{changed}"


_STAGES = (
    "mesh pp=2\nmicro-batches 2\n"
    + _DECLARED.format(n=4, dp="")
    + "program pp=0\n"
    + _each(f"{_FIRST}send a to pp+1\n", f"recv da: f32[4,8] from pp+1\n{_LAST}")
    + "program pp=1\n"
    + _each(f"recv a: f32[4,8] from pp-1\n{_LOSS}l = identity(l1)\n", f"{_BACK}send da to pp-1\n")
)
_REPLICAS = "mesh dp=2\nmicro-batches 2\n" + _DECLARED.format(n=4, dp=" dp:S(0)") + "program\n"
_STEP = f"{_FIRST}{_LOSS}l = all-reduce avg(l1) over dp\n{_BACK}{_LAST}"
_MISTAKES = (("div(l0, 2)", "div(l0, 4)"), _second(_FIRST, _FIRST.replace("gelu", "relu")))
_MEAN = "grad(w) = all-reduce avg(grad(w)) over dp\ngrad(v) = all-reduce avg(grad(v)) over dp\n"

KINDS = (
    Kind("stages whose micro-batches are written out", _REFERENCE, _STAGES, _MISTAKES),
    Kind(
        "accumulated gradients, by a reducer",
        _REFERENCE,
        f"{_REPLICAS}{_each(_STEP)}reduce-gradients w, v over dp by avg\n",
        (*_MISTAKES, (" by avg", "")),
    ),
    Kind(
        "accumulated gradients, by all-reduces",
        _REFERENCE,
        f"{_REPLICAS}{_each(_STEP)}{_MEAN}update w, v\n",
        (
            *_MISTAKES,
            ("all-reduce avg(grad(w))", "all-reduce(grad(w))"),
            (f"micro-batch 1\n{_STEP}{_MEAN}", f"{_MEAN}micro-batch 1\n{_STEP}"),
        ),
    ),
)
