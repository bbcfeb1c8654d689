"""Masks and tables of positions of which every rank takes the rows that its part of the sequence needs."""

from __future__ import annotations

from tests.kinds.kind import Kind, taped

_HEAD = """
weight wq f32[4,4]
weight wk f32[4,4]
weight wv f32[4,4]
buffer cos f32[8,4]
buffer sin f32[8,4]
buffer m f32[8,8]
input x f32[2,8,4]
loss l
"""
_PROJECTED = "  q = linear(x, wq)\n  k = linear(x, wk)\n  v = linear(x, wv)\n"
_TAKEN = "  cs = narrow(cos, 0, FROM, 4) || none\n  sn = narrow(sin, 0, FROM, 4) || none\n"
_WHOLE = "  cs = identity(cos) || none\n  sn = identity(sin) || none\n"


def _turned(name: str) -> str:
    """Halves of the last dimension turned by the angle of the position."""
    lines = "N1, N2 = split(N, 2, dim=2); Nn = neg(N2); Nt = cat([Nn, N1], dim=2); Nc = mul(N, cs); Ns = mul(Nt, sn)"
    return "".join(f"  {line}\n" for line in f"{lines}; Nr = add(Nc, Ns)".replace("N", name).split("; "))


def _rank(rank: int, taken: str, attends: str) -> str:
    text = f"program cp={rank}\n{taken}{_PROJECTED}{attends}  t = tanh(o)\n  s = sum(t)\n  l = all-reduce(s) over cp\n"
    text += "  end reduce-gradients wq, wk, wv over cp\n"
    return text.replace("FROM", str(4 * rank)).replace("UNTIL", str(4 * rank + 4))


_GATHERED = "  kf = all-gather(KEY, dim=1) over cp\n  vf = all-gather(v, dim=1) over cp\n"
_MASKED = "  mr = narrow(m, 0, FROM, 4) || none\n" + _GATHERED.replace("KEY", "k")
_MASKED += "  o = scaled_dot_product_attention(q, kf, vf, mr)\n"
_PLACES = "query_start=FROM, query_stop=UNTIL, key_start=0, key_stop=8"
_ROTATED = _turned("q") + _turned("k") + _GATHERED.replace("KEY", "kr")
_ROTATED += f"  o = scaled_dot_product_attention(qr, kf, vf, is_causal=True, {_PLACES})\n"
_SUMMED = "  t = tanh(o)\n  l = sum(t)\n"
_SPLIT = "mesh cp=2\n" + _HEAD.replace("x f32[2,8,4]", "x f32[2,8,4] cp:S(1)")
_MASK = _HEAD + "program\n" + _PROJECTED + "  o = scaled_dot_product_attention(q, k, v, m)\n" + _SUMMED
_TURN = _turned("q") + _turned("k") + "  o = scaled_dot_product_attention(qr, kr, v, is_causal=True)\n"
_ROTARY = _HEAD + "program\n" + _WHOLE + _PROJECTED + _TURN + _SUMMED

KINDS: tuple[Kind, ...] = (
    taped(
        "rows of a mask",
        _MASK,
        _SPLIT + _rank(0, "", _MASKED) + _rank(1, "", _MASKED),
        ("narrow(m, 0, 4, 4)", "narrow(m, 0, 0, 4)"),
        ("narrow(m, 0, 4, 4)", "narrow(m, 0, 3, 4)"),
    ),
    taped(
        "rows of tables of angles",
        _ROTARY,
        _SPLIT + _rank(0, _TAKEN, _ROTATED) + _rank(1, _TAKEN, _ROTATED),
        ("narrow(cos, 0, 4, 4)", "narrow(cos, 0, 0, 4)"),
        ("narrow(cos, 0, 4, 4)", "narrow(sin, 0, 4, 4)"),
        ("narrow(sin, 0, 4, 4)", "narrow(sin, 0, 2, 4)"),
    ),
)
