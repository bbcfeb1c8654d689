"""Where a plan is blamed that returns a sum of something complete and of a part of a sum."""

from __future__ import annotations

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """weight w f32[8,6]
input x f32[4,6]
input t i64[4]
loss l
program
s = linear(x, w)
l: f32[] = cross_entropy(s, t, label_smoothing=0.1)
"""

PLAN = (
    "mesh tp=2\n"
    + REFERENCE.partition("program")[0].replace("f32[8,6]", "f32[8,6] tp:S(0)")
    + "".join(
        f"""program tp={rank}
s = linear(x, w)
m0 = amax(s, dim=-1, keepdim=True) || none
m = all-reduce max(m0) over tp || none
d = sub(s, m)
g1 = masked_gather(d, t, dim=1, start={4 * rank}, stop={4 * rank + 4})
g = all-reduce(g1) over tp
e = exp(d)
u0 = sum(e, dim=-1)
u = all-reduce(u0) over tp
lg = log(u)
c = sub(lg, g)
sd0 = sum(d, dim=-1)
sd = all-reduce(sd0) over tp
md = div(sd, 8)
ml = sub(lg, md)
c9 = mul(c, 0.9)
m1 = mul(ml, 0.1)
cs = add(c9, m1)
l: f32[] = mean(cs)
"""
        for rank in range(2)
    )
)
OF_ALL = "sd0 = sum(d, dim=-1)\nsd = all-reduce(sd0) over tp\nmd = div(sd, 8)\n"


def test_a_mean_of_all_classes_is_proved() -> None:
    assert verdict_on(with_backward(PLAN), with_backward(REFERENCE)).outcome is Outcome.PROVED


def test_a_part_is_told_where_it_is_taken_with_what_is_complete() -> None:
    plan = with_backward(PLAN.replace(OF_ALL, "md = mean(d, dim=-1)\n"))
    verdict = verdict_on(plan, with_backward(REFERENCE))
    assert verdict.outcome is Outcome.REFUTED
    first = verdict.reasons[0]
    assert first.name == "other-numbers"
    assert first.location.line is not None
    assert plan.splitlines()[first.location.line - 1] == "ml = sub(lg, md)"
    assert "adds the part of a sum that `md` is to what is complete" in first.message


TWO_LOSSES = """weight w f32[4,4]
input x f32[8,4]
loss l
program
  h = linear(x, w)
  a: f32[] = mean(h)
  q = tanh(h)
  b: f32[] = mean(q)
  l: f32[] = add(a, b)
  da, db = backward l (grad(l))
  dh1 = backward a (da)
  dq = backward b (db)
  dh2 = backward q (dq)
  dh = add(dh1, dh2)
  _, grad(w) = backward h (dh)
"""
OF_A_PART = {
    "  a: f32[] = mean(h)\n": "  hs = chunk(h, dim=0) over tp\n  a: f32[] = mean(hs)\n",
    "  dh1 = backward a (da)\n": "  dhs = backward a (da)\n  dh1 = all-gather(dhs, dim=0) over tp\n",
}


def test_gradients_that_count_the_loss_of_a_part_otherwise_are_told_where_it_is_added() -> None:
    plan = "mesh tp=2\n" + TWO_LOSSES
    for whole, part in OF_A_PART.items():
        plan = plan.replace(whole, part)
    verdict = verdict_on(plan, TWO_LOSSES)
    assert verdict.outcome is Outcome.REFUTED
    (reason,) = verdict.reasons
    assert reason.name == "unequal-addends"
    assert reason.location.line is not None
    assert plan.splitlines()[reason.location.line - 1] == "  l: f32[] = add(a, b)"
    assert "the gradient of `w` on every rank" in reason.message
    assert "`add` adds the part of a sum that `a` is to what is complete" in reason.message
