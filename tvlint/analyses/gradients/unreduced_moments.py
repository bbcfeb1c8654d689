"""Weights whose step is written out, by way of moments, of gradients that no rank shares with the others.

Names are followed back from what a weight becomes. Nothing is said where a value on the way was exchanged along the axis, or
where an operator on it is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, ReduceGradients, Update
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan, Role
from tvlint.ops.table import row_of


@dataclass(frozen=True, slots=True)
class Unshared:
    """At `operator` `weight` becomes something that is made of the gradient `name` of the own batch along `axis`."""

    weight: str
    name: str
    axis: str
    operator: Operator
    ranks: tuple[int, ...]


def unshared(plan: Plan, known: AbstractSet[str]) -> Iterator[Unshared]:
    """Yield the weights that are computed anew from gradients of parts of a batch, once for each axis that splits it.

    Those whose steps are `known` are left out.
    """
    if any(step.inputs is not None or step.outputs is not None for program in plan.programs for step in program.steps):
        return
    inputs = [tensor for tensor in plan.tensors.values() if tensor.role is Role.INPUT]
    for axis in (axis.name for axis in plan.mesh.axes if axis.size > 1):
        split = {tensor.name for tensor in inputs if (tensor.placements or {}).get(axis) == Shard(0)}
        for program in plan.programs if split else ():
            run = dict.fromkeys(step.segment for step in program.steps if step.segment in plan.segments)
            makers: dict[str, list[Operator]] = {}
            for operator in (operator for name in run for operator in plan.segments[name].operators):
                for name in {*writes(operator), *(overwritten(operator) if isinstance(operator, Compute) else ())}:
                    makers.setdefault(name, []).append(operator)
                for name in operator.weights if isinstance(operator, ReduceGradients | Update) else ():
                    makers.setdefault(name, []).append(operator)
            for weight in sorted(name for name in makers.keys() - known if _is_whole(plan, name, axis)):
                yield from _of_weight(weight, makers, split, axis, program.ranks)


def _is_whole(plan: Plan, name: str, axis: str) -> bool:
    """Return whether all ranks of an axis hold the weight."""
    tensor = plan.tensors.get(name)
    whole = tensor is not None and tensor.role is Role.WEIGHT and tensor.region is None
    return whole and tensor is not None and not isinstance((tensor.placements or {}).get(axis), Shard)


def _of_weight(
    weight: str, makers: Mapping[str, Sequence[Operator]], split: set[str], axis: str, ranks: tuple[int, ...]
) -> Iterator[Unshared]:
    way = _before(makers[weight], makers)
    back = [operator for operator in way if isinstance(operator, Backward)]
    if not back or not all(_is_local(operator, axis) for operator in way):
        return
    for operator in back:
        read = [name for name in operator.forward.inputs if isinstance(name, str)]
        forth = _before([maker for name in read for maker in makers.get(name, ())], makers)
        names = {*read, *(name for each in forth for name in reads(each))}
        if not split.isdisjoint(names) and all(_is_local(each, axis) for each in forth):
            given = next(name for name in reversed(writes(operator)))
            yield Unshared(weight, given, axis, makers[weight][-1], ranks)
            return


def _before(operators: Sequence[Operator], makers: Mapping[str, Sequence[Operator]]) -> list[Operator]:
    """Return the operators, and all from whose results they are computed."""
    found, waiting = {id(operator): operator for operator in operators}, list(operators)
    while waiting:
        for maker in (maker for name in reads(waiting.pop()) for maker in makers.get(name, ())):
            if id(maker) not in found:
                found[id(maker)] = maker
                waiting.append(maker)
    return list(found.values())


def _is_local(operator: Operator, axis: str) -> bool:
    """Return whether nothing comes from other ranks of the axis by the operator."""
    if isinstance(operator, Communicate):
        return bool(operator.group.axes) and axis not in operator.group.axes
    if isinstance(operator, Compute):
        return row_of(operator.op) is not None
    return isinstance(operator, Backward)
