"""Plans as neutral JSON (docs/plan-json.md, schemas/plan.schema.json)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tvlint.analyses.inference.shapes_and_gradients import link_gradients
from tvlint.ir.operators import Compute, Group
from tvlint.ir.placement import Invariant, Partial, Placement, Replicate
from tvlint.ir.plan import Plan, Program, Replication, Role, Segment, Step, Tensor
from tvlint.reporters.escape.data import dumped
from tvlint.reporters.plan.json_operators import operator


def write(plan: Plan) -> str:
    """`plan` as JSON, one tensor, operator and step a line; reading it gives the same plan, but for places in its own file."""
    return "{\n" + ",\n".join(_members(plan)) + "\n}\n"


def _members(plan: Plan) -> Iterator[str]:
    yield '"tvlint_plan": 1'
    if plan.name:
        yield f'"name": {dumped(plan.name)}'
    yield f'"mesh": {dumped([{"axis": axis.name, "size": axis.size} for axis in plan.mesh.axes])}'
    replication = plan.replication
    if replication != Replication():
        yield f'"replication": {dumped({"axis": replication.axis, "count": replication.count, "stride": replication.stride})}'
    yield f'"micro_batches": {plan.micro_batches}'
    if plan.communicators:
        yield f'"communicators": {_lines(dumped(_communicator(group)) for group in plan.communicators)}'
    linked, undecided = link_gradients(plan.tensors)
    tensors = {
        name: dumped(_tensor(tensor, linked.get(name, ""), name in linked or name in undecided))
        for name, tensor in plan.tensors.items()
    }
    yield f'"tensors": {_object(tensors)}'
    computes = _computes(plan)
    yield f'"segments": {_object({name: _segment(plan, segment, computes) for name, segment in plan.segments.items()})}'
    yield f'"programs": {_lines(_program(program) for program in plan.programs)}'
    if plan.outputs:
        yield f'"outputs": {dumped(plan.outputs)}'
    if plan.losses:
        yield f'"loss": {dumped(plan.losses if len(plan.losses) > 1 else plan.losses[0])}'
    if plan.assumed:
        yield f'"assumed": {dumped(plan.assumed)}'


def _lines(items: Iterator[str]) -> str:
    rows = list(items)
    return "[\n  " + ",\n  ".join(rows) + "\n]" if rows else "[]"


def _object(members: Mapping[str, str]) -> str:
    rows = [f"{dumped(name)}: {text}" for name, text in members.items()]
    return "{\n  " + ",\n  ".join(rows) + "\n}" if rows else "{}"


def _communicator(group: Group) -> dict[str, Any]:
    named = {"name": group.name} if group.name else {}
    return {**named, "ranks": group.ranks} if group.ranks else {**named, "axes": group.axes}


def _tensor(tensor: Tensor, linked: str, links: bool) -> dict[str, Any]:
    written: dict[str, Any] = {"shape": tensor.shape, "dtype": tensor.dtype, "role": tensor.role.value}
    if tensor.logical:
        written["logical"] = tensor.logical
    if tensor.whole is not None:
        written["whole"] = tensor.whole
    if tensor.region is not None:
        written["region"] = tensor.region
    if tensor.part != (0, 1):
        written["part"] = tensor.part
    if tensor.placements is not None:
        written.setdefault("whole", tensor.shape)
        written["placements"] = {axis: _placement(placement) for axis, placement in tensor.placements.items()}
    if tensor.gradient_of or tensor.role is Role.GRADIENT:
        written["gradient_of"] = tensor.gradient_of
    if tensor.gradient != linked or (links and not tensor.gradient):
        written["gradient"] = tensor.gradient
    if tensor.requires_grad or tensor.role is Role.WEIGHT:
        written["requires_grad"] = tensor.requires_grad
    if tensor.storage:
        written["storage"] = tensor.storage
    return written


def _placement(placement: Placement) -> dict[str, Any]:
    if isinstance(placement, Replicate):
        return {"kind": "replicate"}
    if isinstance(placement, Invariant):
        return {"kind": "invariant"}
    if isinstance(placement, Partial):
        return {"kind": "partial", **({"reduce": placement.reduce} if placement.reduce != "sum" else {})}
    order = {"order": placement.order} if placement.order else {}
    parts = {"parts": placement.parts} if placement.parts else {}
    return {"kind": "shard", "dim": placement.dim, **order, **parts}


def _computes(plan: Plan) -> dict[int, tuple[str, int]]:
    """Return the segment and position of every computation, by its identity."""
    return {
        id(operator): (name, index)
        for name, segment in plan.segments.items()
        for index, operator in enumerate(segment.operators)
        if isinstance(operator, Compute)
    }


def _segment(plan: Plan, segment: Segment, computes: Mapping[int, tuple[str, int]]) -> str:
    head: dict[str, Any] = {"phase": segment.phase.value}
    if segment.pipeline_stage >= 0:
        head["pipeline_stage"] = segment.pipeline_stage
    if segment.mirror:
        head["mirror"] = segment.mirror
    if segment.checkpointed:
        head["checkpointed"] = True
    head["inputs"] = segment.inputs
    head["outputs"] = segment.outputs
    communicators = {group.name: group for group in plan.communicators}
    rows = [dumped(operator(each_operator, plan.path, computes, communicators)) for each_operator in segment.operators]
    body = "[\n    " + ",\n    ".join(rows) + "\n  ]" if rows else "[]"
    return f'{dumped(head)[:-1]}, "operators": {body}}}'


def _program(program: Program) -> str:
    steps = [dumped(_step(step)) for step in program.steps]
    body = "[\n    " + ",\n    ".join(steps) + "\n  ]" if steps else "[]"
    return f'{{"ranks": {dumped(program.ranks)}, "steps": {body}}}'


def _step(step: Step) -> dict[str, Any]:
    written: dict[str, Any] = {"segment": step.segment}
    if step.micro_batch >= 0:
        written["micro_batch"] = step.micro_batch
    if step.inputs is not None:
        written["inputs"] = step.inputs
    if step.outputs is not None:
        written["outputs"] = step.outputs
    return written
