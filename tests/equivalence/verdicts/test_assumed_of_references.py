"""Verdicts rest on what the reference is taken for, too: a plan that says it in another way leaves nothing to trust itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome
from tvlint.ops.inert import ASSERTED

MODEL = """
weight w f32[8,4]
input x f32[6,4]
input t i64[6]
loss l
program
  z = linear(x, w)
"""
SUMMED = MODEL + '  s = {loss}(z, t, reduction="sum")\n  l = div(s, 6)\n'


@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize(("option", "trusted"), [("", True), (", ignore_index=-1", True), (', reduction="sum"', False)])
def test_the_mean_of_a_reference_is_over_all_targets_as_it_is_where_the_plan_has_it(
    loss: str, option: str, trusted: bool
) -> None:
    other = with_backward(f"{MODEL}  l = {loss}(z, t{option})\n")
    alone = SUMMED.format(loss=loss)
    if not trusted:
        alone = alone.replace("s =", "l =").replace("  l = div(s, 6)\n", "")
    for text in (other, with_backward(alone)):
        verdict = verdict_on(text, other)
        told = [assumed for assumed in verdict.assumptions if "with a mean" in assumed]
        assert (verdict.outcome, bool(told)) == (Outcome.PROVED, trusted)


def test_what_a_reference_asserts_and_what_its_reader_left_to_trust_is_assumed() -> None:
    text = with_backward(SUMMED.format(loss="cross_entropy"))
    made, other = plans(text, text.replace("z = linear", "torch._assert(x)\nz = linear"))
    assert ASSERTED not in prove(made, made).assumptions
    verdict = prove(made, replace(other, assumed=("the loop runs once",)))
    assert verdict.outcome is Outcome.PROVED
    assert {ASSERTED, "of the reference: the loop runs once"} <= {*verdict.assumptions}
