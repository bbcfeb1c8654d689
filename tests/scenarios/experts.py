"""Experts, their exchanges and gradients, and collectives whose mates bring values of different types."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

_UNEQUAL = """
mesh ep=2
weight w f32[4,8,8] ep:S(0)
+ input t f32[8,8] local
- input t f32[8,8] local
program ep=0
  d: f32[7,8] = all-to-all(t, dim=0, concat-dim=0, splits=[5,3]) over ep
  e: f32[7,8] = expert_mlp(d, w)
  c: f32[8,8] = all-to-all(e, dim=0, concat-dim=0, splits=[5,2]) over ep
program ep=1
+ d: f32[9,8] = all-to-all(t, dim=0, concat-dim=0, splits=[2,6]) over ep
+ e: f32[9,8] = expert_mlp(d, w)
- d: f32[8,8] = all-to-all(t, dim=0, concat-dim=0, splits=[2,6]) over ep
- e: f32[8,8] = expert_mlp(d, w)
+ c: f32[8,8] = all-to-all(e, dim=0, concat-dim=0, splits=[3,6]) over ep
- c: f32[8,8] = all-to-all(e, dim=0, concat-dim=0, splits=[3,5]) over ep
"""

SCENARIOS = (
    *pair("tokens shared out unequally, and a rank that takes fewer than are sent to it", "wrong-all-to-all-splits", _UNEQUAL),
    *pair(
        "slices of tokens that are taken for slices of experts behind an exchange",
        "mismatched-shards",
        """
mesh ep=2
input x f32[2,4,8] ep:S(0)
input i i64[2,4,1] ep:S(0)
weight w f32[4,8,16] ep:S(0)
program
  d: f32[1,4,4,8] = moe_dispatch(x, i, experts=4, capacity=4)
  a: f32[2,2,4,8] = all-to-all(d, dim=1, concat-dim=0) over ep
+ b = transpose(a, 0, 1)
+ c: f32[2,8,8] = reshape(b, [2,8,8])
- c: f32[2,8,8] = reshape(a, [2,8,8])
  h = bmm(c, w)
""",
    ),
    *correct(
        "every expert of a rank gets all tokens",
        """
mesh dp=2 ep=2
weight w f32[4,8,8] ep:S(0)
input x f32[8,8] dp:S(0)
program
  u = unsqueeze(x, 0)
  e = expand(u, [2,4,8])
  y = bmm(e, w)
""",
    ),
    *pair(
        "one mate of a gradient all-reduce casts",
        "mismatched-collective",
        """
mesh dp=2
weight w f32[8,8]
input x f32[8,8] dp:S(0)
input dy f32[8,8] dp:S(0)
program dp=0
  y = linear(x, w)
  _, d = backward y (dy)
  g: bf16[8,8] = to(d, bfloat16)
  grad(w): bf16[8,8] = all-reduce(g) over dp
program dp=1
  y = linear(x, w)
  _, d = backward y (dy)
- g: f32[8,8] = to(d, float32)
- grad(w): f32[8,8] = all-reduce(g) over dp
+ g: bf16[8,8] = to(d, bfloat16)
+ grad(w): bf16[8,8] = all-reduce(g) over dp
""",
    ),
    *pair(
        "unequal pieces in a gather that takes equal ones",
        "mismatched-collective",
        """
mesh tp=2
input x f32[8,8] tp:S(0) local [5,8]
program tp=0
  h = gelu(x)
+ y: f32[8,8] = all-gather(h, dim=0, splits=[5,3]) over tp
- y: f32[8,8] = all-gather(h, dim=0) over tp
program tp=1
  input x f32[8,8] tp:S(0) local [3,8]
  h = gelu(x)
+ y: f32[8,8] = all-gather(h, dim=0, splits=[5,3]) over tp
- y: f32[8,8] = all-gather(h, dim=0) over tp
""",
    ),
    *pair(
        "gather whose splits are those of other pieces",
        "mismatched-collective",
        """
mesh tp=2
input x f32[8,8] tp:S(0) local [5,8]
program tp=0
  y: f32[8,8] = all-gather(x, dim=0, splits=[5,3]) over tp
program tp=1
+ input x f32[8,8] tp:S(0) local [3,8]
- input x f32[8,8] tp:S(0) local [4,8]
  y: f32[8,8] = all-gather(x, dim=0, splits=[5,3]) over tp
""",
    ),
    *pair(
        "all-reduce of values of other shapes on one pipeline stage's ranks",
        "mismatched-collective",
        """
mesh dp=2
weight w f32[8,8]
input x f32[4,8] local
program dp=0
  h = linear(x, w)
  y = all-reduce max(h) over dp
program dp=1
- input x f32[3,8] local
+ input x f32[4,8] local
  h = linear(x, w)
  y = all-reduce max(h) over dp
""",
    ),
    *pair(
        "experts over ranks that do not divide them",
        "shards-not-divisible",
        """
mesh $MESH
- weight w f32[6,8,8] ep:S(0)
+ weight w f32[8,8,8] ep:S(0)
input tokens f32[32,8] dp:S(0) ep:S(0)
program
  d = all-to-all(tokens, dim=0, concat-dim=0) over ep
  e: f32[4,8] = experts(d, w)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
""",
        ("dp=2 ep=4", "ep=4 dp=2"),
    ),
    *pair(
        "capacity that the ranks do not divide",
        "shards-not-divisible wrong-all-to-all-splits",
        """
mesh ep=4
weight w f32[8,8,8] ep:S(0)
- input slots f32[8,10,8] ep:S(1)
+ input slots f32[8,12,8] ep:S(1)
program
  d = all-to-all(slots, dim=0, concat-dim=1) over ep
  e = bmm(d, w)
  c = all-to-all(e, dim=1, concat-dim=0) over ep
""",
    ),
    *correct(
        "heads and rows of which each rank says its own",
        """
mesh tp=2
weight w f32[8,7] local [8,4] tp:S(1)
input x f32[4,8]
program tp=0
  y: f32[4,4] = matmul(x, w)
program tp=1
  weight w f32[8,7] local [8,3] tp:S(1)
  y: f32[4,3] = matmul(x, w)
""",
    ),
    *pair(
        "expert gradients averaged over their copies only",
        "wrong-gradient-scale",
        """
mesh $MESH
weight w f32[8,8]
weight x1 f32[4,8,8] ep:S(0)
input x f32[16,8] dp:S(0) ep:S(0)
input dc f32[16,8] dp:S(0) ep:S(0)
program
  t = linear(x, w)
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  e: f32[4,8] = expert_mlp(d, x1)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  de = all-to-all(dc, dim=0, concat-dim=0) over ep
  dd: f32[4,8], grad(x1) = backward e (de)
  dt = all-to-all(dd, dim=0, concat-dim=0) over ep
  _, grad(w) = backward t (dt)
  reduce-gradients w over dp,ep by avg
- reduce-gradients x1 over dp by avg
+ reduce-gradients x1 over dp divide 4
  update w, x1
""",
        ("dp=2 ep=2", "dp=2 ep=2 tp=2"),
    ),
    *pair(
        "expert gradients divided by the ranks of their exchange in place of all",
        "wrong-gradient-scale",
        """
mesh $MESH
weight w f32[8,8]
weight x1 f32[4,8,8] ep:S(0)
input x f32[16,8] dp:S(0) ep:S(0)
input dc f32[16,8] dp:S(0) ep:S(0)
program
  t = linear(x, w)
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  e: f32[4,8] = expert_mlp(d, x1)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  de = all-to-all(dc, dim=0, concat-dim=0) over ep
  dd: f32[4,8], grad(x1) = backward e (de)
  dt = all-to-all(dd, dim=0, concat-dim=0) over ep
  _, grad(w) = backward t (dt)
  reduce-gradients w over dp,ep divide 4
- reduce-gradients x1 over dp divide 2
+ reduce-gradients x1 over dp divide 4
  update w, x1
""",
        ("dp=2 ep=2", "dp=2 ep=2 tp=2"),
    ),
    *pair(
        "experts without copies whose gradients nothing divides",
        "wrong-gradient-scale",
        """
mesh $MESH
weight w f32[8,8]
weight x1 f32[4,8,8] ep:S(0)
input x f32[16,8] dp:S(0) ep:S(0)
input dc f32[16,8] dp:S(0) ep:S(0)
program
  t = linear(x, w)
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  e: f32[4,8] = expert_mlp(d, x1)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  de = all-to-all(dc, dim=0, concat-dim=0) over ep
  dd: f32[4,8], grad(x1) = backward e (de)
  dt = all-to-all(dd, dim=0, concat-dim=0) over ep
  _, grad(w) = backward t (dt)
  reduce-gradients w over dp,ep by avg
- g = all-reduce(grad(x1)) over dp
+ s = mul(grad(x1), 0.5)
+ g = all-reduce avg(s) over dp
  adam_step(w!, grad(w))
  adam_step(x1!, g)
""",
        ("dp=2 ep=2", "dp=2 ep=2 tp=2"),
    ),
    *correct(
        "expert gradients scaled before the average over their copies",
        """
mesh $MESH
weight w f32[8,8]
weight x1 f32[4,8,8] ep:S(0)
input x f32[16,8] dp:S(0) ep:S(0)
input dc f32[16,8] dp:S(0) ep:S(0)
program
  t = linear(x, w)
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  e: f32[4,8] = expert_mlp(d, x1)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  de = all-to-all(dc, dim=0, concat-dim=0) over ep
  dd: f32[4,8], grad(x1) = backward e (de)
  dt = all-to-all(dd, dim=0, concat-dim=0) over ep
  _, grad(w) = backward t (dt)
  s = div(grad(x1), 2)
  g = all-reduce avg(s) over dp
  h = all-reduce avg(grad(w)) over dp,ep
  adam_step(w!, h)
  adam_step(x1!, g)
""",
        ("dp=2 ep=2",),
    ),
    *correct(
        "gradients of sums over tokens, divided nowhere",
        """
mesh $MESH
weight w f32[8,8]
weight x1 f32[4,8,8] ep:S(0)
input x f32[16,8] dp:S(0) ep:S(0)
input dc f32[16,8] dp:S(0) ep:S(0)
program
  t = linear(x, w)
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  e: f32[4,8] = expert_mlp(d, x1)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  de = all-to-all(dc, dim=0, concat-dim=0) over ep
  dd: f32[4,8], grad(x1) = backward e (de)
  dt = all-to-all(dd, dim=0, concat-dim=0) over ep
  _, grad(w) = backward t (dt)
  reduce-gradients w over dp,ep
  reduce-gradients x1 over dp
  update w, x1
""",
        ("dp=2 ep=2",),
    ),
    *pair(
        "gradients of tokens that the dispatch sent are not sent back",
        "gradient-not-exchanged",
        """
mesh $MESH
weight w f32[8,8]
weight x1 f32[4,8,8] ep:S(0)
input x f32[32,8] dp:S(0) ep:S(0)
input dy f32[32,8] dp:S(0) ep:S(0)
program
  t = linear(x, w)
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  e = expert_mlp(d, x1)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  y = add(c, x)
  dc, dx = backward y (dy)
  de = all-to-all(dc, dim=0, concat-dim=0) over ep
  dd, grad(x1) = backward e (de)
+ dt = all-to-all(dd, dim=0, concat-dim=0) over ep
+ _, grad(w) = backward t (dt)
- _, grad(w) = backward t (dd)
  reduce-gradients w over dp,ep
  reduce-gradients x1 over dp
  update w, x1
""",
        ("dp=1 ep=2", "dp=2 ep=2"),
    ),
    *pair(
        "gradients of what experts give are not sent to them",
        "gradient-not-exchanged",
        """
mesh ep=2
weight w f32[8,8]
weight x1 f32[4,8,8] ep:S(0)
input x f32[32,8] ep:S(0)
input dy f32[32,8] ep:S(0)
program
  d = all-to-all(x, dim=0, concat-dim=0) over ep
  e = expert_mlp(d, x1)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  y = linear(c, w)
  dc, grad(w) = backward y (dy)
+ de = all-to-all(dc, dim=0, concat-dim=0) over ep
+ _, grad(x1) = backward e (de)
- _, grad(x1) = backward e (dc)
  reduce-gradients w over ep
  update w, x1
""",
    ),
    *pair(
        "heads whose gradients are not exchanged for sequence",
        "gradient-not-exchanged",
        """
mesh cp=2
weight wq f32[8,8]
weight wk f32[8,8]
weight wv f32[8,8]
input x f32[2,8,8] cp:S(1)
input do f32[2,8,2,4] cp:S(1)
program
  q0 = linear(x, wq)
  k0 = linear(x, wk)
  v0 = linear(x, wv)
  q1 = view(q0, 2, 4, 2, 4)
  k1 = view(k0, 2, 4, 2, 4)
  v1 = view(v0, 2, 4, 2, 4)
  q = all-to-all(q1, dim=2, concat-dim=1) over cp
  k = all-to-all(k1, dim=2, concat-dim=1) over cp
  v = all-to-all(v1, dim=2, concat-dim=1) over cp
  a = flash_attn_func(q, k, v)
  o = all-to-all(a, dim=1, concat-dim=2) over cp
+ da = all-to-all(do, dim=2, concat-dim=1) over cp
+ dq, dk, dv = backward a (da)
- dq, dk, dv = backward a (do)
  dq1 = all-to-all(dq, dim=1, concat-dim=2) over cp
  dk1 = all-to-all(dk, dim=1, concat-dim=2) over cp
  dv1 = all-to-all(dv, dim=1, concat-dim=2) over cp
  dq0 = backward q1 (dq1)
  dk0 = backward k1 (dk1)
  dv0 = backward v1 (dv1)
  _, grad(wq) = backward q0 (dq0)
  _, grad(wk) = backward k0 (dk0)
  _, grad(wv) = backward v0 (dv0)
  reduce-gradients wq, wk, wv over cp
  update wq, wk, wv
""",
    ),
    *pair(
        "gradients of queries and keys swapped",
        "gradient-of-another-tensor",
        """
mesh dp=2
weight wq f32[8,8]
weight wk f32[8,8]
weight wv f32[8,8]
input x f32[4,8,8] dp:S(0)
input do f32[4,8,8] dp:S(0)
program
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  o = flash_attn_func(q, k, v)
  dq, dk, dv = backward o (do)
- _, grad(wq) = backward q (dk)
- _, grad(wk) = backward k (dq)
+ _, grad(wq) = backward q (dq)
+ _, grad(wk) = backward k (dk)
  _, grad(wv) = backward v (dv)
  reduce-gradients wq, wk, wv over dp by avg
  update wq, wk, wv
""",
    ),
    *pair(
        "gradient of one weight stored as that of another",
        "gradient-of-another-tensor",
        """
mesh tp=2
weight wg f32[16,8] tp:S(0)
weight wu f32[16,8] tp:S(0)
input x f32[4,8]
input dm f32[4,16] tp:S(1)
program
  g = linear(x, wg)
  u = linear(x, wu)
  m = mul(g, u)
  dg, du = backward m (dm)
- _, grad(wu) = backward g (dg)
- _, grad(wg) = backward u (du)
+ _, grad(wg) = backward g (dg)
+ _, grad(wu) = backward u (du)
  update wg, wu
""",
    ),
    *correct(
        "one gradient for both operands of a sum",
        """
mesh dp=2
weight w1 f32[8,8]
weight w2 f32[8,8]
input x f32[4,8] dp:S(0)
input dy f32[4,8] dp:S(0)
program
  a = linear(x, w1)
  b = linear(x, w2)
  y = add(a, b)
  da, db = backward y (dy)
  _, grad(w1) = backward a (db)
  _, grad(w2) = backward b (da)
  reduce-gradients w1, w2 over dp
  update w1, w2
""",
    ),
    *correct(
        "backward of experts that starts from a gradient of what they give",
        """
mesh ep=2
weight x1 f32[4,8,8] ep:S(0)
input x f32[32,8] ep:S(0)
input de f32[32,8] ep:S(0)
output c
program
  d = all-to-all(x, dim=0, concat-dim=0) over ep
  e = expert_mlp(d, x1)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  _, grad(x1) = backward e (de)
""",
    ),
    *pair(
        "codes summed over ranks between quantise and dequantise",
        "reduction-in-lower-precision",
        """
mesh tp=2
weight w f32[8,8] tp:S(1)
buffer s f32[1]
input x f32[4,8] tp:S(1)
program
  p = linear(x, w)
- q: f8e4m3[4,8] = cast_to_fp8(p, s)
- r = all-reduce(q) over tp
- y: f32[4,8] = cast_from_fp8(r, s)
+ r = all-reduce(p) over tp
+ q: f8e4m3[4,8] = cast_to_fp8(r, s)
+ y: f32[4,8] = cast_from_fp8(q, s)
""",
    ),
    *pair(
        "gathered codes read with the own scale",
        "scale-of-another-shard",
        """
mesh dp=2
weight w f32[8,8] dp:S(0)
input x f32[4,8] dp:S(0)
program
  a = amax(w)
+ m = all-reduce max(a) over dp
+ s: f32[1] = scale_from(m)
- s: f32[1] = scale_from(a)
  q: f8e4m3[4,8] = quantize(w, s)
  g = all-gather(q, dim=0) over dp
  f: f32[8,8] = dequantize(g, s)
  y = linear(x, f)
""",
    ),
    *correct(
        "pieces of a whole that are coded with the scale of the whole",
        """
mesh tp=2
input x f32[8,8]
program
  a = amax(x)
  s: f32[1] = scale_from(a)
  c = chunk(x, dim=0) over tp
  q: f8e4m3[4,8] = quantize(c, s)
  g = all-gather(q, dim=0) over tp
  y: f32[8,8] = dequantize(g, s)
""",
    ),
    *pair(
        "capacity cut between dispatch and combine",
        "expert-exchange-not-undone",
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
    *pair(
        "experts between exchanges of two groups that swap dimensions",
        "expert-exchange-not-undone",
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
        "experts applied to tokens that nothing dispatched",
        "expert-exchange-not-undone",
        """
mesh dp=2 ep=2
weight r f32[8,8]
weight w f32[4,8,8] ep:S(0)
input x f32[16,8] dp:S(0) ep:S(0)
program
  t = linear(x, r)
- e: f32[4,8] = experts(t, w)
+ d = all-to-all(t, dim=0, concat-dim=0) over ep
+ e: f32[4,8] = experts(d, w)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  y = add(c, x)
output y f32[16,8] dp:S(0) ep:S(0)
""",
    ),
    *correct(
        "experts applied to the gathered tokens of all, whose results are exchanged and added up",
        """
mesh ep=2
weight w f32[4,8,8] ep:S(0)
input x f32[16,8] ep:S(0)
program
  t = all-gather(x, dim=0) over ep
  e: f32[16,8] = experts(t, w)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  p = view(c, [2,8,8])
  y = sum(p, dim=0)
""",
    ),
    *pair(
        "gradients of dispatched tokens exchanged with copies in place of experts",
        "gradient-not-exchanged",
        """
mesh dp=2 ep=2
weight r f32[8,8]
weight w f32[4,8,8] ep:S(0)
input x f32[16,8] dp:S(0) ep:S(0)
input dc f32[16,8] dp:S(0) ep:S(0)
program
  t = linear(x, r)
  d = all-to-all(t, dim=0, concat-dim=0) over ep
  e: f32[4,8] = experts(d, w)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  de = all-to-all(dc, dim=0, concat-dim=0) over ep
  dd: f32[4,8], grad(w) = backward e (de)
- dt = all-to-all(dd, dim=0, concat-dim=0) over dp
+ dt = all-to-all(dd, dim=0, concat-dim=0) over ep
  _, grad(r) = backward t (dt)
  reduce-gradients r over dp, ep
  reduce-gradients w over dp
  update r, w
""",
    ),
    *correct(
        "tokens of a rank counted for each expert, exchanged and joined",
        """
mesh ep=2
weight w f32[2,8,8] ep:S(0)
input x f32[8,8] ep:S(0)
output y f32[8,8] ep:S(0)
program
  a = reshape(x, [2,2,8])
  b = all-to-all(a, dim=0, concat-dim=1) over ep
  c = bmm(b, w)
  d = all-to-all(c, dim=1, concat-dim=0) over ep
  y = reshape(d, [4,8])
""",
    ),
    *pair(
        "tokens of unequal numbers sent back in the sizes of the way out",
        "expert-exchange-not-undone",
        """
mesh ep=2
weight w f32[2,8,8] ep:S(0)
input x f32[12,8] ep:S(0)
output y f32[12,8] ep:S(0)
program ep=0
  d: f32[5,8] = all-to-all(x, dim=0, splits=[3,3], receive-splits=[3,2]) over ep
  m = squeeze(w, 0)
  h = matmul(d, m)
- y: f32[6,8] = all-to-all(h, dim=0, splits=[2,3], receive-splits=[2,4]) over ep
+ y: f32[6,8] = all-to-all(h, dim=0, splits=[3,2], receive-splits=[3,3]) over ep
program ep=1
  d: f32[7,8] = all-to-all(x, dim=0, splits=[2,4], receive-splits=[3,4]) over ep
  m = squeeze(w, 0)
  h = matmul(d, m)
- y: f32[6,8] = all-to-all(h, dim=0, splits=[4,3], receive-splits=[3,3]) over ep
+ y: f32[6,8] = all-to-all(h, dim=0, splits=[3,4], receive-splits=[2,4]) over ep
""",
    ),
)
