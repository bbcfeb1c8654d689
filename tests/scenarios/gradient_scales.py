"""Scales of losses and gradients that the optimizer step does not undo, or undoes by another number, and their right twins."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

HEAD = """
mesh dp=4
weight w f32[8,8]
weight u f32[8,8]
state m f32[8,8]
state v f32[8,8]
input x f32[8,8] dp:S(0)
loss l
program
  y = linear(x, w)
  z = linear(y, u)
  q = pow(z, 2)
  l: f32[] = mean(q)
"""
BACK = """
  dz = backward q (dq)
  dy, gu = backward z (dz)
  _, gw = backward y (dy)
"""
PLAIN = HEAD + "  dq = backward l (grad(l))" + BACK
SCALED = HEAD + "  s: f32[] = full([], 4096.0)\n  dq = backward l (s)" + BACK

ONE = PLAIN.replace("dy, gu", "dy, _")
ONE_SCALED = SCALED.replace("dy, gu", "dy, _")
HALF = ONE.replace("loss l", "loss k f32[] dp:P(avg)").replace(
    "dq = backward l (grad(l))", "k = mul(l, 0.5)\n  dl = backward k (grad(k))\n  dq = backward l (dl)"
)

SCENARIOS = (
    *pair(
        "loss scale that is not undone in a step written out",
        "wrong-gradient-scale",
        ONE_SCALED
        + """
  rw = all-reduce avg(gw) over dp
+ rw = div(rw, 4096.0)
  adam_step(w!, rw, m!, v!)
""",
    ),
    *pair(
        "loss scale that is undone twice",
        "wrong-gradient-scale",
        SCALED
        + """
- grad(w) = div(gw, 4096.0)
- grad(u) = div(gu, 4096.0)
+ grad(w) = identity(gw)
+ grad(u) = identity(gu)
  reduce-gradients w, u over dp by avg
  grad(w) = div(grad(w), 4096.0)
  grad(u) = div(grad(u), 4096.0)
  update w, u
""",
    ),
    *pair(
        "gradient divided before its sum by half of the ranks",
        "wrong-gradient-scale",
        ONE
        + """
- pw = mul(gw, 0.5)
+ pw = mul(gw, 0.25)
  rw = all-reduce(pw) over dp
  sgd_step(w!, rw, lr=0.1)
""",
    ),
    *pair(
        "slice of a weight stepped with a sum",
        "wrong-gradient-scale",
        ONE
        + """
- rw = reduce-scatter(gw, dim=0) over dp
+ rw = reduce-scatter avg(gw, dim=0) over dp
  ws = chunk(w, dim=0) over dp
  sgd_step(ws!, rw, lr=0.1)
  wn = all-gather(ws, dim=0) over dp
""",
    ),
    *pair(
        "flat bucket taken apart in another order",
        "gradient-of-another-tensor",
        PLAIN
        + """
  fw = view(gw, [64])
  fu = view(gu, [64])
  flat = cat([fw, fu], dim=0)
  all = all-reduce avg(flat) over dp
- ru = narrow(all, 0, 0, 64)
- rw = narrow(all, 0, 64, 64)
+ rw = narrow(all, 0, 0, 64)
+ ru = narrow(all, 0, 64, 64)
  vw = view(rw, [8,8])
  vu = view(ru, [8,8])
  sgd_step(w!, vw, lr=0.1)
  sgd_step(u!, vu, lr=0.1)
""",
    ),
    *pair(
        "update of a weight that has no gradient",
        "update-without-gradient",
        HEAD
        + """
  dq = backward l (grad(l))
  dz = backward q (dq)
- dy, _ = backward z (dz)
+ dy, grad(u) = backward z (dz)
  _, grad(w) = backward y (dy)
- reduce-gradients w over dp by avg
+ reduce-gradients w, u over dp by avg
  update w, u
""",
    ),
    *correct(
        "loss that is returned divided for a log, and goes back whole",
        PLAIN.replace("loss l", "loss logged").replace("  dq = back", "  logged = div(l, 16)\n  dq = back")
        + """
  grad(w) = all-reduce avg(gw) over dp
  grad(u) = all-reduce avg(gu) over dp
  update w, u
""",
    ),
    *pair(
        "bias of which each rank adds a quarter",
        "doubled-allreduce",
        """
mesh tp=4
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
loss l f32[]
program
- c = div(b, 2)
+ c = div(b, 4)
  p = linear(x, w, c)
  y = all-reduce(p) over tp
  u = pow(y, 2)
  l = mean(u)
  du = backward l (grad(l))
  dy = backward u (du)
  _, grad(w), dc = backward p (dy)
  gb = backward c (dc)
  grad(b) = all-reduce(gb) over tp
  update w, b
""",
    ),
    *correct(
        "bias of which each rank adds a quarter, whose gradient a reducer sums",
        """
mesh tp=4
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
loss l f32[]
program
  c = mul(b, 0.25)
  p = linear(x, w)
  a = add(p, c)
  y = all-reduce(a) over tp
  u = pow(y, 2)
  l = mean(u)
  du = backward l (grad(l))
  dy = backward u (du)
  dp, dc = backward a (dy)
  _, grad(w) = backward p (dp)
  grad(b) = backward c (dc)
  reduce-gradients b over tp
  update w, b
""",
    ),
    *correct(
        "gradients clipped after the loss scale is undone",
        ONE_SCALED
        + """
  rw = all-reduce avg(gw) over dp
  rw = mul(rw, 0.000244140625)
  cw = clamp(rw, -1.0, 1.0)
  adam_step(w!, cw, m!, v!)
""",
    ),
    *correct(
        "weight of a loss that is no scale",
        HEAD.replace("loss l", "loss s")
        + "  s = mul(l, 3.0)\n  dl = backward s (grad(s))\n  dq = backward l (dl)"
        + BACK
        + """
  grad(w) = all-reduce avg(gw) over dp
  grad(u) = all-reduce avg(gu) over dp
  update w, u
""",
    ),
    *correct(
        "half of a mean, which is declared to be averaged, goes backward",
        HALF
        + """
  rw = all-reduce avg(gw) over dp
  sgd_step(w!, rw, lr=0.1)
""",
    ),
)
