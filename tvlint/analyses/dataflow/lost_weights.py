"""Weights that no result of the plan depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.def_use import names_inside, overwritten, reads, uses, with_sources, writes
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, Send
from tvlint.ir.plan import Plan, Role


@dataclass(frozen=True, slots=True)
class Lost:
    """No result depends on `weight`; what is made at (`segment`, `index`) shows it, and `how` says in what way."""

    weight: str
    how: str
    segment: str
    index: int


def lost_weights(plan: Plan) -> Iterator[Lost]:
    """Yield the weights of which nothing reaches a result, in plans that say what they return, each once."""
    steps = [step for step in plan.steps() if step.segment in plan.segments]
    results = {*plan.outputs, *plan.losses}
    if not results or any(step.inputs is not None or step.outputs is not None for step in steps):
        return
    run = dict.fromkeys(step.segment for step in steps)
    yield from _unread(plan, run)
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


def _unread(plan: Plan, run: Iterable[str]) -> Iterator[Lost]:
    """Yield the weights that nothing names, where operators of one kind read another weight of their shape twice."""
    weights = {name: tensor for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    names = set[str]().union(*(names_inside(plan.segments[name]) for name in run))
    named = [weights[name] for name in names & weights.keys()]
    held = {identity for each in named for identity in (each.logical or each.name, each.storage)}
    unread = [each for name, each in weights.items() if held.isdisjoint({each.logical or name, each.storage or name, name})]
    readers: dict[str, Compute] = {}
    again: dict[tuple[tuple[int, ...], str], Lost] = {}
    for segment in run if unread else ():
        for index, operator in enumerate(plan.segments[segment].operators):
            if not isinstance(operator, Compute):
                continue
            for weight in weights.keys() & set(reads(operator)):
                if _reads_alike(readers.setdefault(weight, operator), operator):
                    how = f"which nothing reads, and `{weight}` is read again here"
                    again.setdefault((weights[weight].shape, weights[weight].dtype), Lost("", how, segment, index))
    for lost in unread:
        found = again.get((lost.shape, lost.dtype))
        if found is not None:
            yield replace(found, weight=lost.name)


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
