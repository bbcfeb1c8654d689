"""Find the axis along which replicas that a plan writes out are equal, and write the plan of one of them.

An axis of the mesh is folded when a derivation cannot see a rank's coordinate on it: every rank along it runs one program
that names no rank, peer or piece by it; weights and buffers are the same everywhere on it; it cuts every input once, so
that replica r holds slot r of the batch; and what goes along it are sums. docs/soundness.md has the argument.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TypeGuard

from tvlint.analyses.dataflow.representative_ranks import Fold
from tvlint.analyses.relations.derivation.given.trusted_inputs import Inputs
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Collective, Communicate, ReduceGradients
from tvlint.ir.placement import Invariant, Placement, Replicate, Shard
from tvlint.ir.plan import Plan, Program, Replication, Role, Tensor
from tvlint.ir.reductions import ADDING


def equal_replicas(plan: Plan, inputs: Inputs) -> tuple[str, tuple[int, ...], dict[str, Tensor]] | None:
    """Return the largest axis along which replicas are equal, the dimension of each input that it cuts, and the tensors of one.

    None where there is no such axis, or one is folded already. `inputs` are those of the plan, numbered.
    """
    alike = Fold(plan).alike if plan.replication.count <= 1 else ()
    for axis in sorted(plan.mesh.axes, key=lambda axis: -axis.size):
        if axis.size > 1 and axis.name in alike and _only_sums(plan, axis.name):
            slots = _slots(plan, inputs, axis.name)
            tensors = None if slots is None else _tensors(plan, axis.name)
            if slots is not None and tensors is not None:
                return axis.name, slots, tensors
    return None


def cut_inputs(plan: Plan, inputs: Inputs) -> tuple[str, tuple[int, ...], dict[str, Tensor]] | None:
    """Return, of a plan whose replicas are folded, their axis, the dimension of each input that it is declared to cut, and the
    tensors of one replica; None where it is not declared to cut them all.
    """
    axis = plan.replication.axis
    declared = [tensor for tensor in plan.tensors.values() if isinstance((tensor.placements or {}).get(axis), Shard)]
    if plan.replication.count <= 1 or not any(tensor.role is Role.INPUT for tensor in declared):
        return None
    if any(tensor.name in plan.outputs for tensor in declared):
        return None
    slots = _slots(plan, inputs, axis)
    tensors = None if slots is None else _tensors(plan, axis)
    return None if slots is None or tensors is None else (axis, slots, tensors)


def _only_sums(plan: Plan, axis: str) -> bool:
    """Return whether what goes along the axis are sums and averages over all of it."""
    for operator in plan.operators():
        if isinstance(operator, ReduceGradients) and operator.replicated:
            return False
        along = isinstance(operator, Communicate) and axis in plan.declared(operator.group).axes
        if (
            isinstance(operator, Communicate)
            and along
            and not (operator.kind is Collective.ALL_REDUCE and operator.reduce in ADDING)
        ):
            return False
    return True


def _slots(plan: Plan, inputs: Inputs, axis: str) -> tuple[int, ...] | None:
    """Return the dimension that the axis cuts of each input, the same wherever the plan names it; None if it does not cut them
    all.
    """
    found: dict[int, set[tuple[tuple[int, ...] | None, int | None]]] = {}
    for tensor in plan.tensors.values():
        if tensor.role is Role.INPUT:
            number = inputs.position(tensor)
            found.setdefault(-1 if number is None else number, set()).add((tensor.whole, _cut(plan.mesh, tensor, axis)))
    if sorted(found) != list(range(len(inputs.names))) or any(len(ways) > 1 for ways in found.values()):
        return None
    dims = [dim for number in sorted(found) for _, dim in found[number]]
    return tuple(dim for dim in dims if dim is not None) if None not in dims else None


def _cut(mesh: Mesh, tensor: Tensor, axis: str) -> int | None:
    """Return the dimension of which replica r has the r-th of equal pieces, whatever other axes make of that piece; None for
    none.
    """
    whole, placements = tensor.whole, tensor.placements or {}
    placement = placements.get(axis)
    if whole is None or tensor.region is not None or tensor.part != (0, 1) or not _is_slice(placement, whole):
        return None
    dim, names = placement.dim % len(whole), [other.name for other in mesh.axes]
    before = [placements.get(name) for name in names[: names.index(axis)]]
    outer = any(isinstance(other, Shard) and other.dim % len(whole) == dim for other in before)
    return None if outer or whole[dim] % mesh.axis_size(axis) else dim


def _is_slice(placement: Placement | None, whole: tuple[int, ...]) -> TypeGuard[Shard]:
    """Return whether the placement gives each coordinate one contiguous piece of a dimension."""
    if not isinstance(placement, Shard) or placement.order or placement.parts:
        return False
    return -len(whole) <= placement.dim < len(whole)


def _tensors(plan: Plan, axis: str) -> dict[str, Tensor] | None:
    """Return the tensors as one replica declares them; None where a declaration tells replicas apart in another way."""
    tensors = dict(plan.tensors)
    for name, tensor in plan.tensors.items():
        placement = (tensor.placements or {}).get(axis)
        lasts = tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE)
        if lasts and not (placement is None or isinstance(placement, Replicate | Invariant)):
            return None
        if tensor.role is not Role.INPUT and name not in plan.outputs:
            continue
        if isinstance(placement, Shard):
            dim = _cut(plan.mesh, tensor, axis)
            if dim is None or tensor.whole is None:
                return None
            size = tensor.whole[dim] // plan.mesh.axis_size(axis)
            placements = {**(tensor.placements or {}), axis: Replicate()}
            tensors[name] = replace(tensor, whole=(*tensor.whole[:dim], size, *tensor.whole[dim + 1 :]), placements=placements)
    return tensors


def first_replica(plan: Plan, axis: str, tensors: dict[str, Tensor]) -> Plan:
    """Return the plan of one replica, whose tensors are `tensors`."""
    names = [each_axis.name for each_axis in plan.mesh.axes]
    stride = prod(each_axis.size for each_axis in plan.mesh.axes[names.index(axis) + 1 :])
    count = plan.mesh.axis_size(axis)
    programs = tuple(
        Program(tuple(rank for rank in program.ranks if rank // stride % count == 0), program.steps)
        for program in plan.programs
    )
    return replace(plan, tensors=tensors, programs=programs, replication=Replication(axis, count, stride))
