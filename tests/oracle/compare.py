"""Says, by running both, whether two plans train the same model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.functions import FailureError, UndefinedError
from oracle.interpret import DeadlockError
from oracle.step import TOLERANCE, Result, run
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan, Role


@dataclass(frozen=True, slots=True)
class Comparison:
    """`outcome` is `equal`, `different`, `fails`, `deadlocks` or `undefined`; `difference` is the first one, in words."""

    outcome: str
    difference: str = ""
    claims: tuple[str, ...] = ()


def batch_of(reference: Plan) -> tuple[dict[str, tuple[int, ...]], int]:
    """The shapes of the whole data by logical name, and the bound of its integers."""
    inputs = {t.logical or t.name: t.shape for t in reference.tensors.values() if t.role is Role.INPUT}
    bounds = [
        (tensor.whole or tensor.shape)[0]
        for segment in reference.segments.values()
        for operator in segment.operators
        if isinstance(operator, Compute)
        and operator.op.endswith("embedding")
        and (tensor := reference.tensors[str(operator.inputs[1])])
    ]
    return inputs, min(bounds, default=4)


def compare(reference: Plan, parallel: Plan, seed: int = 0, buffered: bool = False, own_losses: bool = False) -> Comparison:
    """Whether a step of `parallel` gives the gradients and the loss of a step of `reference`, for three draws of numbers.

    A draw on which the reference itself is not a number says nothing; `undefined` when all are. With `own_losses` ranks may
    return different losses, whose mean is compared.
    """
    batch, below = batch_of(reference)
    found = Comparison("undefined")
    for each in (seed, seed + 1, seed + 2):
        try:
            expected = run(reference, batch, below, each)
        except UndefinedError:
            continue
        try:
            actual = run(parallel, batch, below, each, buffered, own_losses)
        except FailureError as error:
            return Comparison("fails", str(error))
        except DeadlockError as error:
            return Comparison("deadlocks", str(error))
        found = Comparison(*_difference(expected, actual, _is_a_mean(reference)), actual.claims)
        if found.outcome != "equal" or found.claims:
            break
    return found


def _is_a_mean(plan: Plan) -> bool:
    """Whether the loss is a mean, of which a part of the batch may return its own, or its share of the whole."""
    for segment in plan.segments.values():
        for own in segment.operators:
            if isinstance(own, Compute) and (plan.losses or plan.outputs)[0] in own.outputs:
                name = own.op.rsplit(".", 1)[-1]
                return name == "mean" or (name in _LOSSES and own.attributes.get("reduction", "mean") == "mean")
    return False


_LOSSES = ("cross_entropy", "nll_loss", "mse_loss", "l1_loss")


def _difference(expected: Result, actual: Result, averaged: bool) -> tuple[str, str]:
    for name, gradient in expected.gradients.items():
        own = actual.gradients.get(name)
        if own is None or own.shape != gradient.shape:
            return "different", f"no gradient of `{name}`"
        error = float(np.max(np.abs(own - gradient)))
        if not error <= TOLERANCE * max(1e-30, float(np.abs(gradient).max())):
            return "different", f"gradient of `{name}` is off by {error:.3g}"
    for name, value in expected.left.items():
        own = actual.left.get(name)
        if own is None or own.shape != value.shape or not np.allclose(own, value, rtol=TOLERANCE, atol=TOLERANCE):
            return "different", f"another `{name}` is left"
    if actual.gradients.keys() - expected.gradients.keys():
        return "different", f"surplus weights {sorted(actual.gradients.keys() - expected.gradients.keys())}"
    total = actual.losses.get("loss", np.nan)
    told = (total, total / actual.losses.get("slots", 1)) if averaged else (total,)
    if not any(np.isclose(expected.losses["loss"], loss, rtol=TOLERANCE, atol=0) for loss in told):
        return "different", f"loss {actual.losses.get('loss')} instead of {expected.losses['loss']}"
    return "equal", ""
