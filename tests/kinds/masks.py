"""Attention with a mask or a bias: one operator, or written out; whole, or with heads or queries shared out."""

from __future__ import annotations

from tests.kinds.kind import Kind, taped

_HEAD = """
weight q f32[2,4,4,2]
weight k f32[2,4,4,2]
weight v f32[2,4,4,2]
buffer m f32[4,4]
input x f32[2,4,4,2]
loss l
program
"""
_TAIL = "  r = mul(o, x)\n  l: f32[1] = sum(r)\n"
_FUSED = "  o = scaled_dot_product_attention(q, k, v, m)\n"
_TURNED = "  kt = transpose(k, dim0=2, dim1=3)\n"
_PRODUCT = _TURNED + "  z = matmul(q, kt)\n  zz = div(z, 1.4142135623730951)\n"
_SOFTMAX = "  p = softmax(s, dim=-1)\n  o = matmul(p, v)\n"
_ADDED = _PRODUCT + "  s = add(zz, m)\n" + _SOFTMAX
_SCALED = _TURNED + "  qs = mul(q, 0.7071067811865476)\n  z = matmul(qs, kt)\n  s = add(m, z)\n" + _SOFTMAX
_SHARED = "  r = mul(o, x)\n  y: f32[1] = sum(r)\n  l: f32[1] = all-reduce(y) over tp\n"


def _heads(text: str) -> str:
    return "mesh tp=2\n" + text.replace("[2,4,4,2]", "[2,4,4,2] tp:S(1)")


def _bias(text: str, shape: str) -> str:
    return text.replace("buffer m f32[4,4]", f"weight m f32{shape}")


KINDS: tuple[Kind, ...] = (
    taped(
        "a mask that is added",
        _HEAD + _FUSED + _TAIL,
        _HEAD + _ADDED + _TAIL,
        ("add(zz, m)", "sub(zz, m)"),
        ("add(zz, m)", "add(z, m)"),
        ("div(z, 1.4142135623730951)", "div(z, 2)"),
        ("softmax(s, dim=-1)", "softmax(s, dim=-2)"),
    ),
    taped("a mask that the reference adds", _HEAD + _ADDED + _TAIL, _HEAD + _FUSED + _TAIL),
    taped("a mask added first", _HEAD + _ADDED + _TAIL, _HEAD + _SCALED + _TAIL),
    taped("a mask on every rank", _HEAD + _FUSED + _TAIL, _heads(_HEAD) + _ADDED + _SHARED),
    taped(
        "a bias of every head",
        _bias(_HEAD, "[4,4,4]") + _FUSED + _TAIL,
        _heads(_bias(_HEAD, "[4,4,4] tp:S(0)")) + _ADDED + _SHARED,
        ("add(zz, m)", "add(z, m)"),
    ),
    taped(
        "a bias that heads share",
        _bias(_HEAD, "[4,4]") + _FUSED + _TAIL,
        _heads(_bias(_HEAD, "[4,4]")) + _ADDED + _SHARED + "  end reduce-gradients m over tp\n",
        ("reduce-gradients m over tp", ""),
    ),
)
