"""Gradients that are added up once, for their own weight and alike on all its copies, and their right twins."""

from __future__ import annotations

from tests.scenarios.scenario import pair

SHARDS = """
mesh dp=2
weight a f32[8,8] dp:S(0)
weight b f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
loss l f32[] dp:P
program
  fa: f32[8,8] = all-gather(a, dim=0) over dp
  h = linear(x, fa)
  u = tanh(h)
"""
TIED = """
mesh pp=2
weight e f32[16,8]
weight b f32[8,8]
input x f32[6,16]
loss l f32[]
program pp=0
  et = transpose(e, 0, 1)
  h = linear(x, et)
  send h to pp+1
  recv dh: f32[6,8] from pp+1
  _, det = backward h (dh)
  g0 = backward et (det)
"""
SKIP = """
weight a f32[8,8]
weight b f32[8,8]
input x f32[6,8]
loss l f32[]
program
  h = linear(x, a)
  u = tanh(h)
  y = linear(u, b)
  z = add(y, u)
  l = sum(z)
  dz = backward l (grad(l))
  dy, d1 = backward z (dz)
  d0, grad(b) = backward y (dy)
"""

SCENARIOS = (
    *pair(
        "gradient of keys that all query heads share averaged over their ranks",
        "wrong-gradient-scale",
        """
mesh tp=2
weight q f32[16,8] tp:S(0)
weight k f32[8,8]
input x f32[6,8]
loss l f32[] tp:P
program
  one = linear(x, q)
  two = linear(x, k)
  three = add(two, two)
  s = sum(three, dim=1, keepdim=True)
  p = mul(one, s)
  l = sum(p)
  dp = backward l (grad(l))
  do, ds = backward p (dp)
  dt = backward s (ds)
  d0, d1 = backward three (dt)
  d = add(d0, d1)
  _, g = backward two (d)
  _, grad(q) = backward one (do)
- grad(k) = all-reduce avg(g) over tp
+ grad(k) = all-reduce(g) over tp
  update q, k
""",
    ),
    *pair(
        "gathered weight of another layer",
        "gradient-of-another-tensor",
        SHARDS
        + """
- fb: f32[8,8] = all-gather(a, dim=0) over dp
+ fb: f32[8,8] = all-gather(b, dim=0) over dp
  y = linear(u, fb)
  l = sum(y)
  dy = backward l (grad(l))
  du, gb = backward y (dy)
  dh = backward u (du)
  _, ga = backward h (dh)
  grad(b): f32[4,8] = reduce-scatter(gb, dim=0) over dp
  grad(a): f32[4,8] = reduce-scatter(ga, dim=0) over dp
  update a, b
""",
    ),
    *pair(
        "gradients of gathered weights scattered into each other's place",
        "gradient-of-another-tensor",
        SHARDS
        + """
  fb: f32[8,8] = all-gather(b, dim=0) over dp
  y = linear(u, fb)
  l = sum(y)
  dy = backward l (grad(l))
  du, gb = backward y (dy)
  dh = backward u (du)
  _, ga = backward h (dh)
- grad(b): f32[4,8] = reduce-scatter(ga, dim=0) over dp
- grad(a): f32[4,8] = reduce-scatter(gb, dim=0) over dp
+ grad(b): f32[4,8] = reduce-scatter(gb, dim=0) over dp
+ grad(a): f32[4,8] = reduce-scatter(ga, dim=0) over dp
  update a, b
""",
    ),
    *pair(
        "copy of a tied weight stepped with its own part of the sum",
        "divergent-replicas",
        TIED
        + """
  g1 = all-reduce(g0) over pp
- grad(e) = identity(g0)
+ grad(e) = identity(g1)
  update e
program pp=1
  recv h: f32[6,8] from pp-1
  y = linear(h, b)
  u = tanh(y)
  z = linear(u, e)
  l = sum(z)
  dz = backward l (grad(l))
  du, g0 = backward z (dz)
  dy = backward u (du)
  dh, grad(b) = backward y (dy)
  send dh to pp-1
  grad(e) = all-reduce(g0) over pp
  update e, b
""",
    ),
    *pair(
        "gradient of a skip connection added twice",
        "gradient-of-another-tensor",
        SKIP
        + """
  d2 = add(d0, d1)
- du = add(d2, d1)
+ du = identity(d2)
  dh = backward u (du)
  _, grad(a) = backward h (dh)
  update a, b
""",
    ),
    *pair(
        "value that is read twice has two gradients, which may be equal",
        "gradient-of-another-tensor",
        SKIP.replace("add(y, u)", "add(u, u)")
        .replace("d0, grad(b) = backward y (dy)", "d0 = identity(dy)")
        .replace("update a, b", "")
        + """
- d2 = add(d0, d1)
- du = add(d2, d1)
+ du = add(d0, d1)
  dh = backward u (du)
  _, grad(a) = backward h (dh)
  update a
""",
    ),
)
