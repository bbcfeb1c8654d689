"""Values that are the same all along a dimension, or of which a rank makes its own part: proved, and wrong twins are not."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.idiom import Idiom, numbers_of_proved, twins
from tests.equivalence.models.test_attention import plans
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference
from tvlint.equivalence.verdict.prove import is_proved

ALIKE = """
weight w f32[4,6]
input x f32[4]
output q
program
q = mul(x, 2.0) || none
k = narrow(w, 1, {start}, {length})
"""
UPSTREAM = {
    "ones": "l: f32[] = sum(k)\n",
    "one number for each row": "u = unsqueeze(x, 1) || none\nm = mul(k, u)\nl: f32[] = sum(m)\n",
}


@pytest.mark.parametrize("other", [(0, 3), (0, 6), (1, 1), (1, 3)])
@pytest.mark.parametrize("name", UPSTREAM)
def test_what_is_alike_in_a_slice_is_as_long_as_the_slice(name: str, other: tuple[int, int]) -> None:
    one, longer = (
        with_backward(ALIKE.format(start=start, length=length) + UPSTREAM[name]) for start, length in ((0, 1), other)
    )
    for reference, plan in ((one, longer), (longer, one)):
        assert isinstance(on_numbers_of(*plans(plan, reference)), Difference)
        assert not is_proved(*plans(plan, reference))
        assert is_proved(*plans(plan, plan))


LATENT = """{mesh}weight w f32[12,6]{w}
weight r f32[2,6]
weight q f32[20,6]{w}
input x f32[2,5,6]
loss l
program
u0 = linear(x, w)
u1 = view(u0, [2, 5, {heads}, 3])
u = transpose(u1, 1, 2)
r0 = linear(x, r)
r1 = unsqueeze(r0, 1)
e = expand(r1, [2, {heads}, 5, 2])
c = cat([u, e], dim=-1)
q0 = linear(x, q)
q1 = view(q0, [2, 5, {heads}, 5])
qt = transpose(q1, 1, 2)
o = scaled_dot_product_attention(qt, c, u)
z = tanh(o)
{end}"""

CAPACITY = """{mesh}weight gate f32[4,6]
weight w1 f32[4,6,8]{split}
weight w2 f32[4,8,6]{split}
input x f32[2,8,6]{split}
loss l
program
s = linear(x, gate)
p = softmax(s, dim=-1)
pt = transpose(p, 1, 2)
v: f32[{tokens},4,3], i: i64[{tokens},4,3] = topk(pt, k=3, dim=2)
j = reshape(i, [{tokens}, 12]) || none
k = unsqueeze(j, 2) || none
n = expand(k, [{tokens}, 12, 6]) || none
g = gather(x, 1, n) || none
e = view(g, [{tokens}, 4, 3, 6]) || none
h = einsum(e, w1, equation="rech,ehf->recf")
a = silu(h)
o = einsum(a, w2, equation="recf,efh->rech")
u = unsqueeze(v, 3)
m = mul(o, u)
f = reshape(m, [{tokens}, 12, 6])
z = zeros([{tokens}, 8, 6]) || none
y0 = scatter_add(z, 1, n, f)
y = tanh(y0)
{end}"""

GROUPED = """{mesh}weight q f32[16,8]{q}
weight k f32[8,8]{k}
input x f32[2,5,8]
loss l
program
q0 = linear(x, q)
q1 = view(q0, [2, 5, {heads}])
qt = transpose(q1, 1, 2)
ku = linear(x, k)
kv = view(ku, [2, 5, {served}])
kt = transpose(kv, 1, 2)
vv = tanh(kv)
vt = transpose(vv, 1, 2)
{repeat}o = scaled_dot_product_attention(qt, {keys}, is_causal=True)
z = tanh(o)
{end}"""

SMOOTHED = """program tp={rank}
h = linear(x, w)
m0, at = max(h, dim=-1, keepdim=True) || none
m = all-reduce max(m0) over tp || none
b = sub(h, m)
e = exp(b)
s0 = sum(e, dim=-1, keepdim=True)
s = all-reduce(s0) over tp
gl = log(s)
g = copy(gl) over tp
p = sub(b, g)
f = one_hot(t, 6) || none
c = narrow(f, 1, {start}, 3) || none
d = to(c, f32) || none
k = mul(p, d)
q0 = sum(k, dim=-1)
r0 = sum(p, dim=-1)
q = all-reduce(q0) over tp
r = all-reduce(r0) over tp
q9 = mul(q, -0.9)
r9 = mul(r, -0.016666666666666666)
n = add(q9, r9)
l: f32[] = mean(n)
"""

IDIOMS = {
    "a flat bucket, with gradients that are one number": Idiom(
        """weight w f32[3,4]
weight b f32[3]
weight c f32[3]
input x f32[8,4]
loss l
program
h = linear(x, w, b)
y = add(h, c)
l: f32[] = mean(y)
end update w, b, c
""",
        """mesh dp=2
weight w f32[3,4]
weight b f32[3]
weight c f32[3]
input x f32[8,4] dp:S(0)
loss l
program
h = linear(x, w, b)
y = add(h, c)
l0: f32[] = mean(y)
l = all-reduce avg(l0) over dp
end gw = reshape(grad(w), [12])
end f = cat([grad(b), gw, grad(c)], dim=0)
end d = div(f, 2)
end r = all-reduce(d) over dp
end rb, rw, rc = split(r, [3, 12, 3], dim=0)
end grad(b) = identity(rb)
end grad(c) = identity(rc)
end grad(w) = view(rw, [3, 4])
end update w, b, c
""",
        (("div(f, 2)", "div(f, 1)"), ("grad(c) = identity(rc)", "grad(c) = mul(rc, 2)")),
    ),
    "one rotary key for all heads, expanded to a rank's heads": Idiom(
        LATENT.format(mesh="", w="", heads=4, end="l: f32[] = sum(z)\n"),
        LATENT.format(mesh="mesh tp=2\n", w=" tp:S(0)", heads=2, end="l0: f32[] = sum(z)\nl = all-reduce(l0) over tp\n")
        + "end grad(r) = all-reduce(grad(r)) over tp\n",
        (
            ("end grad(r) = all-reduce(grad(r)) over tp\n", ""),
            ("all-reduce(grad(r))", "all-reduce avg(grad(r))"),
            ("c = cat([u, e]", "c = cat([e, u]"),
        ),
    ),
    "tokens of a rank, added to its own zeros": Idiom(
        CAPACITY.format(mesh="", split="", tokens=2, out="", end="l: f32[] = sum(y)\n"),
        CAPACITY.format(
            mesh="mesh ep=2\n", split=" ep:S(0)", tokens=1, out="", end="l0: f32[] = sum(y)\nl = all-reduce(l0) over ep\n"
        )
        .replace("h = einsum(e", "e0: f32[2,2,3,6] = all-to-all(e, dim=1, concat-dim=0) over ep\nh = einsum(e0")
        .replace("o = einsum(a", "o0 = einsum(a")
        .replace("m = mul(o", "o: f32[1,4,3,6] = all-to-all(o0, dim=0, concat-dim=1) over ep\nm = mul(o")
        + "end reduce-gradients gate over ep\n",
        (
            ("end reduce-gradients gate over ep\n", ""),
            ("zeros([1, 8, 6])", "ones([1, 8, 6])"),
            ("scatter_add(z, 1, n, f)", "scatter_add(x, 1, n, f)"),
        ),
    ),
    "one head of queries, and the head of keys that serves it": Idiom(
        GROUPED.format(
            mesh="",
            q="",
            k="",
            heads="4, 4",
            served="2, 4",
            repeat="ks = repeat_interleave(kt, 2, dim=1)\nvs = repeat_interleave(vt, 2, dim=1)\n",
            keys="ks, vs",
            end="l: f32[] = sum(z)\n",
        ),
        "mesh tp=4\n"
        + GROUPED.format(
            mesh="",
            q=" tp:S(0)",
            k="",
            heads="1, 4",
            served="1, 4",
            repeat="",
            keys="kt, vt",
            end="l0: f32[] = sum(z)\nl = all-reduce(l0) over tp\n",
        )
        .replace(
            "weight k f32[8,8]", "weight k0 f32[4,8] region [0:4,0:8] of k[8,8]\nweight k1 f32[4,8] region [4:8,0:8] of k[8,8]"
        )
        .replace("program\n", "program ranks 0-1\n")
        .replace("linear(x, k)", "linear(x, k0)")
        + "end reduce-gradients k0 over ranks 0-1\n"
        + GROUPED.format(
            mesh="",
            q="",
            k="",
            heads="1, 4",
            served="1, 4",
            repeat="",
            keys="kt, vt",
            end="l0: f32[] = sum(z)\nl = all-reduce(l0) over tp\n",
        )
        .partition("program\n")[2]
        .join(["program ranks 2-3\n", ""])
        .replace("linear(x, k)", "linear(x, k1)")
        + "end reduce-gradients k1 over ranks 2-3\n",
        (
            ("end reduce-gradients k1 over ranks 2-3\n", ""),
            ("reduce-gradients k0 over ranks 0-1", "reduce-gradients k0 over ranks 0-1 by avg"),
            ("region [4:8,0:8]", "region [0:4,0:8]"),
        ),
    ),
    "smoothed labels by a flag for each class, of classes that ranks share": Idiom(
        """weight w f32[6,4]
input x f32[5,4]
input t i64[5]
loss l
program
h = linear(x, w)
l: f32[] = cross_entropy(h, t, label_smoothing=0.1)
""",
        "".join(
            [
                """mesh tp=2
weight w f32[6,4] tp:S(0)
input x f32[5,4]
input t i64[5]
loss l
""",
                *(SMOOTHED.format(rank=rank, start=3 * rank) for rank in (0, 1)),
            ]
        ),
        (
            ("narrow(f, 1, 3, 3)", "narrow(f, 1, 0, 3)"),
            ("g = copy(gl) over tp", "g = identity(gl)"),
            ("mul(q, -0.9)", "mul(q, -1.0)"),
        ),
    ),
    "moments of a batch, stacked for one all-reduce": Idiom(
        """weight w f32[6,4]
weight g f32[6]
input x f32[8,4]
loss l
program
h = linear(x, w)
m = mean(h, dim=0, keepdim=True)
c = sub(h, m)
q = pow(c, 2)
v = mean(q, dim=0, keepdim=True)
e = add(v, 0.001)
r = rsqrt(e)
n = mul(c, r)
y = mul(n, g)
a = gelu(y)
l: f32[] = mean(a)
""",
        """mesh dp=2
weight w f32[6,4]
weight g f32[6]
input x f32[8,4] dp:S(0)
loss l
program
h = linear(x, w)
q = mul(h, h)
s1 = sum(h, dim=0)
s2 = sum(q, dim=0)
s0 = stack([s1, s2], dim=0)
s = all-reduce(s0) over dp || {x} = all-reduce({y}) over dp
t1, t2 = unbind(s, 0)
m = div(t1, 8)
u = div(t2, 8)
k = pow(m, 2)
v = sub(u, k)
e = add(v, 0.001)
r = rsqrt(e)
c = sub(h, m)
n = mul(c, r)
y = mul(n, g)
a = gelu(y)
l0: f32[] = mean(a)
l = all-reduce avg(l0) over dp
end reduce-gradients w, g over dp by avg
""",
        (
            ("sub(h, m)", "add(h, m)"),
            ("div(t2, 8)", "div(t2, 4)"),
            (" || {x} = all-reduce({y}) over dp", ""),
        ),
    ),
    "a window whose mask is filled into zeros": Idiom(
        """weight w f32[4,4]
weight v f32[4,4]
input x f32[2,6,4]
loss l
program
q = linear(x, w)
k = linear(x, v)
i = arange(6) || none
r = unsqueeze(i, 1) || none
d = sub(r, i) || none
m1 = ge(d, 0) || none
m2 = le(d, 2) || none
m = logical_and(m1, m2) || none
o = scaled_dot_product_attention(q, k, k, m)
z = tanh(o)
l: f32[] = sum(z)
""",
        """weight w f32[4,4]
weight v f32[4,4]
input x f32[2,6,4]
loss l
program
q = linear(x, w)
k = linear(x, v)
one = ones([6, 6]) || none
lo = tril(one) || none
hi = triu(one, -2) || none
b = mul(lo, hi) || none
n = eq(b, 0) || none
z0 = zeros([6, 6]) || none
m = masked_fill(z0, n, -inf) || none
t = transpose(k, 1, 2)
s = matmul(q, t)
h = mul(s, 0.5)
f = add(h, m)
p = softmax(f, dim=-1)
o = matmul(p, k)
z = tanh(o)
l: f32[] = sum(z)
""",
        (
            ("triu(one, -2)", "triu(one, -1)"),
            ("tril(one)", "tril(one, 1)"),
            ("mul(s, 0.5)", "mul(s, 0.25)"),
            ("zeros([6, 6])", "arange(6)"),
        ),
    ),
}


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_is_proved(name: str) -> None:
    assert isinstance(numbers_of_proved(IDIOMS[name]), Agreement)


@pytest.mark.parametrize(("name", "before", "after"), sampled_tuples(twins(IDIOMS), 3))
def test_its_wrong_twins_are_not(name: str, before: str, after: str) -> None:
    pair = IDIOMS[name].plans(before, after)
    assert isinstance(on_numbers_of(*pair), Difference)
    assert not is_proved(*pair)


ROUNDED = """weight w f32[3,4]
input x f32[6,4]
loss l
program
y = linear(x, w)
l: f32[] = sum(y)
e = backward l (grad(l))
{cast}_, grad(w) = backward y (d)
"""


def test_a_cast_of_what_is_one_number_everywhere_is_not_left_out() -> None:
    plan, reference = (ROUNDED.format(cast=cast) for cast in ("c = to(e, bf16)\nd = to(c, f32)\n", "d = identity(e)\n"))
    assert is_proved(*plans(reference, reference))
    assert not is_proved(*plans(plan, reference))
