"""Optimizers that plans write out: shards of weights and states (ZeRO-1), masters, clipping before the step."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

BODY = """
  h = linear(x, w1)
  a = gelu(h)
  y = matmul(a, w2)
  b = gelu(y)
  s: f32[] = sum(b)
  l = LOSS
  db = backward s (grad(l))
  dy = backward b (db)
  da, grad(w2) = backward y (dy)
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
"""

STATES = "state m1 f32[16,8]\nstate v1 f32[16,8]\nstate m2 f32[16,8]\nstate v2 f32[16,8]\n"
SHARDED = STATES.replace("]\n", "] dp:S(0)\n")
MASTERS = "state k1 f32[16,8] dp:S(0) of w1\nstate k2 f32[16,8] dp:S(0) of w2\n"
HEAD = "weight w1 f32[16,8]\nweight w2 f32[16,8]\n"

STEPS = """  adam_step(w1!, grad(w1), m1!, v1!, lr=0.1)
  adam_step(w2!, grad(w2), m2!, v2!, lr=0.1)
"""

ZERO = """  g1 = reduce-scatter(grad(w1), dim=0) over dp
  g2 = reduce-scatter(grad(w2), dim=0) over dp
  adam_step(k1!, g1, m1!, v1!, lr=0.1)
  adam_step(k2!, g2, m2!, v2!, lr=0.1)
  w1 = all-gather(k1, dim=0) over dp
  w2 = all-gather(k2, dim=0) over dp
"""

CUT = """  k1: f32[8,8] = chunk(w1, dim=0) over dp
  k2: f32[8,8] = chunk(w2, dim=0) over dp
"""


def single(after: str, states: str = STATES) -> str:
    return f"{HEAD}{states}input x f32[8,8]\nloss l f32[]\nprogram\n{BODY.replace('LOSS', 'identity(s)')}{after}"


def over_dp(after: str, states: str = SHARDED + MASTERS) -> str:
    body = BODY.replace("LOSS", "all-reduce(s) over dp")
    return f"mesh dp=2\n{HEAD}{states}input x f32[8,8] dp:S(0)\nloss l f32[]\nprogram\n{body}{after}"


SGD = "  u1 = mul(grad(w1), 0.5)\n  w1 = sub(w1, u1)\n  u2 = mul(grad(w2), 0.5)\n  w2 = sub(w2, u2)\n"
REDUCE = "  reduce-gradients w1, w2 over dp\n"

CLIP = """  s1 = pow(g1, 2)
  q1: f32[] = sum(s1)
  s2 = pow(g2, 2)
  q2: f32[] = sum(s2)
  q = add(q1, q2)
  t = TOTAL
  n = sqrt(t)
  e = div(0.5, n)
  c = clamp(e, max=1.0)
  c1 = mul(g1, c)
  c2 = mul(g2, c)
"""

CLIPPED = ZERO.replace("  adam_step(k1!, g1", CLIP + "  adam_step(k1!, c1").replace("k2!, g2", "k2!, c2")
ALONE = CLIP.replace("TOTAL", "identity(q)").replace("g1", "grad(w1)").replace("g2", "grad(w2)") + STEPS.replace(
    "grad(w1)", "c1"
).replace("grad(w2)", "c2")

COPIES = "state k1 f32[16,8]\nstate k2 f32[16,8]\n"
ON_COPIES = STEPS.replace("(w1!", "(k1!").replace("(w2!", "(k2!") + "  w1 = identity(k1)\n  w2 = identity(k2)\n"

SHIFTED = """  send g1 to dp+1 ring async i
  recv o1: f32[8,8] from dp-1 ring
  wait i
  adam_step(k1!, o1"""

FIRST, LAST = "".join(ZERO.splitlines(True)[:2]), ZERO.splitlines(True)[4:]
"""What stands before the steps, and behind them."""

ASKEW = """  t: f32[8,16] = all-gather(k1, dim=1) over dp
  w1 = view(t, [16, 8])
"""

RIGHT = {
    "sharded steps on masters": (over_dp(ZERO), single(STEPS)),
    "sharded steps on slices of the weights": (over_dp(CUT + ZERO, SHARDED), single(STEPS)),
    "steps on all ranks": (over_dp(REDUCE + STEPS, STATES), single(STEPS)),
    "masters in both": (
        over_dp(ZERO, SHARDED + COPIES.replace("]\n", "] dp:S(0)\n")), single(ON_COPIES, STATES + COPIES),
    ),
    "clipped shards": (over_dp(CLIPPED.replace("TOTAL", "all-reduce(q) over dp")), single(ALONE)),
    "a subtraction": (over_dp(REDUCE + SGD, ""), single(SGD, "")),
    "a subtraction in place": (over_dp(REDUCE + SGD.replace("w1 = sub(w1,", "sub(w1!,"), ""), single(SGD, "")),
    "a subtraction of slices": (
        over_dp(
            CUT + """  g1 = reduce-scatter(grad(w1), dim=0) over dp
  u1 = mul(g1, 0.5)
  n1 = sub(k1, u1)
  w1 = all-gather(n1, dim=0) over dp
  reduce-gradients w2 over dp
  u2 = mul(grad(w2), 0.5)
  w2 = sub(w2, u2)
""", "",
        ),
        single(SGD, ""),
    ),
    "a norm of the updated weight": (over_dp(ZERO + "  q = pow(w1, 2)\n  n: f32[] = sum(q)\n"), single(STEPS)),
}  # fmt: skip

WRONG = {
    "no gather": (over_dp(ZERO.replace("  w2 = all-gather(k2, dim=0) over dp\n", "")), single(STEPS), "not-updated-once"),
    "no reduction": (
        over_dp(ZERO.replace("reduce-scatter(grad(w1), dim=0)", "chunk(grad(w1), dim=0)")), single(STEPS),
        "missing-allreduce",
    ),
    "an average": (
        over_dp(ZERO.replace("reduce-scatter(grad(w1)", "reduce-scatter avg(grad(w1)")), single(STEPS), "scaled-value",
    ),
    "the gradient of the other weight": (
        over_dp(ZERO.replace("k1!, g1", "k1!, x1").replace("k2!, g2", "k2!, g1").replace("x1", "g2")), single(STEPS),
        "other-operator",
    ),
    "the states of the other weight": (
        over_dp(ZERO.replace("m1!, v1!", "M").replace("m2!, v2!", "m1!, v1!").replace("M", "m2!, v2!")), single(STEPS),
        "other-operator",
    ),
    "the moments exchanged": (over_dp(ZERO.replace("m1!, v1!", "v1!, m1!")), single(STEPS), "other-operator"),
    "the shard of another rank": (
        over_dp(ZERO.replace("  adam_step(k1!, g1", SHIFTED)), single(STEPS), "mismatched-shards",
    ),
    "states that lie otherwise": (
        over_dp(ZERO, SHARDED.replace("state m1 f32[16,8] dp:S(0)", "state m1 f32[16,8] dp:S(1)") + MASTERS), single(STEPS),
        "mismatched-shards",
    ),
    "the weights exchanged": (
        over_dp(ZERO.replace("all-gather(k1", "all-gather(K").replace("all-gather(k2", "all-gather(k1").replace("(K,", "(k2,")),
        single(STEPS), "other-update",
    ),
    "gathered before the step": (
        over_dp(FIRST + "".join(LAST) + "".join(ZERO.splitlines(True)[2:4])), single(STEPS), "other-update",
    ),
    "gathered along another dimension": (
        over_dp(ZERO.replace(LAST[0], ASKEW)), single(STEPS), "wrong-gather-dim",
    ),
    "the gradient gathered": (over_dp(ZERO.replace("all-gather(k1", "all-gather(g1")), single(STEPS), "other-update"),
    "two steps": (
        over_dp(ZERO.replace("  w1 = all", "  adam_step(k1!, g1, m1!, v1!, lr=0.1)\n  w1 = all")), single(STEPS),
        "other-operator",
    ),
    "another rate": (over_dp(ZERO.replace("v1!, lr=0.1", "v1!, lr=0.2")), single(STEPS), "other-constant"),
    "another step": (
        over_dp(ZERO.replace("adam_step(k1", "adamw_step(k1").replace("v1!, lr=0.1", "v1!, lr=0.1, weight_decay=0.1")),
        single(STEPS), "other-operator",
    ),
    "the norm of a shard": (over_dp(CLIPPED.replace("TOTAL", "identity(q)")), single(ALONE), "missing-allreduce"),
    "a shard that is not clipped": (
        over_dp(CLIPPED.replace("TOTAL", "all-reduce(q) over dp").replace("k1!, c1", "k1!, g1")), single(ALONE),
        "other-operator",
    ),
    "a subtraction of what is not reduced": (over_dp(SGD, ""), single(SGD, ""), "incomplete-update"),
    "a subtraction of another multiple": (
        over_dp(REDUCE + SGD.replace("0.5", "0.25", 1), ""), single(SGD, ""), "other-update",
    ),
    "an addition": (over_dp(REDUCE + SGD.replace("sub(w1", "add(w1"), ""), single(SGD, ""), "other-operator"),
    "one weight is never updated": (over_dp(REDUCE + SGD[: SGD.index("  u2")], ""), single(SGD, ""), "not-updated-once"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_an_optimizer_that_is_written_out_is_proved(name: str) -> None:
    parallel, reference = RIGHT[name]
    assert compare(*plans(reference, parallel)).outcome == "equal"
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("name", sampled(WRONG, 3))
def test_a_wrong_optimizer_is_not(name: str) -> None:
    parallel, reference, reason = WRONG[name]
    assert compare(*plans(reference, parallel)).outcome != "equal"
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is not Outcome.PROVED
    assert reason in [own.name for own in verdict.reasons]


@pytest.mark.parametrize("name", ["sharded steps on masters", "sharded steps on slices of the weights", "steps on all ranks"])
def test_a_step_stands_for_the_update_of_the_reference(name: str) -> None:
    verdict = verdict_on(RIGHT[name][0], single("  update w1, w2\n", ""))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert any("`adam_step` is the optimizer that the reference's `update` stands for" in own for own in verdict.assumptions)


OPEN = {"another rate", "another step", "the states of the other weight", "the moments exchanged"}
"""What a reference that says `update` alone says nothing of: its optimizer, and what its states are called."""


@pytest.mark.parametrize("name", [name for name in WRONG if WRONG[name][1] == single(STEPS) and name not in OPEN])
def test_a_wrong_step_stands_for_no_update(name: str) -> None:
    assert verdict_on(WRONG[name][0], single("  update w1, w2\n", "")).outcome is not Outcome.PROVED


@pytest.mark.parametrize("slice_of", ["narrow(w1, 0, 0, 8)", "chunk(w1, dim=0) over dp", "view(w1, [8, 16])"])
def test_a_weight_that_is_overwritten_through_its_slice_is_not_known(slice_of: str) -> None:
    shape = "f32[8,16]" if "view" in slice_of else "f32[8,8]"
    text = over_dp(f"{REDUCE}  k1: {shape} = {slice_of}\n" + SGD.replace("  u2", "  mul(k1!, 2.0)\n  u2"), "")
    verdict = verdict_on(text, single(SGD, ""))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "undecided-update" in [reason.name for reason in verdict.reasons]


def test_a_slice_of_a_weight_is_not_known_once_the_weight_is_given_anew() -> None:
    text = over_dp(REDUCE + "  k1 = narrow(w1, 0, 0, 16)\n" + SGD + "  w1 = identity(k1)\n", "")
    verdict = verdict_on(text, single(SGD, ""))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "undecided-update" in [reason.name for reason in verdict.reasons]


def test_a_weight_that_only_the_reference_writes_out_is_left_open() -> None:
    verdict = verdict_on(over_dp(REDUCE + "  update w1, w2\n", ""), single(SGD, ""))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "other-update" in [reason.name for reason in verdict.reasons]


def test_weights_that_only_the_plan_writes_out_otherwise_are_left_open() -> None:
    verdict = verdict_on(over_dp(REDUCE + SGD, ""), single("  update w1, w2\n", ""))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "written-out-update" in [reason.name for reason in verdict.reasons]


@pytest.mark.parametrize("step", ["fused_adam", "apex.optimizers.fused_sgd", "my_step"])
@pytest.mark.parametrize("after", ["  update w1, w2\n", STEPS])
def test_a_step_that_is_not_known_may_update_the_weight_of_its_shard(step: str, after: str) -> None:
    unknown = ZERO.replace("adam_step", step).replace(", lr=0.1", "")
    reference = single(after, STATES if after == STEPS else "")
    verdict = verdict_on(over_dp(unknown), reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "not-updated-once" not in [reason.name for reason in verdict.reasons]
    without = unknown.replace(f"{step}(k1!, g1, m1!, v1!)", f"{step}(m1!, g1, v1!)")
    assert without != unknown
    assert verdict_on(over_dp(without), reference).outcome is not Outcome.PROVED


FLAT_STATE = """mesh dp=2
weight w f32[5,6]
state m f32[30] dp:S(0)
input x f32[4,6] dp:S(0)
loss l
program
h = linear(x, w)
l0: f32[] = mean(h)
l = all-reduce avg(l0) over dp
end f = reshape(grad(w), [30])
end s: f32[15] = reduce-scatter avg(f, dim=0) over dp
end c = reshape(w, [30])
end p: f32[15] = chunk(c, dim=0) over dp
end momentum_step(p!, s, m!, lr=0.1, momentum=0.9)
end g = all-gather(p, dim=0) over dp
end w = view(g, [5, 6])
"""
WHOLE_STATE = """weight w f32[5,6]
state m f32[5,6]
input x f32[4,6]
loss l
program
h = linear(x, w)
l: f32[] = mean(h)
end momentum_step(w!, grad(w), m!, lr=0.1, momentum=0.9)
"""


def test_a_state_that_is_held_in_other_dimensions_is_not_compared() -> None:
    verdict = verdict_on(with_backward(FLAT_STATE), with_backward(WHOLE_STATE))
    assert verdict.outcome is Outcome.UNKNOWN
    assert {reason.name for reason in verdict.reasons} >= {"unknown-state"}


COPIED = """weight w f32[4,4]
weight v f32[4,4]
input x f32[4,4]
loss l
program
h = linear(x, w)
y = linear(h, v)
z = pow(y, 2)
l: f32[] = mean(z)
end sgd_step(v!, grad(v), lr=0.1)
end dw = mul(grad(w), 0.1)
"""
LATER = "end nw = sub(w, dw)\nend copy_(w!, nw)\nend ow = mul(w, 0.5)\nend nv = sub(v, ow)\nend copy_(v!, nv)\n"
ANEW = "end ow = mul(w, 0.5)\nend nw = sub(w, dw)\nend nv = sub(v, ow)\n"
TURNED = COPIED + "end turned = transpose(w, 0, 1)\n"


@pytest.mark.parametrize(
    ("updates", "right"),
    [
        (ANEW + "end copy_(w!, nw)\nend copy_(v!, nv)\n", True),
        ("end a = view(w, 4, 4)\n" + LATER.replace("mul(w,", "mul(a,"), False),
        (LATER, False),
    ],
    ids=["copied last", "a view sees the copy", "the copy is read"],
)
def test_a_copy_gives_a_weight_anew_and_what_shares_its_memory(updates: str, right: bool) -> None:
    reference = COPIED + ANEW + "end w = identity(nw)\nend v = identity(nv)\n"
    verdict = verdict_on(with_backward(COPIED + updates), with_backward(reference))
    assert (verdict.outcome is Outcome.PROVED) is right


def test_what_a_copy_makes_of_its_own_memory_is_not_known() -> None:
    plan, reference = TURNED + "end copy_(w!, turned)\n", TURNED + "end w = identity(turned)\n"
    assert verdict_on(with_backward(plan), with_backward(reference)).outcome is Outcome.UNKNOWN
