"""Classes that a vocabulary is padded with, whose scores are minus infinity: judged by numbers with targets that there are."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference
from tvlint.findings import Outcome

HEAD = "weight w f32[8,6]{}\ninput x f32[5,6]\ninput t i64[5]\nloss l\nprogram\ny = linear(x, w)\n"
MASKED = "i = arange(8) || none\nb = ge(i, 6) || none\nm = masked_fill({}, b, -inf)\nl: f32[] = cross_entropy(m, t)\n"
GATHERED = "g = all-gather(y, dim=1) over tp || chunk\n"


@pytest.mark.parametrize(
    ("wrong", "instead", "agrees"),
    [("", "", True), ("ge(i, 6)", "gt(i, 6)", False), ("-inf", "0.0", False), ("ge(i, 6)", "ge(i, 5)", False)],
)
def test_padded_classes_are_run_with_targets_that_are_none_of_them(wrong: str, instead: str, agrees: bool) -> None:
    plan = "mesh tp=2\n" + HEAD.format(" tp:S(0)") + GATHERED + MASKED.format("g").replace(wrong or "#", instead)
    found = on_numbers_of(*plans(with_backward(plan), with_backward(HEAD.format("") + MASKED.format("y"))))
    assert isinstance(found, Agreement if agrees else Difference)


WITHOUT = with_backward(HEAD.format("").replace("f32[8,6]", "f32[6,6]") + "l: f32[] = cross_entropy(y, t)\n")
CUT = "m = narrow({}, 1, 0, 6)\nl: f32[] = cross_entropy(m, t)\n"
SPELLINGS = {
    "filled": MASKED,
    "chosen": MASKED.replace("ge(i, 6)", "lt(i, 6)").replace("masked_fill({}, b, -inf)", "where(b, {}, -inf)"),
    "under a new dimension": MASKED.replace("m = masked_fill({}, b", "u = unsqueeze(b, 0) || none\nm = masked_fill({}, u"),
}
OTHERWISE = [
    ("ge(i, 6)", "ge(i, 7)"),
    ("ge(i, 6)", "lt(i, 2)"),
    ("-inf", "-1.0"),
    ("cross_entropy(m, t)", "cross_entropy(m, t, label_smoothing=0.1)"),
    ("l: f32[] = ", "z = softmax(m, dim=-1) || none\nl: f32[] = "),
]


def padded(lines: str) -> str:
    return with_backward("mesh tp=2\n" + HEAD.format(" tp:S(0)") + GATHERED + lines.format("g"))


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_padded_vocabulary_is_one_without_padding(name: str) -> None:
    verdict = verdict_on(padded(SPELLINGS[name]), WITHOUT)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    single, cut = (with_backward(HEAD.format("") + lines.format("y")) for lines in (SPELLINGS[name], CUT))
    assert isinstance(on_numbers_of(*plans(single, cut)), Agreement)


@pytest.mark.parametrize(("before", "after"), OTHERWISE)
def test_other_masks_and_uses_are_none(before: str, after: str) -> None:
    assert before in MASKED
    assert verdict_on(padded(MASKED.replace(before, after)), WITHOUT).outcome is not Outcome.PROVED


@pytest.mark.parametrize(("other", "proved"), [("ge(i, 6)", True), ("ge(i, 7)", False), ("ge(i, 5)", False)])
def test_every_rank_has_the_mask(other: str, proved: bool) -> None:
    head, program = HEAD.format(" tp:S(0)").split("program\n")
    lines = program + GATHERED + MASKED.format("g")
    text = f"mesh tp=2\n{head}program tp=0\n{lines}program tp=1\n{lines.replace('ge(i, 6)', other)}"
    assert (verdict_on(with_backward(text), WITHOUT).outcome is Outcome.PROVED) is proved
