"""Sharded parameters, gradients and their reductions, the scale of the loss, and precision."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair, variants

SCENARIOS = (
    *pair(
        "parameter used while its gather is under way",
        "missing-wait",
        """
mesh $MESH
weight w f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
program
  full = all-gather(w, dim=0) over dp async g
+ wait g
  y = linear(x, full)
- wait g
""",
        ("dp=2", "dp=4 tp=2"),
    ),
    *pair(
        "shard used in place of the gathered parameter",
        "mismatched-shards wrong-placement-claim shapes-do-not-fit",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
output y f32[8,16] dp:S(0)
program
+ full = all-gather(w, dim=0) over dp
+ y = linear(x, full)
- y = linear(x, w)
""",
    ),
    *pair(
        "parameter gathered after its use",
        "mismatched-shards use-before-definition",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
program
+ full = all-gather(w, dim=0) over dp
  y = linear(x, full)
- full = all-gather(w, dim=0) over dp
""",
    ),
    *pair(
        "second layer waits for the first layer's gather",
        "missing-wait double-wait",
        """
mesh dp=2
weight w1 f32[8,8] dp:S(0)
weight w2 f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
program
  f1 = all-gather(w1, dim=0) over dp async g1 on gather
  f2 = all-gather(w2, dim=0) over dp async g2 on gather
  wait g1
  h = linear(x, f1)
+ wait g2
- wait g1
  y = linear(h, f2)
- wait g2
""",
    ),
    *pair(
        "gradient reduce-scattered along another dimension than the parameter",
        "wrong-placement-claim mismatched-shards gradient-sharded-unlike-weight",
        """
mesh $MESH
weight w f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  full = all-gather(w, dim=0) over dp
  y = linear(x, full)
  _, d = backward y (dl)
- grad(w) = reduce-scatter(d, dim=1) over dp
+ grad(w) = reduce-scatter(d, dim=0) over dp
  update w
""",
        ("dp=2", "dp=4", "dp=2 tp=2"),
    ),
    *pair(
        "whole gradient for a sharded parameter",
        "missing-gradient-reduction gradient-sharded-unlike-weight",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  full = all-gather(w, dim=0) over dp
  y = linear(x, full)
- _, grad(w) = backward y (dl)
+ _, d = backward y (dl)
+ grad(w) = reduce-scatter(d, dim=0) over dp
  update w
""",
    ),
    *pair(
        "steps that take each other's gradient",
        "gradient-of-another-tensor",
        """
mesh dp=2
weight w f32[8,8]
weight v f32[8,8]
state mw f32[8,8]
state mv f32[8,8]
input x f32[8,8] dp:S(0)
loss l
program
  h = linear(x, w)
  y = linear(h, v)
  l: f32[1] = sum(y)
  dy = backward l (grad(l))
  dh, gv = backward y (dy)
  _, gw = backward h (dh)
  rv = all-reduce(gv) over dp
  rw = all-reduce(gw) over dp
- adam_step(w!, rv, mw!)
+ adam_step(w!, rw, mw!)
- adam_step(v!, rw, mv!)
+ adam_step(v!, rv, mv!)
""",
    ),
    *pair(
        "loss scale undone on one weight",
        "wrong-gradient-scale",
        """
mesh dp=2
weight w f32[8,8]
weight v f32[4,8]
input x f32[8,8] dp:S(0)
loss l
program
  h = linear(x, w)
  y = linear(h, v)
  l: f32[1] = mean(y)
  s = mul(l, 4096.0)
  dl = backward s (grad(s))
  dy = backward l (dl)
  dh, gv = backward y (dy)
  _, gw = backward h (dh)
  rv = all-reduce avg(gv) over dp
  rw = all-reduce avg(gw) over dp
  grad(v) = div(rv, 4096.0)
- grad(w) = mul(rw, 1.0)
+ grad(w) = div(rw, 4096.0)
  update w, v
""",
    ),
    *pair(
        "optimizer state of the next shard",
        "state-of-another-shard",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
gradient g f32[16,8] dp:S(0) grad-of w
+ state m f32[16,8] dp:S(0)
- state m f32[16,8] dp:S(0, order=[[1],[0]])
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  full = all-gather(w, dim=0) over dp
  y = linear(x, full)
  _, d = backward y (dl)
  g = reduce-scatter(d, dim=0) over dp
  adam_step(w!, g, m!)
""",
    ),
    *pair(
        "optimizer state sharded along another dimension",
        "state-of-another-shard mismatched-shards",
        """
mesh dp=2
weight w f32[16,16] dp:S(0)
+ state exp_avg f32[16,16] dp:S(0)
- state exp_avg f32[16,16] dp:S(1)
input x f32[8,16] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  full = all-gather(w, dim=0) over dp
  y = linear(x, full)
  _, d = backward y (dl)
  grad(w) = reduce-scatter(d, dim=0) over dp
  e = mul(exp_avg, 0.9)
  f = mul(grad(w), 0.1)
  new = add(e, f)
  update w
""",
    ),
    *pair(
        "optimizer state of another shard by regions",
        "state-of-another-shard",
        """
mesh dp=2
weight w.0 f32[8,8] region [0:8,0:8] of w[16,8]
weight w.1 f32[8,8] region [8:16,0:8] of w[16,8]
state m.0 f32[8,8] region [0:8,0:8] of w[16,8]
state m.1 f32[8,8] region [8:16,0:8] of w[16,8]
gradient g.0 f32[8,8] grad-of w.0
gradient g.1 f32[8,8] grad-of w.1
input d f32[16,8] local [16,8]
program ranks 0
  g.0: f32[8,8] = reduce-scatter(d, dim=0) over ranks 0,1
- adam(w.0!, g.0, m.1!)
+ adam(w.0!, g.0, m.0!)
program ranks 1
  g.1: f32[8,8] = reduce-scatter(d, dim=0) over ranks 0,1
- adam(w.1!, g.1, m.0!)
+ adam(w.1!, g.1, m.1!)
""",
    ),
    *pair(
        "missing data-parallel reduction",
        "missing-gradient-reduction",
        """
mesh $MESH
weight w f32[16,8]
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  y = linear(x, w)
  _, grad(w) = backward y (dl)
+ reduce-gradients w over dp
  update w
""",
        ("dp=2", "dp=4", "dp=2 tp=2"),
    ),
    *pair(
        "missing data-parallel all-reduce of one of two gradients",
        "missing-gradient-reduction",
        """
mesh dp=2
weight w1 f32[16,8]
weight w2 f32[8,16]
input x f32[8,8] dp:S(0)
input dl f32[8,8] dp:S(0)
program
  h = linear(x, w1)
  a = gelu(h)
  y = linear(a, w2)
  da, g2 = backward y (dl)
  dh = backward a (da)
  _, g1 = backward h (dh)
  grad(w2) = all-reduce(g2) over dp
+ grad(w1) = all-reduce(g1) over dp
- grad(w1) = mul(g1, 1.0)
  update w1, w2
""",
    ),
    *pair(
        "gradient as an output without its reduction",
        "missing-gradient-reduction missing-allreduce",
        """
mesh dp=2
weight w f32[16,8]
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
output grad(w) f32[16,8]
program
  y = linear(x, w)
- _, grad(w) = backward y (dl)
+ _, g = backward y (dl)
+ grad(w) = all-reduce(g) over dp
""",
    ),
    *pair(
        "missing context-parallel reduction",
        "missing-gradient-reduction",
        """
mesh dp=2 cp=2 tp=2
weight w f32[16,8] tp:S(0)
input x f32[8,8,8] dp:S(0) cp:S(1)
input dl f32[8,8,16] dp:S(0) cp:S(1) tp:S(2)
program
  y = linear(x, w)
  _, grad(w) = backward y (dl)
- reduce-gradients w over dp
+ reduce-gradients w over dp,cp
  update w
""",
    ),
    *pair(
        "layer norm gradient not reduced under sequence parallelism",
        "missing-gradient-reduction",
        """
mesh $MESH
weight g f32[8]
weight w f32[16,8] tp:S(0)
input x f32[8,8] tp:S(0)
input dh f32[8,16] tp:S(1)
program
  n = rms_norm(x, g)
  f = all-gather(n, dim=0) over tp
  h = linear(f, w)
  df, grad(w) = backward h (dh)
  dn = reduce-scatter(df, dim=0) over tp
  dx, grad(g) = backward n (dn)
+ reduce-gradients g over tp
  update w, g
""",
        ("tp=2", "tp=4", "dp=1 tp=2"),
    ),
    *pair(
        "bias of a row-parallel linear under sequence parallelism",
        "missing-gradient-reduction",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight b f32[8]
input a f32[8,16] tp:S(1)
input dy f32[8,8] tp:S(0)
program
  p = linear(a, w)
  r = reduce-scatter(p, dim=0) over tp
  y = add(r, b)
  dr, gb = backward y (dy)
  dp = all-gather(dr, dim=0) over tp
  da, grad(w) = backward p (dp)
+ grad(b) = all-reduce(gb) over tp
- grad(b) = mul(gb, 1.0)
  update w, b
""",
    ),
    *pair(
        "sequence-parallel gather without its reduce-scatter in backward",
        "missing-gradient-reduction missing-dual"
        " mismatched-shards wrong-placement-claim missing-allreduce partial-through-nonlinear",
        """
mesh tp=2
weight g f32[8]
weight w f32[16,8] tp:S(0)
input x f32[8,8] tp:S(0)
input dh f32[8,16] tp:S(1)
program
  n = rms_norm(x, g)
  f = all-gather(n, dim=0) over tp
  h = linear(f, w)
  df, grad(w) = backward h (dh)
+ dn = reduce-scatter(df, dim=0) over tp
- dn = chunk(df, dim=0) over tp
  dx, grad(g) = backward n (dn)
  reduce-gradients g over tp
  update w, g
""",
    ),
    *pair(
        "column-parallel input gradient without its all-reduce",
        "missing-gradient-reduction",
        """
mesh $MESH
weight g f32[8]
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8]
input dl f32[8,8]
program
  n = rms_norm(x, g)
  h = linear(n, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  da, grad(w2) = backward p (dl)
  dh = backward a (da)
- dn, grad(w1) = backward h (dh)
+ dn0, grad(w1) = backward h (dh)
+ dn = all-reduce(dn0) over tp
  dx, grad(g) = backward n (dn)
  update w1, w2, g
""",
        ("tp=2", "tp=4", "pp=2 tp=2"),
    ),
    *pair(
        "invariant input whose gradient stays partial",
        "missing-gradient-reduction",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[8,8] tp:I
input dh f32[8,16] tp:S(1)
program
  h = linear(x, w)
- grad(x), grad(w) = backward h (dh)
+ dx, grad(w) = backward h (dh)
+ grad(x) = all-reduce(dx) over tp
  update w
""",
    ),
    *pair(
        "invariant activation between two layers",
        "missing-gradient-reduction",
        """
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
weight v f32[16,8] tp:S(0)
input x f32[8,8] tp:I
tensor y f32[8,8] tp:I
input dz f32[8,16] tp:S(1)
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  z = linear(y, v)
- dy, grad(v) = backward z (dz)
+ d0, grad(v) = backward z (dz)
+ dy = all-reduce(d0) over tp
  da, grad(w2) = backward p (dy)
  dh = backward a (da)
  dx0, grad(w1) = backward h (dh)
  dx = all-reduce(dx0) over tp
  update w1, w2, v
""",
    ),
    *correct(
        "f and g around a mlp of invariant activations",
        """
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8] tp:I
tensor y f32[8,8] tp:I
input dy f32[8,8] tp:I
output y f32[8,8] tp:I
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  da, grad(w2) = backward p (dy)
  dh = backward a (da)
  dx, grad(w1) = backward h (dh)
  grad(x) = all-reduce(dx) over tp
  update w1, w2
""",
    ),
    *correct(
        "three input gradients summed before one all-reduce",
        """
mesh tp=2
weight wq f32[8,8] tp:S(0)
weight wk f32[8,8] tp:S(0)
weight g f32[8]
input x f32[8,8] tp:I
input dq f32[8,8] tp:S(1)
input dk f32[8,8] tp:S(1)
program
  n = rms_norm(x, g)
  q = linear(n, wq)
  k = linear(n, wk)
  dn1, grad(wq) = backward q (dq)
  dn2, grad(wk) = backward k (dk)
  s = add(dn1, dn2)
  dn = all-reduce(s) over tp
  grad(x), grad(g) = backward n (dn)
  update wq, wk, g
""",
    ),
    *pair(
        "extra all-reduce in backward of a row-parallel linear",
        "doubled-allreduce",
        """
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8]
input dl f32[8,8]
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
- dp = all-reduce(dl) over tp
- da, grad(w2) = backward p (dp)
+ da, grad(w2) = backward p (dl)
  dh = backward a (da)
  dx, grad(w1) = backward h (dh)
  grad(x) = all-reduce(dx) over tp
  update w1, w2
""",
    ),
    *pair(
        "input gradient reduced over dp",
        "wrong-collective-group missing-gradient-reduction allreduce-of-shards",
        """
mesh dp=2 tp=2
weight g f32[8]
weight w f32[16,8] tp:S(0)
input x f32[8,8] dp:S(0)
input dh f32[8,16] dp:S(0) tp:S(1)
program
  n = rms_norm(x, g)
  h = linear(n, w)
  dn0, grad(w) = backward h (dh)
- dn = all-reduce(dn0) over dp
+ dn = all-reduce(dn0) over tp
  dx, grad(g) = backward n (dn)
  reduce-gradients w, g over dp
  update w, g
""",
    ),
    *pair(
        "gradient reduced over tp instead of dp",
        "missing-gradient-reduction allreduce-of-shards doubled-gradient-reduction",
        """
mesh dp=2 tp=2
weight w f32[16,8] tp:S(0)
input x f32[8,8] dp:S(0)
input dh f32[8,16] dp:S(0) tp:S(1)
program
  h = linear(x, w)
  _, grad(w) = backward h (dh)
- reduce-gradients w over tp
+ reduce-gradients w over dp
  update w
""",
    ),
    *pair(
        "gradient summed twice over dp",
        "doubled-gradient-reduction doubled-allreduce",
        """
mesh dp=2
weight w f32[16,8]
input x f32[8,8] dp:S(0)
input dh f32[8,16] dp:S(0)
program
  h = linear(x, w)
  _, g = backward h (dh)
  r = all-reduce(g) over dp
- grad(w) = all-reduce(r) over dp
+ grad(w) = mul(r, 1.0)
  update w
""",
    ),
    *pair(
        "tied embedding without its all-reduce",
        "tied-gradient-not-reduced",
        """
mesh pp=2
weight e f32[32,8]
input ids i64[4]
input dl f32[4,32]
program pp=0
  y = embedding(ids, e)
  send y to pp+1
  recv dy: f32[4,8] from pp+1
  _, grad(e) = backward y (dy)
+ reduce-gradients e over pp
  update e
program pp=1
  recv y: f32[4,8] from pp-1
  z = linear(y, e)
  dy, grad(e) = backward z (dl)
  send dy to pp-1
+ reduce-gradients e over pp
  update e
""",
    ),
    *pair(
        "tied embedding on four pipeline stages, by an embedding group",
        "tied-gradient-not-reduced",
        """
mesh pp=4
weight e f32[32,8]
weight w1 f32[8,8]
weight w2 f32[8,8]
input ids i64[4]
input dl f32[4,32]
program ranks 0
  y = embedding(ids, e)
  send y to 1
  recv dy: f32[4,8] from 1
  _, ge = backward y (dy)
+ grad(e) = all-reduce(ge) over ranks 0,3 named embedding
- grad(e) = mul(ge, 1.0)
  update e
program ranks 1
  recv y: f32[4,8] from 0
  a = linear(y, w1)
  send a to 2
  recv da: f32[4,8] from 2
  dy, grad(w1) = backward a (da)
  send dy to 0
  update w1
program ranks 2
  recv a: f32[4,8] from 1
  b = linear(a, w2)
  send b to 3
  recv db: f32[4,8] from 3
  da, grad(w2) = backward b (db)
  send da to 1
  update w2
program ranks 3
  recv b: f32[4,8] from 2
  z = linear(b, e)
  db, ge = backward z (dl)
  send db to 2
+ grad(e) = all-reduce(ge) over ranks 0,3 named embedding
- grad(e) = mul(ge, 1.0)
  update e
""",
    ),
    *pair(
        "the second of two losses summed over dp",
        "wrong-loss-scale",
        """
mesh dp=2
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8] dp:S(0)
loss la
loss lb
program
  h = linear(x, w)
  sa: f32[] = mean(h)
  la = all-reduce avg(sa) over dp
  k = linear(x, u)
  q = pow(k, 2)
  sb: f32[] = mean(q)
- lb = all-reduce(sb) over dp
+ lb = all-reduce avg(sb) over dp
  dh = backward sa (grad(sa))
  _, grad(w) = backward h (dh)
  dq = backward sb (grad(sb))
  dk = backward q (dq)
  _, grad(u) = backward k (dk)
  reduce-gradients w, u over dp by avg
  update w, u
""",
    ),
    *pair(
        "the weight of the second of two losses not reduced",
        "missing-gradient-reduction",
        """
mesh dp=2
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8] dp:S(0)
loss la
loss lb
program
  h = linear(x, w)
  sa: f32[] = mean(h)
  la = all-reduce avg(sa) over dp
  k = linear(x, u)
  q = pow(k, 2)
  sb: f32[] = mean(q)
  lb = all-reduce avg(sb) over dp
  dh = backward sa (grad(sa))
  _, grad(w) = backward h (dh)
  dq = backward sb (grad(sb))
  dk = backward q (dq)
  _, grad(u) = backward k (dk)
- reduce-gradients w over dp by avg
+ reduce-gradients w, u over dp by avg
  update w, u
""",
    ),
    *pair(
        "the weight of the second of two losses summed over dp",
        "wrong-gradient-scale",
        """
mesh dp=2
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8] dp:S(0)
loss la
loss lb
program
  h = linear(x, w)
  sa: f32[] = mean(h)
  la = all-reduce avg(sa) over dp
  k = linear(x, u)
  q = pow(k, 2)
  sb: f32[] = mean(q)
  lb = all-reduce avg(sb) over dp
  dh = backward sa (grad(sa))
  _, grad(w) = backward h (dh)
  dq = backward sb (grad(sb))
  dk = backward q (dq)
  _, grad(u) = backward k (dk)
  reduce-gradients w over dp by avg
- reduce-gradients u over dp
+ reduce-gradients u over dp by avg
  update w, u
""",
    ),
    *pair(
        "mean loss summed over dp",
        "wrong-loss-scale wrong-reduce-op",
        """
mesh $MESH
input q f32[8,8] dp:S(0)
loss l
program
  m = mean(q)
- l = all-reduce(m) over dp
+ l = all-reduce avg(m) over dp
""",
        ("dp=2", "dp=4", "dp=2 tp=2"),
    ),
    *pair(
        "loss divided by the tokens of one rank",
        "wrong-loss-scale",
        """
mesh dp=4
input q f32[32] dp:S(0)
loss l
program
  s = sum(q)
  t = all-reduce(s) over dp
- l = div(t, 8)
+ l = div(t, 32)
""",
    ),
    *pair(
        "loss divided by context-parallel tokens only",
        "wrong-loss-scale",
        """
mesh dp=2 cp=2
input q f32[4,16] dp:S(0) cp:S(1)
loss l
program
  s = sum(q)
  t = all-reduce(s) over dp,cp
- l = div(t, 32)
+ l = div(t, 64)
""",
    ),
    *pair(
        "gradients of a mean loss summed over dp",
        "wrong-gradient-scale",
        """
mesh $MESH
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input t i64[8] dp:S(0)
loss l
program
  y = linear(x, w)
  l = cross_entropy(y, t)
  dy, _ = backward l (grad(l))
  _, grad(w) = backward y (dy)
- reduce-gradients w over dp
+ reduce-gradients w over dp by avg
  update w
""",
        ("dp=2", "dp=4"),
    ),
    *pair(
        "gradients divided by the wrong number of ranks",
        "wrong-gradient-scale",
        """
mesh dp=4 tp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input t i64[8] dp:S(0)
loss l
program
  y = linear(x, w)
  l = cross_entropy(y, t)
  dy, _ = backward l (grad(l))
  _, grad(w) = backward y (dy)
- reduce-gradients w over dp divide 8
+ reduce-gradients w over dp divide 4
  update w
""",
    ),
    *pair(
        "gradients divided by dp and not by cp",
        "wrong-gradient-scale",
        """
mesh dp=2 cp=2
weight w f32[8,8]
input x f32[8,8,8] dp:S(0) cp:S(1)
loss l
program
  y = linear(x, w)
  l = mean(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
- reduce-gradients w over dp,cp divide 2
+ reduce-gradients w over dp,cp divide 4
  update w
""",
    ),
    *pair(
        "averaged and divided",
        "wrong-gradient-scale",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
loss l
program
  y = linear(x, w)
  l = mean(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
- reduce-gradients w over dp by avg divide 2
+ reduce-gradients w over dp divide 2
  update w
""",
    ),
    *pair(
        "loss of a micro-batch not divided by their number",
        "wrong-gradient-scale wrong-loss-scale",
        """
mesh dp=2
micro-batches 4
weight w f32[8,8]
input x f32[8,8] dp:S(0)
loss l
segment fwd forward (x) -> (y, m, l)
  y = linear(x, w)
  m = mean(y)
- l = mul(m, 1.0)
+ l = div(m, 4)
segment bwd backward mirror fwd (x, y, m, l) -> (grad(w))
- dm = backward (grad(l)) of l = mul(m, 1.0)
+ dm = backward (grad(l)) of l = div(m, 4)
  dy = backward (dm) of m = mean(y)
  _, grad(w) = backward (dy) of y = linear(x, w)
segment step optimizer
  reduce-gradients w over dp by avg
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
    *pair(
        "loss divided by dp and gradients averaged",
        "wrong-gradient-scale",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
loss l
program
  y = linear(x, w)
  m = mean(y)
  l = div(m, 2)
  dm = backward l (grad(l))
  dy = backward m (dm)
  _, grad(w) = backward y (dy)
- reduce-gradients w over dp by avg
+ reduce-gradients w over dp
  update w
""",
    ),
    *correct(
        "gradients of a sum loss summed over dp",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input t i64[8] dp:S(0)
loss l
program
  y = linear(x, w)
  l = cross_entropy(y, t, reduction="sum")
  dy, _ = backward l (grad(l))
  _, grad(w) = backward y (dy)
  reduce-gradients w over dp
  update w
""",
    ),
    *correct(
        "loss scaled for fp16 and averaged by division",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
loss l
program
  y = linear(x, w)
  m = mean(y)
  l = mul(m, 65536.0)
  dm = backward l (grad(l))
  dy = backward m (dm)
  _, g = backward y (dy)
  s = all-reduce(g) over dp
  h = div(s, 2)
  grad(w) = mul(h, 1.52587890625e-05)
  update w
""",
    ),
    *correct(
        "loss averaged for the log, gradients averaged on their own",
        """
mesh dp=4
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input t i64[8] dp:S(0)
output shown f32[]
loss l
program
  y = linear(x, w)
  l = cross_entropy(y, t)
  shown = all-reduce avg(l) over dp
  dy, _ = backward l (grad(l))
  _, g = backward y (dy)
  grad(w) = all-reduce avg(g) over dp
  update w
""",
    ),
    *correct(
        "tokens counted and divided by",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input mask f32[8] dp:S(0)
loss l
program
  y = linear(x, w)
  r = sum(y, dim=1)
  k = mul(r, mask)
  s = sum(k)
  n = sum(mask)
  ss = all-reduce(s) over dp
  nn = all-reduce(n) over dp
  l = div(ss, nn)
""",
    ),
    *pair(
        "tokens counted on one rank only",
        "wrong-loss-scale missing-allreduce partial-times-partial partial-through-nonlinear",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input mask f32[8] dp:S(0)
loss l
program
  y = linear(x, w)
  r = sum(y, dim=1)
  k = mul(r, mask)
  s = sum(k)
  n = sum(mask)
  ss = all-reduce(s) over dp
+ nn = all-reduce(n) over dp
+ l = div(ss, nn)
- l = div(ss, n)
""",
    ),
    *pair(
        "gradients reduced in bf16 where the plan declares f32",
        "reduction-in-lower-precision",
        """
mesh dp=2
weight w f32[16,8]
gradient grad(w) f32[16,8] grad-of w
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
- grad(w) = all-reduce(g, dtype=bf16) over dp
+ grad(w) = all-reduce(g, dtype=f32) over dp
  update w
""",
    ),
    *pair(
        "gradient cast to bf16 before its sum and back after",
        "reduction-in-lower-precision",
        """
mesh dp=4
weight w f32[16,8]
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
- c: bf16[16,8] = to(g, dtype="bfloat16")
- r: bf16[16,8] = all-reduce(c) over dp
- grad(w): f32[16,8] = to(r, dtype="float32")
+ grad(w) = all-reduce(g) over dp
  update w
""",
    ),
    *pair(
        "bf16 reduce-scatter into an f32 gradient",
        "reduction-in-lower-precision",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
gradient gs f32[16,8] dp:S(0) grad-of w
input d bf16[16,8] dp:P
program
- gs = reduce-scatter(d, dim=0) over dp
+ c: f32[16,8] = to(d, dtype="float32")
+ gs = reduce-scatter(c, dim=0) over dp
  update w
""",
    ),
    *pair(
        "one member casts before the all-reduce",
        "mismatched-collective",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program tp=0
  p = linear(x, w)
- c: bf16[4,8] = to(p, dtype="bfloat16")
- y: bf16[4,8] = all-reduce(c) over tp
+ y = all-reduce(p) over tp
program tp=1
  p = linear(x, w)
  y = all-reduce(p) over tp
""",
    ),
    *pair(
        "one member communicates in another dtype",
        "mismatched-collective",
        """
mesh tp=2
input p f32[4,8] tp:P
program tp=0
- y = all-reduce(p, dtype=bf16) over tp
+ y = all-reduce(p) over tp
program tp=1
  y = all-reduce(p) over tp
""",
    ),
    *pair(
        "fp8 scale used before its amax",
        "scale-before-amax",
        """
mesh tp=2
buffer scale f32[1]
buffer history f32[16]
weight w f32[16,8] tp:S(0)
input x f32[8,8]
program
- q: f8e4m3[8,8] = quantize(x, scale)
  a = amax(x)
  r = all-reduce max(a) over tp
  s = compute_scale(r)
+ q: f8e4m3[8,8] = quantize(x, s)
- scale2 = copy(s)
  y = fp8_linear(q, w)
""",
    ),
    *pair(
        "fp8 scale read before it is overwritten from the amax",
        "scale-before-amax",
        """
mesh dp=2 tp=2
buffer amax f32[1]
buffer scale f32[1]
input x bf16[8,8]
program
- q: f8e4m3[8,8] = cast_to_fp8(x, scale)
  a = abs_max(x)
  m = all-reduce max(a) over tp
  copy_(amax!, m)
  update_scale(scale!, amax)
+ q: f8e4m3[8,8] = cast_to_fp8(x, scale)
""",
    ),
    *pair(
        "fp8 amax not reduced over the ranks that share the tensor",
        "scale-before-amax missing-allreduce partial-through-nonlinear",
        """
mesh tp=2
input x f32[8,8] tp:S(1)
program
  a = amax(x)
+ m = all-reduce max(a) over tp
+ s = reciprocal(m)
- s = reciprocal(a)
  y = mul(x, s)
""",
    ),
    *correct(
        "fp8 delayed scaling uses the history of earlier steps",
        """
mesh tp=2
buffer history f32[16]
input x f32[8,8]
program
  m = amax(history)
  s = compute_scale(m)
  q: f8e4m3[8,8] = quantize(x, s)
  a = amax(x)
  r = all-reduce max(a) over tp
  roll_history(history!, r)
""",
    ),
    *correct(
        "bf16 gradients accumulated and reduced in f32",
        """
mesh dp=2
weight w bf16[16,8]
gradient grad(w) f32[16,8] grad-of w
input x bf16[8,8] dp:S(0)
input dl bf16[8,16] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
  c: f32[16,8] = to(g, dtype="float32")
  grad(w) = all-reduce(c) over dp
  update w
""",
    ),
    *correct(
        "bf16 training that reduces in bf16",
        """
mesh dp=2 tp=2
weight w bf16[8,16] tp:S(1)
input x bf16[8,16] dp:S(0) tp:S(1)
input dl bf16[8,8] dp:S(0)
program
  p = linear(x, w)
  y = all-reduce(p) over tp
  _, grad(w) = backward p (dl)
  reduce-gradients w over dp by avg
  update w
""",
    ),
    *correct(
        "ZeRO-1: whole gradients, sharded update, gathered parameters",
        """
mesh dp=2
weight w f32[16,8]
state master f32[16,8] dp:S(0)
state m f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
  r = all-reduce(g) over dp
  s = chunk(r, dim=0) over dp
  n = adam_step(master, s, m)
  full = all-gather(n, dim=0) over dp
  copy_(w!, full)
""",
    ),
    *correct(
        "ZeRO-2: scattered gradients",
        """
mesh dp=2 tp=2
weight w f32[16,8] tp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0) tp:S(1)
program
  y = linear(x, w)
  _, grad(w) = backward y (dl)
  reduce-gradients w over dp scatter by avg
  update w
""",
    ),
    *correct(
        "ZeRO-3 with the gather repeated in backward",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  f = all-gather(w, dim=0) over dp
  y = linear(x, f)
  f2 = all-gather(w, dim=0) over dp
  _, d = backward (dl) of y2 = linear(x, f2)
  grad(w) = reduce-scatter avg(d, dim=0) over dp
  update w
""",
    ),
    *correct(
        "sequence-parallel layer with layer norm gradients reduced by hand",
        """
mesh dp=2 tp=2
weight g f32[8]
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,2,8] dp:S(1) tp:S(0)
input dy f32[8,2,8] dp:S(1) tp:S(0)
program
  n = rms_norm(x, g)
  f = all-gather(n, dim=0) over tp
  h = linear(f, w1)
  a = silu(h)
  p = linear(a, w2)
  r = reduce-scatter(p, dim=0) over tp
  y = add(r, x)
  dr, dx1 = backward y (dy)
  dp = all-gather(dr, dim=0) over tp
  da, grad(w2) = backward p (dp)
  dh = backward a (da)
  df, grad(w1) = backward h (dh)
  dn = reduce-scatter(df, dim=0) over tp
  dx2, gg = backward n (dn)
  dx = add(dx1, dx2)
  grad(g) = all-reduce(gg) over tp
  reduce-gradients w1, w2, g over dp by avg
  update w1, w2, g
""",
    ),
    *correct(
        "plan that leaves all reductions of gradients to the loop around it",
        """
mesh dp=2 tp=2
weight g f32[8]
weight w1 f32[16,8] tp:S(0)
input x f32[8,2,8] dp:S(1) tp:S(0)
input dh f32[8,2,16] dp:S(1) tp:S(2)
program
  n = rms_norm(x, g)
  f = all-gather(n, dim=0) over tp
  h = linear(f, w1)
  df, grad(w1) = backward h (dh)
  dn = reduce-scatter(df, dim=0) over tp
  _, grad(g) = backward n (dn)
""",
    ),
    *pair(
        "gradient left out where the plan reduces others and leaves the step to the loop",
        "missing-gradient-reduction",
        """
mesh dp=2
weight w1 f32[16,8]
weight w2 f32[8,16]
input x f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
program
  h = linear(x, w1)
  y = linear(h, w2)
  dh, d2 = backward y (dy)
  _, d1 = backward h (dh)
  grad(w2) = all-reduce(d2) over dp
+ grad(w1) = all-reduce(d1) over dp
""",
    ),
    *pair(
        "column-parallel input gradient unreduced into an embedding",
        "missing-gradient-reduction missing-allreduce",
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
        "router gradient not reduced under sequence parallelism",
        "missing-gradient-reduction",
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
        "FSDP gradient all-reduced over the replicas only",
        "missing-gradient-reduction missing-allreduce",
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
        "hybrid sharding without the sum over replicas",
        "missing-gradient-reduction",
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
        "token mean by a local count",
        "wrong-loss-scale wrong-gradient-scale",
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
        "context-parallel mean summed",
        "wrong-loss-scale",
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
        "gradients divided by hand by the wrong axis",
        "wrong-gradient-scale",
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
        "optimizer moments of the neighbour",
        "state-of-another-shard",
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
        "zero-bubble pipeline stage without its weight gradient",
        "unbalanced-backward schedule-missing-backward update-before-final-gradient missing-gradient use-before-definition",
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
        "optimizer states sharded, step on the whole weight",
        "state-of-another-shard mismatched-shards gradient-sharded-unlike-weight",
        """
mesh dp=2
weight w f32[8,8] dp:S(1)
state m f32[8,8] dp:S(0)
+ state m1 f32[8,8] dp:S(1)
input d f32[8,8] dp:P
program
  g = reduce-scatter(d, dim=1) over dp
- sgd_momentum(w!, g, m!)
+ sgd_momentum(w!, g, m1!)
""",
    ),
    *pair(
        "momentum of another rank's shard in written-out arithmetic",
        "state-of-another-shard mismatched-shards",
        """
mesh dp=2
weight w f32[8,8] dp:S(0)
+ state m f32[8,8] dp:S(0)
- state m f32[8,8] dp:S(0, order=[[1],[0]])
input d f32[8,8] dp:P
program
  g = reduce-scatter(d, dim=0) over dp
  a = mul(m, 0.9)
  b = add(a, g)
  c = mul(b, 0.01)
  n = sub(w, c)
""",
    ),
    *pair(
        "written-out optimizer step on a gradient of one rank",
        "missing-gradient-reduction",
        """
mesh dp=2
weight w f32[8,8]
state m f32[8,8]
input x f32[4,8] dp:S(0)
input dl f32[4,8] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
+ r = all-reduce avg(g) over dp
+ adam_step(w!, r, m!)
- adam_step(w!, g, m!)
""",
    ),
    *pair(
        "parameters of the next step gathered before this one's update",
        "gathered-before-update",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[4,8] dp:S(0)
input dl f32[4,16] dp:S(0)
program
  full = all-gather(w, dim=0) over dp
  y = linear(x, full)
  _, d = backward y (dl)
  grad(w) = reduce-scatter(d, dim=0) over dp
- next = all-gather(w, dim=0) over dp
  update w
+ next = all-gather(w, dim=0) over dp
  z = linear(x, next)
""",
    ),
    *pair(
        "replicated gradient averaged after a sum",
        "wrong-gradient-scale",
        """
mesh dp=2 cp=2
weight w f32[8,8]
input x f32[4,6,8] dp:S(0) cp:S(1)
loss l
program
  y = linear(x, w)
  l = mean(y)
  dy = backward l (grad(l))
  _, g = backward y (dy)
- a = all-reduce(g) over cp
+ a = all-reduce avg(g) over cp
  grad(w) = all-reduce avg(a) over dp
  update w
""",
    ),
    *pair(
        "loss divided by the micro-batches twice",
        "wrong-gradient-scale wrong-loss-scale",
        """
mesh dp=2
micro-batches 4
weight w f32[8,8]
input x f32[6,8] dp:S(0)
loss l
segment fwd forward (x) -> (y, m, l)
  y = linear(x, w)
  m = mean(y)
  l = div(m, 4)
segment bwd backward mirror fwd (x, y, m, l) -> (grad(w))
  dm = backward (grad(l)) of l = div(m, 4)
  dy = backward (dm) of m = mean(y)
  _, grad(w) = backward (dy) of y = linear(x, w)
segment step optimizer
- reduce-gradients w over dp divide 8
+ reduce-gradients w over dp divide 2
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
        (
            "pieces in the places of each other",
            "gradient-of-another-tensor",
            [
                (
                    "u1 = narrow(s, 0, 0, 64)\n  u2 = narrow(s, 0, 64, 64)",
                    "u2 = narrow(s, 0, 0, 64)\n  u1 = narrow(s, 0, 64, 64)",
                ),
            ],
        ),
        (
            "pieces of a split in the places of each other",
            "gradient-of-another-tensor",
            [
                ("u1 = narrow(s, 0, 0, 64)\n  u2 = narrow(s, 0, 64, 64)", "u2, u1 = split(s, 64, dim=0)"),
            ],
        ),
    ),
    *variants(
        "gradients of weights that are split along different dimensions, in one bucket",
        """
mesh dp=2 tp=2
weight w1 f32[8,8] tp:S(0)
weight w2 f32[8,8] tp:S(1)
input x f32[8,8] dp:S(0)
loss l f32[] dp:P
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  l = sum(y)
  dy = backward l (grad(l))
  da, g2 = backward p (dy)
  dh = backward a (da)
  _, g1 = backward h (dh)
  f1 = reshape(g1, [32])
  f2 = reshape(g2, [32])
  b = cat([f1, f2], dim=0)
  r = all-reduce(b) over dp
  r1, r2 = split(r, 32, dim=0)
  grad(w1) = reshape(r1, [4,8])
  grad(w2) = reshape(r2, [8,4])
  update w1, w2
""",
        ("over the other axis", "missing-gradient-reduction", [("all-reduce(b) over dp", "all-reduce(b) over tp")]),
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
    *pair(
        "tied weight reduced over the replicas only",
        "tied-gradient-not-reduced",
        """
mesh pp=2 dp=2
weight emb f32[16,8]
input ids i64[8] dp:S(0)
input dlog f32[8,16] dp:S(0)
program pp=0
  h = F.embedding(ids, emb)
  send h to pp+1
  recv dh: f32[4,8] from pp+1
  grad(emb) = backward h (dh)
+ reduce-gradients emb over pp
  reduce-gradients emb over dp
  update emb
program pp=1
  recv h: f32[4,8] from pp-1
  logits = linear(h, emb)
  dh, grad(emb) = backward logits (dlog)
  send dh to pp-1
+ reduce-gradients emb over pp
  reduce-gradients emb over dp
  update emb
""",
    ),
    *pair(
        "gradient of a later value sent back over the pipeline",
        "gradient-of-another-tensor",
        """
mesh pp=2
weight a f32[8,8]
weight b f32[8,8]
input x f32[4,8]
input t f32[4,8]
loss l
program pp=0
  h = linear(x, a)
  r = relu(h)
  send r to pp+1
  recv dr: f32[4,8] from pp+1
  dh = backward r (dr)
  _, grad(a) = backward h (dh)
  update a
program pp=1
  recv q: f32[4,8] from pp-1
  y = linear(q, b)
  l = mse_loss(y, t)
  dy, _ = backward l (grad(l))
  dq, grad(b) = backward y (dy)
-  send dy to pp-1
+  send dq to pp-1
  update b
""",
    ),
    *pair(
        "master weights stepped with each other's gradients",
        "gradient-of-another-tensor",
        """
mesh dp=2
weight a bf16[8,8]
weight b bf16[8,8]
state ma f32[8,8]
state mb f32[8,8]
input x bf16[4,8] dp:S(0)
loss l
program
  h = linear(x, a)
  y = linear(h, b)
  l = mean(y)
  dy = backward l (grad(l))
  dh, gb = backward y (dy)
  _, ga = backward h (dh)
  grad(a) = all-reduce avg(ga) over dp
  grad(b) = all-reduce avg(gb) over dp
  fa = float(grad(a))
  fb = float(grad(b))
-  sgd(ma!, fb)
-  sgd(mb!, fa)
+  sgd(ma!, fa)
+  sgd(mb!, fb)
  na = bfloat16(ma)
  nb = bfloat16(mb)
  copy_(a!, na)
  copy_(b!, nb)
""",
    ),
    *pair(
        "gradient behind attention of shared heads, reduced over another axis",
        "missing-gradient-reduction",
        """
mesh dp=2 tp=2
weight w f32[16,32]
input x f32[4,12,32] dp:S(0)
input q f32[4,8,12,16] dp:S(0) tp:S(1)
input do f32[4,8,12,16] dp:S(0) tp:S(1)
program
  k = linear(x, w)
  kv = view(k, [2,12,1,16])
  kh = transpose(kv, 1, 2)
  o = scaled_dot_product_attention(q, kh, kh)
  dq, dk, dv = backward o (do)
  dkh = add(dk, dv)
  dkv = backward kh (dkh)
  dkk = backward kv (dkv)
  _, grad(w) = backward k (dkk)
- reduce-gradients w over tp
+ reduce-gradients w over dp, tp
  update w
""",
    ),
    *correct(
        "gradient behind a function that nobody knows, which may communicate",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
program
  h: f32[4,8] = our_exchange(x)
  y = linear(h, w)
  d: f32[4,8] = our_exchange(dy)
  _, grad(w) = backward y (d)
  update w
""",
    ),
    *pair(
        "gradient of the last micro-batch alone",
        "unbalanced-backward",
        """
mesh dp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
loss l f32[] dp:P
segment f forward (x) -> (h, l)
  h = linear(x, w)
  l = sum(h)
-segment b backward (x, h, l) -> (d)
+segment b backward (x, h, l) -> ()
  dh = backward l (grad(l))
- _, d = backward h (dh)
+ _, grad(w) = backward h (dh)
-segment o optimizer (d) -> ()
- grad(w) = all-reduce(d) over dp
+segment o optimizer () -> ()
+ reduce-gradients w over dp
  update w
program
  run f micro-batch 0-1
  run b micro-batch 0-1
- run o micro-batch 1
+ run o
""",
    ),
    *pair(
        "first moment of the own gradient, second of the reduced one, both written out",
        "missing-gradient-reduction",
        """
mesh dp=2
weight w f32[16,8]
state  m f32[16,8]
state  v f32[16,8]
input  x f32[8,8] dp:S(0)
loss   l f32[]
program
  y = linear(x, w)
  u = pow(y, 2)
  s = sum(u)
  l = all-reduce(s) over dp
  du = backward s (grad(l))
  dy = backward u (du)
  _, g = backward y (dy)
  all = all-reduce(g) over dp
  m0 = mul(m, 0.9)
- n = mul(g, 0.1)
+ n = mul(all, 0.1)
  m = add(m0, n)
  q = pow(all, 2)
  v0 = mul(v, 0.99)
  q1 = mul(q, 0.01)
  v = add(v0, q1)
  r = sqrt(v)
  r1 = add(r, 1e-8)
  e = div(m, r1)
  d = mul(e, 0.001)
  w = sub(w, d)
""",
    ),
    *pair(
        "flat bucket of weights in another order than that of gradients",
        "gradient-of-another-tensor",
        """
mesh dp=2
weight wa f32[4,8]
weight wb f32[4,8]
state m f32[64] dp:S(0)
state v f32[64] dp:S(0)
input x f32[8,8] dp:S(0)
loss l f32[]
program
  ya = linear(x, wa)
  yb = linear(x, wb)
  y = mul(ya, yb)
  s = sum(y)
  l = all-reduce(s) over dp
  dy = backward s (grad(l))
  dya, dyb = backward y (dy)
  _, ga = backward ya (dya)
  _, gb = backward yb (dyb)
  fa = view(ga, [32])
  fb = view(gb, [32])
  g0 = cat([fa, fb], dim=0)
  g = reduce-scatter(g0, dim=0) over dp
  va = view(wa, [32])
  vb = view(wb, [32])
- w0 = cat([vb, va], dim=0)
+ w0 = cat([va, vb], dim=0)
  own = chunk(w0, dim=0) over dp
  adam_step(own!, g, m!, v!, lr=0.1)
  w1 = all-gather(own, dim=0) over dp
- nb, na = split(w1, 32, dim=0)
+ na, nb = split(w1, 32, dim=0)
  wa = view(na, [4,8])
  wb = view(nb, [4,8])
""",
    ),
    *pair(
        "steps of a flat bucket taken apart in another order",
        "gradient-of-another-tensor",
        """
mesh dp=2
weight wa f32[4,8]
weight wb f32[4,8]
state m f32[64]
state v f32[64]
input x f32[8,8] dp:S(0)
loss l f32[]
program
  ya = linear(x, wa)
  yb = linear(x, wb)
  y = mul(ya, yb)
  s = sum(y)
  l = all-reduce(s) over dp
  dy = backward s (grad(l))
  dya, dyb = backward y (dy)
  _, ga = backward ya (dya)
  _, gb = backward yb (dyb)
  ra = all-reduce(ga) over dp
  rb = all-reduce(gb) over dp
  fa = view(ra, [32])
  fb = view(rb, [32])
  g = cat([fa, fb], dim=0)
  m0 = mul(m, 0.9)
  g1 = mul(g, 0.1)
  m = add(m0, g1)
  q = pow(g, 2)
  v0 = mul(v, 0.99)
  q1 = mul(q, 0.01)
  v = add(v0, q1)
  r = sqrt(v)
  e = div(m, r)
- eb, ea = split(e, 32, dim=0)
+ ea, eb = split(e, 32, dim=0)
  da = view(ea, [4,8])
  db = view(eb, [4,8])
  sa = mul(da, 0.001)
  sb = mul(db, 0.001)
  wa = sub(wa, sa)
  wb = sub(wb, sb)
""",
    ),
    *pair(
        "halves of a flat state exchanged in every step",
        "state-of-another-shard",
        """
mesh dp=2
weight wa f32[4,8]
weight wb f32[4,8]
state m f32[64]
state v f32[64]
input x f32[8,8] dp:S(0)
loss l f32[]
program
  ya = linear(x, wa)
  yb = linear(x, wb)
  y = mul(ya, yb)
  s = sum(y)
  l = all-reduce(s) over dp
  dy = backward s (grad(l))
  dya, dyb = backward y (dy)
  _, ga = backward ya (dya)
  _, gb = backward yb (dyb)
  ra = all-reduce(ga) over dp
  rb = all-reduce(gb) over dp
  fa = view(ra, [32])
  fb = view(rb, [32])
  g = cat([fa, fb], dim=0)
  m1, m2 = split(m, 32, dim=0)
- mc = cat([m2, m1], dim=0)
+ mc = cat([m1, m2], dim=0)
  m0 = mul(mc, 0.9)
  g1 = mul(g, 0.1)
  m = add(m0, g1)
  q = pow(g, 2)
  v0 = mul(v, 0.99)
  q1 = mul(q, 0.01)
  v = add(v0, q1)
  r = sqrt(v)
  e = div(m, r)
  ea, eb = split(e, 32, dim=0)
  da = view(ea, [4,8])
  db = view(eb, [4,8])
  sa = mul(da, 0.001)
  sb = mul(db, 0.001)
  wa = sub(wa, sa)
  wb = sub(wb, sb)
""",
    ),
    *correct(
        "flat bucket of gradients in another order, rolled back",
        """
mesh dp=2
weight wa f32[4]
weight wb f32[4]
input  x f32[8,4] dp:S(0)
loss   l f32[]
program
  ya = mul(x, wa)
  yb = mul(ya, wb)
  s = sum(yb)
  l = all-reduce(s) over dp
  dyb = backward s (grad(l))
  dya, gb = backward yb (dyb)
  _, ga = backward ya (dya)
  ra = all-reduce(ga) over dp
  rb = all-reduce(gb) over dp
  f = cat([rb, ra], dim=0)
  g = roll(f, shifts=4, dims=0)
  da, db = split(g, 4, dim=0)
  wa = sub(wa, da)
  wb = sub(wb, db)
""",
    ),
    *correct(
        "flat bucket of gradients from the last to the first, and back",
        """
mesh dp=2
weight wa f32[4]
weight wb f32[4]
input  x f32[8,4] dp:S(0)
loss   l f32[]
program
  ya = mul(x, wa)
  yb = mul(ya, wb)
  s = sum(yb)
  l = all-reduce(s) over dp
  dyb = backward s (grad(l))
  dya, gb = backward yb (dyb)
  _, ga = backward ya (dya)
  ra = all-reduce(ga) over dp
  rb = all-reduce(gb) over dp
  fa = flip(ra, dims=[0])
  fb = flip(rb, dims=[0])
  f = cat([fb, fa], dim=0)
  g = flip(f, dims=[0])
  da, db = split(g, 4, dim=0)
  wa = sub(wa, da)
  wb = sub(wb, db)
""",
    ),
    *correct(
        "state of the sums of gradients",
        """
mesh dp=2
weight wa f32[4]
weight wb f32[4]
state n f32[2]
input  x f32[8,4] dp:S(0)
loss   l f32[]
program
  ya = mul(x, wa)
  yb = mul(ya, wb)
  s = sum(yb)
  l = all-reduce(s) over dp
  dyb = backward s (grad(l))
  dya, gb = backward yb (dyb)
  _, ga = backward ya (dya)
  ra = all-reduce(ga) over dp
  rb = all-reduce(gb) over dp
  na: f32[] = sum(ra)
  nb: f32[] = sum(rb)
  n = stack([na, nb])
  da = mul(ra, 0.1)
  db = mul(rb, 0.1)
  wa = sub(wa, da)
  wb = sub(wb, db)
""",
    ),
    *correct(
        "flat bucket of weights with the same gradient",
        """
mesh dp=2
weight wa f32[4,8]
weight wb f32[4,8]
state m f32[64]
state v f32[64]
input x f32[8,8] dp:S(0)
loss l f32[]
program
  ya = linear(x, wa)
  yb = linear(x, wb)
  y = add(ya, yb)
  s = sum(y)
  l = all-reduce(s) over dp
  dy = backward s (grad(l))
  dya, dyb = backward y (dy)
  _, ga = backward ya (dya)
  _, gb = backward yb (dyb)
  ra = all-reduce(ga) over dp
  rb = all-reduce(gb) over dp
  fa = view(ra, [32])
  fb = view(rb, [32])
  g = cat([fa, fb], dim=0)
  m0 = mul(m, 0.9)
  g1 = mul(g, 0.1)
  m = add(m0, g1)
  q = pow(g, 2)
  v0 = mul(v, 0.99)
  q1 = mul(q, 0.01)
  v = add(v0, q1)
  r = sqrt(v)
  e = div(m, r)
  ea, eb = split(e, 32, dim=0)
  da = view(ea, [4,8])
  db = view(eb, [4,8])
  sa = mul(da, 0.001)
  sb = mul(db, 0.001)
  wa = sub(wa, sa)
  wb = sub(wb, sb)
""",
    ),
    *pair(
        "backward that starts with the loss in the place of one",
        "gradient-of-another-tensor",
        """
mesh dp=2
weight w f32[8,8]
state scale f32[]
input x f32[4,8] dp:S(0)
input t f32[4,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  l = mse_loss(y, t)
  s = mul(l, scale)
- dl, _ = backward s (l)
+ dl, _ = backward s (grad(s))
  dy, _ = backward l (dl)
  _, g = backward y (dy)
  r = all-reduce avg(g) over dp
  grad(w) = div(r, scale)
  update w
""",
    ),
    *pair(
        "one micro-batch that starts with the loss of both, and one with its weight of it",
        "gradient-of-another-tensor",
        """
weight w f32[8,8]
input x f32[4,8]
input z f32[4,8]
loss l f32[]
program
  h = linear(x, w)
  lx = mean(h)
  k = linear(z, w)
  lz = mean(k)
  a = add(lx, lz)
  l = div(a, 2)
  half = full([], 0.5)
- dh = backward lx (a)
+ dh = backward lx (half)
  dk = backward lz (half)
  _, gx = backward h (dh)
  _, gz = backward k (dk)
  grad(w) = add(gx, gz)
  update w
""",
    ),
    *correct(
        "square of a loss of which the gradient is written out",
        """
weight w f32[8,8]
input x f32[4,8]
loss l f32[]
program
  h = linear(x, w)
  m = mean(h)
  l = pow(m, 2)
  dm = mul(m, 2)
  dh = backward m (dm)
  _, grad(w) = backward h (dh)
  update w
""",
    ),
    *pair(
        "gradient of a weight of the same shape, in the place of that of an activation",
        "gradient-of-another-tensor",
        """
weight w f32[8,8]
weight u f32[8,8]
input x f32[8,8]
input dy f32[8,8]
program
  h = linear(x, w)
  a = gelu(h)
  y = linear(a, u)
  da, grad(u) = backward y (dy)
- dh = backward a (grad(u))
+ dh = backward a (da)
  _, grad(w) = backward h (dh)
  update w, u
""",
    ),
    *pair(
        "activations that are gathered in the place of a weight",
        "gradient-of-another-tensor",
        """
mesh dp=4
weight a f32[16,8] dp:S(0)
weight b f32[8,16] dp:S(0)
input x f32[8,8] dp:S(0)
input t f32[8,8] dp:S(0)
loss l f32[]
program
  af = all-gather(a, dim=0) over dp
  h = linear(x, af)
- bf = all-gather(h, dim=0) over dp
+ bf = all-gather(b, dim=0) over dp
  y = linear(h, bf)
  l = mse_loss(y, t)
  dy, _ = backward l (grad(l))
  dh, dbf = backward y (dy)
  grad(b) = reduce-scatter avg(dbf, dim=0) over dp
  _, daf = backward h (dh)
  grad(a) = reduce-scatter avg(daf, dim=0) over dp
  update a, b
""",
    ),
    *correct(
        "weights that are stepped with the gradients of what is rounded of them, and of tied ones",
        """
weight a f32[8,8]
weight b f32[8,8]
weight c f32[8,8] storage b
input x f32[4,8]
input dy f32[4,8]
program
  s = mul(a, 16.0)
  r = round(s)
  q = div(r, 16.0)
  h = linear(x, q)
  y = linear(h, b)
  dh, gc = backward y (dy)
  _, gq = backward h (dh)
  grad(a) = identity(gq)
  grad(c) = identity(gc)
  update a, c
""",
    ),
    *pair(
        "probability of the target that every rank of classes has and that is summed again",
        "doubled-allreduce",
        """
mesh tp=2
weight e f32[16,8] tp:S(0)
input h f32[6,8]
input k f32[6,16] tp:S(1)
loss l f32[]
program
  z = linear(h, e)
  m0 = amax(z, dim=1, keepdim=True)
  m = all-reduce max(m0) over tp
  s = sub(z, m)
  x = exp(s)
  d0 = sum(x, dim=1)
  d = all-reduce(d0) over tp
  n = log(d)
  c = mul(s, k)
  p0 = sum(c, dim=1)
  p = all-reduce(p0) over tp
- r = all-reduce(p) over tp
+ r = identity(p)
  o = sub(n, r)
  l = mean(o)
""",
    ),
    *pair(
        "copy of a weight that is gathered before a step written out, and applied after it",
        "gathered-before-update",
        """
mesh dp=2
weight w f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
input z f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
output v f32[8,8] dp:S(0)
program
  a = all-gather(w, dim=0) over dp
  y = linear(x, a)
  _, ga = backward y (dy)
  g = reduce-scatter(ga, dim=0) over dp
  s = mul(g, 0.1)
  sub_(w!, s)
- v = linear(z, a)
+ b = all-gather(w, dim=0) over dp
+ v = linear(z, b)
""",
    ),
    *correct(
        "copies of a weight from before the step: the step is made in one of them, and a sum takes the other",
        """
mesh dp=2
weight w f32[8,8] dp:S(0)
state e f32[8,8]
input x f32[8,8] dp:S(0)
input z f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
output v f32[8,8] dp:S(0)
program
  a = all-gather(w, dim=0) over dp
  c = all-gather(w, dim=0) over dp
  y = linear(x, a)
  _, ga = backward y (dy)
  g = all-reduce(ga) over dp
  s = mul(g, 0.1)
  sub_(a!, s)
  p = chunk(a, dim=0) over dp
  copy_(w!, p)
  v = linear(z, a)
  d = mul(c, 0.1)
  mul_(e!, 0.9)
  add_(e!, d)
""",
    ),
    *pair(
        "momentum that a gradient is added to twice",
        "weight-updated-twice",
        """
mesh dp=2
weight w f32[8,8]
state m f32[8,8] of w
input x f32[8,8] dp:S(0)
input t f32[8,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  l = mse_loss(y, t)
  dy, _ = backward l (grad(l))
  _, g0 = backward y (dy)
  g = all-reduce avg(g0) over dp
  mul_(m!, 0.9)
  add_(m!, g)
- add_(m!, g)
  s = mul(m, 0.1)
  sub_(w!, s)
- sub_(w!, s)
+ d = mul(w, 0.01)
+ sub_(w!, d)
""",
    ),
    *correct(
        "gradients of two micro-batches that are added to a state under one name",
        """
mesh dp=2
micro-batches 2
weight w f32[8,8]
state m f32[8,8] of w
input x f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
segment forth forward (x) -> (y)
  y = linear(x, w)
segment back backward (x, y) -> (g)
  _, g = backward y (dy)
segment add optimizer (g) -> ()
  add_(m!, g)
segment step optimizer () -> ()
  r = all-reduce(m) over dp
  sub_(w!, r)
program
  run forth micro-batch 0-1
  run back micro-batch 0-1
  run add micro-batch 0-1
  run step
""",
    ),
    *pair(
        "running statistics in a state, of the batch of one rank",
        "divergent-replicas",
        """
mesh dp=2
weight w f32[8,8]
state r f32[8]
input x f32[16,8] dp:S(0)
output y f32[16,8] dp:S(0)
program
  h = linear(x, w)
  m0 = mean(h, dim=0)
  m = all-reduce avg(m0) over dp
  y = sub(h, m)
  mul_(r!, 0.9)
- u = mul(m0, 0.1)
+ u = mul(m, 0.1)
  add_(r!, u)
""",
    ),
    *(
        each
        for name, step in (
            ("a weight in the place of its gradient", "adam_step(p!, p, ms!, v!)"),
            ("a gradient in the place of a state", "adam_step(p!, r, r!, v!)"),
            ("a weight in the place of a state", "adam_step(p!, r, p!, v!)"),
        )
        for each in pair(
            name,
            "state-of-another-shard",
            f"""
mesh dp=2
weight w f32[8,8]
state m f32[8,8] of w
state v f32[8,8] dp:S(0) of w
input x f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dy)
  r = reduce-scatter(g, dim=0) over dp
  p = chunk(w, dim=0) over dp
  ms = chunk(m, dim=0) over dp
- {step}
+ adam_step(p!, r, ms!, v!)
  n = all-gather(p, dim=0) over dp
  k = all-gather(ms, dim=0) over dp
  copy_(w!, n)
  copy_(m!, k)
""",
        )
    ),
    *pair(
        "piece of a weight that is copied over all of it",
        "shape-mismatch",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dy)
  r = reduce-scatter(g, dim=0) over dp
  p = chunk(w, dim=0) over dp
  s = mul(r, 0.1)
  q = sub(p, s)
- copy_(w!, q)
+ n = all-gather(q, dim=0) over dp
+ copy_(w!, n)
""",
    ),
    *pair(
        "backward that starts with a value, and a gradient that nothing reads",
        "gradient-of-another-tensor",
        """
weight w f32[8,8]
weight u f32[8,8]
input x f32[8,8]
input t f32[8,8]
input dy f32[8,8]
output y
program
  h = linear(x, w)
  y = linear(h, u)
- dh, grad(u) = backward y (h)
+ dh, grad(u) = backward y (dy)
  _, grad(w) = backward h (dh)
  update w, u
""",
    ),
    *correct(
        "energies whose gradients are written out, beside an input that nothing reads",
        """
weight w f32[8,8]
weight u f32[8,8]
input x f32[8,8]
input t f32[8,8]
input unread f32[8,8]
program
  h = linear(x, w)
  y = linear(h, u)
  e = sub(y, t)
  de = mul(e, 2.0)
  dy, _ = backward e (de)
  dy2 = add(dy, y)
  dh0, grad(u) = backward y (dy2)
  dh = add(dh0, 0.0)
  _, grad(w) = backward h (dh)
  update w, u
""",
    ),
    *correct(
        "copies that are broadcast into a state",
        """
weight w f32[8,8]
state m f32[8,8]
input x f32[8]
program
  y = mul(x, 2.0)
  copy_(m!, y)
  s = sum(x)
  copy_(m!, s)
""",
    ),
    *pair(
        "decay of another weight",
        "state-of-another-shard",
        """
weight w f32[8,8]
weight u f32[8,8]
weight teacher f32[8,8] frozen
input x f32[8,8]
input dy f32[8,8]
program
  h = linear(x, w)
  y = linear(h, u)
  dh, gu = backward y (dy)
  _, gw = backward h (dh)
  cw = mul(w, 0.01)
- cu = mul(w, 0.01)
+ cu = mul(u, 0.01)
  sw = add(gw, cw)
  su = add(gu, cu)
  tw = mul(sw, 0.1)
  tu = mul(su, 0.1)
  nw = sub(w, tw)
  nu = sub(u, tu)
  copy_(w!, nw)
  copy_(u!, nu)
  et = mul(teacher, 0.9)
  ew = mul(w, 0.1)
  e = add(et, ew)
  copy_(teacher!, e)
""",
    ),
    *correct(
        "weights that are pulled to each other, and one to what is not stepped",
        """
weight w f32[8,8]
weight u f32[8,8]
weight anchor f32[8,8] frozen
input x f32[8,8]
input dy f32[8,8]
program
  h = linear(x, w)
  y = linear(h, u)
  dh, gu = backward y (dy)
  _, gw = backward h (dh)
  d = sub(w, u)
  c = mul(d, 0.01)
  a0 = sub(u, anchor)
  a = mul(a0, 0.01)
  sw = add(gw, c)
  s0 = sub(gu, c)
  su = add(s0, a)
  nw = sub(w, sw)
  nu = sub(u, su)
  copy_(w!, nw)
  copy_(u!, nu)
""",
    ),
    *pair(
        "rows of an embedding that are masked, and a gradient that is not",
        "gradient-of-another-tensor",
        """
mesh tp=2
weight e f32[16,8] tp:S(0)
weight w f32[8,8]
input ids i64[6]
input dy f32[6,8]
program tp=0
  m = lt(ids, 8)
  i = where(m, ids, 0)
  r = embedding(i, e)
  f = to(m, dtype="f32")
  k = unsqueeze(f, 1)
  z = mul(r, k)
  h = all-reduce(z) over tp
  y = linear(h, w)
  dh, grad(w) = backward y (dy)
- _, grad(e) = backward r (dh)
+ dr, _ = backward z (dh)
+ _, grad(e) = backward r (dr)
  update e, w
program tp=1
  m = ge(ids, 8)
  s = sub(ids, 8)
  i = where(m, s, 0)
  r = embedding(i, e)
  f = to(m, dtype="f32")
  k = unsqueeze(f, 1)
  z = mul(r, k)
  h = all-reduce(z) over tp
  y = linear(h, w)
  dh, grad(w) = backward y (dy)
- _, grad(e) = backward r (dh)
+ dr, _ = backward z (dh)
+ _, grad(e) = backward r (dr)
  update e, w
""",
    ),
)
