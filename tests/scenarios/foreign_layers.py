"""Whole transformer layers as they are transcribed from training code, and mistakes in them."""

from __future__ import annotations

from tests.scenarios.scenario import variants

_SP22 = """\
plan "megatron layer with sequence parallelism"
mesh dp=2 tp=2
weight ln1 bf16[16]
weight ln1b bf16[16]
weight wq bf16[16,16] tp:S(0)
weight wk bf16[16,16] tp:S(0)
weight wv bf16[16,16] tp:S(0)
weight wo bf16[16,16] tp:S(1)
weight ln2 bf16[16]
weight ln2b bf16[16]
weight w1 bf16[32,16] tp:S(0)
weight b1 bf16[32] tp:S(0)
weight w2 bf16[16,32] tp:S(1)
weight b2 bf16[16]
input x bf16[8,4,16] dp:S(1) tp:S(0)
input dy bf16[8,4,16] dp:S(1) tp:S(0)
output y bf16[8,4,16] dp:S(1) tp:S(0)

program
  n1 = torch.nn.functional.layer_norm(x, [16], ln1, ln1b)
  g1 = all-gather(n1, dim=0) over tp
  q = torch.nn.functional.linear(g1, wq)
  k = torch.nn.functional.linear(g1, wk)
  v = torch.nn.functional.linear(g1, wv)
  q4 = torch.Tensor.view(q, [8,2,2,4])
  k4 = torch.Tensor.view(k, [8,2,2,4])
  v4 = torch.Tensor.view(v, [8,2,2,4])
  qt = torch.permute(q4, [1,2,0,3])
  kt = torch.permute(k4, [1,2,0,3])
  vt = torch.permute(v4, [1,2,0,3])
  o = torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, is_causal=True)
  ot = torch.permute(o, [2,0,1,3])
  om = torch.Tensor.reshape(ot, [8,2,8])
  p = torch.nn.functional.linear(om, wo)
  r = reduce-scatter(p, dim=0) over tp
  h = torch.add(x, r)
  n2 = torch.nn.functional.layer_norm(h, [16], ln2, ln2b)
  g2 = all-gather(n2, dim=0) over tp
  u = torch.nn.functional.linear(g2, w1, b1)
  a = torch.nn.functional.gelu(u)
  p2 = torch.nn.functional.linear(a, w2)
  r2 = reduce-scatter(p2, dim=0) over tp
  r3 = torch.add(r2, b2)
  y = torch.add(h, r3)
  dh_a, dr3 = backward y (dy)
  dr2, grad(b2) = backward r3 (dr3)
  dp2 = all-gather(dr2, dim=0) over tp
  da, grad(w2) = backward p2 (dp2)
  du = backward a (da)
  dg2, grad(w1), grad(b1) = backward u (du)
  dn2 = reduce-scatter(dg2, dim=0) over tp
  dh_b, grad(ln2), grad(ln2b) = backward n2 (dn2)
  dh = torch.add(dh_a, dh_b)
  dx_a, dr = backward h (dh)
  dp = all-gather(dr, dim=0) over tp
  dom, grad(wo) = backward p (dp)
  dot = backward om (dom)
  do = backward ot (dot)
  dqt, dkt, dvt = backward o (do)
  dq4 = backward qt (dqt)
  dk4 = backward kt (dkt)
  dv4 = backward vt (dvt)
  dq = backward q4 (dq4)
  dk = backward k4 (dk4)
  dv = backward v4 (dv4)
  dg1q, grad(wq) = backward q (dq)
  dg1k, grad(wk) = backward k (dk)
  dg1v, grad(wv) = backward v (dv)
  dg1qk = torch.add(dg1q, dg1k)
  dg1 = torch.add(dg1qk, dg1v)
  dn1 = reduce-scatter(dg1, dim=0) over tp
  dx_b, grad(ln1), grad(ln1b) = backward n1 (dn1)
  dx = torch.add(dx_a, dx_b)
  reduce-gradients ln1, ln1b, ln2, ln2b, b2 over tp
  reduce-gradients ln1, ln1b, wq, wk, wv, wo, ln2, ln2b, w1, b1, w2, b2 over dp
  update ln1, ln1b, wq, wk, wv, wo, ln2, ln2b, w1, b1, w2, b2
"""

_SP14 = (
    _SP22.replace("mesh dp=2 tp=2", "mesh tp=4")
    .replace("[8,4,16] dp:S(1) tp:S(0)", "[8,2,16] tp:S(0)")
    .replace("[8,2,2,4]", "[8,2,1,4]")
    .replace("reshape(ot, [8,2,8])", "reshape(ot, [8,2,4])")
    .replace("  reduce-gradients ln1, ln1b, wq, wk, wv, wo, ln2, ln2b, w1, b1, w2, b2 over dp\n", "")
)

_SP42 = _SP22.replace("mesh dp=2 tp=2", "mesh dp=4 tp=2").replace("[8,4,16] dp", "[8,8,16] dp")

_TP2 = """\
mesh dp=2 tp=2
weight wq f32[16,16] tp:S(1)
weight wk f32[16,16] tp:S(1)
weight wv f32[16,16] tp:S(1)
weight wo f32[16,16] tp:S(0)
weight bo f32[16]
weight fc1 f32[16,64] tp:S(1)
weight fc2 f32[64,16] tp:S(0)
weight norm f32[16]
input x f32[8,16] dp:S(0)
output y f32[8,16] dp:S(0)

program
  xn = rms_norm(x, [16], norm)
  q = aten.mm(xn, wq)
  k = aten.mm(xn, wk)
  v = aten.mm(xn, wv)
  qh = aten.view(q, [4,2,4])
  kh = aten.view(k, [4,2,4])
  vh = aten.view(v, [4,2,4])
  qp = aten.transpose(qh, 0, 1)
  kp = aten.permute(kh, [1,2,0])
  vp = aten.transpose(vh, 0, 1)
  s = aten.bmm(qp, kp)
  ss = aten.mul(s, 0.5)
  pr = aten._softmax(ss, -1)
  c = aten.bmm(pr, vp)
  ct = aten.transpose(c, 0, 1)
  cm = aten.reshape(ct, [4,8])
  op = aten.mm(cm, wo)
  oa = all-reduce(op) over tp
  ob = aten.add(oa, bo)
  h = aten.add(x, ob)
  u = aten.mm(h, fc1)
  a = aten.silu(u)
  d = aten.mm(a, fc2)
  e = all-reduce(d) over tp
  y = aten.add(h, e)
  dh1, de = backward y (grad(y))
  da, grad(fc2) = backward d (de)
  du = backward a (da)
  dh2p, grad(fc1) = backward u (du)
  dh2 = all-reduce(dh2p) over tp
  dh = aten.add(dh1, dh2)
  dx1, dob = backward h (dh)
  doa, grad(bo) = backward ob (dob)
  dcm, grad(wo) = backward op (doa)
  dct = backward cm (dcm)
  dc = backward ct (dct)
  dpr, dvp = backward c (dc)
  dss = backward pr (dpr)
  ds = backward ss (dss)
  dqp, dkp = backward s (ds)
  dvh = backward vp (dvp)
  dkh = backward kp (dkp)
  dqh = backward qp (dqp)
  dv = backward vh (dvh)
  dk = backward kh (dkh)
  dq = backward qh (dqh)
  dxv, grad(wv) = backward v (dv)
  dxk, grad(wk) = backward k (dk)
  dxq, grad(wq) = backward q (dq)
  dx2 = aten.add(dxv, dxk)
  dx3 = aten.add(dx2, dxq)
  dx4 = all-reduce(dx3) over tp
  dx5, grad(norm) = backward xn (dx4)
  dx = aten.add(dx1, dx5)
  reduce-gradients wq, wk, wv, wo, bo, fc1, fc2, norm over dp by avg
  update wq, wk, wv, wo, bo, fc1, fc2, norm
"""

_TP4 = (
    _TP2.replace("mesh dp=2 tp=2", "mesh dp=2 tp=4")
    .replace("[4,2,4]", "[4,1,4]")
    .replace("aten.reshape(ct, [4,8])", "aten.reshape(ct, [4,4])")
)

_QKV = """\
mesh tp=2
weight wqkv f16[24,8] tp:S(0, parts=[8,8,8])
weight wo f16[8,8] tp:S(1)
input x f16[4,8]
output y f16[4,8]
program
  z = linear(x, wqkv)
  q, k, v = split(z, [4,4,4], dim=1)
  qh = view(q, [4,2,2])
  kh = view(k, [4,2,2])
  vh = view(v, [4,2,2])
  qp = transpose(qh, 0, 1)
  kp = transpose(kh, 0, 1)
  vp = transpose(vh, 0, 1)
  o = scaled_dot_product_attention(qp, kp, vp)
  ot = transpose(o, 0, 1)
  om = reshape(ot, [4,4])
  p = linear(om, wo)
  y = all-reduce(p) over tp
"""

_GLU = """\
mesh dp=2 tp=4
weight gate_up bf16[64,16] tp:S(0, parts=[32,32])
weight down bf16[16,32] tp:S(1)
input x bf16[4,16] dp:S(0)
output y bf16[4,16] dp:S(0)
program
  z = F.linear(x, gate_up)
  g, u = torch.chunk(z, 2, dim=-1)
  s = F.silu(g)
  m = torch.mul(s, u)
  p = F.linear(m, down)
  y = all-reduce(p) over tp
"""

SCENARIOS = (
    *variants(
        "sequence-parallel layer",
        _SP22,
        (
            "ln grads not reduced over tp",
            "missing-gradient-reduction",
            (
                (
                    "  reduce-gradients ln1, ln1b, ln2, ln2b, b2 over tp\n",
                    "",
                ),
            ),
        ),
        (
            "no dp reduce at all",
            "missing-gradient-reduction",
            (
                (
                    "  reduce-gradients ln1, ln1b, wq, wk, wv, wo, ln2, ln2b, w1, b1, w2, b2 over dp\n",
                    "",
                ),
            ),
        ),
        (
            "tp-sharded weight grads reduced over tp too",
            "allreduce-of-shards",
            (
                (
                    "reduce-gradients ln1, ln1b, ln2, ln2b, b2 over tp",
                    "reduce-gradients ln1, ln1b, w1, ln2, ln2b, b2 over tp",
                ),
            ),
        ),
        (
            "reduce-scatter over dp instead of tp",
            "wrong-collective-group",
            (
                (
                    "r2 = reduce-scatter(p2, dim=0) over tp",
                    "r2 = reduce-scatter(p2, dim=0) over dp",
                ),
            ),
        ),
        (
            "all-gather along batch dim",
            "wrong-gather-dim",
            (
                (
                    "g2 = all-gather(n2, dim=0) over tp",
                    "g2 = all-gather(n2, dim=1) over tp",
                ),
            ),
        ),
        (
            "chunk instead of reduce-scatter after fc2",
            "missing-allreduce",
            (
                (
                    "r2 = reduce-scatter(p2, dim=0) over tp",
                    "r2 = chunk(p2, dim=0) over tp",
                ),
            ),
        ),
        (
            "w1 never updated",
            "weight-never-updated",
            (
                (
                    "  update ln1, ln1b, wq, wk, wv, wo, ln2, ln2b, w1, b1",
                    "  update ln1, ln1b, wq, wk, wv, wo, ln2, ln2b, b1",
                ),
            ),
        ),
        (
            "attention reshape mixes heads and sequence",
            "contraction-of-mismatched-shards mismatched-shards",
            (
                (
                    "  ot = torch.permute(o, [2,0,1,3])\n",
                    "  ot = torch.Tensor.clone(o)\n",
                ),
            ),
        ),
    ),
    *variants(
        "sequence-parallel layer of four ranks",
        _SP14,
        (
            "final ln only forgotten",
            "missing-gradient-reduction",
            (
                (
                    "reduce-gradients ln1, ln1b, ln2, ln2b, b2 over tp",
                    "reduce-gradients ln1, ln1b, b2 over tp",
                ),
            ),
        ),
        (
            "b2 after reduce-scatter not marked sequence_parallel",
            "missing-gradient-reduction",
            (
                (
                    "ln2, ln2b, b2 over tp",
                    "ln2, ln2b over tp",
                ),
            ),
        ),
        (
            "chunk in place of reduce-scatter in backward",
            "missing-allreduce",
            (
                (
                    "dn2 = reduce-scatter(dg2, dim=0) over tp",
                    "dn2 = chunk(dg2, dim=0) over tp",
                ),
            ),
        ),
        (
            "missing gather before attention",
            "doubled-gradient-reduction mismatched-shards",
            (
                (
                    "  g1 = all-gather(n1, dim=0) over tp\n",
                    "  g1 = torch.clone(n1)\n",
                ),
                (
                    "view(q, [8,2",
                    "view(q, [2,2",
                ),
                (
                    "view(k, [8,2",
                    "view(k, [2,2",
                ),
                (
                    "view(v, [8,2",
                    "view(v, [2,2",
                ),
                (
                    "reshape(ot, [8,2",
                    "reshape(ot, [2,2",
                ),
                (
                    "  r = reduce-scatter(p, dim=0) over tp",
                    "  r = all-reduce(p) over tp",
                ),
                (
                    "dp = all-gather(dr, dim=0) over tp",
                    "dp = torch.clone(dr)",
                ),
                (
                    "dn1 = reduce-scatter(dg1, dim=0) over tp",
                    "dn1 = all-reduce(dg1) over tp",
                ),
            ),
        ),
        (
            "bias b2 added before the reduce",
            "bias-added-to-partial doubled-gradient-reduction",
            (
                (
                    "  p2 = torch.nn.functional.linear(a, w2)",
                    "  p2 = torch.nn.functional.linear(a, w2, b2)",
                ),
                (
                    "  r3 = torch.add(r2, b2)\n  y = torch.add(h, r3)",
                    "  y = torch.add(h, r2)",
                ),
                (
                    "  dh_a, dr3 = backward y (dy)\n  dr2, grad(b2) = backward r3 (dr3)",
                    "  dh_a, dr2 = backward y (dy)",
                ),
                (
                    "  da, grad(w2) = backward",
                    "  da, grad(w2), grad(b2) = backward",
                ),
            ),
        ),
        (
            "reduce-scatter avg",
            "wrong-reduce-op",
            (
                (
                    "r2 = reduce-scatter(p2, dim=0) over tp",
                    "r2 = reduce-scatter avg(p2, dim=0) over tp",
                ),
            ),
        ),
        (
            "reduce-scatter max",
            "wrong-reduce-op",
            (
                (
                    "r = reduce-scatter(p, dim=0) over tp",
                    "r = reduce-scatter max(p, dim=0) over tp",
                ),
            ),
        ),
    ),
    *variants(
        "sequence-parallel layer of eight ranks",
        _SP42,
        (
            "dp reduce misses wo",
            "missing-gradient-reduction",
            (
                (
                    "wv, wo, ln2, ln2b, w1, b1, w2, b2 over dp",
                    "wv, ln2, ln2b, w1, b1, w2, b2 over dp",
                ),
            ),
        ),
        (
            "backward of reduce-scatter without its gather",
            "mismatched-shards",
            (
                (
                    "  dp2 = all-gather(dr2, dim=0) over tp\n  da, grad(w2) = backward p2 (dp2)",
                    "  da, grad(w2) = backward p2 (dr2)",
                ),
            ),
        ),
        (
            "reduce-scatter along dim 1",
            "mismatched-shards",
            (
                (
                    "r = reduce-scatter(p, dim=0) over tp",
                    "r = reduce-scatter(p, dim=1) over tp",
                ),
            ),
        ),
        (
            "gelu moved behind fc2 partial",
            "partial-through-nonlinear",
            (
                (
                    "  a = torch.nn.functional.gelu(u)\n"
                    "  p2 = torch.nn.functional.linear(a, w2)\n"
                    "  r2 = reduce-scatter(p2, dim=0) over tp",
                    "  a0 = torch.nn.functional.linear(u, w2)\n"
                    "  p2 = torch.nn.functional.gelu(a0)\n"
                    "  r2 = reduce-scatter(p2, dim=0) over tp",
                ),
                (
                    "  da, grad(w2) = backward p2 (dp2)\n  du = backward a (da)",
                    "  da = backward p2 (dp2)\n  du, grad(w2) = backward a0 (da)",
                ),
            ),
        ),
    ),
    *variants(
        "tensor-parallel layer in aten",
        _TP2,
        (
            "backward all-reduce of column input missing",
            "missing-allreduce missing-gradient-reduction",
            (
                (
                    "  dx4 = all-reduce(dx3) over tp\n  dx5, grad(norm) = backward xn (dx4)",
                    "  dx5, grad(norm) = backward xn (dx3)",
                ),
            ),
        ),
        (
            "backward all-reduce over dp",
            "missing-allreduce wrong-collective-group",
            (
                (
                    "dh2 = all-reduce(dh2p) over tp",
                    "dh2 = all-reduce(dh2p) over dp",
                ),
            ),
        ),
        (
            "forward all-reduce missing after mlp",
            "missing-allreduce",
            (
                (
                    "  e = all-reduce(d) over tp\n  y = aten.add(h, e)",
                    "  y = aten.add(h, d)",
                ),
            ),
        ),
        (
            "bias before all-reduce",
            "bias-added-to-partial",
            (
                (
                    "  oa = all-reduce(op) over tp\n  ob = aten.add(oa, bo)",
                    "  oa = aten.add(op, bo)\n  ob = all-reduce(oa) over tp",
                ),
                (
                    "  doa, grad(bo) = backward ob (dob)",
                    "  doa, grad(bo) = backward oa (dob)",
                ),
            ),
        ),
        (
            "double all-reduce",
            "doubled-allreduce",
            (
                (
                    "  ob = aten.add(oa, bo)",
                    "  oa2 = all-reduce(oa) over tp\n  ob = aten.add(oa2, bo)",
                ),
            ),
        ),
        (
            "avg all-reduce of partial",
            "wrong-reduce-op",
            (
                (
                    "oa = all-reduce(op) over tp",
                    "oa = all-reduce avg(op) over tp",
                ),
            ),
        ),
        (
            "max",
            "wrong-reduce-op",
            (
                (
                    "e = all-reduce(d) over tp",
                    "e = all-reduce max(d) over tp",
                ),
            ),
        ),
        (
            "all-gather for all-reduce",
            "gather-of-partial",
            (
                (
                    "  e = all-reduce(d) over tp\n  y = aten.add(h, e)",
                    "  e0 = all-gather(d, dim=0) over tp\n  e = aten.narrow(e0, 0, 0, 4)\n  y = aten.add(h, e)",
                ),
            ),
        ),
        (
            "tp-only weight grads also avg over tp (replicated norm twice)",
            "allreduce-of-shards",
            (
                (
                    "norm over dp by avg",
                    "norm over dp,tp by avg",
                ),
            ),
        ),
        (
            "wq missing from dp reduction",
            "missing-gradient-reduction",
            (
                (
                    "reduce-gradients wq, wk",
                    "reduce-gradients wk",
                ),
            ),
        ),
        (
            "gradient of fc1 computed but step forgets fc1",
            "weight-never-updated",
            (
                (
                    "update wq, wk, wv, wo, bo, fc1, fc2, norm",
                    "update wq, wk, wv, wo, bo, fc2, norm",
                ),
            ),
        ),
    ),
    *variants(
        "tensor-parallel layer in aten of eight ranks",
        _TP4,
        (
            "mlp backward all-reduce missing",
            "missing-allreduce",
            (
                (
                    "  dh2 = all-reduce(dh2p) over tp\n  dh = aten.add(dh1, dh2)",
                    "  dh = aten.add(dh1, dh2p)",
                ),
            ),
        ),
        (
            "extra backward all-reduce of replicated grad",
            "doubled-allreduce",
            (
                (
                    "  da, grad(fc2) = backward d (de)",
                    "  de2 = all-reduce(de) over tp\n  da, grad(fc2) = backward d (de2)",
                ),
            ),
        ),
        (
            "forward all-reduce missing after attention",
            "bias-added-to-partial",
            (
                (
                    "  oa = all-reduce(op) over tp\n  ob = aten.add(oa, bo)",
                    "  ob = aten.add(op, bo)",
                ),
            ),
        ),
        (
            "residual added before all-reduce",
            "missing-allreduce",
            (
                (
                    "  e = all-reduce(d) over tp\n  y = aten.add(h, e)",
                    "  e = aten.add(h, d)\n  y = all-reduce(e) over tp",
                ),
                (
                    "dh1, de = backward y (grad(y))",
                    "dh1, de = backward e (grad(y))",
                ),
            ),
        ),
        (
            "reduce to root",
            "root-only-result-used",
            (
                (
                    "e = all-reduce(d) over tp",
                    "e = reduce(d, root=0) over tp",
                ),
            ),
        ),
        (
            "reduced over tp only",
            "allreduce-of-shards missing-gradient-reduction",
            (
                (
                    "norm over dp by avg",
                    "norm over tp by avg",
                ),
            ),
        ),
    ),
    *variants(
        "packed attention",
        _QKV,
        (
            "packed qkv sharded as one",
            "packed-split-across-shards",
            (
                (
                    "tp:S(0, parts=[8,8,8])",
                    "tp:S(0)",
                ),
            ),
        ),
        (
            "missing all-reduce before declared output",
            "missing-allreduce",
            (
                (
                    "  p = linear(om, wo)\n  y = all-reduce(p) over tp",
                    "  y = linear(om, wo)",
                ),
            ),
        ),
    ),
    *variants(
        "gated linear unit",
        _GLU,
        (
            "swiglu gate_up sharded contiguously",
            "packed-split-across-shards",
            (
                (
                    "tp:S(0, parts=[32,32])",
                    "tp:S(0)",
                ),
            ),
        ),
        (
            "product before reduce: partial x partial",
            "partial-times-partial",
            (
                (
                    "  p = F.linear(m, down)\n  y = all-reduce(p) over tp",
                    "  p0 = F.linear(m, down)\n  p = torch.mul(p0, p0)\n  y = all-reduce(p) over tp",
                ),
            ),
        ),
        (
            "row weight on the wrong rank half (gathered value x sharded weight)",
            "contraction-of-mismatched-shards",
            (
                (
                    "  p = F.linear(m, down)\n",
                    "  mg = all-gather(m, dim=1) over tp\n  mc: bf16[2,8] = torch.narrow(mg, 1, 0, 8)\n"
                    "  p = F.linear(mc, down)\n",
                ),
            ),
        ),
    ),
)
