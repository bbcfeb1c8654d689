"""Plans whose ranks hold several pieces of one dimension: packed weights, zig-zag sequences, what is cut and gathered."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.sampling import sampled, sampled_tuples
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")


@dataclass(frozen=True)
class Pair:
    """A reference, a right plan, and changes that make it a wrong one."""

    reference: str
    right: str
    wrong: tuple[tuple[str, str], ...]


LOSS = "s = pow(y, 2)\nl: f32[] = sum(s)"

PACKED = """
weight w f32[24,8]{w}
weight v f32[8,8]{v}
input x f32[2,4,8]
loss l
program
{start}  z = linear({x}, w)
{cut}
  q4 = view(q, [2, 4, {heads}, 2])
  k4 = view(k, [2, 4, {heads}, 2])
  u4 = view(u, [2, 4, {heads}, 2])
  qt = transpose(q4, 1, 2)
  kt = transpose(k4, 1, 2)
  ut = transpose(u4, 1, 2)
  o = scaled_dot_product_attention(qt, kt, ut)
  ot = transpose(o, 1, 2)
  m = reshape(ot, [2, 4, {width}])
{end}
"""
WHOLE = {"w": "", "v": "", "start": "", "x": "x", "heads": 4, "width": 8, "end": f"y = linear(m, v)\n{LOSS}"}
LOCAL = {
    "w": " tp:S(0, parts=[8,8,8])",
    "v": " tp:S(1)",
    "start": "  c = copy(x) over tp || none\n",
    "x": "c",
    "heads": 2,
    "width": 4,
    "end": f"p = linear(m, v)\ny = all-reduce(p) over tp\n{LOSS}",
}
CHUNK = "  q, k, u = torch.chunk(z, 3, dim=-1)"
SPLIT = "  q, k, u = split(z, 4, dim=-1)"
NARROW = "  q = narrow(z, -1, 0, 4)\n  k = narrow(z, -1, 4, 4)\n  u = narrow(z, -1, 8, 4)"

GATED = """
weight w f32[16,8]{w}
weight v f32[8,8]{v}
input x f32[4,8]
loss l
program
{start}  z = linear({x}, w)
  g, u = torch.chunk(z, 2, dim=-1)
  a = silu(g)
  m = mul(a, u)
{end}
"""
BESIDE = """
weight g f32[8,8]{w}
weight u f32[8,8]{w}
weight v f32[8,8]{v}
input x f32[4,8]
loss l
program
{start}{middle}  a = silu(zg)
  m = mul(a, zu)
{end}
"""
APART = "  zg = linear(x, g)\n  zu = linear(x, u)\n"
TOGETHER = "  w = cat([g, u], dim=0)\n  z = linear(c, w)\n  zg, zu = torch.chunk(z, 2, dim=-1)\n"

ORDER = "order=[[0,3],[1,2]]"
TOKENS = """
weight w f32[8,8]
weight g f32[8]
input x f32[2,8,8]{x}
input t i64[2,8]{t}
loss l
program
  n = rms_norm(x, [8], g)
  z = linear(n, w)
  f: f32[{count},8] = view(z, [{count}, 8])
  h = view(t, [{count}]) || none
{loss}
"""
ATTENTION = """
weight q f32[8,8]
weight k f32[8,8]
weight u f32[8,8]
buffer b bool[8,8]{b}
input x f32[2,8,8]{x}
loss l
program
  qs = linear(x, q)
  ks = linear(x, k)
  us = linear(x, u)
{keys}
  kt = transpose(ka, 1, 2)
  c = matmul(qs, kt)
  d = masked_fill(c, b, -inf)
  p = softmax(d, dim=-1)
  y = matmul(p, ua)
{end}
"""
GATHERED = """  {n}g: f32[2,8,8] = all-gather({n}s, dim=1) over cp
  {n}0, {n}1, {n}2, {n}3 = torch.chunk({n}g, 4, dim=1)
  {n}a = cat([{n}0, {n}2, {n}3, {n}1], dim=1)"""
HALVES = """  {n}f, {n}l = torch.chunk({n}s, 2, dim=1)
  {n}F: f32[2,4,8] = all-gather({n}f, dim=1) over cp
  {n}L: f32[2,4,8] = all-gather({n}l, dim=1) over cp
  {n}2, {n}3 = torch.chunk({n}L, 2, dim=1)
  {n}a = cat([{n}F, {n}3, {n}2], dim=1)"""


def zig_zag(keys: str) -> str:
    both = "\n".join(keys.format(n=name) for name in "ku")
    return "mesh cp=2\n" + ATTENTION.format(
        x=f" cp:S(1, {ORDER})",
        b=f" cp:S(0, {ORDER})",
        keys=both,
        end="  s = pow(y, 2)\n  r: f32[] = sum(s)\n  l: f32[] = all-reduce(r) over cp\n  end reduce-gradients q, k, u over cp",
    )


POSITIONS = """
weight e f32[8,8]
weight w f32[8,8]
input x f32[2,8,8]{x}
loss l
{programs}
"""
COUNTED = """program{rank}
{counted} || none
  a = embedding(c, e)
  b = add(x, a)
  y = linear(b, w)
{end}
"""
SUMMED = "  s = pow(y, 2)\n  r: f32[] = sum(s)\n  l: f32[] = all-reduce(r) over cp\n  end reduce-gradients e, w over cp"

IN_ORDER = ATTENTION.format(x="", b="", keys="  ka = identity(ks)\n  ua = identity(us)", end=LOSS)
WITH_POSITIONS = POSITIONS.format(x="", programs=COUNTED.format(rank="", counted="  c = arange(8)", end=LOSS))


def counting(first: str, second: str) -> str:
    programs = "".join(
        COUNTED.format(rank=f" cp={rank}", counted=counted, end=SUMMED) for rank, counted in enumerate((first, second))
    )
    return "mesh cp=2\n" + POSITIONS.format(x=" cp:S(1)", programs=programs)


EXPERTS = """
weight w f32[4,8,8]{w}
input x f32[6,8]
input g f32[6,4]{g}
loss l
program
{start}{each}
{end}
"""
EXPERT = """  w{i} = select(w, 0, {i})
  h{i} = linear({x}, w{i})
  a{i} = gelu(h{i})
  g{i} = narrow(g, 1, {i}, 1) || none
  o{i} = mul(a{i}, g{i})
"""

COLUMNS = """
weight w f32[8,8]{w}
weight v f32[8,8]{v}
weight u f32[8,8]{u}
input x f32[4,8]
loss l
program
"""
BY_COLUMN = (
    COLUMNS.format(w="", v="", u="") + "h = linear(x, w)\na = gelu(h)\nb = linear(a, v)\nd = relu(b)\ny = linear(d, u)\n" + LOSS
)
STACKED = (
    "mesh tp=2"
    + COLUMNS.format(w=" tp:S(0)", v="", u="")
    + "c = copy(x) over tp || none\nh0 = linear(c, w)\nhg: f32[8,4] = all-gather(h0, dim=0) over tp || chunk\n{put}\n"
    + "a = gelu(h)\nb = linear(a, v)\nd = relu(b)\ny = linear(d, u)\n"
    + LOSS
)
UNSTACKED = (
    "mesh tp=2"
    + COLUMNS.format(w=" tp:S(0)", v=" tp:S(1)", u=" tp:S(1)")
    + "c = copy(x) over tp || none\nh = linear(c, w)\na = gelu(h)\nb0 = linear(a, v)\np, q = torch.chunk(b0, 2, dim=-1)\n"
    + "r = cat([p, q], dim=0)\nb: f32[4,4] = reduce-scatter(r, dim=0) over tp\nd = relu(b)\ny0 = linear(d, u)\n"
    + "y = all-reduce(y0) over tp\n"
    + LOSS
)

EXCHANGED = """
weight w f32[4,2,2]{w}
input x f32[4,4,2]{x}
input k f32[4,4,2]{k}
loss l
program
  t = transpose(x, 0, 1)
{there}
  h = matmul(e, w)
  r = gelu(h)
{back}
  y = mul(j, k)
{end}
"""
THERE = """  a = all-to-all(t, dim=0, concat-dim=0) over ep
  b = view(a, [2, 2, 2, 2])
  c = transpose(b, 0, 1)
  e = reshape(c, [2, 4, 2])"""
BACK = """  f = view(r, [2, 2, 2, 2])
  g = transpose(f, 0, 1)
  i = reshape(g, [4, 2, 2])
  j = all-to-all(i, dim=0, concat-dim=0) over ep || {x} = all-to-all({y}, dim=0, concat-dim=0) over ep"""
SUMMED_OVER_EXPERTS = "  s = pow(y, 2)\n  q: f32[] = sum(s)\n  l: f32[] = all-reduce(q) over ep"

ROWS = """
weight w f32[8,8]
weight g f32[4]
input x f32[2,8,8]{x}
input u f32[2,8,4]{x}
loss l
program
  n = linear(x, w)
  f: f32[{count},8] = view(n, [{count}, 8])
  k = gelu(f)
  m: f32[2,{length},8] = view(k, [2, {length}, 8])
{halves}
  o = mul(c, g)
  p = sub(o, d)
  y = mul(p, u)
{end}
"""
HALVED = "  c = narrow(m, 2, 0, 4)\n  d = narrow(m, 2, 4, 4)"

PAIRS = {
    "parts exchanged along one dimension": Pair(
        EXCHANGED.format(w="", x="", k="", there="  e = identity(t)", back="  j = identity(r)", end=LOSS),
        "mesh ep=2\n"
        + EXCHANGED.format(w=" ep:S(0)", x=" ep:S(0)", k=" ep:S(1)", there=THERE, back=BACK, end=SUMMED_OVER_EXPERTS),
        (
            ("c = transpose(b, 0, 1)", "c = identity(b)"),
            ("g = transpose(f, 0, 1)", "g = identity(f)"),
            ("b = view(a, [2, 2, 2, 2])\n  c = transpose(b, 0, 1)", "b = view(a, [2, 2, 2, 2])\n  c = transpose(b, 0, 2)"),
            ("a = all-to-all(t, dim=0, concat-dim=0) over ep", "a = clone(t)"),
            ("all-to-all({y}, dim=0, concat-dim=0) over ep", "identity({y})"),
        ),
    ),
    "zig-zag rows, taken apart": Pair(
        ROWS.format(x="", count=16, length=8, halves=HALVED, end=LOSS),
        "mesh cp=2\n"
        + ROWS.format(
            x=f" cp:S(1, {ORDER})",
            count=8,
            length=4,
            halves=HALVED,
            end="  s = pow(y, 2)\n  r: f32[] = sum(s)\n  l: f32[] = all-reduce(r) over cp\n  end reduce-gradients w, g over cp",
        ),
        (
            ("m: f32[2,4,8] = view(k, [2, 4, 8])", "v: f32[4,2,8] = view(k, [4, 2, 8])\n  m: f32[2,4,8] = transpose(v, 0, 1)"),
            ("d = narrow(m, 2, 4, 4)", "d = narrow(m, 2, 3, 4)"),
            ("end reduce-gradients w, g over cp", "end reduce-gradients w over cp"),
        ),
    ),
    "columns gathered as rows": Pair(
        BY_COLUMN,
        STACKED.format(put="ha, hb = torch.chunk(hg, 2, dim=0)\nh = cat([ha, hb], dim=-1)"),
        (("cat([ha, hb]", "cat([hb, ha]"),),
    ),
    "columns gathered as rows, permuted": Pair(
        BY_COLUMN,
        STACKED.format(put="hv = view(hg, [2, 4, 4])\nhp = permute(hv, [1, 0, 2])\nh = reshape(hp, [4, 8])"),
        (("h = reshape(hp, [4, 8])", "h = reshape(hv, [4, 8])"),),
    ),
    "columns scattered as rows": Pair(
        BY_COLUMN, UNSTACKED, (("cat([p, q]", "cat([q, p]"), ("p, q = torch.chunk(b0", "q, p = torch.chunk(b0"))
    ),
    "query, key and value": Pair(
        PACKED.format(cut=CHUNK, **WHOLE),
        "mesh tp=2\n" + PACKED.format(cut=CHUNK, **LOCAL),
        (("q, k, u =", "k, q, u ="), (" tp:S(0, parts=[8,8,8])", " tp:S(0)"), ("parts=[8,8,8]", "parts=[8,16]")),
    ),
    "split by the local size": Pair(
        PACKED.format(cut=CHUNK, **WHOLE), "mesh tp=2\n" + PACKED.format(cut=SPLIT, **LOCAL), (("q, k, u =", "q, u, k ="),)
    ),
    "narrow": Pair(
        PACKED.format(cut=CHUNK, **WHOLE),
        "mesh tp=2\n" + PACKED.format(cut=NARROW, **LOCAL),
        (("k = narrow(z, -1, 4, 4)", "k = narrow(z, -1, 0, 4)"), ("narrow(z, -1, 8, 4)", "narrow(z, -1, 6, 4)")),
    ),
    "gate and up": Pair(
        GATED.format(**WHOLE),
        "mesh tp=2\n" + GATED.format(**{**LOCAL, "w": " tp:S(0, parts=[8,8])"}),
        (("g, u =", "u, g ="), (", parts=[8,8]", "")),
    ),
    "weights that the plan joins": Pair(
        BESIDE.format(middle=APART, **WHOLE),
        "mesh tp=2\n" + BESIDE.format(middle=TOGETHER, **{**LOCAL, "w": " tp:S(0)"}),
        (("cat([g, u]", "cat([u, g]"), ("silu(zg)", "silu(zu)")),
    ),
    "zig-zag tokens": Pair(
        TOKENS.format(x="", t="", count=16, loss="  l = cross_entropy(f, h)"),
        "mesh cp=2\n"
        + TOKENS.format(x=f" cp:S(1, {ORDER})", t=f" cp:S(1, {ORDER})", count=8, loss="  l = cross_entropy(f, h)").replace(
            "loss l", "loss l f32[] cp:P(avg)"
        )
        + "  end reduce-gradients w, g over cp by avg\n",
        ((f"t i64[2,8] cp:S(1, {ORDER})", "t i64[2,8] cp:S(1)"), (" by avg", "")),
    ),
    "zig-zag keys, put in order": Pair(
        IN_ORDER,
        zig_zag(GATHERED),
        (("ka = cat([k0, k2, k3, k1]", "ka = cat([k0, k1, k2, k3]"), (f"cp:S(0, {ORDER})", "cp:S(0)")),
    ),
    "zig-zag halves": Pair(IN_ORDER, zig_zag(HALVES), (("ua = cat([uF, u3, u2]", "ua = cat([uF, u2, u3]"),)),
    "positions from an index on": Pair(
        WITH_POSITIONS,
        counting("  c = arange(4)", "  c = arange(4, 8)"),
        (("arange(4, 8)", "arange(3, 7)"), ("arange(4, 8)", "arange(4)")),
    ),
    "positions moved on": Pair(
        WITH_POSITIONS,
        counting("  b0 = arange(4)\n  c = add(b0, 0)", "  b0 = arange(4)\n  c = add(b0, 4)"),
        (("add(b0, 4)", "add(b0, 3)"), ("add(b0, 4)", "sub(b0, 4)")),
    ),
    "experts one by one": Pair(
        EXPERTS.format(
            w="",
            g="",
            start="",
            each="".join(EXPERT.format(i=i, x="x") for i in range(4)),
            end=f"  p = add(o0, o1)\n  q = add(p, o2)\n  y = add(q, o3)\n{LOSS}",
        ),
        "mesh ep=2\n"
        + EXPERTS.format(
            w=" ep:S(0)",
            g=" ep:S(1)",
            start="",
            each="".join(EXPERT.format(i=i, x="x") for i in range(2)),
            end=f"  p = add(o0, o1)\n  y = all-reduce(p) over ep\n{LOSS}",
        ),
        (("select(w, 0, 1)", "select(w, 0, 0)"), ("narrow(g, 1, 1, 1)", "narrow(g, 1, 0, 1)")),
    ),
}


@pytest.mark.parametrize("name", sampled(PAIRS, 3))
def test_several_pieces_are_followed(name: str) -> None:
    reference, right = plans(with_backward(PAIRS[name].reference), with_backward(PAIRS[name].right))
    assert isinstance(on_numbers_of(right, reference), Agreement)
    verdict = prove(right, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("name", "change"), sampled_tuples([(name, change) for name, pair in PAIRS.items() for change in pair.wrong], 3)
)
def test_other_pieces_are_not(name: str, change: tuple[str, str]) -> None:
    assert change[0] in PAIRS[name].right
    wrong = PAIRS[name].right.replace(*change)
    reference, parallel = plans(with_backward(PAIRS[name].reference), with_backward(wrong))
    assert prove(parallel, reference).outcome is not Outcome.PROVED
    assert not isinstance(on_numbers_of(parallel, reference), Agreement)


FUSED = """
weight q f32[8,8]
weight k f32[8,8]
weight u f32[8,8]
input x f32[2,8,8]{x}
loss l
program
  qs = linear(x, q)
  ks = linear(x, k)
  us = linear(x, u)
{keys}
  y = scaled_dot_product_attention(qs, ka, ua{mask})
{end}
"""
AS_GATHERED = "\n".join(f"  {name}a: f32[2,8,8] = all-gather({name}s, dim=1) over cp" for name in "ku")


def fused(keys: str, mask: str = "") -> str:
    end = "  s = pow(y, 2)\n  r: f32[] = sum(s)\n  l: f32[] = all-reduce(r) over cp\n  end reduce-gradients q, k, u over cp"
    return "mesh cp=2\n" + FUSED.format(x=f" cp:S(1, {ORDER})", keys=keys, mask=mask, end=end)


@pytest.mark.parametrize(
    ("keys", "mask", "is_right"),
    [
        (AS_GATHERED, "", True),
        (AS_GATHERED, ", is_causal=True", False),
        (AS_GATHERED.replace("ua:", "ug:") + "\n  u0, u1, u2, u3 = torch.chunk(ug, 4, dim=1)\n"
         "  ua = cat([u0, u2, u3, u1], dim=1)", "", False),
    ],
)  # fmt: skip
def test_attention_without_a_mask_may_take_keys_as_they_are_gathered(keys: str, mask: str, is_right: bool) -> None:
    reference = FUSED.format(x="", keys="  ka = identity(ks)\n  ua = identity(us)", mask=mask, end=LOSS)
    whole, parallel = plans(with_backward(reference), with_backward(fused(keys, mask)))
    outcome = prove(parallel, whole).outcome
    assert isinstance(on_numbers_of(parallel, whole), Agreement) is is_right
    assert outcome is not (Outcome.REFUTED if is_right else Outcome.PROVED)
