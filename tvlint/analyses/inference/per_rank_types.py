"""Names that have another type on the ranks of one program: they become tensors of their own.

A tensor is declared once per plan. Where a program says another type of a name (unequal shards, another cast), the name and all
that follows from it with another type become `NAME@RANKS` on those ranks, in segments of their own where others run them too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.inference.shapes_and_gradients import derive_tensors, implied_types
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, ReduceGradients, Send, Update
from tvlint.ir.plan import GIVEN, Plan, Program, Role, Segment, Step, Tensor
from tvlint.ir.ranks import compact

OwnTypes = Mapping[int, Mapping[str, Tensor]]
"""By program: the names of which it says another type, with that type; what else is known of them holds for all ranks."""


def with_own_types(plan: Plan, per_program: OwnTypes, stated: Collection[str]) -> Plan:
    """Return the plan with the programs on tensors of their own types: those of `own`, and those of results that differ.

    A result whose name is not among `stated` (the names of which the plan says a type for all programs) has the type that
    follows in its program.
    """
    if len(plan.programs) > 1:
        following = {number: _following(plan, program, stated) for number, program in enumerate(plan.programs)}
        per_program = {number: {**types, **per_program.get(number, {})} for number, types in following.items()}
    for number in sorted(per_program):
        if not all(_says_nothing_new(plan.tensors.get(name), tensor) for name, tensor in per_program[number].items()):
            plan = _with_types_of(plan, number, per_program[number])
    return plan


def _following(plan: Plan, program: Program, stated: Collection[str]) -> dict[str, Tensor]:
    """Return the results of which the program makes another type than is known; not what follows from them in turn."""
    found: dict[str, Tensor] = {}
    follows: set[str] = set()
    for _, _, operator in plan.run_by(program):
        if not isinstance(operator, Compute):
            continue
        if not follows.isdisjoint(reads(operator)):
            follows.update(operator.outputs)
            continue
        for name, (shape, dtype) in zip(operator.outputs, implied_types(operator, plan.tensors, plan.mesh), strict=False):
            known = plan.tensors.get(name)
            if name not in stated and known is not None and (known.shape, known.dtype) != (shape, dtype):
                found.setdefault(name, Tensor(name, shape, dtype, known.role))
                follows.add(name)
    return found


def _says_nothing_new(known: Tensor | None, tensor: Tensor) -> bool:
    """Return whether the type is that which is known, without a claim of its own."""
    bare = Tensor(tensor.name, tensor.shape, tensor.dtype, tensor.role)
    return tensor == known or (known is not None and not _differs(known, tensor) and tensor == bare)


def where(ranks: Iterable[int], mesh: Mesh) -> str:
    """Return the ranks in a name: `tp=1`, `pp=0,tp=1`, `0,2-3`."""
    chosen = sorted(set(ranks))
    if chosen and chosen[-1] < mesh.size:
        lies = [mesh.coordinates(rank) for rank in (chosen[0], chosen[-1])]
        fixed = {axis.name: lies[0][axis.name] for axis in mesh.axes if lies[0][axis.name] == lies[1][axis.name]}
        free = tuple(axis.name for axis in mesh.axes if axis.name not in fixed)
        if mesh.along(chosen[0], free) == tuple(chosen):
            said = [f"{name}={at}" for name, at in fixed.items() if mesh.axis_size(name) > 1]
            return ",".join(said) or compact(chosen)
    return compact(chosen)


def _with_types_of(plan: Plan, number: int, types_of_program: Mapping[str, Tensor]) -> Plan:
    program = plan.programs[number]
    mark = where(program.ranks, plan.mesh)
    run = dict.fromkeys(step.segment for step in program.steps if step.segment in plan.segments)
    operators = [operator for _, _, operator in plan.run_by(program)]
    made = {
        name
        for operator in operators
        for name in (*writes(operator), *(reads(operator) if isinstance(operator, Backward) else ()))
    }
    outer = {name for step in program.steps for name in (*(step.inputs or ()), *(step.outputs or ()))}
    names = {name: _marked(name, mark, plan.tensors) for name in sorted(made | outer | types_of_program.keys())}
    renamed = [_renamed(operator, names, {}) for operator in operators]
    stated = {name: plan.tensors[name] for name in types_of_program if name in plan.tensors}
    with_own, without = (
        derive_tensors({**plan.tensors, **_typed(plan, types, names)}, frozenset(), renamed, plan.mesh)
        for types in (types_of_program, stated)
    )
    changed = {
        name for name, new in names.items() if name not in types_of_program and _differs(without.get(new), with_own.get(new))
    }
    changed |= {name for name, tensor in types_of_program.items() if not _says_nothing_new(plan.tensors.get(name), tensor)}
    weights = {name for name in changed if plan.has_role(name, Role.WEIGHT)}
    changed |= {name for name in names.keys() & plan.tensors.keys() if plan.tensors[name].gradient_of in weights}
    names = {name: new for name, new in names.items() if name in changed}
    tensors = {**plan.tensors, **{new: _kept(plan, name, new, names, with_own) for name, new in names.items()}}
    return _moved(replace(plan, tensors=tensors), number, run, names, mark)


def _marked(name: str, mark: str, taken: Mapping[str, Tensor]) -> str:
    inner = name[5:-1] if name.startswith("grad(") and name.endswith(")") else ""
    new = f"grad({inner}@{mark})" if inner else f"{name}@{mark}"
    while new in taken:
        new += "'"
    return new


def _typed(plan: Plan, types: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the tensors of `own` under their names on these ranks, with what is known of them on all ranks."""
    found: dict[str, Tensor] = {}
    for name, tensor in types.items():
        known = plan.tensors.get(name, tensor)
        logical = tensor.logical or known.logical or (name if known.role in GIVEN else "")
        found[names[name]] = replace(
            tensor, name=names[name], role=known.role, logical=logical, requires_grad=known.requires_grad,
            gradient_of=names.get(known.gradient_of, known.gradient_of), gradient=names.get(known.gradient, known.gradient),
        )  # fmt: skip
    return found


def _differs(known: Tensor | None, derived: Tensor | None) -> bool:
    return known is not None and derived is not None and (known.shape, known.dtype) != (derived.shape, derived.dtype)


def _kept(plan: Plan, name: str, new: str, names: Mapping[str, str], derived: Mapping[str, Tensor]) -> Tensor:
    """Return the tensor `new`: its type is what was derived, its role that of `name`."""
    known, tensor = plan.tensors.get(name, derived[new]), derived[new]
    of = names.get(known.gradient_of, known.gradient_of)
    return replace(tensor, role=known.role, gradient_of=of, gradient=names.get(known.gradient, known.gradient))


def _moved(plan: Plan, number: int, run: Iterable[str], names: Mapping[str, str], mark: str) -> Plan:
    """Return the plan with the segments that the program runs on the new names."""
    elsewhere = {step.segment for at, program in enumerate(plan.programs) if at != number for step in program.steps}
    moved = {segment: f"{segment}@{mark}" if segment in elsewhere else segment for segment in run}
    segments, computes = dict(plan.segments), dict[int, Compute]()
    for name, new in moved.items():
        segment = plan.segments[name]
        segments[new] = Segment(
            new, segment.phase, _of(segment.inputs, names), _of(segment.outputs, names),
            tuple(_renamed(operator, names, computes) for operator in segment.operators), segment.pipeline_stage,
            moved.get(segment.mirror, segment.mirror), segment.checkpointed,
        )  # fmt: skip
    program = plan.programs[number]
    steps = tuple(_step(step, moved, names) for step in program.steps)
    programs = (*plan.programs[:number], Program(program.ranks, steps), *plan.programs[number + 1 :])
    outputs = (*plan.outputs, *(names[name] for name in plan.outputs if name in names))
    return replace(plan, segments=segments, programs=programs, outputs=outputs)


def _step(step: Step, moved: Mapping[str, str], names: Mapping[str, str]) -> Step:
    inputs = None if step.inputs is None else _of(step.inputs, names)
    outputs = None if step.outputs is None else _of(step.outputs, names)
    return replace(step, segment=moved.get(step.segment, step.segment), inputs=inputs, outputs=outputs)


def _of(given: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(names.get(name, name) for name in given)


def _renamed(operator: Operator, names: Mapping[str, str], computes: dict[int, Compute]) -> Operator:
    if isinstance(operator, Compute):
        return _compute(operator, names, computes)
    if isinstance(operator, Backward):
        forward = _compute(operator.forward, names, computes)
        return replace(operator, forward=forward, inputs=_of(operator.inputs, names), outputs=_of(operator.outputs, names))
    if isinstance(operator, Communicate):
        return replace(operator, inputs=_of(operator.inputs, names), outputs=_of(operator.outputs, names))
    if isinstance(operator, Send | Receive):
        return replace(operator, tensor=names.get(operator.tensor, operator.tensor))
    if isinstance(operator, ReduceGradients | Update):
        return replace(operator, weights=_of(operator.weights, names))
    return operator


def _compute(operator: Compute, names: Mapping[str, str], computes: dict[int, Compute]) -> Compute:
    """Return the computation on the new names; the same one for all that refer to it."""
    if id(operator) not in computes:
        inputs = tuple(names.get(name, name) if isinstance(name, str) else name for name in operator.inputs)
        computes[id(operator)] = replace(operator, inputs=inputs, outputs=_of(operator.outputs, names))
    return computes[id(operator)]
