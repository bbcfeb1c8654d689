"""Weights and gradients that data-parallel ranks share: gathered before use, scattered after."""

from __future__ import annotations

from tests.builders.plan_tapes import with_backward
from tests.kinds.kind import Kind, taped

_REFERENCE = """
weight w1 f32[16,8]
weight w2 f32[8,16]
input x f32[8,8]
input t f32[8,8]
loss l
program
  h = linear(x, w1)
  a = gelu(h)
  y = linear(a, w2)
  l: f32[1] = mse_loss(y, t)
"""
_SHARDED = """
mesh dp=4
weight w1 f32[16,8] dp:S(0)
weight w2 f32[8,16] dp:S(0)
input x f32[8,8] dp:S(0)
input t f32[8,8] dp:S(0)
loss l
program
"""
_REPLICATED = _SHARDED.replace("[16,8] dp:S(0)", "[16,8]").replace("[8,16] dp:S(0)", "[8,16]")
_AVERAGED = " || {x} = reduce-scatter avg({y}, dim=0) over dp\n"
_FORWARD = """  f1 = all-gather(w1, dim=0) over dp
  h = linear(x, f1)
  a = gelu(h)
  f2 = all-gather(w2, dim=0) over dp
  y = linear(a, f2)
  l0: f32[1] = mse_loss(y, t)
"""
_SEEDED = "  l: f32[1] = all-reduce avg(l0) over dp\n"
_STEP = """  dy, _ = backward l0 (grad(l))
  g2 = all-gather(w2, dim=0) over dp
  da, d2 = backward (dy) of AGAIN = linear(a, g2)
  grad(w2) = reduce-scatter avg(d2, dim=0) over dp
  dh = backward a (da)
  g1 = all-gather(w1, dim=0) over dp
  _, d1 = backward (dh) of h = linear(x, g1)
  grad(w1) = reduce-scatter avg(d1, dim=0) over dp
  update w1, w2
"""
_ONE = with_backward(_REFERENCE)
_GATHERED_AGAIN = _SHARDED + _FORWARD + _SEEDED + _STEP
_PLAIN = "  h = linear(x, w1)\n  a = gelu(h)\n  y = linear(a, w2)\n  l0: f32[1] = mse_loss(y, t)\n"


def _replicated(reducer: str) -> Kind:
    plan = f"{_REPLICATED}{_PLAIN}{_SEEDED}  end {reducer}\n  end update w1, w2\n"
    mistakes = [("w1, w2 over dp", "w2 over dp")]
    mistakes += [(word, "") for word in (" by avg", " divide 4") if word in reducer]
    return taped(reducer, _REFERENCE, plan, *mistakes)


KINDS = (
    Kind(
        "gathered again before the backward pass",
        _ONE,
        _GATHERED_AGAIN.replace("AGAIN", "y"),
        (
            ("of y = linear(a, g2)", "of y = linear(a, w2)"),
            ("of y = linear(a, g2)", "of y = linear(a, g1)"),
            ("grad(w1) = reduce-scatter avg(d1, dim=0)", "grad(w1) = chunk(d1, dim=0)"),
            ("reduce-scatter avg(d2", "reduce-scatter(d2"),
        ),
    ),
    Kind(
        "gathered again under another name",
        _ONE,
        _GATHERED_AGAIN.replace("AGAIN", "again").replace("loss l", "tensor again f32[2,8]\nloss l"),
        (("of again = linear(a, g2)", "of again = linear(h, g2)"),),
    ),
    taped(
        "gathered once",
        _REFERENCE,
        _SHARDED + _FORWARD.replace("over dp\n", "over dp" + _AVERAGED) + _SEEDED,
        ("reduce-scatter avg(grad(f2)", "reduce-scatter(grad(f2)"),
    ),
    *map(
        _replicated,
        ("reduce-gradients w1, w2 over dp by avg scatter", "reduce-gradients w1, w2 over dp divide 4"),
    ),
)
