"""Small programs with a mistake, and the rules that name it; no other rule speaks on them."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import rules_of_text

PROGRAMS = {
    "missing wait": (
        {"missing-wait"},
        """
mesh tp=4
input x f32[16,8] tp:S(0)
program
  g: f32[16,8] = all-gather(x, dim=0) over tp async h0 on comm
  y = gelu(g)
  wait h0
""",
    ),
    "deadlock": (
        {"send-recv-deadlock"},
        """
mesh pp=2
input x f32[4,8]
program pp=0
  recv b: f32[4,8] from pp+1
  send x to pp+1
program pp=1
  recv a: f32[4,8] from pp-1
  send x to pp-1
""",
    ),
    "buffered": (
        {"send-needs-buffering"},
        """
mesh pp=2
input x f32[4,8]
program pp=0
  send x to pp+1
  recv b: f32[4,8] from pp+1
program pp=1
  send x to pp-1
  recv a: f32[4,8] from pp-1
""",
    ),
    "unmatched send": (
        {"unmatched-send"},
        """
mesh pp=2
input x f32[4,8]
program pp=0
  send x to pp+1
program pp=1
  y = gelu(x)
""",
    ),
    "unmatched recv": (
        {"unmatched-receive"},
        """
mesh pp=2
input x f32[4,8]
program pp=0
  send x to pp+1
program pp=1
  recv a: f32[4,8] from pp-1
  recv b: f32[4,8] from pp-1
""",
    ),
    "wrong group": (
        {"wrong-collective-group"},
        """
mesh dp=2 tp=2
input x f32[4,8] tp:P
program ranks 0,2,3
  y = all-reduce(x) over tp
program ranks 1
  y = all-reduce(x) over dp
""",
    ),
    "wrong group abs": (
        {"wrong-collective-group"},
        """
mesh tp=4
input x f32[4,8] tp:P
program ranks 0-2
  y = all-reduce(x) over ranks 0-3
program ranks 3
  y = all-reduce(x) over ranks 2-3
""",
    ),
    "self": (
        {"wrong-collective-group"},
        """
mesh tp=4
input x f32[4,8] tp:P
program ranks 0-3
  y = all-reduce(x) over ranks 0-2
""",
    ),
    "unknown handle / never waited": (
        {"handle-never-waited", "unknown-handle"},
        """
mesh tp=4
input x f32[16,8] tp:S(0)
program
  g: f32[16,8] = all-gather(x, dim=0) over tp async h0 on comm
  wait h1
""",
    ),
    "double wait": (
        {"double-wait"},
        """
mesh tp=4
input x f32[16,8] tp:S(0)
program
  g: f32[16,8] = all-gather(x, dim=0) over tp async h0
  wait h0
  wait h0
""",
    ),
    "WAR": (
        {"buffer-in-flight"},
        """
mesh tp=4
input x f32[4,8]
program
  a = gelu(x)
  send a to tp+1 ring async h0
  recv b: f32[4,8] from tp-1 ring async h1
  add(a!, 1.0)
  wait h0, h1
""",
    ),
    "order mismatch": (
        {"collective-order-mismatch"},
        """
mesh tp=2
input x f32[4,8] tp:P
input z f32[4,8] tp:S(0)
program tp=0
  y = all-reduce(x) over tp
  w = all-gather(z, dim=0) over tp
program tp=1
  w = all-gather(z, dim=0) over tp
  y = all-reduce(x) over tp
""",
    ),
    "missing member": (
        {"missing-collective-member"},
        """
mesh tp=4
input x f32[4,8] tp:P
input z f32[4,8] tp:P
program ranks 0-2
  y = all-reduce(x) over tp
  w = all-reduce(z) over tp
program ranks 3
  y = all-reduce(x) over tp
""",
    ),
    "interleaved": (
        {"interleaved-communicators"},
        """
mesh dp=2 tp=2
input x f32[4,8] tp:P
input z f32[4,8] dp:P
program ranks 0,3
  y = all-reduce(x) over tp
  w = all-reduce(z) over dp
program ranks 1,2
  w = all-reduce(z) over dp
  y = all-reduce(x) over tp
""",
    ),
    "streams": (
        {"cross-stream-access"},
        """
mesh tp=2
input x f32[4,8]
program
  a = gelu(x) on side
  b = gelu(a)
""",
    ),
    "optimizer too early": (
        {"reducer-before-last-backward"},
        """
mesh dp=2 tp=2
weight w1 f32[16,8]  tp:S(0)
weight w2 f32[8,16]  tp:S(1)
input  x  f32[8,8]   dp:S(0)
input  dl f32[8,8]   dp:S(0)
output y  f32[8,8]   dp:S(0)
program
  h = linear(x, w1)
  a = gelu(h)
  p: f32[4,8] = linear(a, w2)
  y = all-reduce(p) over tp
  da, grad(w2) = backward p (dl)
  dh = backward a (da)
  reduce-gradients w1, w2 over dp
  _, grad(w1) = backward h (dh)
  update w1, w2
""",
    ),
    "mb crossed": (
        {"mismatched-message"},
        """
mesh pp=2
micro-batches 2
weight w1 f32[8,8]
input  x  f32[4,8]
output y
segment first forward stage 0 (x) -> ()
  h = linear(x, w1)
  send h to pp+1
segment second forward stage 1 () -> (y)
  recv h: f32[4,8] from pp-1
  y = linear(h, w1)
program pp=0
  run first micro-batch 0
  run first micro-batch 1
program pp=1
  run second micro-batch 1
  run second micro-batch 0
""",
    ),
    "missing allreduce output": (
        {"missing-allreduce"},
        """
mesh dp=2 tp=2
weight w1 f32[16,8]  tp:S(0)
weight w2 f32[8,16]  tp:S(1)
input  x  f32[8,8]   dp:S(0)
output y  f32[8,8]   dp:S(0)
program
  h = linear(x, w1)
  a = gelu(h)
  y = linear(a, w2)
""",
    ),
    "missing allreduce residual": (
        {"missing-allreduce"},
        """
mesh tp=2
weight w1 f32[16,8]  tp:S(0)
weight w2 f32[8,16]  tp:S(1)
input  x  f32[8,8]
output y
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = add(p, x)
""",
    ),
    "gelu on partial, bias, const, ptp, double": (
        {
            "bias-added-to-partial",
            "doubled-allreduce",
            "gather-of-partial",
            "gather-of-unsharded",
            "partial-through-nonlinear",
            "partial-times-partial",
            "reduce-scatter-of-replicated",
            "wrong-reduce-op",
        },
        """
mesh tp=2
weight w1 f32[16,8]  tp:S(1)
weight w2 f32[16,8]  tp:S(1)
weight b f32[16]
input  x  f32[8,8] tp:S(1)
program
  h = linear(x, w1)
  k = linear(x, w2)
  a = gelu(h)
  c = add(h, b)
  d = add(h, 1.0)
  e = mul(h, h)
  r = all-reduce(h) over tp
  s = all-reduce(r) over tp
  m = all-reduce max(h) over tp
  t = all-gather(k, dim=0) over tp
  u = reduce-scatter(r, dim=0) over tp
  v = all-gather(r, dim=0) over tp
  ok = add(h, h)
  ok2 = all-reduce(ok) over tp
""",
    ),
    "shards": (
        {"allreduce-of-shards", "softmax-over-shards", "wrong-gather-dim"},
        """
mesh tp=2
weight w f32[16,8]  tp:S(0)
weight g f32[16]
input  x  f32[8,8]
program
  h = linear(x, w)
  s = softmax(h, dim=-1)
  g2 = all-gather(h, dim=0) over tp
  g1 = all-gather(h, dim=1) over tp
  n = layer_norm(g1, g, g)
  q = all-reduce(h) over tp
""",
    ),
    "dp grads missing": (
        {"missing-gradient-reduction"},
        """
mesh dp=2 tp=2
weight w1 f32[16,8]  tp:S(0)
weight w2 f32[8,16]  tp:S(1)
input  x  f32[8,8]   dp:S(0)
input  dl f32[8,8]   dp:S(0)
output y  f32[8,8]   dp:S(0)
program
  h = linear(x, w1)
  a = gelu(h)
  p: f32[4,8] = linear(a, w2)
  y = all-reduce(p) over tp
  da, grad(w2) = backward p (dl)
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
  reduce-gradients w1 over dp
  update w1, w2
""",
    ),
    "sp missing layernorm": (
        {"missing-gradient-reduction"},
        """
mesh tp=2
weight g f32[8]
weight w1 f32[16,8]  tp:S(0)
weight w2 f32[8,16]  tp:S(1)
input  x  f32[8,8]   tp:S(0)
input  dl f32[8,8]   tp:S(0)
output y  f32[8,8]   tp:S(0)
program
  n = rms_norm(x, g)
  f = all-gather(n, dim=0) over tp
  h = linear(f, w1)
  a = gelu(h)
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
  update w1, w2, g
""",
    ),
    "extra backward allreduce of da": (
        {"doubled-allreduce"},
        """
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8]
input dl f32[8,8]
output y f32[8,8]
program
  h = linear(x, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  dp = all-reduce(dl) over tp
  da, grad(w2) = backward p (dp)
  dh = backward a (da)
  dx, grad(w1) = backward h (dh)
  update w1, w2
""",
    ),
    "missing backward allreduce col parallel, with norm upstream": (
        {"missing-gradient-reduction"},
        """
mesh tp=2
weight g f32[8]
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8]
input dl f32[8,8]
output y f32[8,8]
program
  n = rms_norm(x, g)
  h = linear(n, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  da, grad(w2) = backward p (dl)
  dh = backward a (da)
  dn, grad(w1) = backward h (dh)
  dx, grad(g) = backward n (dn)
  update w1, w2, g
""",
    ),
    "vocab parallel embedding unreduced then norm": (
        {"partial-through-nonlinear"},
        """
mesh tp=2
weight e f32[32,8] tp:S(0)
weight g f32[8]
input ids i64[4]
program
  p = embedding(ids, e)
  y = rms_norm(p, g)
""",
    ),
    "ce mean on shard": (
        {"loss-over-shards"},
        """
mesh tp=2
weight w f32[32,8] tp:S(0)
input x f32[4,8]
input t i64[4]
program
  p = linear(x, w)
  l = cross_entropy(p, t)
""",
    ),
    "dropout on partial; softmax w/out dim": (
        {"partial-through-nonlinear"},
        """
mesh tp=2
weight w f32[32,8] tp:S(1)
input x f32[4,8] tp:S(1)
program
  p = linear(x, w)
  l = dropout(p, 0.1)
  m = softmax(p)
""",
    ),
    "loss partial over tp": (
        {"missing-allreduce"},
        """
mesh tp=2
weight w f32[32,8] tp:S(0)
input x f32[4,8]
loss l
program
  p = linear(x, w)
  l = sum(p)
""",
    ),
    "matmul sequence sharded attention": (
        {"mismatched-shards"},
        """
mesh cp=2
input q f32[2,8,16] cp:S(1)
input k f32[2,8,16] cp:S(1)
program
  kt = transpose(k, dim0=1, dim1=2)
  s = matmul(q, kt)
""",
    ),
    "cp gradient missing": (
        {"missing-gradient-reduction"},
        """
mesh cp=2
weight w f32[16,8]
input x f32[8,8] cp:S(0)
input dl f32[8,16] cp:S(0)
program
  y = linear(x, w)
  _, grad(w) = backward y (dl)
  update w
""",
    ),
    "FSDP async no wait": (
        {"missing-wait"},
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[8,8] dp:S(0)
program
  f = all-gather(w, dim=0) over dp async h
  y = linear(x, f)
  wait h
""",
    ),
    "grad async reduce not waited before update": (
        {"missing-wait"},
        """
mesh dp=2
weight w f32[16,8]
input x f32[8,8] dp:S(0)
input dl f32[8,16] dp:S(0)
program
  y = linear(x, w)
  _, grad(w) = backward y (dl)
  reduce-gradients w over dp async h
  update w
  wait h
""",
    ),
    "group along wrong axis: reduces over dp instead of tp": (
        {"wrong-collective-group"},
        """
mesh dp=2 tp=2
weight w f32[8,16] tp:S(1)
input a f32[4,16] dp:S(0) tp:S(1)
output y f32[4,8] dp:S(0)
program
  p = linear(a, w)
  y = all-reduce(p) over dp
""",
    ),
    "RS wrong dim": (
        {"wrong-placement-claim"},
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input a f32[4,16] tp:S(1)
output y f32[4,8] tp:S(0)
program
  p = linear(a, w)
  y = reduce-scatter(p, dim=1) over tp
""",
    ),
    "send send exchange w different micro batch order": (
        {"unmatched-send"},
        """
mesh pp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w)
  send h to pp+1
segment f1 forward stage 1 () -> (y)
  recv h: f32[4,8] from pp-1
  y = linear(h, w)
program pp=0
  run f0 micro-batch 0
  run f0 micro-batch 1
program pp=1
  run f1 micro-batch 0
""",
    ),
    "partial residual add bias on every rank, then all-reduce": (
        {"missing-allreduce"},
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input a f32[4,16] tp:S(1)
input r f32[4,8]
output y f32[4,8]
program
  p = linear(a, w)
  q = add(p, r)
  y = all-reduce(q) over tp
""",
    ),
    "linear with bias arg on partial": (
        {"bias-added-to-partial"},
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight b f32[8]
input a f32[4,16] tp:S(1)
output y f32[4,8]
program
  p = linear(a, w, b)
  y = all-reduce(p) over tp
""",
    ),
    "stage receives in wrong order w/o tags (two tensors)": (
        {"mismatched-message"},
        """
mesh pp=2
input x f32[4,8]
input z f32[8,8]
program pp=0
  send x to pp+1
  send z to pp+1
program pp=1
  recv z: f32[8,8] from pp-1
  recv x: f32[4,8] from pp-1
""",
    ),
    "same shapes crossed names": (
        {"mismatched-message"},
        """
mesh pp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  a = linear(x, w)
  b = gelu(a)
  send a to pp+1
  send b to pp+1
program pp=1
  recv b: f32[4,8] from pp-1
  recv a: f32[4,8] from pp-1
  c = add(a, b)
""",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_mistake_is_named(name: str) -> None:
    rules, text = PROGRAMS[name]
    assert rules_of_text(text) == rules
