"""Mistakes of sequences, experts and unequal shards, and their twins, written before the rules were looked at."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

SCENARIOS = (
    *pair(
        "running sum of a shard of the sequence without what came before",
        "scan-over-shards",
        """
mesh cp=2
input x f32[8,4] cp:S(0)
output y f32[8,4] cp:S(0)
program cp=0
  y = cumsum(x, dim=0)
  e: f32[1,4] = narrow(y, 0, 3, 1)
  send e to cp+1
program cp=1
  y0 = cumsum(x, dim=0)
  recv e: f32[1,4] from cp-1
- y = identity(y0)
+ y = add(y0, e)
""",
    ),
    *pair(
        "attention to a shard of the keys, one sequence, heads first",
        "attention-over-local-keys",
        """
mesh cp=2
input q f32[8,4,4] cp:S(0)
input k f32[8,4,4] cp:S(0)
input v f32[8,4,4] cp:S(0)
program
- q1 = identity(q)
- k1 = identity(k)
- v1 = identity(v)
+ q1: f32[8,2,4] = all-to-all(q, dim=1, concat-dim=0) over cp
+ k1: f32[8,2,4] = all-to-all(k, dim=1, concat-dim=0) over cp
+ v1: f32[8,2,4] = all-to-all(v, dim=1, concat-dim=0) over cp
  qt = transpose(q1, 0, 1)
  kt = transpose(k1, 0, 1)
  vt = transpose(v1, 0, 1)
  o = scaled_dot_product_attention(qt, kt, vt)
""",
    ),
    *pair(
        "means of unequal shards averaged",
        "mean-by-local-count",
        """
mesh dp=2
weight w f32[8,8]
input x f32[3,8] region [0:3,0:8] of x[8,8]
output l
program dp=0
  h = linear(x, w)
- m: f32[] = mean(h)
- l = all-reduce avg(m) over dp
+ m: f32[] = sum(h)
+ s = all-reduce(m) over dp
+ l = div(s, 64)
program dp=1
  input x f32[5,8] region [3:8,0:8] of x[8,8]
  h = linear(x, w)
- m: f32[] = mean(h)
- l = all-reduce avg(m) over dp
+ m: f32[] = sum(h)
+ s = all-reduce(m) over dp
+ l = div(s, 64)
""",
    ),
    *pair(
        "shares of a bias that are more than the bias",
        "bias-added-to-partial",
        """
mesh tp=4
weight a f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
output y f32[4,8]
program
  p = linear(x, a)
- c = div(b, 2)
+ c = div(b, 4)
  q = add(p, c)
  y = all-reduce(q) over tp
""",
    ),
    *pair(
        "gradient of what all experts read, by way of one's own",
        "missing-gradient-reduction",
        """
mesh ep=2
weight v f32[8,8]
weight w f32[2,8,8] ep:S(0)
input x f32[6,8]
loss l f32[]
program
  e = linear(x, v)
  w0 = squeeze(w, 0)
  h = matmul(e, w0)
  y = all-reduce(h) over ep
  s = square(y)
  l = sum(s)
  ds = backward l (grad(l))
  dy = backward s (ds)
  d0, dw = backward h (dy)
  grad(w) = backward w0 (dw)
- d = identity(d0)
+ d = all-reduce(d0) over ep
  _, grad(v) = backward e (d)
  update w, v
""",
    ),
    *pair(
        "outputs of experts summed over other ranks than have them",
        "missing-allreduce",
        """
mesh ep=2 tp=2
weight w f32[2,16,8] ep:S(0) tp:S(1)
weight v f32[2,8,16] ep:S(0) tp:S(2)
input x f32[6,8]
output y f32[6,8] replicated
program
  w0 = squeeze(w, 0)
  v0 = squeeze(v, 0)
  h = linear(x, w0)
  q = linear(h, v0)
- y = all-reduce(q) over tp
+ y = all-reduce(q) over ep,tp
""",
    ),
    *correct(
        "two gradients of a weight that a step takes as one value",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input z f32[8,8] dp:S(0)
loss l f32[] dp:P
program
  h = linear(x, w)
  k = linear(z, w)
  s = sum(h)
  e = exp(k)
  t = sum(e)
  l = add(s, t)
  ds, dt = backward l (grad(l))
  dh = backward s (ds)
  _, g1 = backward h (dh)
  de = backward t (dt)
  dk = backward e (de)
  _, g2 = backward k (dk)
  m = add(g1, g2)
  r = all-reduce(m) over dp
  c = mul(r, 0.1)
  sub_(w!, c)
""",
    ),
    *pair(
        "running sum over rows that were gathered out of order",
        "pieces-not-in-rank-order",
        """
mesh cp=2
weight w f32[8,8]
input x f32[16,8] cp:S(0, order=[[0,3],[1,2]])
output y f32[16,8]
program
  h = linear(x, w)
  g = all-gather(h, dim=0) over cp
- y = cumsum(g, dim=0)
+ a = narrow(g, 0, 0, 4)
+ d = narrow(g, 0, 4, 4)
+ b = narrow(g, 0, 8, 8)
+ o = cat([a, b, d], dim=0)
+ y = cumsum(o, dim=0)
""",
    ),
    *pair(
        "a rank that applies the gate in the place of the other weight",
        "divergent-replicas",
        """
mesh tp=2
weight gate f32[32,8] tp:S(0)
weight up f32[32,8] tp:S(0)
weight down f32[8,32] tp:S(1)
input x f32[4,8]
output y f32[4,8]
program tp=0
  g = linear(x, gate)
  a = silu(g)
  u = linear(x, up)
  m = mul(a, u)
  p = linear(m, down)
  y = all-reduce(p) over tp
program tp=1
  g = linear(x, gate)
  a = silu(g)
- u = linear(x, gate)
+ u = linear(x, up)
  m = mul(a, u)
  p = linear(m, down)
  y = all-reduce(p) over tp
""",
    ),
    *pair(
        "experts of each rank turned round",
        "mismatched-shards",
        """
mesh ep=2
weight w f32[4,8,8] ep:S(0)
input x f32[4,6,8] ep:S(0)
output y f32[4,6,8] ep:S(0)
program
- f = flip(x, dims=[0])
- y = bmm(f, w)
+ y = bmm(x, w)
""",
    ),
    *pair(
        "softmax that goes back along a shard",
        "softmax-over-shards",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8]
input dp_ f32[4,16]
program
  h = linear(x, w)
  g = all-gather(h, dim=1) over tp
  p = softmax(g, dim=-1)
- ds = chunk(dp_, dim=1) over tp
- hs = chunk(g, dim=1) over tp
- dh = backward (ds) of ps = softmax(hs, dim=-1)
+ dg = backward p (dp_)
+ dh = chunk(dg, dim=1) over tp
  _, grad(w) = backward h (dh)
  sgd(w!, grad(w))
""",
    ),
    *pair(
        "a rank that leaves out the activation",
        "divergent-replicas",
        """
mesh tp=2
weight a f32[16,8] tp:S(0)
weight b f32[8,16] tp:S(1)
input x f32[4,8]
output y f32[4,8]
program tp=0
  h = linear(x, a)
  r = gelu(h)
  p = linear(r, b)
  y = all-reduce(p) over tp
program tp=1
  h = linear(x, a)
- p = linear(h, b)
+ r = gelu(h)
+ p = linear(r, b)
  y = all-reduce(p) over tp
""",
    ),
    *pair(
        "master weights that are cast before their step",
        "gathered-before-update",
        """
mesh dp=4
weight w bf16[16,8]
state mw f32[16,8] dp:S(0)
state m f32[16,8] dp:S(0)
state v f32[16,8] dp:S(0)
input x bf16[8,8] dp:S(0)
loss l
program
  y = linear(x, w)
  l = mean(y)
  dy = backward l (grad(l))
  _, g = backward y (dy)
  g32 = to(g, dtype="f32")
  gs = reduce-scatter avg(g32, dim=0) over dp
- h = to(mw, dtype="bf16")
- adamw_step(mw!, gs, m!, v!)
+ adamw_step(mw!, gs, m!, v!)
+ h = to(mw, dtype="bf16")
  n = all-gather(h, dim=0) over dp
  copy_(w!, n)
""",
    ),
    *pair(
        "rows of the first shard added to each shard of the sequence",
        "mismatched-shards",
        """
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,2,8] tp:S(0)
output y f32[8,2,8] tp:S(0)
program
  f = all-gather(x, dim=0) over tp
  h = linear(f, w1)
  p = linear(h, w2)
- r = all-reduce(p) over tp
- n = narrow(r, 0, 0, 4)
- y = add(x, n)
+ r = reduce-scatter(p, dim=0) over tp
+ y = add(x, r)
""",
    ),
)
