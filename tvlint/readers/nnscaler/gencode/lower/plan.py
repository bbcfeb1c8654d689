"""The plan that the generated files of one replica make together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvlint.ir.location import Location
from tvlint.ir.operators import Communicate, Group, Operator, Receive, Send
from tvlint.ir.plan import Plan, Replication, Role, Tensor
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.lower.autograd import gradient
from tvlint.readers.nnscaler.gencode.lower.backward import Schedule
from tvlint.readers.nnscaler.gencode.lower.methods import lower
from tvlint.readers.nnscaler.gencode.lower.replica import Built, Replica, made_by
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind
from tvlint.readers.nnscaler.gencode.syntax.names import number_of
from tvlint.readers.nnscaler.gencode.syntax.records import Load, Parameter, RankFile
from tvlint.readers.nnscaler.pickle.mesh import mesh_of

FORMAT = "nnscaler-gencode"
ASKED = "the data loader gives `{}` with `requires_grad`, since the step takes its gradient"


def build(path: str, replica: Replica, inputs: Mapping[tuple[str, int], Kind], scalar: tuple[int, ...]) -> tuple[Plan, Built]:
    """Return the plan. `inputs` is the kind of what data loaders give, by loader and position."""
    built = Built(replica, inputs, scalar)
    for file in replica.files:
        for method in file.methods.values():
            if not method.reduces:
                built.bodies[file.rank, method.name] = lower(method, file)
    _collect_stated(built)
    for file in replica.files:
        for name, parameter in file.parameters.items():
            _parameter(built, name, parameter)
    bases = _loader_names(replica.files)
    for file in replica.files:
        Schedule(built, file, bases).run()
    _judge_stated(built)
    mesh, stages = mesh_of(
        {rank - replica.low: cells for rank, cells in built.forward_cells.items()},
        {
            rank - replica.low: {tuple(r - replica.low for r in group) for group in value}
            for rank, value in built.groups.items()
        },
        replica.count,
    )
    segments = {
        name: replace(segment, pipeline_stage=stages.get(int(name.split("/", 1)[0].removeprefix("device ")) - replica.low, -1))
        for name, segment in built.segments.items()
    }
    first = replica.files[0]
    asked = {built.logical.get(given, given) for _, given, _ in built.asked.values()}
    plan = Plan(
        path,
        FORMAT,
        mesh,
        _tensors(built),
        segments,
        tuple(built.programs),
        Replication("dp", replica.count, replica.stride),
        built.micro_batches,
        tuple(name for name in first.returned if name not in built.objects),
        communicators=tuple(Group(ranks=ranks) for ranks, _ in first.groups),
        assumed=tuple(ASKED.format(name) for name in sorted(asked)),
    )
    return plan, built


def _collect_stated(built: Built) -> None:
    """Shapes that messages state; where the two ends do not agree, the derived one decides."""
    said: dict[str, set[tuple[int, ...]]] = {}
    for body in built.bodies.values():
        for name, kind in body.stated.items():
            said.setdefault(name, set()).add(kind[0])
            built.stated[name] = kind
    for name, shapes in said.items():
        if len(shapes) > 1:
            del built.stated[name]


def _judge_stated(built: Built) -> None:
    """Note messages that are stated to be of another shape or dtype than what is sent.

    Raises ReadError where that is what is received, or where nothing tells which end is right: nothing can follow from it.
    """
    for (rank, _), body in built.bodies.items():
        for name, (shape, dtype) in body.stated.items():
            kind = built.kinds.get(built.links.get(name, "")) or built.kinds.get(name)
            if kind is None or ((kind[0] == shape and dtype in ("", kind[1])) or kind == (shape, "")):
                continue
            ends = [entry.operator for entry in body.operators if _is_end(entry.operator, name)]
            source = ends[0].source if ends else None
            if source is None:
                continue
            text = f"`{name}` of shape {kind[0]} and type {kind[1]} as a message of shape {shape} and type {dtype}"
            if name in built.disputed or name in made_by(ends[0]):
                place = _receiving_end(built, name) if name in built.disputed else source
                _refuse_unlike_senders(built)
                raise ReadError(
                    f"on rank {rank}, {text} does not fit", place or source, "both ends of a message state what is sent"
                )
            built.contradictions.append((text, source, rank, ()))


def _refuse_unlike_senders(built: Built) -> None:
    """Raise ReadError at the first message that is received as something else than its sender states, if there is one."""
    sent = {name: kind for body in built.bodies.values() for name, kind in body.sent.items()}
    for (rank, _), body in built.bodies.items():
        for name, kind in body.stated.items():
            if sent.get(name, kind) != kind:
                place = next(entry.operator.source for entry in body.operators if _is_end(entry.operator, name))
                text = f"on rank {rank}, `{name}` is received as {kind} and sent as {sent[name]}"
                location = place or Location(built.replica.files[0].path)
                raise ReadError(text, location, "both ends of a message state what is sent")


def _receiving_end(built: Built, name: str) -> Location | None:
    """Return where the tensor is received; None where it is on no rank."""
    received = (entry.operator for body in built.bodies.values() for entry in body.operators)
    return next((operator.source for operator in received if _is_end(operator, name) and name in made_by(operator)), None)


def _is_end(operator: Operator, name: str) -> bool:
    """Return whether this is where a message with the tensor is sent or received."""
    if isinstance(operator, (Send, Receive)):
        return operator.tensor == name
    return isinstance(operator, Communicate) and name in (*operator.inputs, *operator.outputs)


def _parameter(built: Built, name: str, parameter: Parameter) -> None:
    role = Role.WEIGHT if parameter.is_weight else Role.BUFFER
    part = (0, parameter.parts) if parameter.parts != 1 else (0, 1)
    declared = Tensor(
        name,
        parameter.shape,
        parameter.dtype,
        role,
        parameter.full_name,
        parameter.whole,
        parameter.region or None,
        part,
        placements=None if parameter.region else {},
        gradient=gradient(name) if parameter.is_weight else "",
        requires_grad=parameter.is_weight,
        source=parameter.map_source or parameter.source,
    )
    known = built.weights.setdefault(name, declared)
    if known != declared:
        place = parameter.map_source or parameter.source
        raise ReadError(f"`{name}` is not the same slice on all ranks that have it", place)
    if parameter.is_weight:
        built.links[gradient(name)] = name


def _loader_names(files: Sequence[RankFile]) -> dict[tuple[str, int], str]:
    """Return the name under which all ranks know what a loader gives: that of the lowest id."""
    found: dict[tuple[str, int], str] = {}
    for file in files:
        for action in file.actions:
            if isinstance(action, Load):
                for position, name in enumerate(action.outputs):
                    known = found.setdefault((action.loader, position), name)
                    if (number_of(name), name) < (number_of(known), known):
                        found[action.loader, position] = name
    return found


def _tensors(built: Built) -> dict[str, Tensor]:
    found = dict(built.weights)
    for name, (shape, dtype) in built.kinds.items():
        if name in built.disputed or name in found:
            continue
        role = built.roles.get(name, Role.ACTIVATION)
        found[name] = Tensor(
            name,
            shape,
            dtype,
            role,
            built.logical.get(name, ""),
            placements={} if role is Role.INPUT else None,
            gradient_of=built.links.get(name, ""),
            gradient=built.own_gradient.get(name, ""),
        )
    for name, of in built.links.items():
        if name not in found and of in found:
            found[name] = Tensor(name, found[of].shape, found[of].dtype, Role.GRADIENT, gradient_of=of)
    return found
