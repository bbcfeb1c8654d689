"""The axes of a mesh on which a placement means something."""

from __future__ import annotations

from math import prod

from tvlint.ir.operators import Collective, Communicate, Group, ReduceGradients
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan, Role

PIPELINE_AXES = frozenset({"pp", "pipe", "pipeline", "stage", "stages"})
DATA_AXES = frozenset({"dp", "cp", "fsdp", "ddp", "data", "dp_replicate", "dp_shard"})

SEQUENCE_AXES = frozenset({"cp", "context", "sp", "seq", "sequence"})

MODEL_AXES = frozenset({"tp", "mp", "model", "tensor", "sp", "seq", "sequence"})


def group_size(plan: Plan, group: Group) -> int:
    """Return how many ranks a group has, those of one replica where it lists them."""
    group = plan.declared(group)
    return len(set(group.ranks)) or prod(plan.mesh.axis_size(axis) for axis in group.axes)


def batch_axes(plan: Plan) -> frozenset[str]:
    """Return the axes over which ranks have batches of their own: by their names, or since inputs are split over them, by rows
    or where gradients of weights are reduced over them as well.
    """
    reduced = {
        axis for operator in plan.operators_of(ReduceGradients)
        for axis in operator.group.axes
    }  # fmt: skip
    split = {
        axis for tensor in plan.tensors.values() if tensor.role is Role.INPUT
        for axis, on in (tensor.placements or {}).items() if isinstance(on, Shard) and (on.dim == 0 or axis in reduced)
    }  # fmt: skip
    return DATA_AXES | (split - MODEL_AXES - PIPELINE_AXES)


def traded_axes(plan: Plan) -> frozenset[str]:
    """Return the axes over which an all-to-all runs or weights are split, so that heads may be split over them."""
    found: set[str] = set()
    for operator in plan.operators_of(Communicate):
        if operator.kind is Collective.ALL_TO_ALL:
            found.update(operator.group.axes or [axis.name for axis in plan.mesh.axes])
    for tensor in plan.tensors.values():
        if tensor.role is Role.WEIGHT:
            found.update(axis for axis, placement in (tensor.placements or {}).items() if isinstance(placement, Shard))
    return frozenset(found)
