"""Pipelines, experts, context parallelism, quantisation and programs of single ranks written out, and mistakes in them."""

from __future__ import annotations

import re

from tests.scenarios.scenario import variants

_PP1F1B = """\
plan "1f1b, two stages, three micro-batches"
mesh pp=2
micro-batches 3
weight w0 f32[8,8]
weight w1 f32[8,8]
input x f32[4,8]
input t f32[4,8]
loss l
segment f0 forward stage 0 (x) -> (h, a)
  h = linear(x, w0)
  a = relu(h)
  send a to pp+1 tag 1
segment f1 forward stage 1 (t) -> (r, y, l, ls)
  recv r: f32[4,8] from pp-1 tag 1
  y = linear(r, w1)
  l = mse_loss(y, t)
  ls = div(l, 3)
segment b1 backward stage 1 mirror f1 (r, y, l, ls, t) -> ()
  dl = backward ls (grad(ls))
  dy, _ = backward l (dl)
  dr, grad(w1) = backward y (dy)
  send dr to pp-1 tag 2
segment b0 backward stage 0 mirror f0 (x, h, a) -> ()
  recv da: f32[4,8] from pp+1 tag 2
  dh = backward a (da)
  _, grad(w0) = backward h (dh)
segment s0 optimizer stage 0
  update w0
segment s1 optimizer stage 1
  update w1
program pp=0
  run f0 micro-batch 0
  run f0 micro-batch 1
  run b0 micro-batch 0
  run f0 micro-batch 2
  run b0 micro-batch 1
  run b0 micro-batch 2
  run s0
program pp=1
  run f1 micro-batch 0
  run b1 micro-batch 0
  run f1 micro-batch 1
  run b1 micro-batch 1
  run f1 micro-batch 2
  run b1 micro-batch 2
  run s1
"""

_PPFLAT = """\
mesh pp=2 dp=2
micro-batches 2
weight w0 f32[8,8]
weight w1 f32[8,8]
input x f32[8,8] dp:S(0)
output y f32[8,8] dp:S(0)
program pp=0
  micro-batch 0
  h0 = linear(x, w0)
  send h0 to pp+1
  micro-batch 1
  h1 = linear(x, w0)
  send h1 to pp+1
  micro-batch 0
  recv d0: f32[4,8] from pp+1
  _, grad(w0) = backward h0 (d0)
  micro-batch 1
  recv d1: f32[4,8] from pp+1
  _, grad(w0) = backward h1 (d1)
  reduce-gradients w0 over dp
  update w0
program pp=1
  micro-batch 0
  recv r0: f32[4,8] from pp-1
  y = linear(r0, w1)
  e0, grad(w1) = backward y (grad(y))
  send e0 to pp-1
  micro-batch 1
  recv r1: f32[4,8] from pp-1
  y = linear(r1, w1)
  e1, grad(w1) = backward y (grad(y))
  send e1 to pp-1
  reduce-gradients w1 over dp
  update w1
"""

_TIED = """\
plan "tied embedding, first and last stage"
mesh pp=2
weight wte f32[16,8]
weight head f32[16,8] of wte
input ids i64[4]
output z f32[4,16]
communicator embd over ranks 0-1
program pp=0
  h = embedding(ids, wte)
  send h to pp+1
  recv dh: f32[4,8] from pp+1
  grad(wte) = backward h (dh)
  gt = all-reduce(grad(wte)) over embd
  sgd(wte!, gt)
program pp=1
  recv r: f32[4,8] from pp-1
  z = linear(r, head)
  dr, grad(head) = backward z (grad(z))
  send dr to pp-1
  gh = all-reduce(grad(head)) over embd
  sgd(head!, gh)
"""

_MOE = """\
plan "experts"
mesh dp=2 ep=2
weight router bf16[4,8]
weight e1 bf16[4,8,16] ep:S(0)
weight e2 bf16[4,16,8] ep:S(0)
input x bf16[16,8] dp:S(0) ep:S(0)
output y bf16[16,8] dp:S(0) ep:S(0)
program
  g = linear(x, router)
  pr = softmax(g, dim=-1)
  disp: bf16[4,3,8] = moe_dispatch(x, pr)
  din = all-to-all(disp, dim=0, concat-dim=1) over ep
  u = torch.bmm(din, e1)
  a = silu(u)
  v = torch.bmm(a, e2)
  back = all-to-all(v, dim=1, concat-dim=0) over ep
  y: bf16[4,8] = moe_combine(back, pr)
  dback, dpr2 = backward y (grad(y))
  dv = all-to-all(dback, dim=0, concat-dim=1) over ep
  da, grad(e2) = backward v (dv)
  du = backward a (da)
  ddin, grad(e1) = backward u (du)
  ddisp = all-to-all(ddin, dim=1, concat-dim=0) over ep
  dx1, dpr1 = backward disp (ddisp)
  dpr = add(dpr1, dpr2)
  dg = backward pr (dpr)
  dx2, grad(router) = backward g (dg)
  dx = add(dx1, dx2)
  reduce-gradients router over dp,ep
  reduce-gradients e1, e2 over dp
  update router, e1, e2
"""

_RING2 = """\
mesh cp=2
weight wq f32[8,8]
weight wk f32[8,8]
weight wv f32[8,8]
input x f32[1,2,8,8] cp:S(2)
output out f32[1,2,8,8] cp:S(2)
program
  q = linear(x, wq)
  k0 = linear(x, wk)
  v0 = linear(x, wv)
  o0, l0 = flash_attn_forward(q, k0, v0)
  send k0 to cp+1 ring batch b1
  recv k1: f32[1,2,4,8] from cp-1 ring batch b1
  send v0 to cp+1 ring batch b1
  recv v1: f32[1,2,4,8] from cp-1 ring batch b1
  p1, m1 = flash_attn_forward(q, k1, v1)
  o1, l1 = merge_by_log_sum_exp(o0, l0, p1, m1)
  out = torch.clone(o1)
"""

_RING4 = """\
mesh cp=4
weight wq f32[8,8]
weight wk f32[8,8]
weight wv f32[8,8]
input x f32[1,2,16,8] cp:S(2)
output out f32[1,2,16,8] cp:S(2)
program
  q = linear(x, wq)
  k0 = linear(x, wk)
  v0 = linear(x, wv)
  o0, l0 = flash_attn_forward(q, k0, v0)
  send k0 to cp+1 ring batch b1
  recv k1: f32[1,2,4,8] from cp-1 ring batch b1
  send v0 to cp+1 ring batch b1
  recv v1: f32[1,2,4,8] from cp-1 ring batch b1
  p1, m1 = flash_attn_forward(q, k1, v1)
  o1, l1 = merge_by_log_sum_exp(o0, l0, p1, m1)
  send k1 to cp+1 ring batch b2
  recv k2: f32[1,2,4,8] from cp-1 ring batch b2
  send v1 to cp+1 ring batch b2
  recv v2: f32[1,2,4,8] from cp-1 ring batch b2
  p2, m2 = flash_attn_forward(q, k2, v2)
  o2, l2 = merge_by_log_sum_exp(o1, l1, p2, m2)
  send k2 to cp+1 ring batch b3
  recv k3: f32[1,2,4,8] from cp-1 ring batch b3
  send v2 to cp+1 ring batch b3
  recv v3: f32[1,2,4,8] from cp-1 ring batch b3
  p3, m3 = flash_attn_forward(q, k3, v3)
  o3, l3 = merge_by_log_sum_exp(o2, l2, p3, m3)
  out = torch.clone(o3)
"""

_RING_STEP = """\
  send k0 to cp+1 ring batch b1
  recv k1: f32[2,4,8] from cp-1 ring batch b1
  send v0 to cp+1 ring batch c1
  recv v1: f32[2,4,8] from cp-1 ring batch c1
  kt1 = transpose(k1, 1, 2)
  s1 = matmul(q, kt1)
  mx1 = amax(s1, dim=-1, keepdim=True)
  sh1 = sub(s1, mx1)
  e1 = exp(sh1)
  den1 = sum(e1, dim=-1, keepdim=True)
  num1 = matmul(e1, v1)
  M1 = maximum(M0, mx1)
  ca1 = sub(M0, M1)
  cb1 = sub(mx1, M1)
  fa1 = exp(ca1)
  fb1 = exp(cb1)
  na1 = mul(N0, fa1)
  nb1 = mul(num1, fb1)
  N1 = add(na1, nb1)
  da1 = mul(D0, fa1)
  db1 = mul(den1, fb1)
  D1 = add(da1, db1)
"""


def _bare(ranks: int) -> str:
    """Ring attention over `ranks` with the log-sum-exp written out, step by step."""
    steps = [
        re.sub(r"(?<=[a-zA-Z])0\b", str(step - 1), re.sub(r"(?<=[a-zA-Z])1\b", str(step), _RING_STEP))
        for step in range(1, ranks)
    ]
    return f"""\
mesh cp={ranks}
input q f32[2,{4 * ranks},8] cp:S(1)
input k0 f32[2,{4 * ranks},8] cp:S(1)
input v0 f32[2,{4 * ranks},8] cp:S(1)
output out f32[2,{4 * ranks},8] cp:S(1)
program
  kt0 = transpose(k0, 1, 2)
  s0 = matmul(q, kt0)
  mx0 = amax(s0, dim=-1, keepdim=True)
  sh0 = sub(s0, mx0)
  e0 = exp(sh0)
  den0 = sum(e0, dim=-1, keepdim=True)
  num0 = matmul(e0, v0)
  M0 = clone(mx0)
  N0 = clone(num0)
  D0 = clone(den0)
{"".join(steps)}  out = div(N{ranks - 1}, D{ranks - 1})
"""


_BARESM = """\
mesh cp=2
input q f32[2,8,8] cp:S(1)
input k f32[2,8,8] cp:S(1)
input v f32[2,8,8] cp:S(1)
output o f32[2,8,8] cp:S(1)
program
  kg = all-gather(k, dim=1) over cp
  vg = all-gather(v, dim=1) over cp
  kt = transpose(kg, 1, 2)
  s = matmul(q, kt)
  p = softmax(s, dim=-1)
  o = matmul(p, vg)
"""

_ULYSSES = """\
mesh sp=2
weight wqkv f32[24,8]
weight wo f32[8,8]
input x f32[2,8,8] sp:S(1)
output y f32[2,8,8] sp:S(1)
program
  z = linear(x, wqkv)
  q, k, v = torch.chunk(z, 3, dim=-1)
  q4 = view(q, [2,4,4,2])
  k4 = view(k, [2,4,4,2])
  v4 = view(v, [2,4,4,2])
  qa = all-to-all(q4, dim=2, concat-dim=1) over sp
  ka = all-to-all(k4, dim=2, concat-dim=1) over sp
  va = all-to-all(v4, dim=2, concat-dim=1) over sp
  qt = transpose(qa, 1, 2)
  kt = transpose(ka, 1, 2)
  vt = transpose(va, 1, 2)
  o = scaled_dot_product_attention(qt, kt, vt, is_causal=True)
  ot = transpose(o, 1, 2)
  oa = all-to-all(ot, dim=1, concat-dim=2) over sp
  om = reshape(oa, [2,4,8])
  y = linear(om, wo)
"""

_CPFLASH = """\
mesh dp=2 cp=4
weight wq f32[8,8]
weight wk f32[8,8]
weight wv f32[8,8]
input x f32[4,2,16,8] dp:S(0) cp:S(2)
output o f32[4,2,16,8] dp:S(0) cp:S(2)
program
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  kf = all-gather(k, dim=2) over cp
  vf = all-gather(v, dim=2) over cp
  o = flash_attention(q, kf, vf, causal=False)
  dq, dkf, dvf = backward o (grad(o))
  dk = reduce-scatter(dkf, dim=2) over cp
  dv = reduce-scatter(dvf, dim=2) over cp
  _, grad(wv) = backward v (dv)
  _, grad(wk) = backward k (dk)
  _, grad(wq) = backward q (dq)
  reduce-gradients wq, wk, wv over dp,cp
  update wq, wk, wv
"""

_FP8 = """\
mesh tp=2
weight w bf16[8,8] tp:S(1)
input x bf16[4,8] tp:S(1)
output y bf16[4,8]
program
  ax = amax(x)
  axr = all-reduce max(ax) over tp
  sx = div(448.0, axr)
  xq: f8e4m3[4,4] = quantize(x, sx)
  aw = amax(w)
  awr = all-reduce max(aw) over tp
  sw = div(448.0, awr)
  wq: f8e4m3[8,4] = quantize(w, sw)
  p: bf16[4,8] tp:P = fp8_gemm(xq, wq, sx, sw)
  y = all-reduce(p) over tp
"""

_PREC = """\
mesh dp=4
weight w bf16[8,8]
input x bf16[8,8] dp:S(0)
output y bf16[8,8] dp:S(0)
program
  y = linear(x, w)
  _, dw = backward y (grad(y))
  d32 = to(dw, float32)
  g32 = all-reduce(d32, dtype="f32") over dp
  g = to(g32, bfloat16)
  sgd(w!, g)
"""

_MATES = """\
mesh tp=2
input x f32[4,8]
output y
program tp=0
  a = mul(x, 2)
  y = all-reduce max(a) over tp
program tp=1
  a = mul(x, 3)
  y = all-reduce max(a) over tp
"""

_BRANCH = """\
mesh dp=2 tp=2
input a f32[4] dp:P tp:P
output b f32[4]
communicator D over dp
communicator T over tp
program tp=0
  t = all-reduce(a) over T
  b = all-reduce(t) over D
program tp=1
  t = all-reduce(a) over T
  b = all-reduce(t) over D
"""

_UNK = """\
mesh tp=2
weight w1 f32[16,8] tp:S(0)
weight w2 f32[8,16] tp:S(1)
weight cosw f32[4]
input x f32[4,8]
output y f32[4,8]
program
  cosv = my_rotary_cache(4)
  h = linear(x, w1)
  hook_point(h)
  a = gelu(h)
  nvtx_range_push("mlp")
  p = linear(a, w2)
  y = all-reduce(p) over tp
  nvtx_range_pop()
  dbg = log_stats(y)
"""

_NOSTEP = """\
mesh dp=2 tp=2
weight w f32[8,8]
input x f32[4,8] dp:S(0)
output y f32[4,8] dp:S(0)
program
  y = linear(x, w)
  _, grad(w) = backward y (grad(y))
  reduce-gradients w over dp
"""

SCENARIOS = (
    *variants(
        "pp1f1b",
        _PP1F1B,
        (
            "micro-batches of the pair crossed",
            "mismatched-message",
            (
                (
                    "  run f1 micro-batch 0\n  run b1 micro-batch 0\n  run f1 micro-batch 1\n  run b1 micro-batch 1\n",
                    "  run f1 micro-batch 1\n  run b1 micro-batch 1\n  run f1 micro-batch 0\n  run b1 micro-batch 0\n",
                ),
            ),
        ),
        (
            "last backward missing on stage 0",
            "unbalanced-backward unmatched-send",
            (
                (
                    "  run b0 micro-batch 1\n  run b0 micro-batch 2\n",
                    "  run b0 micro-batch 1\n",
                ),
            ),
        ),
        (
            "deadlock: backward first",
            "send-recv-deadlock use-before-definition",
            (
                (
                    "  run f0 micro-batch 0\n  run f0 micro-batch 1\n  run b0 micro-batch 0\n",
                    "  run b0 micro-batch 0\n  run f0 micro-batch 0\n  run f0 micro-batch 1\n",
                ),
            ),
        ),
        (
            "step before last backward",
            "update-before-final-gradient",
            (
                (
                    "  run b0 micro-batch 2\n  run s0",
                    "  run s0\n  run b0 micro-batch 2",
                ),
            ),
        ),
        (
            "scaled on both stages by 1/m",
            "wrong-gradient-scale",
            (
                (
                    "  dh = backward a (da)\n  _, grad(w0)",
                    "  das = div(da, 3)\n  dh = backward a (das)\n  _, grad(w0)",
                ),
            ),
        ),
        (
            "dtype of pair differs",
            "mismatched-message",
            (
                (
                    "recv r: f32[4,8] from",
                    "recv r: bf16[4,8] from",
                ),
            ),
        ),
        (
            "shape of pair differs",
            "mismatched-message",
            (
                (
                    "recv da: f32[4,8] from",
                    "recv da: f32[2,8] from",
                ),
            ),
        ),
        (
            "tag mismatch",
            "unmatched-receive unmatched-send",
            (
                (
                    "recv r: f32[4,8] from pp-1 tag 1",
                    "recv r: f32[4,8] from pp-1 tag 3",
                ),
            ),
        ),
        (
            "backward before its forward",
            "send-recv-deadlock use-before-definition",
            (
                (
                    "  run f0 micro-batch 2\n  run b0 micro-batch 1\n  run b0 micro-batch 2\n",
                    "  run b0 micro-batch 1\n  run b0 micro-batch 2\n  run f0 micro-batch 2\n",
                ),
            ),
        ),
    ),
    *variants(
        "ppflat",
        _PPFLAT,
        (
            "send/send head to head",
            "mismatched-message unmatched-send",
            (
                (
                    "  recv d0: f32[4,8] from pp+1\n  _, grad(w0) = backward h0 (d0)\n",
                    "",
                ),
            ),
        ),
        (
            "sends to itself row (wrong destination)",
            "unmatched-receive unmatched-send",
            (
                (
                    "send h1 to pp+1",
                    "send h1 to dp+1",
                ),
            ),
        ),
        (
            "use before recv",
            "use-before-definition",
            (
                (
                    "  recv r1: f32[4,8] from pp-1\n  y = linear(r1, w1)\n",
                    "  y = linear(r1, w1)\n  recv r1: f32[4,8] from pp-1\n",
                ),
            ),
        ),
        (
            "stage 1 forgets dp reduction",
            "missing-gradient-reduction",
            (
                (
                    "  reduce-gradients w1 over dp\n",
                    "",
                ),
            ),
        ),
        (
            "extra send never received",
            "unmatched-send",
            (
                (
                    "  reduce-gradients w0 over dp\n",
                    "  send h1 to pp+1\n  reduce-gradients w0 over dp\n",
                ),
            ),
        ),
        (
            "stage 0 step never",
            "weight-never-updated",
            (
                (
                    "  update w0\n",
                    "",
                ),
            ),
        ),
    ),
    *variants(
        "tied",
        _TIED,
        (
            "embedding gradients not reduced",
            "tied-gradient-not-reduced",
            (
                (
                    "  gt = all-reduce(grad(wte)) over embd\n  sgd(wte!, gt)",
                    "  sgd(wte!, grad(wte))",
                ),
                (
                    "  gh = all-reduce(grad(head)) over embd\n  sgd(head!, gh)",
                    "  sgd(head!, grad(head))",
                ),
            ),
        ),
        (
            "only the last stage reduces",
            "missing-collective-member",
            (
                (
                    "  gt = all-reduce(grad(wte)) over embd\n  sgd(wte!, gt)",
                    "  sgd(wte!, grad(wte))",
                ),
            ),
        ),
        (
            "reduced before backward of embedding",
            "use-before-definition",
            (
                (
                    "  recv dh: f32[4,8] from pp+1\n"
                    "  grad(wte) = backward h (dh)\n"
                    "  gt = all-reduce(grad(wte)) over embd\n"
                    "  sgd(wte!, gt)",
                    "  gt = all-reduce(grad(wte)) over embd\n"
                    "  recv dh: f32[4,8] from pp+1\n"
                    "  grad(wte) = backward h (dh)\n"
                    "  sgd(wte!, gt)",
                ),
            ),
        ),
        (
            "only one copy updated",
            "weight-never-updated",
            (
                (
                    "  sgd(head!, gh)\n",
                    "",
                ),
            ),
        ),
    ),
    *variants(
        "moe",
        _MOE,
        (
            "experts reduced over ep",
            "allreduce-of-shards",
            (
                (
                    "reduce-gradients e1, e2 over dp\n",
                    "reduce-gradients e1, e2 over dp,ep\n",
                ),
            ),
        ),
        (
            "router reduced over dp only",
            "missing-gradient-reduction",
            (
                (
                    "reduce-gradients router over dp,ep",
                    "reduce-gradients router over dp",
                ),
            ),
        ),
        (
            "combine all-to-all missing",
            "expert-exchange-not-undone",
            (
                (
                    "  back = all-to-all(v, dim=1, concat-dim=0) over ep\n",
                    "  back = torch.reshape(v, [4,3,8])\n",
                ),
            ),
        ),
        (
            "dispatch over dp",
            "expert-exchange-not-undone",
            (
                (
                    "din = all-to-all(disp, dim=0, concat-dim=1) over ep",
                    "din = all-to-all(disp, dim=0, concat-dim=1) over dp",
                ),
            ),
        ),
        (
            "combine over dp",
            "expert-exchange-not-undone",
            (
                (
                    "back = all-to-all(v, dim=1, concat-dim=0) over ep",
                    "back = all-to-all(v, dim=1, concat-dim=0) over dp",
                ),
            ),
        ),
        (
            "experts not reduced over edp",
            "missing-gradient-reduction",
            (
                (
                    "  reduce-gradients e1, e2 over dp\n",
                    "",
                ),
            ),
        ),
        (
            "e2 sharded over dp instead",
            "allreduce-of-shards missing-gradient-reduction",
            (
                (
                    "weight e2 bf16[4,16,8] ep:S(0)",
                    "weight e2 bf16[4,16,8] dp:S(0)",
                ),
            ),
        ),
    ),
    *variants(
        "ring2",
        _RING2,
        (
            "V not rotated at all",
            "ring-attention-values-not-rotated",
            (
                (
                    "  send v0 to cp+1 ring batch b1\n  recv v1: f32[1,2,4,8] from cp-1 ring batch b1\n",
                    "",
                ),
                (
                    "q, k1, v1",
                    "q, k1, v0",
                ),
            ),
        ),
        (
            "added instead of merged",
            "ring-attention-parts-summed",
            (
                (
                    "  o1, l1 = merge_by_log_sum_exp(o0, l0, p1, m1)",
                    "  o1 = add(o0, p1)",
                ),
            ),
        ),
        (
            "send without ring: last rank receives nothing",
            "ring-attention-values-not-rotated unmatched-receive",
            (
                (
                    "send k0 to cp+1 ring",
                    "send k0 to cp+1",
                ),
            ),
        ),
    ),
    *variants(
        "ring4",
        _RING4,
        (
            "last ring step missing",
            "ring-attention-step-missing",
            (
                (
                    "  send k2 to cp+1 ring batch b3\n"
                    "  recv k3: f32[1,2,4,8] from cp-1 ring batch b3\n"
                    "  send v2 to cp+1 ring batch b3\n"
                    "  recv v3: f32[1,2,4,8] from cp-1 ring batch b3\n"
                    "  p3, m3 = flash_attn_forward(q, k3, v3)\n"
                    "  o3, l3 = merge_by_log_sum_exp(o2, l2, p3, m3)\n",
                    "",
                ),
                (
                    "clone(o3)",
                    "clone(o2)",
                ),
            ),
        ),
        (
            "V not rotated",
            "ring-attention-values-not-rotated",
            (
                (
                    "  p2, m2 = flash_attn_forward(q, k2, v2)",
                    "  p2, m2 = flash_attn_forward(q, k2, v1)",
                ),
            ),
        ),
        (
            "sends the original block every time",
            "ring-attention-step-missing",
            (
                (
                    "send k1 to",
                    "send k0 to",
                ),
                (
                    "send v1 to",
                    "send v0 to",
                ),
            ),
        ),
        (
            "both directions: k forward v backward",
            "ring-attention-values-not-rotated",
            (
                (
                    "send v2 to cp+1 ring",
                    "send v2 to cp-1 ring",
                ),
                (
                    "recv v3: f32[1,2,4,8] from cp-1",
                    "recv v3: f32[1,2,4,8] from cp+1",
                ),
            ),
        ),
    ),
    *variants(
        "bare2",
        _bare(2),
        (
            "bare ring: V not rotated",
            "ring-attention-values-not-rotated",
            (
                (
                    "num1 = matmul(e1, v1)",
                    "num1 = matmul(e1, v0)",
                ),
            ),
        ),
    ),
    *variants(
        "bare3",
        _bare(3),
        (
            "bare ring: last step missing",
            "ring-attention-step-missing",
            (
                (
                    "  send k1 to cp+1 ring batch b2\n"
                    "  recv k2: f32[2,4,8] from cp-1 ring batch b2\n"
                    "  send v1 to cp+1 ring batch c2\n"
                    "  recv v2: f32[2,4,8] from cp-1 ring batch c2\n"
                    "  kt2 = transpose(k2, 1, 2)\n"
                    "  s2 = matmul(q, kt2)\n"
                    "  mx2 = amax(s2, dim=-1, keepdim=True)\n"
                    "  sh2 = sub(s2, mx2)\n"
                    "  e2 = exp(sh2)\n"
                    "  den2 = sum(e2, dim=-1, keepdim=True)\n"
                    "  num2 = matmul(e2, v2)\n"
                    "  M2 = maximum(M1, mx2)\n"
                    "  ca2 = sub(M1, M2)\n"
                    "  cb2 = sub(mx2, M2)\n"
                    "  fa2 = exp(ca2)\n"
                    "  fb2 = exp(cb2)\n"
                    "  na2 = mul(N1, fa2)\n"
                    "  nb2 = mul(num2, fb2)\n"
                    "  N2 = add(na2, nb2)\n"
                    "  da2 = mul(D1, fa2)\n"
                    "  db2 = mul(den2, fb2)\n"
                    "  D2 = add(da2, db2)\n",
                    "",
                ),
                (
                    "div(N2, D2)",
                    "div(N1, D1)",
                ),
            ),
        ),
    ),
    *variants(
        "baresm",
        _BARESM,
        (
            "local keys in bare attention",
            "mismatched-shards",
            (
                (
                    "  kg = all-gather(k, dim=1) over cp\n  vg = all-gather(v, dim=1) over cp\n",
                    "  kg = clone(k)\n  vg = clone(v)\n",
                ),
            ),
        ),
        (
            "bare ring step softmaxes summed",
            "ring-attention-parts-summed",
            (
                (
                    "  kg = all-gather(k, dim=1) over cp\n"
                    "  vg = all-gather(v, dim=1) over cp\n"
                    "  kt = transpose(kg, 1, 2)\n"
                    "  s = matmul(q, kt)\n"
                    "  p = softmax(s, dim=-1)\n"
                    "  o = matmul(p, vg)",
                    "  kt = transpose(k, 1, 2)\n"
                    "  s = matmul(q, kt)\n"
                    "  p = softmax(s, dim=-1)\n"
                    "  o0 = matmul(p, v)\n"
                    "  send k to cp+1 ring batch b\n"
                    "  recv k1: f32[2,4,8] from cp-1 ring batch b\n"
                    "  send v to cp+1 ring batch c\n"
                    "  recv v1: f32[2,4,8] from cp-1 ring batch c\n"
                    "  kt1 = transpose(k1, 1, 2)\n"
                    "  s1 = matmul(q, kt1)\n"
                    "  p1 = softmax(s1, dim=-1)\n"
                    "  o1 = matmul(p1, v1)\n"
                    "  o = add(o0, o1)",
                ),
            ),
        ),
        (
            "gathered on the head dim",
            "wrong-gather-dim",
            (
                (
                    "kg = all-gather(k, dim=1) over cp",
                    "kg = all-gather(k, dim=2) over cp",
                ),
                (
                    "vg = all-gather(v, dim=1) over cp",
                    "vg = all-gather(v, dim=2) over cp",
                ),
                (
                    "  kt = transpose(kg, 1, 2)",
                    "  kc = narrow(kg, 2, 0, 8)\n  kt = transpose(kc, 1, 2)",
                ),
            ),
        ),
        (
            "V not gathered: contraction one side sharded",
            "mismatched-shards",
            (
                (
                    "  vg = all-gather(v, dim=1) over cp\n",
                    "  vg = cat([v, v], dim=1)\n",
                ),
            ),
        ),
    ),
    *variants(
        "ulysses",
        _ULYSSES,
        (
            "V not exchanged",
            "mismatched-shards",
            (
                (
                    "  va = all-to-all(v4, dim=2, concat-dim=1) over sp\n  qt",
                    "  va = clone(v4)\n  qt",
                ),
            ),
        ),
        (
            "all-to-all dims swapped",
            "mismatched-shards",
            (
                (
                    "ka = all-to-all(k4, dim=2, concat-dim=1)",
                    "ka = all-to-all(k4, dim=0, concat-dim=1)",
                ),
            ),
        ),
        (
            "no exchange: local attention",
            "attention-over-local-keys",
            (
                (
                    "  qa = all-to-all(q4, dim=2, concat-dim=1) over sp\n"
                    "  ka = all-to-all(k4, dim=2, concat-dim=1) over sp\n"
                    "  va = all-to-all(v4, dim=2, concat-dim=1) over sp\n"
                    "  qt",
                    "  qa = clone(q4)\n  ka = clone(k4)\n  va = clone(v4)\n  qt",
                ),
                (
                    "  oa = all-to-all(ot, dim=1, concat-dim=2) over sp\n",
                    "  oa = clone(ot)\n",
                ),
            ),
        ),
    ),
    *variants(
        "cpflash",
        _CPFLASH,
        (
            "local keys",
            "attention-over-local-keys",
            (
                (
                    "  kf = all-gather(k, dim=2) over cp\n  vf = all-gather(v, dim=2) over cp\n",
                    "  kf = clone(k)\n  vf = clone(v)\n",
                ),
                (
                    "  dk = reduce-scatter(dkf, dim=2) over cp\n  dv = reduce-scatter(dvf, dim=2) over cp\n",
                    "  dk = clone(dkf)\n  dv = clone(dvf)\n",
                ),
            ),
        ),
        (
            "dK chunked, not reduce-scattered",
            "missing-allreduce",
            (
                (
                    "dk = reduce-scatter(dkf, dim=2) over cp",
                    "dk = chunk(dkf, dim=2) over cp",
                ),
            ),
        ),
        (
            "gradients over dp without cp",
            "missing-gradient-reduction",
            (
                (
                    "wv over dp,cp",
                    "wv over dp",
                ),
            ),
        ),
        (
            "gathered over dp",
            "allreduce-of-shards attention-over-local-keys wrong-gather-dim",
            (
                (
                    "kf = all-gather(k, dim=2) over cp",
                    "kf = all-gather(k, dim=2) over dp",
                ),
                (
                    "vf = all-gather(v, dim=2) over cp",
                    "vf = all-gather(v, dim=2) over dp",
                ),
            ),
        ),
    ),
    *variants(
        "fp8",
        _FP8,
        (
            "amax not reduced",
            "partial-through-nonlinear",
            (
                (
                    "  axr = all-reduce max(ax) over tp\n",
                    "  axr = clone(ax)\n",
                ),
            ),
        ),
        (
            "amax summed",
            "wrong-reduce-op",
            (
                (
                    "axr = all-reduce max(ax)",
                    "axr = all-reduce(ax)",
                ),
            ),
        ),
        (
            "quantised before the scale is computed",
            "use-before-definition",
            (
                (
                    "  sx = div(448.0, axr)\n  xq: f8e4m3[4,4] = quantize(x, sx)",
                    "  xq: f8e4m3[4,4] = quantize(x, sx)\n  sx = div(448.0, axr)",
                ),
            ),
        ),
    ),
    *variants(
        "prec",
        _PREC,
        (
            "declared fp32, reduced in bf16",
            "reduction-in-lower-precision",
            (
                (
                    '  d32 = to(dw, float32)\n  g32 = all-reduce(d32, dtype="f32") over dp',
                    "  g32: f32[8,8] = all-reduce(dw) over dp",
                ),
            ),
        ),
    ),
    *variants(
        "mates",
        _MATES,
        (
            "one rank issues another kind",
            "collective-order-mismatch",
            (
                (
                    "  a = mul(x, 3)\n  y = all-reduce max(a) over tp",
                    "  a = mul(x, 3)\n  y0 = reduce-scatter max(a, dim=0) over tp\n  y = clone(y0)",
                ),
            ),
        ),
        (
            "one rank skips",
            "missing-collective-member",
            (
                (
                    "  a = mul(x, 3)\n  y = all-reduce max(a) over tp",
                    "  y = mul(x, 3)",
                ),
            ),
        ),
        (
            "group disagreement",
            "missing-collective-member",
            (
                (
                    "  a = mul(x, 3)\n  y = all-reduce max(a) over tp",
                    "  a = mul(x, 3)\n  y = all-reduce max(a) over self",
                ),
            ),
        ),
    ),
    *variants(
        "branch",
        _BRANCH,
    ),
    *variants(
        "unk",
        _UNK,
        (
            "missing all-reduce amid unknown ops",
            "missing-allreduce",
            (
                (
                    "  p = linear(a, w2)\n  y = all-reduce(p) over tp",
                    "  y = linear(a, w2)",
                ),
            ),
        ),
        (
            "fused unknown kernel on partial then relu",
            "partial-through-nonlinear",
            (
                (
                    "  y = all-reduce(p) over tp",
                    "  pp = relu(p)\n  y = all-reduce(pp) over tp",
                ),
            ),
        ),
    ),
    *variants(
        "nostep",
        _NOSTEP,
        (
            "missing reduction, nothing updates",
            "missing-gradient-reduction",
            (
                (
                    "  reduce-gradients w over dp\n",
                    "",
                ),
            ),
        ),
    ),
)
