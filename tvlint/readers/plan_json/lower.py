"""From a JSON document whose form is known to be right to a plan."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tvlint.analyses.dataflow.local_shapes import whole_shape
from tvlint.analyses.inference.accumulation import with_reducers
from tvlint.analyses.inference.per_rank_types import with_own_types
from tvlint.analyses.inference.shapes_and_gradients import derive_tensors, for_every_operand, link_gradients
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import Backward, Compute, Group, Operator
from tvlint.ir.placement import Invariant, Partial, Placement, Replicate, Shard
from tvlint.ir.plan import Phase, Plan, Program, Replication, Role, Segment, Step, Tensor
from tvlint.ir.reductions import reduction_named
from tvlint.plurals import counted
from tvlint.readers.plan_json.operators import OperatorBuilder, integers
from tvlint.readers.plan_json.schema_checker import At, FormError

MOST_RANKS = 2**20


def build(path: str, document: dict[str, Any]) -> Plan:
    """Return the plan; raises FormError where the document names something that it does not have."""
    mesh = _mesh(document["mesh"])
    builder = OperatorBuilder(path, mesh)
    communicators = tuple(_communicator(builder, entry, index) for index, entry in enumerate(document.get("communicators", ())))
    tensors = {name: _tensor(builder, name, value, ((None, "tensors"), name)) for name, value in document["tensors"].items()}
    segments = _segments(builder, document["segments"], tensors)
    operators = [operator for segment in segments.values() for operator in segment.operators]
    tensors = derive_tensors(tensors, _open(tensors, document["tensors"]), operators, mesh)
    chosen, _ = link_gradients(tensors)
    for name, gradient in chosen.items():
        if name in tensors and "gradient" not in document["tensors"].get(name, {}):
            tensors[name] = replace(tensors[name], gradient=gradient)
    repeated = document.get("replication")
    replication = Replication()
    if repeated:
        replication = Replication(repeated["axis"], int(repeated["count"]), int(repeated["stride"]))
    programs = _programs(document["programs"], mesh, replication, segments)
    last = max((step.micro_batch for program in programs for step in program.steps), default=0)
    entry = [_own_types(builder, each.get("tensors", {}), tensors, index) for index, each in enumerate(document["programs"])]
    plan = Plan(
        path, "plan-json", mesh, tensors, segments, programs, replication, int(document.get("micro_batches", max(last + 1, 1))),
        *_returned(document), communicators, document.get("name", ""), assumed=tuple(document.get("assumed", ())),
    )  # fmt: skip
    return with_reducers(with_own_types(plan, dict(enumerate(entry)), frozenset(document["tensors"])))


def _open(tensors: dict[str, Tensor], declared: dict[str, Any]) -> frozenset[str]:
    """Return the declared gradients of which it is left to the operators to say whose they are."""
    return frozenset(
        name for name, tensor in tensors.items() if tensor.role is Role.GRADIENT and "gradient_of" not in declared[name]
    )


def _returned(document: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the outputs, each once, and the losses: the first is an output, others may be values that only start gradients."""
    outputs = tuple(document.get("outputs", ()))
    for index, name in enumerate(outputs):
        if name in outputs[:index]:
            raise FormError(f"output `{name}` is given twice", ((None, "outputs"), index))
    loss = document.get("loss") or ()
    losses = (loss,) if isinstance(loss, str) else tuple(dict.fromkeys(loss))
    for place, name in enumerate(losses):
        if name not in outputs and (place == 0 or name not in document["tensors"]):
            raise FormError(f"the loss `{name}` is none of the outputs", (None, "loss"))
    return outputs, losses


def _mesh(value: list[dict[str, Any]]) -> Mesh:
    axes: list[Axis] = []
    for index, entry in enumerate(value):
        if any(entry["axis"] == axis.name for axis in axes):
            raise FormError(f"axis `{entry['axis']}` is given twice", (((None, "mesh"), index), "axis"))
        axes.append(Axis(entry["axis"], int(entry["size"])))
    if prod(axis.size for axis in axes) > MOST_RANKS:
        raise FormError(f"a mesh of more than {MOST_RANKS} ranks", (None, "mesh"))
    return Mesh(tuple(axes))


def _communicator(builder: OperatorBuilder, value: dict[str, Any], index: int) -> Group:
    at: At = ((None, "communicators"), index)
    name = value.get("name", "")
    if name and name in builder.communicators:
        raise FormError(f"communicator `{name}` is declared twice", (at, "name"))
    group = builder.group(value, at)
    if name:
        builder.communicators[name] = group
    return group


def _own_types(builder: OperatorBuilder, value: dict[str, Any], tensors: dict[str, Tensor], program: int) -> dict[str, Tensor]:
    """Return the tensors that have another type on the ranks of one program."""
    found: dict[str, Tensor] = {}
    for name, entry in value.items():
        at: At = ((((None, "programs"), program), "tensors"), name)
        if name not in tensors:
            raise FormError(f"`{name}` is no tensor of this plan", at, "", True)
        found[name] = _tensor(builder, name, entry, at)
        if found[name].role is not tensors[name].role:
            raise FormError(f"`{name}` is of role {tensors[name].role.value} elsewhere", (at, "role"))
    return found


def _tensor(builder: OperatorBuilder, name: str, value: dict[str, Any], at: At) -> Tensor:
    placements: dict[str, Placement] | None = None
    if "placements" in value:
        placements = {}
        for axis, placement in value["placements"].items():
            builder.axis(axis, ((at, "placements"), axis))
            placements[axis] = _placement(placement)
    shape = integers(value["shape"])
    whole = integers(value["whole"]) if "whole" in value else None
    if placements is not None and whole is None:
        whole = whole_shape(builder.mesh, shape, placements)
        if whole is None:
            message = "the shape of the whole value does not follow from the placements"
            raise FormError(message, (at, "placements"), "say `whole`")
    part = integers(value.get("part", (0, 1)))
    if part[0] >= part[1]:
        raise FormError(f"part {part[0]} of {part[1]}, counted from 0", (at, "part"))
    region = value.get("region")
    if region is not None and len(region) != len(whole or shape):
        raise FormError(
            f"a region of {counted(len(region), 'interval')}, of a value of {counted(len(whole or shape), 'dimension')}",
            (at, "region"),
        )
    for index, (low, high) in enumerate(region or ()):
        if low > high:
            raise FormError(f"an interval from {low} to {high}", ((at, "region"), index))
        if whole is not None and high > whole[index]:
            raise FormError(f"an interval up to {high} of {whole[index]}", ((at, "region"), index))
    role = Role(value["role"])
    wanted = value.get("requires_grad", role is Role.WEIGHT)
    return Tensor(
        name, shape, value["dtype"], role, value.get("logical", ""), whole,
        tuple((int(low), int(high)) for low, high in region) if region is not None else None, (part[0], part[1]), placements,
        value.get("gradient_of", ""), value.get("gradient", ""), wanted, value.get("storage", ""),
    )  # fmt: skip


def _placement(value: dict[str, Any]) -> Placement:
    match value["kind"]:
        case "replicate":
            return Replicate()
        case "invariant":
            return Invariant()
        case "partial":
            return Partial(reduction_named(value.get("reduce", "sum")))
    return Shard(int(value["dim"]), tuple(map(integers, value.get("order", ()))), integers(value.get("parts", ())))


def _segments(builder: OperatorBuilder, value: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Segment]:
    built: dict[str, list[Operator | None]] = {}
    for name, entry in value.items():
        at: At = (((None, "segments"), name), "operators")
        built[name] = [
            None if item["kind"] == "backward" else builder.build(item, (at, index), name, index)
            for index, item in enumerate(entry["operators"])
        ]
    segments: dict[str, Segment] = {}
    for name, entry in value.items():
        operators = tuple(
            item if item is not None else _of_all(_backward(builder, built, entry["operators"][index], name, index), tensors)
            for index, item in enumerate(built[name])
        )
        segments[name] = Segment(
            name, Phase(entry["phase"]), tuple(entry["inputs"]), tuple(entry["outputs"]), operators,
            int(entry.get("pipeline_stage", -1)), entry.get("mirror", ""), entry.get("checkpointed", False),
        )  # fmt: skip
    return segments


def _backward(
    builder: OperatorBuilder, built: dict[str, list[Operator | None]], value: dict[str, Any], segment: str, index: int
) -> Backward:
    forward_name = value["forward"]
    operator_at: At = ((((None, "segments"), segment), "operators"), index)
    at: At = (operator_at, "forward")
    if "segment" not in forward_name:
        return builder.backward(value, builder.compute(forward_name, at, segment, index), operator_at, segment, index)
    if forward_name["segment"] not in built:
        raise FormError(f"`{forward_name['segment']}` is no segment of this plan", (at, "segment"))
    there = built[forward_name["segment"]]
    position = int(forward_name["operator"])
    if position >= len(there):
        raise FormError(f"operator {position} of a segment of {len(there)}", (at, "operator"))
    forward = there[position]
    if not isinstance(forward, Compute):
        raise FormError("`backward` is of a computation", (at, "operator"), "the backward of a collective is a collective")
    return builder.backward(value, forward, operator_at, segment, index)


def _of_all(operator: Backward, tensors: dict[str, Tensor]) -> Backward:
    """Return the operator with a gradient, or none, for every operand."""
    operands = operator.forward.tensor_operands
    return replace(operator, outputs=for_every_operand(operator.outputs, operands, tensors))


def _programs(
    value: list[dict[str, Any]], mesh: Mesh, replication: Replication, segments: dict[str, Segment]
) -> tuple[Program, ...]:
    owner: dict[int, int] = {}
    programs: list[Program] = []
    for index, entry in enumerate(value):
        at: At = ((None, "programs"), index)
        ranks = integers(entry["ranks"]) if "ranks" in entry else _where(entry["where"], mesh, replication, (at, "where"))
        for rank in ranks:
            if rank >= max(mesh.size, 1):
                raise FormError(f"rank {rank} of a mesh of {mesh.size} ranks", at)
            if rank in owner:
                raise FormError(f"rank {rank} has a program already, program {owner[rank]}", at, "a rank runs one program")
            owner[rank] = index
        for position, step in enumerate(entry["steps"]):
            if step["segment"] not in segments:
                raise FormError(f"`{step['segment']}` is no segment of this plan", ((at, "steps"), position))
        steps = tuple(map(_step, entry["steps"]))
        for position, made in enumerate(steps):
            if misfit := made.misfit(segments[made.segment]):
                raise FormError(misfit, ((at, "steps"), position))
        programs.append(Program(ranks, steps))
    return tuple(programs)


def _where(value: dict[str, Any], mesh: Mesh, replication: Replication, at: At) -> tuple[int, ...]:
    chosen = {axis: int(coordinate) for axis, coordinate in value.items()}
    for axis, coordinate in chosen.items():
        if all(axis != each_axis.name for each_axis in mesh.axes):
            raise FormError(f"`{axis}` is no axis of the mesh", (at, axis), "", True)
        if coordinate >= mesh.axis_size(axis):
            raise FormError(f"coordinate {coordinate} on axis `{axis}` of size {mesh.axis_size(axis)}", (at, axis))
    if replication.count > 1:
        chosen.setdefault(replication.axis, 0)
    return mesh.ranks_at(chosen)


def _step(value: dict[str, Any]) -> Step:
    return Step(
        value["segment"], int(value.get("micro_batch", -1)),
        tuple(value["inputs"]) if "inputs" in value else None, tuple(value["outputs"]) if "outputs" in value else None,
    )  # fmt: skip
