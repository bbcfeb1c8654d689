"""Lookups in the rows that a rank holds, with masks for all others, as lookups in a stated range.

A rank that holds rows `start:stop` of a table may shift indices by `start`, put any row in the place of those that others hold,
and set what it has looked up for these to zero. With `f` for what it makes of an index and `m` for the factor of what is looked
up, that is a lookup in the range `start:stop` where for every whole number `v`

    f(v) = v - start and m(v) = 1, for v in start:stop;      f(v) is a row and m(v) = 0, for every other v.

`f` and `m` are made as `replay.lookups` says, so they are linear on pieces. They are computed for every `v` up to beyond the
ends of these, so that what is found holds for all.

A lookup takes the place of its operators only where nothing could see the difference: all of them, and what makes index and
mask, are on the default stream; nothing is changed in place; what they read and make is made once and has no other reader;
nothing but computations without effect stands between them; and each gradient is of the very operator that ran, in its order,
and behind all that the first of them reads.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tvlint.analyses.dataflow.def_use import reads, stream_of, uses, writes
from tvlint.analyses.relations.derivation.given.trusted_inputs import region
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.equivalence.verdict.declared_results import has_declared_shapes
from tvlint.ir.operators import Backward, Compute, Literal, Operator, Update, Value
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment
from tvlint.ops.spec import UnsupportedError
from tvlint.ops.table import PICK, PICK_IN_RANGE, spec_of
from tvlint.replay.lookups import MOST, Lookups, OfIndices, factor_of, is_view, made_once
from tvlint.replay.operators import NotReplayedError

_RUNS = (Phase.FORWARD, Phase.BACKWARD)


@dataclass(frozen=True, slots=True)
class _Masked:
    """A lookup and what is done with its result until others are set to zero, in order; and the lookup that this is."""

    operators: tuple[Compute, ...]
    lookup: Compute


def with_stated_ranges(plan: Plan) -> Plan:
    """Return the plan with lookups in stated ranges in the place of masked ones; the plan itself where it has none."""
    runs = Counter(name for program in plan.programs for name in {step.segment for step in program.steps})
    segments = dict(plan.segments)
    for program in plan.programs:
        if any(step.inputs is not None or step.outputs is not None for step in program.steps):
            continue
        run_once = {step.segment: plan.segments[step.segment] for step in program.steps if runs[step.segment] == 1}
        if not any(_overwrites(segment) for segment in run_once.values()):
            segments.update(_replaced(plan, program, run_once))
    if segments == dict(plan.segments):
        return plan
    gone = _named(plan.segments) - _named(segments)
    return replace(plan, segments=segments, tensors={name: tensor for name, tensor in plan.tensors.items() if name not in gone})


def _named(segments: Mapping[str, Segment]) -> set[str]:
    """Return all names that operators read or give."""
    operators = [operator for segment in segments.values() for operator in segment.operators]
    return {name for operator in operators for name in (*reads(operator), *writes(operator))}


def _overwrites(segment: Segment) -> bool:
    """Return whether a forward or backward segment changes a value in place, which all its views see, or a weight."""
    changes = (
        isinstance(operator, Update) or (isinstance(operator, Compute) and operator.in_place) for operator in segment.operators
    )
    return segment.phase in _RUNS and any(changes)


def _found(plan: Plan, program: Program, segment: Segment) -> Iterator[_Masked]:
    """Yield the masked lookups of a segment."""
    computed = [operator for operator in segment.operators if isinstance(operator, Compute)]
    made = made_once(segment)
    for last in (operator for operator in computed if not stream_of(operator)):
        scene = _Scene(plan, made, program)
        for place, name in enumerate(last.inputs):
            chain = scene.chain(name) if isinstance(name, str) else ()
            found = scene.masked(chain, last, place) if chain else None
            if found is not None:
                yield found
                break


@dataclass(frozen=True, slots=True)
class _Scene(Lookups):
    """Where masked lookups are looked for: a plan, what makes each name, and the ranks."""

    program: Program

    def masked(self, chain: tuple[Compute, ...], last: Compute, place: int) -> _Masked | None:
        """Return the masked lookup that ends with `last`, which takes what was looked up as operand `place`."""
        spec = spec_of(chain[0].op)
        assert spec is not None
        picks = spec.name == PICK
        names = chain[0].tensor_operands
        if len(names) != 2 or len(last.outputs) != 1 or (chain[0].attributes and not picks):
            return None
        table, indices = names if picks else names[::-1]
        filled = self.filled(last)
        mask = [each for at, each in enumerate(last.inputs) if isinstance(each, str) and at not in (place, *filled)]
        if len(mask) != 1 or last.in_place:
            return None
        index, flag = self.made_of(indices), self.made_of(mask[0])
        shape, result = self.shape(table), self.shape(last.outputs[0])
        if index is None or flag is None or index.source != flag.source:
            return None
        if shape is None or result is None or self.shape(str(last.inputs[place])) != result:
            return None
        source = index.source
        rows = self.shape(source)
        held = shape[-1] if picks else shape[0]
        if rows is None or result != (rows if picks else (*rows, *shape[1:])):
            return None
        if picks and (shape[:-1] != rows or not self._picks_along_the_last(chain[0], len(shape))):
            return None
        if not self._fits(mask[0], rows, picks) or self.shape(indices) != ((*rows, 1) if picks else rows):
            return None
        if not all(has_declared_shapes(self.plan, operator) for operator in (*chain, last)):
            return None
        bounds = range_of(index, flag, last, place, held, filled)
        if bounds is None or (not picks and any(each != bounds for each in self._held(table))):
            return None
        start, stop = bounds
        stated: dict[str, Value] = {"start": start, "stop": stop}
        if picks:
            lookup = replace(last, op=PICK_IN_RANGE, inputs=(table, source), attributes={"dim": len(shape) - 1, **stated})
        else:
            lookup = replace(last, op=chain[0].op, inputs=(source, table), attributes=stated)
        return _Masked((*chain, last), replace(lookup, annotation=""))

    def _picks_along_the_last(self, lookup: Compute, count: int) -> bool:
        given = [operand.value for operand in lookup.inputs if isinstance(operand, Literal)]
        return lookup.attributes.get("dim", given[0] if given else None) in (-1, count - 1)

    def _fits(self, mask: str, rows: tuple[int, ...], picks: bool) -> bool:
        """Return whether the mask has one flag for every index."""
        return self.shape(mask) == (rows if picks else (*rows, 1))

    def _held(self, table: str) -> Iterator[tuple[int, int]]:
        """Yield which rows of the table each rank holds."""
        tensor = self.plan.tensors[table]
        for rank in self.program.ranks:
            try:
                yield region(self.plan, tensor, rank)[0] if tensor.role is Role.WEIGHT else (-1, -1)
            except Mismatch:
                yield -1, -1


def range_of(
    index: OfIndices, mask: OfIndices, last: Compute, place: int, held: int, filled: Mapping[int, float]
) -> tuple[int, int] | None:
    """Return the range in which the masked lookup looks up; None where it is none, or where that is not decided."""
    import numpy as np

    try:
        ends = index.end() + mask.end() + held + 2
        if ends > MOST:
            return None
        every = np.arange(-ends, ends + 1).astype(float)
        row = index.values(every)
        factor = factor_of(last, place, mask.values(every), filled)
    except (NotReplayedError, UnsupportedError):
        return None
    if factor is None or not np.all((factor == 0) | (factor == 1)) or not np.all((row >= 0) & (row < held)):
        return None
    inside = every[factor == 1]
    if len(inside) != held or not np.array_equal(row[factor == 1], inside - inside[0]):
        return None
    return int(inside[0]), int(inside[0]) + held


class _Uses:
    """Who reads, gives and differentiates what in the segments of one program."""

    def __init__(self, segments: Mapping[str, Segment]) -> None:
        self.readers: dict[str, list[Operator]] = defaultdict(list)
        self.makers: dict[str, list[Operator]] = defaultdict(list)
        self.gradients: dict[tuple[str, ...], list[Backward]] = defaultdict(list)
        self.places: dict[int, tuple[str, int]] = {}
        """The segment and the position of each operator, by identity."""
        self.ends: dict[str, set[str]] = defaultdict(set)
        """The segments that take a name in or give it."""
        self._segments = segments
        for segment in segments.values():
            for name in (*segment.inputs, *segment.outputs):
                self.ends[name].add(segment.name)
            for position, operator in enumerate(segment.operators):
                self.places[id(operator)] = segment.name, position
                for name in uses(operator):
                    self.readers[name].append(operator)
                for name in writes(operator):
                    self.makers[name].append(operator)
                if isinstance(operator, Backward):
                    self.gradients[operator.forward.outputs].append(operator)

    def only(self, names: Iterable[str], operators: Iterable[Operator]) -> bool:
        """Return whether these operators alone read these names, which one of them makes."""
        known = {id(operator) for operator in operators}
        return all(
            len(self.makers[name]) == 1 and all(id(operator) in known for operator in (*self.readers[name], *self.makers[name]))
            for name in names
        )

    def segment_of(self, operators: Iterable[Operator]) -> str:
        """Return the segment in which these run in this order with only computations in between; empty where none is."""
        places = [self.places[id(operator)] for operator in operators]
        (name, first), (_, last) = places[0], places[-1]
        if places != sorted(places) or {name for name, _ in places} != {name}:
            return ""
        between = self._segments[name].operators[first:last]
        return name if all(isinstance(operator, Compute | Backward) for operator in between) else ""

    def is_before(self, operator: Operator, other: Operator) -> bool:
        """Return whether an operator stands in one segment with another, and before it."""
        (segment, position), (others, later) = self.places[id(operator)], self.places[id(other)]
        return segment == others and position < later


@dataclass(frozen=True, slots=True)
class _Change:
    """What the operators of segments, by identity, are replaced with (None: with nothing), names that go, and new inputs."""

    instead: Mapping[int, Operator | None]
    gone: frozenset[str]
    inputs: Mapping[str, tuple[str, ...]]


def _replaced(plan: Plan, program: Program, segments: Mapping[str, Segment]) -> dict[str, Segment]:
    """Return the segments of a program that change, with lookups in stated ranges."""
    known: _Uses | None = None
    instead: dict[int, Operator | None] = {}
    gone: set[str] = set()
    inputs: dict[str, list[str]] = defaultdict(list)
    touched: set[str] = set()
    for segment in segments.values():
        for found in _found(plan, program, segment) if segment.phase is Phase.FORWARD else ():
            known = known or _Uses(segments)
            change = _change(plan, found, known)
            if change is not None and instead.keys().isdisjoint(change.instead):
                instead.update(change.instead)
                gone.update(change.gone)
                for name, more in change.inputs.items():
                    touched.add(name)
                    inputs[name].extend(more)
    return {name: _with(segments[name], instead, gone, inputs[name]) for name in touched}


def _with(segment: Segment, instead: Mapping[int, Operator | None], gone: set[str], more: list[str]) -> Segment:
    changed = (instead.get(id(operator), operator) for operator in segment.operators)
    new = dict.fromkeys(name for name in more if name not in segment.inputs)
    return replace(
        segment,
        operators=tuple(operator for operator in changed if operator is not None),
        inputs=(*(name for name in segment.inputs if name not in gone), *new),
        outputs=tuple(name for name in segment.outputs if name not in gone),
    )


def _change(plan: Plan, found: _Masked, known: _Uses) -> _Change | None:
    """Return what puts the lookup in the place of its operators; None where something could see the difference."""
    back = _back(plan, found, known)
    gradient = _gradient(found, back) if back else None
    places = [known.segment_of(found.operators), *([known.segment_of(back)] if back else [])]
    if (back and gradient is None) or not all(places):
        return None
    inner = {name for operator in found.operators[:-1] for name in operator.outputs}
    between = {name for operator in back[:-1] for name in operator.outputs if name}
    ends = {each_name for name in inner | between for each_name in known.ends[name]}
    if not known.only(inner | between, (*found.operators, *back)) or not ends <= set(places):
        return None
    outer = [*found.lookup.outputs, *(gradient.inputs if gradient is not None else ())]
    if any(len(known.makers[name]) > 1 for name in outer) or not inner.isdisjoint(plan.outputs):
        return None
    if back and any(known.is_before(back[0], maker) for name in outer for maker in known.makers[name]):
        return None
    instead: dict[int, Operator | None] = {id(operator): None for operator in (*found.operators, *back)}
    instead[id(found.operators[-1])] = found.lookup
    inputs: dict[str, tuple[str, ...]] = {places[0]: ()}
    if gradient is not None:
        instead[id(back[-1])] = gradient
        inputs[places[1]] = found.lookup.tensor_operands
    return _Change(instead, frozenset(inner | between), inputs)


def _back(plan: Plan, found: _Masked, known: _Uses) -> list[Backward | Compute]:
    """Return what the backward pass makes of the gradient of a masked lookup, from its last operator to its first.

    The gradient of a view may be a view of the gradient, in the shape that the operand of the view has.
    """
    back: list[Backward | Compute] = []
    for ran in reversed(found.operators):
        gradients: list[Backward | Compute] = [*known.gradients[ran.outputs]]
        if not gradients and back and is_view(ran):
            shape = plan.tensors[str(ran.inputs[0])].shape
            readers = [reader for name in back[-1].outputs if name for reader in known.readers[name]]
            gradients += [view for view in readers if isinstance(view, Compute) and _gives(plan, view, shape)]
        back += gradients
    return back


def _gives(plan: Plan, view: Compute, shape: tuple[int, ...]) -> bool:
    """Return whether an operator is a view of its operand in this shape."""
    return (
        is_view(view) and not view.in_place and has_declared_shapes(plan, view) and plan.tensors[view.outputs[0]].shape == shape
    )


def _gradient(found: _Masked, back: list[Backward | Compute]) -> Backward | None:
    """Return the gradient of the lookup in the place of those of its operators, each of the very operator that ran."""
    if len(back) != len(found.operators) or any(stream_of(operator) for operator in back):
        return None
    if not all(_is_gradient_of(operator, ran) for operator, ran in zip(back, reversed(found.operators), strict=True)):
        return None
    for before, after in pairwise(back):
        if [*filter(None, before.outputs)] != [*(after.inputs if isinstance(after, Backward) else after.tensor_operands)]:
            return None
    first, last = back[0], back[-1]
    if not isinstance(first, Backward) or not isinstance(last, Backward):
        return None
    table = str(found.lookup.inputs[0 if found.lookup.op == PICK_IN_RANGE else 1])
    names = last.forward.tensor_operands
    given = dict(zip(names, last.outputs, strict=False))
    if any(gradient and name != table for name, gradient in given.items()):
        return None
    outputs = tuple(given.get(table, "") if name == table else "" for name in map(str, found.lookup.inputs))
    return replace(last, forward=found.lookup, inputs=first.inputs, outputs=outputs)


def _is_gradient_of(operator: Backward | Compute, ran: Compute) -> bool:
    """Return whether a gradient is of an operator that says the same as the one that ran; a view is that of a view."""
    if isinstance(operator, Compute):
        return is_view(ran)
    said = operator.forward
    return (said.op, said.inputs, said.outputs, said.attributes) == (ran.op, ran.inputs, ran.outputs, ran.attributes)
