"""Calls that look like a function of the operator table and take their arguments in another order, or round what they take."""

from __future__ import annotations

import pytest

from tests.builders.plan_tapes import with_backward
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.findings import Outcome, Verdict
from tvlint.ops.table import spec_of
from tvlint.ops.usual_calls import usual_name

WHERE = """
weight w f32[4,4]
input x f32[8,4]
input m bool[8,4]
input n bool[8,4]
loss l f32[]
program
  h = linear(x, w)
  g = {0}
  l = sum(g)
  dg = backward l (grad(l))
  _, {1}dh = backward g (dg)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("tail", ["n, m, h", "m, x, h"])
def test_the_method_where_does_not_take_first_what_the_function_takes_first(tail: str) -> None:
    gradients = "_, "
    function = WHERE.format(f"torch.where({tail})", gradients)
    assert verdict_on(function, function).outcome is Outcome.PROVED
    method = WHERE.format(f"torch.Tensor.where({tail})", gradients)
    assert verdict_on(method, function).outcome is not Outcome.PROVED
    assert verdict_on(function, method).outcome is not Outcome.PROVED


def test_rules_do_not_take_the_method_where_for_the_function_either() -> None:
    assert spec_of("torch.Tensor.where") is None
    assert usual_name("torch.Tensor.where") == "torch.Tensor.where"
    assert usual_name("Tensor.where") == "Tensor.where"
    assert usual_name("aten.where.self") == "aten.where"


CAST = """mesh tp=2
weight w f32[8,8] tp:S(1)
input x f32[8,8] tp:S(1)
loss l f32[]
program
  h = linear(x, w)
  c: f32[8,8] = {0}
  y = all-reduce(c) over tp
  l = sum(y)
  dy = backward l (grad(l))
  dh = backward c (dy)
  _, grad(w) = backward h (dh)
"""
CAST_ALONE = CAST.replace("mesh tp=2\n", "").replace(" tp:S(1)", "").replace("  y = all-reduce(c) over tp\n", "")
CAST_ALONE = CAST_ALONE.replace("sum(y)", "sum(c)")


@pytest.mark.parametrize("call", ["to(h, 4)", "aten.to.dtype(h, 4)", "aten._to_copy(h, dtype=3)", "cumsum(h, 1, dtype=4)"])
def test_a_cast_to_a_type_that_is_told_by_its_number_is_not_taken_to_be_linear(call: str) -> None:
    assert (
        verdict_on(CAST.format("to(h, 'torch.float32')").replace("'", '"'), CAST_ALONE.format('to(h, "torch.float32")')).outcome
        is Outcome.PROVED
    )
    assert verdict_on(CAST.format(call), CAST_ALONE.format(call)).outcome is not Outcome.PROVED


LIKE = """
weight w f32[8,8]
input x f32[8,8]
input i i64[8,8]
loss l f32[]
program
  h = linear(x, w)
  k = neg(i)
  c: f32[8,8] = full_like({0}, {1})
  g = mul(h, c)
  l = sum(g)
  dg = backward l (grad(l))
  dh, _ = backward g (dg)
  _, grad(w) = backward h (dh)
"""


@pytest.mark.parametrize("number", ["0.5", "2.5"])
def test_a_number_that_the_type_of_a_tensor_may_round_is_not_taken_to_be_that_number(number: str) -> None:
    like_numbers, like_indices = (LIKE.format(name, number) for name in ("h", "i"))
    assert verdict_on(like_indices, like_numbers).outcome is not Outcome.PROVED


@pytest.mark.parametrize("number", ['0.5, dtype="torch.float32"', "3", "-inf"])
def test_a_number_that_no_type_rounds_is_that_number(number: str) -> None:
    like_numbers, like_indices = (LIKE.format(name, number) for name in ("h", "i"))
    assert verdict_on(like_indices, like_numbers).outcome is Outcome.PROVED


def cast_before_and_after(call: str, dtype: str) -> Verdict:
    """The verdict on a call of what is not a real number whose result is cast, against the call of what is cast."""
    head = f"weight w f32[8,8]\ninput i {dtype}[4,8]\nloss l\nprogram\n"
    tail = "h = linear(f, w)\nt = tanh(h)\nl = sum(t)\n"
    cast = f'a = {call} || none\nf: f32[4,8] = to(a, dtype="float32") || none\n'
    same = call.replace("(i", "(a").replace(", i", ", a")
    before = f'a: f32[4,8] = to(i, dtype="float32") || none\nf: f32[4,8] = {same} || none\n'
    return verdict_on(with_backward(head + cast + tail), with_backward(head + before + tail))


@pytest.mark.parametrize("call", ["mul(i, 0.5)", "div(i, 2)", "exp(i)", "neg(i)"])
@pytest.mark.parametrize("dtype", ["i64", "bool"])
def test_what_whole_numbers_become_is_left_open_where_they_may_not_stay_whole(call: str, dtype: str) -> None:
    """The plan does not say of which type `a` is, and torch makes real numbers of most of these."""
    verdict = cast_before_and_after(call, dtype)
    assert verdict.outcome is Outcome.UNKNOWN, [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize(("dtype", "outcome"), [("i64", Outcome.UNKNOWN), ("bool", Outcome.PROVED)])
def test_a_product_of_flags_is_a_flag_in_every_type_and_one_of_whole_numbers_may_not_fit(dtype: str, outcome: Outcome) -> None:
    assert cast_before_and_after("mul(i, i)", dtype).outcome is outcome


@pytest.mark.parametrize(
    ("call", "right"),
    [
        ("torch.sum(h, 1, keepdim=1)", "torch.sum(h, 1, keepdim=True)"),
        ("torch.var(h, 1, keepdim=0)", "torch.var(h, 1, keepdim=False)"),
        ("torch.softmax(h, 1, _stacklevel=3)", "torch.nn.functional.softmax(h, 1, _stacklevel=3)"),
        ("torch.nn.functional.mse_loss(h, x, log_target=False)", "torch.nn.functional.mse_loss(h, x)"),
    ],
)
def test_a_call_with_a_switch_that_its_function_does_not_take_is_not_proved(call: str, right: str) -> None:
    def plan(made: str) -> str:
        gradients = "dh, _" if "loss" in made else "dh"
        return (
            f"weight w f32[4,4]\ninput x f32[8,4]\noutput g\nprogram\n  h = linear(x, w)\n  g = {made}\n"
            f"  {gradients} = backward g (grad(g))\n  _, grad(w) = backward h (dh)\n"
        )

    assert verdict_on(plan(right), plan(right)).outcome is Outcome.PROVED
    assert verdict_on(plan(call), plan(right)).outcome is not Outcome.PROVED
    assert verdict_on(plan(call), plan(call)).outcome is not Outcome.PROVED


@pytest.mark.parametrize("dtype", ["i8", "i32"])
@pytest.mark.parametrize("call", ["mul(i, 3)", "add(i, i)", "neg(i)"])
def test_a_factor_of_whole_numbers_is_not_taken_behind_their_cast(call: str, dtype: str) -> None:
    """What does not fit the type is lost before the cast."""
    assert cast_before_and_after(call, dtype).outcome is Outcome.UNKNOWN


WHOLE = """
weight w f32[8,8]
input x f32[4,8]
loss l
program
  i = to(x, dtype="{0}") || none
  {1} || none
  {2} || none
  h = linear(k, w)
  t = tanh(h)
  l = sum(t)
"""


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_nor_is_one_of_real_numbers_that_are_cast_to_whole_ones(dtype: str) -> None:
    """A cast to whole numbers gives whole ones, whatever it is given."""
    before = WHOLE.format(dtype, "j = mul(i, 3)", 'k = to(j, dtype="float32")')
    behind = WHOLE.format(dtype, 'j = to(i, dtype="float32")', "k = mul(j, 3)")
    assert verdict_on(with_backward(before), with_backward(behind)).outcome is Outcome.UNKNOWN
    assert verdict_on(with_backward(before), with_backward(before)).outcome is not Outcome.REFUTED


def test_a_factor_of_real_numbers_is_the_same_on_either_side_of_their_cast() -> None:
    before = WHOLE.format("bfloat16", "j = mul(i, 3)", 'k = to(j, dtype="float32")')
    behind = WHOLE.format("bfloat16", 'j = to(i, dtype="float32")', "k = mul(j, 3)")
    assert verdict_on(with_backward(before), with_backward(behind)).outcome is Outcome.PROVED
