"""Correct plans in forms that look like mistakes."""

from __future__ import annotations

from tests.scenarios.scenario import correct

SCENARIOS = (
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
)
