"""Masks that are numbers or a rank's own rows, halves that are joined in another order, ranges that ranks add up, and norms of
the batch: each with wrong twins, judged by numbers.
"""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled, sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Difference
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

ROTATED_HALVES = """weight w f32[8,6]
weight o f32[6,8]
input x f32[5,6]
input c f32[5,4]
input s f32[5,4]
loss l
program
h = linear(x, w)
a, b = torch.chunk(h, chunks=2, dim=-1)
ac = mul(a, c)
bs = mul(b, s)
f = sub(ac, bs)
bc = mul(b, c)
as = mul(a, s)
g = add(bc, as)
r = torch.cat([f, g], dim=-1)
k = gelu(r)
y = linear(k, o)
z = tanh(y)
l: f32[] = mean(z)
"""

NORM_OF_A_BATCH = """weight w f32[6,5]
weight g f32[6]
weight b f32[6]
input x f32[8,5]
loss l
program
h = linear(x, w)
y = batch_norm(h, None, None, g, b, True, 0.1, 0.01)
z = tanh(y)
l: f32[] = mean(z)
"""

IDIOMS = {
    "halves that are turned as one, and an activation of them": Idiom(
        ROTATED_HALVES,
        """weight w f32[8,6]
weight o f32[6,8]
input x f32[5,6]
input c f32[5,4]
input s f32[5,4]
loss l
program
h = linear(x, w)
cc = torch.cat([c, c], dim=-1) || none
ss = torch.cat([s, s], dim=-1) || none
a, b = torch.split(h, 4, dim=-1)
n = neg(b)
rh = torch.cat([n, a], dim=-1)
hc = mul(h, cc)
hs = mul(rh, ss)
r = add(hc, hs)
k = gelu(r)
y = linear(k, o)
z = tanh(y)
l: f32[] = mean(z)
""",
        (("torch.cat([n, a], dim=-1)", "torch.cat([a, n], dim=-1)"), ("neg(b)", "neg(a)")),
    ),
    "the same with a part of both halves on each rank": Idiom(
        ROTATED_HALVES,
        """mesh tp=2
weight w f32[8,6] tp:S(0, parts=[4,4])
weight o f32[6,8] tp:S(1, parts=[4,4])
input x f32[5,6]
input c f32[5,4] tp:S(1)
input s f32[5,4] tp:S(1)
loss l
program
h = linear(x, w)
cc = torch.cat([c, c], dim=-1) || none
ss = torch.cat([s, s], dim=-1) || none
a, b = torch.split(h, 2, dim=-1)
n = neg(b)
rh = torch.cat([n, a], dim=-1)
hc = mul(h, cc)
hs = mul(rh, ss)
r = add(hc, hs)
k = gelu(r)
p = linear(k, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = mean(z)
""",
        (("tp:S(1, parts=[4,4])", "tp:S(1)"), ("neg(b)", "identity(b)")),
    ),
    "a window that is a product of triangles": Idiom(
        """weight w f32[18,6]
input x f32[2,8,6]
loss l
program
h = linear(x, w)
q, k, v = torch.chunk(h, chunks=3, dim=-1)
kt = transpose(k, dim0=1, dim1=2)
s = matmul(q, kt)
i = arange(0, 8) || none
r = unsqueeze(i, 1) || none
c = unsqueeze(i, 0) || none
ca = le(c, r) || none
d = sub(r, c) || none
wi = lt(d, 3) || none
m = logical_and(ca, wi) || none
nm = logical_not(m) || none
sm = masked_fill(s, nm, -inf)
a = softmax(sm, dim=-1)
y = matmul(a, v)
z = tanh(y)
l: f32[] = mean(z)
""",
        """weight w f32[18,6]
input x f32[2,8,6]
loss l
program
h = linear(x, w)
q, k, v = torch.chunk(h, chunks=3, dim=-1)
kt = transpose(k, dim0=1, dim1=2)
s = matmul(q, kt)
o = ones([8,8]) || none
lo = tril(o) || none
up = triu(o, diagonal=-2) || none
b = mul(lo, up) || none
nm = eq(b, 0) || none
sm = masked_fill(s, nm, -inf)
a = softmax(sm, dim=-1)
y = matmul(a, v)
z = tanh(y)
l: f32[] = mean(z)
""",
        (("diagonal=-2", "diagonal=-3"), ("tril(o)", "tril(o, diagonal=1)")),
    ),
    "a triangle for the rank's own rows": Idiom(
        """weight w f32[18,6]
input x f32[2,8,6]
loss l
program
h = linear(x, w)
q, k, v = torch.chunk(h, chunks=3, dim=-1)
kt = transpose(k, dim0=1, dim1=2)
s0 = matmul(q, kt)
s = mul(s0, 0.5)
o = ones([8,8]) || none
m = tril(o) || none
mb = eq(m, 0.0) || none
sm = masked_fill(s, mb, -inf)
a = softmax(sm, dim=-1)
y = matmul(a, v)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh cp=2
weight w f32[18,6]
input x f32[2,8,6] cp:S(1)
loss l
program cp=0
h = linear(x, w)
q, kl, vl = torch.chunk(h, chunks=3, dim=-1)
k = all-gather(kl, dim=1) over cp
v = all-gather(vl, dim=1) over cp
kt = transpose(k, dim0=1, dim1=2)
s0 = matmul(q, kt)
s = mul(s0, 0.5)
o = ones([4,8]) || none
m = tril(o, diagonal=0) || none
mb = eq(m, 0.0) || none
sm = masked_fill(s, mb, -inf)
a = softmax(sm, dim=-1)
y = matmul(a, v)
z = tanh(y)
l: f32[] = mean(z)
end reduce-gradients w over cp by avg
program cp=1
h = linear(x, w)
q, kl, vl = torch.chunk(h, chunks=3, dim=-1)
k = all-gather(kl, dim=1) over cp
v = all-gather(vl, dim=1) over cp
kt = transpose(k, dim0=1, dim1=2)
s0 = matmul(q, kt)
s = mul(s0, 0.5)
o = ones([4,8]) || none
m = tril(o, diagonal=4) || none
mb = eq(m, 0.0) || none
sm = masked_fill(s, mb, -inf)
a = softmax(sm, dim=-1)
y = matmul(a, v)
z = tanh(y)
l: f32[] = mean(z)
end reduce-gradients w over cp by avg
""",
        (("diagonal=4", "diagonal=3"), ("tril(o, diagonal=4)", "tril(o)")),
    ),
    "rows that are cut out of a triangle of flags": Idiom(
        """weight w f32[18,6]
input x f32[2,8,6]
loss l
program
h = linear(x, w)
q, k, v = torch.chunk(h, chunks=3, dim=-1)
q4 = unsqueeze(q, 1)
k4 = unsqueeze(k, 1)
v4 = unsqueeze(v, 1)
y = scaled_dot_product_attention(q4, k4, v4, is_causal=True)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh cp=2
weight w f32[18,6]
input x f32[2,8,6] cp:S(1)
loss l
program cp=0
h = linear(x, w)
q, kl, vl = torch.chunk(h, chunks=3, dim=-1)
k = all-gather(kl, dim=1) over cp
v = all-gather(vl, dim=1) over cp
o = ones([8,8], dtype="bool") || none
f = tril(o) || none
m: bool[4,8] = narrow(f, dim=0, start=0, length=4) || none
q4 = unsqueeze(q, 1)
k4 = unsqueeze(k, 1)
v4 = unsqueeze(v, 1)
y = scaled_dot_product_attention(q4, k4, v4, m)
z = tanh(y)
l: f32[] = mean(z)
end reduce-gradients w over cp by avg
program cp=1
h = linear(x, w)
q, kl, vl = torch.chunk(h, chunks=3, dim=-1)
k = all-gather(kl, dim=1) over cp
v = all-gather(vl, dim=1) over cp
o = ones([8,8], dtype="bool") || none
f = tril(o) || none
m: bool[4,8] = narrow(f, dim=0, start=4, length=4) || none
q4 = unsqueeze(q, 1)
k4 = unsqueeze(k, 1)
v4 = unsqueeze(v, 1)
y = scaled_dot_product_attention(q4, k4, v4, m)
z = tanh(y)
l: f32[] = mean(z)
end reduce-gradients w over cp by avg
""",
        (("start=4", "start=0"), ("tril(o)", "tril(o, diagonal=1)")),
    ),
    "a triangle of minus infinity that is added": Idiom(
        """weight w f32[18,6]
input x f32[2,4,6]
loss l
program
h = linear(x, w)
q, k, v = torch.chunk(h, chunks=3, dim=-1)
q4 = unsqueeze(q, 1)
k4 = unsqueeze(k, 1)
v4 = unsqueeze(v, 1)
y = scaled_dot_product_attention(q4, k4, v4, is_causal=True, scale=0.5)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh dp=2
weight w f32[18,6]
input x f32[2,4,6] dp:S(0)
loss l
program
h = linear(x, w)
q, k, v = torch.chunk(h, chunks=3, dim=-1)
kt = transpose(k, dim0=1, dim1=2)
s0 = matmul(q, kt)
s = mul(s0, 0.5)
f = full([4,4], -inf) || none
m = triu(f, diagonal=1) || none
sm = add(s, m)
a = softmax(sm, dim=-1)
y = matmul(a, v)
z = tanh(y)
l: f32[] = mean(z)
end reduce-gradients w over dp by avg
""",
        (("diagonal=1", "diagonal=2"), ("mul(s0, 0.5)", "mul(s0, 0.25)")),
    ),
    "gates of the rank's own experts, cut out of all": Idiom(
        """weight w f32[4,6,6]
weight r f32[4,6]
input x f32[5,6]
loss l
program
s = linear(x, r)
g = softmax(s, dim=-1)
h = einsum("td,edf->tef", x, w)
a = gelu(h)
ge = unsqueeze(g, -1)
m = mul(a, ge)
y = sum(m, dim=1)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh ep=2
weight w f32[4,6,6] ep:S(0)
weight r f32[4,6]
input x f32[5,6]
loss l
program ep=0
s = linear(x, r)
g = softmax(s, dim=-1)
gc = copy(g) over ep
gl = narrow(gc, dim=1, start=0, length=2)
h = einsum("td,edf->tef", x, w)
a = gelu(h)
ym = einsum("tef,te->tf", a, gl)
y = all-reduce(ym) over ep
z = tanh(y)
l: f32[] = mean(z)
program ep=1
s = linear(x, r)
g = softmax(s, dim=-1)
gc = copy(g) over ep
gl = narrow(gc, dim=1, start=2, length=2)
h = einsum("td,edf->tef", x, w)
a = gelu(h)
ym = einsum("tef,te->tf", a, gl)
y = all-reduce(ym) over ep
z = tanh(y)
l: f32[] = mean(z)
""",
        (("start=2", "start=0"), ("gc = copy(g) over ep", "gc = identity(g)")),
    ),
    "queries, keys and values that are picked in another layout": Idiom(
        """weight w f32[24,6]
weight o f32[6,8]
input x f32[2,4,6]
input b f32[2,4,4]
loss l
program
h = linear(x, w)
hv = view(h, size=[2,4,2,3,4])
hp = permute(hv, dims=[3,0,2,1,4])
q, k, v = unbind(hp, dim=0)
a = scaled_dot_product_attention(q, k, v, b)
at = transpose(a, dim0=1, dim1=2)
f = reshape(at, size=[2,4,8])
y = linear(f, o)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh tp=2
weight w f32[24,6] tp:S(0)
weight o f32[6,8] tp:S(1)
input x f32[2,4,6]
input b f32[2,4,4] tp:S(0)
loss l
program
h = linear(x, w)
hv = view(h, size=[2,4,1,3,4])
q0 = select(hv, dim=3, index=0)
k0 = select(hv, dim=3, index=1)
v0 = select(hv, dim=3, index=2)
q = transpose(q0, dim0=1, dim1=2)
k = transpose(k0, dim0=1, dim1=2)
v = transpose(v0, dim0=1, dim1=2)
kt = transpose(k, dim0=-2, dim1=-1)
s0 = matmul(q, kt)
s1 = div(s0, 2.0)
s = add(s1, b)
pr = softmax(s, dim=-1)
a = matmul(pr, v)
at = transpose(a, dim0=1, dim1=2)
f = reshape(at, size=[2,4,4])
p = linear(f, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = mean(z)
""",
        (("b f32[2,4,4] tp:S(0)", "b f32[2,4,4] tp:S(1)"), ("div(s0, 2.0)", "div(s0, 4.0)")),
    ),
    "a divergence from scores of which each rank has some": Idiom(
        """weight w f32[8,6]
input x f32[4,6]
input q f32[4,8]
loss l
program
s = linear(x, w)
lp = log_softmax(s, dim=-1)
l: f32[] = kl_div(lp, q, reduction="batchmean")
""",
        """mesh tp=2
weight w f32[8,6] tp:S(0)
input x f32[4,6]
input q f32[4,8] tp:S(1)
loss l
program
s = linear(x, w)
m0 = amax(s, dim=-1, keepdim=True) || none
m = all-reduce max(m0) over tp || none
d = sub(s, m)
e = exp(d)
u0 = sum(e, dim=-1, keepdim=True)
u = all-reduce(u0) over tp || grad(u0) = all-reduce({y}) over tp
lg = log(u)
lp = sub(d, lg)
k0 = kl_div(lp, q, reduction="sum")
k = all-reduce(k0) over tp
l: f32[] = div(k, 4)
""",
        (("div(k, 4)", "div(k, 8)"), ("grad(u0) = all-reduce({y}) over tp", "grad(u0) = identity({y})")),
    ),
    "normalisation by the batch, written out": Idiom(
        NORM_OF_A_BATCH,
        """weight w f32[6,5]
weight g f32[6]
weight b f32[6]
input x f32[8,5]
loss l
program
h = linear(x, w)
m = mean(h, dim=0, keepdim=True)
d = sub(h, m)
q = mul(d, d)
v = mean(q, dim=0, keepdim=True)
e = add(v, 0.01)
r = rsqrt(e)
n = mul(d, r)
ng = mul(n, g)
y = add(ng, b)
z = tanh(y)
l: f32[] = mean(z)
""",
        (("add(v, 0.01)", "add(v, 0.1)"), ("q = mul(d, d)", "q = mul(h, h)")),
    ),
    "normalisation by the batch, over ranks": Idiom(
        NORM_OF_A_BATCH,
        """mesh dp=2
weight w f32[6,5]
weight g f32[6]
weight b f32[6]
input x f32[8,5] dp:S(0)
loss l
program
h = linear(x, w)
s0 = sum(h, dim=0)
s1 = all-reduce(s0) over dp || grad(s0) = all-reduce({y}) over dp
m = div(s1, 8)
hh = mul(h, h)
q0 = sum(hh, dim=0)
q1 = all-reduce(q0) over dp || grad(q0) = all-reduce({y}) over dp
qm = div(q1, 8)
mm = mul(m, m)
v = sub(qm, mm)
e = add(v, 0.01)
r = rsqrt(e)
d = sub(h, m)
n = mul(d, r)
ng = mul(n, g)
y = add(ng, b)
z = tanh(y)
l: f32[] = mean(z)
end reduce-gradients w, g, b over dp by avg
""",
        (
            ("s1 = all-reduce(s0) over dp || grad(s0) = all-reduce({y}) over dp\nm = div(s1, 8)", "m = div(s0, 4)"),
            ("add(v, 0.01)", "add(v, 0.1)"),
        ),
    ),
    "normalisation by the batch, which is gathered": Idiom(
        NORM_OF_A_BATCH,
        """mesh dp=2
weight w f32[6,5]
weight g f32[6]
weight b f32[6]
input x f32[8,5] dp:S(0)
loss l
program
h = linear(x, w)
ha = all-gather(h, dim=0) over dp
ya = batch_norm(ha, None, None, g, b, True, 0.1, 0.01)
z = tanh(ya)
l: f32[] = mean(z)
end grad(w) = all-reduce(grad(w)) over dp
end grad(w) = div(grad(w), 2)
end update w, g, b
""",
        (("True, 0.1, 0.01", "True, 0.1, 0.1"), ("end grad(w) = div(grad(w), 2)\n", "")),
    ),
}


@pytest.mark.parametrize("name", sampled(IDIOMS, 3))
def test_an_idiom_is_proved(name: str) -> None:
    numbers_of_proved(IDIOMS[name])


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_its_wrong_twins_are_not(name: str, before: str, after: str) -> None:
    outcome = IDIOMS[name].verdict(before, after).outcome
    assert outcome is not Outcome.PROVED
    if isinstance(on_numbers_of(*IDIOMS[name].plans(before, after)), Difference):
        assert outcome is Outcome.REFUTED


def test_a_mask_of_one_key_is_no_error() -> None:
    causal = """weight w f32[18,6]
input x f32[18,6]
loss l
program
h = linear(x, w)
q, k, v = torch.chunk(h, chunks=3, dim=-1)
q4 = unsqueeze(q, 1)
k4 = unsqueeze(k, 1)
v4 = unsqueeze(v, 1)
y = scaled_dot_product_attention(q4, k4, v4, is_causal=True)
z = tanh(y)
l: f32[] = mean(z)
"""
    mask = 'o = ones([1,1], dtype="bool")\nm = tril(o)\n'
    masked = causal.replace("is_causal=True", "m").replace("y = scaled", f"{mask}y = scaled")
    assert verdict_on(with_backward(masked), with_backward(causal)).outcome is Outcome.UNKNOWN
