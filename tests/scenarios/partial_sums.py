"""Partial sums: used as if they were complete, and completed once too often."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair, variants

_NONLINEAR = {
    "gelu": "gelu({})", "silu": "silu({})", "relu": "relu({})", "softmax": "softmax({}, dim=-1)", "tanh": "tanh({})",
    "layer norm": "layer_norm({}, g)", "rms norm": "rms_norm({}, g)", "dropout": "dropout({}, p=0.1)",
    "exp": "exp({})", "square": "square({})", "clamp": "clamp({}, min=0.0)", "sigmoid": "sigmoid({})",
}  # fmt: skip
_MESHES = ("tp=2", "tp=4", "dp=2 tp=2", "dp=2 cp=2 tp=2")

SCENARIOS = (
    *(
        scenario
        for number, (name, use) in enumerate(_NONLINEAR.items())
        for scenario in pair(
            f"{name} of a partial sum",
            "partial-through-nonlinear missing-allreduce",
            f"""
mesh {_MESHES[number % 4]}
weight w f32[12,24] tp:S(1)
weight g f32[12]
input x f32[8,24] tp:S(1)
program
  part = linear(x, w)
+ full = all-reduce(part) over tp
+ y = {use.format("full")}
- y = {use.format("part")}
""",
        )
    ),
    *pair(
        "row-parallel output goes on into the next layer's norm",
        "partial-through-nonlinear",
        """
plan "decoder mlp"
mesh $MESH
weight fc1.weight bf16[48,16] tp:S(0)
weight fc2.weight bf16[16,48] tp:S(1)
weight ln.weight bf16[16]
weight ln.bias bf16[16]
input hidden bf16[8,2,16]
program
  h1 = linear(hidden, fc1.weight)
  act = gelu(h1)
  h2 = linear(act, fc2.weight)
+ out = all-reduce(h2) over tp
+ n = layer_norm(out, ln.weight, ln.bias)
- n = layer_norm(h2, ln.weight, ln.bias)
""",
        ("tp=2", "tp=4", "pp=2 tp=2", "dp=2 cp=2 tp=2"),
    ),
    *pair(
        "relu of a partial by ranks",
        "partial-through-nonlinear",
        """
mesh tp=4
input x f32[4,8] tp:P
program ranks 0-3
+ s = all-reduce(x) over ranks 0-3
+ y = relu(s)
- y = relu(x)
""",
    ),
    *pair(
        "max over a partial sum",
        "partial-through-nonlinear wrong-reduce-op",
        """
mesh tp=2
weight w f32[12,6] tp:S(1)
input x f32[4,6] tp:S(1)
program
  p = linear(x, w)
+ s = all-reduce(p) over tp
+ m = amax(s, dim=-1)
- m = amax(p, dim=-1)
""",
    ),
    *pair(
        "a declared partial activation is activated",
        "partial-through-nonlinear",
        """
mesh tp=2
weight w f32[12,6] tp:S(1)
input x f32[4,6] tp:S(1)
tensor p f32[4,12] tp:P
tensor s f32[4,12] tp:R
program
  p = fused_row_linear(x, w)
+ s = all-reduce(p) over tp
+ y = silu(s)
- y = silu(p)
""",
    ),
    *pair(
        "gate times up, both partial",
        "partial-times-partial",
        """
mesh $MESH
weight gate f32[12,8] tp:S(1)
weight up f32[12,8] tp:S(1)
input x f32[4,8] tp:S(1)
program
  g = linear(x, gate)
  u = linear(x, up)
+ gs = all-reduce(g) over tp
+ us = all-reduce(u) over tp
+ y = mul(gs, us)
- y = mul(g, u)
""",
        ("tp=2", "tp=4", "dp=2 tp=2"),
    ),
    *pair(
        "scores of partial queries and keys",
        "partial-times-partial",
        """
mesh tp=2
input x f32[8,16] tp:S(1)
weight wq f32[16,16] tp:S(1)
weight wk f32[16,16] tp:S(1)
program
  q = linear(x, wq)
  k = linear(x, wk)
+ qs = all-reduce(q) over tp
+ ks = all-reduce(k) over tp
+ kt = transpose(ks, dim0=0, dim1=1)
+ s = matmul(qs, kt)
- kt = transpose(k, dim0=0, dim1=1)
- s = matmul(q, kt)
""",
    ),
    *pair(
        "bias added before the all-reduce",
        "bias-added-to-partial",
        """
mesh $MESH
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
- q = add(p, b)
- y = all-reduce(q) over tp
+ r = all-reduce(p) over tp
+ y = add(r, b)
""",
        ("tp=2", "tp=4", "dp=2 tp=2", "pp=2 tp=2"),
    ),
    *pair(
        "fused bias of a row-parallel linear",
        "bias-added-to-partial",
        """
mesh dp=2 tp=2
weight proj.weight bf16[24,24] tp:S(1)
weight proj.bias bf16[24]
input ctx bf16[4,24] dp:S(0) tp:S(1)
program
- p = linear(ctx, proj.weight, proj.bias)
- out = all-reduce(p) over tp
+ p = linear(ctx, proj.weight)
+ r = all-reduce(p) over tp
+ out = add(r, proj.bias)
""",
    ),
    *pair(
        "residual added before the all-reduce",
        "missing-allreduce",
        """
mesh $MESH
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
input res f32[4,8]
program
  p = linear(x, w)
- q = add(p, res)
- y = all-reduce(q) over tp
+ r = all-reduce(p) over tp
+ y = add(r, res)
""",
        ("tp=2", "dp=3 tp=4", "dp=2 cp=2 tp=2"),
    ),
    *pair(
        "residual added and never reduced",
        "missing-allreduce",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
input res f32[4,8]
output y f32[4,8]
program
  p = linear(x, w)
- y = add(p, res)
+ r = all-reduce(p) over tp
+ y = add(r, res)
""",
    ),
    *pair(
        "partial into a column-parallel matmul whose weight splits the same dimension",
        "missing-allreduce partial-times-partial contraction-of-mismatched-shards",
        """
mesh tp=2
weight w1 f32[16,8] tp:S(1)
weight w2 f32[8,16] tp:S(1)
input x f32[4,8] tp:S(1)
program
  p = linear(x, w1)
+ s = reduce-scatter(p, dim=1) over tp
+ q = linear(s, w2)
- q = linear(p, w2)
  y = all-reduce(q) over tp
""",
    ),
    *pair(
        "partial at a declared output",
        "missing-allreduce",
        """
mesh $MESH
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
output y f32[4,8]
program
- y = linear(x, w)
+ p = linear(x, w)
+ y = all-reduce(p) over tp
""",
        ("tp=2", "pp=2 tp=2", "dp=2 tp=4"),
    ),
    *pair(
        "output without a type",
        "missing-allreduce",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
output y
program
- y = linear(x, w)
+ p = linear(x, w)
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "partial loss",
        "missing-allreduce loss-over-shards",
        """
mesh tp=2
input e f32[4,8] tp:S(1)
loss l
program
- l = sum(e)
+ s = sum(e)
+ l = all-reduce(s) over tp
""",
    ),
    *pair(
        "all-reduce of a replicated value",
        "doubled-allreduce",
        """
mesh $MESH
weight w f32[8,16]
input x f32[4,16]
output y f32[4,8]
program
- p = linear(x, w)
- y = all-reduce(p) over tp
+ y = linear(x, w)
""",
        ("tp=2", "tp=4", "dp=2 tp=2"),
    ),
    *pair(
        "all-reduce twice",
        "doubled-allreduce",
        """
mesh dp=2 tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] dp:S(0) tp:S(1)
program
  p = linear(x, w)
  r = all-reduce(p) over tp
- y = all-reduce(r) over tp
+ y = mul(r, 1.0)
  z = gelu(y)
""",
    ),
    *pair(
        "all-reduce of a reduced value by rank list",
        "doubled-allreduce",
        """
mesh dp=2 tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] dp:S(0) tp:S(1)
program ranks 0-1
  p = linear(x, w)
  r = all-reduce(p) over ranks 0,1
- s = all-reduce(r) over ranks 0,1
- y = gelu(s)
+ y = gelu(r)
program ranks 2-3
  p = linear(x, w)
  r = all-reduce(p) over ranks 2,3
- s = all-reduce(r) over ranks 2,3
- y = gelu(s)
+ y = gelu(r)
""",
    ),
    *pair(
        "all-reduce of shards",
        "allreduce-of-shards",
        """
mesh tp=4
weight w f32[16,8] tp:S(0)
input x f32[4,8]
program
  h = linear(x, w)
- y = all-reduce(h) over tp
+ y = all-gather(h, dim=1) over tp
""",
    ),
    *pair(
        "max for sum",
        "wrong-reduce-op",
        """
mesh $MESH
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
- y = all-reduce max(p) over tp
+ y = all-reduce(p) over tp
""",
        ("tp=2", "dp=2 tp=2"),
    ),
    *pair(
        "avg for sum",
        "wrong-reduce-op",
        """
mesh tp=4
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
- y = all-reduce avg(p) over tp
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "max in a reduce-scatter",
        "wrong-reduce-op",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
- y = reduce-scatter max(p, dim=0) over tp
+ y = reduce-scatter(p, dim=0) over tp
""",
    ),
    *pair(
        "sum for max of a row maximum",
        "wrong-reduce-op",
        """
mesh tp=2
input x f32[4,16] tp:S(1)
program
  m = amax(x, dim=1, keepdim=True)
- g = all-reduce(m) over tp
+ g = all-reduce max(m) over tp
  y = sub(x, g)
""",
    ),
    *pair(
        "reduce-scatter of a replicated value",
        "reduce-scatter-of-replicated",
        """
mesh $MESH
weight g f32[16]
input x f32[4,16]
program
  n = rms_norm(x, g)
- y = reduce-scatter(n, dim=0) over tp
+ y = chunk(n, dim=0) over tp
""",
        ("tp=2", "tp=4", "dp=2 tp=2"),
    ),
    *pair(
        "cast and scale keep a value partial",
        "partial-through-nonlinear",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
  h = mul(p, 0.5)
  c = to(h, dtype="bfloat16")
  t = transpose(c, dim0=0, dim1=1)
- y = gelu(t)
+ r = all-reduce(t) over tp
+ y = gelu(r)
""",
    ),
    *pair(
        "attention output projection without its all-reduce",
        "missing-allreduce",
        """
mesh dp=2 tp=2
weight wq f32[16,16] tp:S(0)
weight wk f32[16,16] tp:S(0)
weight wv f32[16,16] tp:S(0)
weight wo f32[16,16] tp:S(1)
input x f32[2,8,16] dp:S(0)
program
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  q4: f32[1,8,2,4] = view(q, size=[1,8,2,4])
  k4: f32[1,8,2,4] = view(k, size=[1,8,2,4])
  v4: f32[1,8,2,4] = view(v, size=[1,8,2,4])
  qt = transpose(q4, dim0=1, dim1=2)
  kt = transpose(k4, dim0=1, dim1=2)
  vt = transpose(v4, dim0=1, dim1=2)
  o = scaled_dot_product_attention(qt, kt, vt)
  ot = transpose(o, dim0=1, dim1=2)
  of: f32[1,8,8] = view(ot, size=[1,8,8])
  z = linear(of, wo)
- y = add(z, x)
+ r = all-reduce(z) over tp
+ y = add(r, x)
""",
    ),
    *correct(
        "bias added on one rank only",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
output y
program tp=0
  p = linear(x, w)
  q = add(p, b)
  y = all-reduce(q) over tp
program tp=1
  q = linear(x, w)
  y = all-reduce(q) over tp
""",
    ),
    *correct(
        "residual divided by the ranks before the all-reduce",
        """
mesh tp=4
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
input res f32[4,8]
output y f32[4,8]
program
  p = linear(x, w)
  part = div(res, 4)
  q = add(p, part)
  y = all-reduce(q) over tp
""",
    ),
    *correct(
        "two partial sums share an all-reduce",
        """
mesh $MESH
weight wo f32[16,16] tp:S(1)
weight w2 f32[16,32] tp:S(1)
input ctx f32[4,16] tp:S(1)
input act f32[4,32] tp:S(1)
input x f32[4,16]
output y f32[4,16]
program
  a = linear(ctx, wo)
  m = linear(act, w2)
  s = add(a, m)
  r = all-reduce(s) over tp
  y = add(r, x)
""",
        ("tp=2", "dp=2 tp=2"),
    ),
    *correct(
        "partial sum times a replicated scale, then reduced",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight s f32[8]
input x f32[4,16] tp:S(1)
output y f32[4,8]
program
  p = linear(x, w)
  q = mul(p, s)
  y = all-reduce(q) over tp
""",
    ),
    *correct(
        "partial through a second linear that is replicated",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight v f32[6,8]
input x f32[4,16] tp:S(1)
output y f32[4,6]
program
  p = linear(x, w)
  q = linear(p, v)
  y = all-reduce(q) over tp
""",
    ),
    *correct(
        "all-reduce as reduce-scatter and all-gather",
        """
mesh $MESH
weight w f32[8,16] tp:S(1)
input x f32[8,16] tp:S(1)
output y f32[8,8]
program
  p = linear(x, w)
  r = reduce-scatter(p, dim=0) over tp
  y = all-gather(r, dim=0) over tp
""",
        ("tp=2", "tp=4"),
    ),
    *correct(
        "hierarchical all-reduce over two axes",
        """
mesh node=2 local=2
weight w f32[8,16] node:S(1) local:S(1)
input x f32[8,16] node:S(1) local:S(1)
output y f32[8,8]
program
  p = linear(x, w)
  r = reduce-scatter(p, dim=0) over local
  s = all-reduce(r) over node
  y = all-gather(s, dim=0) over local
""",
    ),
    *correct(
        "asynchronous all-reduce with its wait",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight v f32[8,8]
input x f32[4,16] tp:S(1)
input z f32[4,8]
output y f32[4,8]
program
  p = linear(x, w)
  r = all-reduce(p) over tp async h0
  o = linear(z, v)
  wait h0
  y = add(r, o)
""",
    ),
    *correct(
        "reduce to a root and broadcast back",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = linear(x, w)
  r = reduce(p, root=0) over ranks 0,1
  b = broadcast(r, root=0) over ranks 0,1
  y = gelu(b)
""",
    ),
    *correct(
        "average of values that are equal on all ranks",
        """
mesh dp=4
input x f32[4,8]
program
  m = mean(x)
  y = all-reduce avg(m) over dp
""",
    ),
    *correct(
        "dropout with replicated and with sharded activations",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
weight v f32[8,16] tp:S(1)
input x f32[4,8]
output y f32[4,8]
program
  h = linear(x, w)
  d = dropout(h, p=0.1)
  p = linear(d, v)
  r = all-reduce(p) over tp
  e = dropout(r, p=0.1)
  y = add(e, x)
""",
    ),
    *pair(
        "whole attention layer, output projection unreduced",
        "missing-allreduce partial-through-nonlinear",
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
        "swiglu mlp of two column-parallel weights, down projection unreduced",
        "missing-allreduce partial-through-nonlinear",
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
        "log of a partial normaliser",
        "partial-through-nonlinear missing-allreduce",
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
        "normalisation by hand with a local mean of squares",
        "partial-through-nonlinear missing-allreduce bias-added-to-partial",
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
        "softmax by hand without the sum over ranks",
        "missing-allreduce mismatched-shards partial-through-nonlinear",
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
        "positional embedding added to a partial word embedding",
        "missing-allreduce bias-added-to-partial",
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
        "all-reduce after reduce-scatter and all-gather",
        "doubled-allreduce",
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
        "row-parallel linear by ranks with written-out regions",
        "missing-allreduce doubled-allreduce",
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
        "qkv input gradient: one of three terms unreduced",
        "missing-allreduce missing-gradient-reduction",
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
        "partial sum sent to the next pipeline stage",
        "partial-through-nonlinear missing-allreduce",
        """
mesh pp=2 tp=2
weight w f32[8,16] tp:S(1)
weight g f32[8]
input x f32[4,16] tp:S(1)
program pp=0
  p = linear(x, w)
+ h = all-reduce(p) over tp
- h = mul(p, 1.0)
  send h to pp+1
program pp=1
  recv h: f32[4,8] from pp-1
  n = rms_norm(h, g)
""",
    ),
    *pair(
        "partial sum leaves its segment",
        "partial-through-nonlinear missing-allreduce",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight g f32[8]
input x f32[4,16] tp:S(1)
segment one forward (x) -> (p)
+ q = linear(x, w)
+ p = all-reduce(q) over tp
- p = linear(x, w)
segment two forward (p) -> (n)
  n = rms_norm(p, g)
program
  run one micro-batch 0
  run two micro-batch 0
""",
    ),
    *pair(
        "qualified names",
        "partial-through-nonlinear",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
input x f32[4,16] tp:S(1)
program
  p = torch.nn.functional.linear(x, w)
+ r = all-reduce(p) over tp
+ y = torch.nn.functional.gelu(r)
- y = torch.nn.functional.gelu(p)
""",
    ),
    *pair(
        "vocabulary-parallel target logit not summed",
        "missing-allreduce partial-through-nonlinear mismatched-shards",
        """
mesh tp=2
input z f32[6,10] tp:S(1)
input onehot f32[6,10] tp:S(1)
program
  m = amax(z, dim=-1, keepdim=True)
  g = all-reduce max(m) over tp
  c = sub(z, g)
  k = mul(c, onehot)
  t = sum(k, dim=-1)
+ ts = all-reduce(t) over tp
  e = exp(c)
  s = sum(e, dim=-1)
  ss = all-reduce(s) over tp
  ln = log(ss)
+ l = sub(ln, ts)
- l = sub(ln, t)
""",
    ),
    *pair(
        "masked lookup in a shard of the vocabulary not reduced",
        "partial-through-nonlinear",
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
        "gate and up joined and taken apart again, not reduced",
        "missing-allreduce",
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
    *pair(
        "output of grouped heads, not reduced",
        "missing-allreduce",
        """
mesh tp=2
weight wq f32[32,16] tp:S(0)
weight wk f32[16,16] tp:S(0)
weight wv f32[16,16] tp:S(0)
weight wo f32[16,32] tp:S(1)
input x f32[2,4,16]
output y f32[2,4,16]
program
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  qh = reshape(q, [2,4,2,8])
  kh = reshape(k, [2,4,1,8])
  vh = reshape(v, [2,4,1,8])
  qt = transpose(qh, 1, 2)
  kt = transpose(kh, 1, 2)
  vt = transpose(vh, 1, 2)
  o = scaled_dot_product_attention(qt, kt, vt, is_causal=True, enable_gqa=True)
  ot = transpose(o, 1, 2)
  of = reshape(ot, [2,4,16])
  p = linear(of, wo)
- y = mul(p, 1.0)
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "a bias on every rank, of which none or one copy is taken out again",
        "bias-added-to-partial",
        """
mesh tp=2
weight w f32[8,8] tp:S(1)
weight b f32[8]
input x f32[4,8] tp:S(1)
output g f32[4,8]
program
  s = linear(x, w)
  p = add(s, b)
  r = all-reduce(p) over tp
- y = mul(r, 1.0)
+ y = sub(r, b)
  g = gelu(y)
""",
    ),
    *pair(
        "a bias that two ranks add, of which one copy or both are taken out again",
        "bias-added-to-partial",
        """
mesh tp=2
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
output y f32[4,8] replicated
program
  s = linear(x, w)
  p = add(s, b)
  r = all-reduce(p) over tp
+ y = sub(r, b)
- u = sub(r, b)
- y = sub(u, b)
""",
    ),
    *pair(
        "a bias that four ranks add, of which three copies or two are taken out again",
        "bias-added-to-partial",
        """
mesh tp=4
weight w f32[8,16] tp:S(1)
weight b f32[8]
input x f32[4,16] tp:S(1)
output y f32[4,8] replicated
program
  s = linear(x, w, b)
  r = all-reduce(s) over tp
+ c = mul(b, 3.0)
- c = mul(b, 2.0)
  y = sub(r, c)
""",
    ),
    *pair(
        "a sum of a buffer on every rank, of which none or three copies are taken out again",
        "missing-allreduce bias-added-to-partial",
        """
mesh dp=4
weight w f32[8,8]
buffer b f32[8]
input x f32[16,8] dp:S(0)
loss l f32[]
program
  y = linear(x, w)
  s = sum(y)
  c = sum(b)
  u = add(s, c)
  r = all-reduce(u) over dp
+ k = mul(c, -3)
- k = mul(c, 3)
  l = add(r, k)
""",
    ),
)
