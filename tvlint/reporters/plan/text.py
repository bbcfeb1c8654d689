"""Plans in tvlint's own notation (docs/plan-text.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.inference.shapes_and_gradients import link_gradients
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import Plan, Program, Replication, Role, Segment, Step, Tensor
from tvlint.ir.ranks import in_runs
from tvlint.reporters.plan import text_operators as plan_text_operators
from tvlint.reporters.plan import text_words as words
from tvlint.reporters.plan.text_omissions import PRODUCED, implied_segments, made_from_gradients, stated_tensors
from tvlint.reporters.plan.text_operators import Surroundings


@dataclass(slots=True)
class _Section:
    """A segment or a program as it is written, and the operators in it that a backward operator can name."""

    operators: list[Operator]
    near: list[_Section] = field(default_factory=list)
    computes: dict[str, Compute] = field(default_factory=dict)


def write(plan: Plan) -> str:
    """`plan` as text; reading it gives the same plan, but for places in the plan's own file."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    implicit = implied_segments(plan)
    explicit = [segment for name, segment in plan.segments.items() if name not in implicit]
    operators = [operator for segment in explicit for operator in segment.operators]
    for program in plan.programs:
        operators += [operator for step in program.steps if step.segment in implicit
                      for operator in plan.segments[step.segment].operators]  # fmt: skip
    stated = stated_tensors(plan, operators)
    linked, undecided = link_gradients(plan.tensors)
    gradients = made_from_gradients(plan, operators)
    produced = {name for operator in operators for name in writes(operator)}
    inline = {name for name in stated if plan.tensors[name].role in PRODUCED and name in produced}
    written: set[str] = set()

    def typed(tensor: Tensor) -> str:
        return words.tensor_type(tensor, plan.mesh, linked, undecided)

    def annotate(name: str) -> str:
        if name not in inline or name in written:
            return ""
        written.add(name)
        tensor = plan.tensors[name]
        role = "gradient " if tensor.role is Role.GRADIENT else "tensor " if name in gradients or tensor.gradient_of else ""
        return f": {role}{typed(tensor)}"

    yield f"plan {words.string(plan.name)}" if plan.name else "plan"
    yield from _head(plan)
    for tensor in plan.tensors.values():
        at_output = tensor.name in plan.outputs and tensor.role is Role.ACTIVATION and tensor.name not in gradients
        if at_output and tensor.gradient_of == "" and tensor.name in stated:
            inline.discard(tensor.name)
        elif tensor.name in stated and tensor.name not in inline:
            yield f"{words.ROLE_WORDS[tensor.role]} {words.name(tensor.name)} {typed(tensor)}"
            written.add(tensor.name)
    for name in plan.outputs:
        shape = f" {typed(plan.tensors[name])}" if name in stated and name not in inline and name not in written else ""
        yield f"{'loss' if name in plan.losses else 'output'} {words.name(name)}{shape}"
    communicators = {group.name: group for group in plan.communicators if group.name}
    around = Surroundings(plan.path, plan.mesh, communicators, annotate)
    yield from _body(plan, implicit, around)


def _head(plan: Plan) -> Iterator[str]:
    if plan.mesh.axes:
        yield "mesh " + " ".join(f"{words.name(axis.name)}={axis.size}" for axis in plan.mesh.axes)
    if plan.replication != Replication():
        replication = plan.replication
        names = [axis.name for axis in plan.mesh.axes]
        follows = False
        if replication.axis in names:
            position = names.index(replication.axis)
            stride = prod(axis.size for axis in plan.mesh.axes[position + 1 :])
            follows = (replication.count, replication.stride) == (plan.mesh.axes[position].size, stride)
        spelled = "" if follows else f" count {replication.count} stride {replication.stride}"
        yield f"replicate {words.name(replication.axis)}{spelled}"
    last = max((step.micro_batch for step in plan.steps()), default=0)
    if plan.micro_batches != max(last + 1, 1):
        yield f"micro-batches {plan.micro_batches}"
    for group in plan.communicators:
        name = f" {words.name(group.name)}" if group.name else ""
        yield f"communicator{name} over {words.group(replace(group, name=''), plan.mesh, {})}"


def _body(plan: Plan, implicit: frozenset[str], around: Surroundings) -> Iterator[str]:
    sections: dict[str, _Section] = {}
    for name, segment in plan.segments.items():
        if name not in implicit:
            sections[name] = _section(list(segment.operators))
    for name, section in sections.items():
        mirror = sections.get(plan.segments[name].mirror)
        section.near = [section, *([mirror] if mirror is not None else [])]
    programs: list[_Section] = []
    for program in plan.programs:
        operators = [operator for step in program.steps if step.segment in implicit
               for operator in plan.segments[step.segment].operators]  # fmt: skip
        section = _section(operators)
        run = dict.fromkeys(step.segment for step in program.steps)
        section.near = [section, *(sections[name] for name in run if name in sections)]
        programs.append(section)
    everywhere: dict[str, list[Compute]] = {}
    for section in (*sections.values(), *programs):
        for name, compute in section.computes.items():
            everywhere.setdefault(name, []).append(compute)
    for name, section in sections.items():
        yield ""
        yield _segment_header(plan.segments[name])
        yield from _operators(section, section.operators, {}, around, everywhere)
    for program, section in zip(plan.programs, programs, strict=True):
        yield ""
        yield _program_header(plan, program)
        yield from _program(plan, program, section, implicit, around, everywhere)


def _section(operators: list[Operator]) -> _Section:
    section = _Section(operators)
    for operator in operators:
        if isinstance(operator, Compute):
            _note(section.computes, operator)
    return section


def _note(computes: dict[str, Compute], operator: Compute) -> None:
    for name in (*operator.outputs, operator.label):
        if name:
            computes[name] = operator


def _operators(
    section: _Section,
    operators: list[Operator],
    seen: dict[str, Compute],
    around: Surroundings,
    everywhere: Mapping[str, list[Compute]],
) -> Iterator[str]:
    for operator in operators:
        if isinstance(operator, Compute):
            _note(seen, operator)
        forward_name = _forward_name(operator, section, seen, everywhere) if isinstance(operator, Backward) else ""
        yield f"  {plan_text_operators.operator(operator, around, forward_name)}"


def _forward_name(
    operator: Backward, section: _Section, seen: Mapping[str, Compute], everywhere: Mapping[str, list[Compute]]
) -> str:
    """Return a name by which the reader finds the forward operator of `operator`; empty when there is none."""
    forward = operator.forward
    operands = forward.tensor_operands
    if len(operator.outputs) != len(operands) or len(operator.inputs) != len(forward.outputs):
        return ""
    for name in (*forward.outputs[:1], forward.label):
        if not name:
            continue
        found = seen.get(name)
        for near in section.near:
            found = found or near.computes.get(name)
        if found is None:
            candidates = everywhere.get(name, [])
            if candidates and all(candidate is candidates[0] or candidate == candidates[0] for candidate in candidates):
                found = candidates[0]
        if found is forward or found == forward:
            return name
    return ""


def _segment_header(segment: Segment) -> str:
    stage = f" stage {segment.pipeline_stage}" if segment.pipeline_stage >= 0 else ""
    mirror = f" mirror {words.name(segment.mirror)}" if segment.mirror else ""
    checkpointed = " checkpointed" if segment.checkpointed else ""
    signature = f"({words.names(segment.inputs)}) -> ({words.names(segment.outputs)})"
    return f"segment {words.name(segment.name)} {segment.phase.value}{stage}{mirror}{checkpointed} {signature}"


def _program_header(plan: Plan, program: Program) -> str:
    ranks = program.ranks
    if not ranks:
        return "program ranks none"
    axis = plan.replication.axis if plan.replication.count > 1 else ""
    fixed: dict[str, int] = {}
    if all(0 <= rank < plan.mesh.size for rank in (min(ranks), max(ranks))):
        first, last = plan.mesh.coordinates(ranks[0]), plan.mesh.coordinates(ranks[-1])
        fixed = {axis.name: first[axis.name] for axis in plan.mesh.axes if first[axis.name] == last[axis.name]}
    said = {name: at for name, at in fixed.items() if plan.mesh.axis_size(name) > 1 and (name, at) != (axis, 0)}
    if plan.mesh.ranks_at(fixed) != ranks or (len(said) > 1 and len(ranks) == 1):
        return f"program ranks {in_runs(ranks)}"
    if axis and axis not in fixed and any(axis == mesh_axis.name for mesh_axis in plan.mesh.axes):
        return f"program ranks {in_runs(ranks)}"
    selection = "".join(f" {words.name(name)}={at}" for name, at in said.items())
    return f"program{selection}"


def _program(
    plan: Plan,
    program: Program,
    section: _Section,
    implicit: frozenset[str],
    around: Surroundings,
    everywhere: Mapping[str, list[Compute]],
) -> Iterator[str]:
    seen: dict[str, Compute] = {}
    micro_batch = 0
    steps = program.steps
    index = 0
    while index < len(steps):
        step = steps[index]
        index += 1
        if step.segment in implicit:
            if step.micro_batch not in (micro_batch, -1):
                micro_batch = step.micro_batch
                yield f"  micro-batch {micro_batch}"
            yield from _operators(section, list(plan.segments[step.segment].operators), seen, around, everywhere)
            continue
        last = step
        while index < len(steps) and _follows(last, steps[index]):
            last = steps[index]
            index += 1
        yield _run(step, last.micro_batch)


def _follows(step: Step, following: Step) -> bool:
    return step.micro_batch >= 0 and following == replace(step, micro_batch=step.micro_batch + 1)


def _run(step: Step, last: int) -> str:
    micro_batch = f" micro-batch {in_runs(range(step.micro_batch, last + 1))}" if step.micro_batch >= 0 else ""
    inputs = f" ({words.names(step.inputs)})" if step.inputs is not None else ""
    outputs = f" -> ({words.names(step.outputs)})" if step.outputs is not None else ""
    return f"  run {words.name(step.segment)}{micro_batch}{inputs}{outputs}"
