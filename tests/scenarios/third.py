"""Duals of collectives in backward, values that cross segments and pipeline stages, qualified names, micro-batch handles."""

from __future__ import annotations

from tests.scenarios.scenario import correct, pair

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
        "backward of a reduce-scatter without its all-gather", "mismatched-shards contraction-of-mismatched-shards"
        " missing-dual",
        _sp(gather="+ dp = all-gather(dy, dim=0) over tp\n+ da, grad(w2) = backward p (dp)\n"
            "- da, grad(w2) = backward p (dy)"),
        ("tp=2", "tp=4"),
    ),
    *pair(
        "backward of an all-gather as an all-reduce", "mismatched-shards wrong-placement-claim missing-dual",
        _sp(scatter="- dn = all-reduce(df) over tp\n+ dn = reduce-scatter(df, dim=0) over tp"),
        ("tp=2", "dp=2 tp=2"),
    ),
    *pair(
        "backward of an all-gather twice", "allreduce-of-shards",
        _sp(scatter="- d0 = reduce-scatter(df, dim=0) over tp\n- dn = all-reduce(d0) over tp\n"
            "+ dn = reduce-scatter(df, dim=0) over tp"),
        ("tp=2", "pp=2 tp=2"),
    ),
    *pair(
        "backward reduce-scatter over the data axis", "wrong-collective-group allreduce-of-shards mismatched-shards"
        " reduce-scatter-of-replicated missing-gradient-reduction",
        _sp(scatter="- dn = reduce-scatter(df, dim=0) over dp\n+ dn = reduce-scatter(df, dim=0) over tp"),
        ("dp=2 tp=2",),
    ),
    *pair(
        "gradient of a sequence-to-head exchange not exchanged back", "mismatched-shards wrong-placement-claim missing-dual"
        " gradient-sharded-unlike-weight contraction-of-mismatched-shards",
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
        "partial sum sent to the next pipeline stage", "partial-through-nonlinear missing-allreduce",
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
        "partial sum leaves its segment", "partial-through-nonlinear missing-allreduce",
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
        "qualified names", "partial-through-nonlinear",
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
        "named communicators over the wrong ranks", "wrong-collective-group missing-collective-member",
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
        "two tensors of one layer swapped in a pipeline's receive", "mismatched-message misordered-message",
        """
mesh pp=2 tp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  h = linear(x, w)
  send h to pp+1
  send x to pp+1
program pp=1
- recv x2: f32[4,8] from pp-1
- recv h: f32[4,8] from pp-1
- y = add(h, x2)
+ recv h: f32[4,8] from pp-1
+ recv x2: f32[4,8] from pp-1
+ y = add(h, x2)
""",
    ),
    *pair(
        "one micro-batch fewer on the second pipeline stage", "unmatched-send",
        """
mesh pp=2
micro-batches 3
weight w f32[8,8]
weight u f32[8,8]
input x f32[4,8]
segment f0 forward stage 0 (x) -> (h)
  h = linear(x, w)
  send h to pp+1
segment f1 forward stage 1 () -> (y)
  recv h: f32[4,8] from pp-1
  y = linear(h, u)
program pp=0
  run f0 micro-batch 0-2
program pp=1
- run f1 micro-batch 0-1
+ run f1 micro-batch 0-2
""",
    ),
    *pair(
        "handle of the other micro-batch", "missing-wait unknown-handle handle-never-waited",
        """
mesh pp=2
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
segment f0 forward stage 0 (x) -> ()
  send x to pp+1
segment prefetch forward stage 1 () -> (h)
  recv h: f32[4,8] from pp-1 async r
segment f1 forward stage 1 (h) -> (y)
+ wait r
  y = linear(h, w)
segment finish forward stage 1
  wait r
program pp=0
  run f0 micro-batch 0-1
program pp=1
  run prefetch micro-batch 0
  run prefetch micro-batch 1
  run f1 micro-batch 0
  run f1 micro-batch 1
- run finish micro-batch 0
- run finish micro-batch 1
""",
    ),
    *pair(
        "in-place activation of a tensor that is being gathered", "buffer-in-flight",
        """
mesh tp=2
weight w f32[8,8] tp:S(0)
input x f32[4,8]
program
  h = linear(x, w)
  g = all-gather(h, dim=1) over tp async ag
- relu_(h!)
  wait ag
+ relu_(h!)
""",
    ),
    *pair(
        "reduce-scatter into a storage that is still read", "buffer-in-flight",
        """
mesh tp=2
input a f32[8,8] tp:P
tensor s f32[4,8] storage pool
tensor t f32[4,8] storage pool
tensor u f32[4,8] storage other
program
  s = reduce-scatter(a, dim=0) over tp
  g = all-gather(s, dim=0) over tp async ag
- t = reduce-scatter(a, dim=0) over tp
+ u = reduce-scatter(a, dim=0) over tp
  wait ag
""",
    ),
    *pair(
        "expert results kept where the experts are", "wrong-placement-claim",
        """
mesh ep=2
weight w f32[8,16,16] ep:S(0)
input slots f32[8,6,16] ep:S(1)
output y f32[8,6,16] ep:S(1)
program
  d = all-to-all(slots, dim=0, concat-dim=1) over ep
- y = bmm(d, w)
+ e = bmm(d, w)
+ y = all-to-all(e, dim=1, concat-dim=0) over ep
""",
    ),
    *pair(
        "tokens not dispatched to sharded experts", "mismatched-shards",
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
        "optimizer states sharded, step on the whole weight", "state-of-another-shard mismatched-shards"
        " gradient-sharded-unlike-weight",
        """
mesh dp=2
weight w f32[8,8] dp:S(1)
state m f32[8,8] dp:S(0)
+ state m1 f32[8,8] dp:S(1)
input d f32[8,8] dp:P
program
  g = reduce-scatter(d, dim=1) over dp
- sgd_momentum(w!, g, m!)
+ sgd_momentum(w!, g, m1!)
""",
    ),
    *pair(
        "momentum of another rank's shard in written-out arithmetic", "state-of-another-shard mismatched-shards",
        """
mesh dp=2
weight w f32[8,8] dp:S(0)
+ state m f32[8,8] dp:S(0)
- state m f32[8,8] dp:S(0, order=[[1],[0]])
input d f32[8,8] dp:P
program
  g = reduce-scatter(d, dim=0) over dp
  a = mul(m, 0.9)
  b = add(a, g)
  c = mul(b, 0.01)
  n = sub(w, c)
""",
    ),
    *pair(
        "written-out optimizer step on a gradient of one rank", "missing-gradient-reduction",
        """
mesh dp=2
weight w f32[8,8]
state m f32[8,8]
input x f32[4,8] dp:S(0)
input dl f32[4,8] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
+ r = all-reduce avg(g) over dp
+ adam_step(w!, r, m!)
- adam_step(w!, g, m!)
""",
    ),
    *pair(
        "parameters of the next step gathered before this one's update", "gathered-before-update",
        """
mesh dp=2
weight w f32[16,8] dp:S(0)
input x f32[4,8] dp:S(0)
input dl f32[4,16] dp:S(0)
program
  full = all-gather(w, dim=0) over dp
  y = linear(x, full)
  _, d = backward y (dl)
  grad(w) = reduce-scatter(d, dim=0) over dp
- next = all-gather(w, dim=0) over dp
  update w
+ next = all-gather(w, dim=0) over dp
  z = linear(x, next)
""",
    ),
    *pair(
        "use before the receive", "use-before-definition",
        """
mesh pp=2
weight w f32[8,8]
input x f32[4,8]
program pp=0
  send x to pp+1
program pp=1
- y = linear(h, w)
  recv h: f32[4,8] from pp-1
+ y = linear(h, w)
""",
    ),
    *pair(
        "replicated gradient averaged after a sum", "wrong-gradient-scale",
        """
mesh dp=2 cp=2
weight w f32[8,8]
input x f32[4,6,8] dp:S(0) cp:S(1)
loss l
program
  y = linear(x, w)
  l = mean(y)
  dy = backward l (grad(l))
  _, g = backward y (dy)
- a = all-reduce(g) over cp
+ a = all-reduce avg(g) over cp
  grad(w) = all-reduce avg(a) over dp
  update w
""",
    ),
    *pair(
        "loss divided by the micro-batches twice", "wrong-gradient-scale wrong-loss-scale",
        """
mesh dp=2
micro-batches 4
weight w f32[8,8]
input x f32[6,8] dp:S(0)
loss l
segment fwd forward (x) -> (y, m, l)
  y = linear(x, w)
  m = mean(y)
  l = div(m, 4)
segment bwd backward mirror fwd (x, y, m, l) -> (grad(w))
  dm = backward (grad(l)) of l = div(m, 4)
  dy = backward (dm) of m = mean(y)
  _, grad(w) = backward (dy) of y = linear(x, w)
segment step optimizer
- reduce-gradients w over dp divide 8
+ reduce-gradients w over dp divide 2
  update w
program
  run fwd micro-batch 0
  run bwd micro-batch 0
  run fwd micro-batch 1
  run bwd micro-batch 1
  run fwd micro-batch 2
  run bwd micro-batch 2
  run fwd micro-batch 3
  run bwd micro-batch 3
  run step
""",
    ),
    *pair(
        "vocabulary-parallel target logit not summed", "missing-allreduce partial-through-nonlinear mismatched-shards",
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
        "lm head of a sequence shard with vocabulary shards", "mismatched-shards",
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
    *correct(
        "replicated router, sharded experts, weighted combine",
        """
mesh ep=2
weight router f32[4,16]
weight w f32[4,16,16] ep:S(0)
input x f32[8,16] ep:S(0)
program
  l = linear(x, router)
  p = softmax(l, dim=-1)
  v, i = topk(p, k=2)
  t: f32[4,4,16] = permute_tokens(x, i)
  d = all-to-all(t, dim=0, concat-dim=1) over ep
  e = bmm(d, w)
  c = all-to-all(e, dim=1, concat-dim=0) over ep
  y: f32[4,16] = unpermute_tokens(c, i, v)
  z = add(y, x)
""",
    ),
    *correct(
        "gradient scattered along the weight's second dimension",
        """
mesh dp=2
weight w f32[8,16] dp:S(1)
input x f32[8,16] dp:S(0)
input dl f32[8,8] dp:S(0)
program
  full = all-gather(w, dim=1) over dp
  y = linear(x, full)
  _, d = backward y (dl)
  grad(w) = reduce-scatter(d, dim=1) over dp
  update w
""",
    ),
    *correct(
        "tensor-parallel gradient norm of replicated and sharded weights",
        """
mesh tp=2
weight g f32[8]
weight w f32[16,8] tp:S(0)
program
  a = mul(w, w)
  sa = sum(a)
  ta = all-reduce(sa) over tp
  b = mul(g, g)
  sb = sum(b)
  s = add(ta, sb)
  n = sqrt(s)
""",
    ),
    *correct(
        "two sub-groups of a world by ranks",
        """
mesh tp=4
input x f32[4,8] local
program ranks 0,1
  y = all-reduce(x) over ranks 0,1
program ranks 2,3
  y = all-reduce(x) over ranks 2,3
""",
    ),
    *correct(
        "fp32 accumulation of micro-batches, scattered in fp32",
        """
mesh dp=2
weight w bf16[8,8]
buffer main_grad f32[8,8]
input x bf16[4,8] dp:S(0)
input dl bf16[4,8] dp:S(0)
program
  y = linear(x, w)
  _, g = backward y (dl)
  accumulate(main_grad!, g)
  s: f32[4,8] = reduce-scatter(main_grad, dim=0) over dp
  adam_step(s)
""",
    ),
)
