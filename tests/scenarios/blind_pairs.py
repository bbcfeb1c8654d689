"""Mistakes and their right twins as they were written before the rules were looked at."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair, variants

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
CLIPPED = """
mesh tp=2
weight a f32[16,8] tp:S(0)
weight b f32[8,16] tp:S(1)
weight n f32[8]
input x f32[6,8]
loss l f32[]
program
  e = mul(x, n)
  h = linear(e, a)
  p = linear(h, b)
  r = all-reduce(p) over tp
  s = square(r)
  l = sum(s)
  ds = backward l (grad(l))
  dr = backward s (ds)
  dh, gb = backward p (dr)
  de0, ga = backward h (dh)
  de = all-reduce(de0) over tp
  _, gn = backward e (de)
  a2 = square(ga)
  b2 = square(gb)
  n2 = square(gn)
  qa = sum(a2)
  qb = sum(b2)
  qn = sum(n2)
  one = add(qa, qb)
  both = all-reduce(one) over tp
  t = add(both, qn)
  root = sqrt(t)
  c0 = div(1.0, root)
  c = clamp(c0, max=1.0)
  grad(a) = mul(ga, c)
  grad(b) = mul(gb, c)
  grad(n) = mul(gn, c)
  update a, b, n
"""
SCATTERED = """
mesh dp=2
micro-batches 2
weight w f32[16,8]
state m f32[16,8] dp:S(0)
state v f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
loss l f32[]
segment forth forward (x) -> (y, k, l)
  y = linear(x, w)
  k = mean(y)
  l = div(k, 2)
segment back backward (x, y, k, l) -> (g)
  dk = backward l (grad(l))
  dy = backward k (dk)
  _, gw = backward y (dy)
  g: f32[8,8] = reduce-scatter avg(gw, dim=0) over dp
segment step optimizer (g0, g1) -> ()
  t = add(g0, g1)
  own = chunk(w, dim=0) over dp
  adam_step(own!, t, m!, v!, lr=0.1)
  w = all-gather(own, dim=0) over dp
program
  run forth micro-batch 0
  run back micro-batch 0 (x, y, k, l) -> (g0)
  run forth micro-batch 1
  run back micro-batch 1 (x, y, k, l) -> (g1)
  run step (g0, g1) -> ()
"""
STAGES = """
mesh pp=2
weight a f32[8,8]
weight b f32[8,8]
input x f32[6,8]
loss l f32[]
program pp=0
  u = linear(x, a)
  send u to pp+1
  recv du: f32[6,8] from pp+1
  _, g = backward u (du)
  q = square(g)
  s = sum(q)
  t = all-reduce(s) over pp
  c = rsqrt(t)
  grad(a) = mul(g, c)
  update a
program pp=1
  recv u: f32[6,8] from pp-1
  y = linear(u, b)
  l = sum(y)
  dy = backward l (grad(l))
  du, g = backward y (dy)
  send du to pp-1
  q = square(g)
  s = sum(q)
  t = all-reduce(s) over pp
  c = rsqrt(t)
  grad(b) = mul(g, c)
  update b
"""
EXPERTS = """
mesh ep=2
weight r f32[2,8]
weight w f32[2,8,8] ep:S(0)
weight v f32[8,8]
input x f32[6,8]
output y f32[6,8]
program
  z = linear(x, r)
  g = softmax(z, dim=-1)
  c: f32[6,1] = chunk(g, dim=1) over ep
  w0 = squeeze(w, 0)
  h = matmul(x, w0)
  o = mul(h, c)
  d = linear(x, v)
"""
SHARES = """
  half = div(d, 2)
  t = add(o, half)
  y = all-reduce(t) over ep
"""
AVERAGE = """
  two = mul(o, 2)
  t = add(two, d)
  y = all-reduce avg(t) over ep
"""
DIVIDED = AVERAGE.replace("y = all-reduce avg(t) over ep", "s = all-reduce(t) over ep\n  y = div(s, 2)")

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
    *variants(
        "clipping by the norm of all gradients of a tensor-parallel layer",
        CLIPPED,
        (
            "a gradient that is left out of the norm",
            "clipped-by-other-gradients",
            [("one = add(qa, qb)", "one = identity(qa)")],
        ),
        ("a gradient that is not scaled", "clipped-by-other-gradients", [("grad(b) = mul(gb, c)", "grad(b) = identity(gb)")]),
        (
            "a gradient that is counted twice",
            "clipped-by-other-gradients",
            [("t = add(both, qn)", "t2 = add(both, qn)\n  t = add(t2, qn)")],
        ),
    ),
    *pair(
        "copies of an embedding under two names",
        "tied-gradient-not-reduced",
        """
mesh pp=2
weight e0 f32[16,8] of e[16,8]
weight e1 f32[16,8] of e[16,8]
input t i64[6]
loss l f32[]
program pp=0
  h = embedding(t, e0)
  send h to pp+1
  recv dh: f32[6,8] from pp+1
  _, grad(e0) = backward h (dh)
+ reduce-gradients e0 over pp
  update e0
program pp=1
  recv h: f32[6,8] from pp-1
  z = linear(h, e1)
  l = mean(z)
  dz = backward l (grad(l))
  dh, grad(e1) = backward z (dz)
  send dh to pp-1
+ reduce-gradients e1 over pp
  update e1
""",
    ),
    *pair(
        "copies of a stage that two directions run for other micro-batches",
        "tied-gradient-not-reduced",
        """
mesh pp=2
micro-batches 2
weight w0 f32[8,8] of w[8,8]
weight w1 f32[8,8] of w[8,8]
input x f32[4,8]
loss l f32[]
loss k f32[]
segment down forward (x) -> (y, l)
  y = linear(x, w0)
  l = mean(y)
segment down.back backward (x, y, l) -> ()
  dy = backward l (grad(l))
  _, grad(w0) = backward y (dy)
segment up forward (x) -> (z, k)
  z = linear(x, w1)
  k = mean(z)
segment up.back backward (x, z, k) -> ()
  dz = backward k (grad(k))
  _, grad(w1) = backward z (dz)
segment step0 optimizer
+ reduce-gradients w0 over pp
  update w0
segment step1 optimizer
+ reduce-gradients w1 over pp
  update w1
program pp=0
  run down micro-batch 0
  run down.back micro-batch 0
  run step0
program pp=1
  run up micro-batch 1
  run up.back micro-batch 1
  run step1
""",
    ),
    *variants(
        "gradients of two micro-batches under names of their own",
        SCATTERED,
        ("one that nothing makes", "use-before-definition", [("run step (g0, g1)", "run step (g0, g2)")]),
        (
            "one that is made after the step",
            "use-before-definition",
            [
                ("  run step (g0, g1) -> ()\n", ""),
                ("  run forth micro-batch 1\n", "  run step (g0, g1) -> ()\n  run forth micro-batch 1\n"),
            ],
        ),
    ),
    *variants(
        "clipping by the mean of a norm with itself",
        CLIPPED.replace("root = sqrt(t)", "n0 = sqrt(t)\n  n1 = add(n0, n0)\n  root = div(n1, 2)"),
        ("a sum in place of the mean", "clipped-by-other-gradients", [("root = div(n1, 2)", "root = identity(n1)")]),
    ),
    *correct(
        "clipping by a norm that something is added to and taken from",
        CLIPPED.replace("root = sqrt(t)", "n0 = sqrt(t)\n  n1 = add(n0, qn)\n  root = sub(n1, qn)"),
    ),
    *correct(
        "clipping by shares that every rank adds of what all hold",
        CLIPPED.replace("one = add(qa, qb)", "some = add(qa, qb)\n  share = div(qn, 2)\n  one = add(some, share)").replace(
            "t = add(both, qn)", "t = identity(both)"
        ),
    ),
    *variants(
        "clipping by a norm of gradients of a loss with a scale",
        CLIPPED.replace("root = sqrt(t)", "n0 = sqrt(t)\n  root = div(n0, 64)"),
        (
            "a gradient that is counted twice",
            "clipped-by-other-gradients",
            [("t = add(both, qn)", "t2 = add(both, qn)\n  t = add(t2, qn)")],
        ),
    ),
    *variants(
        "clipping by the norm of all pipeline stages",
        STAGES,
        ("each by the norm of its own", "clipped-by-other-gradients", [("t = all-reduce(s) over pp", "t = identity(s)")]),
    ),
    *variants(
        "clipping that divides by the norm of all pipeline stages",
        STAGES.replace("c = rsqrt(t)", "c = sqrt(t)").replace("mul(g, c)", "div(g, c)"),
        ("each by the norm of its own", "clipped-by-other-gradients", [("t = all-reduce(s) over pp", "t = identity(s)")]),
    ),
    *pair(
        "shared expert in what the ranks of the experts sum",
        "bias-added-to-partial",
        EXPERTS
        + """
- t = add(o, d)
- y = all-reduce(t) over ep
+ t = all-reduce(o) over ep
+ y = add(t, d)
""",
    ),
    *correct("shares of a shared expert in what the ranks of the experts sum", EXPERTS + SHARES),
    *correct("average of what the ranks of the experts have with a shared expert", EXPERTS + AVERAGE),
    *correct("the same average as a sum that is divided", EXPERTS + DIVIDED),
)
