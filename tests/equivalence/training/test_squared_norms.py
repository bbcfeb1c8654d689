"""The norm of all gradients, of which each rank holds parts: clipping with tensor parallelism."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.references import LAYERS
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.sampling import sampled
from tvlint.equivalence.verdict.squared_norms import with_sums_of_squares
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

CLIP = """end d = add(n, 1e-06)
end c0 = div(1.0, d)
end c = clamp(c0, max=1.0)
end grad(w) = mul(grad(w), c)
end grad(v) = mul(grad(v), c)
"""
NORMS = "end n1 = norm(grad(w))\nend n2 = torch.linalg.vector_norm(grad(v))\n"
SPLIT = "mesh tp=2\n" + LAYERS.replace("w f32[8,4]", "w f32[8,4] tp:S(0)").replace("v f32[4,8]", "v f32[4,8] tp:S(1)").replace(
    "y = linear(a, v)", "p = linear(a, v)\n  y = all-reduce(p) over tp"
)
WHOLE = {
    "a norm of norms": "end st = stack([n1, n2])\nend n = norm(st)\n",
    "the root of squares": "end q1 = pow(n1, 2)\nend q2 = square(n2)\nend q = add(q1, q2)\nend n = sqrt(q)\n",
}
PARTS = {
    "a norm of norms, squared": "end st = stack([n1, n2])\nend m = norm(st)\nend p2 = pow(m, 2)\n",
    "squares": "end q1 = mul(n1, n1)\nend q2 = square(n2)\nend p2 = add(q1, q2)\n",
    "squares by name": "end q1 = torch.pow(n1, exponent=2)\nend q2 = mul(n2, other=n2)\nend p2 = add(q1, other=q2)\n",
}
ROOT = "end q = all-reduce(p2) over tp\nend n = sqrt(q)\n"


def _pair(parts: str, whole: str) -> tuple[str, str]:
    return with_backward(SPLIT + NORMS + parts + ROOT + CLIP), with_backward(LAYERS + NORMS + whole + CLIP)


@pytest.mark.parametrize("whole", WHOLE)
@pytest.mark.parametrize("parts", PARTS)
def test_the_squares_of_the_norms_of_parts_add_up(parts: str, whole: str) -> None:
    verdict = verdict_on(*_pair(PARTS[parts], WHOLE[whole]))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


WRONG = {
    "the squares of one rank": ("all-reduce(p2) over tp", "identity(p2)", {"missing-allreduce", "partial-through-nonlinear"}),
    "the mean of the squares": ("all-reduce(p2)", "all-reduce avg(p2)", {"scaled-value"}),
    "the greatest of the squares": ("all-reduce(p2)", "all-reduce max(p2)", {"wrong-reduce-op"}),
    "one gradient that is not clipped": ("grad(v) = mul(grad(v), c)\n", "\n", {"other-numbers"}),
    "one gradient twice": ("norm(grad(w))", "norm(grad(v))", {"mismatched-shards", "other-numbers"}),
}


@pytest.mark.parametrize("name", sampled(WRONG, 3))
@pytest.mark.parametrize("parts", PARTS)
def test_other_norms_are_refuted(name: str, parts: str) -> None:
    before, after, names = WRONG[name]
    plan, reference = _pair(PARTS[parts], WHOLE["a norm of norms"])
    assert before in plan
    verdict = verdict_on(plan.replace(before, after), reference)
    assert verdict.outcome is Outcome.REFUTED, [reason.message for reason in verdict.reasons]
    assert names & {reason.name for reason in verdict.reasons if reason.refutes}


def test_the_sum_of_norms_is_no_norm() -> None:
    plan, reference = _pair("end m = add(n1, n2)\nend p2 = pow(m, 2)\n", WHOLE["a norm of norms"])
    assert verdict_on(plan, reference).outcome is Outcome.REFUTED


@pytest.mark.parametrize(
    "power", ["pow(m, 3)", "pow(m, exponent=3)", "pow(2, m)", "pow(m, m)", "mul(m, n1)", "mul(m, m, alpha=2)"]
)
def test_what_is_no_square_is_not_taken_for_one(power: str) -> None:
    plan, reference = _pair(f"end st = stack([n1, n2])\nend m = norm(st)\nend p2 = {power}\n", WHOLE["a norm of norms"])
    assert verdict_on(plan, reference).outcome is not Outcome.PROVED


@pytest.mark.parametrize("norm", ["norm(grad(w), p=1)", "norm(grad(w), dim=0)", 'norm(grad(w), p=2, dtype="float64")'])
def test_other_norms_are_left_as_they_are(norm: str) -> None:
    plan, _ = plans(with_backward(LAYERS + f"end n = {norm}\n"), with_backward(LAYERS))
    assert with_sums_of_squares(plan) is plan


@pytest.mark.parametrize(
    "norm",
    ["norm(grad(w), 2, 0)", "norm(grad(w), dim=0)", "norm(grad(w), 2, 1, True)", "torch.linalg.vector_norm(grad(w), 2, 0)"],
)
def test_norms_of_rows_are_no_norms_of_the_whole_whatever_is_declared(norm: str) -> None:
    whole = with_backward(LAYERS + "end n = norm(grad(w))\n" + CLIP)
    assert verdict_on(with_backward(LAYERS + f"end n: f32[] = {norm}\n" + CLIP), whole).outcome is not Outcome.PROVED
    parts = SPLIT + f"end n1: f32[] = {norm}\nend p2 = pow(n1, 2)\n" + ROOT + CLIP
    assert verdict_on(with_backward(parts), whole).outcome is not Outcome.PROVED


def test_an_operator_that_takes_nothing_is_left_as_it_is() -> None:
    plan, reference = _pair(PARTS["squares"] + "end z: f32[2] = torch.zeros(size=[2])\n", WHOLE["a norm of norms"])
    assert verdict_on(plan, reference).outcome is Outcome.PROVED
    verdict = verdict_on(plan.replace("all-reduce(p2)", "all-reduce avg(p2)"), reference)
    assert verdict.outcome is Outcome.REFUTED, [reason.message for reason in verdict.reasons]
