"""Correct programs in plan text, by name: no rule may call any of them an error."""

from __future__ import annotations

PROGRAMS = {
    "tensor-parallel mlp": """
mesh dp=2 tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8] dp:S(0)
input dl f32[8,8] dp:S(0)
output y f32[8,8] dp:S(0)
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  da, grad(w2) = backward p (dl)
  dh = backward a (da)
  dx, grad(w1) = backward h (dh)
  gx = all-reduce(dx) over tp
  reduce-gradients w1, w2 over dp by avg
  update w1, w2
""",
    "sequence parallel layer": """
mesh tp=2
weight g f32[8]
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8] tp:S(0)
input dl f32[8,8] tp:S(0)
output y f32[8,8] tp:S(0)
program
  n = rms_norm(x, g)
  f = all-gather(n, dim=0) over tp
  h = linear(f, w1)
  a = silu(h)
  p = linear(a, w2)
  r = reduce-scatter(p, dim=0) over tp
  y = add(r, x)
  dr, dx1 = backward y (dl)
  dp = all-gather(dr, dim=0) over tp
  da, grad(w2) = backward p (dp)
  dh = backward a (da)
  df, grad(w1) = backward h (dh)
  dn = reduce-scatter(df, dim=0) over tp
  dx2, grad(g) = backward n (dn)
  dx = add(dx1, dx2)
  reduce-gradients g over tp
  update w1, w2, g
""",
    "fully sharded data parallel": """
mesh dp=4
weight w1 f32[16,8] dp:S(0)
weight w2 f32[8,16] dp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,8] dp:S(0)
output y f32[8,8] dp:S(0)
program
  f1 = all-gather(w1, dim=0) over dp async h1 on comm
  f2 = all-gather(w2, dim=0) over dp async h2 on comm
  wait h1
  h = linear(x, f1)
  a = gelu(h)
  wait h2
  y = linear(a, f2)
  da, d2 = backward y (dl)
  s2: f32[2,16] = reduce-scatter(d2, dim=0) over dp async h3 on comm
  dh = backward a (da)
  _, d1 = backward h (dh)
  s1: f32[4,8] = reduce-scatter(d1, dim=0) over dp async h4 on comm
  wait h3, h4
  update w1, w2
""",
    "one forward one backward": """
mesh pp=2
micro-batches 3
weight w1 f32[8,8]
weight w2 f32[8,8]
input x f32[4,8]
input dl f32[4,8]
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w1)
  send h to pp+1
segment f1 forward stage 1 () -> (h, y)
  recv h: f32[4,8] from pp-1
  y = linear(h, w2)
segment b1 backward stage 1 mirror f1 (h, dl) -> (dh, grad(w2))
  dh, grad(w2) = backward (dl) of y = linear(h, w2)
  send dh to pp-1
segment b0 backward stage 0 mirror f0 (x) -> (grad(w1))
  recv dh: f32[4,8] from pp+1
  _, grad(w1) = backward (dh) of h = linear(x, w1)
segment step optimizer
  update w1
segment step1 optimizer
  update w2
program pp=0
  run f0 micro-batch 0
  run f0 micro-batch 1
  run b0 micro-batch 0
  run f0 micro-batch 2
  run b0 micro-batch 1
  run b0 micro-batch 2
  run step
program pp=1
  run f1 micro-batch 0
  run b1 micro-batch 0
  run f1 micro-batch 1
  run b1 micro-batch 1
  run f1 micro-batch 2
  run b1 micro-batch 2
  run step1
""",
    "bidirectional pipeline": """
mesh pp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
segment head forward stage 0 (x) -> (a)
  a = linear(x, w)
  send a to pp+1
segment tail forward stage 1 () -> (b)
  recv a: f32[4,8] from pp-1
  b = linear(a, w)
segment head2 forward stage 0 (x) -> (c)
  c = linear(x, w)
  send c to pp-1
segment tail2 forward stage 1 () -> (d)
  recv c: f32[4,8] from pp+1
  d = linear(c, w)
program pp=0
  run head micro-batch 0
  run tail2 micro-batch 1
program pp=1
  run head2 micro-batch 1 
  run tail micro-batch 0
""",
    "double buffering": """
mesh cp=2
input k0 f32[4,8] cp:S(0)
tensor b0 f32[2,8] storage even
tensor b1 f32[2,8] storage odd
program
  send k0 to cp+1 ring async s0
  recv b0 from cp-1 ring async r0
  o0 = gelu(k0)
  wait s0, r0
  send b0 to cp+1 ring async s1
  recv b1 from cp-1 ring async r1
  o1 = gelu(b0)
  wait s1, r1
  send b1 to cp+1 ring async s0
  recv b0 from cp-1 ring async r0
  o2 = gelu(b1)
  wait s0, r0
  o3 = gelu(b0)
""",
    "prefetch of the next layer's weight": """
mesh dp=2
weight w1 f32[8,8] dp:S(0)
weight w2 f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
program
  f1 = all-gather(w1, dim=0) over dp
  f2 = all-gather(w2, dim=0) over dp async next
  h = linear(x, f1)
  wait next
  y = linear(h, f2)
""",
    "data-parallel loss": """
mesh dp=4
weight w f32[10,8]
input x f32[8,8] dp:S(0)
input t i64[8] dp:S(0)
loss total
program
  logits = linear(x, w)
  l = cross_entropy(logits, t, reduction="sum")
  total = all-reduce(l) over dp
""",
    "data-parallel mean loss": """
mesh dp=4
input e f32[8,8] dp:S(0)
loss total
program
  l = mean(e)
  s = all-reduce(l) over dp
  total = div(s, 4)
""",
    "mean loss, averaged": """
mesh dp=4
input e f32[8,8] dp:S(0)
loss total
program
  l = mean(e)
  total = all-reduce avg(l) over dp
""",
    "two partial sums, one all-reduce": """
mesh tp=2
weight w1 f32[8,16] tp:S(1)
weight w2 f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
input r f32[4,8]
output y f32[4,8]
program
  a = linear(x, w1)
  b = linear(x, w2)
  c = add(a, b)
  d = mul(c, 0.5)
  s = all-reduce(d) over tp
  y = add(s, r)
""",
    "head-sharded attention": """
mesh tp=2
weight wq f32[16,16] tp:S(0)
weight wk f32[16,16] tp:S(0)
weight wv f32[16,16] tp:S(0)
weight wo f32[16,16] tp:S(1)
input x f32[2,8,16]
output y f32[2,8,16]
program
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  q4: f32[2,8,2,4] = view(q, size=[2,8,2,4])
  k4: f32[2,8,2,4] = view(k, size=[2,8,2,4])
  v4: f32[2,8,2,4] = view(v, size=[2,8,2,4])
  qt = transpose(q4, dim0=1, dim1=2)
  kt = transpose(k4, dim0=1, dim1=2)
  vt = transpose(v4, dim0=1, dim1=2)
  ktt = transpose(kt, dim0=2, dim1=3)
  s = matmul(qt, ktt)
  s2 = div(s, 2.0)
  p = softmax(s2, dim=-1)
  o = matmul(p, vt)
  ot = transpose(o, dim0=1, dim1=2)
  of: f32[2,8,8] = view(ot, size=[2,8,8])
  z = linear(of, wo)
  y = all-reduce(z) over tp
""",
    "ring attention": """
mesh cp=2
input q f32[8,8] cp:S(0)
input k f32[8,8] cp:S(0)
input v f32[8,8] cp:S(0)
program
  kt = transpose(k, dim0=0, dim1=1)
  send k to cp+1 ring batch ring0 async a
  recv k1: f32[4,8] from cp-1 ring batch ring0 async b
  send v to cp+1 ring batch ring0 async c
  recv v1: f32[4,8] from cp-1 ring batch ring0 async d
  s0 = flash_block(q, k, v)
  wait a, b, c, d
  s1 = flash_block(q, k1, v1)
  y = merge_log_sum_exp(s0, s1)
""",
    "sequence to head exchange": """
mesh cp=2
input q f32[8,4,16] cp:S(0)
output o f32[8,4,16] cp:S(0)
program
  h = all-to-all(q, dim=1, concat-dim=0) over cp
  s = softmax(h, dim=0)
  o = all-to-all(s, dim=0, concat-dim=1) over cp
""",
    "vocabulary-parallel embedding": """
mesh tp=2
weight e f32[32,8] tp:S(0)
input ids i64[4]
output y f32[4,8]
program
  p = embedding(ids, e)
  y = all-reduce(p) over tp
""",
    "vocabulary-parallel cross-entropy by hand": """
mesh tp=2
weight w f32[32,8] tp:S(0)
input x f32[4,8]
program
  logits = linear(x, w)
  m = local_max(logits)
  mm = all-reduce max(m) over tp
  z = sub_max(logits, mm)
  e = exp(z)
  s = local_sum(e)
  ss = all-reduce(s) over tp
  l = log(ss)
""",
    "squared norm of sharded gradients": """
mesh tp=2
weight w f32[16,8] tp:S(0)
program
  q = mul(w, w)
  s = sum(q)
  n = all-reduce(s) over tp
  r = sqrt(n)
""",
    "distributed statistics": """
mesh tp=2
input x f32[4,16] tp:S(1)
program
  q = mul(x, x)
  s = sum(q, dim=1, keepdim=True)
  t = all-reduce(s) over tp
  m = div(t, 16.0)
  e = add(m, 1e-5)
  r = rsqrt(e)
  y = mul(x, r)
""",
    "hybrid sharding": """
mesh replica=2 shard=2
weight w f32[16,8] shard:S(0)
input x f32[8,8] replica:S(0) shard:S(0)
input dl f32[8,16] replica:S(0) shard:S(0)
program
  full = all-gather(w, dim=0) over shard
  y = linear(x, full)
  _, d = backward y (dl)
  s = reduce-scatter(d, dim=0) over shard
  g = all-reduce(s) over replica
  update w
""",
    "parallel logits": """
mesh dp=2 tp=2
weight w f32[32,8] tp:S(0)
input x f32[8,8] dp:S(0)
output all f32[8,32] dp:S(0)
program
  logits = linear(x, w)
  all = all-gather(logits, dim=1) over tp
""",
    "bias after the reduction": """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
output y f32[4,8]
program
  p = linear(x, w)
  r = all-reduce(p) over tp
  y = add(r, b)
""",
    "column-parallel bias": """
mesh tp=2
weight w f32[16,8] tp:S(0)
weight b f32[16] tp:S(0)
input x f32[4,8]
output y f32[4,16] tp:S(1)
program
  h = linear(x, w)
  y = add(h, b)
""",
    "even ranks send first": """
mesh cp=4
input x f32[4,8]
program ranks 0,2
  send x to cp+1 ring
  recv a: f32[4,8] from cp-1 ring
program ranks 1,3
  recv a: f32[4,8] from cp-1 ring
  send x to cp+1 ring
""",
    "asynchronous sends waited for at the end": """
mesh pp=2
micro-batches 4
weight w f32[8,8]
input x f32[4,8]
segment front forward stage 0 (x) -> (h)
  h = linear(x, w)
  send h to pp+1 async out
segment finish forward stage 0 () -> ()
  wait out
segment back forward stage 1 () -> (y)
  recv h: f32[4,8] from pp-1 async in
  wait in
  y = linear(h, w)
program pp=0
  run front micro-batch 0-3
  run finish micro-batch 0-3
program pp=1
  run back micro-batch 0-3
""",
    "events between streams": """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w) on compute
  record ready on compute
  await ready on comm
  y = all-reduce(p) over tp on comm
  record done on comm
  await done on compute
  a = gelu(y) on compute
""",
    "expert parallel dispatch and combine": """
mesh ep=2
weight w f32[2,8,8] ep:S(0)
input tokens f32[8,8] ep:S(0)
program
  d: f32[4,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[1,3], receive-splits=[2,2]) over ep
  e = experts(d, w)
  c: f32[4,8] = all-to-all(e, dim=0, concat-dim=0, splits=[2,2], receive-splits=[1,3]) over ep
  y = add(c, tokens)
""",
    "tied embedding over pipeline stages": """
mesh pp=2
weight e f32[32,8]
input ids i64[4]
input dl f32[4,32]
program pp=0
  y = embedding(ids, e)
  send y to pp+1
  recv dy: f32[4,8] from pp+1
  _, grad(e) = backward y (dy)
  reduce-gradients e over pp
  update e
program pp=1
  recv y: f32[4,8] from pp-1
  a = gelu(y)
  logits = linear(a, e)
  da, grad(e) = backward logits (dl)
  dy: f32[4,8] = backward a (da)
  send dy to pp-1
  reduce-gradients e over pp
  update e
""",
}
