"""Plans that try to get a wrong verdict: none of the wrong ones may prove, and the right ones must."""

from __future__ import annotations

import pytest

from tests.builders.used_plans import in_use
from tests.equivalence.references import ONE_LAYER, TWO_LAYERS
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.readers.plan_text.reader import read

pytestmark = pytest.mark.usefixtures("without_repairs")

REFERENCE = """
weight w f32[8,8]
weight v f32[8,8]
weight n f32[8]
input  x f32[8,4,8]
loss l
program
  m = mul(x, n)
  h = linear(m, w)
  a = gelu(h)
  y = linear(a, v)
  z = gelu(y)
  l = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  da, grad(v) = backward y (dy)
  dh = backward a (da)
  dm, grad(w) = backward h (dh)
  _, grad(n) = backward m (dm)
"""

THREE_AXES = """
mesh dp=2 pp=2 tp=2
weight w f32[8,8] tp:S(0)
weight v f32[8,8] tp:S(1)
weight n f32[8]
input  x f32[8,4,8] dp:S(0) tp:S(1)
loss l
program pp=0
  m = mul(x, n)
  c = all-gather(m, dim=1) over tp
  h = linear(c, w)
  a = gelu(h)
  send a to pp+1
  recv da: f32[4,4,4] from pp+1
  dh = backward a (da)
  dc, grad(w) = backward h (dh)
  dm = reduce-scatter(dc, dim=1) over tp
  _, grad(n) = backward m (dm)
  reduce-gradients w over dp
  reduce-gradients n over dp,tp
program pp=1
  recv a: f32[4,4,4] from pp-1
  p = linear(a, v)
  y = reduce-scatter(p, dim=1) over tp
  z = gelu(y)
  l0 = sum(z)
  l = all-reduce(l0) over dp,tp
  dz = backward l0 (grad(l))
  dy = backward z (dz)
  dp = all-gather(dy, dim=1) over tp
  da, grad(v) = backward p (dp)
  send da to pp-1
  reduce-gradients v over dp
"""

ROWS = """
mesh t=2
weight w f32[8,8] t:S(1)
input  x f32[8,8] t:S(1)
loss l
program
  p = linear(x, w)
  y = all-reduce(p) over t
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  _, grad(w) = backward p (dy)
"""

COLUMNS = """
mesh t=2
weight w f32[8,8]
weight v f32[8,8] t:S(0)
input  x f32[8,8]
loss l
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, v)
  g = gelu(y)
  l0 = sum(g)
  l = all-reduce(l0) over t
  dg = backward l0 (grad(l))
  dy = backward g (dg)
  da, grad(v) = backward y (dy)
  ds = all-reduce(da) over t
  dh = backward a (ds)
  _, grad(w) = backward h (dh)
"""

OVERLAP = """
mesh t=2
weight w f32[8,8]
input x f32[8,8]
input x0 f32[6,8] region [0:6,0:8] of x[8,8]
input x1 f32[2,8] region [6:8,0:8] of x[8,8]
loss l
program t=0
  y0 = linear(x0, w)
  g0 = gelu(y0)
  l0 = sum(g0)
  l = all-reduce(l0) over t
  dg0 = backward l0 (grad(l))
  dy0 = backward g0 (dg0)
  _, grad(w) = backward y0 (dy0)
  reduce-gradients w over t
program t=1
  y1 = linear(x1, w)
  g1 = gelu(y1)
  l0 = sum(g1)
  l = all-reduce(l0) over t
  dg1 = backward l0 (grad(l))
  dy1 = backward g1 (dg1)
  _, grad(w) = backward y1 (dy1)
  reduce-gradients w over t
"""

DIFFERENCE = """
weight w f32[8,8]
weight v f32[8,8]
input  x f32[8,8]
loss l
program
  a = linear(x, w)
  b = linear(x, v)
  y = sub(a, b)
  g = gelu(y)
  l = sum(g)
  dg = backward l (grad(l))
  dy = backward g (dg)
  da, db = backward y (dy)
  _, grad(w) = backward a (da)
  _, grad(v) = backward b (db)
"""

BATCH_SUM = """
weight w f32[8,8]
input  x f32[8,8]
loss l
program
  y = linear(x, w)
  s = sum(y, dim=0)
  g = gelu(s)
  l = sum(g)
  dg = backward l (grad(l))
  ds = backward g (dg)
  dy = backward s (ds)
  _, grad(w) = backward y (dy)
"""

TIED = """
weight w f32[8,8]
input  x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(y)
  z = linear(g, w)
  l = sum(z)
  dz = backward l (grad(l))
  dg, grad(w) = backward z (dz)
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
"""

TIED_STAGES = """
mesh pp=2
weight w f32[8,8]
input  x f32[8,8]
loss l
program pp=0
  y = linear(x, w)
  g = gelu(y)
  send g to pp+1
  recv dg: f32[8,8] from pp+1
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
  reduce-gradients w over pp
program pp=1
  recv g: f32[8,8] from pp-1
  z = linear(g, w)
  l = sum(z)
  dz = backward l (grad(l))
  dg, grad(w) = backward z (dz)
  send dg to pp-1
  reduce-gradients w over pp
"""


def outcome(parallel: str, reference: str) -> tuple[Outcome, list[str]]:
    plans = [read(path, text).plan for path, text in (("parallel.plan", parallel), ("reference.plan", reference))]
    assert plans[0] is not None
    assert plans[1] is not None
    verdict = prove(in_use(plans[0]), in_use(plans[1]))
    return verdict.outcome, [reason.message for reason in verdict.reasons]


def changed(text: str, *edits: tuple[str, str]) -> str:
    for before, after in edits:
        assert before in text
        text = text.replace(before, after)
    return text


def parameters(cases: dict[str, tuple[str, str]]) -> list[object]:
    return [pytest.param(*pair, id=name) for name, pair in cases.items()]


RIGHT = {
    "three axes": (THREE_AXES, REFERENCE),
    "loss in two steps": (
        changed(THREE_AXES, ("l = all-reduce(l0) over dp,tp", "l1 = all-reduce(l0) over dp\n  l = all-reduce(l1) over tp")),
        REFERENCE,
    ),
    "row parallel": (ROWS, ONE_LAYER),
    "row parallel by reduce-scatter and all-gather": (
        changed(ROWS, ("y = all-reduce(p) over t", "q = reduce-scatter(p, dim=0) over t\n  y = all-gather(q, dim=0) over t")),
        ONE_LAYER,
    ),
    "asynchronous all-reduce": (changed(ROWS, ("over t\n  g", "over t async h\n  wait h\n  g")), ONE_LAYER),
    "ranks of a group in another order": (changed(ROWS, ("over t\n", "over ranks 1,0\n")), ONE_LAYER),
    "column parallel": (COLUMNS, TWO_LAYERS),
    "column parallel, summed at the weight": (
        changed(COLUMNS, ("  ds = all-reduce(da) over t\n", ""), ("(ds)", "(da)")) + "  reduce-gradients w over t\n",
        TWO_LAYERS,
    ),
    "average, then sum": (
        changed(COLUMNS, ("all-reduce(da)", "all-reduce avg(da)")) + "  reduce-gradients w over t\n",
        TWO_LAYERS,
    ),
    "uneven pieces of the batch": (OVERLAP, ONE_LAYER),
    "averaged copies": ("mesh t=2" + ONE_LAYER + "  reduce-gradients w over t by avg\n", ONE_LAYER),
    "tied weights on two stages": (TIED_STAGES, TIED),
    "softmax along the last dimension": (
        changed(ONE_LAYER, ("gelu(y)", "softmax(y, dim=-1)")),
        changed(ONE_LAYER, ("gelu(y)", "softmax(y, dim=1)")),
    ),
}

WRONG = {
    "replicated weight reduced over too few axes": (changed(THREE_AXES, ("n over dp,tp", "n over dp")), REFERENCE),
    "replicated weight reduced over the other axes": (changed(THREE_AXES, ("n over dp,tp", "n over tp")), REFERENCE),
    "sharded weight reduced over its shards": (changed(THREE_AXES, ("w over dp", "w over dp,tp")), REFERENCE),
    "sequence gradient cut, not summed": (changed(THREE_AXES, ("dm = reduce-scatter", "dm = chunk")), REFERENCE),
    "sequence cut, not summed": (changed(THREE_AXES, ("y = reduce-scatter", "y = chunk")), REFERENCE),
    "gathered along the batch": (changed(THREE_AXES, ("all-gather(dy, dim=1)", "all-gather(dy, dim=0)")), REFERENCE),
    "reduced across stages": (changed(THREE_AXES, ("v over dp", "v over pp")), REFERENCE),
    "loss of one sequence piece": (changed(THREE_AXES, ("all-reduce(l0) over dp,tp", "all-reduce(l0) over dp")), REFERENCE),
    "summed twice": (
        changed(THREE_AXES, ("reduce-gradients n over dp,tp", "reduce-gradients n over tp\n  reduce-gradients n over dp,tp")),
        REFERENCE,
    ),
    "read in flight": (changed(ROWS, ("over t\n", "over t async h\n")), ONE_LAYER),
    "waits for another": (
        changed(
            ROWS,
            (
                "  y = all-reduce(p) over t\n",
                "  q = all-reduce(x) over t async k\n  y = all-reduce(p) over t async h\n  wait k\n",
            ),
        ),
        ONE_LAYER,
    ),
    "another stream without an event": (changed(ROWS, ("over t\n", "over t on comm\n")), ONE_LAYER),
    "event recorded before what it stands for": (
        changed(ROWS, ("  y = all-reduce(p) over t\n", "  record e on comm\n  y = all-reduce(p) over t on comm\n  await e\n")),
        ONE_LAYER,
    ),
    "two tensors in one buffer": (
        changed(ROWS, ("loss l", "tensor p f32[8,8] storage m\ntensor g f32[8,8] storage m\nloss l")),
        ONE_LAYER,
    ),
    "column parallel, summed twice": (COLUMNS + "  reduce-gradients w over t\n", TWO_LAYERS),
    "column parallel, never summed": (changed(COLUMNS, ("  ds = all-reduce(da) over t\n", ""), ("(ds)", "(da)")), TWO_LAYERS),
    "column parallel, averaged": (
        changed(COLUMNS, ("all-reduce(da)", "all-reduce avg(da)")) + "  reduce-gradients w over t by avg\n",
        TWO_LAYERS,
    ),
    "column parallel, greatest part": (changed(COLUMNS, ("all-reduce(da)", "all-reduce max(da)")), TWO_LAYERS),
    "pieces of the batch overlap": (
        changed(OVERLAP, ("x1 f32[2,8] region [6:8,0:8]", "x1 f32[4,8] region [4:8,0:8]")),
        ONE_LAYER,
    ),
    "a row of the batch is missing": (
        changed(OVERLAP, ("x1 f32[2,8] region [6:8,0:8]", "x1 f32[1,8] region [7:8,0:8]")),
        ONE_LAYER,
    ),
    "copies summed": ("mesh t=2" + ONE_LAYER + "  reduce-gradients w over t\n", ONE_LAYER),
    "gradient started twice": (changed(ONE_LAYER, ("  dy =", "  dg = backward l (grad(l))\n  dy =")), ONE_LAYER),
    "gradient stored twice": (ONE_LAYER + "  _, grad(w) = backward y (dy)\n", ONE_LAYER),
    "started from a doubled loss": (
        "mesh t=2"
        + changed(ONE_LAYER, ("l = sum(g)", "l0 = sum(g)\n  l = all-reduce(l0) over t"), ("backward l (", "backward l0 (")),
        ONE_LAYER,
    ),
    "operands of a difference exchanged": (
        changed(DIFFERENCE, ("sub(a, b)", "sub(b, a)"), ("da, db =", "db, da =")),
        DIFFERENCE,
    ),
    "gradients of a difference exchanged": (changed(DIFFERENCE, ("da, db =", "db, da =")), DIFFERENCE),
    "factor of the other addend": (
        changed(DIFFERENCE, ("sub(a, b)", "add(b, a, alpha=2)"), ("da, db =", "db, da =")),
        changed(DIFFERENCE, ("sub(a, b)", "add(a, b, alpha=2)")),
    ),
    "weight of another precision": (changed(ONE_LAYER, ("weight w f32", "weight w bf16")), ONE_LAYER),
    "approximate gelu": (changed(ONE_LAYER, ("gelu(y)", 'gelu(y, approximate="tanh")')), ONE_LAYER),
    "batch sum taken of one replica": (
        "mesh dp=2\nreplicate dp" + changed(BATCH_SUM, ("x f32[8,8]", "x f32[4,8]")) + "  reduce-gradients w over dp\n",
        BATCH_SUM,
    ),
    "frozen in the parallel plan": (
        changed(ONE_LAYER, ("weight w f32[8,8]", "weight w f32[8,8] frozen"), ("  _, grad(w) = backward y (dy)\n", "")),
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
