"""Check step bindings: every run reads and writes values of its own micro-batch, of the types that its segment declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from tvlint.analyses.dataflow.def_use import uses, writes
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.given.trusted_inputs import inputs_of
from tvlint.ir.operators import Backward
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step, Tensor

_GIVEN = (Role.INPUT, Role.WEIGHT, Role.BUFFER)
"""What lies where it is declared to lie."""


_Place: TypeAlias = tuple[str, int, int]
"""What makes a value for every micro-batch: a segment, which of its outputs, in which of its runs for the micro-batch."""


class _Source(NamedTuple):
    """The run that made a value; `alone` is the set of its place only."""

    place: _Place
    alone: frozenset[_Place]
    micro_batch: int


def distinguished_inputs(plan: Plan) -> frozenset[str]:
    """Return the inputs that are distinguished: those of the plan, and those that segments load and read.

    A micro-batch may have a name of its own for its share of one.
    """
    names = {name for segment in plan.segments.values() for name in (*segment.inputs, *segment.outputs)}
    tensors = (plan.tensors[name] for name in names if name in plan.tensors)
    return frozenset((*inputs_of(plan).names, *(_known_as(tensor) for tensor in tensors if tensor.role is Role.INPUT)))


def mismatched_bindings(plan: Plan, program: Program, known: frozenset[str], totals: Mapping[str, str]) -> Iterator[Defect]:
    """Every run reads what the runs of its own micro-batch made, in the pattern of the first micro-batch."""
    held: dict[object, list[_Source]] = {}
    owners: dict[object, int] = {}
    patterns: dict[tuple[str, int], list[frozenset[_Place] | None]] = {}
    makers: dict[tuple[str, int], list[tuple[_Place, frozenset[_Place]]]] = {}
    forward: dict[tuple[str, int], list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    turns: Counter[tuple[str, int]] = Counter()
    reported: set[object] = set()
    taken: dict[str, frozenset[str]] = {}
    loads = any(plan.segments[step.segment].phase is Phase.DATA for step in program.steps)
    names_read = _names_read(plan, program) if loads else frozenset()
    for step in program.steps:
        segment, micro_batch = plan.segments[step.segment], step.micro_batch
        turn = turns[segment.name, micro_batch]
        turns[segment.name, micro_batch] = turn + 1
        inputs, outputs = step.outside(segment)
        if len(inputs) != len(segment.inputs) or len(outputs) != len(segment.outputs):
            yield Defect(
                "miswired-step",
                True,
                f"a run of `{segment.name}` on {{ranks}} names other values than it has",
                -1,
                segment.name,
                source=step.source,
            )
            continue
        used = taken.setdefault(segment.name, _taken(segment))
        given = (pair for pair in zip(segment.inputs, inputs, strict=True) if pair[0] in used)
        pairs = (*given, *zip(segment.outputs, outputs, strict=True))
        unlike = next((pair for pair in pairs if pair[0] != pair[1] and not _alike(plan, *pair, known)), None)
        if unlike is not None and unlike not in reported:
            reported.add(unlike)
            how = "is another weight or input, or declared with another shape, type or slice"
            text = f"`{unlike[1]}` on {{ranks}} stands for `{unlike[0]}` and {how}"
            yield Defect("unlike-values", False, text, -1, segment.name, source=step.source)
        read, made = _keys(step, inputs, step.inputs), _keys(step, outputs, step.outputs)
        is_again = segment.phase is Phase.DATA and (any(key in held for key in made) or _loads_twice(segment))
        if is_again and segment.name not in reported and not names_read.isdisjoint((*outputs, *segment.outputs)):
            reported.add(segment.name)
            text = f"`{segment.name}` on {{ranks}} loads what is loaded already for micro-batch {micro_batch}"
            yield Defect("loaded-twice", False, text, -1, segment.name, source=step.source)
        if micro_batch >= 0:
            pattern = patterns.setdefault((segment.name, turn), [None] * len(read))
            for position, key in enumerate(read):
                if segment.inputs[position] not in used:
                    continue
                sources = held.get(key, [])
                if len(sources) == 1 and sources[0].micro_batch == micro_batch and sources[0].alone == pattern[position]:
                    continue
                defect = _stale(segment, micro_batch, inputs[position], sources, pattern, position)
                if defect is not None and (segment.name, position) not in reported:
                    reported.add((segment.name, position))
                    yield replace(defect, source=step.source)
            defect = _of_other_forward(plan, segment, micro_batch, inputs, outputs, forward, held)
            if defect is not None and segment.name not in reported:
                reported.add(segment.name)
                yield replace(defect, source=step.source)
        if segment.phase is not Phase.BACKWARD:
            forward.setdefault((segment.name, micro_batch), []).append((outputs, inputs))
        if (segment.name, turn) not in makers:
            places = [(segment.name, position, turn) for position in range(len(outputs))]
            makers[segment.name, turn] = [(place, frozenset({place})) for place in places]
        overwritten = set(read).intersection(made)
        named = zip(segment.outputs, outputs, made, makers[segment.name, turn], strict=True)
        for inner, name, key, maker in named:
            source = _Source(*maker, micro_batch)
            if key in held and key not in overwritten and _adds_up(plan, inner, name):
                held[key].append(source)
            else:
                held[key] = [source]
            owner = owners.setdefault(key, micro_batch) if name not in totals and _adds_up(plan, inner, name) else micro_batch
            if owner != micro_batch and ("owner", name) not in reported:
                reported.add(("owner", name))
                text = f"`{name}` on {{ranks}} is made for micro-batch {owner} and again for micro-batch {micro_batch}"
                yield Defect("crossed-micro-batches", False, text, -1, segment.name, source=step.source)


def _loads_twice(segment: Segment) -> bool:
    """Return whether operators of a segment that read nothing make one name more than once."""
    loaded = [name for operator in segment.operators if not uses(operator) for name in writes(operator)]
    return len(loaded) > len(set(loaded))


def _names_read(plan: Plan, program: Program) -> frozenset[str]:
    """Return the names that the plan returns, and those that anything but a loader of the program takes."""
    steps = [step for step in program.steps if plan.segments[step.segment].phase is not Phase.DATA]
    outer = (name for step in steps for name in step.outside(plan.segments[step.segment])[0])
    segments = [plan.segments[name] for name in dict.fromkeys(step.segment for step in steps)]
    inner = (name for segment in segments for name in (*segment.inputs, *_taken(segment)))
    return frozenset((*plan.outputs, *outer, *inner))


def _taken(segment: Segment) -> frozenset[str]:
    """Return the names that the segment reads, needs for gradients, or hands on."""
    needed = (name for operator in segment.operators if isinstance(operator, Backward) for name in operator.forward.outputs)
    return frozenset((*segment.outputs, *needed, *(name for operator in segment.operators for name in uses(operator))))


def _adds_up(plan: Plan, inner: str, outer: str) -> bool:
    """Return whether what is made again under a name is added, as gradients are, and not put in its place."""
    tensor = plan.tensors.get(outer, plan.tensors.get(inner))
    return tensor is None or tensor.role is Role.GRADIENT


def _alike(plan: Plan, inner: str, outer: str, inputs: frozenset[str]) -> bool:
    """Return whether another name that a run gives a value declares what the segment's own name declares."""
    one, other = plan.tensors.get(inner), plan.tensors.get(outer)
    if one is None or other is None:
        return True
    if (one.shape, one.dtype, one.role) != (other.shape, other.dtype, other.role):
        return False
    if one.role in (Role.WEIGHT, Role.BUFFER) and _known_as(one) != _known_as(other):
        return False
    if one.role is Role.INPUT and _known_as(one) != _known_as(other) and _known_as(other) in inputs:
        return False
    return one.role not in _GIVEN or _place(one) == _place(other)


def _place(tensor: Tensor) -> tuple[object, ...]:
    """Return which piece of a value the tensor is declared to hold."""
    return tensor.whole, tensor.region, tensor.part, dict(tensor.placements or {})


def _known_as(tensor: Tensor) -> str:
    return tensor.logical or tensor.name


def _keys(step: Step, names: tuple[str, ...], given: tuple[str, ...] | None) -> Sequence[object]:
    """Return what tells the values apart on their rank: what the step gives is one value, any other name one a micro-batch."""
    return names if given is not None else [(step.micro_batch, name) for name in names]


def _stale(
    segment: Segment,
    micro_batch: int,
    name: str,
    sources: Sequence[_Source],
    pattern: list[frozenset[_Place] | None],
    position: int,
) -> Defect | None:
    """Return what is wrong with the sources of an input; `pattern` gets those of the first micro-batch, where it has none
    yet.
    """
    crossed = [source for source in sources if source.micro_batch not in (-1, micro_batch)]
    if crossed:
        text = (
            f"`{segment.name}` on {{ranks}} reads for micro-batch {micro_batch} the value `{name}` that "
            f"`{crossed[0].place[0]}` made for micro-batch {crossed[0].micro_batch}"
        )
        return Defect("crossed-micro-batches", len(crossed) == len(sources), text, -1, segment.name)
    made_by = frozenset(source.place for source in sources)
    if len({source.place[:2] for source in sources}) != len(sources):
        text = f"`{name}` on {{ranks}} is made twice by one segment for micro-batch {micro_batch}"
        return Defect("repeated-micro-batch", False, text, -1, segment.name)
    if pattern[position] is None:
        pattern[position] = made_by
    if pattern[position] != made_by:
        text = (
            f"`{segment.name}` on {{ranks}} reads `{name}` for micro-batch {micro_batch} from other segments than for the first"
        )
        same = {place[:2] for place in made_by} == {place[:2] for place in pattern[position] or ()}
        return Defect("crossed-micro-batches", not same, text, -1, segment.name)
    return None


def _of_other_forward(
    plan: Plan,
    segment: Segment,
    micro_batch: int,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    forward: Mapping[tuple[str, int], list[tuple[tuple[str, ...], tuple[str, ...]]]],
    held: Mapping[object, list[_Source]],
) -> Defect | None:
    """Return a backward run whose gradients belong to a forward run of another micro-batch."""
    if segment.phase is not Phase.BACKWARD or segment.mirror not in plan.segments:
        return None
    mirror = plan.segments[segment.mirror]
    runs = forward.get((mirror.name, micro_batch))
    if runs is None:
        text = f"`{segment.name}` on {{ranks}} runs for micro-batch {micro_batch} before its forward run"
        return Defect("gradient-before-forward", True, text, -1, segment.name)
    given, taken = zip(segment.inputs, inputs, strict=True), zip(segment.outputs, outputs, strict=True)
    made = [(inner, outer) for inner, outer in given if outer in held or (micro_batch, outer) in held]
    for pairs, names, which in ((made, mirror.outputs, 0), (list(taken), mirror.inputs, 1)):
        for inner, outer in pairs:
            inner_of = plan.tensors[inner].gradient_of if inner in plan.tensors else ""
            outer_of = plan.tensors[outer].gradient_of if outer in plan.tensors else ""
            if inner_of in names and outer_of and runs[-1][which][names.index(inner_of)] != outer_of:
                several = len(set(runs)) > 1
                what = "an earlier run, or of none" if several else "another run"
                text = f"`{segment.name}` on {{ranks}} takes `{outer}` for micro-batch {micro_batch}, a gradient of {what}"
                return Defect("crossed-micro-batches", not several, text, -1, segment.name)
    return None
