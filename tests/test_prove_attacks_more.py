"""Plans that compute something else than their reference, and once were proved."""

from __future__ import annotations

import pytest

from tests.test_prove_text_plans import verdict_on
from tvlint.findings import Outcome

MEAN_OF_SUM = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  s = sum(h, dim=0)
  l: f32[] = mean(s)
  ds = backward l (grad(l))
  dh = backward s (ds)
  _, grad(w) = backward h (dh)
"""

ON_TWO_REPLICAS = """
mesh dp=2 tp=2
replicate dp
weight w f32[4,8]
input x f32[4,8]
loss l
program
  h = linear(x, w)
  s = sum(h, dim=0)
  l0: f32[] = mean(s)
  l: f32[] = all-reduce KIND(l0) over tp
  ds = backward l0 (grad(l))
  dh = backward s (ds)
  _, grad(w) = backward h (dh)
  reduce-gradients w over dp
"""


@pytest.mark.parametrize(("kind", "outcome"), [("avg", Outcome.PROVED), ("sum", Outcome.REFUTED)])
def test_a_sum_over_the_batch_is_not_returned_as_many_times_as_there_are_replicas(kind: str, outcome: Outcome) -> None:
    """A mean over the batch is the number of slots times its slot's part of the whole; a mean over anything else is not."""
    assert verdict_on(ON_TWO_REPLICAS.replace("KIND", kind), MEAN_OF_SUM).outcome is outcome


ROUNDED = """
weight w f32[4,8]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  i = to(h, dtype="TYPE")
  q = mul(h, i)
  l = sum(q)
  dq = backward l (grad(l))
  dh, _ = backward q (dq)
  _, grad(w) = backward h (dh)
"""

ROUNDED_BEFORE_THE_SUM = """
mesh tp=2
weight w f32[4,8] tp:S(1)
input x f32[8,8] tp:S(1)
loss l
program
  p = linear(x, w)
  h = all-reduce(p) over tp
  j = to(p, dtype="TYPE")
  i = all-reduce(j) over tp
  q = mul(h, i)
  l = sum(q)
  dq = backward l (grad(l))
  dh, _ = backward q (dq)
  _, grad(w) = backward p (dh)
"""


@pytest.mark.parametrize("dtype", ["i64", "i8", "u8", "int64", "torch.int32", "torch.long", "bool"])
def test_parts_of_a_sum_are_not_rounded(dtype: str) -> None:
    verdict = verdict_on(ROUNDED_BEFORE_THE_SUM.replace("TYPE", dtype), ROUNDED.replace("TYPE", dtype))
    assert verdict.outcome is not Outcome.PROVED


@pytest.mark.parametrize(("dtype", "proved"), [("torch.int64", False), ("i64", False), ("torch.float32", True)])
def test_sums_are_not_communicated_in_whole_numbers(dtype: str, proved: bool) -> None:
    plan = ROUNDED_BEFORE_THE_SUM.replace('j = to(p, dtype="TYPE")\n  i = all-reduce(j) over tp', "i = identity(h)")
    plan = plan.replace("all-reduce(p)", f'all-reduce(p, dtype="{dtype}")')
    reference = ROUNDED.replace('to(h, dtype="TYPE")', "identity(h)")
    assert (verdict_on(plan, reference).outcome is Outcome.PROVED) == proved


LOOKUP = """
weight w f32[16,8]
weight v f32[4,8]
input x i64[8]
loss l
program
  h = embedding(x, w)
  y = linear(h, v)
  q = gelu(y)
  l = sum(q)
  dq = backward l (grad(l))
  dy = backward q (dq)
  dh, grad(v) = backward y (dy)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("rows", ["start=4", "start=4.0, stop=20.0", "start=True, stop=17", "stop=20"])
def test_rows_that_are_stated_in_part_or_not_as_whole_numbers_are_not_left_out(rows: str) -> None:
    assert verdict_on(LOOKUP.replace("embedding(x, w)", f"embedding(x, w, {rows})"), LOOKUP).outcome is not Outcome.PROVED


ADDED = """
weight w f32[4,8]
weight b f32[8,4]
input x f32[8,8]
loss l
program
  h = linear(x, w)
  k = mul(h, 2.0)
  a = add(h, k, b)
  l = sum(a)
  da = backward l (grad(l))
  dh, dk, _ = backward a (da)
  dh = backward k (dk)
  _, grad(w) = backward h (dh)
"""


def test_three_are_not_added_as_two() -> None:
    """With more than two operands it would not be linear in the first two."""
    parallel = ADDED.replace("a = add(h, k, b)", "a0 = add(h, k, b)\n  a = all-reduce(a0) over tp")
    parallel = parallel.replace("backward a (da)", "backward a0 (da)")
    for shape in ("w f32[4,8]", "x f32[8,8]"):
        parallel = parallel.replace(shape, f"{shape} tp:S(1)")
    assert verdict_on("mesh tp=2" + parallel, ADDED).outcome is not Outcome.PROVED
