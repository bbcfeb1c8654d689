"""Training steps written out (data parallel, sharded, losses, streams), and mistakes in them."""

from __future__ import annotations

from tests.scenarios.scenario import variants

_FSDP = """\
plan "fully sharded two layers, prefetch"
mesh dp=4
weight w0 f32[32,16] dp:S(0)
weight w1 f32[16,32] dp:S(0)
state m0 f32[32,16] dp:S(0)
state v0 f32[32,16] dp:S(0)
state m1 f32[16,32] dp:S(0)
state v1 f32[16,32] dp:S(0)
input x f32[8,16] dp:S(0)
input t f32[8,16] dp:S(0)
loss l
program
  w0f = all-gather(w0, dim=0) over dp async h0 on comm
  wait h0
  w1f = all-gather(w1, dim=0) over dp async h1 on comm
  a = torch.nn.functional.linear(x, w0f)
  b = torch.nn.functional.relu(a)
  wait h1
  c = torch.nn.functional.linear(b, w1f)
  l = torch.nn.functional.mse_loss(c, t)
  w1g = all-gather(w1, dim=0) over dp async h2 on comm
  dc, _ = backward l (grad(l))
  wait h2
  db, dw1 = backward (dc) of c2 = torch.nn.functional.linear(b, w1g)
  w0g = all-gather(w0, dim=0) over dp async h3 on comm
  grad(w1) = reduce-scatter avg(dw1, dim=0) over dp async h4 on comm
  da = backward b (db)
  wait h3
  _, dw0 = backward (da) of a2 = torch.nn.functional.linear(x, w0g)
  grad(w0) = reduce-scatter avg(dw0, dim=0) over dp async h5 on comm
  wait h4
  wait h5
  adam_step(w0!, grad(w0), m0!, v0!)
  adam_step(w1!, grad(w1), m1!, v1!)
"""

_ZERO1 = """\
mesh dp=2 tp=2
weight w f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
state m f32[16,8] tp:S(0) dp:S(1)
state m2 f32[8,16] tp:S(1) dp:S(0)
state ws f32[16,8] tp:S(0) dp:S(1)
state ws2 f32[8,16] tp:S(1) dp:S(0)
input x f32[4,8] dp:S(0)
loss l
program
  a = linear(x, w)
  b = relu(a)
  p = linear(b, w2)
  y = all-reduce(p) over tp
  sq = pow(y, 2)
  l = mean(sq)
  dsq = backward l (grad(l))
  dy = backward sq (dsq)
  db, grad(w2) = backward p (dy)
  da = backward b (db)
  _, grad(w) = backward a (da)
  gs = reduce-scatter(grad(w), dim=1) over dp
  gs2 = reduce-scatter(grad(w2), dim=0) over dp
  ga = div(gs, 2)
  ga2 = div(gs2, 2)
  sgd_momentum(ws!, ga, m!)
  sgd_momentum(ws2!, ga2, m2!)
  w.new = all-gather(ws, dim=1) over dp
  w2.new = all-gather(ws2, dim=0) over dp
  copy_(w!, w.new)
  copy_(w2!, w2.new)
"""

_ZERO2ACC = """\
mesh dp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
input t f32[4,8] dp:S(0)
loss l
segment fwd forward (x, t) -> (y, l, ls)
  y = linear(x, w)
  l = mse_loss(y, t)
  ls = div(l, 2)
segment bwd backward mirror fwd (x, t, y, l, ls) -> ()
  dl = backward ls (grad(ls))
  dy, _ = backward l (dl)
  _, grad(w) = backward y (dy)
segment step optimizer
  reduce-gradients w over dp by avg
  update w
program
  run fwd micro-batch 0
  run bwd micro-batch 0
  run fwd micro-batch 1
  run bwd micro-batch 1
  run step
"""

_DDP = """\
plan "ddp, overlapped buckets"
mesh dp=8
weight w1 f32[16,16]
weight w2 f32[16,16]
input x f32[8,16] dp:S(0)
loss loss
program
  h = linear(x, w1)
  a = tanh(h)
  y = linear(a, w2)
  loss = mean(y)
  dy = backward loss (grad(loss))
  da, dw2 = backward y (dy)
  record e2 on main
  await e2 on comm
  g2 = all-reduce(dw2) over dp async b2 on comm
  dh = backward a (da)
  _, dw1 = backward h (dh)
  record e1 on main
  await e1 on comm
  g1 = all-reduce(dw1) over dp async b1 on comm
  wait b2
  wait b1
  s2 = div(g2, 8)
  s1 = div(g1, 8)
  sgd(w2!, s2)
  sgd(w1!, s1)
"""

_HSDP = """\
mesh rep=2 shard=2
weight w f32[8,8] shard:S(0)
input x f32[8,8] rep:S(0) shard:S(0)
output y f32[8,8] rep:S(0) shard:S(0)
program
  wf = all-gather(w, dim=0) over shard
  y = linear(x, wf)
  _, dwf = backward y (grad(y))
  gs = reduce-scatter(dwf, dim=0) over shard
  grad(w) = all-reduce(gs) over rep
  update w
"""

_CLIP = """\
mesh dp=2 tp=2
weight w f32[8,8] tp:S(0)
weight n f32[8]
input x f32[4,8] dp:S(0)
output y f32[4,8] dp:S(0) tp:S(1)
program
  xn = rms_norm(x, [8], n)
  y = linear(xn, w)
  dxnp, grad(w) = backward y (grad(y))
  dxn = all-reduce(dxnp) over tp
  _, grad(n) = backward xn (dxn)
  gw = all-reduce(grad(w)) over dp
  gn = all-reduce(grad(n)) over dp
  sqw = pow(gw, 2)
  nw = sum(sqw)
  nwt = all-reduce(nw) over tp
  sqn = pow(gn, 2)
  nn = sum(sqn)
  tot = add(nwt, nn)
  nrm = sqrt(tot)
  den = add(nrm, 1.0)
  cw = div(gw, den)
  cn = div(gn, den)
  sgd(w!, cw)
  sgd(n!, cn)
"""

_VOCAB = """\
mesh dp=2 tp=2
weight emb f32[32,8] tp:S(0)
weight head f32[32,8] tp:S(0)
input ids i64[8] dp:S(0)
input tgt i64[8] dp:S(0)
loss l
program
  ep = torch.nn.functional.embedding(ids, emb)
  e = all-reduce(ep) over tp
  z = torch.nn.functional.linear(e, head)
  mx = torch.amax(z, dim=-1, keepdim=True)
  mxa = all-reduce max(mx) over tp
  zc = torch.sub(z, mxa)
  ex = torch.exp(zc)
  se = torch.sum(ex, dim=-1, keepdim=True)
  sea = all-reduce(se) over tp
  lse = torch.log(sea)
  zt = masked_gather(zc, tgt)
  zta = all-reduce(zt) over tp
  lsq = torch.squeeze(lse, -1)
  tok = torch.sub(lsq, zta)
  l = torch.mean(tok)
  lr = all-reduce avg(l) over dp label report
"""

_CE = """\
mesh dp=2 tp=4
weight head bf16[64,16] tp:S(0)
input h bf16[8,16] dp:S(0)
input tgt i64[8] dp:S(0)
loss l
program
  z = F.linear(h, head)
  zg = all-gather(z, dim=-1) over tp
  zf = to(zg, float32)
  l = F.cross_entropy(zf, tgt)
"""

_PERTOKEN = """\
mesh dp=2 cp=2
weight w f32[8,8]
input x f32[4,16,8] dp:S(0) cp:S(1)
input mask f32[4,16] dp:S(0) cp:S(1)
loss l
program
  y = linear(x, w)
  s = sum(y, dim=-1)
  ml = mul(s, mask)
  num = sum(ml)
  den = sum(mask)
  dent = all-reduce(den) over dp,cp
  l = div(num, dent)
  dnum, _ = backward l (grad(l))
  dml = backward num (dnum)
  ds, _ = backward ml (dml)
  dy = backward s (ds)
  _, grad(w) = backward y (dy)
  reduce-gradients w over dp,cp
  update w
"""

_MEANLOSS = """\
mesh dp=4 cp=2
weight w f32[8,8]
input x f32[8,16,8] dp:S(0) cp:S(1)
input t f32[8,16,8] dp:S(0) cp:S(1)
loss l
program
  y = linear(x, w)
  l = mse_loss(y, t)
  dy, _ = backward l (grad(l))
  _, grad(w) = backward y (dy)
  reduce-gradients w over dp,cp divide 8
  update w
"""

_ROOT = """\
mesh dp=4
weight w f32[8,8]
input x f32[8,8] dp:S(0)
output m
program
  y = linear(x, w)
  l = sum(y)
  r = reduce(l, root=0) over dp
  m = broadcast(r, root=0) over dp
"""

_STREAMS = """\
mesh tp=2
weight w f32[8,8] tp:S(1)
weight v f32[8,8] tp:S(1)
input x f32[4,8] tp:S(1)
output y f32[4,8]
output z f32[4,8]
program
  p = linear(x, w)
  record ready on main
  await ready on comm
  y = all-reduce(p) over tp on comm
  record done on comm
  q = linear(x, v)
  await done on main
  z0 = all-reduce(q) over tp
  z = add(y, z0)
"""

SCENARIOS = (
    *variants(
        "fsdp",
        _FSDP,
        (
            "gather not waited before use",
            "buffer-in-flight missing-wait",
            (
                (
                    "  wait h1\n",
                    "",
                ),
            ),
        ),
        (
            "waits wrong handle",
            "buffer-in-flight double-wait missing-wait",
            (
                (
                    "  wait h1\n  c =",
                    "  wait h0\n  c =",
                ),
            ),
        ),
        (
            "reduce-scatter of w0 not waited before the step",
            "missing-wait",
            (
                (
                    "  wait h5\n",
                    "",
                ),
            ),
        ),
        (
            "shard used without gather",
            "mismatched-shards",
            (
                (
                    "c = torch.nn.functional.linear(b, w1f)",
                    "c = torch.nn.functional.linear(b, w1)",
                ),
            ),
        ),
        (
            "grad reduce-scatter along dim 1",
            "state-of-another-shard",
            (
                (
                    "grad(w1) = reduce-scatter avg(dw1, dim=0)",
                    "grad(w1) = reduce-scatter avg(dw1, dim=1)",
                ),
            ),
        ),
        (
            "grad chunk instead of reduce-scatter",
            "missing-allreduce",
            (
                (
                    "grad(w0) = reduce-scatter avg(dw0, dim=0) over dp async h5 on comm",
                    "grad(w0) = chunk(dw0, dim=0) over dp",
                ),
                (
                    "  wait h5\n",
                    "",
                ),
            ),
        ),
        (
            "state of the other weight",
            "state-of-another-shard",
            (
                (
                    "adam_step(w1!, grad(w1), m1!, v1!)",
                    "adam_step(w1!, grad(w1), m0!, v1!)",
                ),
            ),
        ),
        (
            "sum instead of avg",
            "wrong-gradient-scale",
            (
                (
                    "grad(w0) = reduce-scatter avg",
                    "grad(w0) = reduce-scatter",
                ),
                (
                    "grad(w1) = reduce-scatter avg",
                    "grad(w1) = reduce-scatter",
                ),
            ),
        ),
        (
            "gather along dim 1",
            "wrong-gather-dim",
            (
                (
                    "w1g = all-gather(w1, dim=0)",
                    "w1g = all-gather(w1, dim=1)",
                ),
            ),
        ),
        (
            "step before reduce (order)",
            "missing-wait",
            (
                (
                    "  wait h4\n  wait h5\n  adam_step(w0!, grad(w0), m0!, v0!)\n",
                    "  adam_step(w0!, grad(w0), m0!, v0!)\n  wait h4\n  wait h5\n",
                ),
            ),
        ),
        (
            "double wait",
            "double-wait",
            (
                (
                    "  wait h4\n  wait h5",
                    "  wait h4\n  wait h4\n  wait h5",
                ),
            ),
        ),
        (
            "handle reused while open",
            "handle-reissued",
            (
                (
                    "w1f = all-gather(w1, dim=0) over dp async h1 on comm",
                    "w1f = all-gather(w1, dim=0) over dp async h1 on comm\n"
                    "  xs = mul(x, 2)\n"
                    "  xg = all-gather(xs, dim=0) over dp async h1 on comm",
                ),
            ),
        ),
        (
            "unknown handle",
            "buffer-in-flight handle-never-waited unknown-handle",
            (
                (
                    "  wait h3\n",
                    "  wait h33\n",
                ),
            ),
        ),
        (
            "w1 optimizer step forgotten",
            "weight-never-updated",
            (
                (
                    "  adam_step(w1!, grad(w1), m1!, v1!)\n",
                    "",
                ),
            ),
        ),
    ),
    *variants(
        "zero1",
        _ZERO1,
        (
            "reduce-scatter over tp",
            "wrong-collective-group",
            (
                (
                    "gs2 = reduce-scatter(grad(w2), dim=0) over dp",
                    "gs2 = reduce-scatter(grad(w2), dim=0) over tp",
                ),
            ),
        ),
        (
            "divided by 4 = world",
            "wrong-gradient-scale",
            (
                (
                    "  ga = div(gs, 2)\n  ga2 = div(gs2, 2)",
                    "  ga = div(gs, 4)\n  ga2 = div(gs2, 4)",
                ),
            ),
        ),
        (
            "one weight not divided",
            "wrong-gradient-scale",
            (
                (
                    "  ga2 = div(gs2, 2)\n",
                    "  ga2 = clone(gs2)\n",
                ),
            ),
        ),
        (
            "params not gathered after step: copy of own shard",
            "weight-never-updated",
            (
                (
                    "  w.new = all-gather(ws, dim=1) over dp\n  w2.new",
                    "  w2.new",
                ),
                (
                    "  copy_(w!, w.new)\n",
                    "",
                ),
            ),
        ),
        (
            "gathered along the wrong dim",
            "wrong-gather-dim",
            (
                (
                    "w.new = all-gather(ws, dim=1) over dp",
                    "w.new = all-gather(ws, dim=0) over dp",
                ),
            ),
        ),
        (
            "grad shard of other dim than state",
            "state-of-another-shard",
            (
                (
                    "gs = reduce-scatter(grad(w), dim=1) over dp",
                    "gs = reduce-scatter(grad(w), dim=0) over dp",
                ),
            ),
        ),
        (
            "chunk of local grads: no dp reduction",
            "missing-allreduce",
            (
                (
                    "gs = reduce-scatter(grad(w), dim=1) over dp",
                    "gs = chunk(grad(w), dim=1) over dp",
                ),
            ),
        ),
    ),
    *variants(
        "zero2acc",
        _ZERO2ACC,
        (
            "loss not divided by micro-batches",
            "wrong-gradient-scale",
            (
                (
                    "  ls = div(l, 2)\n",
                    "  ls = div(l, 1)\n",
                ),
            ),
        ),
        (
            "reducer before last backward",
            "reducer-before-last-backward update-before-final-gradient",
            (
                (
                    "  run bwd micro-batch 1\n  run step",
                    "  run step\n  run bwd micro-batch 1",
                ),
            ),
        ),
        (
            "divides by dp again",
            "wrong-gradient-scale",
            (
                (
                    "  ls = div(l, 2)\n",
                    "  ls = div(l, 4)\n",
                ),
            ),
        ),
        (
            "second micro-batch backward missing",
            "unbalanced-backward",
            (
                (
                    "  run bwd micro-batch 1\n",
                    "",
                ),
            ),
        ),
        (
            "backward of micro-batch 0 twice",
            "unbalanced-backward",
            (
                (
                    "  run bwd micro-batch 1\n",
                    "  run bwd micro-batch 0\n",
                ),
            ),
        ),
        (
            "reduce missing",
            "missing-gradient-reduction",
            (
                (
                    "  reduce-gradients w over dp by avg\n",
                    "",
                ),
            ),
        ),
    ),
    *variants(
        "ddp",
        _DDP,
        (
            "missing wait on bucket",
            "missing-wait",
            (
                (
                    "  wait b1\n",
                    "",
                ),
            ),
        ),
        (
            "bucket not reduced",
            "missing-gradient-reduction",
            (
                (
                    "  g1 = all-reduce(dw1) over dp async b1 on comm\n",
                    "  g1 = clone(dw1)\n",
                ),
                (
                    "  wait b1\n",
                    "",
                ),
            ),
        ),
        (
            "in-place scale while in flight (WAR/RAW)",
            "buffer-in-flight cross-stream-access",
            (
                (
                    "  dh = backward a (da)\n",
                    "  mul_(dw2!, 0.5)\n  dh = backward a (da)\n",
                ),
            ),
        ),
        (
            "max reduce",
            "wrong-reduce-op",
            (
                (
                    "g1 = all-reduce(dw1)",
                    "g1 = all-reduce max(dw1)",
                ),
            ),
        ),
        (
            "twice reduced",
            "doubled-allreduce",
            (
                (
                    "  wait b2\n  wait b1\n",
                    "  wait b2\n  wait b1\n  g1 = all-reduce(g1) over dp\n",
                ),
            ),
        ),
        (
            "half the group (ranks 0-3)",
            "wrong-collective-group",
            (
                (
                    "g1 = all-reduce(dw1) over dp async b1",
                    "g1 = all-reduce(dw1) over ranks 0-3 async b1",
                ),
            ),
        ),
        (
            "handle never waited at all",
            "handle-never-waited missing-gradient-reduction",
            (
                (
                    "  wait b2\n  wait b1\n",
                    "  wait b1\n",
                ),
                (
                    "  s2 = div(g2, 8)\n",
                    "  s2 = div(dw2, 8)\n",
                ),
            ),
        ),
    ),
    *variants(
        "hsdp",
        _HSDP,
        (
            "replica all-reduce missing",
            "missing-gradient-reduction",
            (
                (
                    "  gs = reduce-scatter(dwf, dim=0) over shard\n  grad(w) = all-reduce(gs) over rep",
                    "  grad(w) = reduce-scatter(dwf, dim=0) over shard",
                ),
            ),
        ),
        (
            "gather over the wrong axis",
            "gather-of-unsharded mismatched-shards",
            (
                (
                    "wf = all-gather(w, dim=0) over shard",
                    "wf = all-gather(w, dim=0) over rep",
                ),
            ),
        ),
        (
            "axes of the two reductions swapped",
            "gradient-sharded-unlike-weight",
            (
                (
                    "reduce-scatter(dwf, dim=0) over shard",
                    "reduce-scatter(dwf, dim=0) over rep",
                ),
                (
                    "all-reduce(gs) over rep",
                    "all-reduce(gs) over shard",
                ),
            ),
        ),
        (
            "ring order of gather wrong",
            "wrong-collective-group",
            (
                (
                    "wf = all-gather(w, dim=0) over shard",
                    "wf = all-gather(w, dim=0) over ranks 1,0",
                ),
            ),
        ),
    ),
    *variants(
        "clip",
        _CLIP,
        (
            "norm not reduced over tp",
            "missing-allreduce",
            (
                (
                    "  nwt = all-reduce(nw) over tp\n",
                    "  nwt = clone(nw)\n",
                ),
            ),
        ),
        (
            "replicated weight counted tp times",
            "missing-allreduce",
            (
                (
                    "  nwt = all-reduce(nw) over tp\n",
                    "",
                ),
                (
                    "  tot = add(nwt, nn)\n",
                    "  tot0 = add(nw, nn)\n  tot = all-reduce(tot0) over tp\n",
                ),
            ),
        ),
        (
            "norm of unreduced grads",
            "partial-through-nonlinear",
            (
                (
                    "sqw = pow(gw, 2)",
                    "sqw = pow(grad(w), 2)",
                ),
            ),
        ),
        (
            "norm all-reduced over dp",
            "wrong-collective-group",
            (
                (
                    "nwt = all-reduce(nw) over tp",
                    "nwt = all-reduce(nw) over dp",
                ),
            ),
        ),
        (
            "sqrt before reduce",
            "partial-through-nonlinear",
            (
                (
                    "  nwt = all-reduce(nw) over tp\n",
                    "  nr = sqrt(nw)\n  nwt = all-reduce(nr) over tp\n",
                ),
            ),
        ),
    ),
    *variants(
        "vocab",
        _VOCAB,
        (
            "embedding without all-reduce",
            "missing-allreduce",
            (
                (
                    "  e = all-reduce(ep) over tp\n",
                    "  e = clone(ep)\n",
                ),
            ),
        ),
        (
            "sum-exp not reduced",
            "partial-through-nonlinear",
            (
                (
                    "  sea = all-reduce(se) over tp\n",
                    "  sea = clone(se)\n",
                ),
            ),
        ),
        (
            "max reduced by sum",
            "wrong-reduce-op",
            (
                (
                    "mxa = all-reduce max(mx)",
                    "mxa = all-reduce(mx)",
                ),
            ),
        ),
        (
            "max not reduced",
            "partial-through-nonlinear",
            (
                (
                    "  mxa = all-reduce max(mx) over tp\n",
                    "  mxa = clone(mx)\n",
                ),
            ),
        ),
        (
            "sum-exp reduced over dp",
            "wrong-collective-group",
            (
                (
                    "sea = all-reduce(se) over tp",
                    "sea = all-reduce(se) over dp",
                ),
            ),
        ),
        (
            "log before reduce",
            "partial-through-nonlinear",
            (
                (
                    "  sea = all-reduce(se) over tp\n  lse = torch.log(sea)",
                    "  ls0 = torch.log(se)\n  lse = all-reduce(ls0) over tp",
                ),
            ),
        ),
    ),
    *variants(
        "ce",
        _CE,
        (
            "cross entropy of a vocabulary shard",
            "loss-over-shards",
            (
                (
                    "  zg = all-gather(z, dim=-1) over tp\n",
                    "  zg = clone(z)\n",
                ),
            ),
        ),
        (
            "softmax on the shard",
            "softmax-over-shards",
            (
                (
                    "  zg = all-gather(z, dim=-1) over tp\n",
                    "  zs = F.softmax(z, dim=-1)\n  zg = all-gather(zs, dim=-1) over tp\n",
                ),
            ),
        ),
        (
            "logits gathered along tokens",
            "wrong-gather-dim",
            (
                (
                    "zg = all-gather(z, dim=-1) over tp",
                    "zg = all-gather(z, dim=0) over tp",
                ),
            ),
        ),
        (
            "all-reduce of logits",
            "allreduce-of-shards",
            (
                (
                    "zg = all-gather(z, dim=-1) over tp",
                    "zg = all-reduce(z) over tp",
                ),
            ),
        ),
        (
            "replicated logits fed to vocab-parallel loss",
            "doubled-allreduce",
            (
                (
                    "  l = F.cross_entropy(zf, tgt)",
                    "  ex = exp(zf)\n  s = sum(ex, dim=-1)\n  sr = all-reduce(s) over tp\n  lg = log(sr)\n  l = mean(lg)",
                ),
            ),
        ),
    ),
    *variants(
        "pertoken",
        _PERTOKEN,
        (
            "cp missing from the gradient group",
            "missing-gradient-reduction",
            (
                (
                    "reduce-gradients w over dp,cp",
                    "reduce-gradients w over dp",
                ),
            ),
        ),
        (
            "gradients averaged although tokens divided",
            "wrong-gradient-scale",
            (
                (
                    "reduce-gradients w over dp,cp",
                    "reduce-gradients w over dp,cp by avg",
                ),
            ),
        ),
        (
            "denominator local",
            "partial-through-nonlinear",
            (
                (
                    "  dent = all-reduce(den) over dp,cp\n",
                    "  dent = clone(den)\n",
                ),
            ),
        ),
        (
            "denominator reduced over dp only",
            "partial-through-nonlinear",
            (
                (
                    "dent = all-reduce(den) over dp,cp",
                    "dent = all-reduce(den) over dp",
                ),
            ),
        ),
    ),
    *variants(
        "meanloss",
        _MEANLOSS,
        (
            "divides by dp without cp",
            "wrong-gradient-scale",
            (
                (
                    "divide 8",
                    "divide 4",
                ),
            ),
        ),
        (
            "loss multiplied by cp",
            "wrong-gradient-scale",
            (
                (
                    "  dy, _ = backward l (grad(l))",
                    "  lc = mul(l, 2)\n  dl = backward lc (grad(lc))\n  dy, _ = backward l (dl)",
                ),
                (
                    "loss l",
                    "loss lc",
                ),
            ),
        ),
        (
            "grad averaged and divided",
            "wrong-gradient-scale",
            (
                (
                    "over dp,cp divide 8",
                    "over dp,cp by avg divide 8",
                ),
            ),
        ),
    ),
    *variants(
        "root",
        _ROOT,
        (
            "reduced to root, used everywhere",
            "root-only-result-used",
            (
                (
                    "  m = broadcast(r, root=0) over dp",
                    "  m = mul(r, 0.125)",
                ),
            ),
        ),
        (
            "broadcast from another rank",
            "root-only-result-used",
            (
                (
                    "m = broadcast(r, root=0)",
                    "m = broadcast(r, root=3)",
                ),
            ),
        ),
    ),
    *variants(
        "streams",
        _STREAMS,
        (
            "no event back to main",
            "cross-stream-access",
            (
                (
                    "  await done on main\n",
                    "",
                ),
            ),
        ),
        (
            "no event to comm",
            "cross-stream-access",
            (
                (
                    "  await ready on comm\n",
                    "",
                ),
            ),
        ),
        (
            "event recorded before the producer",
            "cross-stream-access",
            (
                (
                    "  p = linear(x, w)\n  record ready on main\n",
                    "  record ready on main\n  p = linear(x, w)\n",
                ),
            ),
        ),
        (
            "buffer overwritten while comm reads",
            "cross-stream-access",
            (
                (
                    "  q = linear(x, v)\n",
                    "  zero_(p!)\n  q = linear(x, v)\n",
                ),
            ),
        ),
        (
            "two collectives on one group from two streams in opposite orders",
            "collective-order-mismatch",
            (
                (
                    "program\n",
                    "program tp=0\n",
                ),
                (
                    "  z = add(y, z0)",
                    "  z = add(y, z0)\n"
                    "program tp=1\n"
                    "  q = linear(x, v)\n"
                    "  z0 = all-reduce(q) over tp\n"
                    "  p = linear(x, w)\n"
                    "  y = all-reduce(p) over tp\n"
                    "  z = add(y, z0)",
                ),
            ),
        ),
    ),
)
