"""Idioms that put values side by side, or take masks in other layouts: each with wrong twins, judged by numbers."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled, sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference
from tvlint.equivalence.verdict.prove import is_proved
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

CLIPPED_BY_A_NORM_OF_NORMS = """weight w f32[8,6]
weight v f32[4,8]
input x f32[8,6]
loss l
program
h = linear(x, w)
a = tanh(h)
y = linear(a, v)
z = tanh(y)
l: f32[] = mean(z)
end nw = norm(grad(w))
end nv = norm(grad(v))
end st = stack([nw, nv], dim=0)
end n = norm(st)
end ne = add(n, 0.000001)
end c = div(1.0, ne)
end cc = clamp(c, max=1.0)
end grad(w) = mul(grad(w), cc)
end grad(v) = mul(grad(v), cc)
end update w, v
"""

IDIOMS = {
    "rotary positions by halves": Idiom(
        """weight wq f32[8,8]
weight wk f32[8,8]
buffer cs f32[4,4]
buffer sn f32[4,4]
input x f32[2,4,8]
loss l
program

q = linear(x, wq)
k = linear(x, wk)
q4 = view(q, [2, 4, 2, 4])
k4 = view(k, [2, 4, 2, 4])
qt = transpose(q4, 1, 2)
kt = transpose(k4, 1, 2)
q1 = narrow(qt, -1, 0, 2)
q2 = narrow(qt, -1, 2, 2)
qn = neg(q2)
qr = cat([qn, q1], dim=-1)
qa = mul(qt, cs)
qb = mul(qr, sn)
qq = add(qa, qb)
k1 = narrow(kt, -1, 0, 2)
k2 = narrow(kt, -1, 2, 2)
kn = neg(k2)
kr = cat([kn, k1], dim=-1)
ka = mul(kt, cs)
kb = mul(kr, sn)
kk = add(ka, kb)
o = scaled_dot_product_attention(qq, kk, kk)
z = tanh(o)
l: f32[] = sum(z)
""",
        """mesh tp=2

weight wq f32[8,8] tp:S(0)
weight wk f32[8,8] tp:S(0)
buffer cs f32[4,4]
buffer sn f32[4,4]
input x f32[2,4,8]
loss l
program

c1, c2 = torch.chunk(cs, 2, dim=-1) || none
s1, s2 = torch.chunk(sn, 2, dim=-1) || none
q = linear(x, wq)
k = linear(x, wk)
q4 = view(q, [2, 4, 1, 4])
k4 = view(k, [2, 4, 1, 4])
qt = permute(q4, [0, 2, 1, 3])
kt = permute(k4, [0, 2, 1, 3])
q1, q2 = torch.chunk(qt, 2, dim=-1)
qa = mul(q1, c1)
qb = mul(q2, s1)
qc = mul(q2, c2)
qd = mul(q1, s2)
qe = sub(qa, qb)
qf = add(qc, qd)
qq = cat([qe, qf], dim=-1)
k1, k2 = torch.chunk(kt, 2, dim=-1)
ka = mul(k1, c1)
kb = mul(k2, s1)
kc = mul(k2, c2)
kd = mul(k1, s2)
ke = sub(ka, kb)
kf = add(kc, kd)
kk = cat([ke, kf], dim=-1)
o = scaled_dot_product_attention(qq, kk, kk)
z = tanh(o)
l0: f32[] = sum(z)
l = all-reduce(l0) over tp
""",
        (
            ("ke = sub(ka, kb)", "ke = add(ka, kb)"),
            ("qq = cat([qe, qf], dim=-1)", "qq = cat([qf, qe], dim=-1)"),
        ),
    ),
    "halves that are gated, in the ranks' pieces": Idiom(
        """weight w f32[16,6]
weight o f32[6,8]
input x f32[4,6]
loss l
program
h = linear(x, w)
a = swiglu(h)
y = linear(a, o)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh tp=2
weight w f32[16,6] tp:S(0, parts=[8,8])
weight o f32[6,8] tp:S(1)
input x f32[4,6]
loss l
program
h = linear(x, w)
v = view(h, [4, 2, 4])
g, u = unbind(v, 1)
s = sigmoid(g)
gs = mul(g, s)
a = mul(gs, u)
y0 = linear(a, o)
y = all-reduce(y0) over tp
z = tanh(y)
l: f32[] = mean(z)
""",
        (
            ("view(h, [4, 2, 4])\ng, u = unbind(v, 1)", "view(h, [4, 4, 2])\ng, u = unbind(v, 2)"),
            ("s = sigmoid(g)", "s = sigmoid(u)"),
        ),
    ),
    "attention in another layout, its mask written out": Idiom(
        """weight wq f32[8,8]
weight wk f32[8,8]
weight wv f32[8,8]
weight wo f32[8,8]
input x f32[2,4,8]
loss l
program
q = linear(x, wq)
k = linear(x, wk)
v = linear(x, wv)
q4 = view(q, [2, 4, 4, 2])
k4 = view(k, [2, 4, 4, 2])
v4 = view(v, [2, 4, 4, 2])
qt = transpose(q4, 1, 2)
kt = transpose(k4, 1, 2)
vt = transpose(v4, 1, 2)
o = scaled_dot_product_attention(qt, kt, vt, is_causal=True)
ot = transpose(o, 1, 2)
m = reshape(ot, [2, 4, 8])
y = linear(m, wo)
z = tanh(y)
l: f32[] = mean(z)
""",
        """mesh tp=2
weight wq f32[8,8] tp:S(0)
weight wk f32[8,8] tp:S(0)
weight wv f32[8,8] tp:S(0)
weight wo f32[8,8] tp:S(1)
input x f32[2,4,8]
loss l
program
xs = transpose(x, 0, 1)
q = linear(xs, wq)
k = linear(xs, wk)
v = linear(xs, wv)
q4 = view(q, [4, 4, 2])
k4 = view(k, [4, 4, 2])
v4 = view(v, [4, 4, 2])
qt = transpose(q4, 0, 1)
k1 = transpose(k4, 0, 1)
kt = transpose(k1, 1, 2)
n = zeros([4, 4, 4]) || none
s = baddbmm(n, qt, kt, beta=0.0, alpha=0.7071067811865476)
f = ones([4, 4]) || none
g = triu(f, 1) || none
h = to(g, dtype="bool") || none
j = masked_fill(s, h, -inf)
p = softmax(j, dim=-1)
vt = transpose(v4, 0, 1)
o = bmm(p, vt)
ot = transpose(o, 0, 1)
m = reshape(ot, [4, 2, 4])
y0 = linear(m, wo)
y = all-reduce(y0) over tp
z = tanh(y)
l: f32[] = mean(z)
""",
        (("0.7071067811865476", "0.5"),),
    ),
    "groups of heads that share keys": Idiom(
        """weight w f32[16,6]
weight wo f32[6,8]
input x f32[2,4,6]
loss l
program
h = linear(x, w)
g = view(h, [2, 4, 2, 4, 2])
q, k, v = split(g, [2, 1, 1], dim=3)
kr = repeat_interleave(k, 2, dim=3)
vr = repeat_interleave(v, 2, dim=3)
qf = reshape(q, [2, 4, 4, 2])
kf = reshape(kr, [2, 4, 4, 2])
vf = reshape(vr, [2, 4, 4, 2])
qt = transpose(qf, 1, 2)
kt = transpose(kf, 1, 2)
vt = transpose(vf, 1, 2)
o = scaled_dot_product_attention(qt, kt, vt, is_causal=True)
ot = transpose(o, 1, 2)
m = reshape(ot, [2, 4, 8])
y = linear(m, wo)
z = tanh(y)
l: f32[] = sum(z)
""",
        """mesh tp=2
weight w f32[16,6] tp:S(0)
weight wo f32[6,8] tp:S(1)
input x f32[2,4,6]
loss l
program
h = linear(x, w)
g = view(h, [2, 4, 1, 4, 2])
q, k, v = split(g, [2, 1, 1], dim=3)
ks = squeeze(k, 3)
vs = squeeze(v, 3)
s = einsum(q, ks, equation="bqgrd,bkgd->bgrqk")
c = mul(s, 0.7071067811865476)
f = ones([4, 4]) || none
t = tril(f) || none
b = eq(t, 0) || none
d = masked_fill(c, b, -inf)
p = softmax(d, dim=-1)
o = einsum(p, vs, equation="bgrqk,bkgd->bqgrd")
m = reshape(o, [2, 4, 4])
y0 = linear(m, wo)
y = all-reduce(y0) over tp
z = tanh(y)
l: f32[] = sum(z)
""",
        (
            ("bgrqk,bkgd->bqgrd", "bgrqk,bqgd->bkgrd"),
            ("mul(s, 0.7071067811865476)", "mul(s, 1.5)"),
        ),
    ),
    "scores with a bias of the distance": Idiom(
        """weight wq f32[8,6]
buffer sl f32[4]
input x f32[2,5,6]
loss l
program
q = linear(x, wq)
q4 = view(q, [2, 5, 4, 2])
qt = transpose(q4, 1, 2)
p = arange(0, 5) || none
pf = to(p, dtype="float32") || none
pi = unsqueeze(pf, 1) || none
d = sub(pf, pi) || none
s1 = view(sl, [4, 1, 1]) || none
bias = mul(s1, d) || none
o = scaled_dot_product_attention(qt, qt, qt, bias)
z = tanh(o)
l: f32[] = sum(z)
""",
        """mesh tp=2
weight wq f32[8,6] tp:S(0)
buffer sl f32[4] tp:S(0)
input x f32[2,5,6]
loss l
program
q = linear(x, wq)
q4 = view(q, [2, 5, 2, 2])
qt = permute(q4, [0, 2, 1, 3])
p = arange(5) || none
pf = float(p) || none
s1 = view(sl, [2, 1, 1]) || none
pj = mul(s1, pf) || none
kt = transpose(qt, 2, 3)
s = matmul(qt, kt)
s2 = mul(s, 0.7071067811865476)
c = add(s2, pj)
w = softmax(c, dim=-1)
o = matmul(w, qt)
z = tanh(o)
l0: f32[] = sum(z)
l = all-reduce(l0) over tp
""",
        (
            ("add(s2, pj)", "sub(s2, pj)"),
            ("pj = mul(s1, pf)", "pj = mul(s1, s1)"),
        ),
    ),
    "a window of positions": Idiom(
        """weight w f32[6,6]
input x f32[2,8,6]
loss l
program
q = linear(x, w)
f = ones([8, 8]) || none
a = tril(f) || none
b = triu(f, -2) || none
m = mul(a, b) || none
bm = to(m, dtype="bool") || none
o = scaled_dot_product_attention(q, q, q, bm)
z = tanh(o)
l: f32[] = sum(z)
""",
        """mesh dp=2
weight w f32[6,6]
input x f32[2,8,6] dp:S(0)
loss l
program
q = linear(x, w)
i = arange(8) || none
r = unsqueeze(i, 1) || none
d = sub(r, i) || none
c = lt(d, 0) || none
e = gt(d, 2) || none
m = logical_or(c, e) || none
kt = transpose(q, 1, 2)
s = matmul(q, kt)
s1 = mul(s, 0.4082482904638631)
s2 = masked_fill(s1, m, -inf)
p = softmax(s2, -1)
o = matmul(p, q)
z = tanh(o)
l0: f32[] = sum(z)
l = all-reduce(l0) over dp
end reduce-gradients w over dp
""",
        (
            ("gt(d, 2)", "gt(d, 3)"),
            ("logical_or(c, e)", "logical_and(c, e)"),
        ),
    ),
    "a flat bucket that is clipped": Idiom(
        CLIPPED_BY_A_NORM_OF_NORMS,
        """mesh dp=2
weight w f32[8,6]
weight v f32[4,8]
input x f32[8,6] dp:S(0)
loss l
program
h = linear(x, w)
a = tanh(h)
y = linear(a, v)
z = tanh(y)
l0: f32[] = mean(z)
l = all-reduce avg(l0) over dp
end fw = view(grad(w), [48])
end fv = view(grad(v), [32])
end b = cat([fw, fv], dim=0)
end b1 = all-reduce avg(b) over dp
end n = norm(b1)
end ne = add(n, 0.000001)
end c = div(1.0, ne)
end cc = clamp(c, max=1.0)
end b2 = mul(b1, cc)
end gw, gv = split(b2, [48, 32], dim=0)
end grad(w) = view(gw, [8, 6])
end grad(v) = view(gv, [4, 8])
end update w, v
""",
        (
            ("all-reduce avg(b)", "all-reduce(b)"),
            ("gw, gv = split(b2, [48, 32], dim=0)", "gv, gw = split(b2, [32, 48], dim=0)"),
        ),
    ),
    "shards of a flat bucket that are clipped": Idiom(
        CLIPPED_BY_A_NORM_OF_NORMS,
        """mesh dp=2
weight w f32[8,6]
weight v f32[4,8]
input x f32[8,6] dp:S(0)
loss l
program
h = linear(x, w)
a = tanh(h)
y = linear(a, v)
z = tanh(y)
l0: f32[] = mean(z)
l = all-reduce avg(l0) over dp
end fw = view(grad(w), [48])
end fv = view(grad(v), [32])
end b = cat([fv, fw], dim=0)
end b1 = reduce-scatter avg(b, dim=0) over dp
end sq = mul(b1, b1)
end s0: f32[] = sum(sq)
end s1 = all-reduce(s0) over dp
end n = sqrt(s1)
end ne = add(n, 0.000001)
end c = div(1.0, ne)
end cc = clamp(c, max=1.0)
end b2 = mul(b1, cc)
end b3 = all-gather(b2, dim=0) over dp
end gv, gw = split(b3, [32, 48], dim=0)
end grad(w) = view(gw, [8, 6])
end grad(v) = view(gv, [4, 8])
end update w, v
""",
        (
            ("reduce-scatter avg(b, dim=0)", "reduce-scatter(b, dim=0)"),
            ("cat([fv, fw], dim=0)", "cat([fw, fv], dim=0)"),
        ),
    ),
    "a loss of log-sums, with a factor in the sum": Idiom(
        """weight w f32[8,6]
input x f32[4,6]
input t i64[4]
loss l
program
s = linear(x, w)
c: f32[] = cross_entropy(s, t)
z = logsumexp(s, dim=-1)
q = square(z)
m: f32[] = mean(q)
k = mul(m, 0.001)
l = add(c, k)
""",
        """mesh tp=2
weight w f32[8,6] tp:S(0)
input x f32[4,6]
input t i64[4]
loss l
program tp=0
s0 = linear(x, w)
mx0 = amax(s0, dim=1, keepdim=True) || none
mx = all-reduce max(mx0) over tp || none
s = sub(s0, mx)
e = exp(s)
z0 = sum(e, dim=1)
z = all-reduce(z0) over tp
a = log(z)
p0 = masked_gather(s, t, dim=1, start=0, stop=4)
p = all-reduce(p0) over tp
d = sub(a, p)
c: f32[] = mean(d)
mq = squeeze(mx, 1) || none
zz = add(a, mq)
q = mul(zz, zz)
m: f32[] = mean(q)
l = add(c, m, alpha=0.001)
program tp=1
s0 = linear(x, w)
mx0 = amax(s0, dim=1, keepdim=True) || none
mx = all-reduce max(mx0) over tp || none
s = sub(s0, mx)
e = exp(s)
z0 = sum(e, dim=1)
z = all-reduce(z0) over tp
a = log(z)
p0 = masked_gather(s, t, dim=1, start=4, stop=8)
p = all-reduce(p0) over tp
d = sub(a, p)
c: f32[] = mean(d)
mq = squeeze(mx, 1) || none
zz = add(a, mq)
q = mul(zz, zz)
m: f32[] = mean(q)
l = add(c, m, alpha=0.001)
""",
        (
            ("zz = add(a, mq)", "zz = identity(a)"),
            ("alpha=0.001", "alpha=0.01"),
        ),
    ),
}


@pytest.mark.parametrize("name", sampled(IDIOMS, 3))
def test_an_idiom_is_proved(name: str) -> None:
    assert isinstance(numbers_of_proved(IDIOMS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_its_wrong_twins_are_not(name: str, before: str, after: str) -> None:
    pair = IDIOMS[name].plans(before, after)
    assert isinstance(on_numbers_of(*pair), Difference)
    assert not is_proved(*pair)


HEAD = """
weight w f32[6,8]
buffer c f32[4,6]
input x f32[2,4,8]
loss l
program
h = linear(x, w)
"""
TAIL = "l: f32[] = sum(z)\n"
HALVES = "t, u = torch.chunk(h, 2, dim=-1)\n"
WAYS = {
    "a function": ("z = tanh(h)\n", HALVES + "a = tanh(t)\nb = tanh(u)\nz = cat([a, b], dim=-1)\n"),
    "a square": ("z = pow(h, 2)\n", HALVES + "g = cat([t, u], dim=-1)\nz = mul(g, g)\n"),
    "a product with a buffer": (
        "a = mul(h, c)\nz = tanh(a)\n",
        HALVES
        + "c1, c2 = torch.chunk(c, 2, dim=-1) || none\na = mul(t, c1)\nb = mul(u, c2)\ng = cat([a, b], dim=-1)\nz = tanh(g)\n",
    ),
    "a sum with what stands everywhere": (
        HALVES + "n = neg(u)\nr = cat([n, t], dim=-1)\ns = mul(h, h)\nz0 = add(r, s)\nz = mul(z0, c)\n",
        HALVES
        + "n = neg(u)\na = mul(t, t)\nb = mul(u, u)\nd = add(n, a)\ne = add(t, b)\nz0 = cat([d, e], dim=-1)\nz = mul(z0, c)\n",
    ),
    "halves that are exchanged": (
        "t = narrow(h, -1, 0, 3)\nu = narrow(h, -1, 3, 3)\ng = cat([u, t], dim=-1)\nz = tanh(g)\n",
        HALVES + "g = cat([u, t], dim=-1)\nz = tanh(g)\n",
    ),
    "a gated half": ("z = swiglu(h)\n", HALVES + "a = silu(t)\nz = mul(a, u)\n"),
    "the other half gated": ("z = glu(h)\n", HALVES + "a = sigmoid(u)\nz = mul(a, t)\n"),
    "halves as the outermost of two dimensions": (
        "z = swiglu(h)\n",
        "v = view(h, [2, 4, 2, 3])\nt, u = unbind(v, 2)\na = silu(t)\nz = mul(a, u)\n",
    ),
    "a factor of an addend": ("a = tanh(h)\nb = mul(a, 0.25)\nz = sub(h, b)\n", "a = tanh(h)\nz = sub(h, a, alpha=0.25)\n"),
}
WRONG = {
    "a function": ("b = tanh(u)", "b = sigmoid(u)"),
    "a square": ("cat([t, u]", "cat([t, t]"),
    "a product with a buffer": ("cat([a, b]", "cat([b, b]"),
    "a sum with what stands everywhere": ("d = add(n, a)", "d = add(n, b)"),
    "halves that are exchanged": ("cat([u, t]", "cat([u, u]"),
    "a gated half": ("silu(t)", "silu(u)"),
    "the other half gated": ("mul(a, t)", "mul(a, u)"),
    "halves as the outermost of two dimensions": ("t, u = unbind", "u, t = unbind"),
    "a factor of an addend": ("alpha=0.25", "alpha=0.5"),
}


@pytest.mark.parametrize("name", WAYS)
def test_it_makes_no_difference_what_is_joined_first(name: str) -> None:
    one, other = (with_backward(HEAD + way + TAIL) for way in WAYS[name])
    pair = plans(other, one)
    assert is_proved(*pair)
    assert on_numbers_of(*pair) == Agreement()


@pytest.mark.parametrize("name", WRONG)
def test_other_halves_are_not_the_same(name: str) -> None:
    reference, way = WAYS[name]
    assert WRONG[name][0] in way
    pair = plans(with_backward(HEAD + way.replace(*WRONG[name]) + TAIL), with_backward(HEAD + reference + TAIL))
    assert isinstance(on_numbers_of(*pair), Difference)
    assert not is_proved(*pair)


@pytest.mark.parametrize(
    ("gathered", "outcome"),
    [
        ("a = relu(x)\nb = all-gather(a, dim=1) over tp\nc = glu(b, 1)\nd = normalize(c, dim=0)\n", Outcome.PROVED),
        ("a = relu(x)\nb = glu(a, 1)\nc = normalize(b, dim=0)\nd = all-gather(c, dim=1) over tp\n", Outcome.UNKNOWN),
    ],
)
def test_halves_of_one_row_are_taken(gathered: str, outcome: Outcome) -> None:
    reference = "a = relu(x)\nc = glu(a, 1)\nd = normalize(c, dim=0)\n"
    head = "weight w f32[2]\nbuffer x f32[1,4]\noutput y f32[2,2]\nloss l\nprogram\n"
    tail = "y = repeat(d, 2, 1)\nl = sum(w)\ngrad(w) = backward l (grad(l))\n"
    parallel = "mesh tp=2\n" + head.replace("[1,4]", "[1,4] tp:S(1)") + gathered + tail
    assert verdict_on(parallel, head + reference + tail).outcome is outcome
