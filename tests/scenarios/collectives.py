"""Collectives of the wrong kind, group, dimension or order; values that only a root has; shards that do not fit."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair, variants

_SP = """
mesh $MESH
weight ln f32[8]
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[8,8] tp:S(0)
input dy f32[8,8] tp:S(0)
program
  n = rms_norm(x, ln)
  f = all-gather(n, dim=0) over tp
  h = linear(f, w1)
  a = gelu(h)
  p = linear(a, w2)
  y = reduce-scatter(p, dim=0) over tp
GATHER
  dh = backward a (da)
  df, grad(w1) = backward h (dh)
SCATTER
  dx, grad(ln) = backward n (dn)
  reduce-gradients ln over tp
  update ln, w1, w2
"""

_DUAL_GATHER = "  dp = all-gather(dy, dim=0) over tp\n  da, grad(w2) = backward p (dp)"

_DUAL_SCATTER = "  dn = reduce-scatter(df, dim=0) over tp"


def _sp(gather: str = _DUAL_GATHER, scatter: str = _DUAL_SCATTER) -> str:
    return _SP.replace("GATHER", gather).replace("SCATTER", scatter)


SCENARIOS = (
    *pair(
        "halves sent crosswise to the next pipeline stage",
        "pieces-not-in-rank-order",
        """
mesh pp=2 tp=2
weight w f32[16,8] tp:S(0)
weight v f32[8,16]
input x f32[4,8]
program ranks 0
  h = linear(x, w)
- send h to 3
+ send h to 2
program ranks 1
  h = linear(x, w)
- send h to 2
+ send h to 3
program ranks 2
- recv h: f32[4,8] from 1
+ recv h: f32[4,8] from 0
  f = all-gather(h, dim=1) over tp
  y = linear(f, v)
program ranks 3
- recv h: f32[4,8] from 0
+ recv h: f32[4,8] from 1
  f = all-gather(h, dim=1) over tp
  y = linear(f, v)
""",
    ),
    *pair(
        "all-gather along the wrong dimension",
        "wrong-gather-dim wrong-placement-claim contraction-of-mismatched-shards",
        """
mesh $MESH
weight w f32[16,8] tp:S(0)
input x f32[8,8]
program
  h = linear(x, w)
- y = all-gather(h, dim=0) over tp
+ y = all-gather(h, dim=1) over tp
""",
        ("tp=2", "tp=4", "dp=2 tp=2"),
    ),
    *pair(
        "sequence gathered along the batch",
        "wrong-gather-dim",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[8,4,8] tp:S(0)
program
- f = all-gather(x, dim=1) over tp
+ f = all-gather(x, dim=0) over tp
  h = linear(f, w)
""",
    ),
    *pair(
        "all-gather of a replicated value",
        "gather-of-unsharded",
        """
mesh $MESH
weight g f32[8]
input x f32[8,8]
program
  n = rms_norm(x, g)
- y = all-gather(n, dim=0) over tp
- z = gelu(y)
+ z = gelu(n)
""",
        ("tp=2", "dp=2 tp=2"),
    ),
    *pair(
        "all-gather of a partial sum",
        "gather-of-partial",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[8,16] tp:S(1)
program
  p = linear(x, w)
- y = all-gather(p, dim=0) over tp
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "all-gather for all-reduce, claimed",
        "gather-of-partial wrong-placement-claim",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[8,16] tp:S(1)
output y f32[8,8]
program
  p = linear(x, w)
- g = all-gather(p, dim=0) over tp
- y = narrow(g, dim=0, start=0, length=8)
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "gathered in another order than sharded",
        "pieces-not-in-rank-order wrong-placement-claim",
        """
mesh cp=2
input x f32[8,4] cp:S(0, order=[[1],[0]])
output y f32[8,4]
program
- y = all-gather(x, dim=0) over cp
+ g = all-gather(x, dim=0) over cp
+ a = narrow(g, dim=0, start=4, length=4)
+ b = narrow(g, dim=0, start=0, length=4)
+ y = cat(a, b, dim=0)
""",
    ),
    *pair(
        "zig-zag context gathered as if contiguous",
        "pieces-not-in-rank-order wrong-placement-claim",
        """
mesh cp=2
weight w f32[4,4]
input x f32[8,4] cp:S(0, order=[[0,3],[1,2]])
output y f32[8,4]
program
  h = linear(x, w)
- y = all-gather(h, dim=0) over cp
+ g = all-gather(h, dim=0) over cp
+ a, d, b, c = split(g, split_size_or_sections=2, dim=0)
+ y = cat(a, b, c, d, dim=0)
""",
    ),
    *pair(
        "pieces swapped after a gather written by hand",
        "pieces-not-in-rank-order wrong-placement-claim unfounded-claim",
        """
mesh tp=2
input x f32[4,8]
tensor h0 f32[4,4] region [0:4,0:4] of h[4,8]
tensor h1 f32[4,4] region [0:4,4:8] of h[4,8]
tensor y f32[4,8] region [0:4,0:8] of h[4,8]
weight w0 f32[4,8] region [0:4,0:8] of w[8,8]
weight w1 f32[4,8] region [4:8,0:8] of w[8,8]
program ranks 0
- h1 = linear(x, w1)
- y = all-gather(h1, dim=1) over ranks 0,1
+ h0 = linear(x, w0)
+ y = all-gather(h0, dim=1) over ranks 0,1
program ranks 1
- h0 = linear(x, w0)
- y = all-gather(h0, dim=1) over ranks 0,1
+ h1 = linear(x, w1)
+ y = all-gather(h1, dim=1) over ranks 0,1
""",
    ),
    *pair(
        "all-reduce over dp instead of tp",
        "wrong-collective-group missing-allreduce",
        """
mesh $MESH
weight w f32[8,16] tp:S(1)
input x f32[4,16] dp:S(0) tp:S(1)
program
  p = linear(x, w)
- y = all-reduce(p) over dp
+ y = all-reduce(p) over tp
  z = gelu(y)
""",
        ("dp=2 tp=2", "dp=2 cp=2 tp=2", "pp=2 dp=2 tp=2"),
    ),
    *pair(
        "all-reduce over all ranks",
        "wrong-collective-group allreduce-of-shards",
        """
mesh dp=2 tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] dp:S(0) tp:S(1)
program ranks 0,1
  p = linear(x, w)
+ y = all-reduce(p) over ranks 0,1
- y = all-reduce(p) over world
  z = gelu(y)
program ranks 2,3
  p = linear(x, w)
+ y = all-reduce(p) over ranks 2,3
- y = all-reduce(p) over world
  z = gelu(y)
""",
    ),
    *pair(
        "groups of tp and dp exchanged",
        "wrong-collective-group",
        """
mesh dp=2 tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] dp:S(0) tp:S(1)
program ranks 0,3
  p = linear(x, w)
- y = all-reduce(p) over ranks 0,3
+ y = all-reduce(p) over tp
program ranks 1,2
  p = linear(x, w)
- y = all-reduce(p) over ranks 1,2
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "one member names other ranks",
        "wrong-collective-group missing-collective-member",
        """
mesh tp=4
input x f32[4,8] tp:P
program ranks 0,1,2
  y = all-reduce(x) over ranks 0-3
program ranks 3
- y = all-reduce(x) over ranks 2-3
+ y = all-reduce(x) over ranks 0-3
""",
    ),
    *pair(
        "contraction with one side sharded",
        "contraction-of-mismatched-shards",
        """
mesh $MESH
weight w f32[8,16] tp:S(1)
input x f32[4,16]
program
- y = linear(x, w)
+ g = all-gather(w, dim=1) over tp
+ y = linear(x, g)
""",
        ("tp=2",),
    ),
    *pair(
        "matmul of whole rows with half the columns",
        "contraction-of-mismatched-shards mismatched-shards",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,16]
program
- y = matmul(x, w)
+ c = chunk(x, dim=1) over tp
+ p = matmul(c, w)
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "row-parallel weight read by a gathered activation",
        "contraction-of-mismatched-shards",
        """
mesh dp=2 tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
input x f32[4,8] dp:S(0)
program
  h = linear(x, w1)
- f = all-gather(h, dim=1) over tp
- p = linear(f, w2)
+ p = linear(h, w2)
  y = all-reduce(p) over tp
""",
    ),
    *pair(
        "heads sharded on one side of a product",
        "mismatched-shards",
        """
mesh tp=2
input a f32[8,16] tp:S(0)
input b f32[8,16] tp:S(1)
program
- y = mul(a, b)
+ g = all-gather(a, dim=0) over tp
+ h = all-gather(b, dim=1) over tp
+ y = mul(g, h)
""",
    ),
    *pair(
        "residual of a shard and a whole value",
        "mismatched-shards",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input c f32[4,16] tp:S(1)
input x f32[4,8]
program
  p = linear(c, w)
- r = reduce-scatter(p, dim=0) over tp
+ r = all-reduce(p) over tp
  y = add(r, x)
""",
    ),
    *pair(
        "softmax over a sharded dimension",
        "softmax-over-shards",
        """
mesh $MESH
input s f32[4,8,16] tp:S(2)
program
- p = softmax(s, dim=-1)
+ f = all-gather(s, dim=2) over tp
+ p = softmax(f, dim=-1)
""",
        ("tp=2", "tp=4", "dp=2 tp=2"),
    ),
    *pair(
        "layer norm over a sharded hidden dimension",
        "norm-over-shards",
        """
mesh tp=2
weight g f32[16]
weight b f32[16]
weight w f32[16,8] tp:S(0)
input x f32[4,8]
program
  h = linear(x, w)
+ f = all-gather(h, dim=1) over tp
+ n = layer_norm(f, g, b)
- n = layer_norm(h, g, b)
""",
    ),
    *pair(
        "rms norm over a sharded hidden dimension with a sharded weight",
        "norm-over-shards",
        """
mesh dp=2 tp=2
weight g f32[16] tp:S(0)
weight w f32[16,8] tp:S(0)
weight full f32[16]
input x f32[4,8] dp:S(0)
program
  h = linear(x, w)
- n = rms_norm(h, g)
+ f = all-gather(h, dim=1) over tp
+ n = rms_norm(f, full)
""",
    ),
    *pair(
        "cross-entropy of a vocabulary shard",
        "loss-over-shards",
        """
mesh $MESH
weight w f32[32,8] tp:S(0)
input x f32[4,8]
input t i64[4]
loss l
program
  z = linear(x, w)
+ f = all-gather(z, dim=1) over tp
+ l = cross_entropy(f, t)
- l = cross_entropy(z, t)
""",
        ("tp=2", "tp=4", "pp=2 tp=2"),
    ),
    *pair(
        "sharded rows folded into columns and gathered",
        "pieces-not-in-rank-order wrong-gather-dim wrong-placement-claim reshaped-shards",
        """
mesh tp=2
input x f32[4,8,16] tp:S(1)
output y f32[32,16]
program
- v: f32[16,16] = view(x, size=[16,16])
- y = all-gather(v, dim=0) over tp
+ g = all-gather(x, dim=1) over tp
+ y: f32[32,16] = view(g, size=[32,16])
""",
    ),
    *pair(
        "sharded columns reshaped into rows",
        "contraction-of-mismatched-shards wrong-placement-claim reshaped-shards",
        """
mesh tp=2
weight w f32[8,16]
input x f32[8,16] tp:S(1)
output y
program
- v: f32[4,16] = view(x, size=[4,16])
- y = linear(v, w)
+ g = all-gather(x, dim=1) over tp
+ y = linear(g, w)
""",
    ),
    *pair(
        "head dimension viewed as if all heads were here",
        "reshaped-shards wrong-placement-claim mismatched-shards softmax-over-shards",
        """
mesh tp=2
weight wq f32[16,16] tp:S(0)
weight wo f32[16,8]
input x f32[8,16]
output y
program
  q = linear(x, wq)
- h: f32[4,16] = reshape(q, shape=[4,16])
- r = softmax(h, dim=-1)
- y = mul(r, 1.0)
+ h: f32[8,2,4] = reshape(q, shape=[8,2,4])
+ y = softmax(h, dim=-1)
""",
    ),
    *pair(
        "packed qkv split across contiguous shards",
        "packed-split-across-shards",
        """
mesh $MESH
- weight wqkv f32[48,16] tp:S(0)
+ weight wqkv f32[48,16] tp:S(0, parts=[16,16,16])
input x f32[8,16]
program
  qkv = linear(x, wqkv)
  q, k, v = chunk(qkv, chunks=3, dim=-1)
""",
        ("tp=2", "tp=4", "dp=2 tp=2"),
    ),
    *pair(
        "grouped-query qkv split across contiguous shards",
        "packed-split-across-shards",
        """
mesh tp=2
- weight wqkv f32[32,16] tp:S(0)
+ weight wqkv f32[32,16] tp:S(0, parts=[16,8,8])
input x f32[8,16]
program
  qkv = linear(x, wqkv)
  q, k, v = split(qkv, split_size_or_sections=[8,4,4], dim=-1)
""",
    ),
    *pair(
        "gate and up packed, split across contiguous shards",
        "packed-split-across-shards",
        """
mesh tp=2
- weight w f32[64,16] tp:S(0)
+ weight w f32[64,16] tp:S(0, parts=[32,32])
input x f32[8,16]
program
  h = linear(x, w)
  g, u = chunk(h, chunks=2, dim=1)
  s = silu(g)
  y = mul(s, u)
""",
    ),
    *correct(
        "interleaved qkv viewed per head",
        """
mesh tp=2
weight wqkv f32[48,16] tp:S(0)
input x f32[8,16]
program
  qkv = linear(x, wqkv)
  heads: f32[8,2,12] = view(qkv, size=[8,2,12])
  q, k, v = split(heads, split_size_or_sections=4, dim=-1)
""",
    ),
    *pair(
        "reduced to a root and used everywhere",
        "root-only-result-used",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
- r = reduce(p, root=0) over tp
+ r = all-reduce(p) over tp
  y = gelu(r)
""",
    ),
    *pair(
        "gathered at a root and used everywhere",
        "root-only-result-used",
        """
mesh tp=4
input x f32[8,16] tp:S(0)
weight w f32[16,16]
program
- g = gather(x, dim=0, root=0) over tp
+ g = all-gather(x, dim=0) over tp
  y = linear(g, w)
""",
    ),
    *pair(
        "reduced to a root by rank lists",
        "root-only-result-used",
        """
mesh dp=2 tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] dp:S(0) tp:S(1)
program ranks 0,1
  p = linear(x, w)
- r = reduce(p, root=0) over ranks 0,1
+ r = all-reduce(p) over ranks 0,1
  y = gelu(r)
program ranks 2,3
  p = linear(x, w)
- r = reduce(p, root=2) over ranks 2,3
+ r = all-reduce(p) over ranks 2,3
  y = gelu(r)
""",
    ),
    *correct(
        "gathered at a root and used there",
        """
mesh tp=2
input x f32[8,16] tp:S(0)
program tp=0
  g: f32[8,16] = gather(x, dim=0, root=0) over tp
  y = gelu(g)
program tp=1
  g: f32[8,16] = gather(x, dim=0, root=0) over tp
""",
    ),
    *pair(
        "broadcast of a partial sum",
        "broadcast-of-partial",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
- y = broadcast(p, root=0) over tp
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "reduce-scatter along another dimension than the residual's",
        "mismatched-shards wrong-placement-claim",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[8,16] tp:S(1)
input res f32[8,8] tp:S(0)
program
  p = linear(x, w)
- r = reduce-scatter(p, dim=1) over tp
+ r = reduce-scatter(p, dim=0) over tp
  y = add(r, res)
""",
    ),
    *correct(
        "batch and sequence folded for a linear and unfolded again",
        """
mesh cp=2
weight w f32[16,16]
input x f32[4,8,16] cp:S(1)
output y f32[4,8,16] cp:S(1)
program
  f: f32[16,16] = view(x, size=[16,16])
  h = linear(f, w)
  y: f32[4,4,16] = view(h, size=[4,4,16])
""",
    ),
    *correct(
        "all-gather over two axes, inner first",
        """
mesh dp=2 tp=2
weight w f32[16,8] dp:S(0)
input x f32[8,8] tp:S(0)
output y f32[8,16]
program
  f = all-gather(w, dim=0) over dp
  h = linear(x, f)
  y = all-gather(h, dim=0) over tp
""",
    ),
    *correct(
        "squared gradient norm over tensor and pipeline ranks",
        """
mesh pp=2 tp=2
weight w f32[16,8] tp:S(0)
program
  q = mul(w, w)
  s = sum(q)
  t = all-reduce(s) over tp
  u = all-reduce(t) over pp
  n = sqrt(u)
""",
    ),
    *correct(
        "vocabulary-parallel logits gathered for sampling",
        """
mesh dp=2 tp=2
weight e f32[32,8] tp:S(0)
input x f32[8,8] dp:S(0)
program
  z = linear(x, e)
  f = all-gather(z, dim=1) over tp
  p = softmax(f, dim=-1)
  a = argmax(p, dim=-1)
""",
    ),
    *pair(
        "sequence-parallel output all-reduced",
        "allreduce-of-shards",
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
        "sequence-parallel input read without its gather",
        "mismatched-shards",
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
        "column-parallel output into another column-parallel linear",
        "contraction-of-mismatched-shards mismatched-shards",
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
        "gathered over the data axis",
        "gather-of-unsharded wrong-collective-group wrong-gather-dim",
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
        "broadcast from a rank outside its group",
        "wrong-collective-group",
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
        "roots differ between members",
        "collective-order-mismatch mismatched-collective wrong-collective-group",
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
        "reduce ops differ between members",
        "collective-order-mismatch mismatched-collective",
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
        "shapes differ between members",
        "mismatched-collective",
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
        "expert gradient over dp and ep, dense over dp only",
        "allreduce-of-shards missing-gradient-reduction doubled-gradient-reduction",
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
        "fp8 amax summed",
        "wrong-reduce-op",
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
        "backward of a reduce-scatter without its all-gather",
        "mismatched-shards contraction-of-mismatched-shards missing-dual",
        _sp(gather="+ dp = all-gather(dy, dim=0) over tp\n+ da, grad(w2) = backward p (dp)\n- da, grad(w2) = backward p (dy)"),
        ("tp=2", "tp=4"),
    ),
    *pair(
        "backward of an all-gather as an all-reduce",
        "mismatched-shards wrong-placement-claim missing-dual",
        _sp(scatter="- dn = all-reduce(df) over tp\n+ dn = reduce-scatter(df, dim=0) over tp"),
        ("tp=2", "dp=2 tp=2"),
    ),
    *pair(
        "backward of an all-gather twice",
        "allreduce-of-shards",
        _sp(
            scatter="- d0 = reduce-scatter(df, dim=0) over tp\n- dn = all-reduce(d0) over tp\n"
            "+ dn = reduce-scatter(df, dim=0) over tp"
        ),
        ("tp=2", "pp=2 tp=2"),
    ),
    *pair(
        "backward reduce-scatter over the data axis",
        "wrong-collective-group allreduce-of-shards mismatched-shards reduce-scatter-of-replicated missing-gradient-reduction",
        _sp(scatter="- dn = reduce-scatter(df, dim=0) over dp\n+ dn = reduce-scatter(df, dim=0) over tp"),
        ("dp=2 tp=2",),
    ),
    *pair(
        "gradient of a sequence-to-head exchange not exchanged back",
        "mismatched-shards wrong-placement-claim missing-dual"
        " gradient-sharded-unlike-weight contraction-of-mismatched-shards gradient-not-exchanged",
        """
mesh cp=2
weight w f32[4,4]
input x f32[8,6,4] cp:S(0)
input dz f32[8,6,4] cp:S(1)
program
  y = linear(x, w)
  z = all-to-all(y, dim=1, concat-dim=0) over cp
  s = softmax(z, dim=0)
  d = backward s (dz)
+ dy = all-to-all(d, dim=0, concat-dim=1) over cp
+ dx, grad(w) = backward y (dy)
- dx, grad(w) = backward y (d)
  reduce-gradients w over cp
  update w
""",
    ),
    *pair(
        "named communicators over the wrong ranks",
        "wrong-collective-group missing-collective-member",
        """
mesh dp=2 tp=2
communicator tp0 over ranks 0,1
communicator tp1 over ranks 2,3
weight w f32[8,16] tp:S(1)
input x f32[4,16] dp:S(0) tp:S(1)
program ranks 0,1
  p = linear(x, w)
  y = all-reduce(p) over tp0
program ranks 2,3
  p = linear(x, w)
- y = all-reduce(p) over tp0
+ y = all-reduce(p) over tp1
""",
    ),
    *pair(
        "tokens not dispatched to sharded experts",
        "mismatched-shards",
        """
mesh ep=2
weight w f32[8,16,16] ep:S(0)
input slots f32[8,6,16] ep:S(1)
output y f32[8,6,16] ep:S(1)
program
- e = bmm(slots, w)
- y = mul(e, 1.0)
+ d = all-to-all(slots, dim=0, concat-dim=1) over ep
+ e = bmm(d, w)
+ y = all-to-all(e, dim=1, concat-dim=0) over ep
""",
    ),
    *pair(
        "lm head of a sequence shard with vocabulary shards",
        "mismatched-shards",
        """
mesh tp=2
weight e f32[32,8] tp:S(0)
input x f32[6,8] tp:S(0)
program
+ f = all-gather(x, dim=0) over tp
+ z = linear(f, e)
- z = linear(x, e)
""",
    ),
    *pair(
        "outer axis gathered before the inner one",
        "pieces-not-in-rank-order",
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
    *pair(
        "outer axis gathered a second time in place of the inner one",
        "gather-of-unsharded",
        """
mesh $MESH
weight w f32[8,8]
input x f32[16,8] cp:S(0) tp:S(0)
output z
program
  h = linear(x, w)
- a = all-gather(h, dim=0) over cp
+ a = all-gather(h, dim=0) over tp
  z = all-gather(a, dim=0) over cp
""",
        ("cp=2 tp=2", "cp=4 tp=2"),
    ),
    *pair(
        "heads exchanged back over another axis",
        "pieces-not-in-rank-order",
        """
mesh cp=2 tp=2
input q f32[2,4,8,16] cp:S(2) tp:S(1)
output o f32[2,4,8,16] cp:S(2) tp:S(1)
program
  h = all-to-all(q, dim=1, concat-dim=2) over cp
  g = softmax(h, dim=2)
- o = all-to-all(g, dim=2, concat-dim=1) over tp
+ o = all-to-all(g, dim=2, concat-dim=1) over cp
""",
    ),
    *pair(
        "halves of a gathered value exchanged",
        "pieces-not-in-rank-order",
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
        "zig-zag shards put back in the wrong order",
        "pieces-not-in-rank-order",
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
        "partial sum reduced over half of its group",
        "wrong-collective-group",
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
        "means of shards added up",
        "wrong-reduce-op",
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
        "means of a batch added up over replicas, in another shape",
        "wrong-reduce-op",
        """
mesh dp=2
weight w f32[16,16]
weight u f32[16,16]
input x f32[8,16] dp:S(0)
output z
program
  h = linear(x, w)
  m = mean(h, dim=0)
  s = all-reduce(m) over dp
- d = reshape(s, [16])
+ d = div(s, 2)
  q = linear(d, u)
  z = add(q, d)
""",
    ),
    *pair(
        "expert gradients reduced over the axis that splits the experts",
        "allreduce-of-shards",
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
    *pair(
        "split inside a view that runs across rows",
        "pieces-not-in-rank-order",
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
        "gradient of a weight that is sharded, and each shard over the replicas, cut in the other order",
        "gradient-sharded-unlike-weight",
        """
mesh dp=2 tp=2
weight w f32[16,8] tp:S(0) dp:S(0)
weight v f32[8,16]
input x f32[8,8] dp:S(0)
loss l f32[]
program
  a = all-gather(w, dim=0) over dp
  f = all-gather(a, dim=0) over tp
  h = linear(x, f)
  r = relu(h)
  y = linear(r, v)
  q = pow(y, 2)
  s = sum(q)
  l = all-reduce(s) over dp
  dq = backward s (grad(l))
  dy = backward q (dq)
  dr, gv = backward y (dy)
  dh = backward r (dr)
  _, gf = backward h (dh)
+ g1 = chunk(gf, dim=0) over tp
- g1 = reduce-scatter(gf, dim=0) over dp
+ grad(w) = reduce-scatter(g1, dim=0) over dp
- grad(w) = chunk(g1, dim=0) over tp
  grad(v) = all-reduce(gv) over dp
  update w, v
""",
    ),
    *pair(
        "the same with a cast before the gather and a state of the optimizer",
        "gradient-sharded-unlike-weight state-of-another-shard",
        """
mesh dp=2 tp=2
weight w f32[16,8] tp:S(0) dp:S(0)
state m f32[16,8] tp:S(0) dp:S(0)
state n f32[8,16]
weight v f32[8,16]
input x f32[8,8] dp:S(0)
loss l f32[]
program
  c = to(w, "f32")
  a = all-gather(c, dim=0) over dp
  f = all-gather(a, dim=0) over tp
  h = linear(x, f)
  r = relu(h)
  y = linear(r, v)
  q = pow(y, 2)
  s = sum(q)
  l = all-reduce(s) over dp
  dq = backward s (grad(l))
  dy = backward q (dq)
  dr, gv = backward y (dy)
  dh = backward r (dr)
  _, gf = backward h (dh)
+ g1 = chunk(gf, dim=0) over tp
- g1 = reduce-scatter(gf, dim=0) over dp
+ grad(w) = reduce-scatter(g1, dim=0) over dp
- grad(w) = chunk(g1, dim=0) over tp
  grad(v) = all-reduce(gv) over dp
  momentum_step(w!, grad(w), m!, lr=0.1, momentum=0.9)
  momentum_step(v!, grad(v), n!, lr=0.1, momentum=0.9)
""",
    ),
    *pair(
        "chunks of chunks gathered over the outer axis first",
        "mismatched-shards",
        """
mesh dp=2 tp=2
weight w f32[16,8]
input x f32[4,8]
input r f32[4,16]
output y f32[4,16]
program
  w1 = chunk(w, dim=0) over tp
  w2 = chunk(w1, dim=0) over dp
- a = all-gather(w2, dim=0) over tp
+ a = all-gather(w2, dim=0) over dp
- f = all-gather(a, dim=0) over dp
+ f = all-gather(a, dim=0) over tp
  y0 = linear(x, f)
  y = mul(y0, r)
""",
    ),
    *correct(
        "two weights whose shards lie in two orders, which their placements say",
        """
mesh dp=2 tp=2
weight w f32[16,8] dp:S(0) tp:S(0)
weight v f32[16,8] tp:S(0) dp:S(0)
input x f32[8,8] dp:S(0)
output y f32[8,8] dp:S(0)
program
  f = all-gather(w, dim=0) over dp,tp
  h = linear(x, f)
  a = all-gather(v, dim=0) over dp
  c = chunk(h, dim=1) over tp
  p = matmul(c, a)
  y = all-reduce(p) over tp
""",
    ),
)
