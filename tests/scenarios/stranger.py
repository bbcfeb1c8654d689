"""Mistakes of models that the other rooms do not have, and the correct ways next to them."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair, variants

SCENARIOS = [
    *pair(
        "a head of keys that all queries share gets a part of its gradient from every rank",
        "missing-gradient-reduction",
        """
mesh tp=4
weight wq f32[64,32] tp:S(0)
weight wkv f32[16,32]
input x f32[1,12,32]
loss l
program
  q = linear(x, wq)
  k = linear(x, wkv)
  qv = view(q, [1,12,1,16])
  kv = view(k, [1,12,1,16])
  qh = transpose(qv, 1, 2)
  kh = transpose(kv, 1, 2)
  c = scaled_dot_product_attention(qh, kh, kh)
  l0 = mean(c)
  l = all-reduce avg(l0) over tp
  dc = backward l0 (grad(l))
  dqh, dk, dv = backward c (dc)
  dkh = add(dk, dv)
  dkv = backward kh (dkh)
  dkk = backward kv (dkv)
- _, grad(wkv) = backward k (dkk)
+ _, g = backward k (dkk)
+ grad(wkv) = all-reduce avg(g) over tp
  update wkv
""",
    ),
    *variants(
        "gradients reduced in one bucket",
        """
mesh dp=4
weight w1 f32[8,8]
weight w2 f32[8,8]
input x f32[16,8] dp:S(0)
loss l
program
  h = linear(x, w1)
  o = linear(h, w2)
  l = mean(o)
  do = backward l (grad(l))
  dh, g2 = backward o (do)
  _, g1 = backward h (dh)
  f1 = flatten(g1)
  f2 = flatten(g2)
  b = cat([f1, f2], dim=0)
  r = all-reduce(b) over dp
  s = div(r, 4.0)
  u1 = narrow(s, 0, 0, 64)
  u2 = narrow(s, 0, 64, 64)
  grad(w1) = view(u1, [8,8])
  grad(w2) = view(u2, [8,8])
  update w1, w2
""",
        ("averaged and divided", "wrong-gradient-scale", [("all-reduce(b)", "all-reduce avg(b)")]),
        ("not divided", "wrong-gradient-scale", [("div(r, 4.0)", "mul(r, 1.0)")]),
        ("not reduced", "missing-gradient-reduction", [("all-reduce(b) over dp", "mul(b, 1.0)")]),
    ),
    *variants(
        "one loss, reductions of each gradient",
        """
mesh dp=2 cp=2
weight a f32[16,16]
weight b f32[16,16]
weight c f32[16,16]
input x f32[4,8,16] dp:S(0) cp:S(1)
loss l
program
  h = linear(x, a)
  i = linear(h, b)
  y = linear(i, c)
  l = mean(y)
  dy = backward l (grad(l))
  di, gc = backward y (dy)
  dh, gb = backward i (di)
  _, ga = backward h (dh)
  grad(a) = all-reduce avg(ga) over dp,cp
  grad(b) = all-reduce avg(gb) over dp,cp
  grad(c) = all-reduce avg(gc) over dp,cp
  update a, b, c
""",
        ("one is summed", "wrong-gradient-scale", [("all-reduce avg(gb)", "all-reduce(gb)")]),
    ),
    *variants(
        "tokens over ranks, pooled by their mean",
        """
mesh cp=4
weight w f32[10,24]
input x f32[4,64,24] cp:S(1)
output z f32[4,10]
program
  p0 = mean(x, dim=1)
  p = all-reduce avg(p0) over cp
  z = linear(p, w)
""",
        ("means summed", "wrong-reduce-op", [("all-reduce avg(p0)", "all-reduce(p0)")]),
    ),
    *correct(
        "means summed, then divided",
        """
mesh dp=2 cp=2
weight w f32[10,24]
input x f32[4,64,24] dp:S(0) cp:S(1)
output z f32[10]
program
  p0 = mean(x, dim=[0,1])
  p1 = all-reduce(p0) over dp,cp
  p = div(p1, 4.0)
  z = linear(p, w)
""",
    ),
    *correct(
        "means divided, then summed",
        """
mesh cp=4
weight w f32[10,24]
input x f32[4,64,24] cp:S(1)
output z f32[4,10]
program
  p0 = mean(x, dim=1)
  p1 = div(p0, 4.0)
  p = all-reduce(p1) over cp
  z = linear(p, w)
""",
    ),
    *pair(
        "the gradient of an activation averaged over shards of the sequence",
        "wrong-reduce-op",
        """
mesh tp=2
weight w f32[64,16] tp:S(0)
input x f32[4,8,16] tp:S(1)
input dy f32[4,8,64] tp:S(2)
weight g f32[16]
program
  n = rms_norm(x, [16], g)
  f: f32[4,8,16] = all-gather(n, dim=1) over tp
  y = linear(f, w)
  df, grad(w) = backward y (dy)
- dn: f32[4,4,16] = reduce-scatter avg(df, dim=1) over tp
+ dn: f32[4,4,16] = reduce-scatter(df, dim=1) over tp
  _, gg = backward n (dn)
  grad(g) = all-reduce(gg) over tp
""",
    ),
    *correct(
        "hybrid sharding keeps its loss on every rank",
        """
mesh rep=2 shard=2
weight w f32[8,8] shard:S(0)
input x f32[16,8] rep:S(0) shard:S(0)
loss l
program
  f: f32[8,8] = all-gather(w, dim=0) over shard
  h = linear(x, f)
  l = mean(h)
  dh = backward l (grad(l))
  _, gf = backward h (dh)
  gs: f32[4,8] = reduce-scatter avg(gf, dim=0) over shard
  grad(w) = all-reduce avg(gs) over rep
  update w
""",
    ),
    *pair(
        "master weights stepped in another precision",
        "missing-gradient-reduction",
        """
mesh dp=2
weight w bf16[8,8]
state master f32[8,8]
state m f32[8,8]
input x bf16[8,8] dp:S(0)
loss l
program
  h = linear(x, w)
  l = mean(h)
  dh = backward l (grad(l))
  _, gw = backward h (dh)
  g32: f32[8,8] = to(gw, "float32")
- adamw_step(master!, g32, m!)
+ gr: f32[8,8] = all-reduce avg(g32) over dp
+ adamw_step(master!, gr, m!)
  wn: bf16[8,8] = to(master, "bfloat16")
  copy_(w!, wn)
""",
    ),
    *pair(
        "master weights gathered before their step",
        "gathered-before-update",
        """
mesh dp=2
weight w f32[8,8]
state ws f32[8,8] dp:S(0)
state m f32[8,8] dp:S(0)
input g f32[8,8] dp:P
program
  gs: f32[4,8] = reduce-scatter(g, dim=0) over dp
- wn: f32[8,8] = all-gather(ws, dim=0) over dp
  adam_step(ws!, gs, m!)
+ wn: f32[8,8] = all-gather(ws, dim=0) over dp
  copy_(w!, wn)
""",
    ),
    *variants(
        "a mixer with channels over ranks",
        """
mesh tp=2
weight k f32[32,1,4] tp:S(0)
weight wi f32[32,16] tp:S(0)
weight wo f32[16,32] tp:S(1)
input x f32[2,20,16]
output y f32[2,20,16]
program
  u = linear(x, wi)
  t = transpose(u, 1, 2)
  c: f32[2,16,20] = conv1d(t, k, padding="same", groups=16)
  s = cumsum(c, dim=2)
  b = transpose(s, 1, 2)
  p = linear(b, wo)
  y = all-reduce(p) over tp
""",
        ("not reduced", "partial-through-nonlinear", [("all-reduce(p) over tp", "silu(p)")]),
    ),
    *pair(
        "a convolution over shards of the sequence",
        "scan-over-shards",
        """
mesh cp=2
weight k f32[16,1,4]
input x f32[2,16,20] cp:S(2)
program
- c: f32[2,16,10] = conv1d(x, k, padding="same", groups=16)
+ f: f32[2,16,20] = all-gather(x, dim=2) over cp
+ c: f32[2,16,20] = conv1d(f, k, padding="same", groups=16)
""",
    ),
    *pair(
        "labels shifted after they were split",
        "scan-over-shards",
        """
mesh cp=2
input tokens i64[2,16]
program
- own: i64[2,8] = chunk(tokens, dim=1) over cp
- labels = roll(own, -1, 1)
+ next = roll(tokens, -1, 1)
+ labels: i64[2,8] = chunk(next, dim=1) over cp
""",
    ),
    *correct(
        "a convolution that gets the edge of the shard before",
        """
mesh cp=2
weight k f32[16,16,3]
input x f32[2,16,20] cp:S(2)
program
  e = narrow(x, 2, 8, 2)
  send e to cp+1 ring batch edge
  recv before: f32[2,16,2] from cp-1 ring batch edge
  j = cat([before, x], dim=2)
  c = conv1d(j, k)
""",
    ),
    *pair(
        "the greatest of a clamped value",
        "partial-through-nonlinear",
        """
mesh tp=2
input x f32[8,32] tp:S(1)
program
  a = amax(x)
  c = clamp(a, min=0.001)
+ m = all-reduce max(c) over tp
+ s = div(448.0, m)
- s = div(448.0, c)
  y = mul(x, s)
""",
    ),
    *pair(
        "the square of a partial sum",
        "partial-through-nonlinear",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[6,16] tp:S(1)
output y f32[6,8]
program
  p = linear(x, w)
- q = pow(p, 2)
- y = all-reduce(q) over tp
+ r = all-reduce(p) over tp
+ y = pow(r, 2)
""",
    ),
    *pair(
        "a merged block and another one added",
        "ring-attention-parts-summed",
        """
mesh cp=4
input q f32[2,16,8] cp:S(1)
input k f32[2,16,8] cp:S(1)
input v f32[2,16,8] cp:S(1)
program
  o0, l0 = flash_attn(q, k, v)
  send k to cp+1 ring batch a
  send v to cp+1 ring batch a
  recv k1: f32[2,4,8] from cp-1 ring batch a
  recv v1: f32[2,4,8] from cp-1 ring batch a
  b1, m1 = flash_attn(q, k1, v1)
  o1, l1 = merge_by_log_sum_exp(o0, l0, b1, m1)
  send k1 to cp+1 ring batch b
  send v1 to cp+1 ring batch b
  recv k2: f32[2,4,8] from cp-1 ring batch b
  recv v2: f32[2,4,8] from cp-1 ring batch b
  b2, m2 = flash_attn(q, k2, v2)
- o2 = add(o1, b2)
+ o2, l2 = merge_by_log_sum_exp(o1, l1, b2, m2)
  send k2 to cp+1 ring batch c
  send v2 to cp+1 ring batch c
  recv k3: f32[2,4,8] from cp-1 ring batch c
  recv v3: f32[2,4,8] from cp-1 ring batch c
  b3, m3 = flash_attn(q, k3, v3)
- o = add(o2, b3)
+ o, l = merge_by_log_sum_exp(o2, l2, b3, m3)
""",
    ),
    *pair(
        "a table at both ends of the pipeline, its gradients averaged",
        "wrong-reduce-op",
        """
mesh pp=2
weight e f32[64,16]
input ids i64[2,6]
input dh f32[2,6,16]
input dz f32[2,6,64]
input y f32[2,6,16]
program pp=0
  h = embedding(ids, e)
  g = backward h (dh)
- grad(e) = all-reduce avg(g) over pp
+ grad(e) = all-reduce(g) over pp
  update e
program pp=1
  z = linear(y, e)
  _, g = backward z (dz)
- grad(e) = all-reduce avg(g) over pp
+ grad(e) = all-reduce(g) over pp
  update e
""",
    ),
    *correct(
        "heads packed in the last dimension",
        """
mesh cp=2 tp=2
weight wq f32[32,32] tp:S(0)
weight wk f32[32,32] tp:S(0)
weight wv f32[32,32] tp:S(0)
weight wo f32[32,32] tp:S(1)
input x f32[1,16,32] cp:S(1)
output y f32[1,16,32] cp:S(1)
program
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  kg: f32[1,16,16] = all-gather(k, dim=1) over cp
  vg: f32[1,16,16] = all-gather(v, dim=1) over cp
  c = scaled_dot_product_attention(q, kg, vg)
  p = linear(c, wo)
  y = all-reduce(p) over tp
""",
    ),
    *pair(
        "two sums over two groups, their tensors exchanged on one rank",
        "collective-order-mismatch",
        """
mesh dp=2 tp=2
input u f32[8,8] dp:P tp:P
input v f32[8,8] dp:P tp:P
program ranks 0
  a = all-reduce(u) over dp
  b = all-reduce(v) over tp
program ranks 1
- a = all-reduce(v) over dp
- b = all-reduce(u) over tp
+ a = all-reduce(u) over dp
+ b = all-reduce(v) over tp
program ranks 2,3
  a = all-reduce(u) over dp
  b = all-reduce(v) over tp
""",
    ),
    *correct(
        "sums inside of a node and across nodes, the loss kept by each rank",
        """
mesh node=2 gpu=4
weight w f32[16,8]
input x f32[64,16] node:S(0) gpu:S(0)
loss l
program
  h = matmul(x, w)
  l = mean(h)
  dh = backward l (grad(l))
  _, g = backward h (dh)
  s: f32[4,8] = reduce-scatter avg(g, dim=0) over gpu
  t: f32[4,8] = all-reduce avg(s) over node
  grad(w): f32[16,8] = all-gather(t, dim=0) over gpu
  update w
""",
    ),
]
