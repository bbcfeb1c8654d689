"""Further scenarios in other hands: longer layers, other names, groups by rank, segments, three axes, odd sizes."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

SCENARIOS = (
    *pair(
        "whole attention layer, output projection unreduced", "missing-allreduce partial-through-nonlinear",
        """
plan "attention layer"
mesh dp=2 cp=1 tp=3
weight self_attention.linear_qkv.weight bf16[108,36] tp:S(0)
weight self_attention.linear_proj.weight bf16[36,36] tp:S(1)
weight input_layernorm.weight bf16[36]
weight pre_mlp_layernorm.weight bf16[36]
input hidden_states bf16[10,4,36] dp:S(1)
program
  ln = rms_norm(hidden_states, input_layernorm.weight)
  mixed = linear(ln, self_attention.linear_qkv.weight)
  heads: bf16[10,2,3,12] = view(mixed, size=[10,2,3,12])
  q, k, v = split(heads, split_size_or_sections=4, dim=-1)
  core = core_attention(q, k, v)
  ctx: bf16[10,2,12] = view(core, size=[10,2,12])
  proj = linear(ctx, self_attention.linear_proj.weight)
+ attn = all-reduce(proj) over tp
+ resid = add(attn, hidden_states)
- resid = add(proj, hidden_states)
  out = rms_norm(resid, pre_mlp_layernorm.weight)
""",
    ),
    *pair(
        "swiglu mlp of two column-parallel weights, down projection unreduced", "missing-allreduce partial-through-nonlinear",
        """
mesh $MESH
weight gate f32[24,12] tp:S(0)
weight up f32[24,12] tp:S(0)
weight down f32[12,24] tp:S(1)
weight g f32[12]
input x f32[6,12]
output y f32[6,12]
program
  a = linear(x, gate)
  b = linear(x, up)
  s = silu(a)
  m = mul(s, b)
  d = linear(m, down)
+ r = all-reduce(d) over tp
+ y = add(x, r)
- y = add(x, d)
""",
        ("tp=2", "tp=3", "pp=2 tp=4", "dp=3 tp=2", "dp=2 cp=2 tp=2"),
    ),
    *pair(
        "log of a partial normaliser", "partial-through-nonlinear missing-allreduce",
        """
mesh tp=2
input z f32[6,10] tp:S(1)
program
  e = exp(z)
  s = sum(e, dim=1)
+ t = all-reduce(s) over tp
+ l = log(t)
- l = log(s)
""",
    ),
    *pair(
        "normalisation by hand with a local mean of squares", "partial-through-nonlinear missing-allreduce"
        " bias-added-to-partial",
        """
mesh tp=2
input x f32[4,16] tp:S(1)
program
  q = square(x)
  m = mean(q, dim=-1, keepdim=True)
+ w = all-reduce avg(m) over tp
+ e = add(w, 1e-6)
- e = add(m, 1e-6)
  r = rsqrt(e)
  y = mul(x, r)
""",
    ),
    *pair(
        "softmax by hand without the sum over ranks", "missing-allreduce mismatched-shards partial-through-nonlinear",
        """
mesh tp=2
input z f32[6,10] tp:S(1)
program
  m = amax(z, dim=-1, keepdim=True)
  mm = all-reduce max(m) over tp
  c = sub(z, mm)
  e = exp(c)
  s = sum(e, dim=-1, keepdim=True)
+ t = all-reduce(s) over tp
+ p = div(e, t)
- p = div(e, s)
""",
    ),
    *pair(
        "router logits of a hidden shard", "softmax-over-shards partial-through-nonlinear",
        """
mesh tp=2
weight router f32[8,16] tp:S(1)
input x f32[6,16] tp:S(1)
program
  l = linear(x, router)
+ s = all-reduce(l) over tp
+ p = softmax(s, dim=-1)
- p = softmax(l, dim=-1)
  i = topk(p, k=2)
""",
    ),
    *pair(
        "positional embedding added to a partial word embedding", "missing-allreduce bias-added-to-partial",
        """
mesh tp=4
weight word f32[128,12] tp:S(0)
buffer position f32[6,12]
input ids i64[2,6]
program
  w = embedding(ids, word)
+ r = all-reduce(w) over tp
+ h = add(r, position)
- h = add(w, position)
""",
    ),
    *pair(
        "all-reduce after reduce-scatter and all-gather", "doubled-allreduce",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[8,16] tp:S(1)
program
  p = linear(x, w)
  s = reduce-scatter(p, dim=0) over tp
  g = all-gather(s, dim=0) over tp
- y = all-reduce(g) over tp
+ y = gelu(g)
""",
    ),
    *pair(
        "sequence-parallel output all-reduced", "allreduce-of-shards",
        """
mesh dp=2 tp=2
weight w f32[8,16] tp:S(1)
input x f32[8,2,16] dp:S(1) tp:S(2)
program
  p = linear(x, w)
  s = reduce-scatter(p, dim=0) over tp
- y = all-reduce(s) over tp
+ y = all-gather(s, dim=0) over tp
""",
    ),
    *pair(
        "sequence-parallel input read without its gather", "mismatched-shards",
        """
mesh tp=2
weight g f32[8]
weight w f32[16,8] tp:S(0)
input x f32[8,2,8] tp:S(0)
program
  n = layer_norm(x, g)
+ f = all-gather(n, dim=0) over tp
+ h = linear(f, w)
- h = linear(n, w)
""",
    ),
    *pair(
        "column-parallel output into another column-parallel linear", "contraction-of-mismatched-shards mismatched-shards",
        """
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(0)
input x f32[4,8]
program
  h = linear(x, w1)
+ f = all-gather(h, dim=1) over tp
+ y = linear(f, w2)
- y = linear(h, w2)
""",
    ),
    *pair(
        "gathered over the data axis", "gather-of-unsharded wrong-collective-group wrong-gather-dim",
        """
mesh dp=2 tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8]
program
  h = linear(x, w)
- y = all-gather(h, dim=1) over dp
+ y = all-gather(h, dim=1) over tp
""",
    ),
    *pair(
        "broadcast from a rank outside its group", "wrong-collective-group",
        """
mesh dp=2 tp=2
input x f32[4,8]
program ranks 0,1
+ y = broadcast(x, root=0) over ranks 0,1
- y = broadcast(x, root=2) over ranks 0,1
program ranks 2,3
  y = broadcast(x, root=2) over ranks 2,3
""",
    ),
    *pair(
        "roots differ between members", "collective-order-mismatch mismatched-collective wrong-collective-group",
        """
mesh tp=2
input x f32[4,8]
program ranks 0
  y = broadcast(x, root=0) over ranks 0,1
program ranks 1
- y = broadcast(x, root=1) over ranks 0,1
+ y = broadcast(x, root=0) over ranks 0,1
""",
    ),
    *pair(
        "reduce ops differ between members", "collective-order-mismatch mismatched-collective",
        """
mesh tp=2
input x f32[4,8] tp:P
program ranks 0
  y = all-reduce(x) over tp
program ranks 1
- y = all-reduce max(x) over tp
+ y = all-reduce(x) over tp
""",
    ),
    *pair(
        "shapes differ between members", "mismatched-collective",
        """
mesh tp=2
input a f32[4,8] local
input b f32[6,8] local
program ranks 0
  y = all-reduce(a) over tp
program ranks 1
- z = all-reduce(b) over tp
+ y = all-reduce(a) over tp
""",
    ),
    *pair(
        "row-parallel linear by ranks with written-out regions", "missing-allreduce doubled-allreduce",
        """
mesh tp=2
weight w.0 f32[8,8] region [0:8,0:8] of w[8,16]
weight w.1 f32[8,8] region [0:8,8:16] of w[8,16]
input x.0 f32[4,8] region [0:4,0:8] of x[4,16]
input x.1 f32[4,8] region [0:4,8:16] of x[4,16]
tensor p.0 f32[4,8] region [0:4,0:8] of y[4,8] part 0/2
tensor p.1 f32[4,8] region [0:4,0:8] of y[4,8] part 1/2
tensor y f32[4,8] region [0:4,0:8] of y[4,8]
program ranks 0
  p.0 = linear(x.0, w.0)
+ y = all-reduce(p.0) over ranks 0,1
- y = identity(p.0)
program ranks 1
  p.1 = linear(x.1, w.1)
+ y = all-reduce(p.1) over ranks 0,1
- y = identity(p.1)
""",
    ),
    *pair(
        "column-parallel input gradient unreduced into an embedding", "missing-gradient-reduction missing-allreduce",
        """
mesh tp=2
weight e f32[32,8]
weight w f32[16,8] tp:S(0)
input ids i64[4]
input dh f32[4,16] tp:S(1)
program
  x = embedding(ids, e)
  h = linear(x, w)
- dx, grad(w) = backward h (dh)
+ d0, grad(w) = backward h (dh)
+ dx = all-reduce(d0) over tp
  _, grad(e) = backward x (dx)
  update w, e
""",
    ),
    *pair(
        "qkv input gradient: one of three terms unreduced", "missing-allreduce missing-gradient-reduction",
        """
mesh tp=2
weight wq f32[8,8] tp:S(0)
weight wk f32[8,8] tp:S(0)
weight g f32[8]
input x f32[4,8]
input dq f32[4,8] tp:S(1)
input dk f32[4,8] tp:S(1)
program
  n = rms_norm(x, g)
  q = linear(n, wq)
  k = linear(n, wk)
  d1, grad(wq) = backward q (dq)
  d2, grad(wk) = backward k (dk)
- r1 = all-reduce(d1) over tp
- dn = add(r1, d2)
+ s = add(d1, d2)
+ dn = all-reduce(s) over tp
  dx, grad(g) = backward n (dn)
  update wq, wk, g
""",
    ),
    *pair(
        "router gradient not reduced under sequence parallelism", "missing-gradient-reduction",
        """
mesh dp=2 tp=2
weight router f32[8,16]
input x f32[8,2,16] dp:S(1) tp:S(0)
input dl f32[8,2,8] dp:S(1) tp:S(0)
program
  l = linear(x, router)
  _, gr = backward l (dl)
+ gt = all-reduce(gr) over tp
+ grad(router) = all-reduce(gt) over dp
- grad(router) = all-reduce(gr) over dp
  update router
""",
    ),
    *pair(
        "FSDP gradient all-reduced over the replicas only", "missing-gradient-reduction missing-allreduce",
        """
mesh replica=2 shard=2
weight w f32[16,8] shard:S(0)
input x f32[8,8] replica:S(0) shard:S(0)
input dl f32[8,16] replica:S(0) shard:S(0)
program
  full = all-gather(w, dim=0) over shard
  y = linear(x, full)
  _, d = backward y (dl)
+ s = reduce-scatter(d, dim=0) over shard
+ grad(w) = all-reduce(s) over replica
- s = chunk(d, dim=0) over shard
- grad(w) = all-reduce(s) over replica
  update w
""",
    ),
    *pair(
        "hybrid sharding without the sum over replicas", "missing-gradient-reduction",
        """
mesh replica=2 shard=2
weight w f32[16,8] shard:S(0)
input x f32[8,8] replica:S(0) shard:S(0)
input dl f32[8,16] replica:S(0) shard:S(0)
program
  full = all-gather(w, dim=0) over shard
  y = linear(x, full)
  _, d = backward y (dl)
- grad(w) = reduce-scatter(d, dim=0) over shard
+ s = reduce-scatter(d, dim=0) over shard
+ grad(w) = all-reduce(s) over replica
  update w
""",
    ),
    *pair(
        "expert gradient over dp and ep, dense over dp only", "allreduce-of-shards missing-gradient-reduction"
        " doubled-gradient-reduction",
        """
mesh dp=2 ep=2
weight dense f32[8,8]
weight w f32[4,8,8] ep:S(0)
input x f32[8,8] dp:S(0) ep:S(0)
input dy f32[8,8] dp:S(0) ep:S(0)
program
  y = linear(x, dense)
  _, grad(dense) = backward y (dy)
- reduce-gradients dense over dp
+ reduce-gradients dense over dp,ep
  update dense
""",
    ),
    *pair(
        "token mean by a local count", "wrong-loss-scale wrong-gradient-scale",
        """
mesh dp=2 tp=2
input losses f32[24] dp:S(0)
loss avg
program
  total = sum(losses)
- local = div(total, 12)
- avg = all-reduce(local) over dp
+ local = div(total, 24)
+ avg = all-reduce(local) over dp
""",
    ),
    *pair(
        "context-parallel mean summed", "wrong-loss-scale",
        """
mesh cp=4
input losses f32[3,16] cp:S(1)
loss l
program
  m = mean(losses)
- l = all-reduce(m) over cp
+ s = all-reduce(m) over cp
+ l = div(s, 4)
""",
    ),
    *pair(
        "gradients divided by hand by the wrong axis", "wrong-gradient-scale",
        """
mesh dp=4 tp=2
weight w f32[8,8]
input x f32[16,8] dp:S(0)
loss l
program
  y = linear(x, w)
  l = mean(y)
  dy = backward l (grad(l))
  _, g = backward y (dy)
  s = all-reduce(g) over dp
- grad(w) = div(s, 2)
+ grad(w) = div(s, 4)
  update w
""",
    ),
    *pair(
        "optimizer moments of the neighbour", "state-of-another-shard",
        """
mesh dp=2
weight p.0 f32[4,8] region [0:4,0:8] of p[8,8]
weight p.1 f32[4,8] region [4:8,0:8] of p[8,8]
state v.0 f32[4,8] region [0:4,0:8] of p.v[8,8]
state v.1 f32[4,8] region [4:8,0:8] of p.v[8,8]
gradient g.0 f32[4,8] region [0:4,0:8] of p.g[8,8]
gradient g.1 f32[4,8] region [4:8,0:8] of p.g[8,8]
input d f32[8,8] local
program ranks 0
  g.0 = reduce-scatter(d, dim=0) over ranks 0,1
+ fused_adamw(p.0!, g.0, v.0!)
- fused_adamw(p.0!, g.0, v.1!)
program ranks 1
  g.1 = reduce-scatter(d, dim=0) over ranks 0,1
+ fused_adamw(p.1!, g.1, v.1!)
- fused_adamw(p.1!, g.1, v.0!)
""",
    ),
    *pair(
        "updated shards gathered before the step", "gather-overlaps-update buffer-in-flight update-before-final-gradient"
        " stale-gather",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input d f32[16,8] dp:P
input x f32[4,8] dp:S(0)
program
  grad(w) = reduce-scatter(d, dim=0) over dp
- full = all-gather(w, dim=0) over dp async g
  update w
+ full = all-gather(w, dim=0) over dp async g
  wait g
  y = linear(x, full)
""",
    ),
    *pair(
        "fp8 scale from an amax under way", "missing-wait",
        """
mesh tp=2
input x bf16[8,8] tp:S(0)
program
  a = amax(x)
  m = all-reduce max(a) over tp async h
+ wait h
  s = reciprocal(m)
  q: f8e4m3[4,8] = quantize(x, s)
- wait h
""",
    ),
    *pair(
        "fp8 amax summed", "wrong-reduce-op",
        """
mesh tp=2
input x bf16[8,8] tp:S(0)
program
  a = amax(x)
- m = all-reduce(a) over tp
+ m = all-reduce max(a) over tp
  s = reciprocal(m)
""",
    ),
    *pair(
        "fp8 current scaling with the scale of the step before", "scale-before-amax",
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
        "ring of four with values that lag", "ring-attention-values-not-rotated",
        """
mesh cp=4
input q f32[2,16,8] cp:S(1)
input k f32[2,16,8] cp:S(1)
input v f32[2,16,8] cp:S(1)
program
  o0, l0 = flash_attn(q, k, v)
  send k to cp+1 ring batch a
  recv k1: f32[2,4,8] from cp-1 ring batch a
+ send v to cp+1 ring batch b
+ recv v1: f32[2,4,8] from cp-1 ring batch b
- o1, l1 = flash_attn(q, k1, v)
+ o1, l1 = flash_attn(q, k1, v1)
  send k1 to cp+1 ring batch c
  recv k2: f32[2,4,8] from cp-1 ring batch c
+ send v1 to cp+1 ring batch d
+ recv v2: f32[2,4,8] from cp-1 ring batch d
- o2, l2 = flash_attn(q, k2, v)
+ o2, l2 = flash_attn(q, k2, v2)
  send k2 to cp+1 ring batch e
  recv k3: f32[2,4,8] from cp-1 ring batch e
+ send v2 to cp+1 ring batch f
+ recv v3: f32[2,4,8] from cp-1 ring batch f
- o3, l3 = flash_attn(q, k3, v)
+ o3, l3 = flash_attn(q, k3, v3)
  a, m = merge(o0, l0, o1, l1)
  b, n = merge(a, m, o2, l2)
  o, l = merge(b, n, o3, l3)
""",
    ),
    *pair(
        "ring attention written with matmul and softmax", "ring-attention-parts-summed ring-attention-step-missing",
        """
mesh cp=2
input q f32[8,8] cp:S(0)
input k f32[8,8] cp:S(0)
input v f32[8,8] cp:S(0)
program
  kt = transpose(k, dim0=0, dim1=1)
  s0 = block_scores(q, kt)
  send k to cp+1 ring batch a
  send v to cp+1 ring batch a
  recv k1: f32[4,8] from cp-1 ring batch a
  recv v1: f32[4,8] from cp-1 ring batch a
  o0, l0 = attention_block(q, k, v)
  o1, l1 = attention_block(q, k1, v1)
- o = add(o0, o1)
+ o, l = merge_lse(o0, l0, o1, l1)
""",
    ),
    *pair(
        "keys and values gathered over tp instead of cp", "attention-over-local-keys gather-of-unsharded",
        """
mesh cp=2 tp=2
input q f32[2,4,8,16] cp:S(2) tp:S(1)
input k f32[2,4,8,16] cp:S(2) tp:S(1)
input v f32[2,4,8,16] cp:S(2) tp:S(1)
program
- kf = all-gather(k, dim=1) over tp
- vf = all-gather(v, dim=1) over tp
- qf = all-gather(q, dim=1) over tp
- o = scaled_dot_product_attention(qf, kf, vf)
+ kf = all-gather(k, dim=2) over cp
+ vf = all-gather(v, dim=2) over cp
+ o = scaled_dot_product_attention(q, kf, vf)
""",
    ),
    *pair(
        "zero-bubble pipeline stage without its weight gradient", "unbalanced-backward schedule-missing-backward"
        " update-before-final-gradient missing-gradient use-before-definition",
        """
mesh pp=2
micro-batches 2
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8]
input dl f32[4,8]
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w)
  send h to pp+1
segment f1 forward stage 1 () -> (h, y)
  recv h: f32[4,8] from pp-1
  y = linear(h, u)
segment b1 backward stage 1 mirror f1 (h, dl) -> (dh, grad(u))
  dh, grad(u) = backward (dl) of y = linear(h, u)
  send dh to pp-1
segment b0 backward stage 0 mirror f0 (x) -> (grad(w))
  recv dh: f32[4,8] from pp+1
  _, grad(w) = backward (dh) of h = linear(x, w)
segment s0 optimizer
  update w
segment s1 optimizer
  update u
program pp=0
  run f0 micro-batch 0-1
  run b0 micro-batch 0
+ run b0 micro-batch 1
  run s0
program pp=1
  run f1 micro-batch 0
  run b1 micro-batch 0
  run f1 micro-batch 1
  run b1 micro-batch 1
  run s1
""",
    ),
    *pair(
        "a chunk's result sent to the wrong pipeline stage", "unmatched-send unmatched-receive send-recv-deadlock",
        """
mesh pp=4
input x f32[4,8]
program ranks 0
  send x to 1
program ranks 1
  recv a: f32[4,8] from 0
- send a to 3
+ send a to 2
program ranks 2
  recv b: f32[4,8] from 1
  send b to 3
program ranks 3
  recv c: f32[4,8] from 2
""",
    ),
    *pair(
        "backward of a pipeline stage issued in another order than its neighbour expects", "mismatched-message"
        " misordered-message send-recv-deadlock",
        """
mesh pp=2
micro-batches 2
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8]
input dl f32[4,8]
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w)
  send h to pp+1
segment f1 forward stage 1 () -> (h, y)
  recv h: f32[4,8] from pp-1
  y = linear(h, u)
segment b1 backward stage 1 mirror f1 (h, dl) -> (dh, grad(u))
  dh, grad(u) = backward (dl) of y = linear(h, u)
  send dh to pp-1
segment b0 backward stage 0 mirror f0 (x) -> (grad(w))
  recv dh: f32[4,8] from pp+1
  _, grad(w) = backward (dh) of h = linear(x, w)
program pp=0
  run f0 micro-batch 0-1
- run b0 micro-batch 1
- run b0 micro-batch 0
+ run b0 micro-batch 0
+ run b0 micro-batch 1
program pp=1
  run f1 micro-batch 0
  run b1 micro-batch 0
  run f1 micro-batch 1
  run b1 micro-batch 1
""",
    ),
    *pair(
        "virtual pipeline chunks in another order", "mismatched-message misordered-message use-before-definition"
        " send-recv-deadlock schedule-out-of-order",
        """
mesh pp=2
micro-batches 2
weight w0 f32[8,8]
weight w1 f32[8,8]
weight w2 f32[8,8]
weight w3 f32[8,8]
input x f32[4,8]
segment c0 forward stage 0 (x) -> (a)
  a = linear(x, w0)
  send a to 1
segment c1 forward stage 1 () -> (b)
  recv a: f32[4,8] from 0
  b = linear(a, w1)
  send b to 0
segment c2 forward stage 2 () -> (c)
  recv b: f32[4,8] from 1
  c = linear(b, w2)
  send c to 1
segment c3 forward stage 3 () -> (d)
  recv c: f32[4,8] from 0
  d = linear(c, w3)
program pp=0
  run c0 micro-batch 0-1
- run c2 micro-batch 1
- run c2 micro-batch 0
+ run c2 micro-batch 0
+ run c2 micro-batch 1
program pp=1
  run c1 micro-batch 0-1
  run c3 micro-batch 0-1
""",
    ),
    *pair(
        "chunks of a virtual pipeline swapped", "mismatched-message misordered-message use-before-definition"
        " send-recv-deadlock schedule-out-of-order",
        """
mesh pp=2
weight w0 f32[8,8]
weight w1 f32[8,8]
weight w2 f32[8,8]
weight w3 f32[8,8]
input x f32[4,8]
segment c0 forward stage 0 (x) -> (a)
  a = linear(x, w0)
  send a to 1
segment c1 forward stage 1 () -> (b)
  recv a: f32[4,8] from 0
  b = linear(a, w1)
  send b to 0
segment c2 forward stage 2 () -> (c)
  recv b: f32[4,8] from 1
  c = linear(b, w2)
  send c to 1
segment c3 forward stage 3 () -> (d)
  recv c: f32[4,8] from 0
  d = linear(c, w3)
program pp=0
  run c0 micro-batch 0
  run c2 micro-batch 0
program pp=1
- run c3 micro-batch 0
- run c1 micro-batch 0
+ run c1 micro-batch 0
+ run c3 micro-batch 0
""",
    ),
    *correct(
        "megatron layer with sequence parallelism, forward",
        """
mesh dp=2 tp=3
weight ln f32[12]
weight qkv f32[36,12] tp:S(0)
weight proj f32[12,12] tp:S(1)
weight proj.bias f32[12]
input x f32[9,4,12] dp:S(1) tp:S(0)
output y f32[9,4,12] dp:S(1) tp:S(0)
program
  n = rms_norm(x, ln)
  f = all-gather(n, dim=0) over tp
  m = linear(f, qkv)
  h: f32[9,2,1,12] = view(m, size=[9,2,1,12])
  q, k, v = split(h, split_size_or_sections=4, dim=-1)
  c = flash_attn_func(q, k, v, causal=True)
  o: f32[9,2,4] = view(c, size=[9,2,4])
  p = linear(o, proj)
  r = reduce-scatter(p, dim=0) over tp
  b = add(r, proj.bias)
  d = dropout(b, p=0.1)
  y = add(d, x)
""",
    ),
    *correct(
        "sequence length not divided by heads, gathered keys of grouped queries",
        """
mesh dp=2 cp=2 tp=2
input q f32[2,4,10,6] dp:S(0) cp:S(2) tp:S(1)
input k f32[2,4,10,6] dp:S(0) cp:S(2) tp:S(1)
input v f32[2,4,10,6] dp:S(0) cp:S(2) tp:S(1)
program
  kf = all-gather(k, dim=2) over cp
  vf = all-gather(v, dim=2) over cp
  o = scaled_dot_product_attention(q, kf, vf)
""",
    ),
    *correct(
        "zig-zag context parallelism kept zig-zag",
        """
mesh cp=2
weight w f32[8,8]
weight g f32[8]
input x f32[8,8] cp:S(0, order=[[0,3],[1,2]])
input dy f32[8,8] cp:S(0, order=[[0,3],[1,2]])
output y f32[8,8] cp:S(0, order=[[0,3],[1,2]])
program
  n = rms_norm(x, g)
  h = linear(n, w)
  y = add(h, x)
  dh, dx = backward y (dy)
  dn, grad(w) = backward h (dh)
  dx1, grad(g) = backward n (dn)
  reduce-gradients w, g over cp
  update w, g
""",
    ),
    *correct(
        "loss of the last pipeline stage broadcast to all",
        """
mesh pp=2
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8]
buffer buffer f32[]
program ranks 0
  h = linear(x, w)
  send h to 1
  l: f32[] = broadcast(buffer, root=1) over ranks 0,1
program ranks 1
  recv h: f32[4,8] from 0
  y = linear(h, u)
  m = mean(y)
  l: f32[] = broadcast(m, root=1) over ranks 0,1
""",
    ),
    *correct(
        "gradient accumulation over micro-batches, averaged by the loss",
        """
mesh dp=2
micro-batches 4
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input t i64[8] dp:S(0)
loss l
segment fwd forward (x, t) -> (y, m, l)
  y = linear(x, w)
  m = cross_entropy(y, t)
  l = div(m, 4)
segment bwd backward mirror fwd (x, t, y, m, l) -> (grad(w))
  dm = backward (grad(l)) of l = div(m, 4)
  dy, _ = backward (dm) of m = cross_entropy(y, t)
  _, grad(w) = backward (dy) of y = linear(x, w)
segment step optimizer
  reduce-gradients w over dp divide 2
  update w
program
  run fwd micro-batch 0
  run bwd micro-batch 0
  run fwd micro-batch 1
  run bwd micro-batch 1
  run fwd micro-batch 2
  run bwd micro-batch 2
  run fwd micro-batch 3
  run bwd micro-batch 3
  run step
""",
    ),
    *correct(
        "bucketed asynchronous gradient all-reduce",
        """
mesh dp=2
weight w1 f32[8,8]
weight w2 f32[8,8]
input x f32[4,8] dp:S(0)
input dl f32[4,8] dp:S(0)
program
  h = linear(x, w1)
  y = linear(h, w2)
  dh, grad(w2) = backward y (dl)
  reduce-gradients w2 over dp by avg async b2 on nccl
  _, grad(w1) = backward h (dh)
  reduce-gradients w1 over dp by avg async b1 on nccl
  wait b2, b1
  update w1, w2
""",
    ),
    *correct(
        "hierarchical expert dispatch and combine",
        """
mesh node=2 local=2
weight w f32[4,8,8] node:S(0) local:S(0)
input t f32[32,8] node:S(0) local:S(0)
program
  a = all-to-all(t, dim=0, concat-dim=0) over local
  b = all-to-all(a, dim=0, concat-dim=0) over node
  e: f32[8,8] = expert_mlp(b, w)
  c = all-to-all(e, dim=0, concat-dim=0) over node
  d = all-to-all(c, dim=0, concat-dim=0) over local
  y = add(d, t)
""",
    ),
    *correct(
        "expert tensor parallelism inside expert parallelism",
        """
mesh ep=2 tp=2
weight w1 f32[4,8,16] ep:S(0) tp:S(2)
weight w2 f32[4,16,8] ep:S(0) tp:S(1)
input x f32[4,6,8] ep:S(0)
output y f32[4,6,8] ep:S(0)
program
  h = bmm(x, w1)
  a = silu(h)
  p = bmm(a, w2)
  y = all-reduce(p) over tp
""",
    ),
    *correct(
        "bidirectional pipeline with batched neighbours",
        """
mesh pp=3
input x f32[4,8]
program
  send x to pp+1 ring batch b
  recv a: f32[4,8] from pp-1 ring batch b
  send x to pp-1 ring batch c
  recv d: f32[4,8] from pp+1 ring batch c
""",
    ),
    *correct(
        "global gradient norm and clipping",
        """
mesh dp=2 tp=2
weight w f32[8,8] tp:S(0)
input x f32[4,8] dp:S(0)
input dl f32[4,8] dp:S(0) tp:S(1)
program
  y = linear(x, w)
  _, g = backward y (dl)
  r = all-reduce avg(g) over dp
  q = mul(r, r)
  s = sum(q)
  t = all-reduce(s) over tp
  n = sqrt(t)
  c = clip_coefficient(n)
  grad(w) = mul(r, c)
  update w
""",
    ),
    *correct(
        "sum of token losses divided by reduced token count, gradients summed",
        """
mesh dp=2 cp=2
weight w f32[16,8]
input x f32[8,6,8] dp:S(0) cp:S(1)
input mask f32[8,6] dp:S(0) cp:S(1)
loss l
program
  y = linear(x, w)
  e = sum(y, dim=-1)
  k = mul(e, mask)
  s = sum(k)
  n = sum(mask)
  nn = all-reduce(n) over dp,cp
  l = div(s, nn)
  ds, _ = backward l (grad(l))
  dk = backward s (ds)
  de, _ = backward k (dk)
  dy = backward e (de)
  _, grad(w) = backward y (dy)
  reduce-gradients w over dp,cp
  update w
""",
    ),
    *correct(
        "reduce in bf16 of bf16 activations stored in bf16",
        """
mesh tp=2
weight w bf16[8,16] tp:S(1)
input x bf16[4,16] tp:S(1)
program
  p = linear(x, w)
  y = all-reduce(p) over tp
  f: f32[4,8] = to(y, dtype="float32")
  n = softmax(f, dim=-1)
""",
    ),
    *correct(
        "optimizer of shards written out with two moments",
        """
mesh dp=4
weight w f32[16,8] dp:S(0)
state m f32[16,8] dp:S(0)
state v f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  full = all-gather(w, dim=0) over dp
  y = linear(x, full)
  _, d = backward y (dl)
  g = reduce-scatter avg(d, dim=0) over dp
  adamw_step(w!, g, m!, v!)
""",
    ),
)
