"""All that is wrong with a plan, each cause once with the change that mends it, also where one hides the other."""

from __future__ import annotations

import pytest

from tests.builders.plan_findings import findings_of_text
from tests.builders.plan_tapes import with_backward
from tests.builders.residual_layers import residual_layers
from tests.equivalence.verdicts.test_text_plans import PARALLEL, verdict_on
from tests.sampling import sampled
from tvlint.equivalence.verdict.numbers import run_sizes
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.readers.plan_text.reader import read

UNSUMMED = ("y = all-reduce(p) over tp", "y = identity(p)")
OTHER = ("a = gelu(h)", "a = relu(h)")
COPIED = ("y = all-reduce(p) over tp", "y = all-reduce(p) over dp")

REPAIRS = {
    UNSUMMED: "all-reduce `p` over `tp` after `linear`",
    OTHER: "use `gelu` instead of `relu`",
    COPIED: "use `all-reduce` over `tp` instead of `all-reduce`",
}


def broken(*mistakes: tuple[str, str]) -> str:
    text = PARALLEL
    for before, after in mistakes:
        assert before in text
        text = text.replace(before, after)
    return text


@pytest.mark.parametrize("mistakes", sampled([(UNSUMMED,), (OTHER,), (COPIED,), (UNSUMMED, OTHER), (COPIED, OTHER)], 3))
def test_every_mistake_is_told_with_its_repair(mistakes: tuple[tuple[str, str], ...]) -> None:
    verdict = verdict_on(broken(*mistakes))
    assert verdict.outcome is Outcome.REFUTED
    assert {reason.repair for reason in verdict.reasons if reason.repair} == {REPAIRS[mistake] for mistake in mistakes}
    assert all(reason.refutes for reason in verdict.reasons if reason.repair)
    assert verdict.stages.refuted == len({reason.location.pointer for reason in verdict.reasons if reason.refutes})


@pytest.mark.heavy
def test_a_mistake_beside_one_that_nothing_mends_is_told_without_repairs() -> None:
    verdict = verdict_on(broken(UNSUMMED, ("reduce-gradients w1, b1, w2 over dp", "reduce-gradients w1, w2 over dp")))
    assert verdict.outcome is Outcome.REFUTED
    assert not any(reason.repair for reason in verdict.reasons)


LAYER = "weight w f32[8,6]\ninput x f32[4,6]\nloss l\nprogram\nh = linear(x, w)\na = gelu(h)\nl: f32[] = sum(a)\n"
ON_RANK = """program tp={}
h = linear(x, w)
a = {}(h)
y = all-gather(a, dim=1) over tp || chunk
l: f32[] = sum(y)
"""


@pytest.mark.parametrize(("first", "right"), [("gelu", True), ("relu", False), ("silu", False)])
def test_another_operator_on_one_rank_is_told_of_plans_that_are_not_run(
    first: str, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_sizes, "_MOST_NUMBERS", 0)
    head = LAYER[: LAYER.index("program")].replace("f32[8,6]", "f32[8,6] tp:S(0)")
    plan = "mesh tp=2\n" + head + ON_RANK.format(0, first) + ON_RANK.format(1, "gelu")
    verdict = verdict_on(with_backward(plan), with_backward(LAYER))
    assert verdict.outcome is (Outcome.PROVED if right else Outcome.REFUTED)
    assert right or verdict.reasons[0].name == "other-operator"


SQUARED = """weight w f32[4,4]
input x f32[8,4]
loss l
program
h = linear(x, w)
q = mul(h, h)
s = add(q, h)
z = tanh(s)
l: f32[] = sum(z)
dz = backward l (grad(l))
ds = backward z (dz)
dq, dh = backward s (ds)
dh, dh = backward q (dq)
_, grad(w) = backward h (dh)
"""
"""Addends that count differently, which only a normal form follows."""

SQUARED_IN_STAGES = """mesh pp=2
weight w f32[4,4]
input x f32[8,4]
loss l
program pp=0
h = linear(x, w)
send h to pp+1
recv dh: gradient f32[8,4] grad-of h from pp+1
_, grad(w) = backward h (dh)
program pp=1
recv h: f32[8,4] from pp-1
q = mul(h, h)
s = add(q, h)
z = tanh(s)
l: f32[] = sum(z)
dz = backward l (grad(l))
ds = backward z (dz)
dq, dh = backward s (ds)
dh, dh = backward q (dq)
send dh to pp-1
"""


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("send h to pp+1\n", "send h to pp+1\nsend h to pp+1\n", "unmatched-send"),
        ("send dh to pp-1\n", "", "unmatched-receive"),
        ("send dh to pp-1\n", "send dh to pp+1\n", "unknown-peer"),
    ],
)
def test_how_a_plan_runs_is_told_where_a_normal_form_alone_follows_the_reference(before: str, after: str, name: str) -> None:
    assert verdict_on(SQUARED_IN_STAGES, SQUARED).outcome is Outcome.PROVED
    verdict = verdict_on(SQUARED_IN_STAGES.replace(before, after), SQUARED)
    assert verdict.outcome is Outcome.REFUTED
    assert name in [reason.name for reason in verdict.reasons]


def test_gradients_that_are_made_of_one_part_of_a_sum_are_one_mistake_where_it_starts() -> None:
    text = residual_layers(12, True, 9)
    plans = [read("a.plan", each).plan for each in (text, residual_layers(12, False))]
    assert plans[0] is not None
    assert plans[1] is not None
    (cause,) = prove(plans[0], plans[1]).reasons
    assert (cause.name, cause.repair) == ("missing-gradient-reduction", "all-reduce `e9` over `tp` after backward of `linear`")
    assert cause.message.endswith("that nothing completes: it starts in `e9`")
    lines = text.splitlines()
    assert lines[(cause.location.line or 0) - 1] == "  e9, grad(a9) = backward h9 (dh9)"
    (found,) = findings_of_text(text)
    assert (found.rule, lines[(found.location.line or 0) - 1]) == ("missing-allreduce", "  d9 = add(r9, e9)")
    assert findings_of_text(residual_layers(12, True)) == []


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("  reduce-gradients w1, b1, w2 over dp\n", "", "_, grad(w1), grad(b1) = backward h (dh)"),
        ("_, grad(w1), grad(b1) = backward h (dh)", "_, _, grad(b1) = backward h (dh)", "_, _, grad(b1) = backward h (dh)"),
        ("w1, b1, w2 over dp\n", "w1, b1, w2 over dp by avg\n", "reduce-gradients w1, b1, w2 over dp by avg"),
        ("l = all-reduce(l0) over dp", "l = all-reduce avg(l0) over dp", "l = all-reduce avg(l0) over dp"),
    ],
)
def test_what_is_wrong_with_a_result_stands_where_it_is_made_last(before: str, after: str, line: str) -> None:
    assert before in PARALLEL, PARALLEL
    verdict = verdict_on(PARALLEL.replace(before, after))
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.reasons[0].location.text.strip() == line
