"""Scales of losses and gradients that the optimizer step does not undo, or undoes by another number, and their right twins."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair, variants

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

HALVES = """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[8,16] tp:S(1)
loss l f32[]
program
  p = linear(x, w)
  c = div(b, 2)
  q = add(p, c)
  y = all-reduce(q) over tp
  a = gelu(y)
  l = mean(a)
  da = backward l (grad(l))
  dy = backward a (da)
  dp, dc = backward q (dy)
  g0 = backward c (dc)
  gb = all-reduce(g0) over tp
  _, grad(w) = backward p (dp)
  sgd_step(b!, gb, lr=0.1)
  update w
"""

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
    *variants(
        "bias of which each rank adds a half",
        HALVES,
        (
            "its gradient stays with each rank",
            "missing-gradient-reduction",
            [("gb = all-reduce(g0) over tp", "gb = identity(g0)")],
        ),
        (
            "its gradient is averaged over replicas alone",
            "wrong-gradient-scale",
            [("mesh tp=2", "mesh dp=2 tp=2"), ("gb = all-reduce(g0) over tp", "gb = all-reduce avg(g0) over dp")],
        ),
    ),
    *correct(
        "bias of which each rank adds a half, and takes twice its gradient",
        HALVES.replace("gb = all-reduce(g0) over tp", "gb = mul(g0, 2)"),
    ),
    *correct(
        "bias of which each rank adds a half, whose gradient is converted before it is summed",
        HALVES.replace(
            "gb = all-reduce(g0) over tp",
            'g1: f64[8] = to(g0, dtype="f64")\n  g2 = all-reduce(g1) over tp\n  gb: f32[8] = to(g2, dtype="f32")',
        ),
    ),
    *correct(
        "half of a bias that is added to a complete sum",
        HALVES.replace("q = add(p, c)\n  y = all-reduce(q) over tp", "q = all-reduce(p) over tp\n  y = add(q, c)")
        .replace("backward q (dy)", "backward y (dy)")
        .replace("gb = all-reduce(g0) over tp", "gb = identity(g0)"),
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
    *pair(
        "loss scale of the run undone for one of two weights",
        "wrong-gradient-scale",
        """
mesh dp=2
weight wa f16[8,8]
weight wb f16[8,8]
buffer scale f16[]
input x f16[8,8] dp:S(0)
loss l f16[]
program
  h = linear(x, wa)
  a = relu(h)
  y = linear(a, wb)
  q = pow(y, 2)
  s = mean(q)
  l = all-reduce avg(s) over dp
  ls = mul(l, scale)
  dl, _ = backward ls (grad(ls))
  dq = backward s (dl)
  dy = backward q (dq)
  da, gb = backward y (dy)
  dh = backward a (da)
  _, ga = backward h (dh)
  gb1 = all-reduce avg(gb) over dp
  ga1 = all-reduce avg(ga) over dp
  grad(wb) = div(gb1, scale)
- grad(wa) = identity(ga1)
+ grad(wa) = div(ga1, scale)
  update wa, wb
""",
    ),
    *pair(
        "sum over as many replicas as a batch has rows",
        "wrong-gradient-scale",
        """
mesh dp=4
micro-batches 2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input t f32[4,8] dp:S(0)
loss l f32[]
segment f forward (x, t) -> (y, l0, l)
  y = linear(x, w)
  l0 = mse_loss(y, t)
  l = div(l0, 2)
segment b backward mirror f (x, t, y, l0, l) -> ()
  d0 = backward l (grad(l))
  dy, _ = backward l0 (d0)
  _, grad(w) = backward y (dy)
segment s optimizer () -> ()
- reduce-gradients w over dp 
+ reduce-gradients w over dp by avg
  update w
program
  run f micro-batch 0
  run b micro-batch 0
  run f micro-batch 1
  run b micro-batch 1
  run s
""",
    ),
    *pair(
        "clipped by a norm that averages over the stages",
        "wrong-reduce-op",
        """
mesh pp=2
weight w1 f32[8,8]
weight w2 f32[8,8]
input x f32[4,8]
loss l f32[]
program pp=0
  h = linear(x, w1)
  send h to pp+1
  recv dh: f32[4,8] from pp+1
  _, grad(w1) = backward h (dh)
  q = pow(grad(w1), 2)
  t0 = sum(q)
- t = all-reduce avg(t0) over pp
+ t = all-reduce(t0) over pp
  n = sqrt(t)
  c = clamp(n, 1.0)
  grad(w1) = div(grad(w1), c)
  update w1
program pp=1
  recv h: f32[4,8] from pp-1
  y = linear(h, w2)
  l = mean(y)
  dy = backward l (grad(l))
  dh, grad(w2) = backward y (dy)
  send dh to pp-1
  q = pow(grad(w2), 2)
  t0 = sum(q)
- t = all-reduce avg(t0) over pp
+ t = all-reduce(t0) over pp
  n = sqrt(t)
  c = clamp(n, 1.0)
  grad(w2) = div(grad(w2), c)
  update w2
""",
    ),
    *pair(
        "clipped by a norm with one gradient twice and one not at all",
        "clipped-by-other-gradients",
        """
weight a f32[8,8]
weight b f32[8,8]
input x f32[4,8]
loss l f32[]
program
  h = linear(x, a)
  y = linear(h, b)
  l = mean(y)
  dy = backward l (grad(l))
  dh, grad(b) = backward y (dy)
  _, grad(a) = backward h (dh)
  pa = pow(grad(a), 2)
  qa = sum(pa)
  pb = pow(grad(b), 2)
  qb = sum(pb)
- t = add(qa, qa)
+ t = add(qa, qb)
  n = sqrt(t)
  c = clamp(n, 1.0)
  grad(a) = div(grad(a), c)
  grad(b) = div(grad(b), c)
  update a, b
""",
    ),
    *pair(
        "clipped by a norm with its gradient twice",
        "clipped-by-other-gradients",
        """
weight a f32[8,8]
input x f32[4,8]
loss l f32[]
program
  h = linear(x, a)
  l = mean(h)
  dh = backward l (grad(l))
  _, grad(a) = backward h (dh)
  pa = pow(grad(a), 2)
  qa = sum(pa)
- ta = add(qa, qa)
- n = sqrt(ta)
+ n = sqrt(qa)
  c = clamp(n, 1.0)
  grad(a) = div(grad(a), c)
  update a
""",
    ),
    *pair(
        "clipped by the norm of the sum of what ranks have, stepped with the mean",
        "clipped-by-other-gradients",
        """
mesh dp=4
weight w f32[16,8]
input x f32[8,8] dp:S(0)
input t f32[8,16] dp:S(0)
loss l
program
  h = linear(x, w)
  l = mse_loss(h, t)
  dh, _ = backward l (grad(l))
  _, g = backward h (dh)
  gr = all-reduce(g) over dp
  ga = div(gr, 4)
- q = pow(gr, 2)
+ q = pow(ga, 2)
  s = sum(q)
  n = sqrt(s)
  c = div(1.0, n)
  k = clamp(c, max=1.0)
  gk = mul(ga, k)
  sgd(w!, gk)
""",
    ),
    *pair(
        "gradient of the mean of two micro-batches written out, summed over ranks",
        "wrong-gradient-scale",
        """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input z f32[4,8] dp:S(0)
loss l
program
  h = linear(x, w)
  lx = mean(h)
  k = linear(z, w)
  lz = mean(k)
  a = add(lx, lz)
  l = div(a, 2)
  da = backward l (grad(l))
  dx, dz = backward a (da)
  dh = backward lx (dx)
  dk = backward lz (dz)
  _, gx = backward h (dh)
  _, gz = backward k (dk)
  g = add(gx, gz)
- grad(w) = all-reduce(g) over dp
+ grad(w) = all-reduce avg(g) over dp
  update w
""",
    ),
    *correct(
        "sum of two losses that is divided by the micro-batches",
        """
mesh dp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input t f32[4,8] dp:S(0)
loss k f32[]
segment forth forward (x, t) -> (y, l, q, a, m, k)
  y = linear(x, w)
  l = mse_loss(y, t)
  q = pow(y, 2)
  a = mean(q)
  m = add(l, a)
  k = div(m, 2)
segment back backward (x, t, y, l, q, a, m, k) -> ()
  dm = backward k (grad(k))
  dl, da = backward m (dm)
  dq = backward a (da)
  e = backward q (dq)
  d, _ = backward l (dl)
  dy = add(d, e)
  _, grad(w) = backward y (dy)
program
  run forth micro-batch 0-1
  run back micro-batch 0-1
  reduce-gradients w over dp by avg
  update w
""",
    ),
    *pair(
        "gradient that is multiplied again with the scale of the loss, a state",
        "wrong-gradient-scale",
        """
mesh dp=2
weight w f32[8,8]
weight v f32[8,8]
state scale f32[]
input x f32[8,8] dp:S(0)
input t f32[8,8] dp:S(0)
loss l f32[]
program
  h = linear(x, w)
  a = relu(h)
  y = linear(a, v)
  l = mse_loss(y, t)
  s = mul(l, scale)
  dl, _ = backward s (grad(s))
  dy, _ = backward l (dl)
  da, gv = backward y (dy)
  dh = backward a (da)
  _, gw = backward h (dh)
  rv = all-reduce avg(gv) over dp
  rw = all-reduce avg(gw) over dp
  inv = reciprocal(scale)
  grad(v) = mul(rv, inv)
- grad(w) = mul(rw, scale)
+ grad(w) = mul(rw, inv)
  update w, v
""",
    ),
)
