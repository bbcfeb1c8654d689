"""Which of two axes cuts the pieces of the other, where both cut one dimension of what is given: its gathers say it."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from tvlint.ir.operators import Collective, Communicate, Compute
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan, Role, Tensor
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_Nested: TypeAlias = tuple[str, str, bool, bool]
"""Two axes, the slower one first, whether they cut an input, and whether the slower one is declared first."""


def nested_as_gathered(plan: Plan) -> Plan:
    """Return the plan in which weights and inputs, and what belongs to weights, have the pieces that gathers put together.

    Where no gather says more, an axis that is slower in the mesh cuts first. Weights that are cut for tensor parallelism, and
    then each shard over the replicas, are gathered over these first, whatever the mesh.
    """
    nested = {name: pair for name, tensor in plan.tensors.items() if (pair := _nested(plan, tensor))}
    if not nested:
        return plan
    over, held = set[tuple[_Nested, tuple[str, ...]]](), dict(nested)
    for operator in plan.operators():
        if isinstance(operator, Compute) and has_trait(operator.op, Trait.CONVERSION, Trait.DETACHED):
            held.update({name: held[given] for name in operator.outputs for given in operator.tensor_operands if given in held})
        elif isinstance(operator, Communicate) and operator.kind is Collective.ALL_GATHER and operator.inputs[0] in held:
            over.add((held[operator.inputs[0]], plan.declared(operator.group).axes))
    turned = {pair for pair, axes in over if axes == pair[:1]} - {pair for pair, axes in over if pair[1] in axes}
    tensors = {name: _turned(plan, plan.tensors[name], *pair[:2]) for name, pair in nested.items() if pair in turned}
    return replace(plan, tensors={**plan.tensors, **tensors})


def is_cut_twice(plan: Plan, tensor: Tensor) -> bool:
    """Return whether two axes cut one dimension of the tensor, in an order that its placements leave open."""
    return _nested(plan, tensor) is not None


def _nested(plan: Plan, tensor: Tensor) -> _Nested | None:
    """Return the two axes that cut one dimension of a given tensor; None where two do not, or more."""
    shards = {axis: on for axis, on in (tensor.placements or {}).items() if isinstance(on, Shard)}
    found = [axis.name for axis in plan.mesh.axes if axis.size > 1 and axis.name in shards]
    declared = [axis for axis in shards if axis in found]
    if tensor.role is Role.ACTIVATION or len(found) != 2 or len({shards[axis] for axis in found}) != 1:
        return None
    if shards[found[0]].order or shards[found[0]].parts:
        return None
    return found[0], found[1], tensor.role is Role.INPUT, declared == found


def _turned(plan: Plan, tensor: Tensor, slow: str, fast: str) -> Tensor:
    """Return the tensor cut by the faster axis first: the slower one has a block in each of its pieces."""
    sizes, placements = {axis.name: axis.size for axis in plan.mesh.axes}, tensor.placements or {}
    dim = next(on.dim for axis, on in placements.items() if axis == fast and isinstance(on, Shard))
    order = tuple(tuple(range(place, sizes[slow] * sizes[fast], sizes[slow])) for place in range(sizes[slow]))
    return replace(tensor, placements={**placements, slow: Shard(dim, order)})
