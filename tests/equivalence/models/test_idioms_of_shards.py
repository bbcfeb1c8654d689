"""Idioms that ranks write in the sizes of what they hold: each with wrong twins, judged by numbers."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.equivalence.idiom import Idiom, assert_wrong_mutants_are_not_proved, numbers_of_proved, twins
from tests.sampling import sampled, sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Difference
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

FUSED_IN_THE_REFERENCE = Idiom(
    """weight w f32[16,6]
weight o f32[6,8]
input x f32[5,6]
loss l
program
h = linear(x, w)
k = swiglu(h)
y = linear(k, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight w f32[16,6] tp:S(0, parts=[8,8])
weight o f32[6,8] tp:S(1)
input x f32[5,6]
loss l
program
h = linear(x, w)
g, u = split(h, 4, dim=-1)
a = F.silu(g)
k = mul(a, u)
p = linear(k, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
""",
    (("F.silu(g)", "F.silu(u)"),),
)

BOUNDED_INDICES = Idiom(
    """weight e f32[8,4]
weight o f32[3,4]
input ids i64[2,5]
loss l
program
x = F.embedding(ids, e)
y = linear(x, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight e f32[8,4] tp:S(0)
weight o f32[3,4]
input ids i64[2,5]
loss l
program tp=0
i0 = sub(ids, 0)
a = ge(i0, 0)
b = le(i0, 3)
k = bitwise_and(a, b)
ii = clamp(i0, 0, 3)
h = F.embedding(ii, e)
mu = unsqueeze(k, -1)
p = where(mu, h, 0.0)
x = all-reduce(p) over tp
y = linear(x, o)
z = tanh(y)
l: f32[] = sum(z)
program tp=1
i0 = sub(ids, 4)
a = ge(i0, 0)
b = le(i0, 3)
k = bitwise_and(a, b)
ii = clamp(i0, 0, 3)
h = F.embedding(ii, e)
mu = unsqueeze(k, -1)
p = where(mu, h, 0.0)
x = all-reduce(p) over tp
y = linear(x, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    (("b = le(i0, 3)", "b = le(i0, 2)"),),
)

ONE_KEY_HEAD_EXPANDED = Idiom(
    """weight w f32[16,8]
weight o f32[8,8]
input x f32[2,5,8]
loss l
program
h = linear(x, w)
q0, k0, v0 = split(h, [8, 4, 4], dim=-1)
q1 = view(q0, [2, 5, 4, 2])
k1 = view(k0, [2, 5, 2, 2])
v1 = view(v0, [2, 5, 2, 2])
q = transpose(q1, 1, 2)
k2 = transpose(k1, 1, 2)
v2 = transpose(v1, 1, 2)
k = repeat_interleave(k2, 2, dim=1)
v = repeat_interleave(v2, 2, dim=1)
a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
t = transpose(a, 1, 2)
r = reshape(t, [2, 5, 8])
y = linear(r, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight w f32[16,8] tp:S(0, parts=[8,4,4])
weight o f32[8,8] tp:S(1)
input x f32[2,5,8]
loss l
program
h = linear(x, w)
q0, k0, v0 = split(h, [4, 2, 2], dim=-1)
q1 = view(q0, [2, 5, 2, 2])
k1 = view(k0, [2, 5, 1, 2])
v1 = view(v0, [2, 5, 1, 2])
q = transpose(q1, 1, 2)
k2 = transpose(k1, 1, 2)
v2 = transpose(v1, 1, 2)
k = expand(k2, [2, 2, 5, 2])
v = expand(v2, [2, 2, 5, 2])
a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
t = transpose(a, 1, 2)
r = reshape(t, [2, 5, 4])
p = linear(r, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
""",
    (
        ("parts=[8,4,4]", "parts=[4,8,4]"),
        ("is_causal=True", "is_causal=False"),
    ),
)

TABLES_LOOKED_UP_IN_ORDER = Idiom(
    """weight w f32[4,4]
buffer cos f32[8,4]
buffer sin f32[8,4]
input x f32[2,8,4]
loss l
program
q = linear(x, w)
qa, qb = torch.chunk(q, 2, dim=-1)
qn = neg(qb)
qr = cat([qn, qa], dim=-1)
qc = mul(q, cos)
qs = mul(qr, sin)
qq = add(qc, qs)
z = tanh(qq)
l: f32[] = sum(z)
""",
    """mesh cp=2
weight w f32[4,4]
buffer cos f32[8,4]
buffer sin f32[8,4]
input x f32[2,8,4] cp:S(1)
loss l f32[] cp:P
program cp=0
pos = arange(0, 4)
c = F.embedding(pos, cos)
s = F.embedding(pos, sin)
q = linear(x, w)
qa, qb = torch.chunk(q, 2, dim=-1)
qn = neg(qb)
qr = cat([qn, qa], dim=-1)
qc = mul(q, c)
qs = mul(qr, s)
qq = add(qc, qs)
z = tanh(qq)
l: f32[] = sum(z)
end reduce-gradients w over cp
program cp=1
pos = arange(4, 8)
c = F.embedding(pos, cos)
s = F.embedding(pos, sin)
q = linear(x, w)
qa, qb = torch.chunk(q, 2, dim=-1)
qn = neg(qb)
qr = cat([qn, qa], dim=-1)
qc = mul(q, c)
qs = mul(qr, s)
qq = add(qc, qs)
z = tanh(qq)
l: f32[] = sum(z)
end reduce-gradients w over cp
""",
    (("arange(4, 8)", "arange(0, 4)"),),
)

PART_OF_A_GROUP = Idiom(
    """weight wq f32[16,8]
weight wk f32[4,8]
weight wv f32[4,8]
weight o f32[8,16]
input x f32[2,5,8]
loss l
program
q0 = linear(x, wq)
k0 = linear(x, wk)
v0 = linear(x, wv)
q1 = view(q0, [2, 5, 8, 2])
k1 = view(k0, [2, 5, 2, 2])
v1 = view(v0, [2, 5, 2, 2])
q = transpose(q1, 1, 2)
k2 = transpose(k1, 1, 2)
v2 = transpose(v1, 1, 2)
k = repeat_interleave(k2, 4, dim=1)
v = repeat_interleave(v2, 4, dim=1)
a = scaled_dot_product_attention(q, k, v)
t = transpose(a, 1, 2)
r = reshape(t, [2, 5, 16])
y = linear(r, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    "mesh tp=4\nweight wq f32[16,8] tp:S(0)\nweight wk f32[4,8]\nweight wv f32[4,8]\nweight o f32[8,16] tp:S(1)\n"
    "input x f32[2,5,8]\nloss l\n"
    + "".join(
        f"""program tp={rank}
q0 = linear(x, wq)
k0 = linear(x, wk)
v0 = linear(x, wv)
q1 = view(q0, [2, 5, 2, 2])
k1 = view(k0, [2, 5, 2, 2])
v1 = view(v0, [2, 5, 2, 2])
kh = narrow(k1, 2, {rank // 2}, 1)
vh = narrow(v1, 2, {rank // 2}, 1)
q = transpose(q1, 1, 2)
k2 = transpose(kh, 1, 2)
v2 = transpose(vh, 1, 2)
k = expand(k2, [2, 2, 5, 2])
v = expand(v2, [2, 2, 5, 2])
a = scaled_dot_product_attention(q, k, v)
t = transpose(a, 1, 2)
r = reshape(t, [2, 5, 4])
p = linear(r, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
end reduce-gradients wk, wv over tp
"""
        for rank in range(4)
    ),
    (
        ("narrow(k1, 2, 1, 1)", "narrow(k1, 2, 0, 1)"),
        ("end reduce-gradients wk, wv over tp", "end reduce-gradients wk over tp"),
    ),
)

POSITIONS_OF_A_SLICE = Idiom(
    """weight e f32[9,4]
weight w f32[3,4]
input x f32[2,8,4]
loss l
program
p = arange(8)
t = embedding(p, e)
h = add(x, t)
y = linear(h, w)
z = tanh(y)
l: f32[] = sum(z)
""",
    "mesh cp=2\nweight e f32[9,4]\nweight w f32[3,4]\ninput x f32[2,8,4] cp:S(1)\nloss l f32[] cp:P\n"
    + "".join(
        f"""program cp={rank}
i = arange(4)
p = add(i, {4 * rank})
t = index_select(e, 0, p)
h = add(x, t)
y = linear(h, w)
z = tanh(y)
l: f32[] = sum(z)
end reduce-gradients e, w over cp
"""
        for rank in range(2)
    ),
    (
        ("add(i, 4)", "add(i, 3)"),
        ("add(i, 4)", "add(i, 5)"),
        ("end reduce-gradients e, w over cp", "end reduce-gradients w over cp"),
    ),
)

SHARDS_OF_HEADS = """mesh tp=2
weight wq f32[8,8] tp:S(0)
weight wk f32[8,8] tp:S(0)
weight wv f32[8,8] tp:S(0)
weight o f32[8,8] tp:S(1)
input x f32[2,5,8]
loss l
program
q0 = linear(x, wq)
k0 = linear(x, wk)
v0 = linear(x, wv)
"""
"""Queries, keys and values of the heads of a rank."""

SUM_OF_HEADS = """p = linear(r, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
"""

HEADS = """weight wq f32[8,8]
weight wk f32[8,8]
weight wv f32[8,8]
weight o f32[8,8]
input x f32[2,5,8]
loss l
program
q0 = linear(x, wq)
k0 = linear(x, wk)
v0 = linear(x, wv)
q1 = view(q0, [2, 5, 2, 4])
k1 = view(k0, [2, 5, 2, 4])
v1 = view(v0, [2, 5, 2, 4])
q = transpose(q1, 1, 2)
k = transpose(k1, 1, 2)
v = transpose(v1, 1, 2)
a = F.scaled_dot_product_attention(q, k, v)
t = transpose(a, 1, 2)
r = reshape(t, [2, 5, 8])
y = linear(r, o)
z = tanh(y)
l: f32[] = sum(z)
"""

ONE_HEAD = Idiom(
    HEADS,
    SHARDS_OF_HEADS
    + """kt = transpose(k0, 1, 2)
s = matmul(q0, kt)
sc = div(s, 2.0)
pr = softmax(sc, dim=-1)
r = matmul(pr, v0)
"""
    + SUM_OF_HEADS,
    (("div(s, 2.0)", "div(s, 4.0)"),),
)

CAUSAL_HEADS = HEADS.replace("(q, k, v)", "(q, k, v, is_causal=True)")

ONE_HEAD_FUSED = Idiom(
    CAUSAL_HEADS,
    SHARDS_OF_HEADS
    + """r = F.scaled_dot_product_attention(q0, k0, v0, is_causal=True)
"""
    + SUM_OF_HEADS,
    (("is_causal=True", "is_causal=False"),),
)

ONE_HEAD_UNDER_A_MASK = Idiom(
    CAUSAL_HEADS,
    SHARDS_OF_HEADS
    + """kt = transpose(k0, 1, 2)
s = matmul(q0, kt)
sc = mul(s, 0.5)
oo = ones([5, 5])
tr = tril(oo)
mk = eq(tr, 0)
sm = masked_fill(sc, mk, -inf)
pr = softmax(sm, dim=-1)
r = matmul(pr, v0)
"""
    + SUM_OF_HEADS,
    (
        ("mul(s, 0.5)", "mul(s, 0.25)"),
        ("tril(oo)", "tril(oo, 1)"),
    ),
)

ONE_HEAD_OF_SCALED_QUERIES = Idiom(
    CAUSAL_HEADS,
    SHARDS_OF_HEADS
    + """qs = mul(q0, 0.5)
kt = transpose(k0, -1, -2)
s = bmm(qs, kt)
oo = full([5, 5], -inf)
tr = triu(oo, 1)
sm = add(s, tr)
pr = softmax(sm, dim=-1)
r = bmm(pr, v0)
"""
    + SUM_OF_HEADS,
    (
        ("triu(oo, 1)", "triu(oo, 2)"),
        ("mul(q0, 0.5)", "mul(q0, 0.25)"),
    ),
)

ONE_HEAD_BY_EINSUM = Idiom(
    HEADS,
    SHARDS_OF_HEADS
    + """s = einsum("bqd,bkd->bqk", q0, k0)
sc = mul(s, 0.5)
pr = softmax(sc, dim=-1)
r = einsum("bqk,bkd->bqd", pr, v0)
"""
    + SUM_OF_HEADS,
    (('"bqk,bkd->bqd"', '"bkq,bkd->bqd"'),),
)

ONE_HEAD_UNDER_A_NEW_DIMENSION = Idiom(
    CAUSAL_HEADS,
    SHARDS_OF_HEADS
    + """q = unsqueeze(q0, 1)
k = unsqueeze(k0, 1)
v = unsqueeze(v0, 1)
a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
r = squeeze(a, 1)
"""
    + SUM_OF_HEADS,
    (("is_causal=True", "is_causal=False"),),
)

ONE_KEY_HEAD_CUT_OUT = Idiom(
    """weight wq f32[8,8]
weight wk f32[4,8]
weight wv f32[4,8]
weight o f32[8,8]
input x f32[2,5,8]
loss l
program
q0 = linear(x, wq)
k0 = linear(x, wk)
v0 = linear(x, wv)
q1 = view(q0, [2, 5, 4, 2])
k1 = view(k0, [2, 5, 2, 2])
v1 = view(v0, [2, 5, 2, 2])
q = transpose(q1, 1, 2)
k2 = transpose(k1, 1, 2)
v2 = transpose(v1, 1, 2)
k = repeat_interleave(k2, 2, dim=1)
v = repeat_interleave(v2, 2, dim=1)
a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
t = transpose(a, 1, 2)
r = reshape(t, [2, 5, 8])
y = linear(r, o)
z = tanh(y)
l: f32[] = sum(z)
""",
    """mesh tp=2
weight wq f32[8,8] tp:S(0)
weight wk f32[4,8]
weight wv f32[4,8]
weight o f32[8,8] tp:S(1)
input x f32[2,5,8]
loss l
program tp=0
q0 = linear(x, wq)
k0 = linear(x, wk)
v0 = linear(x, wv)
kk = narrow(k0, 2, 0, 2)
vv = narrow(v0, 2, 0, 2)
q1 = view(q0, [2, 5, 2, 2])
q = transpose(q1, 1, 2)
k = unsqueeze(kk, 1)
v = unsqueeze(vv, 1)
a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
t = transpose(a, 1, 2)
r = reshape(t, [2, 5, 4])
p = linear(r, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
end reduce-gradients wk, wv over tp
program tp=1
q0 = linear(x, wq)
k0 = linear(x, wk)
v0 = linear(x, wv)
kk = narrow(k0, 2, 2, 2)
vv = narrow(v0, 2, 2, 2)
q1 = view(q0, [2, 5, 2, 2])
q = transpose(q1, 1, 2)
k = unsqueeze(kk, 1)
v = unsqueeze(vv, 1)
a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
t = transpose(a, 1, 2)
r = reshape(t, [2, 5, 4])
p = linear(r, o)
y = all-reduce(p) over tp
z = tanh(y)
l: f32[] = sum(z)
end reduce-gradients wk, wv over tp
""",
    (("kk = narrow(k0, 2, 2, 2)", "kk = narrow(k0, 2, 0, 2)"),),
)

ONE_KEY_HEAD = (
    "{mesh}weight q f32[8,6]{rows}\nweight k f32[4,6]\nweight o f32[6,8]{columns}\ninput x f32[2,5,6]\nloss l\nprogram\n"
    "q0 = linear(x, q)\nq1 = view(q0, [2, 5, {heads}, 2])\nqh = transpose(q1, 1, 2)\nkv = linear(x, k)\n"
    "k0, v0 = torch.chunk(kv, 2, dim=-1)\nk1 = unsqueeze(k0, 1)\nv1 = unsqueeze(v0, 1)\n{copies}"
    "a = F.scaled_dot_product_attention(qh, kh, vh, is_causal=True)\nt = transpose(a, 1, 2)\n"
)
COPIED_HEADS = "kh = repeat_interleave(k1, 2, dim=1)\nvh = repeat_interleave(v1, 2, dim=1)\n"
WIDE_HEADS = "kh = expand(k1, [2, 4, 5, 2])\nvh = expand(v1, [2, 4, 5, 2])\n"
ONE_KEY_HEAD_COPIED = Idiom(
    ONE_KEY_HEAD.format(mesh="", rows="", columns="", heads=4, copies=WIDE_HEADS)
    + "r = reshape(t, [2, 5, 8])\ny = linear(r, o)\nz = tanh(y)\nl: f32[] = sum(z)\n",
    ONE_KEY_HEAD.format(mesh="mesh tp=2\n", rows=" tp:S(0)", columns=" tp:S(1)", heads=2, copies=COPIED_HEADS)
    + "r = reshape(t, [2, 5, 4])\np = linear(r, o)\ny = all-reduce(p) over tp\nz = tanh(y)\nl: f32[] = sum(z)\n"
    "end grad(k) = all-reduce(grad(k)) over tp\n",
    (
        ("end grad(k) = all-reduce(grad(k)) over tp\n", ""),
        ("k0, v0 = torch", "v0, k0 = torch"),
        ("vh = repeat_interleave(v1, 2", "vh = repeat_interleave(k1, 2"),
    ),
)

IDIOMS = {
    "attention of one head, written out without a dimension of heads": ONE_HEAD,
    "attention of one head, fused": ONE_HEAD_FUSED,
    "attention of one head, under a mask of positions": ONE_HEAD_UNDER_A_MASK,
    "attention of one head, of queries that are scaled before": ONE_HEAD_OF_SCALED_QUERIES,
    "attention of one head, by einsum": ONE_HEAD_BY_EINSUM,
    "one head under a new dimension": ONE_HEAD_UNDER_A_NEW_DIMENSION,
    "one head of keys that a rank cuts out, for its heads of queries": ONE_KEY_HEAD_CUT_OUT,
    "halves of a gate that the reference fuses, each by its size on a rank": FUSED_IN_THE_REFERENCE,
    "indices with bounds, and zeros where they were beyond": BOUNDED_INDICES,
    "a rank's one head of keys, expanded to its heads of queries": ONE_KEY_HEAD_EXPANDED,
    "the one head of keys, as often as a rank has heads of queries": ONE_KEY_HEAD_COPIED,
    "a head of keys, expanded to some of the heads of queries that it serves": PART_OF_A_GROUP,
    "tables that are looked up at positions in order": TABLES_LOOKED_UP_IN_ORDER,
    "positions of a slice of the sequence": POSITIONS_OF_A_SLICE,
}


@pytest.mark.parametrize("name", sampled(IDIOMS, 3))
def test_an_idiom_is_proved(name: str) -> None:
    numbers_of_proved(IDIOMS[name])


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_its_wrong_twins_are_not(name: str, before: str, after: str) -> None:
    assert isinstance(on_numbers_of(*IDIOMS[name].plans(before, after), any_numbers=True), Difference)
    assert IDIOMS[name].verdict(before, after).outcome is not Outcome.PROVED


@pytest.mark.parametrize("size", ["[2, 5, 2, 2]", "[2, 2, 5, 4]", "[2, 4, 5, 2]", "[2, 1, 5, 2]", "[-1, 2, -1, -1]"])
def test_a_head_is_expanded_as_the_operator_says(size: str) -> None:
    found = ONE_KEY_HEAD_EXPANDED.verdict("k = expand(k2, [2, 2, 5, 2])", f"k: f32[2,2,5,2] = expand(k2, {size})")
    assert (found.outcome is Outcome.PROVED) == (size == "[-1, 2, -1, -1]")


MUTATED = (
    "attention of one head, under a mask of positions",
    "indices with bounds, and zeros where they were beyond",
    "positions of a slice of the sequence",
)


@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTATED)
def test_no_mutant_that_computes_something_else_is_proved(name: str) -> None:
    assert_wrong_mutants_are_not_proved(IDIOMS[name])
