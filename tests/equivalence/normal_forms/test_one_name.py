"""Functions that frameworks have under several names are one operator, with its gradient; others under like names are not."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome

_PLAN = "weight w f32[4,4]\ninput x f32[4,4]\nloss l\nprogram\nh = linear(x, w)\n{lines}\nl: f32[1] = sum(t)\n"
_CAST = "c: bf16[4,4] = {one}\nt: f32[4,4] = {other}"
_TO = _CAST.format(one='to(h, dtype="bfloat16")', other='to(c, dtype="float32")')


@pytest.mark.parametrize(
    ("one", "other", "wrong"),
    [
        ("t = pow(h, 2)", "t = square(h)", "t = pow(h, 3)"),
        ("t = pow(h, 2)", "t = torch.square(h)", "t = sqrt(h)"),
        (_TO, _CAST.format(one="bfloat16(h)", other="float(c)"), _CAST.format(one="half(h)", other="float(c)")),
        (_TO, _TO.replace('"bfl', '"torch.bfl'), _TO.replace('to(h, dtype="bfloat16")', "identity(h)")),
        (_TO, _TO.replace("dtype=", ""), _TO.replace('dtype="bfloat16"', 'dtype="float16"')),
        ("a: f32[4,2] = narrow(h, 1, 1, 2)\nt = exp(a)", "a: f32[4,2] = slice(h, 1, 1, 3)\nt = exp(a)",
         "a: f32[4,2] = slice(h, 1, 0, 2)\nt = exp(a)"),
        ("a: f32[2,4] = narrow(h, 0, 2, 2)\nt = exp(a)", "a: f32[2,4] = aten.slice(h, 0, 2, 9)\nt = exp(a)",
         "a: f32[4,2] = aten.slice(h, 1, 2, 9)\nt = exp(a)"),
    ],
)  # fmt: skip
def test_two_names_of_one_function_prove_and_another_function_does_not(one: str, other: str, wrong: str) -> None:
    first, second, third = (with_backward(_PLAN.format(lines=lines)) for lines in (one, other, wrong))
    for reference, parallel in (plans(first, second), plans(second, first)):
        verdict = prove(parallel, reference)
        assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert prove(*reversed(plans(first, third))).outcome is not Outcome.PROVED
