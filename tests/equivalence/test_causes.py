"""All that is wrong with a plan, each cause once with the change that mends it, also where one hides the other."""

from __future__ import annotations

import pytest

from tests.equivalence.test_text_plans import PARALLEL, verdict_on
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
