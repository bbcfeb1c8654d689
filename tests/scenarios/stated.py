"""Stated shapes, annotations of one program, joined shards, views across shards, ties reduced elsewhere, uneven exchanges."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

SCENARIOS = (
    *pair(
        "received with the dtype of nobody's value", "mismatched-message",
        """
mesh pp=2
weight w bf16[4,6]
input x bf16[8,6]
program pp=0
  h = linear(x, w)
  send h to pp+1
program pp=1
- recv h: f16[8,4] from pp-1
+ recv h: bf16[8,4] from pp-1
  y = relu(h)
""",
    ),
    *pair(
        "received with another size in a segment", "mismatched-message",
        """
mesh pp=2
micro-batches 2
weight w f32[4,6]
input x f32[8,6]
segment first forward stage 0 (x) -> ()
  h = linear(x, w)
  send h to pp+1
segment second forward stage 1 () -> (y)
- recv h: f32[4,4] from pp-1
+ recv h: f32[8,4] from pp-1
  y = relu(h)
program pp=0
  run first micro-batch 0-1
program pp=1
  run second micro-batch 0-1
""",
    ),
    *pair(
        "a result stated twice as long", "wrong-shape-claim",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8]
program
- h: f32[4,16] = linear(x, w)
+ h: f32[4,8] = linear(x, w)
  y = gelu(h)
""",
    ),
    *pair(
        "tied weight reduced over the replicas only", "tied-gradient-not-reduced",
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
        "experts between exchanges of two groups that swap dimensions", "expert-exchange-not-undone",
        """
mesh dp=2 ep=2
weight w1 bf16[4,16,32] ep:S(0)
weight w2 bf16[4,32,16] ep:S(0)
input t bf16[4,12,16]
program
  d = all-to-all(t, dim=0, concat-dim=1) over ep
  h = torch.bmm(d, w1)
  a = gelu(h)
  e = torch.bmm(a, w2)
- y = all-to-all(e, dim=1, concat-dim=0) over dp
+ y = all-to-all(e, dim=1, concat-dim=0) over ep
""",
    ),
    *pair(
        "keys gathered, values not", "attention-over-local-keys",
        """
mesh cp=2 tp=2
input q bf16[1,4,8,8] cp:S(2) tp:S(1)
input k bf16[1,4,8,8] cp:S(2) tp:S(1)
input v bf16[1,4,8,8] cp:S(2) tp:S(1)
program
  kg = all-gather(k, dim=2) over cp
+ vg = all-gather(v, dim=2) over cp
- o, lse = fused_attention(q, kg, v)
+ o, lse = fused_attention(q, kg, vg)
""",
    ),
    *pair(
        "split inside a view that runs across rows", "pieces-not-in-rank-order",
        """
mesh cp=2
input x f32[4,20,6] cp:S(1)
output y
program
+ f = all-gather(x, dim=1) over cp
+ y = torch.reshape(f, [40, 2, 6])
- v = torch.reshape(x, [20, 2, 6])
- y = all-gather(v, dim=0) over cp
""",
    ),
    *pair(
        "keys and values of fewer heads than ranks, packed with the queries", "shards-not-divisible",
        """
mesh tp=4
-weight qkv f32[22,8] tp:S(0, parts=[16,4,2])
+weight qkv f32[24,8] tp:S(0, parts=[16,4,4])
input x f32[4,8]
program
  z = linear(x, qkv)
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
    *pair(
        "gate and up joined and taken apart again, not reduced", "missing-allreduce",
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
- y = linear(m, wd)
+ p = linear(m, wd)
+ y = all-reduce(p) over tp
""",
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
)
