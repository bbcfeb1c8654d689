"""Verdicts on small plans in plan text: what is proved, what is refuted, and what stays unknown."""

from __future__ import annotations

import pytest

from tests.builders.used_plans import in_use
from tests.sampling import sampled_tuples
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome, Verdict
from tvlint.readers.plan_text.reader import read

REFERENCE = """
plan "mlp"
weight w1 f32[16,8]
weight b1 f32[16]
weight w2 f32[8,16]
input  x  f32[8,8]
loss l
program
  h = linear(x, w1, b1)
  a = gelu(h)
  y = linear(a, w2)
  s = softmax(y, dim=1)
  l = sum(s)
  ds = backward l (grad(l))
  dy = backward s (ds)
  da, grad(w2) = backward y (dy)
  dh = backward a (da)
  _, grad(w1), grad(b1) = backward h (dh)
"""

PARALLEL = """
plan "tensor- and data-parallel mlp"
mesh dp=2 tp=2
weight w1 f32[16,8] tp:S(0)
weight b1 f32[16]   tp:S(0)
weight w2 f32[8,16] tp:S(1)
input  x  f32[8,8]  dp:S(0)
loss l
program
  h = linear(x, w1, b1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  s = softmax(y, dim=1)
  l0 = sum(s)
  l = all-reduce(l0) over dp
  ds = backward l0 (grad(l))
  dy = backward s (ds)
  da, grad(w2) = backward p (dy)
  dh = backward a (da)
  _, grad(w1), grad(b1) = backward h (dh)
  reduce-gradients w1, b1, w2 over dp
"""


def verdict_on(parallel: str, reference: str = REFERENCE) -> Verdict:
    """Return the verdict on the plans, each without what it leaves unused: a wrong plan is to be seen for what is wrong."""
    plans = [read(path, text).plan for path, text in (("parallel.plan", parallel), ("reference.plan", reference))]
    assert plans[0] is not None
    assert plans[1] is not None
    return prove(in_use(plans[0]), in_use(plans[1]))


def test_the_parallel_mlp_is_proved() -> None:
    verdict = verdict_on(PARALLEL)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("before", "after", "name"),
    sampled_tuples(
        [
            ("y = all-reduce(p) over tp", "y = identity(p)", "missing-allreduce"),
            ("y = all-reduce(p) over tp", "y0 = all-reduce(p) over tp\n  y = all-reduce(y0) over tp", "scaled-value"),
            ("y = all-reduce(p) over tp", "y = all-reduce(p) over dp", "mismatched-shards"),
            ("y = all-reduce(p) over tp", "y = all-reduce max(p) over tp", "wrong-reduce-op"),
            ("softmax(y, dim=1)", "softmax(y, dim=0)", "split-dimension"),
            ("a = gelu(h)", "a = relu(h)", "other-operator"),
            ("weight b1 f32[16]   tp:S(0)", "weight b1 f32[16]", "mismatched-shards"),
            ("reduce-gradients w1, b1, w2 over dp", "reduce-gradients w1, w2 over dp", "missing-gradient-reduction"),
            ("reduce-gradients w1, b1, w2 over dp", "reduce-gradients w1, b1, w2 over dp divide 2", "wrong-gradient-scale"),
            ("reduce-gradients w1, b1, w2 over dp", "reduce-gradients w1, b1, w2 over dp,tp", "mismatched-shards"),
            ("_, grad(w1), grad(b1) = backward h (dh)", "_, grad(w1), _ = backward h (dh)", "missing-gradient"),
            ("l = all-reduce(l0) over dp", "l = identity(l0)", "own-part-returned"),
            ("input  x  f32[8,8]  dp:S(0)", "input  x  f32[8,8]", "wrong-gradient-scale"),
        ],
        3,
    ),
)
@pytest.mark.usefixtures("without_repairs")
def test_one_wrong_line_is_not_proved_and_says_why(before: str, after: str, name: str) -> None:
    assert before in PARALLEL
    verdict = verdict_on(PARALLEL.replace(before, after))
    assert verdict.outcome is not Outcome.PROVED
    assert name in [reason.name for reason in verdict.reasons]


def test_a_softmax_along_another_dimension_is_another_value() -> None:
    swapped = REFERENCE.replace("dim=1", "dim=0")
    verdict = verdict_on(swapped)
    assert verdict.outcome is not Outcome.PROVED


def test_an_operator_that_is_not_in_the_table_is_unknown() -> None:
    unknown = [text.replace("gelu(h)", "mystery(h)") for text in (PARALLEL, REFERENCE)]
    verdict = verdict_on(*unknown)
    assert verdict.outcome is Outcome.UNKNOWN
    assert {reason.name for reason in verdict.reasons} >= {"unsupported-operator"}


def test_operands_of_a_commutative_operator_may_be_exchanged() -> None:
    reference = REFERENCE.replace("a = gelu(h)", "g = gelu(h)\n  a = mul(g, h)").replace(
        "dh = backward a (da)", "dg, dh = backward a (da)\n  dh = backward g (dg)"
    )
    parallel = PARALLEL.replace("a = gelu(h)", "g = gelu(h)\n  a = mul(h, g)").replace(
        "dh = backward a (da)", "dh, dg = backward a (da)\n  dh = backward g (dg)"
    )
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_a_deadlocked_plan_is_refuted() -> None:
    reference = "weight w f32[4,4]\ninput x f32[4,4]\nloss l\nprogram\n  y = linear(x, w)\n  l = sum(y)\n" + (
        "  dy = backward l (grad(l))\n  _, grad(w) = backward y (dy)\n"
    )
    parallel = (
        "mesh pp=2\nweight w f32[4,4]\ninput x f32[4,4]\nloss l\nprogram\n  y = linear(x, w)\n"
        "  recv z: f32[4,4] from pp+1 ring\n  send y to pp+1 ring\n  l = sum(y)\n"
        "  dy = backward l (grad(l))\n  _, grad(w) = backward y (dy)\n"
    )
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is Outcome.REFUTED
    assert {"send-recv-deadlock", "never-completes"} & {reason.name for reason in verdict.reasons}


def test_a_loss_that_is_declared_partial_is_proved_as_the_sum_of_its_parts() -> None:
    declared = PARALLEL.replace("loss l\n", "loss l f32[] dp:P\n").replace("l = all-reduce(l0) over dp", "l = identity(l0)")
    verdict = verdict_on(declared)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


FOLDED = """
plan "folded replicas"
mesh dp=2 tp=2
replicate dp
weight w1 f32[16,8] tp:S(0)
weight b1 f32[16]   tp:S(0)
weight w2 f32[8,16] tp:S(1)
input  x  f32[4,8]
loss l
program ranks 0,1
  h = linear(x, w1, b1)
  a = gelu(h)
  p = linear(a, w2)
  y = all-reduce(p) over tp
  s = softmax(y, dim=1)
  l0 = sum(s)
  l = all-reduce(l0) over dp
  ds = backward l0 (grad(l))
  dy = backward s (ds)
  da, grad(w2) = backward p (dy)
  dh = backward a (da)
  _, grad(w1), grad(b1) = backward h (dh)
  reduce-gradients w1, b1, w2 over dp
"""


def test_replicas_that_are_folded_are_proved_like_replicas_that_are_written_out() -> None:
    verdict = verdict_on(FOLDED)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("w1, b1, w2 over dp", "w1, w2 over dp", "missing-gradient-reduction"),
        ("w1, b1, w2 over dp", "w1, b1, w2 over dp divide 2", "wrong-gradient-scale"),
        ("input  x  f32[4,8]", "input  x  f32[2,8]", "other-batch"),
        ("y = all-reduce(p) over tp", "y = all-reduce(p) over tp,dp", "mismatched-shards"),
    ],
)
@pytest.mark.usefixtures("without_repairs")
def test_one_wrong_line_of_a_folded_plan_is_not_proved(before: str, after: str, name: str) -> None:
    verdict = verdict_on(FOLDED.replace(before, after))
    assert verdict.outcome is not Outcome.PROVED
    assert name in [reason.name for reason in verdict.reasons]


def test_a_plan_that_returns_more_than_its_loss_is_proved() -> None:
    more = [text.replace("loss l\n", "output s\nloss l\n") for text in (PARALLEL, REFERENCE)]
    verdict = verdict_on(more[0].replace("output s\n", "output s f32[8,8] dp:S(0)\n"), more[1])
    assert verdict.outcome is not Outcome.REFUTED, [reason.message for reason in verdict.reasons]


def test_the_repair_of_a_shared_program_names_the_axis() -> None:
    verdict = verdict_on(PARALLEL.replace("y = all-reduce(p) over tp", "y = identity(p)"))
    assert verdict.reasons[0].repair == "all-reduce `p` over `tp` after `linear`"


@pytest.mark.heavy
@pytest.mark.parametrize(("declared", "outcome"), [("dp:P(avg)", Outcome.PROVED), ("dp:P", Outcome.REFUTED)])
def test_a_mean_that_every_replica_returns_of_its_own_part_is_declared_an_average(declared: str, outcome: Outcome) -> None:
    reference = REFERENCE.replace("l = sum(s)", "l = mean(s)")
    parallel = (
        PARALLEL.replace("l0 = sum(s)", "l0 = mean(s)")
        .replace("l = all-reduce(l0) over dp", "l = identity(l0)")
        .replace("loss l\n", f"loss l f32[] {declared}\n")
        .replace("reduce-gradients w1, b1, w2 over dp", "reduce-gradients w1, b1, w2 over dp by avg")
    )
    verdict = verdict_on(parallel, reference)
    assert verdict.outcome is outcome, [reason.message for reason in verdict.reasons]


def test_what_is_returned_is_told_with_its_ranks() -> None:
    verdict = verdict_on(PARALLEL.replace("l = all-reduce(l0) over dp", "l = identity(l0)"))
    (told,) = [reason.message for reason in verdict.reasons if reason.name == "own-part-returned"]
    assert told == "`l`, returned on every rank, is a sum over their own part of the batch, and is not declared to be one"


def test_a_partial_sum_is_told_with_the_axis_that_holds_its_parts_where_that_is_certain() -> None:
    apart = PARALLEL.replace("mesh dp=2 tp=2", "mesh dp=4 tp=2").replace("y = all-reduce(p) over tp", "y = identity(p)")
    reason = verdict_on(apart).reasons[0]
    text = "`p` on every rank is a partial sum over tp of `linear`, over a part of 16 indices; `softmax` uses it as complete"
    assert (reason.message, reason.actual) == (text, "a partial sum over tp, over a part of 16 indices")
    alike = apart.replace("mesh dp=4 tp=2", "mesh cp=2 dp=2 tp=2")
    assert " is a partial sum of `linear`, over a part" in verdict_on(alike).reasons[0].message


@pytest.mark.heavy
def test_a_gradient_is_told_with_the_axis_that_holds_its_parts() -> None:
    reasons = verdict_on(
        PARALLEL.replace("mesh dp=2 tp=2", "mesh tp=2 dp=4").replace("w1, b1, w2 over dp", "b1, w2 over dp")
    ).reasons
    (told,) = {reason.message for reason in reasons if reason.name == "missing-gradient-reduction"}
    assert told.endswith("is a partial sum over dp, over a part of 8 indices, that nothing completes")


def test_a_weight_that_no_rank_uses_is_told_as_that() -> None:
    unused = PARALLEL.replace("linear(x, w1, b1)", "linear(x, w1)").replace("_, grad(w1), grad(b1) =", "_, grad(w1) =")
    (told,) = [
        reason for reason in verdict_on(unused.replace("w1, b1, w2", "w1, w2")).reasons if reason.name == "uncovered-weight"
    ]
    assert told.message == "no rank of the parallel plan uses the weight `b1`, which the reference trains"
