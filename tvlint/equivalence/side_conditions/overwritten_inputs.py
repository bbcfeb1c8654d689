"""Inputs that are there from the start, and that communication puts something else in: from then on they are that."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.def_use import of_kinds, reads, writes
from tvlint.analyses.relations.defect import Defect
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive
from tvlint.ir.plan import Phase, Plan, Role, Segment, Step


def taken_anew(plan: Plan) -> Iterator[Defect]:
    """Inputs that a run puts something else in, and that a later one for the same micro-batch takes as they were.

    Where the one gives the input and the other is given it, it is what the runs say.
    """
    loaded = {name for segment in plan.segments.values() if segment.phase is Phase.DATA for name in segment.outputs}
    changing = {name: _changed(plan, segment, loaded) for name, segment in plan.segments.items()}
    if not any(changing.values()):
        return
    made = {operator.outputs for operator in plan.operators_of(Compute)}
    taken = {name: _taken(segment, made) for name, segment in plan.segments.items()}
    for program in plan.programs:
        reported: set[str] = set()
        replaced: dict[int, list[tuple[Segment, str, set[str]]]] = {}
        for step in program.steps:
            segment, before = plan.segments[step.segment], replaced.setdefault(max(step.micro_batch, 0), [])
            for maker, old, known in before if segment.name not in reported else ():
                found = {name for name in taken[segment.name] if not known.isdisjoint(_names(segment, step, name))}
                if found and not (old in maker.outputs and found.issubset(segment.inputs)):
                    reported.add(segment.name)
                    text = f"`{segment.name}` on {{ranks}} takes the input `{old}` as it was before `{maker.name}` replaced it"
                    yield from (Defect("input-taken-anew", False, text, rank, segment.name) for rank in program.ranks)
                    break
            before.extend((segment, name, _names(segment, step, name)) for name in changing[segment.name])


def _names(segment: Segment, step: Step, name: str) -> set[str]:
    """Return what the segment calls a value, and what a run of it does."""
    both = zip((segment.inputs, segment.outputs), step.outside(segment), strict=True)
    pairs = (pair for names, given in both for pair in zip(names, given, strict=False))
    return {name, *(outer for inner, outer in pairs if inner == name)}


def _changed(plan: Plan, segment: Segment, loaded: set[str]) -> list[str]:
    """Return the inputs that communication puts something in, and that no segment loads."""
    operators = (operator for _, operator in of_kinds(segment.operators, {Communicate, Receive}))
    names = dict.fromkeys(name for operator in operators for name in writes(operator))
    return [name for name in names if plan.has_role(name, Role.INPUT) and name not in loaded]


def _taken(segment: Segment, made: set[tuple[str, ...]]) -> set[str]:
    """Return what the segment is given or reads, by its own names; what a forward operator kept is not read again."""
    return {*segment.inputs, *(name for operator in segment.operators for name in _read(operator, made))}


def _read(operator: Operator, made: set[tuple[str, ...]]) -> Iterator[str]:
    yield from reads(operator)
    if isinstance(operator, Backward) and operator.forward.outputs not in made:
        yield from operator.forward.tensor_operands
