"""Weights that no result of the plan depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import names_in, overwritten, reads, uses, with_sources, writes
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, Send
from tvlint.ir.plan import Plan, Role, Tensor


@dataclass(frozen=True, slots=True)
class Lost:
    """No result depends on `weight`; what is made at (`segment`, `index`) shows it, and `how` says in what way."""

    weight: str
    how: str
    segment: str
    index: int


def lost_weights(plan: Plan) -> Iterator[Lost]:
    """Yield the weights of which nothing reaches a result, in plans that say what they return, each once."""
    yield from _unread(plan)
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
            made = next(iter(writes(operator)), weight)
            yield Lost(weight, f"of which `{made}` is made", segment, index)


def _unread(plan: Plan) -> Iterator[Lost]:
    """Yield the weights that nothing names, where operators of one kind read another weight of their shape twice."""
    weights = {name: tensor for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    named = names_in(plan) if plan.outputs or plan.losses else {*weights}
    held = {identity for name in named & weights.keys() for identity in (weights[name].logical or name, weights[name].storage)}
    unread = [each for name, each in weights.items() if held.isdisjoint({each.logical or name, each.storage or name, name})]
    readers: dict[str, list[tuple[str, int, Compute]]] = {}
    for segment in dict.fromkeys(step.segment for step in plan.steps()) if unread else ():
        for index, operator in enumerate(plan.segments[segment].operators):
            if isinstance(operator, Compute):
                for weight in weights.keys() & set(reads(operator)):
                    readers.setdefault(weight, []).append((segment, index, operator))
    for lost in unread:
        alike = (found for name, found in readers.items() if _is_alike(weights[name], lost) and len(found) > 1)
        again = next(((found[0], each) for found in alike for each in found[1:] if _reads_alike(found[0][2], each[2])), None)
        if again is not None:
            other = next(name for name in reads(again[1][2]) if name in weights and _is_alike(weights[name], lost))
            yield Lost(lost.name, f"which nothing reads, and `{other}` is read again here", *again[1][:2])


def _is_alike(one: Tensor, other: Tensor) -> bool:
    return (one.shape, one.dtype, one.placements) == (other.shape, other.dtype, other.placements)


def _reads_alike(one: Compute, other: Compute) -> bool:
    """Return whether two operators compute alike, and not the same twice: what they give has other names."""
    return one.op == other.op and one.outputs != other.outputs and one.inputs != other.inputs


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
