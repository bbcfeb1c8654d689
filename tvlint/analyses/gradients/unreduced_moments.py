"""Weights whose step is written out, by way of moments, of gradients that no rank shares with the others.

Names are followed back from what a weight becomes. Nothing is said where a value on the way was exchanged along the axis, or
where an operator on it is not known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, ReduceGradients, Update
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan, Program, Role
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
    if any(step.inputs is not None or step.outputs is not None for step in plan.steps()):
        return
    inputs = [tensor for tensor in plan.tensors.values() if tensor.role is Role.INPUT]
    for axis in (axis.name for axis in plan.mesh.axes if axis.size > 1):
        split = {tensor.name for tensor in inputs if (tensor.placements or {}).get(axis) == Shard(0)}
        for program in plan.programs if split else ():
            flow = _Flow.of(plan, program, axis, split)
            for weight in sorted(name for name in flow.makers.keys() - known if _is_whole(plan, name, axis)):
                gradient = flow.gradients.get(weight)
                if gradient is not None and weight not in flow.shared:
                    given = next(name for name in reversed(writes(gradient)))
                    yield Unshared(weight, given, axis, flow.makers[weight][-1], program.ranks)


@dataclass(frozen=True, slots=True)
class _Flow:
    """What goes into the names of a program, each looked at once.

    `shared` are the names into which goes what came from other ranks of the axis, or what is not known. `gradients` are the
    names into which a gradient of the own batch goes, each with the operator that gives it.
    """

    makers: Mapping[str, Sequence[Operator]]
    shared: AbstractSet[str]
    gradients: Mapping[str, Backward]

    @classmethod
    def of(cls, plan: Plan, program: Program, axis: str, split: AbstractSet[str]) -> _Flow:
        makers: dict[str, list[Operator]] = {}
        users: dict[str, list[Operator]] = {}
        operators = [operator for _, _, operator in plan.run_by(program)]
        for operator in operators:
            for name in _changes(operator):
                makers.setdefault(name, []).append(operator)
            for name in reads(operator):
                users.setdefault(name, []).append(operator)
        shared = _reached(users, [name for each in operators if not _is_local(each, axis) for name in _changes(each)])
        of_batch = _reached(users, split)
        gradients: dict[str, Backward] = {}
        for operator in operators:
            if not isinstance(operator, Backward):
                continue
            read = set(operator.forward.tensor_operands)
            if read & of_batch and not read & shared:
                for name in _reached(users, [name for name in writes(operator) if name not in gradients], gradients):
                    gradients[name] = operator
        return cls(makers, shared, gradients)


def _changes(operator: Operator) -> tuple[str, ...]:
    """Return what an operator makes, writes to or updates."""
    if isinstance(operator, ReduceGradients | Update):
        return operator.weights
    return (*writes(operator), *(overwritten(operator) if isinstance(operator, Compute) else ()))


def _reached(users: Mapping[str, Sequence[Operator]], names: Iterable[str], but: Container[str] = ()) -> set[str]:
    """Return the names, and all that operators make of them; what is made of those in `but` is left out."""
    found = set(names)
    waiting = list(found)
    while waiting:
        for name in (made for user in users.get(waiting.pop(), ()) for made in _changes(user)):
            if name not in found and name not in but:
                found.add(name)
                waiting.append(name)
    return found


def _is_whole(plan: Plan, name: str, axis: str) -> bool:
    """Return whether all ranks of an axis hold the weight."""
    tensor = plan.tensors.get(name)
    whole = tensor is not None and tensor.role is Role.WEIGHT and tensor.region is None
    return whole and tensor is not None and not isinstance((tensor.placements or {}).get(axis), Shard)


def _is_local(operator: Operator, axis: str) -> bool:
    """Return whether nothing comes from other ranks of the axis by the operator."""
    if isinstance(operator, Communicate):
        return bool(operator.group.axes) and axis not in operator.group.axes
    if isinstance(operator, Compute):
        return row_of(operator.op) is not None
    return isinstance(operator, Backward)
