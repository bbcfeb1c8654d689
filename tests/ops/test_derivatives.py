"""Gradients from semantics, held against tiny imaginary steps: what runs on real numbers runs on complex ones as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tvlint.ops.derivatives import Traced, gradient, gradients
from tvlint.ops.field import Floats
from tvlint.ops.spec import Call, UnsupportedError
from tvlint.ops.table import spec_of

STEP = 1e-40

CHANCES = np.random.default_rng(11)


def some(*shape: int) -> Any:
    return CHANCES.uniform(-1.0, 1.0, shape)


def by_steps(run: Callable[[Sequence[Any]], Any], operands: Sequence[Any], position: int, incoming: Any) -> Any:
    result = np.zeros(operands[position].shape)
    for place in np.ndindex(*result.shape):
        moved = [np.array(operand) for operand in operands]
        moved[position] = moved[position].astype(complex)
        moved[position][place] += 1j * STEP
        with np.errstate(all="ignore"):
            result[place] = (np.imag(run(moved)) * incoming).sum() / STEP
    return result


NO_KEY = np.where(np.tri(3, 4, dtype=bool), 0.0, -np.inf)
WITH_ZEROS = np.array([[2.0, 0.0, -3.0], [0.0, 0.0, 5.0], [1.0, -2.0, 4.0]])

CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "attention that sees no later key": ("attention", [some(2, 4, 3), some(2, 4, 3), some(2, 4, 2)], {"is_causal": True}),
    "attention with a mask of minus infinity": (
        "torch.nn.functional.scaled_dot_product_attention",
        [some(3, 2), some(4, 2), some(4, 5), NO_KEY],
        {},
    ),
    "a product with zeros": ("torch.prod", [WITH_ZEROS], {"dim": 1}),
    "a power of negative numbers": ("torch.pow", [np.array([-2.0, 0.0, 3.0]), np.array([3.0, 2.0, 2.0])], {}),
    "an angle between rows of zeros": ("torch.nn.functional.normalize", [np.array([[0.0, 0.0], [3.0, 4.0]])], {"dim": 1}),
    "a transposed convolution in steps": (
        "torch.nn.functional.conv_transpose1d",
        [some(1, 2, 3), some(2, 3, 2)],
        {"stride": 2, "padding": 1},
    ),
    "the greatest of equal elements": ("torch.amax", [np.array([[1.0, 1.0, 0.5]])], {"dim": 1}),
    "running sums": ("torch.cumsum", [some(3, 4)], {"dim": 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_that_of_tiny_steps(name: str) -> None:
    op, operands, attributes = CASES[name]
    spec = spec_of(op)
    assert spec is not None
    assert spec.evaluate is not None
    evaluate, bound = spec.evaluate, spec.bind(Call(op, tuple(operand.shape for operand in operands), attributes))
    incoming = some(*evaluate(bound, operands, Floats())[0].shape)
    for position in range(len(operands) - (op == "torch.pow")):
        expected = by_steps(lambda moved: evaluate(bound, moved, Floats())[0], operands, position, incoming)
        found = gradient(evaluate, bound, operands, position, {0: incoming})
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_quotient_that_a_choice_leaves_out_does_not_count() -> None:
    x = np.array([0.0, 2.0])

    def run(operands: Sequence[Any], field: Any) -> Any:
        return [field.where(field.equal(operands[0], 0), field.number(1), field.divide(field.number(1), operands[0]))]

    np.testing.assert_array_equal(gradients(run, [x], [0], {0: np.ones(2)})[0], [0.0, -0.25])


def test_several_outputs_and_operands_add_up() -> None:
    one, other = some(3), some(3)
    found = gradients(lambda given, field: [given[0] * given[1], given[0] + given[0]], [one, other], [0, 1], {0: one, 1: other})
    np.testing.assert_allclose(found[0], one * other + 2 * other)
    np.testing.assert_allclose(found[1], one * one)


@pytest.mark.parametrize(("words", "function"), [("forgets", np.asarray), ("argsort", np.argsort), ("forgets", np.array)])
def test_what_forgets_how_an_array_was_made_gives_no_gradient(words: str, function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedError, match=words):
        function(Traced(some(3)))
