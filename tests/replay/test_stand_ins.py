"""Gradients of what stands in for functions without numbers."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tvlint.ir.operators import Compute
from tvlint.ops.annotations.declared import Declared, declared_name
from tvlint.replay.operators import forward, gradients
from tvlint.replay.stand_ins import StandIns

SIZES = {"a": 2, "b": 3, "c": 4, "d": 2}
CASES = [
    ("a b+, b+ c -> a c", ((0,), (1,))),
    ("a b^, b^ c -> a c", ()),
    ("a b+, c b+ -> a c", ((1,),)),
    ("a b+ c, a b+ -> a c", ((0, 1),)),
    ("a b^ c, c -> a b^ c, a", ((0,),)),
    ("a+ b+ c -> 1 c", ()),
    ("a, c d^ -> a c", ((0,), (1,))),
]


def _shape(tensor: str) -> tuple[int, ...]:
    return tuple(1 if name == "1" else SIZES[name.rstrip("+^")] for name in tensor.split())


@pytest.mark.parametrize(("annotation", "linear"), CASES, ids=[annotation for annotation, _ in CASES])
def test_gradients_are_those_of_what_the_stand_in_computes(annotation: str, linear: tuple[tuple[int, ...], ...]) -> None:
    before, after = annotation.split("->")
    declared = Declared("f", annotation, linear)
    shapes, results = [_shape(one) for one in before.split(",")], [_shape(one) for one in after.split(",")]
    compute = Compute(
        declared_name("f", declared),
        tuple(f"x{at}" for at in range(len(shapes))),
        tuple(f"y{at}" for at in range(len(results))),
    )
    draw = np.random.default_rng(3)
    operands = [draw.normal(size=shape) for shape in shapes]
    incoming = {at: draw.normal(size=shape) for at, shape in enumerate(results)}
    found = gradients(compute, operands, results, incoming, range(len(shapes)), StandIns())
    for position, shape in enumerate(shapes):
        expected = np.zeros(prod(shape))
        for at in range(prod(shape)):
            moved = [operand.astype(complex) for operand in operands]
            moved[position].ravel()[at] += 1e-30j
            made = forward(compute, moved, results, StandIns())
            expected[at] = sum(np.sum(np.imag(made[place]) * own) for place, own in incoming.items()) / 1e-30
        np.testing.assert_allclose(found[position].ravel(), expected, rtol=1e-9, atol=1e-12)
        assert np.any(expected != 0)
