"""From what was read of plan text to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.analyses.dataflow.local_shapes import whole_shape
from tvlint.analyses.inference.accumulation import with_reducers
from tvlint.analyses.inference.per_rank_types import with_own_types
from tvlint.analyses.inference.segments import signature
from tvlint.analyses.inference.shapes_and_gradients import derive_tensors, for_every_operand, link_gradients
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, ReduceGradients, Update
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step, Tensor
from tvlint.near_names import did_you_mean
from tvlint.plurals import counted
from tvlint.readers.plan_text.builder import Draft, Section, is_bare
from tvlint.readers.plan_text.operators import PendingBackward
from tvlint.readers.plan_text.sections import Run
from tvlint.readers.plan_text.steps import Steps

EVERYWHERE = (Role.WEIGHT, Role.BUFFER, Role.STATE)


def assemble(draft: Draft) -> Plan:
    """Return the plan that `draft` holds."""
    sections = [*draft.segments.values(), *draft.programs]
    operators = _resolve(draft, sections)
    everything = [operator for section in sections for operator in _operators(operators[id(section)])]
    _set_apart(draft, sections, operators)
    tensors = derive_tensors(draft.tensors, frozenset(draft.open_roles), everything, draft.mesh)
    stated = frozenset(draft.tensors)
    _claim_outputs(draft, tensors)
    _link(draft, tensors)
    everywhere = frozenset(tensor.name for tensor in tensors.values() if tensor.role in EVERYWHERE)
    accumulated = frozenset(tensor.gradient for tensor in tensors.values() if tensor.role is Role.WEIGHT)
    segments: dict[str, Segment] = {}
    for name, section in draft.segments.items():
        segments[name] = _segment(section, _operators(operators[id(section)]), everywhere)
    for item in (each for section in draft.programs for each in section.items if isinstance(each, Run)):
        if misfit := item.step.misfit(segments[item.step.segment]):
            item.line.fail(misfit, "give one name for each, or none", item.index)
    micro_batches = _micro_batches(draft, operators)
    programs = []
    last: dict[Phase, int] = {}
    for section in draft.programs:
        steps = Steps(segments, everywhere, accumulated, micro_batches > 1, last).read(operators[id(section)])
        programs.append(Program(section.ranks, steps))
    plan = Plan(
        draft.path, "plan-text", draft.mesh, tensors, segments, tuple(programs), draft.replication,
        micro_batches,
        tuple(draft.outputs), tuple(draft.losses), tuple(draft.groups), draft.name, returned_at=draft.returned_at,
    )  # fmt: skip
    types = {number: section.types for number, section in enumerate(draft.programs)}
    return with_reducers(with_own_types(plan, types, stated))


def _micro_batches(draft: Draft, operators: dict[int, list[Operator | Step | int]]) -> int:
    """Return how many micro-batches the plan says that it has, or names."""
    if draft.micro_batches is not None:
        return draft.micro_batches
    items = [item for section in draft.programs for item in operators[id(section)]]
    named = [item.micro_batch if isinstance(item, Step) else item for item in items if isinstance(item, Step | int)]
    return max([0, *named]) + 1


def _operators(items: list[Operator | Step | int]) -> list[Operator]:
    return [item for item in items if not isinstance(item, Step | int)]


def _set_apart(draft: Draft, sections: list[Section], operators: dict[int, list[Operator | Step | int]]) -> None:
    """Keep an annotation to the programs that run it where other programs produce the name with another type."""
    makers: dict[str, list[Section]] = {}
    for section in sections:
        for operator in _operators(operators[id(section)]):
            for name in writes(operator):
                makers.setdefault(name, []).append(section)
    noted = {
        name: section for name, section in draft.declared_in.items()
        if section is not None and name in draft.open_roles and is_bare(draft.tensors[name])
        and any(maker is not section and maker.types.get(name) != draft.tensors[name] for maker in makers.get(name, ()))
    }  # fmt: skip
    if not noted:
        return
    given = {name: tensor for name, tensor in draft.tensors.items() if name not in noted}
    elsewhere = [
        operator for section in sections for operator in _operators(operators[id(section)])
        if all(noted.get(name) is not section for name in writes(operator))
    ]  # fmt: skip
    derived = derive_tensors(given, frozenset(draft.open_roles - noted.keys()), elsewhere, draft.mesh)
    for name, section in noted.items():
        tensor, other = draft.tensors[name], derived.get(name)
        if other is None or (other.shape, other.dtype) == (tensor.shape, tensor.dtype):
            continue
        running = [program for program in draft.programs if program is section or _runs(program, section)]
        if not running or any(
            maker is not section and (maker is program or _runs(program, maker))
            for program in running
            for maker in makers[name]
        ):
            continue
        for program in running:
            program.types.setdefault(name, tensor)
        draft.tensors[name] = replace(tensor, shape=other.shape, dtype=other.dtype)


def _runs(program: Section, segment: Section) -> bool:
    """Return whether `program` runs `segment`."""
    name = segment.header.name if segment.header is not None else ""
    return bool(name) and any(isinstance(item, Run) and item.step.segment == name for item in program.items)


def _resolve(draft: Draft, sections: list[Section]) -> dict[int, list[Operator | Step | int]]:
    """Return the items of every section, with backward operators joined to their forward operators."""
    everywhere: dict[str, list[Compute]] = {}
    for section in sections:
        for name, compute in section.scope.computes.items():
            everywhere.setdefault(name, []).append(compute)
    resolved: dict[int, list[Operator | Step | int]] = {}
    for section in sections:
        items: list[Operator | Step | int] = []
        near = _near(draft, section)
        for item in section.items:
            if isinstance(item, Run):
                if item.step.segment not in draft.segments:
                    item.line.fail_unknown("a segment of this plan", item.step.segment, list(draft.segments), item.index)
                items.append(item.step)
            elif isinstance(item, PendingBackward):
                items.append(_backward(item, near, everywhere, draft))
            elif isinstance(item, Backward):
                operands = item.forward.tensor_operands
                items.append(replace(item, outputs=for_every_operand(item.outputs, operands, draft.tensors)))
            else:
                items.append(item)
        resolved[id(section)] = items
    return resolved


def _near(draft: Draft, section: Section) -> list[Section]:
    """Return the sections in which a backward operator of `section` looks for its forward operator first."""
    if section.header is not None:
        mirror = draft.segments.get(section.header.mirror)
        return [section, mirror] if mirror is not None else [section]
    names = dict.fromkeys(item.step.segment for item in section.items if isinstance(item, Run))
    return [section, *(draft.segments[name] for name in names if name in draft.segments)]


def _backward(item: PendingBackward, near: list[Section], everywhere: dict[str, list[Compute]], draft: Draft) -> Backward:
    forward = item.found
    for section in near:
        forward = forward or section.scope.computes.get(item.of)
    if forward is None:
        candidates = everywhere.get(item.of, [])
        if not candidates:
            item.line.fail(
                f"no computation produces `{item.of}`",
                did_you_mean(item.of, everywhere) or "`backward` is of a computation; that of a collective is a collective",
                item.index,
            )  # fmt: skip
        if any(candidate != candidates[0] for candidate in candidates[1:]):
            item.line.fail(
                f"{len(candidates)} operators in different sections produce `{item.of}`",
                "say `mirror SEGMENT`, give the operator a label, or write it out: `backward (dy) of y = ...`", item.index,
            )  # fmt: skip
        forward = candidates[0]
    operands = forward.tensor_operands
    outputs = for_every_operand(item.outputs, operands, draft.tensors)
    if len(outputs) != len(operands):
        written = ", ".join(f"`{name}`" for name in operands)
        item.line.fail(
            f"{counted(len(item.outputs), 'gradient')} for the {counted(len(operands), 'operand')} of `{forward.op}`",
            f"one for each of {written}; `_` where none is asked for" if operands else "it has no operands", item.index,
        )  # fmt: skip
    if len(item.inputs) != len(forward.outputs):
        item.line.fail(
            f"{counted(len(item.inputs), 'gradient')} of the {counted(len(forward.outputs), 'result')} of `{forward.op}`",
            "one for each result; `_` where it has none", item.index + 1,
        )  # fmt: skip
    return Backward(forward, item.inputs, outputs, item.stream, item.source, item.label)


def _claim_outputs(draft: Draft, tensors: dict[str, Tensor]) -> None:
    for name, (placements, line) in draft.claims.items():
        known = tensors.get(name)
        if known is None:
            line.fail(f"the shape of `{name}` does not follow from the plan", f"say it: `output {name} f32[8,8] ...`", 1)
        if known.placements is not None:
            line.fail(f"`{name}` is declared twice; the first is in line {draft.declared_at.get(name, 0)}", index=1)
        whole = whole_shape(draft.mesh, known.shape, placements)
        if whole is None:
            line.fail(f"the whole shape of `{name}` does not follow from the local one", "say it", 1)
        tensors[name] = replace(known, placements=placements, whole=whole)


def _link(draft: Draft, tensors: dict[str, Tensor]) -> None:
    """Let every tensor name its gradient."""
    chosen, undecided = link_gradients(tensors)
    for name, gradient in chosen.items():
        known = tensors.get(name)
        if known is not None and not known.gradient and name not in draft.no_gradient:
            tensors[name] = replace(known, gradient=gradient)
    everything = [item for section in (*draft.segments.values(), *draft.programs) for item in section.items]
    owned = {gradient for gradients in undecided.values() for gradient in gradients}
    further = {
        name
        for item in everything
        if isinstance(item, Compute | Communicate) and owned.intersection(item.outputs)
        for name in reads(item)
    }
    for name, gradients in undecided.items():
        known = tensors.get(name)
        last_ones = [gradient for gradient in gradients if gradient not in further] or gradients[-1:]
        if known is not None and not known.gradient and len(last_ones) == 1 and name not in draft.no_gradient:
            tensors[name] = known = replace(known, gradient=last_ones[0])
        if known is None or known.gradient or known.role is not Role.WEIGHT or name in draft.no_gradient:
            continue
        if _is_stepped_by_hand(everything, name):
            continue
        last = (draft.programs or list(draft.segments.values()))[-1].line
        written = ", ".join(f"`{gradient}`" for gradient in gradients[:8])
        last.fail(
            f"weight `{name}` has several gradients, {written}: which is the one it is updated with does not follow",
            f"name that one `grad({name})`, or declare `weight {name} ... gradient NAME`", 0,
        )  # fmt: skip


def _is_stepped_by_hand(items: Sequence[object], weight: str) -> bool:
    """Return whether an operator overwrites the weight, and nothing takes its gradient by the name of the weight."""
    if any(isinstance(item, Update | ReduceGradients) and weight in item.weights for item in items):
        return False
    return any(isinstance(item, Compute) and weight in overwritten(item) for item in items)


def _segment(section: Section, operators: list[Operator], everywhere: frozenset[str]) -> Segment:
    header = section.header
    if header is None:
        raise AssertionError("a program is no segment")
    inputs, outputs = header.inputs, header.outputs
    if inputs is None or outputs is None:
        inputs, outputs = signature(operators, everywhere)
    return Segment(
        header.name, header.phase, inputs, outputs, tuple(operators), header.pipeline_stage, header.mirror, header.checkpointed
    )  # fmt: skip
