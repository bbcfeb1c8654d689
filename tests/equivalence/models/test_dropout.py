"""Verdicts on plans that draw random numbers: the draws of a plan are matched with those of the reference, never guessed."""

from __future__ import annotations

import pytest
from oracle.compare import compare
from oracle.judge import equal_and_refuted, proved_and_not_equal
from oracle.mutate import mutants

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.ir.plan import Plan
from tvlint.ops.spec import DRAWS
from tvlint.readers.plan_text.reader import read

REFERENCE = """
weight w1 f32[8,4]
weight w2 f32[4,8]
input x f32[4,4]
loss l
program
  h = linear(x, w1)
  d = dropout(h, p=0.25)
  a = gelu(d)
  y = linear(a, w2)
  e = dropout(y, p=0.5)
  t = tanh(e)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  de = backward t (dt)
  dy = backward e (de)
  da, grad(w2) = backward y (dy)
  dd = backward a (da)
  dh = backward d (dd)
  _, grad(w1) = backward h (dh)
"""

TENSOR = """
mesh tp=2
weight w1 f32[8,4] tp:S(0)
weight w2 f32[4,8] tp:S(1)
input x f32[4,4]
loss l
program
  h = linear(x, w1)
  d = dropout(h, p=0.25)
  a = gelu(d)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  e = dropout(y, p=0.5)
  t = tanh(e)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  de = backward t (dt)
  dy = backward e (de)
  da, grad(w2) = backward p (dy)
  dd = backward a (da)
  dh = backward d (dd)
  _, grad(w1) = backward h (dh)
"""

SEQUENCE = (
    TENSOR.replace("y = all-reduce(p) over tp", "y: f32[2,4] = reduce-scatter(p, dim=0) over tp")
    .replace("l: f32[1] = sum(t)", "s: f32[1] = sum(t)\n  l: f32[1] = all-reduce(s) over tp")
    .replace("backward l (", "backward s (")
    .replace("dy = backward e (de)", "ds = backward e (de)\n  dy: f32[4,4] = all-gather(ds, dim=0) over tp")
)

DATA = (
    REFERENCE.replace("weight w1", "mesh dp=2\nmicro-batches 1\nweight w1")
    .replace("x f32[4,4]", "x f32[4,4] dp:S(0)")
    .replace("l: f32[1] = sum(t)", "s: f32[1] = sum(t)\n  l: f32[1] = all-reduce(s) over dp")
    .replace("backward l (", "backward s (")
    + "  reduce-gradients w1, w2 over dp\n"
)

BEFORE_THE_SUM = TENSOR.replace(
    "y = all-reduce(p) over tp\n  e = dropout(y, p=0.5)", "f = dropout(p, p=0.5)\n  e = all-reduce(f) over tp"
)
BEFORE_THE_SUM = BEFORE_THE_SUM.replace("dy = backward e (de)", "dy = backward f (de)")

GOOD = {"tensor": TENSOR, "sequence": SEQUENCE, "data": DATA}


def plan(text: str, name: str = "plan") -> Plan:
    found = read(f"{name}.plan", text).plan
    assert found is not None
    return found


def text_of(verdict: Verdict) -> str:
    return "\n".join(reason.message for reason in verdict.reasons)


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_draws_for_the_elements_of_the_reference_are_its_draws(text: str) -> None:
    verdict = verdict_on(text, REFERENCE)
    assert verdict.outcome is Outcome.PROVED, text_of(verdict)
    assert DRAWS in verdict.assumptions
    assert compare(plan(REFERENCE), plan(text)).outcome == "equal"


def test_a_draw_for_a_partial_sum_is_refuted() -> None:
    verdict = verdict_on(BEFORE_THE_SUM, REFERENCE)
    assert verdict.outcome is Outcome.REFUTED, text_of(verdict)
    assert [reason.name for reason in verdict.reasons if reason.refutes] == ["missing-allreduce"]


@pytest.mark.heavy
@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_no_wrong_mutant_is_proved_and_no_equal_one_refuted(text: str) -> None:
    reference = plan(REFERENCE)
    taken = list(mutants(plan(text)))
    assert not list(proved_and_not_equal(reference, taken))
    assert equal_and_refuted(reference, taken)[1] == []


def outcome_of(parallel: str, reference: str = REFERENCE) -> Outcome:
    return verdict_on(parallel, reference).outcome


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_another_share_is_refuted_by_a_number(text: str) -> None:
    verdict = verdict_on(text.replace("p=0.5", "p=0.125"), REFERENCE)
    assert verdict.outcome is Outcome.REFUTED
    assert "uses 0.125 where the reference uses 0.5" in text_of(verdict)
    assert "it gives" in text_of(verdict)
    assert verdict.reasons[0].repair


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dropout(h, p=0.25)", "identity(h)"),
        ("dropout(h, p=0.25)", "dropout(h, p=0.25, training=False)"),
        ("dropout(h, p=0.25)", "dropout(h, p=0.0)"),
        ("dropout(h, p=0.25)", "mul(h, 1.0)"),
        ("d = dropout(h, p=0.25)", "d0 = dropout(h, p=0.25)\n  d = dropout(h, p=0.25)"),
        ("d = dropout(h, p=0.25)", "d = dropout(h, p=0.25)\n  d1 = dropout(h, p=0.25)\n  d2 = add(d, d1)"),
        ("dh = backward d (dd)", "dh = identity(dd)"),
        ("dropout(y, p=0.5)", "dropout(y, p=0.5, seed=1)"),
        ("dropout(y, p=0.5)", 'dropout(y, p=0.5, training="self.training")'),
    ],
)
def test_other_draws_than_the_reference_s_are_not_proved(old: str, new: str) -> None:
    assert old in TENSOR
    changed = TENSOR.replace(old, new)
    proved = outcome_of(changed) is Outcome.PROVED
    assert proved == ("d2" in new), "an unused draw changes nothing where the first draw is the one that is used"


TWICE = """
weight w f32[4,4]
input x f32[4,4]
loss l
program
  h = linear(x, w)
  a = dropout(h, p=0.5)
  b = dropout(h, p=0.5)
  c = mul(a, FACTOR)
  t = tanh(c)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  dc = backward t (dt)
  BACKWARD
  _, grad(w) = backward h (dh)
"""


def twice(factor: str, backward: str, mesh: str = "") -> str:
    return mesh + TWICE.replace("FACTOR", factor).replace("BACKWARD", backward)


def test_two_draws_for_one_value_are_never_one() -> None:
    both = twice("b", "da, db = backward c (dc)\n  dh = backward a (da)\n  dh = backward b (db)")
    square = twice("a", "da, db = backward c (dc)\n  dh = backward a (da)\n  dh = backward a (db)")
    assert outcome_of(both, both) is Outcome.PROVED
    assert outcome_of(square, square) is Outcome.PROVED
    assert outcome_of(square, both) is not Outcome.PROVED
    assert outcome_of(both, square) is not Outcome.PROVED
    exchanged = both.replace("dh = backward a (da)\n  dh = backward b (db)", "dh = backward b (da)\n  dh = backward a (db)")
    assert outcome_of(exchanged, both) is not Outcome.PROVED


def test_the_gradient_uses_the_draw_of_its_forward_operator() -> None:
    right = TENSOR.replace("dropout(h, p=0.25)", "dropout(h, p=0.25)\n  u = dropout(h, p=0.25)")
    assert outcome_of(right) is Outcome.PROVED
    assert outcome_of(right.replace("dh = backward d (dd)", "dh = backward u (dd)")) is not Outcome.PROVED


def test_ranks_that_draw_in_another_order_are_not_taken_to_draw_alike() -> None:
    two = TWICE.replace("c = mul(a, FACTOR)", "b2 = mul(b, 2.0)\n  c = add(a, b2)").replace(
        "BACKWARD", "da, db2 = backward c (dc)\n  db = backward b2 (db2)\n  dh = backward a (da)\n  dh = backward b (db)"
    )
    head, body = two.split("program\n")
    ranks = [f"program ranks {rank}\n{body}" for rank in range(2)]
    same = "mesh tp=2\n" + head + "".join(ranks)
    assert outcome_of(same, two) is Outcome.PROVED
    lines = "  a = dropout(h, p=0.5)\n  b = dropout(h, p=0.5)\n"
    other = ranks[1].replace(lines, "".join(reversed(lines.splitlines(keepends=True))))
    assert outcome_of("mesh tp=2\n" + head + ranks[0] + other, two) is not Outcome.PROVED


def test_what_is_drawn_again_for_an_element_is_another_draw() -> None:
    again = SEQUENCE.replace(
        "y: f32[2,4] = reduce-scatter(p, dim=0) over tp\n  e = dropout(y, p=0.5)",
        "q = all-reduce(p) over tp\n  whole = dropout(q, p=0.5)\n"
        "  y: f32[2,4] = chunk(q, dim=0) over tp\n  e = dropout(y, p=0.5)",
    )
    assert outcome_of(again) is not Outcome.PROVED, "its elements were drawn for before"


WITHOUT_BATCH = """
weight w f32[4,4]
input x f32[4,4]
loss l
program
  v = dropout(w, p=0.5)
  y = linear(x, v)
  l: f32[1] = sum(y)
  dy = backward l (grad(l))
  _, dv = backward y (dy)
  grad(w) = backward v (dv)
"""


def test_draws_for_a_weight_are_undecided_where_micro_batches_draw_anew() -> None:
    assert outcome_of(WITHOUT_BATCH, WITHOUT_BATCH) is Outcome.PROVED
    head, body = WITHOUT_BATCH.replace("x f32[4,4]", "x f32[2,4]").split("program\n")
    parts = "".join(f"  micro-batch {batch}\n{body}" for batch in range(2))
    verdict = verdict_on(f"micro-batches 2\n{head}program\n{parts}", WITHOUT_BATCH)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "without a batch dimension" in text_of(verdict), text_of(verdict)


ATTENTION = """
weight q f32[2,4,8,2]
weight k f32[2,4,8,2]
weight v f32[2,4,8,2]
input x f32[2,4,8,2]
loss l
program
  a = mul(q, x)
  o = scaled_dot_product_attention(a, k, v, dropout_p=0.25, is_causal=True)
  t = tanh(o)
  l: f32[1] = sum(t)
  dt = backward l (grad(l))
  do = backward t (dt)
  da, grad(k), grad(v) = backward o (do)
  grad(q), _ = backward a (da)
"""


def heads(text: str) -> str:
    """The plan with the heads on two ranks."""
    text = text.replace("f32[2,4,8,2]", "f32[2,4,8,2] tp:S(1)").replace("\nweight q", "\nmesh tp=2\nweight q", 1)
    return text.replace("l: f32[1] = sum(t)", "s: f32[1] = sum(t)\n  l: f32[1] = all-reduce(s) over tp").replace(
        "backward l (", "backward s ("
    )


def test_attention_that_drops_draws_for_its_scores() -> None:
    parallel = heads(ATTENTION)
    verdict = verdict_on(parallel, ATTENTION)
    assert verdict.outcome is Outcome.PROVED, text_of(verdict)
    assert DRAWS in verdict.assumptions
    assert compare(plan(ATTENTION), plan(parallel)).outcome == "equal"
    for old, new in (("dropout_p=0.25", "dropout_p=0.5"), (", dropout_p=0.25", ""), ("is_causal=True", "is_causal=False")):
        assert outcome_of(parallel.replace(old, new), ATTENTION) is not Outcome.PROVED


def test_a_solver_proves_the_annotation_for_whatever_is_drawn() -> None:
    verdict = prove(plan(TENSOR), plan(REFERENCE), solver_seconds=5)
    assert verdict.outcome is Outcome.PROVED
    assert not [text for name, text in verdict.facts if "not decided" in name and "dropout" in text]


def drawn(text: str, first: str, second: str) -> str:
    return text.replace("dropout(h, p=0.25)", f"dropout(h, p=0.25) {first}").replace("p=0.5)", f"p=0.5) {second}")


@pytest.mark.parametrize(
    ("text", "first", "second", "outcome"),
    [
        (TENSOR, "draws over tp", "draws alike", Outcome.PROVED),
        (TENSOR, "draws over tp", "draws over tp", Outcome.REFUTED),
        (TENSOR, "draws alike", "draws alike", Outcome.REFUTED),
        (SEQUENCE, "draws over tp", "draws over tp", Outcome.PROVED),
        (SEQUENCE, "draws over tp", "draws alike", Outcome.REFUTED),
        (DATA, "draws over dp", "draws over dp", Outcome.PROVED),
        (DATA, "draws over dp", "draws alike", Outcome.UNKNOWN),
    ],
)
def test_a_plan_that_says_how_ranks_draw_is_held_to_it(text: str, first: str, second: str, outcome: Outcome) -> None:
    verdict = verdict_on(drawn(text, first, second), REFERENCE)
    assert verdict.outcome is outcome, text_of(verdict)
    assert ("wrong-draws" in [reason.name for reason in verdict.reasons]) is (outcome is not Outcome.PROVED)
    assert verdict_on(text, drawn(REFERENCE, "draws alike", "draws alike")).outcome is Outcome.PROVED


def test_runs_without_drops_do_not_speak_against_draws_of_another_order() -> None:
    forward = REFERENCE[: REFERENCE.index("  dt =")]
    transposed = "q = transpose(h, 0, 1)\n  r = dropout(q, p=0.25)\n  d = transpose(r, 0, 1)"
    plan = forward.replace("d = dropout(h, p=0.25)", transposed)
    assert plan != forward
    assert verdict_on(with_backward(plan), with_backward(forward)).outcome is not Outcome.REFUTED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("h = linear(x, w1)", "r = flip(x, [1])\n  h = linear(r, w1)"),
        ("t = tanh(e)", "n = abs(e)\n  t = tanh(n)"),
        ("a = gelu(d)", "m = roll(d, 1, 1)\n  a = gelu(m)"),
        ("e = dropout(y, p=0.5)", "e = dropout(y, p=0.25)"),
    ],
)
def test_a_difference_that_drops_do_not_make_refutes(before: str, after: str) -> None:
    forward = REFERENCE[: REFERENCE.index("  dt =")]
    verdict = verdict_on(with_backward(forward.replace(before, after)), with_backward(forward))
    assert (verdict.outcome, verdict.reasons[0].name) in {
        (Outcome.REFUTED, "other-numbers"),
        (Outcome.REFUTED, "other-constant"),
    }, verdict.reasons
