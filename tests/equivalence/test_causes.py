"""All that is wrong with a plan, each cause once with the change that mends it, also where one hides the other."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.test_text_plans import PARALLEL, verdict_on
from tvlint.equivalence.verdict import on_numbers
from tvlint.findings import Outcome

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


@pytest.mark.parametrize("mistakes", [(UNSUMMED,), (OTHER,), (COPIED,), (UNSUMMED, OTHER), (COPIED, OTHER)])
def test_every_mistake_is_told_with_its_repair(mistakes: tuple[tuple[str, str], ...]) -> None:
    verdict = verdict_on(broken(*mistakes))
    assert verdict.outcome is Outcome.REFUTED
    assert {reason.repair for reason in verdict.reasons if reason.repair} == {REPAIRS[mistake] for mistake in mistakes}
    assert all(reason.refutes for reason in verdict.reasons if reason.repair)
    assert verdict.stages.refuted == len({reason.location.pointer for reason in verdict.reasons if reason.refutes})


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
    monkeypatch.setattr(on_numbers, "_MOST_NUMBERS", 0)
    head = LAYER[: LAYER.index("program")].replace("f32[8,6]", "f32[8,6] tp:S(0)")
    plan = "mesh tp=2\n" + head + ON_RANK.format(0, first) + ON_RANK.format(1, "gelu")
    verdict = verdict_on(with_backward(plan), with_backward(LAYER))
    assert verdict.outcome is (Outcome.PROVED if right else Outcome.REFUTED)
    assert right or verdict.reasons[0].name == "other-operator"
