"""What plans claim of shapes, placements and regions, and what follows of them."""

from __future__ import annotations

from tests.scenarios.scenario import pair

SCENARIOS = (
    *pair(
        "expert results kept where the experts are",
        "wrong-placement-claim",
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
        "one rank scales its shard otherwise",
        "divergent-replicas",
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
        "one replica uses another activation",
        "divergent-replicas",
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
        "one replica uses another piecewise activation",
        "divergent-replicas",
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
    *pair(
        "a result stated twice as long",
        "wrong-shape-claim",
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
        "keys and values of fewer heads than ranks, packed with the queries",
        "shards-not-divisible",
        """
mesh tp=4
-weight qkv f32[22,8] tp:S(0, parts=[16,4,2])
+weight qkv f32[24,8] tp:S(0, parts=[16,4,4])
input x f32[4,8]
program
  z = linear(x, qkv)
""",
    ),
)
