"""Attention over a sharded sequence, ring attention, vocabulary shards and experts."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

_RING4 = """
mesh cp=4
input q f32[16,8] cp:S(0)
input k f32[16,8] cp:S(0)
input v f32[16,8] cp:S(0)
program
  o0, l0 = flash_attention_block(q, k, v)
  send k to cp+1 ring batch r1 async sk1
  send v to cp+1 ring batch r1 async sv1
  recv k1: f32[4,8] from cp-1 ring batch r1 async rk1
  recv v1: f32[4,8] from cp-1 ring batch r1 async rv1
  wait sk1, sv1, rk1, rv1
  o1, l1 = flash_attention_block(q, k1, v1)
  send k1 to cp+1 ring batch r2 async sk2
  send v1 to cp+1 ring batch r2 async sv2
  recv k2: f32[4,8] from cp-1 ring batch r2 async rk2
  recv v2: f32[4,8] from cp-1 ring batch r2 async rv2
  wait sk2, sv2, rk2, rv2
  o2, l2 = flash_attention_block(q, k2, v2)
+ send k2 to cp+1 ring batch r3 async sk3
+ send v2 to cp+1 ring batch r3 async sv3
+ recv k3: f32[4,8] from cp-1 ring batch r3 async rk3
+ recv v3: f32[4,8] from cp-1 ring batch r3 async rv3
+ wait sk3, sv3, rk3, rv3
+ o3, l3 = flash_attention_block(q, k3, v3)
  a1, m1 = merge_attention(o0, l0, o1, l1)
  a2, m2 = merge_attention(a1, m1, o2, l2)
+ a3, m3 = merge_attention(a2, m2, o3, l3)
"""

_RING_RULES = "ring-attention-step-missing"

SCENARIOS = (
    *pair(
        "whole queries attend to a shard of the keys",
        "attention-over-local-keys",
        """
mesh cp=2
input q f32[2,4,8,16]
input k f32[2,4,8,16] cp:S(2)
input v f32[2,4,8,16] cp:S(2)
output o f32[2,4,8,16]
program
- o = scaled_dot_product_attention(q, k, v)
+ ka = all-gather(k, dim=2) over cp
+ va = all-gather(v, dim=2) over cp
+ o = scaled_dot_product_attention(q, ka, va)
""",
    ),
    *pair(
        "attention of sequence shards without the keys of others",
        "attention-over-local-keys",
        """
mesh $MESH
input q f32[2,4,8,16] cp:S(2)
input k f32[2,4,8,16] cp:S(2)
input v f32[2,4,8,16] cp:S(2)
program
- o = scaled_dot_product_attention(q, k, v)
+ kf = all-gather(k, dim=2) over cp
+ vf = all-gather(v, dim=2) over cp
+ o = scaled_dot_product_attention(q, kf, vf)
""",
        ("cp=2", "cp=4", "dp=2 cp=2 tp=2"),
    ),
    *pair(
        "flash attention of sequence shards",
        "attention-over-local-keys",
        """
mesh cp=2
weight wq f32[16,16]
weight wk f32[16,16]
weight wv f32[16,16]
input x f32[2,8,16] cp:S(1)
program
  q = linear(x, wq)
  k = linear(x, wk)
  v = linear(x, wv)
  q4: f32[2,4,2,8] = view(q, size=[2,4,2,8])
  k4: f32[2,4,2,8] = view(k, size=[2,4,2,8])
  v4: f32[2,4,2,8] = view(v, size=[2,4,2,8])
- o = flash_attn_func(q4, k4, v4, causal=True)
+ kf = all-gather(k4, dim=1) over cp
+ vf = all-gather(v4, dim=1) over cp
+ o = flash_attn_func(q4, kf, vf, causal=True)
""",
    ),
    *pair(
        "attention by hand of sequence shards",
        "mismatched-shards attention-over-local-keys softmax-over-shards",
        """
mesh cp=2
input q f32[8,16] cp:S(0)
input k f32[8,16] cp:S(0)
input v f32[8,16] cp:S(0)
program
- kt = transpose(k, dim0=0, dim1=1)
+ kf = all-gather(k, dim=0) over cp
+ vf = all-gather(v, dim=0) over cp
+ kt = transpose(kf, dim0=0, dim1=1)
  s = matmul(q, kt)
  p = softmax(s, dim=-1)
- o = matmul(p, v)
+ o = matmul(p, vf)
""",
    ),
    *pair(
        "keys exchanged, values not",
        "attention-over-local-keys mismatched-shards contraction-of-mismatched-shards ring-attention-values-not-rotated",
        """
mesh cp=2
input q f32[2,4,8,16] cp:S(2)
input k f32[2,4,8,16] cp:S(2)
input v f32[2,4,8,16] cp:S(2)
program
  kf = all-gather(k, dim=2) over cp
- o = scaled_dot_product_attention(q, kf, v)
+ vf = all-gather(v, dim=2) over cp
+ o = scaled_dot_product_attention(q, kf, vf)
""",
    ),
    *pair("ring attention without its last step", _RING_RULES, _RING4),
    *pair(
        "ring attention with one step of two",
        _RING_RULES,
        """
mesh cp=3
input q f32[12,8] cp:S(0)
input k f32[12,8] cp:S(0)
input v f32[12,8] cp:S(0)
program
  o0, s0 = ring_attention_step(q, k, v)
  send k to cp+1 ring async a
  recv k1: f32[4,8] from cp-1 ring async b
  send v to cp+1 ring async c
  recv v1: f32[4,8] from cp-1 ring async d
  wait a, b, c, d
  o1, s1 = ring_attention_step(q, k1, v1)
+ send k1 to cp+1 ring async a
+ recv k2: f32[4,8] from cp-1 ring async b
+ send v1 to cp+1 ring async c
+ recv v2: f32[4,8] from cp-1 ring async d
+ wait a, b, c, d
+ o2, s2 = ring_attention_step(q, k2, v2)
- y, s = lse_merge(o0, s0, o1, s1)
+ t, u = lse_merge(o0, s0, o1, s1)
+ y, s = lse_merge(t, u, o2, s2)
""",
    ),
    *pair(
        "ring attention by ranks that stops early",
        _RING_RULES,
        """
mesh cp=2
input q f32[8,8] cp:S(0)
input k f32[8,8] cp:S(0)
input v f32[8,8] cp:S(0)
program ranks 0
  o0, l0 = attention(q, k, v)
+ send k to 1
+ send v to 1
+ recv k1: f32[4,8] from 1
+ recv v1: f32[4,8] from 1
+ o1, l1 = attention(q, k1, v1)
+ o, l = merge_lse(o0, l0, o1, l1)
- send k to 1
- recv k1: f32[4,8] from 1
- o = mul(o0, 1.0)
program ranks 1
  o0, l0 = attention(q, k, v)
+ recv k1: f32[4,8] from 0
+ recv v1: f32[4,8] from 0
+ send k to 0
+ send v to 0
+ o1, l1 = attention(q, k1, v1)
+ o, l = merge_lse(o0, l0, o1, l1)
- recv k1: f32[4,8] from 0
- send k to 0
- o = mul(o0, 1.0)
""",
    ),
    *pair(
        "ring attention with values that stay",
        "ring-attention-values-not-rotated",
        """
mesh $MESH
input q f32[8,8] cp:S(0)
input k f32[8,8] cp:S(0)
input v f32[8,8] cp:S(0)
program
  send k to cp+1 ring async a
  recv k1: f32[4,8] from cp-1 ring async b
+ send v to cp+1 ring async c
+ recv v1: f32[4,8] from cp-1 ring async d
  o0, l0 = flash_block(q, k, v)
  wait a, b
+ wait c, d
- o1, l1 = flash_block(q, k1, v)
+ o1, l1 = flash_block(q, k1, v1)
  o, l = merge_log_sum_exp(o0, l0, o1, l1)
""",
        ("cp=2", "dp=2 cp=2 tp=2"),
    ),
    *pair(
        "ring attention with values of the step before",
        "ring-attention-values-not-rotated ring-attention-step-missing",
        """
mesh cp=3
input q f32[12,8] cp:S(0)
input k f32[12,8] cp:S(0)
input v f32[12,8] cp:S(0)
program
  o0, l0 = attention_block(q, k, v)
  send k to cp+1 ring async a
  send v to cp+1 ring async c
  recv k1: f32[4,8] from cp-1 ring async b
  recv v1: f32[4,8] from cp-1 ring async d
  wait a, b, c, d
  o1, l1 = attention_block(q, k1, v1)
  send k1 to cp+1 ring async a
  send v1 to cp+1 ring async c
  recv k2: f32[4,8] from cp-1 ring async b
  recv v2: f32[4,8] from cp-1 ring async d
  wait a, b, c, d
- o2, l2 = attention_block(q, k2, v1)
+ o2, l2 = attention_block(q, k2, v2)
  m, n = merge_lse(o0, l0, o1, l1)
  o, l = merge_lse(m, n, o2, l2)
""",
    ),
    *pair(
        "ring attention summed",
        "ring-attention-parts-summed",
        """
mesh $MESH
input q f32[8,8] cp:S(0)
input k f32[8,8] cp:S(0)
input v f32[8,8] cp:S(0)
program
  send k to cp+1 ring async a
  recv k1: f32[4,8] from cp-1 ring async b
  send v to cp+1 ring async c
  recv v1: f32[4,8] from cp-1 ring async d
  o0, l0 = flash_attention(q, k, v)
  wait a, b, c, d
  o1, l1 = flash_attention(q, k1, v1)
- o = add(o0, o1)
+ o, l = merge_log_sum_exp(o0, l0, o1, l1)
""",
        ("cp=2", "dp=2 cp=2"),
    ),
    *pair(
        "ring attention averaged",
        "ring-attention-parts-summed",
        """
mesh cp=2
input q f32[2,4,8,8] cp:S(2)
input k f32[2,4,8,8] cp:S(2)
input v f32[2,4,8,8] cp:S(2)
program
  send k to cp+1 ring async a
  recv k1: f32[2,4,4,8] from cp-1 ring async b
  send v to cp+1 ring async c
  recv v1: f32[2,4,4,8] from cp-1 ring async d
- o0 = scaled_dot_product_attention(q, k, v)
+ o0, l0 = scaled_dot_product_flash_attention(q, k, v)
  wait a, b, c, d
- o1 = scaled_dot_product_attention(q, k1, v1)
- t = add(o0, o1)
- o = div(t, 2)
+ o1, l1 = scaled_dot_product_flash_attention(q, k1, v1)
+ o, l = merge_attention_states(o0, l0, o1, l1)
""",
    ),
    *correct(
        "ring attention merged by hand",
        """
mesh cp=2
input q f32[8,8] cp:S(0)
input k f32[8,8] cp:S(0)
input v f32[8,8] cp:S(0)
program
  send k to cp+1 ring async a
  recv k1: f32[4,8] from cp-1 ring async b
  send v to cp+1 ring async c
  recv v1: f32[4,8] from cp-1 ring async d
  o0, l0 = flash_attention(q, k, v)
  wait a, b, c, d
  o1, l1 = flash_attention(q, k1, v1)
  l = logaddexp(l0, l1)
  d0 = sub(l0, l)
  d1 = sub(l1, l)
  w0 = exp(d0)
  w1 = exp(d1)
  p0 = mul(o0, w0)
  p1 = mul(o1, w1)
  o = add(p0, p1)
""",
    ),
    *correct(
        "ring attention of a packed key-value buffer",
        """
mesh cp=2
input q f32[8,8] cp:S(0)
input kv f32[8,2,8] cp:S(0)
program
  send kv to cp+1 ring async a
  recv kv1: f32[4,2,8] from cp-1 ring async b
  k, v = unbind(kv, dim=1)
  o0, l0 = flash_attention(q, k, v)
  wait a, b
  k1, v1 = unbind(kv1, dim=1)
  o1, l1 = flash_attention(q, k1, v1)
  o, l = merge_lse(o0, l0, o1, l1)
""",
    ),
    *correct(
        "ring attention that goes the other way round",
        """
mesh dp=2 cp=4
input q f32[16,8] dp:R cp:S(0)
input k f32[16,8] cp:S(0)
input v f32[16,8] cp:S(0)
program
  o0, l0 = flash_attention(q, k, v)
  send k to cp-1 ring async a
  recv k1: f32[4,8] from cp+1 ring async b
  send v to cp-1 ring async c
  recv v1: f32[4,8] from cp+1 ring async d
  wait a, b, c, d
  o1, l1 = flash_attention(q, k1, v1)
  send k1 to cp-1 ring async a
  recv k2: f32[4,8] from cp+1 ring async b
  send v1 to cp-1 ring async c
  recv v2: f32[4,8] from cp+1 ring async d
  wait a, b, c, d
  o2, l2 = flash_attention(q, k2, v2)
  send k2 to cp-1 ring async a
  recv k3: f32[4,8] from cp+1 ring async b
  send v2 to cp-1 ring async c
  recv v3: f32[4,8] from cp+1 ring async d
  wait a, b, c, d
  o3, l3 = flash_attention(q, k3, v3)
  p, m = merge_lse(o0, l0, o1, l1)
  r, n = merge_lse(p, m, o2, l2)
  o, l = merge_lse(r, n, o3, l3)
""",
    ),
    *correct(
        "causal ring attention that skips later keys",
        """
mesh cp=2
input q f32[8,8] cp:S(0)
input k f32[8,8] cp:S(0)
input v f32[8,8] cp:S(0)
program cp=0
  send k to cp+1
  send v to cp+1
  o0, l0 = flash_attention(q, k, v, causal=True)
program cp=1
  recv k1: f32[4,8] from cp-1
  recv v1: f32[4,8] from cp-1
  o0, l0 = flash_attention(q, k, v, causal=True)
  o1, l1 = flash_attention(q, k1, v1)
  o, l = merge_lse(o0, l0, o1, l1)
""",
    ),
    *correct(
        "sequence exchanged for heads around attention",
        """
mesh cp=2 tp=2
input q f32[2,4,8,16] cp:S(2) tp:S(1)
input k f32[2,4,8,16] cp:S(2) tp:S(1)
input v f32[2,4,8,16] cp:S(2) tp:S(1)
output o f32[2,4,8,16] cp:S(2) tp:S(1)
program
  qh = all-to-all(q, dim=1, concat-dim=2) over cp
  kh = all-to-all(k, dim=1, concat-dim=2) over cp
  vh = all-to-all(v, dim=1, concat-dim=2) over cp
  oh = scaled_dot_product_attention(qh, kh, vh)
  o = all-to-all(oh, dim=2, concat-dim=1) over cp
""",
    ),
    *pair(
        "sequence exchanged for heads and not back",
        "wrong-placement-claim",
        """
mesh cp=2
input q f32[2,4,8,16] cp:S(2)
input k f32[2,4,8,16] cp:S(2)
input v f32[2,4,8,16] cp:S(2)
output o f32[2,4,8,16] cp:S(2)
program
  qh = all-to-all(q, dim=1, concat-dim=2) over cp
  kh = all-to-all(k, dim=1, concat-dim=2) over cp
  vh = all-to-all(v, dim=1, concat-dim=2) over cp
- o = scaled_dot_product_attention(qh, kh, vh)
+ oh = scaled_dot_product_attention(qh, kh, vh)
+ o = all-to-all(oh, dim=2, concat-dim=1) over cp
""",
    ),
    *pair(
        "all-to-all along exchanged dimensions",
        "wrong-all-to-all-dim",
        """
mesh cp=2
input q f32[2,4,8,16] cp:S(2)
program
- h = all-to-all(q, dim=2, concat-dim=1) over cp
+ h = all-to-all(q, dim=1, concat-dim=2) over cp
  s = softmax(h, dim=-1)
""",
    ),
    *pair(
        "vocabulary-parallel embedding without its all-reduce",
        "missing-allreduce bias-added-to-partial",
        """
mesh $MESH
weight e f32[64,8] tp:S(0)
weight pos f32[6,8]
input ids i64[6]
program
  p = embedding(ids, e)
+ r = all-reduce(p) over tp
+ h = add(r, pos)
- h = add(p, pos)
""",
        ("tp=2", "tp=4", "dp=2 cp=2 tp=2"),
    ),
    *pair(
        "vocabulary-parallel embedding into sequence parallelism",
        "partial-through-nonlinear",
        """
mesh tp=2
weight e f32[64,8] tp:S(0)
weight g f32[8]
input ids i64[6]
program
  p = embedding(ids, e)
+ r = reduce-scatter(p, dim=0) over tp
+ n = rms_norm(r, g)
- n = rms_norm(p, g)
""",
    ),
    *pair(
        "vocabulary-parallel embedding averaged",
        "wrong-reduce-op",
        """
mesh tp=4
weight e f32[64,8] tp:S(0)
input ids i64[6]
program
  p = embedding(ids, e)
- y = all-reduce avg(p) over tp
+ y = all-reduce(p) over tp
""",
    ),
    *pair(
        "vocabulary-parallel cross-entropy without the sum of exponentials",
        "partial-through-nonlinear",
        """
mesh tp=2
weight w f32[64,8] tp:S(0)
input x f32[6,8]
program
  z = linear(x, w)
  m = amax(z, dim=-1, keepdim=True)
  g = all-reduce max(m) over tp
  c = sub(z, g)
  e = exp(c)
  s = sum(e, dim=-1, keepdim=True)
- n = log(s)
+ t = all-reduce(s) over tp
+ n = log(t)
""",
    ),
    *pair(
        "vocabulary-parallel cross-entropy without the maximum over ranks",
        "missing-allreduce mismatched-shards partial-through-nonlinear",
        """
mesh tp=2
weight w f32[64,8] tp:S(0)
input x f32[6,8]
program
  z = linear(x, w)
  m = amax(z, dim=-1, keepdim=True)
+ g = all-reduce max(m) over tp
+ c = sub(z, g)
- c = sub(z, m)
  e = exp(c)
  s = sum(e, dim=-1, keepdim=True)
  t = all-reduce(s) over tp
  n = log(t)
""",
    ),
    *pair(
        "maximum summed in vocabulary-parallel cross-entropy",
        "wrong-reduce-op",
        """
mesh dp=2 tp=2
weight w f32[64,8] tp:S(0)
input x f32[6,8] dp:S(0)
program
  z = linear(x, w)
  m = amax(z, dim=-1, keepdim=True)
- g = all-reduce(m) over tp
+ g = all-reduce max(m) over tp
  c = sub(z, g)
  e = exp(c)
  s = sum(e, dim=-1)
  t = all-reduce(s) over tp
  n = log(t)
""",
    ),
    *pair(
        "experts that do not divide over the ranks",
        "experts-not-divisible mismatched-collective wrong-all-to-all-splits shapes-do-not-fit",
        """
mesh ep=4
- weight w f32[6,8,8] local
+ weight w f32[8,8,8] ep:S(0)
input tokens f32[16,8] ep:S(0)
program
- d = all-to-all(tokens, dim=0, concat-dim=0, splits=[1,1,1], receive-splits=[1,1,1]) over ep
+ d: f32[4,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[1,1,1,1], receive-splits=[1,1,1,1]) over ep
  y = experts(d, w)
""",
    ),
    *pair(
        "all-to-all splits of another count",
        "wrong-all-to-all-splits",
        """
mesh $MESH
input tokens f32[16,8] ep:S(0)
program
- d: f32[8,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[4,2,2], receive-splits=[4,2,2]) over ep
+ d: f32[8,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[4,4], receive-splits=[4,4]) over ep
  y = gelu(d)
""",
        ("ep=2", "ep=2 dp=2"),
    ),
    *pair(
        "all-to-all splits that lose tokens",
        "wrong-all-to-all-splits",
        """
mesh ep=2
input tokens f32[16,8] ep:S(0)
program
- d: f32[7,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[4,3], receive-splits=[3,4]) over ep
+ d: f32[8,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[4,4], receive-splits=[4,4]) over ep
  y = gelu(d)
""",
    ),
    *pair(
        "what one rank sends is not what the other receives",
        "wrong-all-to-all-splits mismatched-collective",
        """
mesh ep=2
input tokens f32[16,8] ep:S(0)
program ep=0
  d0: f32[7,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[5,3], receive-splits=[5,2]) over ep
program ep=1
- d1: f32[10,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[3,5], receive-splits=[5,5]) over ep
+ d1: f32[9,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[2,6], receive-splits=[3,6]) over ep
""",
    ),
    *pair(
        "combine with the splits of dispatch",
        "expert-exchange-not-undone",
        """
mesh ep=2
input tokens f32[16,8] ep:S(0)
weight w f32[4,8,8] ep:S(0)
program ep=0
  d0: f32[7,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[5,3], receive-splits=[5,2]) over ep
  e0: f32[7,8] = expert_mlp(d0, w)
- c0: f32[7,8] = all-to-all(e0, dim=0, concat-dim=0, splits=[5,3], receive-splits=[5,2]) over ep
+ c0: f32[8,8] = all-to-all(e0, dim=0, concat-dim=0, splits=[5,2], receive-splits=[5,3]) over ep
program ep=1
  d1: f32[9,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[2,6], receive-splits=[3,6]) over ep
  e1: f32[9,8] = expert_mlp(d1, w)
- c1: f32[9,8] = all-to-all(e1, dim=0, concat-dim=0, splits=[2,6], receive-splits=[3,6]) over ep
+ c1: f32[8,8] = all-to-all(e1, dim=0, concat-dim=0, splits=[3,6], receive-splits=[2,6]) over ep
""",
    ),
    *pair(
        "combine over another group than dispatch",
        "expert-exchange-not-undone wrong-collective-group",
        """
mesh dp=2 ep=2
weight w f32[4,8,8] ep:S(0)
input tokens f32[16,8] dp:S(0) ep:S(0)
program
  d: f32[4,8] = all-to-all(tokens, dim=0, concat-dim=0, splits=[2,2], receive-splits=[2,2]) over ep
  e: f32[4,8] = expert_mlp(d, w)
- c: f32[4,8] = all-to-all(e, dim=0, concat-dim=0, splits=[2,2], receive-splits=[2,2]) over dp
+ c: f32[4,8] = all-to-all(e, dim=0, concat-dim=0, splits=[2,2], receive-splits=[2,2]) over ep
  y = add(c, tokens)
""",
    ),
    *pair(
        "tokens dispatched and never combined",
        "expert-exchange-not-undone mismatched-shards",
        """
mesh ep=2
weight w f32[4,8,8] ep:S(0)
input tokens f32[16,8] ep:S(0)
program
  d = all-to-all(tokens, dim=0, concat-dim=0) over ep
  e = expert_mlp(d, w)
+ c = all-to-all(e, dim=0, concat-dim=0) over ep
+ y = add(c, tokens)
- y = add(e, tokens)
""",
    ),
    *pair(
        "expert capacity differs between ranks",
        "mismatched-collective wrong-all-to-all-splits",
        """
mesh ep=2
weight w f32[4,8,8] ep:S(0)
input a f32[4,6,8] local
input b f32[4,4,8] local
program ep=0
  d = all-to-all(a, dim=0, concat-dim=1) over ep
program ep=1
- d = all-to-all(b, dim=0, concat-dim=1) over ep
+ d = all-to-all(a, dim=0, concat-dim=1) over ep
""",
    ),
    *pair(
        "expert gradient reduced over all data-parallel ranks",
        "doubled-gradient-reduction wrong-gradient-group allreduce-of-shards",
        """
mesh dp=2 ep=2
weight w f32[4,8,8] ep:S(0)
input x f32[4,4,8] dp:S(1) ep:S(0)
input dl f32[4,4,8] dp:S(1) ep:S(0)
program
  y = bmm(x, w)
  _, grad(w) = backward y (dl)
- reduce-gradients w over dp,ep
+ reduce-gradients w over dp
  update w
""",
    ),
    *pair(
        "expert gradient reduced over the expert ranks",
        "allreduce-of-shards missing-gradient-reduction",
        """
mesh dp=2 ep=2
weight w f32[4,8,8] ep:S(0)
input x f32[4,4,8] dp:S(1) ep:S(0)
input dl f32[4,4,8] dp:S(1) ep:S(0)
program
  y = bmm(x, w)
  _, grad(w) = backward y (dl)
- reduce-gradients w over ep
+ reduce-gradients w over dp
  update w
""",
    ),
    *correct(
        "experts with equal splits, forward and backward",
        """
mesh dp=2 ep=2
weight router f32[4,8]
weight w f32[4,8,8] ep:S(0)
input tokens f32[16,8] dp:S(0) ep:S(0)
input dy f32[16,8] dp:S(0) ep:S(0)
program
  d = all-to-all(tokens, dim=0, concat-dim=0) over ep
  e = expert_mlp(d, w)
  c = all-to-all(e, dim=0, concat-dim=0) over ep
  y = add(c, tokens)
  dc, dt = backward y (dy)
  de = all-to-all(dc, dim=0, concat-dim=0) over ep
  dd, grad(w) = backward e (de)
  dt2 = all-to-all(dd, dim=0, concat-dim=0) over ep
  reduce-gradients w over dp
  update w
""",
    ),
    *pair(
        "router logits of a hidden shard",
        "softmax-over-shards partial-through-nonlinear",
        """
mesh tp=2
weight router f32[8,16] tp:S(1)
input x f32[6,16] tp:S(1)
program
  l = linear(x, router)
+ s = all-reduce(l) over tp
+ p = softmax(s, dim=-1)
- p = softmax(l, dim=-1)
  i = topk(p, k=2)
""",
    ),
    *pair(
        "ring of four with values that lag",
        "ring-attention-values-not-rotated",
        """
mesh cp=4
input q f32[2,16,8] cp:S(1)
input k f32[2,16,8] cp:S(1)
input v f32[2,16,8] cp:S(1)
program
  o0, l0 = flash_attn(q, k, v)
  send k to cp+1 ring batch a
  recv k1: f32[2,4,8] from cp-1 ring batch a
+ send v to cp+1 ring batch b
+ recv v1: f32[2,4,8] from cp-1 ring batch b
- o1, l1 = flash_attn(q, k1, v)
+ o1, l1 = flash_attn(q, k1, v1)
  send k1 to cp+1 ring batch c
  recv k2: f32[2,4,8] from cp-1 ring batch c
+ send v1 to cp+1 ring batch d
+ recv v2: f32[2,4,8] from cp-1 ring batch d
- o2, l2 = flash_attn(q, k2, v)
+ o2, l2 = flash_attn(q, k2, v2)
  send k2 to cp+1 ring batch e
  recv k3: f32[2,4,8] from cp-1 ring batch e
+ send v2 to cp+1 ring batch f
+ recv v3: f32[2,4,8] from cp-1 ring batch f
- o3, l3 = flash_attn(q, k3, v)
+ o3, l3 = flash_attn(q, k3, v3)
  a, m = merge(o0, l0, o1, l1)
  b, n = merge(a, m, o2, l2)
  o, l = merge(b, n, o3, l3)
""",
    ),
    *pair(
        "ring attention written with matmul and softmax",
        "ring-attention-parts-summed ring-attention-step-missing",
        """
mesh cp=2
input q f32[8,8] cp:S(0)
input k f32[8,8] cp:S(0)
input v f32[8,8] cp:S(0)
program
  kt = transpose(k, dim0=0, dim1=1)
  s0 = block_scores(q, kt)
  send k to cp+1 ring batch a
  send v to cp+1 ring batch a
  recv k1: f32[4,8] from cp-1 ring batch a
  recv v1: f32[4,8] from cp-1 ring batch a
  o0, l0 = attention_block(q, k, v)
  o1, l1 = attention_block(q, k1, v1)
- o = add(o0, o1)
+ o, l = merge_lse(o0, l0, o1, l1)
""",
    ),
    *pair(
        "keys and values gathered over tp instead of cp",
        "attention-over-local-keys gather-of-unsharded",
        """
mesh cp=2 tp=2
input q f32[2,4,8,16] cp:S(2) tp:S(1)
input k f32[2,4,8,16] cp:S(2) tp:S(1)
input v f32[2,4,8,16] cp:S(2) tp:S(1)
program
- kf = all-gather(k, dim=1) over tp
- vf = all-gather(v, dim=1) over tp
- qf = all-gather(q, dim=1) over tp
- o = scaled_dot_product_attention(qf, kf, vf)
+ kf = all-gather(k, dim=2) over cp
+ vf = all-gather(v, dim=2) over cp
+ o = scaled_dot_product_attention(q, kf, vf)
""",
    ),
    *pair(
        "router's best experts chosen among a shard of them",
        "choice-over-shards",
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
    *pair(
        "a convolution over shards of the sequence",
        "scan-over-shards",
        """
mesh cp=2
weight k f32[16,1,4]
input x f32[2,16,20] cp:S(2)
program
- c: f32[2,16,10] = conv1d(x, k, padding="same", groups=16)
+ f: f32[2,16,20] = all-gather(x, dim=2) over cp
+ c: f32[2,16,20] = conv1d(f, k, padding="same", groups=16)
""",
    ),
    *pair(
        "labels shifted after they were split",
        "scan-over-shards",
        """
mesh cp=2
input tokens i64[2,16]
program
- own: i64[2,8] = chunk(tokens, dim=1) over cp
- labels = roll(own, -1, 1)
+ next = roll(tokens, -1, 1)
+ labels: i64[2,8] = chunk(next, dim=1) over cp
""",
    ),
    *pair(
        "a merged block and another one added",
        "ring-attention-parts-summed",
        """
mesh cp=4
input q f32[2,16,8] cp:S(1)
input k f32[2,16,8] cp:S(1)
input v f32[2,16,8] cp:S(1)
program
  o0, l0 = flash_attn(q, k, v)
  send k to cp+1 ring batch a
  send v to cp+1 ring batch a
  recv k1: f32[2,4,8] from cp-1 ring batch a
  recv v1: f32[2,4,8] from cp-1 ring batch a
  b1, m1 = flash_attn(q, k1, v1)
  o1, l1 = merge_by_log_sum_exp(o0, l0, b1, m1)
  send k1 to cp+1 ring batch b
  send v1 to cp+1 ring batch b
  recv k2: f32[2,4,8] from cp-1 ring batch b
  recv v2: f32[2,4,8] from cp-1 ring batch b
  b2, m2 = flash_attn(q, k2, v2)
- o2 = add(o1, b2)
+ o2, l2 = merge_by_log_sum_exp(o1, l1, b2, m2)
  send k2 to cp+1 ring batch c
  send v2 to cp+1 ring batch c
  recv k3: f32[2,4,8] from cp-1 ring batch c
  recv v3: f32[2,4,8] from cp-1 ring batch c
  b3, m3 = flash_attn(q, k3, v3)
- o = add(o2, b3)
+ o, l = merge_by_log_sum_exp(o2, l2, b3, m3)
""",
    ),
    *pair(
        "keys gathered, values not",
        "attention-over-local-keys",
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
        "causal attention of a shard of the queries to all keys",
        "scan-over-shards",
        """
mesh cp=2
input q f32[1,2,8,4] cp:S(2)
input k f32[1,2,8,4] cp:S(2)
input v f32[1,2,8,4] cp:S(2)
buffer m bool[8,8]
program
  kg = all-gather(k, dim=2) over cp
  vg = all-gather(v, dim=2) over cp
- o = scaled_dot_product_attention(q, kg, vg, is_causal=True)
+ seen = chunk(m, dim=0) over cp
+ o = scaled_dot_product_attention(q, kg, vg, seen)
""",
    ),
    *pair(
        "rows gathered in two chunks and joined chunk by chunk",
        "wrong-placement-claim",
        """
mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[8,8] tp:S(0)
output y f32[8,16] tp:S(1)
program
  n = relu(x)
  a = slice(n, 0, 0, 2)
  b = slice(n, 0, 2, 4)
  ga = all-gather(a, dim=0) over tp
  gb = all-gather(b, dim=0) over tp
  p = linear(ga, w)
  q = linear(gb, w)
- y = cat([p, q], dim=0)
+ a0, a1 = split(p, 2, dim=0)
+ b0, b1 = split(q, 2, dim=0)
+ y = cat([a0, b0, a1, b1], dim=0)
""",
    ),
)
