"""Gradients that are read after they are reduced: norms, clipping, division, other names, flat buckets."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

FORWARD = """
  h = linear(x, w1)
  a = gelu(h)
  y = linear(a, w2)
  b = gelu(y)
  s: f32[] = sum(b)
  l = identity(s)
"""

BACKWARD = """
  db = backward s (grad(l))
  dy = backward b (db)
  da, grad(w2) = backward y (dy)
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
"""

NORM = """
  s1 = pow(grad(w1), 2)
  q1: f32[] = sum(s1)
  s2 = pow(grad(w2), 2)
  q2: f32[] = sum(s2)
  q = add(q1, q2)
  n = sqrt(q)
"""

OVER_TP = "  t = all-reduce(q) over tp\n  n = sqrt(t)"

FACTOR = """
  e = add(n, 1e-6)
  r = div(1.0, e)
  c = clamp(r, max=1.0)
"""

SCALE = """
  grad(w1) = mul(grad(w1), c)
  grad(w2) = mul(grad(w2), c)
"""

CLIP = NORM + FACTOR + SCALE
EIGHTH = "  grad(w1) = mul(grad(w1), 0.125)\n"
REDUCE = "  reduce-gradients w1, w2 over dp\n"
UPDATE = "  update w1, w2\n"


def single(after: str) -> str:
    return f"""
weight w1 f32[16,8]
weight w2 f32[8,16]
input x f32[8,8]
loss l f32[]
program
{FORWARD}{BACKWARD}{after}{UPDATE}"""


def over_dp(after: str) -> str:
    return f"""
mesh dp=2
weight w1 f32[16,8]
weight w2 f32[8,16]
input x f32[8,8] dp:S(0)
loss l f32[]
program
{FORWARD.replace("identity(s)", "all-reduce(s) over dp")}{BACKWARD}{after}"""


def over_tp(after: str, mesh: str = "tp=2", batch: str = "", loss: str = "identity(s)") -> str:
    forward = FORWARD.replace("y = linear(a, w2)", "p = linear(a, w2)\n  y = all-reduce(p) over tp")
    return f"""
mesh {mesh}
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8] {batch}
loss l f32[]
program
{forward.replace("identity(s)", loss)}{BACKWARD.replace("backward y (dy)", "backward p (dy)")}{after}"""


def over_both(after: str) -> str:
    return over_tp(after, "dp=2 tp=2", "dp:S(0)", "all-reduce(s) over dp")


BUCKET = """
  f1 = view(grad(w1), [128])
  f2 = view(grad(w2), [128])
  k = cat([f1, f2], dim=0)
  r = all-reduce(k) over dp
  u1: f32[128], u2: f32[128] = split(r, [128, 128])
  grad(w1) = view(u1, [16, 8])
  grad(w2) = view(u2, [8, 16])
"""

RIGHT = {
    "clipped after the reducer": (over_dp(REDUCE + CLIP + UPDATE), single(CLIP)),
    "clipped with tp": (over_tp(NORM.replace("  n = sqrt(q)", OVER_TP) + FACTOR + SCALE + UPDATE), single(CLIP)),
    "clipped with dp and tp": (
        over_both(REDUCE + NORM.replace("  n = sqrt(q)", OVER_TP) + FACTOR + SCALE + UPDATE), single(CLIP),
    ),
    "clipped by way of another name": (
        over_dp(REDUCE + CLIP.replace(SCALE, "") + SCALE.replace("grad(w1) =", "g1 =").replace("grad(w2) =", "g2 =")
                + "  grad(w1) = mul(g1, 1.0)\n  grad(w2) = identity(g2)\n" + UPDATE),
        single(CLIP),
    ),
    "a norm that is read by nothing": (over_dp(REDUCE + NORM + UPDATE), single("")),
    "a norm after the update": (over_dp(REDUCE + UPDATE + NORM), single("")),
    "a norm of what is not reduced yet": (over_dp(NORM + REDUCE + UPDATE), single("")),
    "a norm that is reduced again": (over_dp(REDUCE + NORM.replace("sqrt(q)", "all-reduce(q) over dp") + UPDATE), single("")),
    "a norm in the reference alone": (over_dp(REDUCE + UPDATE), single(NORM)),
    "divided at the end": (over_dp(REDUCE + "  grad(w1) = div(grad(w1), 8)\n" + UPDATE), single(EIGHTH)),
    "divided before the reducer and after": (
        over_dp("  grad(w1) = div(grad(w1), 4)\n" + REDUCE + "  grad(w1) = div(grad(w1), 2)\n" + UPDATE),
        single(EIGHTH),
    ),
    "divided before the all-reduce": (
        over_dp("  g1 = div(grad(w1), 8)\n  grad(w1) = all-reduce(g1) over dp\n  reduce-gradients w2 over dp\n" + UPDATE),
        single(EIGHTH),
    ),
    "weight decay": (
        over_dp(REDUCE + "  d = mul(w1, 0.1)\n  grad(w1) = add(grad(w1), d)\n" + UPDATE),
        single("  d = mul(w1, 0.1)\n  grad(w1) = add(grad(w1), d)\n"),
    ),
    "a reducer that is waited for": (
        over_dp(REDUCE.replace("over dp", "over dp async k") + "  wait k\n" + CLIP + UPDATE), single(CLIP)
    ),
}  # fmt: skip

WRONG = {
    "clipped before the reducer": (over_dp(CLIP + REDUCE + UPDATE), single(CLIP), "missing-allreduce"),
    "the norm before the reducer": (over_dp(NORM + FACTOR + REDUCE + SCALE + UPDATE), single(CLIP), "missing-allreduce"),
    "the norm counted by every replica": (
        over_dp(REDUCE + CLIP.replace("  n = sqrt(q)", OVER_TP.replace("tp", "dp")) + UPDATE), single(CLIP), "scaled-value",
    ),
    "the norm of the shards": (over_tp(CLIP + UPDATE), single(CLIP), "missing-allreduce"),
    "the norm over dp instead of tp": (
        over_both(REDUCE + CLIP.replace("  n = sqrt(q)", OVER_TP.replace("tp", "dp")) + UPDATE), single(CLIP),
        "missing-allreduce",
    ),
    "the norm over dp as well": (
        over_both(REDUCE + CLIP.replace("  n = sqrt(q)", OVER_TP.replace("tp", "dp,tp")) + UPDATE), single(CLIP),
        "scaled-value",
    ),
    "norms that are added": (
        over_tp(CLIP.replace("  n = sqrt(q)", "  m = sqrt(q)\n  n = all-reduce(m) over tp") + UPDATE), single(CLIP),
        "missing-allreduce",
    ),
    "one weight is not clipped": (
        over_dp(REDUCE + CLIP.replace("  grad(w2) = mul(grad(w2), c)\n", "") + UPDATE), single(CLIP), "other-gradient",
    ),
    "clipped to another norm": (over_dp(REDUCE + CLIP.replace("div(1.0", "div(0.5") + UPDATE), single(CLIP), "other-constant"),
    "clipped twice": (over_dp(REDUCE + CLIP + SCALE + UPDATE), single(CLIP), "other-operator"),
    "never clipped": (over_dp(REDUCE + UPDATE), single(CLIP), "other-gradient"),
    "clipped, and the reference does not": (over_dp(REDUCE + CLIP + UPDATE), single(""), "other-operator"),
    "clipped after the update": (over_dp(REDUCE + UPDATE + CLIP), single(CLIP), "other-gradient"),
    "the norm of one weight twice": (
        over_dp(REDUCE + CLIP.replace("add(q1, q2)", "add(q1, q1)") + UPDATE), single(CLIP), "other-operator",
    ),
    "reduced after the update": (over_dp(UPDATE + REDUCE), single(""), "missing-gradient-reduction"),
    "never reduced": (over_dp(CLIP + UPDATE), single(CLIP), "missing-allreduce"),
    "divided by another number": (
        over_dp(REDUCE + "  grad(w1) = div(grad(w1), 4)\n" + UPDATE), single(EIGHTH),
        "wrong-gradient-scale",
    ),
    "divided under a name that nothing reads": (
        over_dp(REDUCE + "  g1 = div(grad(w1), 8)\n" + UPDATE), single(EIGHTH), "wrong-gradient-scale",
    ),
    "weight decay before the reducer": (
        over_dp("  d = mul(w1, 0.1)\n  grad(w1) = add(grad(w1), d)\n" + REDUCE + UPDATE),
        single("  d = mul(w1, 0.1)\n  grad(w1) = add(grad(w1), d)\n"), "unequal-addends",
    ),
    "a bucket that gives the gradients back exchanged": (
        over_dp(BUCKET.replace("view(u1", "view(u").replace("view(u2", "view(u1").replace("view(u,", "view(u2,") + UPDATE),
        single(""), "other-gradient",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_step_after_the_backward_is_proved(name: str) -> None:
    parallel, reference = RIGHT[name]
    assert compare(*plans(reference, parallel)).outcome == "equal"
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("name", sampled(WRONG, 3))
def test_a_wrong_step_after_the_backward_is_not(name: str) -> None:
    parallel, reference, reason = WRONG[name]
    assert compare(*plans(reference, parallel)).outcome in ("different", "fails")
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is not Outcome.PROVED
    assert reason in [own.name for own in verdict.reasons]


def test_what_a_call_of_unknown_effect_makes_of_a_reduced_gradient_is_not_known() -> None:
    rest = over_dp("")
    head, body = rest.split("program\n")
    first = f"program dp=0\n{body}{REDUCE}  library.finish()\n{UPDATE}"
    verdict = verdict_on(head + first + f"program dp=1\n{body}{REDUCE}{UPDATE}", single(""))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "unsupported-operator" in [reason.name for reason in verdict.reasons]


def test_a_gradient_is_not_read_while_it_is_reduced() -> None:
    parallel = over_dp(REDUCE.replace("over dp", "over dp async k") + NORM + FACTOR + "  wait k\n" + SCALE + UPDATE)
    verdict = verdict_on(parallel, single(CLIP))
    assert verdict.outcome is Outcome.REFUTED
    assert "missing-wait" in [reason.name for reason in verdict.reasons]
