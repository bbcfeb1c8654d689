"""Gradients of operators that are written out otherwise than the ones that ran."""

from __future__ import annotations

import pytest

from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome

REFERENCE = """
weight w1 f32[16,8]
weight w2 f32[8,16]
input x f32[8,8]
loss l
program
  h = linear(x, w1)
  a = gelu(h)
  v: f32[4,2,16] = view(a, [4,2,16])
  y = linear(v, w2)
  z = add(y, 0.5)
  l: f32[1] = sum(z)
  dz = backward l (grad(l))
  dy = backward z (dz)
  dv, grad(w2) = backward y (dy)
  da = backward v (dv)
  dh = backward a (da)
  _, grad(w1) = backward h (dh)
"""
ALIKE = {
    "a product without the bias that it has not": ("backward y (dy)", "backward (dy) of y = linear(v, w2, None)"),
    "a view whose size follows": ("backward v (dv)", "backward (dv) of v = view(a, [4,-1,16])"),
    "a constant that is added more often": ("backward z (dz)", "backward (dz) of z = add(y, 0.5, alpha=3)"),
    "another name of the operator": ("backward a (da)", "backward (da) of a = torch.nn.functional.gelu(h)"),
}
OTHER = {
    "a product for a sum": ("backward z (dz)", "backward (dz) of z = mul(y, 0.5)", "other-numbers"),
    "another activation": ("backward a (da)", "backward (da) of a = silu(h)", "other-numbers"),
    "a product with the rows of the weight": ("backward h (dh)", "backward (dh) of h = matmul(x, w1)", "shape-mismatch"),
    "the operands exchanged": ("backward y (dy)", "backward (dy) of y = linear(w2, v)", "shape-mismatch"),
    "results of another shape": ("backward v (dv)", "backward (dv) of v = transpose(a, 0, 1)", "shape-mismatch"),
    "one that has no gradient": ("backward z (dz)", "backward (dz) of z = detach(y)", "other-numbers"),
    "an argument that the function does not take": (
        "backward a (da)",
        "backward (da) of a = torch.nn.functional.gelu(h, scale_by=2)",
        "shape-mismatch",
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_is_written_otherwise_and_computes_the_same_has_the_same_gradient(name: str) -> None:
    before, after = ALIKE[name]
    assert before in REFERENCE
    assert verdict_on(REFERENCE.replace(before, after), REFERENCE).outcome is Outcome.PROVED


@pytest.mark.parametrize("name", OTHER)
def test_the_gradient_of_another_operator_is_refuted(name: str) -> None:
    before, after, reason = OTHER[name]
    assert before in REFERENCE
    verdict = verdict_on(REFERENCE.replace(before, after), REFERENCE)
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.reasons[0].name == reason


ADDED = """
weight w f32[6,6]
input x f32[8,6]
input i i64[8]
loss l
program
  h = linear(x, w)
  n = zeros([4,6])
  a = index_add(n, 0, i, h)
  y = tanh(a)
  l: f32[] = sum(y)
  dy = backward l (grad(l))
  da = backward y (dy)
  _, _, dh = backward a (da)
  _, grad(w) = backward h (dh)
"""


def test_an_operator_that_is_not_known_with_an_argument_ends_unknown() -> None:
    assert verdict_on(ADDED, ADDED).outcome is Outcome.PROVED
    other = ADDED.replace("backward a (da)", "backward (da) of a = index_add(n, 0, i, h, scale_by=2)")
    assert verdict_on(other, ADDED).outcome is Outcome.UNKNOWN


THROUGH = REFERENCE.replace("  l: f32[1] = sum(z)\n", "  u = {ran}\n  l: f32[1] = sum(u)\n").replace(
    "  dz = backward l (grad(l))\n", "  du = backward l (grad(l))\n  dz = backward (du) of u = {written}\n"
)


@pytest.mark.parametrize(
    ("ran", "written"),
    [("identity(z)", "detach(z)"), ("view(z, [4,2,8])", "transpose(z, 1, 2)"), ("identity(z)", "transpose(z, 0, 2)")],
)
def test_another_operator_of_a_gradient_that_starts_ends_no_proof_with_an_error(ran: str, written: str) -> None:
    right = THROUGH.format(ran=ran, written=ran)
    assert verdict_on(right, REFERENCE).outcome is Outcome.PROVED
    assert verdict_on(THROUGH.format(ran=ran, written=written), REFERENCE).outcome is not Outcome.PROVED
