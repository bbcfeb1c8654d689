"""Transformer layers whose weights tensor-parallel ranks share, also with the sequence split between the layers' products."""

from __future__ import annotations

from tests.kinds.kind import Kind, taped

_SPLIT = {"qkv f32[24,8]": 0, "qb f32[24]": 0, "wo f32[8,8]": 1, "w1 f32[16,8]": 0, "w1b f32[16]": 0, "w2 f32[8,16]": 1}
_OTHERS = ("g1 f32[8]", "b1 f32[8]", "ob f32[8]", "g2 f32[8]", "b2 f32[8]", "w2b f32[8]")


def _head(batch: int, split: bool, place: str) -> str:
    weights = [f"weight {name}" + (f" tp:S({dim})" if split else "") for name, dim in _SPLIT.items()]
    weights += [f"weight {name}" for name in _OTHERS]
    return "\n".join((*weights, f"input x f32[4,{batch},8] {place}", "loss l", "program", ""))


def _layer(batch: int, ranks: int, enter: str, leave: str) -> str:
    """Sequence, batch, features; four heads of two features, queries, keys and values of each side by side."""
    heads = 4 // ranks
    return f"""  n1 = layer_norm(x, [8], g1, b1)
  f1 = {enter.format("n1")}
  qkvs = linear(f1, qkv, qb)
  by: f32[4,{batch},{heads},6] = view(qkvs, size=[4,{batch},{heads},6])
  q, k, v = split(by, 2, dim=3)
  qt = permute(q, dims=[1,2,0,3])
  kt = permute(k, dims=[1,2,0,3])
  vt = permute(v, dims=[1,2,0,3])
  o = scaled_dot_product_attention(qt, kt, vt, is_causal=True)
  ot = permute(o, dims=[2,0,1,3])
  of: f32[4,{batch},{2 * heads}] = view(ot, size=[4,{batch},{2 * heads}])
  pr = linear(of, wo)
  rs = {leave.format("pr")}
  rb = add(rs, ob)
  h1 = add(rb, x)
  n2 = layer_norm(h1, [8], g2, b2)
  f2 = {enter.format("n2")}
  u = linear(f2, w1, w1b)
  a = gelu(u)
  d = linear(a, w2)
  ds = {leave.format("d")}
  db = add(ds, w2b)
  h2 = add(db, h1)
  t = tanh(h2)
  s: f32[1] = sum(t)
"""


def _whole(batch: int) -> str:
    return _head(batch, False, "") + _layer(batch, 1, "identity({})", "identity({})") + "  l = identity(s)\n"


_COPIED = ("copy({}) over tp", "all-reduce({}) over tp")
_SCATTERED = ("all-gather({}, dim=0) over tp", "reduce-scatter({}, dim=0) over tp")
_NAMES = "g1, b1, ob, g2, b2, w2b"
_SHARED = "  l: f32[1] = all-reduce(s) over AXES\n  end reduce-gradients " + _NAMES + " over AXES\n"

_BLOCK = """
weight g f32[4]
weight wa f32[8,4] tp:S(0)
weight wb f32[4,8] tp:S(1)
weight wc f32[8,4] tp:S(0)
weight wd f32[4,8] tp:S(1)
input x f32[4,4]
loss l
program
  n = layer_norm(x, [4], g)
  c = copy(n) over tp
  a1 = linear(c, wa)
  a2 = silu(a1)
  a3 = linear(a2, wb)
  m1 = linear(c, wc)
  m2 = gelu(m1)
  m3 = linear(m2, wd)
  s0 = add(a3, m3)
  s = all-reduce(s0) over tp
  y = add(s, x)
  t = tanh(y)
  l: f32[1] = sum(t)
"""
_ADAPTED = """
weight w f32[8,4] tp:S(0) frozen
weight a f32[2,4]
weight b f32[8,2] tp:S(0)
weight w2 f32[4,8] tp:S(1) frozen
weight a2 f32[2,8] tp:S(1)
weight b2 f32[4,2]
input x f32[4,4]
loss l
program
  y0 = linear(x, w) || none
  u = linear(x, a)
  uc = copy(u) over tp
  v = linear(uc, b)
  vs = mul(v, 2.0)
  y = add(y0, vs)
  h = gelu(y)
  z0 = linear(h, w2)
  z1 = all-reduce(z0) over tp
  r0 = linear(h, a2)
  r = all-reduce(r0) over tp
  q = linear(r, b2)
  qs = mul(q, 2.0)
  z = add(z1, qs)
  t = tanh(z)
  l: f32[1] = sum(t)
"""
_LATENT = """
weight da f32[4,8]
weight qa f32[8,8] tp:S(0)
weight ka f32[8,4] tp:S(0)
weight va f32[8,4] tp:S(0)
weight g f32[4]
weight wo f32[8,8] tp:S(1)
input x f32[2,4,8]
loss l
program
  c = linear(x, da)
  cn = rms_norm(c, [4], g)
  cc = copy(cn) over tp
  q1 = linear(x, qa)
  k1 = linear(cc, ka)
  v1 = linear(cc, va)
  q2: f32[2,4,2,2] = view(q1, size=[2,4,2,2])
  k2: f32[2,4,2,2] = view(k1, size=[2,4,2,2])
  v2: f32[2,4,2,2] = view(v1, size=[2,4,2,2])
  q3 = transpose(q2, dim0=1, dim1=2)
  k3 = transpose(k2, dim0=1, dim1=2)
  v3 = transpose(v2, dim0=1, dim1=2)
  o3 = scaled_dot_product_attention(q3, k3, v3, is_causal=True, scale=0.5)
  o2 = transpose(o3, dim0=1, dim1=2)
  o1: f32[2,4,4] = reshape(o2, size=[2,4,4])
  p = linear(o1, wo)
  y = all-reduce(p) over tp
  t = tanh(y)
  l: f32[1] = sum(t)
"""


def _on_one(text: str) -> str:
    for dim in (0, 1):
        text = text.replace(f" tp:S({dim})", "")
    text = text.replace("[2,4,2,2]", "[2,4,4,2]").replace("[2,4,4]", "[2,4,8]")
    return text.replace("copy(", "identity(").replace("all-reduce(", "identity(").replace(" over tp", "")


def _on_two(name: str, text: str, *mistakes: tuple[str, str]) -> Kind:
    return taped(name, _on_one(text), "mesh tp=2\n" + text, *mistakes)


KINDS: tuple[Kind, ...] = (
    taped(
        "tensor parallel",
        _whole(2),
        "mesh tp=2\n" + _head(2, True, "") + _layer(2, 2, *_COPIED) + "  l = identity(s)\n",
        ("rs = all-reduce(pr) over tp", "rs = identity(pr)"),
        ("grad(n2) = all-reduce(grad(f2)) over tp", "grad(n2) = identity(grad(f2))"),
        ("a = gelu(u)", "a = relu(u)"),
    ),
    taped(
        "sequence parallel",
        _whole(2),
        "mesh tp=2\n" + _head(2, True, "tp:S(0)") + _layer(2, 2, *_SCATTERED) + _SHARED.replace("AXES", "tp"),
        ("g1, b1, ob, g2, b2, w2b over tp", "g1, b1, ob, b2, w2b over tp"),
        ("g1, b1, ob, g2, b2, w2b over tp", "g1, b1, g2, b2, w2b over tp"),
        ("rs = reduce-scatter(pr, dim=0) over tp", "rs = chunk(pr, dim=0) over tp"),
    ),
    taped(
        "sequence and data parallel",
        _whole(4),
        "mesh dp=2 tp=2\n"
        + _head(4, True, "dp:S(1) tp:S(0)")
        + _layer(2, 2, *_SCATTERED)
        + _SHARED.replace("AXES", "dp,tp")
        + "  end reduce-gradients qkv, qb, wo, w1, w1b, w2 over dp\n",
        ("w2b over dp,tp", "w2b over tp"),
        ("w1, w1b, w2 over dp", "w1, w1b, w2 over dp,tp"),
    ),
    _on_two("attention and feed-forward side by side", _BLOCK, ("add(a3, m3)", "sub(a3, m3)"), ("gelu(m1)", "silu(m1)")),
    _on_two(
        "adapters of frozen weights",
        _ADAPTED,
        ("r = all-reduce(r0) over tp", "r = identity(r0)"),
        ("grad(u) = all-reduce(grad(uc)) over tp", "grad(u) = identity(grad(uc))"),
    ),
    _on_two("latent keys and values", _LATENT, ("grad(cn) = all-reduce(grad(cc)) over tp", "grad(cn) = identity(grad(cc))")),
)
