"""Gradients of an operator in numbers, from its semantics alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvlint.ops.field import Array, Floats
from tvlint.ops.spec import Bound, Evaluate

_STEP = 1e-40


def gradient(
    evaluate: Evaluate, bound: Bound, operands: Sequence[Array], position: int, gradients: Mapping[int, Array]
) -> Array:
    """Return the vector-Jacobian product with respect to operand `position`, exact but for rounding.

    `gradients` are the gradients of the outputs, by position. Each element is moved by a tiny imaginary step, so the cost is
    one evaluation an element.
    """
    import numpy as np

    result = np.zeros(operands[position].shape)
    for place in np.ndindex(*result.shape):
        moved = [np.array(operand) for operand in operands]
        moved[position] = moved[position].astype(complex)
        moved[position][place] += 1j * _STEP
        outputs = evaluate(bound, moved, Floats())
        result[place] = sum(float((np.imag(outputs[i]) * gradient).sum()) for i, gradient in gradients.items()) / _STEP
    return result
