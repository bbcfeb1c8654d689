"""Experts on several ranks, sequences that are exchanged for heads, keys that ranks share, and losses over all tokens."""

from __future__ import annotations

from tests.kinds.kind import Kind, taped

_WEIGHTS = """
weight w f32[4,4]
weight gate f32[4,4]
weight up f32[4,4,4]UP
weight down f32[4,4,4]DOWN
input x f32[4,4,4]BATCH
loss l
program
"""


def _experts(groups: int, ranks: int, tensor: int) -> str:
    """Two of four experts for every token, with room for two tokens of each expert in a group; the others are dropped."""
    there, back = "e = identity(d)", "b = identity(o)"
    every, own = groups * ranks, 4 // ranks
    if ranks > 1:
        there = f"e: f32[{every},{own},2,4] = all-to-all(d, dim=1, concat-dim=0) over ep"
        back = f"b: f32[{groups},4,2,4] = all-to-all(o, dim=0, concat-dim=1) over ep"
    copied, summed = ("copy({}) over tp", "all-reduce({}) over tp") if tensor > 1 else ("identity({})", "identity({})")
    return f"""  y = linear(x, w)
  g = linear(y, gate)
  s = softmax(g, dim=-1)
  p: f32[{groups},4,2], i: i64[{groups},4,2] = topk(s, k=2, dim=-1) || {{x}} = backward p ({{y}}, _)
  n = sum(p, dim=-1, keepdim=True)
  pn = div(p, n)
  d: f32[{groups},4,2,4] = moe_dispatch(y, i, experts=4, capacity=2) || {{x}}, _ = backward d ({{y}})
  {there}
  ec = {copied.format("e")}
  h: f32[{every},{own},2,{4 // tensor}] = einsum(ec, up, equation="gech,efh->gecf")
  a = silu(h)
  o0: f32[{every},{own},2,4] = einsum(a, down, equation="gecf,ehf->gech")
  o = {summed.format("o0")}
  {back}
  z = moe_combine(b, i, pn) || {{x}}, _, grad(pn) = backward z ({{y}})
  t = tanh(z)
  r: f32[1] = sum(t)
"""


def _placed(up: str = "", down: str = "", batch: str = "") -> str:
    return _WEIGHTS.replace("UP", up).replace("DOWN", down).replace("BATCH", batch)


_ALONE = _placed() + _experts(4, 1, 1) + "  l = identity(r)\n"
_SPLIT = _placed(" ep:S(0)", " ep:S(0)", " ep:S(0)")
_REPLICAS = _placed(" ep:S(0)", " ep:S(0)", " dp:S(0) ep:S(0)")
_TENSOR = _placed(" ep:S(0) tp:S(1)", " ep:S(0) tp:S(2)", " ep:S(0)")


def _step(axes: str, more: str = "") -> str:
    return f"  l: f32[1] = all-reduce(r) over {axes}\n  end reduce-gradients w, gate over {axes}\n{more}"


def _exchanged(ranks: int, first: bool) -> str:
    """Whole sequences of some heads for attention, some of the sequence of all heads elsewhere; `first`: sequence first."""
    rows, dim = 4 // ranks, 0 if first else 1
    shape = f"[{rows},2,4,2]" if first else f"[2,{rows},4,2]"
    wide = f"[{rows},2,8]" if first else f"[2,{rows},8]"
    there, back = ("1,2,0,3", "2,0,1,3") if first else ("0,2,1,3", "0,2,1,3")
    place = f" cp:S({dim})" if ranks > 1 else ""
    text = "".join(f"weight w{name} f32[8,8]\n" for name in "qkvo")
    text += f"input x f32{'[4,2,8]' if first else '[2,4,8]'}{place}\nloss l\nprogram\n"
    for name in "qkv":
        text += f"  {name}1 = linear(x, w{name})\n  {name}2: f32{shape} = view({name}1, size={shape})\n"
        text += (
            f"  {name}3 = all-to-all({name}2, dim=2, concat-dim={dim}) over cp\n"
            if place
            else f"  {name}3 = identity({name}2)\n"
        )
        text += f"  {name}4 = permute({name}3, dims=[{there}])\n"
    text += f"  o4 = scaled_dot_product_attention(q4, k4, v4, is_causal=True)\n  o3 = permute(o4, dims=[{back}])\n"
    text += f"  o2 = all-to-all(o3, dim={dim}, concat-dim=2) over cp\n" if place else "  o2 = identity(o3)\n"
    text += f"  o1: f32{wide} = reshape(o2, size={wide})\n  y = linear(o1, wo)\n  t = tanh(y)\n  r: f32[1] = sum(t)\n"
    if not place:
        return text + "  l = identity(r)\n"
    return f"mesh cp={ranks}\n{text}  l: f32[1] = all-reduce(r) over cp\n  end reduce-gradients wq, wk, wv, wo over cp\n"


def _grouped(heads: int, keys: int) -> str:
    text = f"  xc = {'copy(x) over kv,tp' if heads < 4 else 'identity(x)'}\n"
    for name, count in (("q", heads), ("k", keys), ("v", keys)):
        shape = f"[2,4,{count},2]"
        text += f"  {name}1 = linear(xc, w{name})\n  {name}2: f32{shape} = view({name}1, size={shape})\n"
        text += f"  {name}3 = transpose({name}2, dim0=1, dim1=2)\n"
    text += f"  o3: f32[2,{heads},4,2] = scaled_dot_product_attention(q3, k3, v3, is_causal=True, enable_gqa=True)\n"
    text += f"  o2 = transpose(o3, dim0=1, dim1=2)\n  o1: f32[2,4,{2 * heads}] = reshape(o2, size=[2,4,{2 * heads}])\n"
    total = "all-reduce(p) over kv,tp" if heads < 4 else "identity(p)"
    return f"{text}  p = linear(o1, wo)\n  y = {total}\n  t = tanh(y)\n  l: f32[1] = sum(t)\n"


_SHARED = """
weight wq f32[8,8] kv:S(0) tp:S(0)
weight wk f32[4,8] kv:S(0)
weight wv f32[4,8] kv:S(0)
weight wo f32[8,8] kv:S(1) tp:S(1)
input x f32[2,4,8]
loss l
program
"""
_OWN = _SHARED.replace(" kv:S(0)", "").replace(" tp:S(0)", "").replace(" kv:S(1) tp:S(1)", "")

_TOKENS = """
weight w f32[6,4]
input x f32[4,8,4]BATCH
input t i64[4,8]BATCH
input m f32[4,8]BATCH
loss l
program
  s = linear(x, w)
  sv: f32[COUNT,6] = view(s, size=[COUNT,6])
  tv: i64[COUNT] = view(t, size=[COUNT]) || none
  ce: f32[COUNT] = cross_entropy(sv, tv, reduction="none")
  mv: f32[COUNT] = view(m, size=[COUNT]) || none
  cm = mul(ce, mv)
  num: f32[1] = sum(cm)
  den: f32[1] = sum(mv) || none
"""
_COUNTED = "mesh dp=2\n" + _TOKENS.replace("BATCH", " dp:S(0)").replace("COUNT", "16")
_COUNTED += "  all: f32[1] = all-reduce(den) over dp || none\n"

KINDS: tuple[Kind, ...] = (
    taped(
        "experts on two ranks",
        _ALONE,
        "mesh ep=2\n" + _SPLIT + _experts(2, 2, 1) + _step("ep"),
        ("w, gate over ep", "w over ep"),
        ("w, gate over ep", "w, gate, up over ep"),
    ),
    taped(
        "experts and replicas",
        _ALONE,
        "mesh dp=2 ep=2\n" + _REPLICAS + _experts(1, 2, 1) + _step("dp,ep", "  end reduce-gradients up, down over dp\n"),
        ("up, down over dp", "up over dp"),
        ("w, gate over dp,ep", "w, gate over dp"),
    ),
    taped(
        "experts that ranks share",
        _ALONE,
        "mesh ep=2 tp=2\n" + _TENSOR + _experts(2, 2, 2) + _step("ep"),
        ("o = all-reduce(o0) over tp", "o = identity(o0)"),
        ("grad(e) = all-reduce(grad(ec)) over tp", "grad(e) = identity(grad(ec))"),
    ),
    *(
        taped(
            f"sequence for heads, {'sequence' if first else 'batch'} first",
            _exchanged(1, first),
            _exchanged(2, first),
            ("k3 = all-to-all(k2, dim=2,", "k3 = all-to-all(k2, dim=3,"),
            ("wv, wo over cp", "wv over cp"),
        )
        for first in (False, True)
    ),
    taped(
        "more ranks than heads of keys",
        _OWN + _grouped(4, 2),
        "mesh kv=2 tp=2\n" + _SHARED + _grouped(1, 1) + "  end reduce-gradients wk, wv over tp\n",
        ("wk, wv over tp", "wk over tp"),
        ("wk, wv over tp", "wk, wv over kv,tp"),
    ),
    taped(
        "a mean over all tokens",
        _TOKENS.replace("BATCH", "").replace("COUNT", "32") + "  l = div(num, den)\n",
        _COUNTED + "  own = div(num, all)\n  l: f32[1] = all-reduce(own) over dp\n  end reduce-gradients w over dp\n",
        ("own = div(num, all)", "own = div(num, den)"),
        ("w over dp", "w over dp by avg"),
    ),
)
