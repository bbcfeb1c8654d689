"""Pairs that are run on random numbers: every pair that ships agrees, and a difference decides what nothing else does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shared import ROOT

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import PARALLEL as SPLIT
from tests.equivalence.verdicts.test_text_plans import REFERENCE as WHOLE
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.numbers import run_both, run_sizes
from tvlint.equivalence.verdict.numbers.closeness import is_close
from tvlint.equivalence.verdict.numbers.compare import compare_runs
from tvlint.equivalence.verdict.numbers.outcome import NO_NUMBER, Agreement, Difference, NotRun
from tvlint.equivalence.verdict.numbers.rounding import with_rounding
from tvlint.equivalence.verdict.numbers.whole_values import random_numbers
from tvlint.equivalence.verdict.pairing import Case, pair
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ir.operators import Compute, Literal
from tvlint.run.proof.pair import Pair, Plans, read_pair

pytestmark = pytest.mark.usefixtures("without_repairs")

CLEAN = [(path, path.with_name("reference.plan")) for path in sorted(ROOT.glob("fixtures/clean/*/parallel.plan"))]
CLEAN += [(ROOT / "fixtures/clean/generated-code", ROOT / "fixtures/clean/generated-code/reference.plan")]
CLEAN += [(ROOT / "fixtures/tour/dp2-tp2.plan", ROOT / "fixtures/tour/single.plan")]
CLEAN += [(ROOT / f"fixtures/nnscaler/folders/{name}", Path()) for name in ("mlp--hybrid_pp2_tp2_dp2", "moe--hybrid_pp2_tp2")]


@pytest.mark.parametrize(
    ("parallel", "reference"), sampled_tuples(CLEAN, 3), ids=lambda path: path.parent.name + "/" + path.name
)
def test_the_pairs_that_ship_agree(parallel: Path, reference: Path) -> None:
    found = read_pair(Pair(str(parallel), str(reference) if reference.name else ""))
    assert isinstance(found, Plans), found
    assert isinstance(on_numbers_of(found.kinds[0], found.reference), Agreement)


def test_a_broken_pair_differs_where_its_first_value_does() -> None:
    found = read_pair(Pair(str(ROOT / "fixtures/tour/dp2-tp2-broken.plan"), str(ROOT / "fixtures/tour/single.plan")))
    assert isinstance(found, Plans)
    assert isinstance(on_numbers_of(found.kinds[0], found.reference), Difference)


PARALLEL, REFERENCE = (text.replace("softmax(y, dim=1)", "tanh(y)") for text in (SPLIT, WHOLE))

OPEN = "m = tril(h)\n  a = gelu(m)"
"""An operator that the reference does not have, which nothing else decides."""


def _with_tril(text: str) -> str:
    return text.replace("a = gelu(h)", OPEN).replace("dh = backward a (da)", "dm = backward a (da)\n  dh = backward m (dm)")


def test_a_difference_refutes_what_nothing_else_decides() -> None:
    verdict = verdict_on(_with_tril(REFERENCE), REFERENCE)
    assert verdict.outcome is Outcome.REFUTED
    assert [reason.name for reason in verdict.reasons if reason.refutes] == ["other-numbers"]
    assert "in 3 runs on random numbers: off by" in verdict.reasons[0].message
    assert verdict.stages.refuted == 1


def test_a_difference_is_told_at_the_first_result_that_is_not_the_reference_s_of_that_name() -> None:
    wrong = REFERENCE.replace("s = tanh(y)", "t = tril(y)\n  s = tanh(t)")
    wrong = wrong.replace("dy = backward s (ds)", "dt = backward s (ds)\n  dy = backward t (dt)")
    parallel, reference = plans(wrong, REFERENCE)
    found = on_numbers_of(parallel, reference)
    assert isinstance(found, Difference)
    assert found.first is not None
    assert found.first[0] == "s"


def test_what_ranks_return_alike_is_compared_with_the_whole() -> None:
    whole = "input x f32[4,4]\ninput w f32[4,4]\noutput y\nprogram\n  z = matmul(x, w)\n{}  y = relu({})\n"
    hidden = '  o = ones([4, 4], dtype="bool")\n  u = triu(o, 0)\n  n = masked_fill(z, u, -inf)\n'
    verdict = verdict_on("mesh tp=2\n" + whole.format(hidden, "n"), whole.format("", "z"))
    assert verdict.outcome is Outcome.REFUTED
    reason = "`y`, returned on every rank, is another one in 3 runs on random numbers"
    assert any(reason in each.message for each in verdict.reasons if each.refutes)


def test_numbers_that_are_too_large_on_the_way_refute_nothing() -> None:
    """`tanh` by its definition is no number from 710 on, where the powers of both are too large.

    So is the logarithm of what data never are: what gives no number on random ones is left open.
    """
    whole = "input x f32[4,64]\nweight w f32[4,64]\nloss l\nprogram\n  c = mul(x, 1000)\n{}\n  y = mul(q, w)\n  l = sum(y)\n"
    whole += "  dy = backward l (grad(l))\n  _, dw = backward y (dy)\n"
    powers = "  n = neg(c)\n  e = exp(c)\n  f = exp(n)\n  g = sub(e, f)\n  h = add(e, f)\n  q = div(g, h)"
    verdict = verdict_on(whole.format(powers), whole.format("  q = tanh(c)"))
    assert verdict.outcome is not Outcome.REFUTED
    assert not any("no number" in each.message for each in verdict.reasons)


@pytest.mark.parametrize(
    ("spelled", "at"), [("a = silu(x)", "e = tril(b)"), ("s = sigmoid(x)\n  a = mul(x, s)", "d = tanh(g)")]
)
def test_a_difference_stands_at_the_first_open_operator_behind_what_is_the_reference_s(spelled: str, at: str) -> None:
    """Another spelling before a result that is the reference's is no cause of one that is not."""
    whole = "input x f32[4,4]\ninput w f32[4,4]\noutput y f32[4,4] replicated\nprogram\n"
    reference = f"{whole}  a = silu(x)\n  b = matmul(a, w)\n  c = gelu(b)\n  d = tanh(c)\n  y = relu(d)\n"
    parallel = reference.replace("a = silu(x)", spelled).replace("(c)", "(g)")
    verdict = verdict_on(parallel.replace("c = gelu(b)", "e = tril(b)\n  f = gelu(e)\n  g = mul(f, 1.5)"), reference)
    assert (verdict.outcome, verdict.reasons[0].name) == (Outcome.REFUTED, "other-numbers")
    assert verdict.reasons[0].location.text.strip() == at
    assert "the first result that is not the reference's of that name is `d`" in verdict.reasons[0].message


@pytest.mark.parametrize(("share", "is_run"), [(5, True), (7, False)])
def test_a_plan_whose_sizes_cannot_be_smaller_is_run_with_several_times_as_many_numbers(
    share: int, is_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = REFERENCE.replace("s = tanh(y)", "t = tanh(y)\n  s = mul(t, 2)")
    pair_of_plans = plans(doubled.replace("dy = backward s (ds)", "dt = backward s (ds)\n  dy = backward t (dt)"), REFERENCE)
    monkeypatch.setattr(run_sizes, "_MOST_NUMBERS", run_sizes.size_of(pair_of_plans[0]) // share)
    assert isinstance(on_numbers_of(*pair_of_plans), Difference if is_run else NotRun)


def _with_cast(text: str, short: str, dtype: str) -> str:
    text = text.replace("a = gelu(h)", f'c: {short}[8,16] = to(h, dtype="{dtype}")\n  f: f32[8,16] = float(c)\n  a = gelu(f)')
    return text.replace("dh = backward a (da)", "df = backward a (da)\n  dc = backward f (df)\n  dh = backward c (dc)")


def test_agreement_is_told_and_decides_nothing() -> None:
    verdict = verdict_on(_with_cast(REFERENCE, "f64", "float64"), REFERENCE)
    assert verdict.outcome is Outcome.UNKNOWN
    assert ("agrees with the reference on", "3 runs on random numbers") in verdict.facts


@pytest.mark.parametrize(
    ("operator", "outcome"),
    [
        ("floor(w)", Outcome.UNKNOWN),
        ("gelu(w)", Outcome.REFUTED),
        ("unflatten(w, 0, [2, -1])", Outcome.REFUTED),
    ],
)
def test_a_multiple_of_a_gradient_that_is_zero_is_no_other_one(operator: str, outcome: Outcome) -> None:
    reference = f"weight w f32[4]\nloss l\nprogram\n  a = {operator}\n  b = square(a)\n  l = sum(b)\n"
    back = "  db = backward l (grad(l))\n  da = backward b (db)\n  grad(w) = backward a (da)\n"
    twice = back.replace("a (da)", "a (d)").replace("  grad", "  d = all-reduce(da) over dp\n  grad")
    verdict = verdict_on("mesh dp=2\n" + reference + twice, reference + back)
    assert (verdict.outcome, verdict.reasons[0].name) == (outcome, "wrong-gradient-scale")


@pytest.mark.parametrize(("short", "dtype"), [("bf16", "bfloat16"), ("f16", "float16")])
@pytest.mark.parametrize("kind", ["nnscaler-pickle", "plan-text"])
def test_a_cast_that_the_graph_does_not_have_rounds_and_one_of_mixed_precision_may_be_meant(
    kind: str, short: str, dtype: str
) -> None:
    parallel, reference = (replace(plan, format=kind) for plan in plans(_with_cast(REFERENCE, short, dtype), REFERENCE))
    verdict = prove(parallel, reference)
    messages = [reason.message for reason in verdict.reasons]
    if kind == "plan-text":
        assert verdict.outcome is Outcome.UNKNOWN, messages
        assert ("agrees with the reference on", "3 runs on random numbers") in verdict.facts
    else:
        assert verdict.outcome is Outcome.REFUTED
        assert f"rounds to {dtype}" in messages[0]


def test_what_a_cast_keeps_of_a_number_is_what_its_type_has_digits_for() -> None:
    """Of 1 + 2**-7, `bfloat16` keeps all digits, and of 1 + 2**-8 it keeps the 1."""
    found = with_rounding(*plans(_with_cast(REFERENCE, "bf16", "bfloat16"), REFERENCE))
    assert found is not None
    plan, dtype = found
    assert dtype == "bfloat16"
    factor = next(
        operand.value
        for segment in plan.segments.values()
        for operator in segment.operators
        if isinstance(operator, Compute) and operator.outputs == ("c.scaled",)
        for operand in operator.inputs
        if isinstance(operand, Literal)
    )
    assert isinstance(factor, int)
    kept = [factor * number - (factor * number - number) for number in (1 + 2**-7, 1 + 2**-8, 1 + 2**-7 + 2**-9, -3.0)]
    assert kept == [1 + 2**-7, 1.0, 1 + 2**-7, -3.0]


NARROW = {
    "a weight of the plan": ("weight w1 f32", "weight w1 bf16", REFERENCE),
    "a value of the reference": ("", "", _with_cast(REFERENCE, "bf16", "bfloat16").replace("gelu(f)", "gelu(h)")),
}


@pytest.mark.parametrize("name", NARROW)
def test_a_cast_shows_nothing_where_other_numbers_are_as_narrow(name: str) -> None:
    before, after, reference = NARROW[name]
    plan = _with_cast(REFERENCE, "bf16", "bfloat16").replace(before, after)
    assert with_rounding(*plans(plan, reference)) is None


INCONCLUSIVE = {
    "the plan writes out how weights are updated": (
        "_, grad(w1), grad(b1) = backward h (dh)\n",
        "_, grad(w1), grad(b1) = backward h (dh)\n  w2 = sub(w2, grad(w2))\n",
    ),
}


@pytest.mark.parametrize("why", INCONCLUSIVE)
def test_a_difference_shows_nothing_where_numbers_may_not_be_what_the_plan_is_for(why: str) -> None:
    wrong = _with_tril(REFERENCE)
    assert isinstance(on_numbers_of(*plans(wrong, REFERENCE)), Difference)
    before, after = INCONCLUSIVE[why]
    assert before in wrong
    assert on_numbers_of(*plans(wrong.replace(before, after), REFERENCE)) == NotRun(why)


UNDIVIDED = "_, grad(w1), grad(b1) = backward h (dh)\n  reduce-gradients w1, b1, w2 over self divide unknown\n"


def test_a_multiple_shows_nothing_where_a_plan_does_not_say_by_what_it_divides() -> None:
    doubled = REFERENCE.replace("s = tanh(y)", "t = tanh(y)\n  s = mul(t, 2)")
    doubled = doubled.replace("dy = backward s (ds)", "dt = backward s (ds)\n  dy = backward t (dt)")
    assert isinstance(on_numbers_of(*plans(doubled, REFERENCE)), Difference)
    backward = "_, grad(w1), grad(b1) = backward h (dh)\n"
    found = on_numbers_of(*plans(doubled.replace(backward, UNDIVIDED), REFERENCE))
    assert isinstance(found, NotRun)
    assert found.why.startswith("the plan does not say by what it divides the gradient of `")
    assert isinstance(on_numbers_of(*plans(_with_tril(REFERENCE).replace(backward, UNDIVIDED), REFERENCE)), Difference)


ATTENTION = """
weight w f32[8,8]
input x f32[2,4,8]
input m bool[4,4]
loss l
program
  q = linear(x, w)
  o = scaled_dot_product_attention(q, q, q, m)
  t = tanh(o)
  l = sum(t)
"""
CAUSAL = ATTENTION.replace("(q, q, q, m)", "(q, q, q, is_causal=True)")
ROWS = """
weight w f32[8,8]
input x f32[8,8]
input p i64[8]
loss l
program
  i = index_select(x, 0, p)
  h = linear(i, w)
  t = tanh(h)
  l = sum(t)
"""
IN_ORDER = ROWS.replace("index_select(x, 0, p)", "detach(x)")
HALVES = """
weight w f32[8,8]
buffer c f32[8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  k = mul(c, 1)
  m = mul(h, k)
  t = tanh(m)
  l = sum(t)
"""
FIRST_HALF = HALVES.replace("k = mul(c, 1)", "a, b = chunk(c, 2, dim=0)\n  k = cat([a, a], dim=0)")
TRIANGLE = HALVES.replace("buffer c f32[8]", "buffer c f32[8,8]")
LOWER = TRIANGLE.replace("m = mul(h, k)", "m = tril(h)")
OF_A_MODEL = {
    "a table of equal halves": (FIRST_HALF, HALVES, "the plans agree where buffers hold equal halves"),
    "a causal mask in a buffer": (
        LOWER,
        TRIANGLE,
        "the plans agree where buffers hold what is multiplied for a causal mask",
    ),
    "a mask that is causal": (CAUSAL, ATTENTION, "one of the plans does not read `m`"),
    "a mask that is causal, and read for something else": (
        CAUSAL.replace("  t = tanh(o)", "  n = logical_not(m)\n  t = tanh(o)"),
        ATTENTION,
        "the plans agree where flags are a causal mask",
    ),
    "rows in order": (IN_ORDER, ROWS, "one of the plans does not read `p`"),
    "rows in order, and read for something else": (
        IN_ORDER.replace("  h = ", "  k = add(p, 1)\n  h = "),
        ROWS,
        "the plans agree where whole numbers are positions in the last dimension",
    ),
}


@pytest.mark.parametrize("name", OF_A_MODEL)
def test_a_difference_shows_nothing_where_an_input_may_be_no_data(name: str) -> None:
    plan, reference, why = OF_A_MODEL[name]
    plan, reference = with_backward(plan), with_backward(reference)
    assert on_numbers_of(*reversed(plans(reference, plan))) == NotRun(why)
    assert verdict_on(plan, reference).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("name", OF_A_MODEL)
def test_a_proof_is_held_against_any_numbers(name: str) -> None:
    plan, reference, _ = OF_A_MODEL[name]
    parallel, alone = reversed(plans(with_backward(reference), with_backward(plan)))
    assert isinstance(on_numbers_of(parallel, alone, any_numbers=True), Difference)


@pytest.mark.parametrize("reference", [HALVES, ATTENTION, ROWS], ids=["a table", "a mask", "an order"])
def test_a_difference_that_no_content_explains_refutes(reference: str) -> None:
    wrong = reference.replace("  l = sum(t)", "  u = triu(t)\n  l = sum(u)")
    verdict = verdict_on(with_backward(wrong), with_backward(reference))
    assert [reason.name for reason in verdict.reasons if reason.refutes] == ["other-numbers"]


def test_tokens_and_classes_are_data() -> None:
    reference = with_backward(TOKENS)
    found = verdict_on(with_backward(TOKENS.replace("  h = linear(e, w)", "  d = tril(e)\n  h = linear(d, w)")), reference)
    assert [reason.name for reason in found.reasons if reason.refutes] == ["other-numbers"]


TOKENS = """
weight v f32[8,8]
weight w f32[8,8]
input x i64[8]
input y i64[8]
loss l
program
  e = embedding(x, v)
  h = linear(e, w)
  r = view(y, [8]) || none
  l = cross_entropy(h, r, reduction="sum")
"""


def test_what_is_proved_is_run_on_request() -> None:
    parallel, reference = plans(PARALLEL, REFERENCE)
    agrees = ("agrees with the reference on", "3 runs on random numbers")
    assert agrees not in prove(parallel, reference).facts
    assert agrees in prove(parallel, reference, replay=True).facts


def test_a_proved_pair_that_differs_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    parallel, reference = plans(PARALLEL, REFERENCE)
    other = Difference("w1", (0, 1), 1.0, 2.0, None)
    monkeypatch.setattr(run_both, "run_both", lambda case, any_numbers: other)
    verdict = prove(parallel, reference, replay=True)
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reasons[0].name == "other-numbers"
    assert not verdict.reasons[0].refutes


SQUARED = """
weight w f32[4,6]
input x f32[4,6]
loss l
program
  t = mul(w, x)
  s = SQUARE
  l: f32[] = sum(s)
  grad(s) = backward l (grad(l))
  GRADIENTS = backward s (grad(s))
  grad(w), _ = backward t (grad(t))
"""


def _squared(square: str, gradients: str) -> str:
    return SQUARED.replace("SQUARE", square).replace("GRADIENTS", gradients)


@pytest.mark.parametrize("division", ["", "div(s, 3)", "div(s, 0)"])
def test_a_factor_of_a_value_in_the_place_of_another_refutes_nothing(division: str) -> None:
    """Both operands of a product have the gradient's name, where the reference has one gradient of a square."""
    parallel, reference = _squared("mul(t, t)", "grad(t), grad(t)"), _squared("square(t)", "grad(t)")
    if division:
        parallel, reference = (
            with_backward(text.partition("  grad(s)")[0].replace("sum(s)", "sum(d)").replace("  l:", f"  d = {division}\n  l:"))
            for text in (parallel, reference)
        )
    assert verdict_on(parallel, reference).outcome is Outcome.PROVED
    half = parallel.replace("grad(t), grad(t)", "grad(t), _")
    assert half != parallel
    assert verdict_on(half, reference).outcome is not Outcome.PROVED


def test_numbers_that_are_none_on_the_way_decide_nothing() -> None:
    """The smaller of a number and what is none is none; that it is summed to a number says nothing of the plan."""
    text = "weight w f32[4,6]\nloss l\nprogram\n  a = sub(w, 100)\n  p = pow(a, 1.5)\n  {}\n"
    text += "  m = minimum(p, c)\n  l: f32[] = sum(m)\n"
    parallel = with_backward(text.format("c = clamp(w, max=1, min=0)"))
    reference = with_backward(text.format("q = square(w)\n  s = sqrt(q)\n  c = clamp(s, max=1, min=0)"))
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "other-numbers" not in {reason.name for reason in verdict.reasons}


CAUSAL = "mesh dp=2\nweight q f32[4,4]\ninput x f32[4,4,4]{placed}\nloss l\nprogram\n  a = linear(x, q)\n{mask}"
HIDDEN = "  c = arange(4) || none\n  r = unsqueeze(c, 1) || none\n  m = {compare}(c, r) || none\n"
TRIANGLE = (
    "  n = ones([4, 4]) || none\n  u = triu(n, diagonal={diagonal}) || none\n"
    '  f = to(u, dtype="bool") || none\n  m = logical_not(f) || none\n'
)
MASKS = [(HIDDEN.format(compare=compare), compare == "le") for compare in ("le", "lt", "ge")]
MASKS += [(TRIANGLE.format(diagonal=diagonal), diagonal == 1) for diagonal in (1, 2)]


def test_a_mask_of_flags_hides_what_is_not_set() -> None:
    whole = CAUSAL.format(placed="", mask="  o = scaled_dot_product_attention(a, a, a, is_causal=True)\n")
    other = with_backward(whole.removeprefix("mesh dp=2\n") + "  s = pow(o, 2)\n  l: f32[] = sum(s)\n")
    last = "  s = pow(o, 2)\n  k: f32[] = sum(s)\n  l = all-reduce(k) over dp\n  end reduce-gradients q over dp\n"
    for mask, is_right in MASKS:
        masked = mask + "  o = scaled_dot_product_attention(a, a, a, m)\n"
        text = with_backward(CAUSAL.format(placed=" dp:S(0)", mask=masked) + last)
        reference, made = plans(other, text)
        assert isinstance(on_numbers_of(made, reference), Agreement) is is_right
        expected = Outcome.PROVED if is_right else Outcome.REFUTED
        assert verdict_on(text, other).outcome is expected


IGNORING = """
weight w f32[8,4]
input x f32[6,4]
input t i64[6]
loss l f32[]
program
  y = linear(x, w)
  l = cross_entropy(y, t, reduction="sum", ignore_index=0)
  end update w
"""


def test_a_difference_that_few_data_show_is_looked_for() -> None:
    """Whether a target is ignored shows where there is one of its class."""
    parallel, reference = plans(with_backward(IGNORING.replace("ignore_index=0", "ignore_index=3")), with_backward(IGNORING))
    verdict = prove(parallel, reference)
    assert (verdict.outcome, verdict.reasons[0].name) == (Outcome.REFUTED, "other-numbers")


def test_an_input_that_no_plan_reads_hides_no_difference() -> None:
    unread = REFERENCE.replace("loss l", "input p i64[8]\nloss l", 1)
    assert unread != REFERENCE
    verdict = verdict_on(_with_tril(unread), unread)
    assert [reason.name for reason in verdict.reasons if reason.refutes] == ["other-numbers"]


def test_exchanged_layers_of_hundreds_of_rows_are_run() -> None:
    weights = "weight a f32[520,520]\nweight b f32[520,520]\ninput x f32[2,520]\nloss l\nprogram\n"
    layers = weights + "h = linear(x, a)\ny = linear(h, b)\nl: f32[] = sum(y)\n"
    exchanged = layers.replace("linear(x, a)", "linear(x, b)").replace("linear(h, b)", "linear(h, a)")
    assert verdict_on(with_backward(exchanged), with_backward(layers)).outcome is Outcome.REFUTED


STARTS_AT_A_PART = """mesh tp=2
weight w f32[8,6] tp:S(0)
input x f32[4,6]
loss l
gradient gp f32[] grad-of p
gradient gu f32[4,4] grad-of u
program
h = linear(x, w)
a, u = multiref(h, times=2)
k = argmax(u, dim=1)
z = tanh(a)
p: f32[] = sum(z)
l: f32[] = all-reduce(p) over tp
g1 = identity(gp)
dz = backward p (g1)
da = backward z (dz)
dh = backward a (da, gu)
_, grad(w) = backward h (dh)
"""
STARTS_AT_THE_SUM = """weight w f32[8,6]
input x f32[4,6]
loss l
program
h = linear(x, w)
z = tanh(h)
l: f32[] = sum(z)
dz = backward l (grad(l))
dh = backward z (dz)
_, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize(
    ("before", "after", "agrees"), [("", "", True), ("identity(gp)", "mul(gp, 2)", False), ("(da, gu)", "(da, da)", False)]
)
def test_a_gradient_starts_at_a_part_of_the_loss_and_is_zero_where_nothing_is_differentiated(
    before: str, after: str, agrees: bool
) -> None:
    found = on_numbers_of(*plans(STARTS_AT_A_PART.replace(before, after) if before else STARTS_AT_A_PART, STARTS_AT_THE_SUM))
    assert isinstance(found, Agreement if agrees else Difference)


VIEWED = """weight w f32[12,6]
input x f32[5,6]
loss l
program
h: f32[5,12] = linear(x, w)
v: f32[5,2,6] = {view}
r: f32[5,6] = sum(v, dim=1)
t = tanh(r)
l: f32[] = sum(t)
"""


@pytest.mark.parametrize(
    "view", ["view(h, [5,2,6])", "view(h, [5,2,-1])", "flatten(h, 0, 1)", "view(h, [2,5,6])", "view(h, 60)"]
)
def test_a_plan_is_not_run_in_shapes_that_its_operators_do_not_give(view: str) -> None:
    plan, reference = (VIEWED.format(view=each) for each in (view, "view(h, [5,2,6])"))
    found = on_numbers_of(*plans(with_backward(plan), with_backward(reference)))
    assert isinstance(found, Agreement if "5,2," in view else NotRun)


ACTIVATED = "weight w f32[12,6]\ninput x f32[5,6]\nloss l\nprogram\nh: f32[5,12] = linear(x, w)\n{}\nl: f32[] = sum(t)\n"
HALVED = "end m = mul(grad(w), 0.5)\nend w = sub(w, m)"
WRITTEN_OTHERWISE = {
    "another function": ("t = tanh(h)", "t = gelu(h)"),
    "another shape": ("v: f32[12,5] = view(h, [6,10])\nt = gelu(v)", "v: f32[12,5] = view(h, [12,5])\nt = gelu(v)"),
    "another function before a step": ("t = tanh(h)\n" + HALVED, "t = gelu(h)\n" + HALVED),
    "the same before a step": ("t = gelu(h)\n" + HALVED, "t = gelu(h)\n" + HALVED),
    "the same": ("t = gelu(h)", "t = gelu(h)"),
}


@pytest.mark.parametrize("name", WRITTEN_OTHERWISE)
def test_a_pass_that_writes_a_plan_otherwise_does_not_hide_what_it_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pass is wrong, the plans as they are written are run: here it writes the reference's operators for the plan's."""
    plan, reference = plans(*(with_backward(ACTIVATED.format(lines)) for lines in WRITTEN_OTHERWISE[name]))
    wrong = lambda each: replace(each, segments=reference.segments) if each is plan else each  # noqa: E731
    monkeypatch.setattr("tvlint.equivalence.verdict.prove.without_needless_casts", wrong)
    monkeypatch.setattr("tvlint.equivalence.verdict.prove.without_repeated_runs", lambda each: each)
    verdict = prove(plan, reference)
    named = {"another shape": ["wrong-shape-claim"]}.get(name, [] if "same" in name else ["other-numbers"])
    assert verdict.outcome is (Outcome.UNKNOWN if named else Outcome.PROVED)
    assert [reason.name for reason in verdict.reasons] == named


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("one", "other", "close"),
    [
        ([1.0, -np.inf], [1.0, -np.inf], True),
        ([1.0, -np.inf], [1.5, -np.inf], False),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([1.0, 2.0], [1.0, np.inf], False),
        ([1.0, np.nan], [1.0, np.nan], False),
        ([1.0, 2.0], [1.0, 2.0 + 1e-9], True),
    ],
)
def test_an_infinite_number_is_close_to_itself_alone(one: list[float], other: list[float], close: bool) -> None:
    assert is_close(np.array(one), np.array(other), float(np.abs(np.array(other)).max())) == close


BOUNDED = "weight w f32[8,8]\ninput x f32[4,8]\nloss l f32[]\nprogram\nh = linear(x, w)\n{made}l: f32[] = mean(z)\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("c = clamp(h, -7.0, 7.0)\nz = sin(c)\n", "c = clamp(h, -7.0)\nz = sin(c)\n"),
        ("z = clamp(h, max=6.0)\n", "z = clamp(h, max=60.0)\n"),
        ("z = relu6(h)\n", "z = relu(h)\n"),
        ("b = le(h, 5.0) || none\nz = where(b, h, 0.0)\n", "z = identity(h)\n"),
    ],
)
def test_a_bound_shows_on_numbers_that_reach_it(one: str, other: str) -> None:
    verdict = verdict_on(with_backward(BOUNDED.format(made=other)), with_backward(BOUNDED.format(made=one)))
    assert verdict.outcome is Outcome.REFUTED, verdict.facts
    assert verdict.reasons[0].name in ("other-numbers", "other-constant")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("z = softmax(h, dim=-1)\n", "e = exp(h)\ns = sum(e, -1, keepdim=True)\nz = div(e, s)\n"),
        ("z = logsumexp(h, -1)\n", "e = exp(h)\ns = sum(e, -1)\nz = log(s)\n"),
        ("z = sigmoid(h)\n", "n = neg(h)\ne = exp(n)\ns = add(e, 1.0)\nz = reciprocal(s)\n"),
        ("z = F.logsigmoid(h)\n", "n = neg(h)\ns = F.softplus(n)\nz = neg(s)\n"),
        (
            "z = F.layer_norm(h, [8])\n",
            "u = mean(h, -1, keepdim=True)\nq = mul(h, h)\nm = mean(q, -1, keepdim=True)\nv = mul(u, u)\nd = sub(m, v)\n"
            "e = add(d, 1e-5)\nr = rsqrt(e)\nc = sub(h, u)\nz = mul(c, r)\n",
        ),
    ],
)
def test_what_rounds_otherwise_on_large_numbers_is_not_refuted(one: str, other: str) -> None:
    verdict = verdict_on(with_backward(BOUNDED.format(made=other)), with_backward(BOUNDED.format(made=one)))
    assert verdict.outcome is not Outcome.REFUTED, verdict.reasons


def test_numbers_that_are_too_large_for_their_type_show_nothing() -> None:
    """The power of e of a large score is infinite, its logarithm too, and what is left of a softmax is zero."""
    head = "weight w f32[8,8]\ninput x f32[4,8]\nloss l\nprogram\nh = linear(x, w)\n"
    tail = "z = tanh(y)\nl: f32[1] = sum(z)\n"
    written = "e = exp(h)\ns = sum(e, dim=-1, keepdim=True)\nj = log(s)\nk = sub(h, j)\ny = exp(k)\n"
    case = pair(*plans(with_backward(head + written + tail), with_backward(head + "y = softmax(h, dim=-1)\n" + tail)))
    assert isinstance(case, Case)
    assert isinstance(compare_runs(case, random_numbers(0, 8)), Agreement)
    with np.errstate(over="raise"):
        assert compare_runs(case, random_numbers(0, 8, spread=100.0)) == NO_NUMBER
