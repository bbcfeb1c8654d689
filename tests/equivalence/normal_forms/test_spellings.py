"""Plans that write the same functions in other ways than their reference."""

from __future__ import annotations

import pytest
from oracle.compare import compare

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.numbers.outcome import Agreement
from tvlint.findings import Outcome

REFERENCE = """
weight e f32[6,4]
weight g f32[4]
weight w f32[4,4]
input ids i64[8]
loss l
program
  x = embedding(ids, e)
  n = rms_norm(x, g)
  y = linear(n, w)
  l: f32[1] = sum(y)
  dy = backward l (grad(l))
  dn, grad(w) = backward y (dy)
  dx, grad(g) = backward n (dn)
  _, grad(e) = backward x (dx)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rms_norm(x, g)", "rms_norm(x, [4], g)"),
        ("rms_norm(x, g)", "F.rms_norm(x, [4], g)"),
        ("rms_norm(x, g)", "aten.rms_norm(x, 4, g)"),
        ("linear(n, w)", "F.linear(n, w)"),
        ("linear(n, w)", "nn.functional.linear(n, w)"),
        ("linear(n, w)", "torch.ops.aten.linear.default(n, w)"),
        ("linear(n, w)", "`aten::linear`(n, w)"),
        ("sum(y)", "aten.sum.default(y)"),
    ],
)
def test_another_spelling_of_the_same_function_is_proved(before: str, after: str) -> None:
    verdict = verdict_on(REFERENCE.replace(before, after), REFERENCE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("after", ["rms_norm(x, [2], g)", "F.layer_norm(x, [4], g)", "rms_norm(x, [4], g, 0.5)"])
def test_another_function_is_not(after: str) -> None:
    assert verdict_on(REFERENCE.replace("rms_norm(x, g)", after), REFERENCE).outcome is not Outcome.PROVED


ROWS = """mesh tp=2
weight e f32[6,4] tp:S(0)
weight g f32[4]
weight w f32[4,4]
input ids i64[8]
loss l
""" + "".join(
    REFERENCE[REFERENCE.index("program") :]
    .replace("program", f"program tp={rank}")
    .replace(
        "x = embedding(ids, e)", f"p = embedding(ids, e, start={rank * 3}, stop={rank * 3 + 3})\n  x = all-reduce(p) over tp"
    )
    .replace("backward x (", "backward p (")
    for rank in range(2)
)


def test_rows_of_a_table_are_rows_of_the_table_that_the_reference_names_without_a_range() -> None:
    assert compare(*plans(REFERENCE, ROWS)).outcome == "equal"
    verdict = verdict_on(ROWS, REFERENCE)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


def test_rows_without_a_range_are_refuted() -> None:
    wrong = ROWS.replace(", start=3, stop=6", "")
    assert compare(*plans(REFERENCE, wrong)).outcome == "different"
    verdict = verdict_on(wrong, REFERENCE)
    assert verdict.outcome is Outcome.REFUTED
    assert "split-dimension" in [reason.name for reason in verdict.reasons]


PRODUCT = """
weight a f32[4,4]
input x f32[4,4]
loss l
program
  b = torch.transpose(a, 0, 1)
  y = einsum(x, b, equation="ij,jk->ik")
  l: f32[1] = sum(y)
  dy = backward l (grad(l))
  _, db = backward y (dy)
  grad(a) = backward b (db)
"""


def test_a_transpose_without_dimensions_and_an_equation_that_comes_first() -> None:
    same = PRODUCT.replace("torch.transpose(a, 0, 1)", "torch.t(a)")
    same = same.replace('einsum(x, b, equation="ij,jk->ik")', 'einsum("ij,jk->ik", x, b)')
    assert verdict_on(same, PRODUCT).outcome is Outcome.PROVED
    assert verdict_on(same.replace("ij,jk->ik", "ij,kj->ik"), PRODUCT).outcome is not Outcome.PROVED


CHAIN = """
weight w f32[4,4]
weight v f32[4,4]
input x f32[8,2,2]
loss l
program
  f: f32[8,4] = view(x, size=[8,4])
  h = linear(f, w)
  a = add(h, f)
  t = transpose(v, dim0=0, dim1=1)
  y = matmul(a, t)
  c = softmax(y, dim=1)
  p = mul(c, c)
  s = sum(p, dim=1)
  l: f32[1] = mean(s)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("view(x, size=[8,4])", "flatten(x, 1)"),
        ("view(x, size=[8,4])", "torch.flatten(x, start_dim=1, end_dim=-1)"),
        ("view(x, size=[8,4])", "torch.ops.aten._unsafe_view.default(x, [8, 4])"),
        ("add(h, f)", "aten.add.Tensor(h, f)"),
        ("add(h, f)", "torch.Tensor.__add__(h, f)"),
        ("transpose(v, dim0=0, dim1=1)", "aten.t.default(v)"),
        ("transpose(v, dim0=0, dim1=1)", "aten.transpose.int(v, 0, 1)"),
        ("matmul(a, t)", "aten.mm.default(a, t)"),
        ("matmul(a, t)", "operator.matmul(a, t)"),
        ("softmax(y, dim=1)", "aten._softmax.default(y, 1, False)"),
        ("sum(p, dim=1)", "aten.sum.dim_IntList(p, [1])"),
    ],
)
def test_functions_as_they_are_dispatched_are_those_that_they_are_dispatched_for(before: str, after: str) -> None:
    assert before in CHAIN
    verdict = verdict_on(with_backward(CHAIN.replace(before, after)), with_backward(CHAIN))
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("view(x, size=[8,4])", "flatten(x)"),
        ("add(h, f)", "aten.sub.Tensor(h, f)"),
        ("add(h, f)", "aten.add.Tensor(h, f, alpha=2)"),
        ("softmax(y, dim=1)", "aten._softmax.default(y, 0, False)"),
        ("softmax(y, dim=1)", "aten._softmax.default(y, 1, True)"),
        ("add(h, f)", "mine.add.Tensor(h, f)"),
    ],
)
def test_other_functions_that_are_dispatched_are_not(before: str, after: str) -> None:
    assert verdict_on(with_backward(CHAIN.replace(before, after)), with_backward(CHAIN)).outcome is not Outcome.PROVED


COLUMNS = """  y = linear(x, w)
  g = {gather}
  z = tanh(g)
  l: f32[] = sum(z)
  dz = backward l (grad(l))
  dg = backward z (dz)
  dy = {cut}
  _, grad(w) = backward y (dy)
"""
DECLARED = "weight w f32[6,3]{}\ninput x f32[5,3]\nloss l\nprogram{}\n"


@pytest.mark.parametrize(
    ("theirs", "outcome"),
    [
        ("all-gather(y, dim=-1)", Outcome.PROVED),
        ("all-gather(y, dim=1, splits=[3,3])", Outcome.PROVED),
        ('all-gather(y, dim=1, dtype="float32")', Outcome.PROVED),
        ("all-gather(y, dim=-2)", Outcome.REFUTED),
        ("all-gather(y, dim=1, splits=[2,4])", Outcome.REFUTED),
        ("all-gather(y, dim=1, dtype=bf16)", Outcome.REFUTED),
    ],
)
def test_members_may_spell_one_collective_differently(theirs: str, outcome: Outcome) -> None:
    """Dimensions may be counted from the last one, and what holds of the operand anyway may be said."""
    reference = DECLARED.format("", "") + COLUMNS.format(gather="identity(y)", cut="identity(dg)")
    ours, other = (
        COLUMNS.format(gather=f"{gather} over tp", cut="chunk(dg, dim=-1) over tp")
        for gather in ("all-gather(y, dim=1)", theirs)
    )
    plan = "mesh tp=2\n" + DECLARED.format(" tp:S(0)", " tp=0") + ours + "program tp=1\n" + other
    verdict = verdict_on(plan, reference)
    assert verdict.outcome is outcome, [reason.message for reason in verdict.reasons]
    shown = on_numbers_of(*plans(plan, reference))
    assert isinstance(shown, Agreement) or outcome is not Outcome.PROVED


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ("all-gather(y, dim=0)", "with dim 1 and 0"),
        ("all-gather(y, dim=1, splits=[2,4])", "with splits equal and (2, 4)"),
        ("all-gather(y, dim=1, dtype=bf16)", "with dtype that of its operand and bfloat16"),
    ],
)
def test_what_members_of_a_collective_differ_in_is_said(theirs: str, said: str) -> None:
    ours, other = (
        COLUMNS.format(gather=f"{gather} over tp", cut="chunk(dg, dim=1) over tp")
        for gather in ("all-gather(y, dim=1)", theirs)
    )
    plan = "mesh tp=2\n" + DECLARED.format(" tp:S(0)", " tp=0") + ours + "program tp=1\n" + other
    verdict = verdict_on(plan, DECLARED.format("", "") + COLUMNS.format(gather="identity(y)", cut="identity(dg)"))
    assert any(said in reason.message for reason in verdict.reasons)


VIEWED = """weight w f32[4,2] dp:S(0)
loss l
program
  f = torch.ops.aten.flatten.using_ints(w, 0, 1)
  u = torch.ops.aten.unflatten.int(f, 0, [2, 2])
  s = square(u)
  l0 = sum(s)
  l = all-reduce(l0) over dp
  ds = backward l0 (grad(l))
  du = backward s (ds)
  df = backward u (du)
  grad(w) = backward f (df)
"""


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ("[2, 2]", "[2, 2]", Outcome.PROVED),
        ("[2, 2]", "[-1, 2]", Outcome.PROVED),
        ("[2, 2]", "[3, 2]", Outcome.REFUTED),
        ("[2, 2]", "[-1, 3]", Outcome.REFUTED),
    ],
)
def test_a_view_gives_what_the_overload_of_a_function_says(before: str, after: str, outcome: Outcome) -> None:
    reference = "weight w f32[4,2]\nloss l\nprogram\n  s = square(w)\n  l = sum(s)\n"
    reference += "  ds = backward l (grad(l))\n  grad(w) = backward s (ds)\n"
    assert verdict_on("mesh dp=2\n" + VIEWED.replace(before, after), reference).outcome is outcome
