"""Plans of mistakes that people make, each with its right twin: `{{wrong|right}}`."""

from __future__ import annotations

import re

import pytest

from tests.builders.plan_findings import findings_of_text, rules_of_text
from tvlint.findings import Severity

_CHOICE = re.compile(r"\{\{(.*?)\|(.*?)\}\}", re.DOTALL)

STEPS = """mesh dp=2
weight a f32[8,8]
weight b f32[8,8]
state ma f32[8,8] replicated of a
state mb f32[8,8] replicated of b
input x f32[8,8] dp:S(0)
loss l f32[] dp:P
program dp=0
  h = linear(x, a)
  k = linear(h, b)
  l = sum(k)
  dk = backward l (grad(l))
  dh, gb = backward k (dk)
  _, ga = backward h (dh)
  ra = all-reduce(ga) over dp
  rb = all-reduce(gb) over dp
"""

OWNERS = STEPS + (
    """  ca = mul(ra, 0.1)
  na = sub(a, ca)
  A = broadcast(na, root=0) over dp
  B = broadcast(b, root={{0|1}}) over dp
  copy_(a!, A)
  copy_(b!, B)
"""
    + STEPS[STEPS.index("program") :].replace("dp=0", "dp=1")
    + """  cb = mul(rb, 0.1)
  nb = sub(b, cb)
  A = broadcast(a, root=0) over dp
  B = broadcast(nb, root={{0|1}}) over dp
  copy_(a!, A)
  copy_(b!, B)
"""
)

MASTERS = (
    STEPS.replace(" dp=0", "")
    + """  na = sub(ma, ra)
  nb = sub(mb, rb)
  copy_(ma!, na)
  copy_(mb!, nb)
  copy_(a!, {{nb|na}})
  copy_(b!, {{na|nb}})
"""
)

AVERAGE = """mesh dp=2
weight w f32[8,8]
state e f32[8,8] dp:S(0) of w
input x f32[8,8] dp:S(0)
loss l f32[] dp:P
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, g = backward h (dh)
  grad(w) = all-reduce(g) over dp
  update w
  v: f32[4,8] = {{narrow(w, 0, 0, 4)|chunk(w, dim=0) over dp}}
  a = mul(e, 0.99)
  b = mul(v, 0.01)
  n = add(a, b)
  copy_(e!, n)
"""

SLOPES = """mesh tp=2
weight wq f32[16,8] tp:S(0)
buffer sl f32[4]
input x f32[4,8]
output y f32[4,4,4] tp:S(0)
program
  q0 = linear(x, wq)
  q1 = view(q0, [4,2,4])
  q = transpose(q1, 0, 1)
  kt = transpose(q, 1, 2)
  s = matmul(q, kt)
  m: f32[2] = {{narrow(sl, 0, 0, 2)|chunk(sl, dim=0) over tp}}
  mv = view(m, [2,1,1])
  y: f32[2,4,4] = add(s, mv)
"""

ADAPTER = """mesh tp=2
weight w f32[16,8] tp:S(0) frozen
weight a f32[2,8]
weight b f32[16,2]
input x f32[4,8]
output y f32[4,16] tp:S(1)
program
  c: f32[8,2] = {{narrow(b, 0, 0, 8)|chunk(b, dim=0) over tp}}
  h = linear(x, w)
  z = linear(x, a)
  v = linear(z, c)
  y: f32[4,8] = add(h, v)
"""

ZIG_ZAG = """mesh cp=2
buffer cos f32[8,4]
input x f32[8,4] cp:S(0, order=[[0,3],[1,2]])
output y f32[8,4] cp:S(0, order=[[0,3],[1,2]])
program cp=0
  c0: f32[2,4] = narrow(cos, 0, 0, 2)
  c1: f32[2,4] = narrow(cos, 0, {{2|6}}, 2)
  c = cat([c0, c1], dim=0)
  y = mul(x, c)
program cp=1
  c0: f32[2,4] = narrow(cos, 0, {{4|2}}, 2)
  c1: f32[2,4] = narrow(cos, 0, {{6|4}}, 2)
  c = cat([c0, c1], dim=0)
  y = mul(x, c)
"""

VOCABULARY = """mesh tp=2
weight e f32[32,8] tp:S(0)
input ids i64[4]
output y f32[4,8]
program tp=0
  below = lt(ids, 0)
  above = ge(ids, 16)
  out = logical_or(below, above)
  i0 = sub(ids, 0)
  i = masked_fill(i0, out, 0)
  h = embedding(i, e)
  ou = unsqueeze(out, -1)
  q = masked_fill(h, ou, 0.0)
  y = all-reduce(q) over tp
program tp=1
  below = lt(ids, 16)
  above = ge(ids, 32)
  out = logical_or(below, above)
  i0 = sub(ids, 16)
  i = masked_fill(i0, out, 0)
  h = embedding(i, e)
  ou = unsqueeze(out, -1)
  q = masked_fill(h, ou, 0.0)
  y = all-reduce(q) over tp
"""

FACTORS = """mesh dp=2 tp=2
weight e f32[32,8] tp:S(0)
input ids i64[8] dp:S(0)
output y f32[8,8] dp:S(0) tp:S(0)
program tp=0
  in = lt(ids, 16)
  i = mul(ids, in)
  h = embedding(i, e)
  iu = unsqueeze(in, -1)
  q = mul(h, iu)
  y: f32[2,8] = reduce-scatter(q, dim=0) over tp
program tp=1
  in = ge(ids, {{17|16}})
  i0 = sub(ids, 16)
  i = mul(i0, in)
  h = embedding(i, e)
  iu = unsqueeze(in, -1)
  q = where(iu, h, 0.0)
  y: f32[2,8] = reduce-scatter(q, dim=0) over tp
"""

TOKENS = """mesh ep=2
weight w f32[8,8]
input x f32[8,8] ep:S(0)
loss l f32[] ep:P
program
  t: f32[4,8] = all-to-all(x, dim=0) over ep
  e = linear(t, w)
  l = sum(e)
  de = backward l (grad(l))
  _, g = backward e (de)
  grad(w) = {{identity(g)|all-reduce(g) over ep}}
  update w
"""

EXPERTS = """mesh ep=2
weight w f32[2,8,8] ep:S(0)
input x f32[8,8] ep:S(0)
loss l f32[] ep:P
program
  t: f32[4,8] = all-to-all(x, dim=0) over ep
  k = my_experts(t, w)
  q = exp(k)
  l = sum(q)
  dq = backward l (grad(l))
  dk = backward q (dq)
  _, g = backward k (dk)
  grad(w) = {{all-reduce(g) over ep|identity(g)}}
  update w
"""

OVERFLOW = """mesh tp=2
weight w f32[16,8] tp:S(0)
input x f32[4,8]
loss l f32[] tp:P
program
  h = linear(x, w)
  l = sum(h)
  dh = backward l (grad(l))
  _, g = backward h (dh)
  m = abs(g)
  f = amax(m)
  F = {{identity(f)|all-reduce max(f) over tp}}
  ok = lt(F, 65504.0)
  c = mul(g, 0.1)
  u = sub(w, c)
  n = where(ok, u, w)
  copy_(w!, n)
"""

CHUNKS = """mesh pp=2
weight a f32[8,8]
weight b f32[8,8]
weight c f32[8,8]
weight d f32[8,8]
input x f32[4,8]
output y f32[4,8]
program pp=0
  h0 = linear(x, a)
  send h0 to pp+1
  recv h1: f32[4,8] from pp+1
  h2 = linear({{h0|h1}}, c)
  send h2 to pp+1
program pp=1
  recv h0: f32[4,8] from pp-1
  h1 = linear(h0, b)
  send h1 to pp-1
  recv h2: f32[4,8] from pp-1
  y = linear(h2, d)
"""

ROWS = """mesh ep=2
weight w f32[2,8,8] ep:S(0)
input x f32[12,8] ep:S(0)
output y f32[12,8] ep:S(0)
program ep=0
  d: f32[5,8] = all-to-all(x, dim=0, splits=[3,3], receive-splits=[3,2]) over ep
  W = squeeze(w, 0)
  h = matmul(d, W)
  y: f32[6,8] = all-to-all(h, dim=0, splits={{[2,3]|[3,2]}}, receive-splits={{[2,4]|[3,3]}}) over ep
program ep=1
  d: f32[7,8] = all-to-all(x, dim=0, splits=[2,4], receive-splits=[3,4]) over ep
  W = squeeze(w, 0)
  h = matmul(d, W)
  y: f32[6,8] = all-to-all(h, dim=0, splits={{[4,3]|[3,4]}}, receive-splits={{[3,3]|[2,4]}}) over ep
"""

DISCRIMINATOR = """mesh dp=2
weight g f32[8,8]
weight d f32[8,8]
input z f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
loss ld f32[] dp:P
loss lg f32[] dp:P
program
  f = linear(z, g)
  a = linear(x, d)
  c = linear(x, d)
  ea = exp(a)
  fa = exp(c)
  pa = add(ea, fa)
  ld = sum(pa)
  dpa = backward ld (grad(ld))
  dea, dfa = backward pa (dpa)
  da = backward ea (dea)
  dc = backward fa (dfa)
  _, gd1 = backward a (da)
  _, {{_|gd2}} = backward c (dc)
  gd = {{identity(gd1)|add(gd1, gd2)}}
  b = linear(f, d)
  lg = sum(b)
  db = backward lg (grad(lg))
  df, _ = backward b (db)
  _, gg = backward f (df)
  grad(d) = all-reduce(gd) over dp
  grad(g) = all-reduce(gg) over dp
  update d, g
"""


POSITIONS = """mesh cp=2 tp=2
buffer cos f32[8,4]
weight w f32[6,4] tp:S(1)
input x f32[8,4] cp:S(0) tp:S(1)
output y f32[8,6] cp:S(0)
program cp=0
  d = chunk(cos, dim=1) over tp
  c = narrow(d, 0, 0, 4)
  h = mul(x, c)
  p = linear(h, w)
  y = {{gelu(p)|all-reduce(p) over tp}}
program cp=1
  d = chunk(cos, dim=1) over tp
  c = narrow(d, 0, 4, 4)
  h = mul(x, c)
  p = linear(h, w)
  y = {{gelu(p)|all-reduce(p) over tp}}
"""

CHANNELS = """mesh tp=2
weight c1 f32[16,8,3,3] tp:S(0)
weight c2 f32[8,16,3,3] tp:S(1)
weight b f32[1,8,1,1]
input x f32[2,8,6,6]
output y f32[2,8,6,6]
program
  h = conv2d(x, c1, None, 1, 1)
  a = silu(h)
  p = conv2d(a, c2, None, 1, 1)
  r = {{mul(p, 1.0)|all-reduce(p) over tp}}
  y = add(r, b)
"""

NESTED = """mesh dp=2 tp=2
weight g f32[8]
input x f32[8,8] dp:S(0) tp:S(0)
loss l f32[]
program
  n = mul(x, g)
  l0 = sum(n)
  l1 = all-reduce(l0) over tp
  l = all-reduce(l1) over dp
  dn = backward l0 (grad(l))
  _, grad(g) = backward n (dn)
  reduce-gradients g over {{dp|dp,tp}}
  update g
"""


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        pytest.param(POSITIONS, "partial-through-nonlinear", id="a part of a sum behind rows of a table that the rank takes"),
        pytest.param(CHANNELS, "bias-added-to-partial", id="convolutions whose bias is None by position"),
        pytest.param(NESTED, "missing-gradient-reduction", id="a loss that is summed over one axis after the other"),
        pytest.param(
            VOCABULARY.replace(
                "  q = masked_fill(h, ou, 0.0)", "  hm = mul(h, 2.0)\n  q = {{neg(hm)|masked_fill(hm, ou, 0.0)}}"
            ),
            "wrong-range",
            id="scaled rows of other ranks are left",
        ),
        pytest.param(OWNERS, "step-without-effect", id="both weights broadcast from the first owner"),
        pytest.param(MASTERS, "state-of-another-shard", id="weights from each other's masters"),
        pytest.param(AVERAGE, "mismatched-shards", id="average of the first rows on every rank"),
        pytest.param(SLOPES, "mismatched-shards", id="slopes of the first heads on every rank"),
        pytest.param(ADAPTER, "mismatched-shards", id="first rows of an adapter on every rank"),
        pytest.param(ZIG_ZAG, "mismatched-shards", id="rotary rows in plain order for zig-zag tokens"),
        pytest.param(
            VOCABULARY.replace("ge(ids, 16)", "{{gt(ids, 16)|ge(ids, 16)}}", 1), "wrong-range", id="an upper bound included"
        ),
        pytest.param(VOCABULARY.replace("sub(ids, 16)", "sub(ids, {{15|16}})"), "wrong-range", id="an offset of one too few"),
        pytest.param(
            VOCABULARY.replace("lt(ids, 16)", "lt(ids, {{17|16}})"), "wrong-range", id="a lower bound of one too many"
        ),
        pytest.param(
            VOCABULARY.replace("masked_fill(h, ou, 0.0)", "{{view(h, [4, 8])|masked_fill(h, ou, 0.0)}}"),
            "wrong-range",
            id="rows of other ranks are left",
        ),
        pytest.param(FACTORS, "wrong-range", id="a mask as a factor"),
        pytest.param(EXPERTS, "allreduce-of-shards", id="gradients of different experts added up"),
        pytest.param(OVERFLOW, "partial-through-nonlinear", id="the overflow of a shard skips its step"),
        pytest.param(CHUNKS, "weight-without-effect", id="a chunk reads what the chunk before it read"),
        pytest.param(ROWS, "expert-exchange-not-undone", id="rows go back by the splits of others"),
        pytest.param(TOKENS, "missing-gradient-reduction", id="an exchange that names one dimension"),
        pytest.param(DISCRIMINATOR, "gradient-left-out", id="one of two losses trains a weight alone"),
    ],
)
def test_a_mistake_is_found_and_its_right_twin_has_no_finding(text: str, rule: str) -> None:
    assert rule in rules_of_text(_CHOICE.sub(r"\1", text))
    assert rules_of_text(_CHOICE.sub(r"\2", text)) == set()


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("weight e f32[32,8] tp:S(0)", "weight e f32[32,8] tp:S(1)"),
        ("input ids i64[4]", "input ids i64[8] tp:S(0)"),
        ("  i = masked_fill(i0, out, 0)\n", "  masked_fill_(i0!, out, 0)\n  i = clone(i0)\n"),
        ("below = lt(ids, 0)", "below = lt(ids, 1)"),
        (
            VOCABULARY[VOCABULARY.index("program tp=0") :],
            "program\n  i = view(ids, [4])\n  h = embedding(i, e)\n  y = all-reduce(h) over tp\n",
        ),
    ],
)
def test_a_lookup_is_judged_where_its_rows_and_indices_are_known(was: str, now: str) -> None:
    """Rows that are whole, indices of each rank, memory that changes, and the row of padding say nothing of a range."""
    assert was in VOCABULARY
    assert "wrong-range" not in rules_of_text(VOCABULARY.replace(was, now))


@pytest.mark.parametrize(
    ("was", "now", "severity"),
    [
        ("ge(ids, 32)", "ge(ids, 29)", Severity.WARNING),
        ("ge(ids, 16)", "ge(ids, 13)", Severity.ERROR),
        ("lt(ids, 16)", "lt(ids, 19)", Severity.ERROR),
        ("ge(ids, 32)", "ge(ids, 16)", Severity.ERROR),
    ],
)
def test_the_last_rows_of_a_table_may_be_padding(was: str, now: str, severity: Severity) -> None:
    assert was in VOCABULARY
    found = findings_of_text(VOCABULARY.replace(was, now))
    assert {(finding.rule, finding.severity) for finding in found} == {("wrong-range", severity)}


TURNED = """mesh dp=2
weight w f32[8,8] dp:S(0)
input x f32[8,8] dp:S(0)
loss l
program
  f = all-gather(w, dim=0) over dp
  {}
  h = {}
  l = sum(h)
  dh = backward l (grad(l))
  _, df = backward h (dh)
  {}
  grad(w) = reduce-scatter({}, dim=0) over dp
  update w
"""


def _turned(*parts: str) -> set[str]:
    return {finding.rule for finding in findings_of_text(TURNED.format(*parts)) if finding.severity is Severity.ERROR}


@pytest.mark.parametrize(
    ("parts", "is_right"),
    [
        (("", "linear(x, f)", "", "df"), True),
        (("", "linear(x, f)", "t = transpose(df, 0, 1)", "t"), False),
        (("", "linear(x, f)", "s = mul(df, 1.0)\n  t = transpose(s, 0, 1)", "t"), False),
        (("", "linear(x, f)", "s = transpose(df, 0, 1)\n  t = transpose(s, 0, 1)", "t"), True),
        (("v = transpose(f, 0, 1)", "matmul(x, v)", "t = transpose(df, 0, 1)", "t"), True),
        (("v = transpose(f, 0, 1)", "matmul(x, v)", "t = backward v (df)", "t"), True),
        (("v = transpose(f, 0, 1)", "matmul(x, v)", "", "df"), False),
    ],
)
def test_a_gradient_that_is_transposed_steps_no_weight(parts: tuple[str, ...], is_right: bool) -> None:
    assert _turned(*parts) == (set() if is_right else {"gradient-of-another-tensor"})
