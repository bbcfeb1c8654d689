"""Correct plans of unusual form, of which no rule speaks."""

from __future__ import annotations

from tests.scenarios.scenario import correct

SCENARIOS = (
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
    *correct(
        "replicated router, sharded experts, weighted combine",
        """
mesh ep=2
weight router f32[4,16]
weight w f32[4,16,16] ep:S(0)
input x f32[8,16] ep:S(0)
program
  l = linear(x, router)
  p = softmax(l, dim=-1)
  v, i = topk(p, k=2)
  t: f32[4,4,16] = permute_tokens(x, i)
  d = all-to-all(t, dim=0, concat-dim=1) over ep
  e = bmm(d, w)
  c = all-to-all(e, dim=1, concat-dim=0) over ep
  y: f32[4,16] = unpermute_tokens(c, i, v)
  z = add(y, x)
""",
    ),
    *correct(
        "gradient scattered along the weight's second dimension",
        """
mesh dp=2
weight w f32[8,16] dp:S(1)
input x f32[8,16] dp:S(0)
input dl f32[8,8] dp:S(0)
program
  full = all-gather(w, dim=1) over dp
  y = linear(x, full)
  _, d = backward y (dl)
  grad(w) = reduce-scatter(d, dim=1) over dp
  update w
""",
    ),
    *correct(
        "tensor-parallel gradient norm of replicated and sharded weights",
        """
mesh tp=2
weight g f32[8]
weight w f32[16,8] tp:S(0)
program
  a = mul(w, w)
  sa = sum(a)
  ta = all-reduce(sa) over tp
  b = mul(g, g)
  sb = sum(b)
  s = add(ta, sb)
  n = sqrt(s)
""",
    ),
    *correct(
        "two sub-groups of a world by ranks",
        """
mesh tp=4
input x f32[4,8] local
program ranks 0,1
  y = all-reduce(x) over ranks 0,1
program ranks 2,3
  y = all-reduce(x) over ranks 2,3
""",
    ),
    *correct(
        "fp32 accumulation of micro-batches, scattered in fp32",
        """
mesh dp=2
weight w bf16[8,8]
buffer main_grad f32[8,8]
input x bf16[4,8] dp:S(0)
input dl bf16[4,8] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
  accumulate(main_grad!, g)
  s: f32[4,8] = reduce-scatter(main_grad, dim=0) over dp
  adam_step(s)
""",
    ),
    *correct(
        "tensor axis first in the mesh, sequence shards gathered over it",
        """
mesh tp=2 dp=2
weight w f32[16,8] tp:S(0)
input x f32[16,8] dp:S(0) tp:S(0)
output z f32[16,16] dp:S(0) tp:S(1)
program
  f = all-gather(x, dim=0) over tp
  z = linear(f, w)
""",
    ),
    *correct(
        "weight split over two axes, gathered over the data axis",
        """
mesh fsdp=2 tp=2
weight w f32[16,8] fsdp:S(0) tp:S(0)
weight v f32[8,16] tp:S(1)
input x f32[8,8] fsdp:S(0)
output z f32[8,8] fsdp:S(0)
program
  f = all-gather(w, dim=0) over fsdp
  h = linear(x, f)
  p = linear(h, v)
  z = all-reduce(p) over tp
""",
    ),
    *correct(
        "greatest of a split vocabulary found by comparing with the reduced maximum",
        """
mesh dp=2 tp=2
weight w f32[32,8] tp:S(0)
input x f32[4,8] dp:S(0)
output z
program
  h = linear(x, w)
  v = amax(h, dim=-1)
  m = all-reduce max(v) over tp
  i = argmax(h, dim=-1)
  e = eq(v, m)
  c = mul(i, e)
  z = all-reduce max(c) over tp
""",
    ),
    *correct(
        "slopes of heads differ by rank",
        """
mesh tp=2
buffer d f32[4,4]
input x f32[2,4,4] tp:S(0)
output z
program tp=0
  b = mul(d, 0.5)
  s = add(x, b)
  z = all-gather(s, dim=0) over tp
program tp=1
  b = mul(d, 0.25)
  s = add(x, b)
  z = all-gather(s, dim=0) over tp
""",
    ),
    *correct(
        "folded replicas with data of their own",
        """
mesh dp=2 tp=2
replicate dp
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[4,8]
loss l
program ranks 0,1
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  s = softmax(y, dim=1)
  l0 = sum(s)
  l = all-reduce(l0) over dp
  ds = backward l0 (grad(l))
  dy = backward s (ds)
  da, grad(w2) = backward p (dy)
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
  reduce-gradients w1, w2 over dp
""",
    ),
    *correct(
        "all-gather decomposed into a ring that overlaps a matmul",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[8,8] tp:S(0)
program
  send x to tp+1 ring async s
  recv x1: f32[4,8] from tp-1 ring async r
  y0 = linear(x, w)
  wait s, r
  y1 = linear(x1, w)
""",
    ),
    *correct(
        "loss of the last pipeline stage, divided by micro-batches, gradients averaged",
        """
mesh dp=2 pp=2
micro-batches 2
weight w1 f32[8,8]
weight w2 f32[8,8]
input x f32[8,8] dp:S(0)
loss l
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w1)
  send h to pp+1
segment f1 forward stage 1 () -> (h, y, m, l)
  recv h: f32[4,8] from pp-1
  y = linear(h, w2)
  m = mean(y)
  l = mul(m, 0.5)
segment b1 backward stage 1 mirror f1 (h, y, m, l) -> (dh, grad(w2))
  dm = backward (grad(l)) of l = mul(m, 0.5)
  dy = backward (dm) of m = mean(y)
  dh, grad(w2) = backward (dy) of y = linear(h, w2)
  send dh to pp-1
segment b0 backward stage 0 mirror f0 (x) -> (grad(w1))
  recv dh: f32[4,8] from pp+1
  _, grad(w1) = backward (dh) of h = linear(x, w1)
segment s0 optimizer
  reduce-gradients w1 over dp by avg
  update w1
segment s1 optimizer
  reduce-gradients w2 over dp by avg
  update w2
program pp=0
  run f0 micro-batch 0
  run f0 micro-batch 1
  run b0 micro-batch 0
  run b0 micro-batch 1
  run s0
program pp=1
  run f1 micro-batch 0
  run b1 micro-batch 0
  run f1 micro-batch 1
  run b1 micro-batch 1
  run s1
""",
    ),
    *correct(
        "loss divided by the ranks first and summed for the log",
        """
mesh dp=4
input e f32[8,6] dp:S(0)
loss l
program
  m = mean(e)
  p = div(m, 4)
  l = all-reduce(p) over dp
""",
    ),
    *correct(
        "auxiliary loss added with a coefficient",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input aux f32[8] dp:S(0)
loss l
program
  y = linear(x, w)
  m = mean(y)
  a = mean(aux)
  c = mul(a, 0.01)
  l = add(m, c)
  dm, dc = backward l (grad(l))
  dy = backward m (dm)
  _, grad(w) = backward y (dy)
  reduce-gradients w over dp by avg
  update w
""",
    ),
    *correct(
        "zig-zag ring attention of two chunks a rank",
        """
mesh cp=2
input q f32[8,8] cp:S(0, order=[[0,3],[1,2]])
input k f32[8,8] cp:S(0, order=[[0,3],[1,2]])
input v f32[8,8] cp:S(0, order=[[0,3],[1,2]])
program
  send k to cp+1 ring async a
  recv k1: f32[4,8] from cp-1 ring async b
  send v to cp+1 ring async c
  recv v1: f32[4,8] from cp-1 ring async d
  o0, l0 = flash_attn(q, k, v, causal=True)
  wait a, b, c, d
  o1, l1 = flash_attn(q, k1, v1)
  o, l = merge_by_log_sum_exp(o0, l0, o1, l1)
""",
    ),
    *correct(
        "ring attention merged with weights of the log-sum-exps by sub and mul",
        """
mesh cp=2 tp=2
input q f32[8,16] cp:S(0) tp:S(1)
input k f32[8,16] cp:S(0) tp:S(1)
input v f32[8,16] cp:S(0) tp:S(1)
program
  send k to cp+1 ring batch kv
  send v to cp+1 ring batch kv
  recv k1: f32[4,8] from cp-1 ring batch kv
  recv v1: f32[4,8] from cp-1 ring batch kv
  o0, l0 = flash_attention_forward(q, k, v)
  o1, l1 = flash_attention_forward(q, k1, v1)
  d = sub(l1, l0)
  s = sigmoid(d)
  e = sub(o0, o1)
  f = mul(e, s)
  o = sub(o0, f)
""",
    ),
    *correct(
        "cross attention to a gathered encoder",
        """
mesh cp=2
input q f32[2,4,8,16] cp:S(2)
input enc f32[2,6,16] cp:S(1)
weight wk f32[64,16]
program
  full = all-gather(enc, dim=1) over cp
  k = linear(full, wk)
  k4: f32[2,6,4,16] = view(k, size=[2,6,4,16])
  kt = transpose(k4, dim0=1, dim1=2)
  o = scaled_dot_product_attention(q, kt, kt)
""",
    ),
    *correct(
        "key and value heads replicated, query heads sharded",
        """
mesh tp=2
weight wq f32[16,16] tp:S(0)
weight wk f32[4,16]
weight wv f32[4,16]
weight wo f32[16,16] tp:S(1)
input x f32[2,8,16]
output y f32[2,8,16]
program
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  o: f32[2,8,8] = grouped_attention(q, k, v)
  p = linear(o, wo)
  y = all-reduce(p) over tp
""",
    ),
    *correct(
        "shared expert beside routed experts",
        """
mesh ep=2
weight shared f32[8,8]
weight w f32[4,8,8] ep:S(0)
input t f32[16,8] ep:S(0)
program
  s = linear(t, shared)
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  e: f32[8,8] = experts(d, w)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  y = add(c, s)
""",
    ),
    *correct(
        "dispatch of tokens and of their probabilities",
        """
mesh ep=2
weight w f32[4,8,8] ep:S(0)
input t f32[16,8] ep:S(0)
input p f32[16,1] ep:S(0)
program
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  q = all-to-all(p, dim=0, concat-dim=0) over ep
  e: f32[8,8] = experts(d, w)
  f = mul(e, q)
  c = all-to-all(f, dim=0, concat-dim=0) over ep
  y = add(c, t)
""",
    ),
    *correct(
        "a shard moved from rows to columns and gathered before a linear, its result met by a chunk",
        """
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(0)
input x f32[4,8]
input t f32[4,8]
program
  h = linear(x, w1)
  r = all-to-all(h, dim=0, concat-dim=1) over tp
  a = tanh(r)
  g = all-gather(a, dim=0) over tp
  z = linear(g, w2)
  u = chunk(t, dim=1) over tp
  y = sub(z, u)
""",
    ),
    *correct(
        "a shard moved from columns to rows before a linear, its result added to rows",
        """
mesh tp=2
weight w f32[16,16]
input x f32[4,16] tp:S(1)
input t f32[4,16] tp:S(0)
program
  r = all-to-all(x, dim=0, concat-dim=1) over tp
  z = linear(r, w)
  y = add(t, z)
""",
    ),
    *correct(
        "ZeRO-1 by scatter, local step and gather",
        """
mesh dp=2
weight w f32[16,8]
state m f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
  s = reduce-scatter avg(g, dim=0) over dp
  p = chunk(w, dim=0) over dp
  n = adamw(p, s, m)
  full: f32[16,8] = all-gather(n, dim=0) over dp
  copy_(w!, full)
""",
    ),
    *correct(
        "gradient all-reduce in flight over the next layer's tensor-parallel all-reduce",
        """
mesh dp=2 tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8] dp:S(0)
input dl f32[8,8] dp:S(0)
program
  h = linear(x, w1)
  p = linear(h, w2)
  y = all-reduce(p) over tp
  dh, g2 = backward p (dl)
  grad(w2) = all-reduce avg(g2) over dp async a on comm
  dx0, g1 = backward h (dh)
  dx = all-reduce(dx0) over tp
  grad(w1) = all-reduce avg(g1) over dp async b on comm
  wait a, b
  update w1, w2
""",
    ),
    *correct(
        "pipeline stages that issue their own asynchronous reductions",
        """
mesh dp=2 pp=2
weight w1 f32[8,8]
weight w2 f32[8,8]
weight e f32[8,8]
input d1 f32[8,8] dp:P
input d2 f32[8,8] dp:P
input de f32[8,8] dp:P pp:P
program pp=0
  a = all-reduce(d1) over dp async h1
  b = all-reduce(de) over pp async h2
  wait h1, h2
program pp=1
  b = all-reduce(de) over pp async h2
  a2 = all-reduce(d2) over dp async h1
  wait h1, h2
""",
    ),
    *correct(
        "fp8 weights with their own scale, activations with a history",
        """
mesh tp=2
buffer w_scale f32[1]
buffer x_scale f32[1]
buffer x_history f32[16]
weight w f32[16,8] tp:S(0)
input x f32[8,8]
program
  wq: f8e4m3[8,8] = quantize(w, w_scale)
  xq: f8e4m3[8,8] = quantize(x, x_scale)
  y: f32[8,8] = scaled_mm(xq, wq)
  a = amax(x)
  roll(x_history!, a)
  m = amax(x_history)
  update_scale(x_scale!, m)
""",
    ),
    *correct(
        "fp16 gradients unscaled after an fp32 sum",
        """
mesh dp=2
weight w f16[8,8]
input x f16[8,8] dp:S(0)
input dl f16[8,8] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
  f: f32[8,8] = to(g, dtype="float32")
  r = all-reduce(f) over dp
  grad(w): f32[8,8] = mul(r, 0.5)
  update w
""",
    ),
    *correct(
        "weights broadcast from rank 0 at the start",
        """
mesh dp=4
weight w f32[8,8]
input x f32[8,8] dp:S(0)
program
  b = broadcast(w, root=0) over world
  y = linear(x, b)
""",
    ),
    *correct(
        "layer norm gradients of several weights in one flat all-reduce",
        """
mesh tp=2
weight g f32[8]
weight b f32[8]
input x f32[8,8] tp:S(0)
input dy f32[8,8] tp:S(0)
program
  y = layer_norm(x, g, b)
  dx, gg, gb = backward y (dy)
  flat = cat(gg, gb, dim=0)
  red = all-reduce(flat) over tp
  grad(g), grad(b) = split(red, split_size_or_sections=8, dim=0)
  update g, b
""",
    ),
    *correct(
        "invariant residual stream under tensor parallelism, two layers",
        """
mesh tp=2
weight a1 f32[16,8] tp:S(0)
weight b1 f32[8,16] tp:S(1)
input x f32[4,8] tp:I
tensor y f32[4,8] tp:I
input dz f32[4,8] tp:I
output z f32[4,8] tp:I
program
  h = linear(x, a1)
  p = linear(h, b1)
  y = all-reduce(p) over tp
  z = add(y, x)
  dy, dx1 = backward z (dz)
  dh, grad(b1) = backward p (dy)
  dx2p, grad(a1) = backward h (dh)
  dx2 = all-reduce(dx2p) over tp
  grad(x) = add(dx1, dx2)
  update a1, b1
""",
    ),
    *correct(
        "a value only one rank needs, sent to a neighbour in the tensor-parallel group",
        """
mesh tp=2
input x f32[4,8]
program ranks 0
  y = gelu(x)
  send y to 1
program ranks 1
  recv y: f32[4,8] from 0
  z = relu(y)
""",
    ),
    *correct(
        "sum of squares over shards and replicas, replicas divided out",
        """
mesh dp=2 tp=2
weight w f32[8,8] tp:S(0)
program
  q = mul(w, w)
  s = sum(q)
  h = div(s, 2)
  t = all-reduce(h) over dp,tp
  n = sqrt(t)
""",
    ),
    *correct(
        "batch norm statistics over the data axis",
        """
mesh dp=2
input x f32[8,6] dp:S(0)
program
  m = mean(x, dim=0, keepdim=True)
  g = all-reduce avg(m) over dp
  c = sub(x, g)
  q = square(c)
  v = mean(q, dim=0, keepdim=True)
  w = all-reduce avg(v) over dp
  e = add(w, 1e-5)
  r = rsqrt(e)
  y = mul(c, r)
""",
    ),
    *correct(
        "sequence scattered after the embedding and gathered before the head",
        """
mesh tp=2
weight e f32[32,8] tp:S(0)
weight g f32[8]
input ids i64[6]
output z f32[6,32] tp:S(1)
program
  p = embedding(ids, e)
  x = reduce-scatter(p, dim=0) over tp
  d = dropout(x, p=0.1)
  n = rms_norm(d, g)
  f = all-gather(n, dim=0) over tp
  z = linear(f, e)
""",
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
    *correct(
        "heads traded for the sequence in the layout of another kernel",
        """
mesh dp=2 cp=2
input q f32[2,8,16,4] dp:S(0) cp:S(2)
input k f32[2,8,16,4] dp:S(0) cp:S(2)
input v f32[2,8,16,4] dp:S(0) cp:S(2)
output o f32[2,8,16,4] dp:S(0) cp:S(2)
program
  qh = all-to-all(q, dim=1, concat-dim=2) over cp
  kh = all-to-all(k, dim=1, concat-dim=2) over cp
  vh = all-to-all(v, dim=1, concat-dim=2) over cp
  a: f32[1,4,16,4] = $MESH(qh, kh, vh)
  o = all-to-all(a, dim=2, concat-dim=1) over cp
""",
        ("flash_attn_func", "flash_attention"),
    ),
    *correct(
        "gate and up joined and taken apart again",
        """
mesh tp=2
weight wg f32[16,8] tp:S(0)
weight wu f32[16,8] tp:S(0)
weight wd f32[8,16] tp:S(1)
input x f32[4,8]
output y
program
  g = linear(x, wg)
  u = linear(x, wu)
  j = torch.cat([g, u], dim=-1)
  a, b = torch.chunk(j, 2, dim=-1)
  s = silu(a)
  m = mul(s, b)
  p = linear(m, wd)
  y = all-reduce(p) over tp
""",
        ("",),
    ),
    *correct(
        "programs that give one name two shapes",
        """
mesh pp=2
weight w f32[4,6]
input x f32[8,6]
program pp=0
  h = linear(x, w)
  send h to pp+1
program pp=1
  recv r: f32[8,4] from pp-1
  h: f32[2,4] = pooled(r)
  y = relu(h)
""",
    ),
    *correct(
        "layers that use names again",
        """
mesh tp=2
weight a1 f32[16,8] tp:S(0)
weight b1 f32[8,16] tp:S(1)
weight a2 f32[16,8] tp:S(0)
weight b2 f32[8,16] tp:S(1)
input x f32[4,8]
output z f32[4,8]
program
  n = layer_norm(x, [8])
  h = linear(n, a1)
  g = gelu(h)
  p = linear(g, b1)
  r = all-reduce(p) over tp
  y = add(x, r)
  n = layer_norm(y, [8])
  h = linear(n, a2)
  g = gelu(h)
  p = linear(g, b2)
  r = all-reduce(p) over tp
  z = add(y, r)
""",
    ),
    *correct(
        "micro-batches written out under the same names",
        """
mesh pp=2
weight w1 f32[8,8]
weight w2 f32[8,8]
input x0 f32[4,8]
input x1 f32[4,8]
output y0
output y1
program pp=0
  h = linear(x0, w1)
  send h to pp+1
  h = linear(x1, w1)
  send h to pp+1
program pp=1
  recv h: f32[4,8] from pp-1
  y0 = linear(h, w2)
  recv h: f32[4,8] from pp-1
  y1 = linear(h, w2)
""",
    ),
    *correct(
        "values computed again",
        """
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[4,8]
output y f32[4,8]
program
  t = linear(x, w1)
  t = linear(x, w1)
  a = gelu(t)
  a = gelu(t)
  p = linear(a, w2)
  y = all-reduce(p) over tp
""",
    ),
    *correct(
        "results of several that are not wanted",
        """
input x f32[4,8]
input z f32[4,8]
output y
program
  a, rest = split(x, 4, dim=1)
  b, rest = split(z, 4, dim=1)
  y = add(a, b)
""",
    ),
    *correct(
        "a bias on one rank",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
output y
program tp=0
  p = linear(x, w, b)
  y = all-reduce(p) over tp
program tp=1
  p = linear(x, w)
  y = all-reduce(p) over tp
""",
    ),
    *correct(
        "the gradient of a lookup, written out",
        """
weight e f32[16,8]
input i i64[4]
loss l
program
  h = embedding(i, e)
  l: f32[1] = sum(h)
  dh = backward l (grad(l))
  grad(e) = backward (dh) of h = embedding(i, e)
  update e
""",
    ),
    *correct(
        "a segment that takes what it makes itself",
        """
weight w f32[8,8]
input x f32[4,8]
output y
segment s forward (x, h) -> (y)
  h = linear(x, w)
  y = gelu(h)
program
  run s micro-batch 0
""",
    ),
    *correct(
        "parts of a sum that two ranks send each other",
        """
mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[4,8] tp:S(1)
output y
program tp=0
  p = linear(x, w)
  send p to tp+1
  recv q: f32[4,8] from tp+1
  y = add(p, q)
program tp=1
  p = linear(x, w)
  recv q: f32[4,8] from tp-1
  send p to tp-1
  y = add(p, q)
""",
    ),
)
