"""All equations, by the function of `aten` that they are about."""

from __future__ import annotations

from tvlint.readers.capture.lifting.equations import (
    counted_places,
    elementwise,
    functions,
    kernels,
    places,
    products,
    reductions,
    selections,
    shapes,
)
from tvlint.readers.capture.lifting.lift import Equation

ALL: tuple[Equation, ...] = (
    *reductions.EQUATIONS,
    *selections.EQUATIONS,
    *counted_places.EQUATIONS,
    *places.EQUATIONS,
    *shapes.EQUATIONS,
    *elementwise.EQUATIONS,
    *products.EQUATIONS,
    *kernels.EQUATIONS,
    *functions.EQUATIONS,
)
"""Equations about one function are tried in this order."""

EQUATIONS: dict[str, tuple[Equation, ...]] = {
    name: tuple(equation for equation in ALL if equation.op == name) for name in dict.fromkeys(equation.op for equation in ALL)
}
