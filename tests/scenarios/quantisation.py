"""Codes of few bits and their scales."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

SCENARIOS = (
    *pair(
        "fp8 current scaling with the scale of the step before",
        "scale-before-amax",
        """
mesh dp=2
buffer scale_inv f32[]
weight w f32[8,8]
input x f32[8,8] dp:S(0)
program
- xq: f8e4m3[4,8] = to_fp8(x, scale_inv)
  peak = max_abs(x)
  all = all-reduce max(peak) over dp
  set_scale(scale_inv!, all)
+ xq: f8e4m3[4,8] = to_fp8(x, scale_inv)
  y: f32[4,8] = scaled_mm(xq, w)
""",
    ),
    *pair(
        "scale made after the quantisation, from the reduced magnitude",
        "scale-before-amax",
        """
mesh tp=2
weight w bf16[16,8] tp:S(0)
input x bf16[4,8]
buffer sc f32[1]
output z
program
  h = linear(x, w)
  a = abs(h)
  m = amax(a)
  g = all-reduce max(m) over tp
- q: f8e4m3[4,8] = quantize_fp8(h, sc)
- update_scale(sc!, g)
+ update_scale(sc!, g)
+ q: f8e4m3[4,8] = quantize_fp8(h, sc)
  z: f8e4m3[4,16] = all-gather(q, dim=1) over tp
""",
    ),
    *pair(
        "gathered and transposed codes taken back with the other scale",
        "scale-of-another-tensor",
        """
mesh tp=2
weight w f32[8,8]
input x f32[8,8] tp:S(0)
program
  ax = max_abs(x)
  mx = all-reduce max(ax) over tp
  sx: f32[] = scale_from_amax(mx)
  aw: f32[] = max_abs(w)
  sw: f32[] = scale_from_amax(aw)
  q: f8e4m3[4,8] = quantize(x, sx)
  r: f8e4m3[8,8] = quantize(w, sw)
  g = all-gather(q, dim=0) over tp
  t = transpose(r, 0, 1)
  iw = reciprocal(sw)
  ix = reciprocal(sx)
  cg: f32[8,8] = convert(g)
  ct: f32[8,8] = convert(t)
- dg = mul(cg, iw)
+ dg = mul(cg, ix)
  dt = mul(ct, iw)
  y = matmul(dg, dt)
""",
    ),
    *correct(
        "codes that are scaled by another number too, and whose inverse scale is given",
        """
weight w f32[8,8]
buffer s f32[]
buffer inverse f32[]
buffer temperature f32[]
input x f32[4,8]
program
  q: f8e4m3[4,8] = quantize(x, s)
  d: f32[4,8] = dequantize(q, inverse)
  c: f32[4,8] = convert(q)
  e = mul(c, temperature)
  f = mul(e, inverse)
  y = add(d, f)
""",
    ),
    *pair(
        "the scale of a shard, taken back by that of the operand",
        "partial-through-nonlinear",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8]
output y f32[4,16] tp:S(1)
program
  ax = amax(x)
  aw = amax(w)
  xs = div(x, ax)
  ws = div(w, aw)
  z = linear(xs, ws)
  d = mul(z, ax)
- y = mul(d, ax)
+ y = mul(d, aw)
""",
    ),
)
