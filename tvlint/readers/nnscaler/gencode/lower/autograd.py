"""Derive the backward of a segment as autograd runs it: the gradient of every operator, in reverse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import reads
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive
from tvlint.readers.nnscaler.gencode.lower.operators import Gradual, Reverse


def gradient(name: str) -> str:
    """Return the name of the gradient of a tensor in derived backward operators; no generated name has a dot."""
    return f"g.{name}" if name else ""


def recorded(body: Iterable[Gradual], leaves: Iterable[str], constant: Callable[[Compute], frozenset[int]]) -> set[str]:
    """Return what requires a gradient where `leaves` do: autograd records what is computed from it.

    `constant` gives the tensor operands of an operator that do not pass that on.
    """
    found = set(leaves)
    for entry in body:
        if not entry.differentiable:
            continue
        if entry.function is not None:
            found.update(entry.function.outputs if found & set(entry.function.inputs) else ())
            continue
        operator = entry.operator
        if isinstance(operator, (Compute, Communicate)) and found & set(_operands(operator, constant)):
            found.update(operator.outputs)
    return found


def differentiated(
    body: Iterable[Gradual],
    leaves: Iterable[str],
    outputs: Iterable[str],
    constant: Callable[[Compute], frozenset[int]] = lambda operator: frozenset(),
) -> tuple[Operator, ...]:
    """Return the backward of `body` from the gradients of `outputs` to those of `leaves`.

    A gradient that several operators produce is produced several times, which adds it up. `constant` gives the tensor
    operands of an operator that no gradient flows to.
    """
    operators = list(body)
    needed = recorded(operators, leaves, constant)
    reached = set(outputs) & needed
    found: list[Operator] = []
    for position, entry in enumerate(reversed(operators)):
        operator = entry.operator
        if entry.function is not None:
            if entry.differentiable and reached & set(entry.function.outputs):
                found += _written_out(entry.function, needed, f"b{position}")
                reached.update(name for name in entry.function.inputs if name in needed)
            continue
        if not entry.differentiable or isinstance(operator, Receive) or not isinstance(operator, (Compute, Communicate)):
            continue
        if not reached & set(operator.outputs):
            continue
        operands = _operands(operator, constant)
        given = tuple(gradient(name) if name in needed else "" for name in operands)
        if not any(given):
            continue
        taken = tuple(gradient(name) if name in reached else "" for name in operator.outputs)
        if entry.reverse is not None:
            found.append(replace(entry.reverse, inputs=taken, outputs=given))
        elif isinstance(operator, Compute):
            found.append(Backward(operator, taken, given, source=operator.source))
        else:
            continue
        reached.update(name for name in operands if name in needed)
    return tuple(found)


def _written_out(function: Reverse, needed: set[str], mark: str) -> Iterator[Operator]:
    """Yield the backward that a function has of its own; `mark` tells its inner names from those of other uses."""
    names = dict(zip(function.taken, map(gradient, function.outputs), strict=True))
    names.update(
        (each_name, gradient(name)) for each_name, name in zip(function.given, function.inputs, strict=True) if name in needed
    )
    for operator in function.operators:
        if isinstance(operator, Communicate):
            made = tuple(names.setdefault(name, f"{gradient(name)}.{mark}") for name in operator.outputs)
            yield replace(operator, inputs=tuple(names.get(name, name) for name in operator.inputs), outputs=made)


def _operands(operator: Compute | Communicate, constant: Callable[[Compute], frozenset[int]]) -> tuple[str, ...]:
    """Return the tensor operands; an empty name where no gradient flows."""
    without = constant(operator) if isinstance(operator, Compute) else ()
    return tuple("" if position in without else name for position, name in enumerate(reads(operator)))
