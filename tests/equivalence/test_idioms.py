"""Idioms of real code, in plans that write them otherwise than their reference: each with wrong twins, judged by numbers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.test_attention import plans
from tests.equivalence.test_text_plans import verdict_on
from tvlint.equivalence.verdict.on_numbers import Difference
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")


@dataclass(frozen=True)
class Idiom:
    """A reference, a plan that trains the same, and edits of it after which it does not."""

    reference: str
    plan: str
    wrong: tuple[tuple[str, str], ...]


MOMENTS_SPLIT = Idiom(
    """weight w f32[8,6]
weight g f32[8]
weight o f32[3,8]
input x f32[5,6]
loss l
program
h = linear(x, w)
m = mean(h, dim=-1, keepdim=True)
q = mul(h, h)
s = mean(q, dim=-1, keepdim=True)
mm = mul(m, m)
v = sub(s, mm)
e = add(v, 0.01)
r = rsqrt(e)
d = sub(h, m)
n = mul(d, r)
k = mul(n, g)
y = linear(k, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight w f32[8,6] tp:S(0)
weight g f32[8] tp:S(0)
weight o f32[3,8] tp:S(1)
input x f32[5,6]
loss l
program
h = linear(x, w)
sm = sum(h, dim=-1, keepdim=True)
sf = all-reduce(sm) over tp || grad(sm) = all-reduce({y}) over tp
m = div(sf, 8)
q = mul(h, h)
sq = sum(q, dim=-1, keepdim=True)
qf = all-reduce(sq) over tp || grad(sq) = all-reduce({y}) over tp
s = div(qf, 8)
mm = mul(m, m)
v = sub(s, mm)
e = add(v, 0.01)
r = rsqrt(e)
d = sub(h, m)
n = mul(d, r)
k = mul(n, g)
p = linear(k, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
""",
    (
        ("qf, 8", "qf, 4"),
        ("grad(sq) = all-reduce({y}) over tp", "grad(sq) = identity({y})"),
    ),
)

MOMENTS_SPLIT_FUSED = Idiom(
    """weight w f32[8,6]
weight g f32[8]
weight o f32[3,8]
input x f32[5,6]
loss l
program
h = linear(x, w)
k = layer_norm(h, [8], g, None, 0.01)
y = linear(k, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight w f32[8,6] tp:S(0)
weight g f32[8] tp:S(0)
weight o f32[3,8] tp:S(1)
input x f32[5,6]
loss l
program
h = linear(x, w)
sm = sum(h, dim=-1, keepdim=True)
sf = all-reduce(sm) over tp || grad(sm) = all-reduce({y}) over tp
m = div(sf, 8)
q = mul(h, h)
sq = sum(q, dim=-1, keepdim=True)
qf = all-reduce(sq) over tp || grad(sq) = all-reduce({y}) over tp
s = div(qf, 8)
mm = mul(m, m)
v = sub(s, mm)
e = add(v, 0.01)
r = rsqrt(e)
d = sub(h, m)
n = mul(d, r)
k = mul(n, g)
p = linear(k, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
""",
    (("add(v, 0.01)", "add(v, 0.02)"),),
)

ZERO3_FLAT_GATHER_VIEW = Idiom(
    """weight w1 f32[4,6]
weight w2 f32[4,4]
input x f32[8,6]
loss l
program
h = linear(x, w1)
a = tanh(h)
y = linear(a, w2)
z = tanh(y)
l: f32[] = mean(z)
""",
    """mesh dp=2
weight w1 f32[4,6] dp:S(0)
weight w2 f32[4,4] dp:S(0)
input x f32[8,6] dp:S(0)
loss l
program
f1: f32[12] = view(w1, size=[12]) 
gf1 = all-gather(f1, dim=0) over dp
u1 = view(gf1, size=[4,6])
f2: f32[8] = view(w2, size=[8])
gf2 = all-gather(f2, dim=0) over dp
u2 = view(gf2, size=[4,4])
h = linear(x, u1)
a = tanh(h)
y = linear(a, u2)
z = tanh(y)
l: f32[] = mean(z)
end grad(w1) = div(grad(w1), 2)
end grad(w2) = div(grad(w2), 2)
end update w1, w2
""",
    (
        ("u1 = view(gf1, size=[4,6])", "t1 = view(gf1, size=[6,4])\nu1 = transpose(t1, dim0=0, dim1=1)"),
        ("end grad(w1) = div(grad(w1), 2)\n", ""),
    ),
)

CHUNKED_LOSS_DP = Idiom(
    """weight w f32[7,6]
input x f32[8,6]
input t i64[8]
loss l
program
s = linear(x, w)
l: f32[] = cross_entropy(s, t)
""",
    """mesh dp=2
weight w f32[7,6]
input x f32[8,6] dp:S(0)
input t i64[8] dp:S(0)
loss l
program
xa, xb = torch.chunk(x, chunks=2, dim=0)
ta, tb = torch.chunk(t, chunks=2, dim=0) || none
sa = linear(xa, w)
sb = linear(xb, w)
ca = cross_entropy(sa, ta, reduction="sum")
cb = cross_entropy(sb, tb, reduction="sum")
c = add(ca, cb)
l: f32[] = div(c, 4)
end reduce-gradients w over dp by avg
""",
    (
        ("linear(xb, w)", "linear(xa, w)"),
        ("div(c, 4)", "div(c, 8)"),
    ),
)

IGNORE_INDEX_COUNTS = Idiom(
    """weight w f32[7,6]
input x f32[8,6]
input t i64[8]
loss l
program
s = linear(x, w)
l: f32[] = cross_entropy(s, t, ignore_index=-100)
""",
    """mesh dp=2
weight w f32[7,6]
input x f32[8,6] dp:S(0)
input t i64[8] dp:S(0)
loss l
program
s = linear(x, w)
c = cross_entropy(s, t, ignore_index=-100, reduction="sum")
k = ne(t, -100) || none
n = sum(k) || none
nt = all-reduce(n) over dp || none
lp: f32[] = div(c, nt)
l: f32[] = all-reduce(lp) over dp
end reduce-gradients w over dp
""",
    (("ne(t, -100)", "ne(t, 0)"),),
)

UNEVEN_MASK_WHERE_DP = Idiom(
    """weight w f32[7,6]
input x f32[8,6]
input t i64[8]
input k i64[8]
loss l
program
s = linear(x, w)
c = cross_entropy(s, t, reduction="none")
b = eq(k, 1)
cz = masked_fill(c, b, 0.0)
a = sum(cz)
nb = logical_not(b)
n = sum(nb)
l: f32[] = div(a, n)
""",
    """mesh dp=2
weight w f32[7,6]
input x f32[8,6] dp:S(0)
input t i64[8] dp:S(0)
input k i64[8] dp:S(0)
loss l
program
s = linear(x, w)
lq = log_softmax(s, dim=-1)
c = nll_loss(lq, t, reduction="none")
b = ne(k, 1) || none
f = to(b, dtype="float32") || none
cz = mul(c, f)
a = sum(cz)
n = sum(f) || none
na = all-reduce(n) over dp || none
l0: f32[] = div(a, na)
l: f32[] = all-reduce(l0) over dp
end reduce-gradients w over dp
""",
    (
        ("ne(k, 1)", "ne(k, 0)"),
        ("all-reduce(n) over dp", "all-reduce avg(n) over dp"),
    ),
)

QKV_STACKED = Idiom(
    """weight wqkv f32[24,6] 
weight wo f32[6,8] 
input x f32[2,5,6]
loss l
program
y = linear(x, wqkv)
q0, k0, v0 = split(y, [8,8,8], dim=-1)
q1 = view(q0, size=[2,5,4,2])
q = transpose(q1, dim0=1, dim1=2)
k1 = view(k0, size=[2,5,4,2])
k = transpose(k1, dim0=1, dim1=2)
v1 = view(v0, size=[2,5,4,2])
v = transpose(v1, dim0=1, dim1=2)
a = scaled_dot_product_attention(q, k, v, is_causal=True)
at = transpose(a, dim0=1, dim1=2)
f: f32[2,5,8] = reshape(at, size=[2,5,8])
k9 = linear(f, wo)
z = tanh(k9)
l: f32[] = mean(z)
""",
    """mesh tp=2
weight wqkv f32[24,6] tp:S(0, parts=[8,8,8])
weight wo f32[6,8] tp:S(1)
input x f32[2,5,6]
loss l
program
y = linear(x, wqkv)
y3 = view(y, size=[2,5,3,4])
q0, k0, v0 = unbind(y3, dim=2)
q1 = view(q0, size=[2,5,2,2])
q = transpose(q1, dim0=1, dim1=2)
k1 = view(k0, size=[2,5,2,2])
k = transpose(k1, dim0=1, dim1=2)
v1 = view(v0, size=[2,5,2,2])
v = transpose(v1, dim0=1, dim1=2)
a = scaled_dot_product_attention(q, k, v, is_causal=True)
at = transpose(a, dim0=1, dim1=2)
f: f32[2,5,4] = reshape(at, size=[2,5,4])
kp = linear(f, wo)
k9 = all-reduce(kp) over tp
z = tanh(k9)
l: f32[] = mean(z)
""",
    (
        ("tp:S(0, parts=[8,8,8])", "tp:S(0)"),
        ("q0, k0, v0 = unbind", "k0, q0, v0 = unbind"),
    ),
)

FLATTENED_TOKENS = Idiom(
    """weight w f32[7,6]
input x f32[2,4,6]
input t i64[2,4]
loss l
program
s = linear(x, w)
st = transpose(s, dim0=1, dim1=2)
l: f32[] = cross_entropy(st, t)
""",
    """mesh dp=2
weight w f32[7,6]
input x f32[2,4,6] dp:S(0)
input t i64[2,4] dp:S(0)
loss l
program
f: f32[4,6] = view(x, size=[4,6])
s = linear(f, w)
tf: i64[4] = view(t, size=[4]) || none
l: f32[] = cross_entropy(s, tf)
end reduce-gradients w over dp by avg
""",
    (
        (" by avg", ""),
        ("cross_entropy(s, tf)", 'cross_entropy(s, tf, reduction="sum")'),
    ),
)

IDIOMS = {
    "a variance by its moments, of a split dimension": MOMENTS_SPLIT,
    "a norm by moments of a split dimension": MOMENTS_SPLIT_FUSED,
    "flat shards that are gathered and viewed": ZERO3_FLAT_GATHER_VIEW,
    "a loss in chunks": CHUNKED_LOSS_DP,
    "a mean over targets that are counted": IGNORE_INDEX_COUNTS,
    "a mean over what a mask keeps": UNEVEN_MASK_WHERE_DP,
    "queries, keys and values stacked in one weight": QKV_STACKED,
    "tokens of all sequences in a row": FLATTENED_TOKENS,
}
TWINS = [(name, before, after) for name, idiom in IDIOMS.items() for before, after in idiom.wrong]


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_is_proved(name: str) -> None:
    reference, plan = (with_backward(text) for text in (IDIOMS[name].reference, IDIOMS[name].plan))
    verdict = verdict_on(plan, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert not isinstance(on_numbers_of(*plans(plan, reference)), Difference)


@pytest.mark.parametrize(("name", "before", "after"), TWINS)
def test_its_wrong_twins_are_refuted(name: str, before: str, after: str) -> None:
    assert IDIOMS[name].plan.count(before) == 1
    reference, plan = with_backward(IDIOMS[name].reference), with_backward(IDIOMS[name].plan.replace(before, after))
    assert isinstance(on_numbers_of(*plans(plan, reference)), Difference)
    assert verdict_on(plan, reference).outcome is Outcome.REFUTED
