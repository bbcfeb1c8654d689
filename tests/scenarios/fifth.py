"""Orders of gathers over two axes, choices among shards, half a group, mates that compute otherwise, masked lookups."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

SCENARIOS = (
    *pair(
        "outer axis gathered before the inner one", "pieces-not-in-rank-order",
        """
mesh $MESH
weight w f32[8,8]
input x f32[16,8] cp:S(0) tp:S(0)
output z
program
  h = linear(x, w)
- a = all-gather(h, dim=0) over cp
- z = all-gather(a, dim=0) over tp
+ a = all-gather(h, dim=0) over tp
+ z = all-gather(a, dim=0) over cp
""",
        ("cp=2 tp=2", "cp=4 tp=2", "pp=2 cp=2 tp=2"),
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
    *pair(
        "halves of a gathered value exchanged", "pieces-not-in-rank-order",
        """
mesh $MESH
weight w f32[16,8] tp:S(0)
input x f32[8,8]
output z
program
  h = linear(x, w)
  g = all-gather(h, dim=1) over tp
  a = narrow(g, 1, 0, 8)
  b = narrow(g, 1, 8, 8)
- z = cat([b, a], dim=1)
+ z = cat([a, b], dim=1)
""",
        ("tp=2", "tp=4", "dp=2 tp=4"),
    ),
    *pair(
        "zig-zag shards put back in the wrong order", "pieces-not-in-rank-order",
        """
mesh cp=2
input x f32[8,8] cp:S(0, order=[[0,3],[1,2]])
output z
program
  g = all-gather(x, dim=0) over cp
  a, b, c, d = chunk(g, 4, 0)
- z = cat([a, b, c, d], dim=0)
+ z = cat([a, c, d, b], dim=0)
""",
    ),
    *pair(
        "router's best experts chosen among a shard of them", "choice-over-shards",
        """
mesh $MESH
weight w f32[8,8] tp:S(0)
input x f32[4,8] dp:S(0)
output v
program
  h = linear(x, w)
- g = sigmoid(h)
+ f = all-gather(h, dim=1) over tp
+ g = sigmoid(f)
  v, i = topk(g, 2, dim=-1)
""",
        ("dp=2 tp=2", "dp=2 tp=4"),
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
    *pair(
        "partial sum reduced over half of its group", "wrong-collective-group",
        """
mesh tp=4
weight w f32[16,8] tp:S(1)
input x f32[8,8] tp:S(1)
output z
program ranks 0,1
  p = linear(x, w)
- a = all-reduce(p) over ranks 0,1
+ a = all-reduce(p) over ranks 0-3
  z = relu(a)
program ranks 2,3
  p = linear(x, w)
- a = all-reduce(p) over ranks 2,3
+ a = all-reduce(p) over ranks 0-3
  z = relu(a)
""",
    ),
    *pair(
        "one rank scales its shard otherwise", "divergent-replicas",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8]
output z
program tp=0
  h = linear(x, w)
  s = mul(h, 0.125)
  z = all-gather(s, dim=1) over tp
program tp=1
  h = linear(x, w)
- s = mul(h, 0.25)
+ s = mul(h, 0.125)
  z = all-gather(s, dim=1) over tp
""",
    ),
    *pair(
        "one replica uses another activation", "divergent-replicas",
        """
mesh dp=2 tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8] dp:S(0)
output z
program dp=0
  h = linear(x, w)
  s = gelu(h)
  z = all-gather(s, dim=1) over tp
program dp=1
  h = linear(x, w)
- s = silu(h)
+ s = gelu(h)
  z = all-gather(s, dim=1) over tp
""",
    ),
    *pair(
        "one replica uses another piecewise activation", "divergent-replicas",
        """
mesh dp=2 tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8] dp:S(0)
output z
program dp=0
  h = linear(x, w)
  s = hardswish(h)
  z = all-gather(s, dim=1) over tp
program dp=1
  h = linear(x, w)
- s = softsign(h)
+ s = hardswish(h)
  z = all-gather(s, dim=1) over tp
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
    *pair(
        "masked lookup in a shard of the vocabulary not reduced", "partial-through-nonlinear",
        """
mesh tp=2
weight e f32[32,8] tp:S(0)
input t i64[4,8]
output z
program tp=0
  m = lt(t, 16)
  u = clamp(t, 0, 15)
  h = embedding(u, e)
  k = unsqueeze(m, -1)
  p = mul(h, k)
- z = relu(p)
+ y = all-reduce(p) over tp
+ z = relu(y)
program tp=1
  m = ge(t, 16)
  s = sub(t, 16)
  u = clamp(s, 0, 15)
  h = embedding(u, e)
  k = unsqueeze(m, -1)
  p = mul(h, k)
- z = relu(p)
+ y = all-reduce(p) over tp
+ z = relu(y)
""",
    ),
    *pair(
        "scale made after the quantisation, from the reduced magnitude", "scale-before-amax",
        """
mesh tp=2
weight w bf16[16,8] tp:S(0)
input x bf16[4,8]
buffer sc f32[1]
output z
program
  h = linear(x, w)
  a = abs(h)
  m = amax(a)
  g = all-reduce max(m) over tp
- q: f8e4m3[4,8] = quantize_fp8(h, sc)
- update_scale(sc!, g)
+ update_scale(sc!, g)
+ q: f8e4m3[4,8] = quantize_fp8(h, sc)
  z: f8e4m3[4,16] = all-gather(q, dim=1) over tp
""",
    ),
    *pair(
        "means of shards added up", "wrong-reduce-op",
        """
mesh cp=2
weight w f32[16,16]
input x f32[8,16] cp:S(0)
output z
program
  h = linear(x, w)
  m = mean(h, dim=0)
- z = all-reduce(m) over cp
+ z = all-reduce avg(m) over cp
""",
    ),
    *pair(
        "expert gradients reduced over the axis that splits the experts", "allreduce-of-shards",
        """
mesh edp=2 ep=2
weight r f32[16,16]
weight w f32[4,16,16] ep:S(0)
input x f32[4,16,16] edp:S(1) ep:S(1)
loss l
program
  a = linear(x, r)
  d: f32[2,8,16] = all-to-all(a, dim=0, concat-dim=1) over ep
  h = bmm(d, w)
  y: f32[4,4,16] = all-to-all(h, dim=1, concat-dim=0) over ep
  l = sum(y)
  dy = backward l (grad(l))
  dh: f32[2,8,16] = all-to-all(dy, dim=0, concat-dim=1) over ep
  dd, grad(w) = backward h (dh)
  da: f32[4,4,16] = all-to-all(dd, dim=1, concat-dim=0) over ep
  _, grad(r) = backward a (da)
  reduce-gradients r over edp,ep
- reduce-gradients w over edp,ep
+ reduce-gradients w over edp
  update r, w
""",
    ),
    *pair(
        "capacity cut between dispatch and combine", "expert-exchange-not-undone",
        """
mesh ep=2
weight w f32[4,16,16] ep:S(0)
input x f32[4,8,16] ep:S(1)
output y
program
  d = all-to-all(x, dim=0, concat-dim=1) over ep
  h = bmm(d, w)
- o = narrow(h, 1, 0, 6)
+ o = relu(h)
  y = all-to-all(o, dim=1, concat-dim=0) over ep
""",
    ),
)
