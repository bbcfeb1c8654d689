"""Plans that compute something else than their reference, and were proved by what the proof forgives."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.equivalence.models.test_attention import plans
from tests.equivalence.references import ONE_LAYER
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome

PENALTY = """
weight w f32[8,8]
input x f32[8,8]
loss l
program
  y = linear(x, w)
  g = gelu(w)
  l = sum(g)
  dg = backward l (grad(l))
  grad(w) = backward g (dg)
"""
GIVEN = "  _, grad(w) = backward y (grad(w))\n"
RENAMED = PENALTY.replace("  grad(w) = backward g (dg)\n", "  dw = backward g (dg)\n  _, grad(w) = backward y (dw)\n")


@pytest.mark.parametrize("later", [GIVEN, "  dw = identity(grad(w))\n  _, grad(w) = backward y (dw)\n"])
def test_the_gradient_of_a_weight_is_not_zero_where_another_operator_is_given_it(later: str) -> None:
    assert compare(*plans(PENALTY, PENALTY + later)).outcome == "different"
    assert verdict_on(PENALTY, PENALTY).outcome is Outcome.PROVED
    assert verdict_on(PENALTY + later, PENALTY).outcome is Outcome.REFUTED


def test_nor_is_it_where_it_goes_by_another_name() -> None:
    assert compare(*plans(PENALTY, RENAMED)).outcome == "different"
    assert verdict_on(RENAMED, PENALTY).outcome is Outcome.REFUTED


def test_nor_is_it_where_another_micro_batch_has_made_it() -> None:
    lines = PENALTY.replace("x f32[8,8]", "x f32[4,8]").replace("  grad(w)", GIVEN + "  grad(w)")
    two = "micro-batches 2\n" + lines
    assert verdict_on(two, PENALTY).outcome is not Outcome.PROVED


LOADED = """
micro-batches 2
weight w f32[8,8]
input x f32[4,8]
input x0 f32[4,8] of x
input x1 f32[4,8] of x
tensor l f32[]
output l0 f32[]
output l1 f32[]
segment load data () -> (x)
  x = load()
segment one forward (x) -> (l)
  y = linear(READ, w)
  g = gelu(y)
  l = sum(g)
segment back backward () -> ()
  dg = backward l (grad(l0))
  dy = backward g (dg)
  _, grad(w) = backward y (dy)
program
  run load micro-batch 0 () -> (x0)
  run load micro-batch 1 () -> (x1)
  run one micro-batch 0 (x0) -> (l0)
  run one micro-batch 1 (x1) -> (l1)
  run back micro-batch 0 () -> ()
  run back micro-batch 1 () -> ()
"""


@pytest.mark.parametrize("name", ["x", "x0", "x1"])
def test_what_is_loaded_for_one_micro_batch_is_not_the_input_of_all(name: str) -> None:
    parallel, reference = plans(LOADED.replace("READ", name), ONE_LAYER)
    assert (compare(reference, parallel).outcome == "equal") is (name == "x")
    assert (prove(parallel, reference).outcome is Outcome.PROVED) is (name == "x")


COUNTED = """
weight w f32[4,8]
input x f32[8,8]
input t i64[8]
loss l
program
  h = linear(x, w)
  c = sum(t)
  k = mul(h, c)
  l = sum(k)
  dk = backward l (grad(l))
  dh, _ = backward k (dk)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize(
    ("dtype", "count", "proved"),
    [
        ("i64", "c = all-reduce(c0) over tp", True),
        ("i64", "c1 = all-reduce(c0) over tp\n  c = all-reduce avg(c1) over tp", True),
        ("i64", "c1 = all-reduce avg(c0) over tp\n  c = mul(c1, 2)", False),
        ("f32", "c1 = all-reduce avg(c0) over tp\n  c = mul(c1, 2)", True),
    ],
)
def test_an_average_of_whole_numbers_is_rounded(dtype: str, count: str, proved: bool) -> None:
    reference = COUNTED.replace("i64", dtype)
    parallel = reference.replace("t " + dtype + "[8]", "t " + dtype + "[8] tp:S(0)").replace(
        "c = sum(t)", "c0 = sum(t)\n  " + count
    )
    assert (verdict_on("mesh tp=2" + parallel, reference).outcome is Outcome.PROVED) is proved


MULTIPLIED = """
weight w f32[1,4,4]
input x f32[8,4,4]
loss l
program
  y = matmul(x, w)
  l = sum(y)
  dy = backward l (grad(l))
  _, grad(w) = backward y (dy)
"""


@pytest.mark.parametrize(
    ("op", "batch", "proved"),
    [
        ("torch.matmul", 1, True),
        ("torch.bmm", 1, False),
        ("torch.mm", 1, False),
        ("torch.bmm", 8, True),
        ("torch.mm", 8, False),
    ],
)
def test_a_product_of_matrices_is_none_of_other_tensors(op: str, batch: int, proved: bool) -> None:
    reference = MULTIPLIED.replace("[1,4,4]", f"[{batch},4,4]")
    assert (verdict_on(reference.replace("matmul", op), reference).outcome is Outcome.PROVED) is proved
