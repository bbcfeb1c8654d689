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
    *pair(
        "copies of a head of keys, cut along the axis of the copies",
        "mismatched-shards",
        """
mesh kv=2 rep=2
weight wq f32[32,16] kv:S(0) rep:S(0)
-weight wk f32[8,16] rep:S(0)
-weight wv f32[8,16] rep:S(0)
+weight wk f32[8,16] kv:S(0)
+weight wv f32[8,16] kv:S(0)
input x f32[2,6,16]
output o
program
  q0: f32[2,6,8] = linear(x, wq)
  k0: f32[2,6,4] = linear(x, wk)
  v0: f32[2,6,4] = linear(x, wv)
  q1: f32[2,6,2,4] = reshape(q0, [2,6,2,4])
  q: f32[2,2,6,4] = transpose(q1, 1, 2)
  k1: f32[2,6,1,4] = reshape(k0, [2,6,1,4])
  k2: f32[2,1,6,4] = transpose(k1, 1, 2)
  k: f32[2,2,6,4] = expand(k2, [2,2,6,4])
  v1: f32[2,6,1,4] = reshape(v0, [2,6,1,4])
  v2: f32[2,1,6,4] = transpose(v1, 1, 2)
  v: f32[2,2,6,4] = expand(v2, [2,2,6,4])
  o: f32[2,2,6,4] = scaled_dot_product_attention(q, k, v)
""",
    ),
    *pair(
        "a step before its gradient is divided",
        "use-before-definition",
        """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  l0 = sum(y)
  l = all-reduce(l0) over dp
  dy = backward l0 (grad(l))
  _, g = backward y (dy)
  r = all-reduce(g) over dp
- sub_(w!, d)
  d = mul(r, 0.1)
+ sub_(w!, d)
""",
    ),
    *pair(
        "a gathered weight that the backward pass names and nothing gathers",
        "use-before-definition",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[4,8] dp:S(0)
loss l f32[]
program
  whole = all-gather(w, dim=0) over dp
  y = linear(x, whole)
  l0 = sum(y)
  l = all-reduce(l0) over dp
  dy = backward l0 (grad(l))
- _, g = backward (dy) of y = linear(x, again)
+ again = all-gather(w, dim=0) over dp
+ _, g = backward (dy) of y = linear(x, again)
  grad(w) = reduce-scatter(g, dim=0) over dp
  update w
""",
    ),
    *pair(
        "one rank goes back from a gradient that only the other makes",
        "use-before-definition",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8]
loss l f32[]
program tp=0
  h = linear(x, w)
  a = gelu(h)
  l0 = sum(a)
  l = all-reduce(l0) over tp
  da = backward l0 (grad(l))
  dh = backward a (da)
  _, grad(w) = backward h (dh)
program tp=1
  h = linear(x, w)
  a = gelu(h)
  l0 = sum(a)
  l = all-reduce(l0) over tp
  da = backward l0 (grad(l))
+ dh = backward a (da)
  _, grad(w) = backward h (dh)
""",
    ),
    *pair(
        "the one weight is reduced and updated without its backward",
        "update-without-gradient",
        """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  q = pow(y, 2)
  l0 = sum(q)
  l = all-reduce(l0) over dp
  dq = backward l0 (grad(l))
  dy = backward q (dq)
+ _, grad(w) = backward y (dy)
  reduce-gradients w over dp
  update w
""",
    ),
    *pair(
        "backward starts with the activation in the place of its gradient",
        "gradient-of-another-tensor",
        """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  a = gelu(y)
  l0 = sum(a)
  l = all-reduce(l0) over dp
  da = backward l0 (grad(l))
- dy = backward a (y)
+ dy = backward a (da)
  _, grad(w) = backward y (dy)
  reduce-gradients w over dp
  update w
""",
    ),
    *pair(
        "the backward of a gathered weight for one micro-batch of two",
        "unbalanced-backward",
        """
mesh dp=2
micro-batches 2
weight w f32[16,8] dp:S(0)
input x f32[4,8] dp:S(0)
loss l f32[]
segment f forward (x) -> (l, y, l0)
  wg = all-gather(w, dim=0) over dp
  y = linear(x, wg)
  l0 = sum(y)
  l = all-reduce(l0) over dp
segment b backward (x, y, l0) -> ()
  again = all-gather(w, dim=0) over dp
  dy = backward l0 (grad(l))
  _, gw = backward (dy) of y = linear(x, again)
  grad(w) = reduce-scatter(gw, dim=0) over dp
segment u optimizer
  update w
program
  run f micro-batch 0
  run b micro-batch 0
  run f micro-batch 1
+ run b micro-batch 1
  run u
""",
    ),
    *pair(
        "a backward operator that runs twice",
        "unbalanced-backward",
        """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  l0 = sum(y)
  l = all-reduce(l0) over dp
  dy = backward l0 (grad(l))
  _, grad(w) = backward y (dy)
- _, grad(w) = backward y (dy)
  reduce-gradients w over dp
  update w
""",
    ),
    *pair(
        "a flat piece of a weight is stepped after it was gathered",
        "updated-pieces-not-gathered",
        """
mesh dp=2
weight w f32[8,8]
state m f32[64] dp:S(0)
state v f32[64] dp:S(0)
input x f32[4,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  l0 = sum(y)
  l = all-reduce(l0) over dp
  dy = backward l0 (grad(l))
  _, g = backward y (dy)
  flat = reshape(g, [64])
  gs = reduce-scatter(flat, dim=0) over dp
  wf = reshape(w, [64])
  ws = chunk(wf, dim=0) over dp
- new = all-gather(ws, dim=0) over dp
  adam_step(ws!, gs, m!, v!, lr=0.1)
+ new = all-gather(ws, dim=0) over dp
  w = reshape(new, [8,8])
""",
    ),
    *pair(
        "the far edge of an image handed to the neighbour",
        "scan-over-shards",
        """
mesh sp=2
weight k f32[3,3,3,3]
input x f32[1,3,8,8] sp:S(2)
program sp=0
- e: f32[1,3,1,8] = narrow(x, 2, 0, 1)
+ e: f32[1,3,1,8] = narrow(x, 2, 3, 1)
  send e to sp+1
  recv f: f32[1,3,1,8] from sp+1
  z = zeros([1,3,1,8])
  c = cat([z, x, f], dim=2)
  o = conv2d(c, k, padding=[0,1])
program sp=1
  recv e: f32[1,3,1,8] from sp-1
  f: f32[1,3,1,8] = narrow(x, 2, 0, 1)
  send f to sp-1
  z = zeros([1,3,1,8])
  c = cat([e, x, z], dim=2)
  o = conv2d(c, k, padding=[0,1])
""",
    ),
    *variants(
        "convolution of rows that ranks share out, reflected at the ends of the image",
        """
mesh sp=2
weight k f32[3,3,3,3]
input x f32[1,3,8,8] sp:S(2)
program sp=0
  e: f32[1,3,1,8] = narrow(x, 2, 3, 1)
  send e to sp+1
  recv f: f32[1,3,1,8] from sp+1
  z: f32[1,3,1,8] = narrow(x, 2, 1, 1)
  c = cat([z, x, f], dim=2)
  o = conv2d(c, k, padding=[0,1])
program sp=1
  recv e: f32[1,3,1,8] from sp-1
  f: f32[1,3,1,8] = narrow(x, 2, 0, 1)
  send f to sp-1
  z: f32[1,3,1,8] = narrow(x, 2, 2, 1)
  c = cat([e, x, z], dim=2)
  o = conv2d(c, k, padding=[0,1])
""",
        ("a row from further away", "scan-over-shards", [("narrow(x, 2, 3, 1)", "narrow(x, 2, 2, 1)")]),
        ("the row of the other rank behind", "scan-over-shards", [("cat([e, x, z], dim=2)", "cat([x, e, z], dim=2)")]),
        ("the row of the other rank in front", "scan-over-shards", [("cat([z, x, f], dim=2)", "cat([z, f, x], dim=2)")]),
    ),
    *correct(
        "convolution of rows of a batch that ranks exchange",
        """
mesh dp=2
weight k f32[6,3,3,3]
input x f32[8,3,8,8] dp:S(0)
program dp=0
  e: f32[2,3,8,8] = narrow(x, 0, 0, 2)
  send e to dp+1
  recv f: f32[2,3,8,8] from dp+1
  c = cat([e, f], dim=0)
  o = conv2d(c, k, padding=1)
program dp=1
  recv e: f32[2,3,8,8] from dp-1
  f: f32[2,3,8,8] = narrow(x, 0, 0, 2)
  send f to dp-1
  c = cat([e, f], dim=0)
  o = conv2d(c, k, padding=1)
""",
    ),
    *pair(
        "every rank weighs its experts with the weights of the first",
        "contraction-of-mismatched-shards",
        """
mesh ep=2
weight e f32[4,8,8] ep:S(0)
weight g f32[4,8]
input x f32[6,8]
output z
program
  s = linear(x, g)
  q = softmax(s, dim=1)
- mine = narrow(q, 1, 0, 2)
+ mine = chunk(q, dim=1) over ep
  y = einsum(x, e, equation="th,eho->eto")
  p = einsum(mine, y, equation="te,eto->to")
  z = all-reduce(p) over ep
""",
    ),
    *pair(
        "a causal mask by local places, without a dimension of heads",
        "scan-over-shards",
        """
mesh cp=2
input q f32[2,16,8] cp:S(1)
input k f32[2,16,8]
input v f32[2,16,8]
program
- o = scaled_dot_product_attention(q, k, v, is_causal=True)
+ o = scaled_dot_product_attention(q, k, v)
""",
    ),
)
