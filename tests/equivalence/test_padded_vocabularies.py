"""Classes that a vocabulary is padded with, whose scores are minus infinity: judged by numbers with targets that there are."""

from __future__ import annotations

import pytest

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.test_attention import plans
from tvlint.equivalence.verdict.on_numbers import Agreement, Difference

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
