"""Values that are read where nothing has produced them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from tvlint.analyses.dataflow.def_use import reads, uses, writes
from tvlint.analyses.dataflow.shared_names import shared_name
from tvlint.analyses.gradients.roots import named_after
from tvlint.ir.operators import Backward, Send
from tvlint.ir.plan import GIVEN, Phase, Plan, Program, Role, Segment
from tvlint.near_names import nearest


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that operator `index` of `segment` reads too early.

    `later` is the place that produces it afterwards, when there is one; `micro_batch` is -1 where all are concerned.
    """

    segment: str
    index: int
    name: str
    ranks: tuple[int, ...]
    micro_batch: int
    later: tuple[str, int] | None


def missing(plan: Plan) -> Iterator[Missing]:
    """Reads inside segments of what nothing before them produced, and runs of segments whose inputs are not there yet."""
    named, accumulated = cache(lambda: _named(plan)), cache(lambda: _accumulated(plan))
    bodies = {name: tuple(_in_body(plan, segment, named, accumulated)) for name, segment in plan.segments.items()}
    merged: dict[tuple[str, int, str, tuple[str, int] | None], tuple[set[int], set[int]]] = {}
    for program in plan.programs:
        for name in {step.segment for step in program.steps}:
            for index, tensor, later in bodies.get(name, ()):
                merged.setdefault((name, index, tensor, later), (set(), set()))[0].update(program.ranks)
        for name, index, tensor, micro_batch, later in _between_steps(plan, program, named):
            ranks, runs = merged.setdefault((name, index, tensor, later), (set(), set()))
            ranks.update(program.ranks)
            runs.add(micro_batch)
    for (segment, index, tensor, later), (ranks, runs) in merged.items():
        run = min(runs) if len(runs) == 1 else -1
        yield Missing(segment, index, tensor, tuple(sorted(ranks)), run, later)


@dataclass(frozen=True, slots=True)
class Unmade:
    """A value that the plan returns, or that leaves `segment`, and that nothing makes."""

    name: str
    segment: str = ""


def unmade(plan: Plan) -> Iterator[Unmade]:
    """Yield the values that leave segments which do not make them, and the outputs of the plan that nothing makes.

    A gradient that nothing makes is zero, or starts there; a rank may make an output of another type than is declared.
    """
    run = {step.segment for step in plan.steps()}
    left = set[str]()
    for segment in (segment for name, segment in plan.segments.items() if name in run):
        made = {name for operator in segment.operators for name in writes(operator)} | set(segment.inputs)
        for name in segment.outputs:
            if name not in made and not _needs_no_maker(plan, name):
                left.add(name)
                yield Unmade(name, segment.name)
    named = _named(plan).union(*(step.outputs or () for step in plan.steps()))
    named |= {shared_name(name) for name in named}
    yield from (Unmade(name) for name in plan.outputs if name not in named | left and not _needs_no_maker(plan, name))


def _needs_no_maker(plan: Plan, name: str) -> bool:
    tensor = plan.tensors.get(name)
    return plan.has_role(name, *GIVEN) or name.startswith("grad(") or (tensor is not None and tensor.role is Role.GRADIENT)


def near(plan: Plan, name: str) -> str:
    """Return the name of the plan that `name` may be a misspelling of; empty where there is none."""
    return nearest(name, (_named(plan) | set(plan.tensors)) - {name}, 0.75)


def _named(plan: Plan) -> set[str]:
    """Return the names that operators of the plan make, and those of what its steps take in."""
    made = {name for operator in plan.operators() for name in writes(operator)}
    return made.union(*(step.inputs or () for step in plan.steps()))


def _is_misspelt(plan: Plan, name: str, named: Callable[[], set[str]]) -> bool:
    """Return whether nothing makes or declares the name, which is not that of the gradient of a value either."""
    if name in plan.tensors or name in named():
        return False
    value = named_after(name)
    return not value or (value not in plan.tensors and value not in named())


def _in_body(
    plan: Plan, segment: Segment, named: Callable[[], set[str]], accumulated: Callable[[], frozenset[str]]
) -> Iterator[tuple[int, str, tuple[str, int] | None]]:
    known = set(segment.inputs)
    first = cache(lambda: _first(segment))
    seen: set[str] = set()
    for index, operator in enumerate(segment.operators):
        for name in uses(operator):
            if name in known or name in seen or plan.has_role(name, *GIVEN):
                continue
            if name not in reads(operator) and not _is_misspelt(plan, name, named):
                continue
            later = first().get(name)
            tensor = plan.tensors.get(name)
            is_gradient = bool(named_after(name)) or (tensor is not None and tensor.role is Role.GRADIENT)
            optional = (segment.phase is not Phase.FORWARD or is_gradient) and not _is_misspelt(plan, name, named)
            if later is None and optional and not isinstance(operator, Send):
                continue
            if later is not None and name in accumulated():
                continue
            seen.add(name)
            yield index, name, None if later is None else (segment.name, later)
        known.update(writes(operator))


def _first(segment: Segment) -> dict[str, int]:
    """Return which operator of the segment makes each name first."""
    places = range(len(segment.operators) - 1, -1, -1)
    return {name: index for index in places for name in writes(segment.operators[index])}


def _accumulated(plan: Plan) -> frozenset[str]:
    """Return the gradients of weights to which several segments add."""
    weights = {name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    gradients = {name for name, tensor in plan.tensors.items() if tensor.gradient_of in weights}
    made = Counter[str]()
    for segment in plan.segments.values():
        made.update(gradients.intersection(name for operator in segment.operators for name in writes(operator)))
    return frozenset(name for name, count in made.items() if count > 1)


def _between_steps(
    plan: Plan, program: Program, named: Callable[[], set[str]]
) -> Iterator[tuple[str, int, str, int, tuple[str, int] | None]]:
    """Inputs of steps that only a later step of the program produces, or that no step of it produces.

    What the program loads for some micro-batches is given in none.
    """
    produced: set[tuple[str, int]] = set()
    ever: dict[tuple[str, int], str] = {}
    loaded: set[str] = set()
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        for name in step.outputs or (segment.outputs if segment else ()):
            ever.setdefault((name, step.micro_batch), step.segment)
            if segment is not None and segment.phase is Phase.DATA:
                loaded |= {name, *segment.outputs}
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        if segment is None:
            continue
        outer = step.inputs if step.inputs is not None else segment.inputs
        for inner, name in zip(segment.inputs, outer, strict=False):
            if {(name, step.micro_batch), (name, -1)} & produced or plan.has_role(name, Role.WEIGHT, Role.BUFFER, Role.STATE):
                continue
            if loaded.isdisjoint((name, inner)) and (plan.has_role(name, *GIVEN) or plan.has_role(inner, *GIVEN)):
                continue
            tensor = plan.tensors.get(name) or plan.tensors.get(inner)
            if step.micro_batch < 0 and any(made == name for made, _ in produced):
                continue
            origins = (segment for (made, batch), segment in ever.items() if made == name and step.micro_batch in (batch, -1))
            origin = next(origins, None) if step.micro_batch < 0 else ever.get((name, step.micro_batch))
            index = _first_read(segment, inner)
            is_gradient = segment.phase is not Phase.FORWARD if tensor is None else tensor.role is Role.GRADIENT
            is_gradient = (is_gradient or bool(named_after(name))) and not _is_misspelt(plan, name, named)
            is_gradient = is_gradient and (step.micro_batch >= 0 or tensor is not None)
            if index is None or (origin is None and is_gradient and not isinstance(segment.operators[index], Send)):
                continue
            later = (origin, _producer(plan.segments[origin], name)) if origin and plan.segments[origin].operators else None
            yield step.segment, index, inner, step.micro_batch, later
        for name in step.outputs if step.outputs is not None else segment.outputs:
            produced.add((name, step.micro_batch))


def _first_read(segment: Segment, name: str) -> int | None:
    """Return the first operator that needs `name`: reads it, or is the backward of one that does; None where that is made."""
    for index, operator in enumerate(segment.operators):
        if name in reads(operator) or (isinstance(operator, Backward) and name in operator.forward.inputs):
            return index
        if name in writes(operator):
            return None
    return None


def _producer(segment: Segment, name: str) -> int:
    return next((index for index, operator in enumerate(segment.operators) if name in writes(operator)), 0)
