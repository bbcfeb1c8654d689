"""Verdicts on experts that ranks share: tokens dispatched, exchanged, brought back and combined, and the gradients."""

from __future__ import annotations

import pytest
from oracle.compare import compare
from oracle.judge import proved_and_not_equal
from oracle.mutate import mutants

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled, sampled_tuples
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

FORWARD = """  y = linear(x, w)
  s0 = linear(y, gate)
  s = sigmoid(s0)
  p: f32[GROUPS,4,2], i: i64[GROUPS,4,2] = topk(s, k=2, dim=-1)
  d: f32[GROUPS,4,3,4] = moe_dispatch(y, i, experts=4, capacity=3)
"""

BACKWARD = """  dy, _ = backward d (dd)
  ds = backward p (dp, _)
  ds0 = backward s (ds)
  dy, grad(gate) = backward s0 (ds0)
  _, grad(w) = backward y (dy)
"""

REFERENCE = (
    """
weight w f32[4,4]
weight gate f32[4,4]
weight up f32[4,2,4]
weight down f32[4,4,2]
input x f32[2,4,4]
loss l
program
"""
    + FORWARD.replace("GROUPS", "2")
    + """  h: f32[2,4,3,2] = einsum(d, up, equation="gech,efh->gecf")
  a = silu(h)
  o: f32[2,4,3,4] = einsum(a, down, equation="gecf,ehf->gech")
  z = moe_combine(o, i, p)
  l: f32[1] = sum(z)
  dz = backward l (grad(l))
  do, _, dp = backward z (dz)
  da, grad(down) = backward o (do)
  dh = backward a (da)
  dd, grad(up) = backward h (dh)
"""
    + BACKWARD
)

PARALLEL = (
    """
mesh ep=2
weight w f32[4,4]
weight gate f32[4,4]
weight up f32[4,2,4] ep:S(0)
weight down f32[4,4,2] ep:S(0)
input x f32[2,4,4] ep:S(0)
loss l
program
"""
    + FORWARD.replace("GROUPS", "1")
    + """  e: f32[2,2,3,4] = all-to-all(d, dim=1, concat-dim=0) over ep
  h: f32[2,2,3,2] = einsum(e, up, equation="gech,efh->gecf")
  a = silu(h)
  o: f32[2,2,3,4] = einsum(a, down, equation="gecf,ehf->gech")
  b: f32[1,4,3,4] = all-to-all(o, dim=0, concat-dim=1) over ep
  z = moe_combine(b, i, p)
  l0: f32[1] = sum(z)
  l: f32[1] = all-reduce(l0) over ep
  dz = backward l0 (grad(l))
  db, _, dp = backward z (dz)
  do: f32[2,2,3,4] = all-to-all(db, dim=1, concat-dim=0) over ep
  da, grad(down) = backward o (do)
  dh = backward a (da)
  de, grad(up) = backward h (dh)
  dd: f32[1,4,3,4] = all-to-all(de, dim=0, concat-dim=1) over ep
"""
    + BACKWARD
    + """  reduce-gradients w, gate over ep
"""
)


def test_experts_on_two_ranks_are_proved_and_compute_the_same() -> None:
    verdict = verdict_on(PARALLEL, REFERENCE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    made, other = plans(PARALLEL, REFERENCE)
    found = compare(other, made)
    assert (found.outcome, found.claims) == ("equal", ()), found.difference


@pytest.mark.heavy
def test_no_mutant_that_computes_something_else_is_proved() -> None:
    made, other = plans(PARALLEL, REFERENCE)
    assert not list(proved_and_not_equal(other, list(mutants(made))[::9]))


@pytest.mark.parametrize(
    ("before", "after"),
    sampled_tuples(
        [
            ("capacity=3", "capacity=2"),
            ("experts=4, capacity=3", "experts=4, capacity=3, drop=True"),
            ("topk(s, k=2, dim=-1)", "topk(s0, k=2, dim=-1)"),
            ("b: f32[1,4,3,4] = all-to-all(o, dim=0, concat-dim=1)", "b: f32[1,4,3,4] = all-to-all(o, dim=0, concat-dim=2)"),
            ("moe_combine(b, i, p)", "moe_combine(d, i, p)"),
            ("ds = backward p (dp, _)", "ds = backward p (_, _)"),
            ("db, _, dp = backward z (dz)", "db, _, _ = backward z (dz)"),
            ("  reduce-gradients w, gate over ep", "  reduce-gradients w over ep"),
            ("  reduce-gradients w, gate over ep", "  reduce-gradients w, gate, up, down over ep"),
            ("dd: f32[1,4,3,4] = all-to-all(de, dim=0, concat-dim=1) over ep", "dd = identity(db)"),
        ],
        3,
    ),
)
def test_a_mistake_is_not_proved(before: str, after: str) -> None:
    assert before in PARALLEL
    if "capacity=2" in after:
        text = PARALLEL.replace(before, after).replace("4,3,4]", "4,2,4]").replace("2,3,", "2,2,")
    else:
        text = PARALLEL.replace(before, after)
    assert verdict_on(text, REFERENCE).outcome is not Outcome.PROVED


def test_experts_of_other_ranks_are_refuted() -> None:
    """Each rank sends its tokens to its own experts only."""
    text = PARALLEL.replace("all-to-all(d, dim=1, concat-dim=0) over ep", "all-gather(d0, dim=0) over ep")
    text = text.replace("  e: f32[2,2,3,4]", "  d0: f32[1,2,3,4] = narrow(d, dim=1, start=0, length=2)\n  e: f32[2,2,3,4]")
    assert verdict_on(text, REFERENCE).outcome is not Outcome.PROVED


def test_tokens_whose_number_only_the_run_knows_are_unknown() -> None:
    reference = """
weight r f32[4,8]
weight w f32[4,8,8]
input x f32[8,8]
loss l
program
  g = linear(x, r)
  s, o = permute_tokens(x, g)
  h = grouped_gemm(s, w)
  l: f32[1] = sum(h)
  dh = backward l (grad(l))
  _, grad(w) = backward h (dh)
"""
    verdict = verdict_on("mesh ep=2\n" + reference.replace("w f32[4,8,8]", "w f32[4,8,8] ep:S(0)"), reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "`permute_tokens` is not in the operator table" in verdict.reasons[0].message


SORTED = """
weight w f32[2,16,8]{w}
weight v f32[2,8,16]{v}
input x f32[6,8]
input e i64[6]
loss l
program
{start}  o: i64[6] = argsort(e) || none
  t = index_select({x}, 0, o)
  t0 = narrow(t, 0, 0, 3)
  t1 = narrow(t, 0, 3, 3)
  w0 = select(w, 0, 0)
  w1 = select(w, 0, 1)
  v0 = select(v, 0, 0)
  v1 = select(v, 0, 1)
  h0 = linear(t0, w0)
  h1 = linear(t1, w1)
  a0 = silu(h0)
  a1 = silu(h1)
  b0 = linear(a0, v0)
  b1 = linear(a1, v1)
  b = cat([b0, b1], dim=0)
  z: f32[6,8] = zeros([6, 8]) || none
{end}  s = pow(y, 2)
  l: f32[] = sum(s)
"""
ONE = {"w": "", "v": "", "start": "", "x": "x"}
TWO = {"w": " tp:S(1)", "v": " tp:S(2)", "start": "  c = copy(x) over tp || none\n", "x": "c"}
BACK = {
    "index_add": ("  y = index_add(z, 0, o, b)\n", "  p = index_add(z, 0, o, b)\n  y = all-reduce(p) over tp\n"),
    "after the sum": ("  y = index_add(z, 0, o, b)\n", "  p = all-reduce(b) over tp\n  y = index_add(z, 0, o, p)\n"),
    "inverse order": (
        "  i: i64[6] = argsort(o) || none\n  y = index_select(b, 0, i)\n",
        "  i: i64[6] = argsort(o) || none\n  p = index_select(b, 0, i)\n  y = all-reduce(p) over tp\n",
    ),
}
WRONG_ORDERS = (
    ("cat([b0, b1]", "cat([b1, b0]"),
    ("argsort(e)", "argsort(e, descending=True)"),
    ("narrow(t, 0, 3, 3)", "narrow(t, 0, 2, 3)"),
    ("y = all-reduce(", "y = all-reduce avg("),
)


def _sorted(back: str) -> tuple[str, str]:
    one, two = BACK[back]
    return with_backward(SORTED.format(**ONE, end=one)), "mesh tp=2\n" + with_backward(SORTED.format(**TWO, end=two))


@pytest.mark.parametrize("back", BACK)
def test_tokens_that_are_sorted_by_expert_and_put_back_are_proved(back: str) -> None:
    reference, parallel = _sorted(back)
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert any("equal elements into one order" in text for text in verdict.assumptions)


@pytest.mark.parametrize("back", sampled(BACK, 3))
@pytest.mark.parametrize(("before", "after"), WRONG_ORDERS)
def test_tokens_in_another_order_are_not_proved(back: str, before: str, after: str) -> None:
    reference, parallel = _sorted(back)
    if back == "after the sum":
        before = before.replace("y = all-reduce(", "p = all-reduce(")
        after = after.replace("y = all-reduce", "p = all-reduce")
    assert before in parallel
    assert verdict_on(parallel.replace(before, after), reference).outcome is not Outcome.PROVED


@pytest.mark.parametrize(
    ("zeros", "proved"),
    [("zeros([4, 8])", True), ("full([4, 8], 0.0)", True), ("zeros_like(p)", True), ("full([4, 8], 0.5)", False)],
)
def test_zeros_are_a_part_of_every_sum_and_other_numbers_are_not(zeros: str, proved: bool) -> None:
    text = (
        "weight w f32[8,8]{w}\ninput x f32[4,8]{w}\nloss l\nprogram\n  p = linear(x, w)\n  z: f32[4,8] = "
        + zeros
        + " || none\n  q = add(z, p)\n{y}  s = pow(y, 2)\n  l: f32[] = sum(s)\n"
    )
    reference = with_backward(text.format(w="", y="  y = add(q, 0)\n").replace("add(q, 0)", "identity(q)"))
    parallel = "mesh tp=2\n" + with_backward(text.format(w=" tp:S(1)", y="  y = all-reduce(q) over tp\n"))
    assert (verdict_on(parallel, reference).outcome is Outcome.PROVED) == proved


LIMITED = """s0 = {gate}
s = sigmoid(s0)
g = view(s, [6, 4, 2]) || none
best, i0 = topk(g, 2, dim=-1) || none
worth = sum(best, -1) || none
w0, group = topk(worth, 2, dim=-1) || none
none = zeros_like(worth) || none
kept = scatter(none, 1, group, 1.0) || none
wide = repeat_interleave(kept, 2, dim=1) || none
other = eq(wide, 0.0) || none
left = masked_fill(s, other, 0.0) || none
w1, i = topk(left, 3, dim=-1) || none
p = gather(s, 1, i)
t = sum(p, -1, keepdim=True)
n = div(p, t)
h = F.one_hot(i, 8) || none
f = to(h, "f32") || none
u = unsqueeze(n, -1)
c = mul(u, f)
r = sum(c, 1)
{rest}z = tanh(y)
l: f32[] = mean(z)
"""

_EXPERTS = 'e = einsum("ti,ehi->teh", x, w)\nm = unsqueeze({}, 2)\nq = mul(e, m)\n{} = sum(q, 1)\n'


def _limited(shard: str) -> str:
    return f"weight gate f32[8,6]{shard}\nweight w f32[8,4,6]{shard}\ninput x f32[6,6]\nloss l\n"


def _limited_to_groups() -> tuple[str, str]:
    one = LIMITED.format(gate="linear(x, gate)", rest=_EXPERTS.format("r", "y"))
    gate = "all-gather(a, dim=1) over ep"
    rests = (f"o = narrow(r, 1, {at}, 4)\n{_EXPERTS.format('o', 'b')}y = all-reduce(b) over ep\n" for at in (0, 4))
    two = (f"program ep={rank}\na = linear(x, gate)\n{LIMITED.format(gate=gate, rest=rest)}" for rank, rest in enumerate(rests))
    reference = with_backward(f"{_limited('')}program\n{one}")
    return reference, with_backward(f"mesh ep=2\n{_limited(' ep:S(0)')}{''.join(two)}")


def test_experts_of_the_best_groups_are_proved() -> None:
    reference, parallel = _limited_to_groups()
    assert verdict_on(parallel, reference).outcome is Outcome.PROVED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("o = narrow(r, 1, 4, 4)", "o = narrow(r, 1, 0, 4)"),
        ("scatter(none, 1, group, 1.0)", "scatter(none, 1, group, 0.0)"),
        ("scatter(none, 1, group, 1.0)", "scatter(worth, 1, group, 0.0)"),
        ("group = topk(worth, 2, dim=-1)", "group = topk(worth, 2, dim=-1, largest=False)"),
        ("worth = sum(best, -1)", "worth = amax(best, -1)"),
    ],
)
def test_experts_of_other_groups_are_not_proved(before: str, after: str) -> None:
    reference, parallel = _limited_to_groups()
    assert before in parallel
    assert verdict_on(parallel.replace(before, after), reference).outcome is not Outcome.PROVED


@pytest.mark.parametrize(("number", "proved"), [("0.0", True), ("0", True), ("2.0", False)])
def test_zeros_are_put_into_parts_of_a_sum_and_other_numbers_are_not(number: str, proved: bool) -> None:
    text = "weight w f32[8,6]{0}\nbuffer i i64[4,2]\ninput x f32[4,6]{0}\nloss l\nprogram\nh = linear(x, w)\n{1}z = tanh(t)\n"
    put = f"s = scatter(h, 1, i, {number})\n"
    reference = text.format("", f"{put}t = identity(s)\n") + "l: f32[] = mean(z)\n"
    parallel = "mesh tp=2\n" + text.format(" tp:S(1)", f"{put}t = all-reduce(s) over tp\n") + "l: f32[] = mean(z)\n"
    verdict = verdict_on(with_backward(parallel), with_backward(reference))
    assert (verdict.outcome is Outcome.PROVED) == proved


ALL_TOKENS = """mesh ep=2
weight wg f32[4,4]
weight w1 f32[4,8,4] ep:S(0)
weight w2 f32[4,4,8] ep:S(0)
input x f32[16,4] ep:S(0)
loss l f32[] ep:P
"""
OWN_EXPERTS = """program ep={rank}
  xg = all-gather(x, dim=0) over ep
  lg = linear(xg, wg)
  pr = softmax(lg, dim=-1)
  am = argmax(pr, dim=-1)
  oh = one_hot(am, 4)
  ohf = to(oh, f32)
  gt = mul(pr, ohf)
  gl = slice(gt, 1, {start}, {stop})
  h = einsum("td,efd->etf", xg, w1)
  a = gelu(h)
  y = einsum("etf,edf->etd", a, w2)
  op = einsum("etd,te->td", y, gl)
  o = reduce-scatter(op, dim=0) over ep
  oo = mul(o, o)
  l: f32[] = sum(oo)
  d_oo = backward l (grad(l))
  d_o, d_o = backward oo (d_oo)
  d_op = all-gather(d_o, dim=0) over ep
  d_y, d_gl = backward op (d_op)
  d_a, grad(w2) = backward y (d_y)
  d_h = backward a (d_a)
  _, grad(w1) = backward h (d_h)
  d_gt = backward gl (d_gl)
  d_pr, _ = backward gt (d_gt)
  d_lg = backward pr (d_pr)
  _, grad(wg) = backward lg (d_lg)
  reduce-gradients wg over ep
"""
EVERY_EXPERT = """weight wg f32[4,4]
weight w1 f32[4,8,4]
weight w2 f32[4,4,8]
input x f32[16,4]
loss l f32[]
program
  lg = linear(x, wg)
  pr = softmax(lg, dim=-1)
  am = argmax(pr, dim=-1)
  oh = one_hot(am, 4)
  ohf = to(oh, f32)
  gt = mul(pr, ohf)
  h = einsum("td,efd->etf", x, w1)
  a = gelu(h)
  y = einsum("etf,edf->etd", a, w2)
  o = einsum("etd,te->td", y, gt)
  oo = mul(o, o)
  l: f32[] = sum(oo)
  d_oo = backward l (grad(l))
  d_o, d_o = backward oo (d_oo)
  d_y, d_gt = backward o (d_o)
  d_a, grad(w2) = backward y (d_y)
  d_h = backward a (d_a)
  _, grad(w1) = backward h (d_h)
  d_pr, _ = backward gt (d_gt)
  d_lg = backward pr (d_pr)
  _, grad(wg) = backward lg (d_lg)
"""


@pytest.mark.parametrize(("stop", "outcome"), [(4, Outcome.PROVED), (3, Outcome.REFUTED)])
def test_ranks_that_gather_all_tokens_and_compute_their_own_experts_are_proved(stop: int, outcome: Outcome) -> None:
    """The gate's gradient is what a softmax over all experts makes of sums over some of them."""
    programs = (OWN_EXPERTS.format(rank=rank, start=start, stop=end) for rank, start, end in ((0, 0, 2), (1, stop - 2, stop)))
    assert verdict_on(ALL_TOKENS + "".join(programs), EVERY_EXPERT).outcome is outcome
