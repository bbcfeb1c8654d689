"""Steps of optimizers, as torch's documentation has them, each with the weight and its states as they are afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.arguments import Array, Attributes, need


def _operands(values: list[Any], states: int) -> list[Array]:
    need(len(values) == 2 + states, f"a step of {len(values)} operands")
    need(len({value.shape for value in values}) == 1, "a step of tensors of different shapes")
    return values


def sgd(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    weight, gradient = _operands(values, 0)
    return (weight - attributes.get("lr", 1e-3) * (gradient + attributes.get("weight_decay", 0) * weight),)


def momentum(values: list[Any], attributes: Attributes) -> tuple[Array, ...]:
    weight, gradient, buffer = _operands(values, 1)
    buffer = attributes.get("momentum", 0.9) * buffer + gradient + attributes.get("weight_decay", 0) * weight
    return weight - attributes.get("lr", 1e-3) * buffer, buffer


def adam(values: list[Any], attributes: Attributes, decoupled: bool = False) -> tuple[Array, ...]:
    weight, gradient, first, second = _operands(values, 2)
    one, two = attributes.get("betas", (0.9, 0.999))
    rate, decay = attributes.get("lr", 1e-3), attributes.get("weight_decay", 0)
    if decoupled:
        weight = weight * (1 - rate * decay)
    else:
        gradient = gradient + decay * weight
    first = first + (1 - one) * (gradient - first)
    second = two * second + (1 - two) * gradient**2
    unbiased, squares = first, second
    if attributes.get("step"):
        unbiased, squares = first / (1 - one ** attributes["step"]), second / (1 - two ** attributes["step"])
    return weight - rate * unbiased / (np.sqrt(squares) + attributes.get("eps", 1e-8)), first, second
