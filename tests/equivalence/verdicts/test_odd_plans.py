"""Plans that use what exporters rarely do: sums of unlike parts, several segments, updates out of order, uneven groups."""

from __future__ import annotations

import pytest

from tests.equivalence.attacks.test_wrong_plans import ROWS, changed, outcome, parameters
from tests.equivalence.references import ONE_LAYER
from tvlint.findings import Outcome

BODY = ONE_LAYER[ONE_LAYER.index("program\n") + len("program\n") :]

HEAD = ONE_LAYER[: ONE_LAYER.index("program\n")]

DATA_PARALLEL = "mesh dp=2" + changed(
    ONE_LAYER,
    ("x f32[8,8]", "x f32[8,8] dp:S(0)"),
    ("l = sum(g)", "l0 = sum(g)\n  l = all-reduce(l0) over dp"),
    ("backward l (", "backward l0 ("),
)

FOLDED = """
mesh dp=2 tp=2
replicate dp
weight w f32[8,8] tp:S(0)
input  x f32[4,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  l0 = sum(g)
  l = all-reduce(l0) over tp
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  reduce-gradients w over dp
"""

TWO_KINDS = """
mesh dp=2 tp=2
replicate dp
weight w f32[8,8]
input  x f32[4,8] tp:S(0)
loss l
"""


def kind(number: int, loss: str, reduce: str) -> str:
    """One of two programs that differ in the groups they name."""
    return (
        f"program tp={number}\n"
        + changed(BODY, ("l = sum(g)", f"l0 = sum(g)\n  l = all-reduce(l0) over {loss}"), ("backward l (", "backward l0 ("))
        + f"  reduce-gradients w over {reduce}\n"
    )


HALVES = """
mesh t=3
weight w  f32[8,8]
weight v  f32[8,8]
weight w1 f32[8,4] region [0:8,0:4] of w[8,8]
weight w2 f32[8,4] region [0:8,4:8] of w[8,8]
input  x  f32[8,8]
input  x1 f32[8,4] region [0:8,0:4] of x[8,8]
input  x2 f32[8,4] region [0:8,4:8] of x[8,8]
loss l
"""

ONLY_LAST = """
weight w f32[8,8]
weight v f32[8,8]
input  x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  z = linear(g, v)
  l = sum(z)
  dz = backward l (grad(l))
  _, grad(v) = backward z (dz)
"""


def rank_of_three(number: int, product: str) -> str:
    body = ONLY_LAST[ONLY_LAST.index("program\n") + len("program\n") :]
    first = f"p = {product}\n  y = all-reduce(p) over t"
    return f"program ranks {number}\n" + changed(body, ("y = linear(x, w)", first))


MICRO_BATCHES = """
micro-batches 2
weight w f32[8,8]
input  x f32[4,8]
loss l
segment f forward
  y = linear(x, w)
  g = gelu(y)
  l = sum(g)
segment b PHASE
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
segment u optimizer
  update w
program
"""


def schedule(steps: str, phase: str = "backward") -> str:
    """A plan of two micro-batches that runs `f0 b0` and so on."""
    lines = [f"  run {step[0]}" + (f" micro-batch {step[1]}" if step[1:] else "") for step in steps.split()]
    return MICRO_BATCHES.replace("PHASE", phase) + "\n".join(lines) + "\n"


SUMS = """
weight w f32[8,8]
input  x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  h = relu(y)
  k = tanh(y)
  a = add(g, h)
  b = add(a, k)
  l = sum(b)
  db = backward l (grad(l))
  da, dk = backward b (db)
  dg, dh = backward a (da)
  dy = backward g (dg)
  dy = backward h (dh)
  dy = backward k (dk)
  _, grad(w) = backward y (dy)
"""

FULLY_SHARDED = """
mesh dp=2
weight w f32[8,8] dp:S(0)
input  x f32[8,8] dp:S(0)
loss l
program
  full = all-gather(w, dim=0) over dp
  y = linear(x, full)
  g = gelu(y)
  l0 = sum(g)
  l = all-reduce(l0) over dp
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  _, dfull = backward y (dy)
  grad(w) = reduce-scatter(dfull, dim=0) over dp
  update w
"""

LAYERS = """
weight w f32[8,8]
weight v f32[8,8]
input  x f32[8,8]
loss l
program
  a = linear(x, w)
  y = gelu(a)
  b = linear(y, v)
  l = sum(b)
  db = backward l (grad(l))
  dy, grad(v) = backward b (db)
  da = backward y (dy)
  _, grad(w) = backward a (da)
"""

RIGHT = {
    "data parallel": (DATA_PARALLEL + "  reduce-gradients w over dp\n", ONE_LAYER),
    "folded replicas": (FOLDED, ONE_LAYER),
    "folded replicas of a declared input": (changed(FOLDED, ("x f32[4,8]", "x f32[8,8] dp:S(0)")), ONE_LAYER),
    "folded replicas, reduced together": (TWO_KINDS + kind(0, "tp", "dp,tp") + kind(1, "tp", "dp,tp"), ONE_LAYER),
    "micro-batches in turn": (schedule("f0 b0 f1 b1 u"), ONE_LAYER + "  update w\n"),
    "all forward, then all backward": (schedule("f0 f1 b1 b0"), ONE_LAYER),
    "fully sharded": (FULLY_SHARDED, ONE_LAYER + "  update w\n"),
    "a group of one": (changed(ONE_LAYER, ("  g = gelu(y)", "  q = all-reduce(y) over self\n  g = gelu(q)")), ONE_LAYER),
}

WRONG = {
    "a whole and two halves are summed": (
        HALVES + rank_of_three(0, "linear(x, w)") + rank_of_three(1, "linear(x1, w1)") + rank_of_three(2, "linear(x2, w2)"),
        ONLY_LAST,
    ),
    "groups of one size along other axes": (TWO_KINDS + kind(0, "tp", "dp,tp") + kind(1, "tp", "tp"), ONE_LAYER),
    "collectives along other axes": (TWO_KINDS + kind(0, "dp,tp", "dp,tp") + kind(1, "tp", "dp,tp"), ONE_LAYER),
    "replicas that overlap": (changed(FOLDED, ("replicate dp", "replicate dp count 2 stride 1")), ONE_LAYER),
    "fewer replicas than the axis has": (
        "mesh dp=4\nreplicate dp count 2 stride 2"
        + changed(ONE_LAYER, ("x f32[8,8]", "x f32[4,8]"), ("program\n", "program ranks 0,1\n"))
        + "  reduce-gradients w over dp\n",
        ONE_LAYER,
    ),
    "gradient added after the reduction": (
        changed(
            DATA_PARALLEL,
            (
                "_, grad(w) = backward y (dy)",
                "_, own = backward y (dy)\n  reduce-gradients w over dp\n  grad(w) = identity(own)",
            ),
        ),
        ONE_LAYER,
    ),
    "reduced on a stream that does not wait": (DATA_PARALLEL + "  reduce-gradients w over dp on comm\n  update w\n", ONE_LAYER),
    "updated on a stream that does not wait": (
        DATA_PARALLEL + "  reduce-gradients w over dp\n  update w on other\n",
        ONE_LAYER,
    ),
    "updated before the reduction": (DATA_PARALLEL + "  update w\n  reduce-gradients w over dp\n", ONE_LAYER),
    "updated before a collective reduction": (
        changed(FULLY_SHARDED, ("  update w\n", ""), ("  grad(w) =", "  update w\n  grad(w) =")),
        ONE_LAYER,
    ),
    "read after the update": (
        changed(
            LAYERS, ("dy, grad(v) = backward b (db)", "_, grad(v) = backward b (db)\n  update v\n  dy, _ = backward b (db)")
        ),
        LAYERS,
    ),
    "gradients stored under each other's names": (
        changed(LAYERS, ("dy, grad(v)", "dy, grad(u)"), ("_, grad(w)", "_, grad(v)"), ("grad(u)", "grad(w)")),
        LAYERS,
    ),
    "weight overwritten in a segment of its own": (
        HEAD
        + "segment a forward () -> ()\n  w = neg(w)\nsegment f forward () -> (l)\n"
        + BODY
        + "program\n  run a micro-batch 0\n  run f micro-batch 0\n",
        ONE_LAYER,
    ),
    "backward of one micro-batch as an optimizer": (schedule("f0 f1 b0", "optimizer"), ONE_LAYER),
    "backward of one micro-batch as a reduction": (schedule("f0 f1 b0", "reduce"), ONE_LAYER),
    "backward before its forward": (schedule("f0 b0 b1 f1"), ONE_LAYER),
    "backward twice": (schedule("f0 b0 b0 f1 b1"), ONE_LAYER),
    "update between micro-batches": (schedule("f0 b0 u f1 b1"), ONE_LAYER),
    "chunks of unlike sizes": (
        changed(
            ROWS, ("y = all-reduce(p) over t", "q = chunk(p, dim=0, splits=[1,7]) over t\n  y = all-gather(q, dim=0) over t")
        ),
        ONE_LAYER,
    ),
}

EQUAL = {
    "sums in another order": (
        changed(
            SUMS,
            ("a = add(g, h)", "a = add(h, k)"),
            ("b = add(a, k)", "b = add(g, a)"),
            ("da, dk = backward b (db)", "dg, da = backward b (db)"),
            ("dg, dh = backward a (da)", "dh, dk = backward a (da)"),
        ),
        SUMS,
    ),
    "times one": (
        changed(
            ONE_LAYER,
            ("l = sum(g)", "o = mul(g, 1)\n  l = sum(o)"),
            ("dg = backward l (grad(l))", "do = backward l (grad(l))\n  dg = backward o (do)"),
        ),
        ONE_LAYER,
    ),
    "a factor in two steps": (
        changed(
            ONE_LAYER,
            ("g = gelu(y)", "k = mul(y, 2)\n  h = mul(k, 2)\n  g = gelu(h)"),
            ("dy = backward g (dg)", "dh = backward g (dg)\n  dk = backward h (dh)\n  dy = backward k (dk)"),
        ),
        changed(
            ONE_LAYER,
            ("g = gelu(y)", "h = mul(y, 4)\n  g = gelu(h)"),
            ("dy = backward g (dg)", "dh = backward g (dg)\n  dy = backward h (dh)"),
        ),
    ),
    "a sum by gathering": (
        changed(
            ROWS,
            ("y = all-reduce(p) over t", "u = unsqueeze(p, dim=0)\n  q = all-gather(u, dim=0) over t\n  y = sum(q, dim=0)"),
        ),
        ONE_LAYER,
    ),
    "a sum by messages": (
        changed(
            ROWS,
            (
                "y = all-reduce(p) over t",
                "send p to t+1 ring batch m\n  recv q: f32[8,8] from t-1 ring batch m\n  y = add(p, q)",
            ),
        ),
        ONE_LAYER,
    ),
}


@pytest.mark.parametrize(("parallel", "reference"), parameters(RIGHT))
def test_a_right_plan_is_proved(parallel: str, reference: str) -> None:
    found, messages = outcome(parallel, reference)
    assert found is Outcome.PROVED, messages


@pytest.mark.parametrize(("parallel", "reference"), parameters(WRONG))
def test_a_wrong_plan_is_not_proved(parallel: str, reference: str) -> None:
    found, _ = outcome(parallel, reference)
    assert found is not Outcome.PROVED


@pytest.mark.parametrize(("parallel", "reference"), parameters(EQUAL))
def test_an_equal_plan_that_is_written_otherwise_is_not_refuted(parallel: str, reference: str) -> None:
    found, messages = outcome(parallel, reference)
    assert found is not Outcome.REFUTED, messages
