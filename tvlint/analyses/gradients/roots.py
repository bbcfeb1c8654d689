"""Backward roots: gradients that a plan reads and that nothing makes.

Such a gradient starts at the value that its own name (`grad(x)`) or a declaration says it is the gradient of, with one for
every element. A name that says nothing of the kind starts nothing, and one that an operator or a run gives is made.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.def_use import writes
from tvlint.ir.plan import Plan


def named_after(gradient: str) -> str:
    """Return the value that `grad(VALUE)` is the gradient of by its name; empty for any other name."""
    return gradient[5:-1] if gradient.startswith("grad(") and gradient.endswith(")") else ""


def made(plan: Plan) -> frozenset[str]:
    """Return all names that operators, and runs of segments, give to something on some rank."""
    return frozenset(_made(plan))


def _made(plan: Plan) -> Iterator[str]:
    for operator in plan.operators():
        yield from writes(operator)
    for step in plan.steps():
        yield from step.outputs or ()
