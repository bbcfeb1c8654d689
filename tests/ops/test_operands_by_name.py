"""Second operands that calls give by name stand where the function has them."""

from __future__ import annotations

import pytest

from tvlint.ir.operators import Literal
from tvlint.ops.spelling import with_second_in_place


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [("pow", "exponent", 2), ("aten.pow.Tensor_Scalar", "exponent", 0.5), ("torch.mul", "other", -1), ("div", "other", 8)],
)
def test_a_number_that_is_given_by_name_is_the_second_operand(op: str, name: str, value: float) -> None:
    assert with_second_in_place(op, ("x",), {name: value}) == (("x", Literal(value)), {})


def test_a_tensor_that_is_given_by_name_is_the_second_operand() -> None:
    assert with_second_in_place("torch.sub", ("x", "y"), {"other": "operand 1", "alpha": 2}) == (("x", "y"), {"alpha": 2})


@pytest.mark.parametrize(
    ("op", "operands", "given"),
    [
        ("torch.pow", ("x",), {"other": 2}),
        ("torch.pow", ("x", Literal(2)), {"exponent": 3}),
        ("torch.mul", ("x",), {"other": True}),
        ("torch.softmax", ("x",), {"other": 1}),
    ],
)
def test_everything_else_stays_as_it_is(op: str, operands: tuple[str, ...], given: dict[str, float]) -> None:
    assert with_second_in_place(op, operands, given) == (operands, given)


@pytest.mark.parametrize("op", ["torch.sum", "torch.Tensor.mean", "sum", "aten.sum.dim_IntList"])
def test_arguments_have_the_names_of_numpy_too(op: str) -> None:
    assert with_second_in_place(op, ("x",), {"axis": 1, "keepdims": True}) == (("x",), {"dim": 1, "keepdim": True})


@pytest.mark.parametrize("op", ["torch.nn.functional.softmax", "F.softmax", "my.module.sum", "gather_of_mine"])
def test_functions_in_python_have_no_other_names(op: str) -> None:
    assert with_second_in_place(op, ("x",), {"axis": 1}) == (("x",), {"axis": 1})


def test_an_argument_that_is_given_twice_is_left_as_it_is() -> None:
    assert with_second_in_place("torch.sum", ("x",), {"axis": 1, "dim": 0}) == (("x",), {"axis": 1, "dim": 0})
