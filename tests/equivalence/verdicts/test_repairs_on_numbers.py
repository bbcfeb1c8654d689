"""Edits of whole statements that runs on numbers find and a proof confirms, for all ranks that run the statement."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.numbers.repair import repaired_on_numbers
from tvlint.equivalence.verdict.pairing import Case, pair
from tvlint.findings import Outcome

HEAD = "weight w f32[8,4]{rows}\nweight g f32[8]{rows}\nweight v f32[4,8]{columns}\ninput x f32[6,4]\nloss l\n"
LOSS = "s = pow(y, 2)\nl: f32[] = sum(s)\n"
REFERENCE = (
    HEAD.format(rows="", columns="") + "program\nz = linear(x, w)\nn = rms_norm(z, [8], g, 1e-06)\ny = linear(n, v)\n" + LOSS
)
PARALLEL = (
    "mesh tp=2\n" + HEAD.format(rows=" tp:S(0)", columns=" tp:S(1)") + "program\nz = linear(x, w)\nz2 = pow(z, 2)\n"
    "q0 = sum(z2, dim=-1, keepdim=True)\nq = all-reduce(q0) over tp || {x} = all-reduce({y}) over tp\nqm = div(q, 8)\n"
    "qe = add(qm, 1e-06)\niv = rsqrt(qe)\nn0 = mul(z, iv)\nn = mul(n0, g)\ny0 = linear(n, v)\ny = all-reduce(y0) over tp\n"
    + LOSS
)
EACH = "weight w f32[8,4]\ninput x f32[6,4]{placed}\ninput t f32[6,8]{placed}\nloss l\nprogram\nz = linear(x, w)\n"
ONE = EACH.format(placed="") + "d = sub(z, t)\nd2 = mul(d, d)\nl: f32[] = mean(d2)\n"
REPLICAS = (
    "mesh dp=2\n"
    + EACH.format(placed=" dp:S(0)")
    + "d = sub(z, t)\nd2 = square(d)\na: f32[] = sum(d2)\nk: f32[] = div(a, 24)\n"
    "l: f32[] = all-reduce avg(k) over dp\nend reduce-gradients w over dp by avg\n"
)

HEADS = (
    "weight wq f32[16,6]{rows}\nweight wo f32[6,16]{columns}\ninput cs f32[5,4]\ninput sn f32[5,4]\n"
    "input x f32[2,5,6]\nloss l\nprogram\n"
)
TURNED = """p = linear(x, wq)
v = view(p, size=[2,5,{heads},4])
q = transpose(v, dim0=1, dim1=2)
x1, x2 = torch.chunk(q, chunks=2, dim=-1)
x3 = neg(x2)
r = cat([x3, x1], dim=-1)
qc = mul(q, cs)
rs = mul(r, sn)
e = add(qc, rs)
k = mul(e, 0.5)
a = scaled_dot_product_attention(k, q, q, is_causal=True)
t = transpose(a, dim0=1, dim1=2)
f: f32[2,5,{width}] = reshape(t, size=[2,5,{width}])
g = gelu(f)
"""
ROTARY = HEADS.format(rows="", columns="") + TURNED.format(heads=4, width=16) + "y = linear(g, wo)\n" + LOSS
ON_TWO = (
    "mesh tp=2\n"
    + HEADS.format(rows=" tp:S(0)", columns=" tp:S(1)")
    + TURNED.format(heads=2, width=8)
    + "y0 = linear(g, wo)\ny = all-reduce(y0) over tp\n"
    + LOSS
)
GATE = "weight w0 f32[6,6]\nweight w f32[8,6]{rows}\nweight v f32[6,4]{columns}\ninput x f32[5,6]\nloss l\nprogram\n"
UP = "n0 = linear(x, w0)\nn = tanh(n0)\n"
GATED = (
    GATE.format(rows="", columns="") + UP + "h = linear(n, w)\nk = view(h, size=[5,4,2])\na, b = unbind(k, 2)\nc = silu(a)\n"
    "m = mul(c, b)\ny = linear(m, v)\n" + LOSS
)
GATES = (
    "mesh tp=2\n"
    + GATE.format(rows=" tp:S(0)", columns=" tp:S(1)")
    + UP
    + "i = copy(n) over tp\nh = linear(i, w)\nk = view(h, size=[5,2,2])\na = select(k, 2, 0)\nb = select(k, 2, 1)\n"
    + "c = silu(a)\nm = mul(c, b)\ny0 = linear(m, v)\ny = all-reduce(y0) over tp\n"
    + LOSS
)

TWICE = (
    "weight w0 f32[6,6]\nweight w1 f32[2,6]\ninput x f32[6,6]{placed}\nloss l\nprogram\n"
    "h = linear(x, w0)\nz = tanh(h)\ny = linear(z, w1)\n"
)
TWO = TWICE.format(placed="") + "d2 = mul(y, y)\nl: f32[] = mean(d2)\n"
TWO_REPLICAS = (
    "mesh dp=2\n"
    + TWICE.format(placed=" dp:S(0)")
    + "d2 = mul(y, y)\nk: f32[] = mean(d2)\nl: f32[] = all-reduce avg(k) over dp\n"
    "end reduce-gradients w0, w1 over dp by avg\n"
)

SMOOTHED = "weight w f32[8,6]\ninput x f32[4,6]\ninput t i64[4]\nloss l\nprogram\ns = linear(x, w)\nl: f32[] = {loss}\n"
SMOOTH = SMOOTHED.format(loss="cross_entropy(s, t, label_smoothing=0.1)")
COUNTED = SMOOTHED.format(loss="cross_entropy(s, t, ignore_index=-100)")
WITH_LIKELIHOODS = (
    "mesh dp=2\n" + SMOOTHED.replace("[4,6]", "[4,6] dp:S(0)").replace("[4]", "[4] dp:S(0)").partition("l: f32")[0]
)
SMOOTHS = (
    WITH_LIKELIHOODS
    + "p = log_softmax(s, dim=-1)\nu = unsqueeze(t, 1) || none\ng = gather(p, 1, u)\nq = squeeze(g, 1)\nm = mean(p, dim=-1)\n"
    "a = mul(q, 0.9)\nb = mul(m, 0.1)\nr0 = add(a, b)\nr = neg(r0)\nl0: f32[] = mean(r)\nl = all-reduce avg(l0) over dp\n"
    "end reduce-gradients w over dp by avg\n"
)
COUNTS = (
    WITH_LIKELIHOODS + 'm = ne(t, -100) || none\nt0 = where(m, t, 0) || none\nr = cross_entropy(s, t0, reduction="none")\n'
    "f = float(m) || none\nk = mul(r, f)\na: f32[] = sum(k)\nc: f32[] = sum(f) || none\nn = all-reduce(c) over dp || none\n"
    "b = div(a, n)\nl = all-reduce(b) over dp\nend reduce-gradients w over dp\n"
)
SCORES = HEADS.replace("input cs f32[5,4]\ninput sn f32[5,4]\n", "").format(rows="", columns="")
WITH_BIAS = (
    "p = linear(x, wq)\nv = view(p, size=[2,5,4,4])\nq = transpose(v, dim0=1, dim1=2)\n"
    "i = arange(5) || none\nj = float(i) || none\n"
)
ATTENDED = (
    "k = transpose(q, 2, 3)\ns0 = matmul(q, k)\nd = mul(s0, 0.5)\nc = add(d, j)\no = softmax(c, dim=-1)\na = matmul(o, q)\n"
)
REST = "g = tanh(a)\nt = transpose(g, dim0=1, dim1=2)\nf: f32[2,5,16] = reshape(t, size=[2,5,16])\ny = linear(f, wo)\n" + LOSS
BIASED = SCORES + WITH_BIAS + "a = scaled_dot_product_attention(q, q, q, j)\n" + REST
BIASES = SCORES + WITH_BIAS + ATTENDED + REST

MISTAKES = [
    (COUNTED, COUNTS, "ne(t, -100)", "ne(t, 0)", "use -100 instead of 0 in `ne`"),
    (BIASED, BIASES, "add(d, j)", "sub(d, j)", "use `add` instead of `sub`"),
    (REFERENCE, PARALLEL, "qm = div(q, 8)", "qm = div(q, 4)", "use 8 instead of 4 in `div`"),
    (REFERENCE, PARALLEL, "qe = add(qm, 1e-06)", "qe = add(qm, 1)", "use 1e-06 instead of 1 in `add`"),
    (ONE, REPLICAS, "div(a, 24)", "div(a, 48)", "use 24 instead of 48 in `div`"),
    (ONE, REPLICAS, "over dp by avg", "over dp", "reduce gradients by `avg`"),
    (ONE, REPLICAS, "end reduce-gradients w over dp by avg\n", "", "reduce the gradients of `w` over `dp` by `avg`"),
    (
        TWO,
        TWO_REPLICAS,
        "end reduce-gradients w0, w1 over dp by avg\n",
        "",
        "reduce the gradients of `w0` and of 1 more over `dp` by `avg`",
    ),
    (ROTARY, ON_TWO, "cat([x3, x1]", "cat([x1, x3]", "exchange `x1` and `x3` in `cat`"),
    (ROTARY, ON_TWO, "neg(x2)", "neg(x1)", "use `x2` instead of `x1` in `neg`"),
    (ROTARY, ON_TWO, "x1, x2 =", "x2, x1 =", "exchange `x2` and `x1` in `chunk`"),
    (ROTARY, ON_TWO, "is_causal=True", "is_causal=False", "make `a` with `scaled_dot_product_attention` as the reference does"),
    (ROTARY, ON_TWO, "add(qc, rs)", "sub(qc, rs)", "use `add` instead of `sub`"),
    (ROTARY, ON_TWO, "y = all-reduce(y0) over tp", "y = identity(y0)", "all-reduce `y0` over `tp` after `linear`"),
    (SMOOTH, SMOOTHS, "mul(q, 0.9)", "mul(q, 1.0)", "use 0.9 instead of 1.0 in `mul`"),
    (GATED, GATES, "select(k, 2, 0)", "select(k, 2, 1)", "use 0 instead of 1 in `select`"),
    (GATED, GATES, "i = copy(n) over tp", "i = identity(n)", "reduce the gradients of `w0` over `tp`"),
]


@pytest.mark.parametrize(
    ("reference", "right", "before", "after", "words"), sampled_tuples(MISTAKES, 3), ids=[own[4] for own in MISTAKES]
)
def test_a_wrong_statement_is_mended_on_all_ranks(reference: str, right: str, before: str, after: str, words: str) -> None:
    assert verdict_on(with_backward(right), with_backward(reference)).outcome is Outcome.PROVED
    assert before in right
    verdict = verdict_on(with_backward(right.replace(before, after)), with_backward(reference))
    assert verdict.outcome is Outcome.REFUTED
    assert [reason.repair for reason in verdict.reasons if reason.repair] == [words]


def test_what_no_single_edit_mends_has_no_repair() -> None:
    wrong = PARALLEL.replace("qm = div(q, 8)", "qm = div(q, 4)").replace("add(qm, 1e-06)", "add(qm, 0.5)")
    verdict = verdict_on(with_backward(wrong), with_backward(REFERENCE))
    assert verdict.outcome is Outcome.REFUTED
    assert not any(reason.repair for reason in verdict.reasons)


def test_what_is_not_proved_is_no_repair() -> None:
    parallel, reference = plans(with_backward(PARALLEL.replace("div(q, 8)", "div(q, 4)")), with_backward(REFERENCE))
    case = pair(parallel, reference)
    assert isinstance(case, Case)
    assert repaired_on_numbers(case, lambda changed: False) is None
