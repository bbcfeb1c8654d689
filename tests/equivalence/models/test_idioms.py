"""Idioms of real code, in plans that write them otherwise than their reference: each with wrong twins, judged by numbers."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tests.sampling import sampled, sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Difference
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")


NORM_OF_SHARDED_ROWS = """mesh tp=2
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
"""

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
    NORM_OF_SHARDED_ROWS,
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
    NORM_OF_SHARDED_ROWS,
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

CROSS_ENTROPY_BITWISE = Idiom(
    """weight i f32[6,6]
weight w f32[10,6]
input x f32[7,6]
input t i64[7]
loss l
program
x1 = linear(x, i)
x2 = tanh(x1)
s = linear(x2, w)
l: f32[] = cross_entropy(s, t, reduction="sum")
""",
    """mesh tp=2
weight i f32[6,6]
weight w f32[10,6] tp:S(0)
input x f32[7,6]
input t i64[7]
loss l
program tp=0
x1 = linear(x, i)
x2 = tanh(x1)
h = copy(x2) over tp
s = linear(h, w)
mx = amax(s, dim=-1) || none
gm = all-reduce max(mx) over tp || none
gu = unsqueeze(gm, -1) || none
sc = sub(s, gu)
lo = lt(t, 0) || none
hi = ge(t, 5) || none
m = bitwise_or(lo, hi) || none
ti = sub(t, 0) || none
tj = masked_fill(ti, m, 0) || none
tu = unsqueeze(tj, -1) || none
pk = gather(sc, -1, tu)
ps = squeeze(pk, -1)
pm = masked_fill(ps, m, 0.0)
pl = all-reduce(pm) over tp
ex = exp(sc)
se = sum(ex, dim=-1)
sa = all-reduce(se) over tp
lg = log(sa)
ls = sub(lg, pl)
l: f32[] = sum(ls)
program tp=1
x1 = linear(x, i)
x2 = tanh(x1)
h = copy(x2) over tp
s = linear(h, w)
mx = amax(s, dim=-1) || none
gm = all-reduce max(mx) over tp || none
gu = unsqueeze(gm, -1) || none
sc = sub(s, gu)
lo = lt(t, 5) || none
hi = ge(t, 10) || none
m = bitwise_or(lo, hi) || none
ti = sub(t, 5) || none
tj = masked_fill(ti, m, 0) || none
tu = unsqueeze(tj, -1) || none
pk = gather(sc, -1, tu)
ps = squeeze(pk, -1)
pm = masked_fill(ps, m, 0.0)
pl = all-reduce(pm) over tp
ex = exp(sc)
se = sum(ex, dim=-1)
sa = all-reduce(se) over tp
lg = log(sa)
ls = sub(lg, pl)
l: f32[] = sum(ls)
""",
    (
        ("ge(t, 10)", "ge(t, 9)"),
        ("sa = all-reduce(se) over tp", "sa = identity(se)"),
    ),
)

PACKED_CAUSAL = Idiom(
    """weight qkv f32[36,8]
weight o f32[8,12]
input x f32[2,5,8]
loss l
program
p = linear(x, qkv)
q, k, v = split(p, [12,12,12], dim=2)
qh = view(q, 2, 5, 3, 4)
kh = view(k, 2, 5, 3, 4)
vh = view(v, 2, 5, 3, 4)
qt = transpose(qh, 1, 2)
kt = transpose(kh, 1, 2)
vt = transpose(vh, 1, 2)
a = scaled_dot_product_attention(qt, kt, vt, is_causal=True)
at = transpose(a, 1, 2)
c = reshape(at, 2, 5, 12)
y = linear(c, o)
z = tanh(y)
l: f32[] = mean(z)
""",
    """mesh tp=3
weight qkv f32[36,8] tp:S(0, parts=[12,12,12])
weight o f32[8,12] tp:S(1)
input x f32[2,5,8]
loss l
program
p = linear(x, qkv)
q, k, v = split(p, 4, dim=-1)
qh = view(q, 2, 5, 1, 4)
kh = view(k, 2, 5, 1, 4)
vh = view(v, 2, 5, 1, 4)
qt = permute(qh, 0, 2, 1, 3)
kt = permute(kh, 0, 2, 3, 1)
vt = permute(vh, 0, 2, 1, 3)
s0 = matmul(qt, kt)
s1 = div(s0, 2.0)
one = ones(5, 5)
up = triu(one, diagonal=1)
ub = eq(up, 1)
s2 = masked_fill(s1, ub, -inf)
w = softmax(s2, dim=-1)
a = matmul(w, vt)
at = permute(a, 0, 2, 1, 3)
ac = contiguous(at)
c = view(ac, 2, 5, 4)
yp = linear(c, o)
y = all-reduce(yp) over tp
z = tanh(y)
l: f32[] = mean(z)
""",
    (
        ("div(s0, 2.0)", "div(s0, 4.0)"),
        ("diagonal=1", "diagonal=2"),
    ),
)

ZIGZAG_GATHERED = Idiom(
    """weight q f32[4,6]
weight k f32[4,6]
weight v f32[4,6]
input x f32[1,8,6]
loss l
program
qq = linear(x, q)
kk = linear(x, k)
vv = linear(x, v)
a = scaled_dot_product_attention(qq, kk, vv)
z = tanh(a)
l: f32[] = sum(z)
""",
    """mesh cp=2
weight q f32[4,6]
weight k f32[4,6]
weight v f32[4,6]
input x f32[1,8,6] cp:S(1, order=[[0,3],[1,2]])
loss l f32[] cp:P
program
qq = linear(x, q)
kl = linear(x, k)
vl = linear(x, v)
kk = all-gather(kl, dim=1) over cp
vv = all-gather(vl, dim=1) over cp
a = scaled_dot_product_attention(qq, kk, vv)
z = tanh(a)
l: f32[] = sum(z)
end reduce-gradients q, k, v over cp
""",
    (
        ("end reduce-gradients q, k, v over cp", "end reduce-gradients q, k over cp"),
        ("kk = all-gather(kl, dim=1) over cp", "kk = all-gather(kl, dim=1) over cp || chunk"),
    ),
)

FUSED_GATE = Idiom(
    """weight gu f32[16,5]
weight d f32[5,8]
input x f32[3,5]
loss l
program
f = linear(x, gu)
g = narrow(f, 1, 0, 8)
u = narrow(f, 1, 8, 8)
s = sigmoid(g)
a = mul(g, s)
m = mul(a, u)
y = linear(m, d)
z = pow(y, 2)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight gu f32[16,5] tp:S(0, parts=[8,8])
weight d f32[5,8] tp:S(1)
input x f32[3,5]
loss l
program
f = linear(x, gu)
m = swiglu(f)
yp = linear(m, d)
y = all-reduce(yp) over tp
z = pow(y, 2)
l: f32[] = sum(z)
""",
    (
        ("S(0, parts=[8,8])", "S(0)"),
        ("y = all-reduce(yp) over tp", "y = all-reduce avg(yp) over tp"),
    ),
)

NARROWED_HEADS = Idiom(
    """weight q f32[16,6]
weight k f32[8,6]
weight v f32[8,6]
weight o f32[6,16]
input x f32[2,3,6]
loss l
program
q0 = linear(x, q)
k0 = linear(x, k)
v0 = linear(x, v)
q1 = view(q0, 2, 3, 4, 4)
k1 = view(k0, 2, 3, 2, 4)
v1 = view(v0, 2, 3, 2, 4)
q2 = transpose(q1, 1, 2)
k2 = transpose(k1, 1, 2)
v2 = transpose(v1, 1, 2)
k3 = repeat_interleave(k2, 2, dim=1)
v3 = repeat_interleave(v2, 2, dim=1)
a = scaled_dot_product_attention(q2, k3, v3)
a1 = transpose(a, 1, 2)
a2 = reshape(a1, 2, 3, 16)
y = linear(a2, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    """mesh tp=4
weight q f32[16,6] tp:S(0)
weight k f32[8,6]
weight v f32[8,6]
weight o f32[6,16] tp:S(1)
input x f32[2,3,6]
loss l
program tp=0
q0 = linear(x, q)
k0 = linear(x, k)
v0 = linear(x, v)
q1 = view(q0, 2, 3, 1, 4)
k1 = view(k0, 2, 3, 2, 4)
v1 = view(v0, 2, 3, 2, 4)
kn = narrow(k1, 2, 0, 1)
vn = narrow(v1, 2, 0, 1)
q2 = transpose(q1, 1, 2)
k2 = transpose(kn, 1, 2)
v2 = transpose(vn, 1, 2)
a = scaled_dot_product_attention(q2, k2, v2)
a1 = transpose(a, 1, 2)
a2 = reshape(a1, 2, 3, 4)
yp = linear(a2, o)
y = all-reduce(yp) over tp
z = tanh(y)
l: f32[] = sum(z)
end reduce-gradients k, v over tp
program tp=1
q0 = linear(x, q)
k0 = linear(x, k)
v0 = linear(x, v)
q1 = view(q0, 2, 3, 1, 4)
k1 = view(k0, 2, 3, 2, 4)
v1 = view(v0, 2, 3, 2, 4)
kn = narrow(k1, 2, 0, 1)
vn = narrow(v1, 2, 0, 1)
q2 = transpose(q1, 1, 2)
k2 = transpose(kn, 1, 2)
v2 = transpose(vn, 1, 2)
a = scaled_dot_product_attention(q2, k2, v2)
a1 = transpose(a, 1, 2)
a2 = reshape(a1, 2, 3, 4)
yp = linear(a2, o)
y = all-reduce(yp) over tp
z = tanh(y)
l: f32[] = sum(z)
end reduce-gradients k, v over tp
program tp=2
q0 = linear(x, q)
k0 = linear(x, k)
v0 = linear(x, v)
q1 = view(q0, 2, 3, 1, 4)
k1 = view(k0, 2, 3, 2, 4)
v1 = view(v0, 2, 3, 2, 4)
kn = narrow(k1, 2, 1, 1)
vn = narrow(v1, 2, 1, 1)
q2 = transpose(q1, 1, 2)
k2 = transpose(kn, 1, 2)
v2 = transpose(vn, 1, 2)
a = scaled_dot_product_attention(q2, k2, v2)
a1 = transpose(a, 1, 2)
a2 = reshape(a1, 2, 3, 4)
yp = linear(a2, o)
y = all-reduce(yp) over tp
z = tanh(y)
l: f32[] = sum(z)
end reduce-gradients k, v over tp
program tp=3
q0 = linear(x, q)
k0 = linear(x, k)
v0 = linear(x, v)
q1 = view(q0, 2, 3, 1, 4)
k1 = view(k0, 2, 3, 2, 4)
v1 = view(v0, 2, 3, 2, 4)
kn = narrow(k1, 2, 1, 1)
vn = narrow(v1, 2, 1, 1)
q2 = transpose(q1, 1, 2)
k2 = transpose(kn, 1, 2)
v2 = transpose(vn, 1, 2)
a = scaled_dot_product_attention(q2, k2, v2)
a1 = transpose(a, 1, 2)
a2 = reshape(a1, 2, 3, 4)
yp = linear(a2, o)
y = all-reduce(yp) over tp
z = tanh(y)
l: f32[] = sum(z)
end reduce-gradients k, v over tp
""",
    (
        ("kn = narrow(k1, 2, 1, 1)", "kn = narrow(k1, 2, 0, 1)"),
        ("end reduce-gradients k, v over tp", "end reduce-gradients k over tp"),
    ),
)

EXPANDED_ANEW = Idiom(
    """weight q f32[3,8]
weight p f32[8,4]
weight o f32[4,8]
input x f32[4,5,4]
loss l
program
h = linear(x, p)
ql = unsqueeze(q, 0)
qe = expand(ql, 4, 3, 8)
c = cat([qe, h], dim=1)
g = gelu(c)
y = linear(g, o)
z = pow(y, 2)
l: f32[] = mean(z)
""",
    """mesh dp=2 tp=2
weight q f32[3,8] tp:S(1)
weight p f32[8,4] tp:S(0)
weight o f32[4,8] tp:S(1)
input x f32[4,5,4] dp:S(0)
loss l
program
h = linear(x, p)
qe = expand(q, 2, 3, 4)
c = cat([qe, h], dim=1)
g = gelu(c)
yp = linear(g, o)
y = all-reduce(yp) over tp
z = pow(y, 2)
l: f32[] = mean(z)
end reduce-gradients q, p, o over dp by avg
""",
    (
        ("end reduce-gradients q, p, o over dp by avg", "end reduce-gradients q, p, o over dp"),
        ("y = all-reduce(yp) over tp", "y = identity(yp)"),
    ),
)

SCATTERED_ROUTER = Idiom(
    """weight r f32[4,6]
weight w f32[4,5,6]
input x f32[7,6]
loss l
program
s = linear(x, r)
p = softmax(s, dim=-1)
v, i = topk(p, 2, dim=-1) || {x} = backward v (grad(v), _)
vs = sum(v, dim=-1, keepdim=True)
vn = div(v, vs)
z0 = zeros(7, 4)
g = scatter(z0, 1, i, vn) || _, _, grad(vn) = backward g ({y})
h = einsum("td,efd->tef", x, w)
a = gelu(h)
y = einsum("te,tef->tf", g, a)
l: f32[] = sum(y)
""",
    """mesh ep=2
weight r f32[4,6]
weight w f32[4,5,6] ep:S(0)
input x f32[7,6]
loss l
program
s = linear(x, r)
p = softmax(s, dim=-1)
v, i = topk(p, 2, dim=-1) || {x} = backward v (grad(v), _)
vs = sum(v, dim=-1, keepdim=True)
vn = div(v, vs)
z0 = zeros(7, 4)
gg = scatter(z0, 1, i, vn) || _, _, grad(vn) = backward gg ({y})
g = chunk(gg, dim=1) over ep || {x} = all-gather({y}, dim=1) over ep
h = einsum("td,efd->tef", x, w)
a = gelu(h)
yp = einsum("te,tef->tf", g, a)
y = all-reduce(yp) over ep
l: f32[] = sum(y)
""",
    (
        ("|| {x} = all-gather({y}, dim=1) over ep", "|| {x} = cat([{y}, {y}], dim=1)"),
        ("vn = div(v, vs)", "vn = mul(v, vs)"),
    ),
)

MERGED_ADAPTER = Idiom(
    """weight w f32[8,6] frozen
weight la f32[2,6]
weight lb f32[8,2]
weight o f32[6,8]
input x f32[5,6]
loss l
program
ba = matmul(lb, la)
sb = mul(ba, 2.0)
wm = add(w, sb)
h = linear(x, wm)
g = gelu(h)
y = linear(g, o)
z = pow(y, 2)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight w f32[8,6] tp:S(0) frozen
weight la f32[2,6]
weight lb f32[8,2] tp:S(0)
weight o f32[6,8] tp:S(1)
input x f32[5,6]
loss l
program
h0 = linear(x, w)
xa0 = linear(x, la)
xa = copy(xa0) over tp
xb = linear(xa, lb)
xs = mul(xb, 2.0)
h = add(h0, xs)
g = gelu(h)
yp = linear(g, o)
y = all-reduce(yp) over tp
z = pow(y, 2)
l: f32[] = sum(z)
""",
    (
        ("xs = mul(xb, 2.0)", "xs = mul(xb, 1.0)"),
        ("xa = copy(xa0) over tp", "xa = identity(xa0)"),
    ),
)

NORM_OF_ALL_HEADS = Idiom(
    """weight wq f32[8,6]
weight wk f32[8,6]
weight g f32[8]
weight o f32[6,8]
input x f32[5,6]
loss l
program
q0 = linear(x, wq)
v0 = linear(x, wk)
qn = rms_norm(q0, [8], g, 0.01)
q1 = view(qn, size=[5,4,2])
v1 = view(v0, size=[5,4,2])
q = transpose(q1, dim0=0, dim1=1)
v = transpose(v1, dim0=0, dim1=1)
c = scaled_dot_product_attention(q, v, v, is_causal=True)
c1 = transpose(c, dim0=0, dim1=1)
c2 = reshape(c1, [5,8])
y = linear(c2, o)
z = tanh(y)
l: f32[] = mean(z)
""",
    """mesh tp=2
weight wq f32[8,6] tp:S(0)
weight wk f32[8,6] tp:S(0)
weight g f32[8] tp:S(0)
weight o f32[6,8] tp:S(1)
input x f32[5,6]
loss l
program
q0 = linear(x, wq)
v0 = linear(x, wk)
qq = pow(q0, 2)
s0 = sum(qq, dim=-1, keepdim=True)
s = all-reduce(s0) over tp || grad(s0) = all-reduce({y}) over tp
m = div(s, 8)
e = add(m, 0.01)
r = rsqrt(e)
qx = mul(q0, r)
qn = mul(qx, g)
q1 = view(qn, size=[5,2,2])
v1 = view(v0, size=[5,2,2])
q = transpose(q1, dim0=0, dim1=1)
v = transpose(v1, dim0=0, dim1=1)
c = scaled_dot_product_attention(q, v, v, is_causal=True)
c1 = transpose(c, dim0=0, dim1=1)
c2 = reshape(c1, [5,4])
y0 = linear(c2, o)
y = all-reduce(y0) over tp
z = tanh(y)
l: f32[] = mean(z)
""",
    (
        ("m = div(s, 8)", "m = div(s, 4)"),
        ("grad(s0) = all-reduce({y}) over tp", "grad(s0) = identity({y})"),
        ("q1 = view(qn, size=[5,2,2])\n", "q2 = view(qn, size=[5,2,2])\nq1 = transpose(q2, dim0=1, dim1=2)\n"),
        ("r = rsqrt(e)", "r0 = rsqrt(e)\nr = mul(r0, r0)"),
    ),
)

UNIT_ROWS = Idiom(
    """weight w f32[8,6]
weight o f32[3,8]
input x f32[4,6]
loss l
program
h = linear(x, w)
n = normalize(h, p=2.0, dim=-1, eps=0.001)
y = linear(n, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight w f32[8,6] tp:S(0)
weight o f32[3,8] tp:S(1)
input x f32[4,6]
loss l
program
h = linear(x, w)
q = pow(h, 2)
s0 = sum(q, dim=-1, keepdim=True)
s = all-reduce(s0) over tp || grad(s0) = all-reduce({y}) over tp
r = sqrt(s)
c = clamp(r, min=0.001)
n = div(h, c)
p = linear(n, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
""",
    (
        ("grad(s0) = all-reduce({y}) over tp", "grad(s0) = identity({y})"),
        ("clamp(r, min=0.001)", "clamp(r, max=0.001)"),
        ("clamp(r, min=0.001)", "add(r, 0.001)"),
    ),
)

HEADS_THROUGH_A_STACK = Idiom(
    """weight q f32[8,8]
weight k f32[8,8]
weight v f32[8,8]
input x f32[2,4,8]
loss l
program
a = linear(x, q)
b = linear(x, k)
aa = view(a, [2, 4, 4, 2])
bb = view(b, [2, 4, 4, 2])
s = transpose(aa, 1, 2)
t = transpose(bb, 1, 2)
o = scaled_dot_product_attention(s, t, s, is_causal=True)
u = transpose(o, 1, 2)
y = reshape(u, [2, 4, 8])
z = linear(y, v)
l: f32[] = sum(z)
end update q, k, v""",
    """mesh cp=2
weight q f32[8,8]
weight k f32[8,8]
weight v f32[8,8]
input x f32[2,4,8] cp:S(1)
loss l
program
a = linear(x, q)
b = linear(x, k)
aa = view(a, [2, 2, 4, 2])
bb = view(b, [2, 2, 4, 2])
a0, a1 = split(aa, 2, dim=2)
b0, b1 = split(bb, 2, dim=2)
as = stack([a0, a1])
bs = stack([b0, b1])
ae = all-to-all(as, dim=0, concat-dim=0) over cp
be = all-to-all(bs, dim=0, concat-dim=0) over cp
a2, a3 = unbind(ae, 0)
b2, b3 = unbind(be, 0)
ac = cat([a2, a3], dim=1)
bc = cat([b2, b3], dim=1)
s = transpose(ac, 1, 2)
t = transpose(bc, 1, 2)
o = scaled_dot_product_attention(s, t, s, is_causal=True)
u = transpose(o, 1, 2)
u0, u1 = split(u, 2, dim=1)
us = stack([u0, u1])
ue = all-to-all(us, dim=0, concat-dim=0) over cp
y0, y1 = unbind(ue, 0)
yc = cat([y0, y1], dim=2)
y = reshape(yc, [2, 2, 8])
z = linear(y, v)
l0: f32[] = sum(z)
l = all-reduce(l0) over cp
end reduce-gradients q, k, v over cp
end update q, k, v""",
    (
        ("bs = stack([b0, b1])", "bs = stack([b1, b0])"),
        ("cat([b2, b3], dim=1)", "cat([b3, b2], dim=1)"),
        ("cat([y0, y1], dim=2)", "cat([y1, y0], dim=2)"),
        ("reduce-gradients q, k, v over cp", "reduce-gradients q, k, v over cp by avg"),
    ),
)

EXPERTS_THROUGH_A_STACK = Idiom(
    """weight u f32[3,3]
weight w f32[4,3,3]
weight g f32[4,3]
input x f32[4,5,3]
loss l
program
h = linear(x, u)
s = linear(h, g)
p = softmax(s, dim=-1)
i = argmax(s, dim=-1) || none
c = one_hot(i, 4) || none
m = to(c, dtype="float32") || none
d = einsum("gse,gsd->egsd", m, h)
e = einsum("egsd,edf->egsf", d, w)
a = gelu(e)
k = mul(p, m)
z = einsum("gse,egsf->gsf", k, a)
l: f32[] = sum(z)
end update u, w, g""",
    """mesh ep=2
weight u f32[3,3]
weight w f32[4,3,3] ep:S(0)
weight g f32[4,3]
input x f32[4,5,3] ep:S(0)
loss l
program
h = linear(x, u)
s = linear(h, g)
p = softmax(s, dim=-1)
i = argmax(s, dim=-1) || none
c = one_hot(i, 4) || none
m = to(c, dtype="float32") || none
d = einsum("gse,gsd->egsd", m, h)
d0, d1 = split(d, 2, dim=0)
ds = stack([d0, d1])
de = all-to-all(ds, dim=0, concat-dim=0) over ep
d2, d3 = unbind(de, 0)
dc = cat([d2, d3], dim=1)
e = einsum("egsd,edf->egsf", dc, w)
a = gelu(e)
a0, a1 = split(a, 2, dim=1)
at = stack([a0, a1])
ae = all-to-all(at, dim=0, concat-dim=0) over ep
a2, a3 = unbind(ae, 0)
ac = cat([a2, a3], dim=0)
k = mul(p, m)
z = einsum("gse,egsf->gsf", k, ac)
l0: f32[] = sum(z)
l = all-reduce(l0) over ep
end reduce-gradients u, g over ep
end update u, w, g""",
    (
        ("cat([a2, a3], dim=0)", "cat([a3, a2], dim=0)"),
        ("at = stack([a0, a1])", "at = stack([a1, a0])"),
        ("reduce-gradients u, g over ep", "reduce-gradients u, g, w over ep"),
    ),
)

LINEAR_ATTENTION = Idiom(
    """weight q f32[4,4]
weight k f32[4,4]
input x f32[2,4,4]
loss l
program
a0 = linear(x, q)
a1 = elu(a0)
a = add(a1, 1.0)
b0 = linear(x, k)
b1 = elu(b0)
b = add(b1, 1.0)
bt = transpose(b, 1, 2)
s = matmul(bt, x)
y = matmul(a, s)
n0 = sum(b, dim=1, keepdim=True)
nt = transpose(n0, 1, 2)
n = matmul(a, nt)
z = div(y, n)
l: f32[] = sum(z)
end update q, k""",
    """mesh cp=2
weight q f32[4,4]
weight k f32[4,4]
input x f32[2,4,4] cp:S(1)
loss l
program
a0 = linear(x, q)
a1 = elu(a0)
a = add(a1, 1.0)
b0 = linear(x, k)
b1 = elu(b0)
b = add(b1, 1.0)
bt = transpose(b, 1, 2)
p = matmul(bt, x)
s = all-reduce(p) over cp || {x} = all-reduce({y}) over cp
y = matmul(a, s)
n0 = sum(b, dim=1, keepdim=True)
n1 = all-reduce(n0) over cp || {x} = all-reduce({y}) over cp
nt = transpose(n1, 1, 2)
n = matmul(a, nt)
z = div(y, n)
l0: f32[] = sum(z)
l = all-reduce(l0) over cp
end reduce-gradients q, k over cp
end update q, k""",
    (("n1 = all-reduce(n0) over cp || {x} = all-reduce({y}) over cp", "n1 = clone(n0)"),),
)

POSITIONS_APART = Idiom(
    """weight w f32[4,4]
input x f32[2,8,4]
loss l
program
h = linear(x, w)
t = transpose(h, 1, 2)
s = matmul(h, t)
i = arange(8) || none
q = view(i, [8, 1]) || none
m = lt(q, i) || none
k = masked_fill(s, m, -inf)
p = softmax(k, dim=-1)
z = matmul(p, h)
l: f32[] = sum(z)
end update w""",
    """mesh cp=2
weight w f32[4,4]
input x f32[2,8,4] cp:S(1)
loss l
program
h = linear(x, w)
hs = all-gather(h, dim=1) over cp
t = transpose(hs, 1, 2)
s = matmul(h, t)
i = arange(8) || none
j = chunk(i, dim=0) over cp || none
q = view(j, [4, 1, 1]) || none
r = view(i, [1, 2, 4]) || none
n = lt(q, r) || none
m = view(n, [4, 8]) || none
k = masked_fill(s, m, -inf)
p = softmax(k, dim=-1)
z = matmul(p, hs)
l0: f32[] = sum(z)
l = all-reduce(l0) over cp
end reduce-gradients w over cp
end update w""",
    (("r = view(i, [1, 2, 4])", "r0 = view(i, [1, 4, 2]) || none\nr = transpose(r0, 1, 2)"), ("lt(q, r)", "gt(q, r)")),
)

BOTH_MOMENTS = Idiom(
    """weight w f32[4,4]
weight g f32[4]
input x f32[8,4]
loss l
program
h = linear(x, w)
n = layer_norm(h, [4], g)
z = tanh(n)
l: f32[] = sum(z)
end update w, g""",
    """mesh dp=2
weight w f32[4,4]
weight g f32[4]
input x f32[8,4] dp:S(0)
loss l
program
h = linear(x, w)
v, m = var_mean(h, dim=-1, unbiased=False, keepdim=True)
d = sub(h, m)
e = add(v, 0.00001)
r = rsqrt(e)
n0 = mul(d, r)
n = mul(n0, g)
z = tanh(n)
l0: f32[] = sum(z)
l = all-reduce(l0) over dp
end reduce-gradients w, g over dp
end update w, g""",
    (("unbiased=False", "unbiased=True"), ("reduce-gradients w, g over dp", "reduce-gradients w, g over dp by avg")),
)

IDIOMS = {
    "heads that are exchanged for the sequence in parts that are stacked": HEADS_THROUGH_A_STACK,
    "tokens that experts get and give in parts that are stacked": EXPERTS_THROUGH_A_STACK,
    "a mask of positions in two dimensions": POSITIONS_APART,
    "a norm by its variance and mean": BOTH_MOMENTS,
    "sums over a sequence that ranks share": LINEAR_ATTENTION,
    "a norm of the queries of all heads": NORM_OF_ALL_HEADS,
    "rows of a split dimension, divided by their norm": UNIT_ROWS,
    "a variance by its moments, of a split dimension": MOMENTS_SPLIT,
    "a norm by moments of a split dimension": MOMENTS_SPLIT_FUSED,
    "flat shards that are gathered and viewed": ZERO3_FLAT_GATHER_VIEW,
    "a loss in chunks": CHUNKED_LOSS_DP,
    "a mean over targets that are counted": IGNORE_INDEX_COUNTS,
    "a mean over what a mask keeps": UNEVEN_MASK_WHERE_DP,
    "queries, keys and values stacked in one weight": QKV_STACKED,
    "tokens of all sequences in a row": FLATTENED_TOKENS,
    "a cross-entropy of vocabulary shards with masks that are put together bit by bit": CROSS_ENTROPY_BITWISE,
    "packed queries, keys and values, taken apart by their size on a rank, under a mask": PACKED_CAUSAL,
    "keys that are gathered as ranks hold them": ZIGZAG_GATHERED,
    "a fused gate on pieces of both halves": FUSED_GATE,
    "heads of keys that ranks cut out of all of them": NARROWED_HEADS,
    "an expansion to a new dimension": EXPANDED_ANEW,
    "weights of experts that are scattered": SCATTERED_ROUTER,
    "an adapter that is added to the weight": MERGED_ADAPTER,
}


@pytest.mark.parametrize("name", sampled(IDIOMS, 3))
def test_an_idiom_is_proved(name: str) -> None:
    numbers_of_proved(IDIOMS[name])


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_its_wrong_twins_are_refuted(name: str, before: str, after: str) -> None:
    assert isinstance(on_numbers_of(*IDIOMS[name].plans(before, after)), Difference)
    assert IDIOMS[name].verdict(before, after).outcome is Outcome.REFUTED


def test_a_mask_of_a_mask_is_followed_once() -> None:
    assert CROSS_ENTROPY_BITWISE.verdict("hi = ge(t, 5)", "hi = ge(lo, 5)").outcome is not Outcome.PROVED


def test_a_view_into_fewer_dimensions_than_it_has_is_not_proved() -> None:
    assert EXPANDED_ANEW.verdict("= mean(z)", "= expand(q, 2, 3, 4)").outcome is not Outcome.PROVED


def test_a_sum_that_is_not_reduced_is_named_where_other_values_are_the_reference_s_in_a_normal_form() -> None:
    reduced = "s = all-reduce(p) over cp || {x} = all-reduce({y}) over cp"
    first, *others = LINEAR_ATTENTION.verdict(reduced, "s = all-reduce(p) over cp").reasons
    assert first.name == "missing-gradient-reduction"
    assert "other-operator" not in {reason.name for reason in others}
