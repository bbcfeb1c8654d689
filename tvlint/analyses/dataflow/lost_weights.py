"""Weights that the forward pass reads and that no result of the plan depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import overwritten, reads, uses, with_sources, writes
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, Send
from tvlint.ir.plan import Plan, Role


@dataclass(frozen=True, slots=True)
class Lost:
    """`name`, which is made of `weight` at (`segment`, `index`), goes into no result."""

    weight: str
    name: str
    segment: str
    index: int


def lost_weights(plan: Plan) -> Iterator[Lost]:
    """Yield the weights of which nothing reaches a result, in plans that say what they return, each once."""
    steps = [step for step in plan.steps() if step.segment in plan.segments]
    results = {*plan.outputs, *plan.losses}
    if not results or any(step.inputs is not None or step.outputs is not None for step in steps):
        return
    run = dict.fromkeys(step.segment for step in steps)
    operators = [(name, index, each) for name in run for index, each in enumerate(plan.segments[name].operators)]
    wanted = _wanted([operator for _, _, operator in operators], results)
    weights = {name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    if weights.isdisjoint(wanted):
        return
    seen = set[str]()
    for segment, index, operator in operators:
        for weight in sorted({name for name in reads(operator) if name in weights and name not in wanted and name not in seen}):
            seen.add(weight)
            yield Lost(weight, next(iter(writes(operator)), weight), segment, index)


def _wanted(operators: list[Operator], results: set[str]) -> set[str]:
    """Return what results depend on, and what operators read that do more than give results.

    A message is read by whoever reads what is received under its name.
    """
    wanted, received = set(results), {operator.tensor for operator in operators if isinstance(operator, Receive)}
    for operator in operators:
        if isinstance(operator, Send) and operator.tensor in received:
            continue
        changes = isinstance(operator, Compute) and (not operator.outputs or overwritten(operator))
        if changes or not isinstance(operator, Compute | Communicate):
            wanted |= {*uses(operator), *(operator.forward.outputs if isinstance(operator, Backward) else ())}
    return with_sources(operators, wanted)
