"""Lookups in the rows that a rank holds, with masks for all others, as lookups in a stated range.

A rank that holds rows `start:stop` of a table may shift indices by `start`, put any row in the place of those that others hold,
and set what it has looked up for these to zero. With `f` for what it makes of an index and `m` for the factor of what is looked
up, that is a lookup in the range `start:stop` where for every whole number `v`

    f(v) = v - start and m(v) = 1, for v in start:stop;      f(v) is a row and m(v) = 0, for every other v.

`f` and `m` are made element by element of one tensor of indices, by sums with constants, comparisons, flags, and choices by
flags. Both are then linear on pieces whose ends lie between the sum of all constants and its negative. They are computed for
every `v` up to beyond these ends, so that what is found holds for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.relations.derivation.trusted_inputs import region
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.ir.operators import Backward, Compute, Literal, Operator, Value
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment
from tvlint.ops.field import Array
from tvlint.ops.spec import Call, Family, Trait, UnsupportedError
from tvlint.ops.table import LOOKUP, PICK, PICK_IN_RANGE, has_trait, spec_of
from tvlint.replay.operators import NotReplayedError, forward

_MOST = 1 << 22
"""Masks with larger constants are not decided."""


@dataclass(frozen=True, slots=True)
class _Masked:
    """A lookup and what is done with its result until others are set to zero, in order; and the lookup that this is."""

    operators: tuple[Compute, ...]
    lookup: Compute


def with_stated_ranges(plan: Plan) -> Plan:
    """Return the plan with lookups in stated ranges in the place of masked ones; the plan itself where it has none."""
    segments = dict(plan.segments)
    for program in plan.programs:
        own = {step.segment for step in program.steps}
        if any(step.inputs is not None or step.outputs is not None for step in program.steps):
            continue
        for name in own:
            if plan.segments[name].phase is Phase.FORWARD and _only(plan, program, name):
                for found in _found(plan, program, plan.segments[name]):
                    segments.update(_replaced(plan, {each: segments[each] for each in own}, found))
    if segments == dict(plan.segments):
        return plan
    gone = _named(plan.segments) - _named(segments)
    return replace(plan, segments=segments, tensors={name: own for name, own in plan.tensors.items() if name not in gone})


def _named(segments: Mapping[str, Segment]) -> set[str]:
    """Return all names that operators read or give."""
    operators = [own for segment in segments.values() for own in segment.operators]
    return {name for own in operators for name in (*reads(own), *writes(own))}


def _only(plan: Plan, program: Program, segment: str) -> bool:
    """Return whether no other program runs the segment, so that it has one table."""
    return all(other is program or all(step.segment != segment for step in other.steps) for other in plan.programs)


def _made_once(segment: Segment) -> dict[str, Compute]:
    """Return what makes each name that one operator makes, of what was there before it, so that none is made of itself."""
    times = Counter(name for own in segment.operators for name in writes(own))
    made: dict[str, Compute] = {}
    there: set[str] = set()
    for own in segment.operators:
        early = any(times[name] and name not in there for name in reads(own))
        there.update(writes(own))
        if isinstance(own, Compute) and not early:
            made.update((name, own) for name in own.outputs if name and times[name] == 1)
    return made


def _found(plan: Plan, program: Program, segment: Segment) -> Iterator[_Masked]:
    """Yield the masked lookups of a segment."""
    computed = [own for own in segment.operators if isinstance(own, Compute)]
    made = _made_once(segment)
    for last in computed:
        scene = _Scene(plan, program, made)
        for place, name in enumerate(last.inputs):
            chain = scene.chain(name) if isinstance(name, str) else ()
            found = scene.masked(chain, last, place) if chain else None
            if found is not None:
                yield found
                break


@dataclass(frozen=True, slots=True)
class _Scene:
    """Where masked lookups are looked for: a plan, the ranks, and what makes each name."""

    plan: Plan
    program: Program
    made: Mapping[str, Compute]

    def shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self.plan.tensors.get(name)
        return tensor.shape if tensor is not None else None

    def chain(self, name: str) -> tuple[Compute, ...]:
        """Return the lookup that `name` is, and the views of it in between."""
        found: list[Compute] = []
        while (own := self.made.get(name)) is not None and len(own.outputs) == 1 and own not in found:
            spec = spec_of(own.op)
            found.insert(0, own)
            if spec is None or spec.name in (LOOKUP, PICK):
                return tuple(found) if spec is not None else ()
            first = own.inputs[0] if own.inputs else None
            if not _is_view(own) or not isinstance(first, str):
                return ()
            name = first
        return ()

    def masked(self, chain: tuple[Compute, ...], last: Compute, place: int) -> _Masked | None:
        """Return the masked lookup that ends with `last`, which takes what was looked up as operand `place`."""
        spec = spec_of(chain[0].op)
        assert spec is not None
        picks = spec.name == PICK
        names = [own for own in chain[0].inputs if isinstance(own, str)]
        if len(names) != 2 or len(last.outputs) != 1 or (chain[0].attributes and not picks):
            return None
        table, indices = names if picks else names[::-1]
        mask = [own for own in last.inputs if isinstance(own, str) and own != last.inputs[place]]
        if len(mask) != 1 or last.in_place:
            return None
        source, shape = _Of(self).source(indices), self.shape(table)
        result = self.shape(last.outputs[0])
        if not source or shape is None or result is None or self.shape(str(last.inputs[place])) != result:
            return None
        rows = self.shape(source)
        held = shape[-1] if picks else shape[0]
        if rows is None or result != (rows if picks else (*rows, *shape[1:])):
            return None
        if picks and (shape[:-1] != rows or not self._picks_along_the_last(chain[0], len(shape))):
            return None
        if not self._fits(mask[0], rows, picks) or _Of(self).source(mask[0]) != source:
            return None
        bounds = self._range(indices, mask[0], last, place, held)
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
        given = [own.value for own in lookup.inputs if isinstance(own, Literal)]
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

    def _range(self, indices: str, mask: str, last: Compute, place: int, held: int) -> tuple[int, int] | None:
        """Return the range in which the masked lookup looks up; None where it is none, or where that is not decided."""
        import numpy as np

        made = _Of(self)
        ends = made.ends(indices) + made.ends(mask) + held + 2
        if ends > _MOST:
            return None
        every = np.arange(-ends, ends + 1).astype(float)
        try:
            row, flag = made.values(indices, every), made.values(mask, every)
            factor = _factor(last, place, flag)
        except (NotReplayedError, UnsupportedError):
            return None
        if factor is None or not np.all((factor == 0) | (factor == 1)) or not np.all((row >= 0) & (row < held)):
            return None
        inside = every[factor == 1]
        if len(inside) != held or not np.array_equal(row[factor == 1], inside - inside[0]):
            return None
        return int(inside[0]), int(inside[0]) + held


@dataclass(frozen=True, slots=True)
class _Of:
    """Whole numbers and flags that are made element by element of one tensor of indices."""

    scene: _Scene
    _sources: dict[str, str] = field(default_factory=dict)
    _ends: dict[str, int] = field(default_factory=dict)
    _values: dict[str, Array] = field(default_factory=dict)
    """What is known already by name, so that each operator is looked at once; `_values` is of one list of indices."""

    def _operands(self, name: str) -> list[str] | None:
        """Return what `name` is made of, one element of each; None where it is not made so, and stands for itself."""
        own = self.scene.made.get(name)
        if own is None or len(own.outputs) != 1 or own.in_place:
            return None
        names = [each for each in own.inputs if isinstance(each, str)]
        shapes = [self.scene.shape(each) for each in (*names, name)]
        if not names or any(shape is None for shape in shapes):
            return None
        if _is_view(own):
            before, after = (shape or () for shape in shapes[-2:])
            return names if prod(before) == prod(after) and _without_last(before) == _without_last(after) else None
        if len(set(shapes)) > 1 or not has_trait(own.op, *_BY_ELEMENT):
            return None
        return names

    def source(self, name: str) -> str:
        """Return the tensor that `name` is made of; empty where it is made of several."""
        if name not in self._sources:
            below = self._operands(name)
            found = {self.source(each) for each in below} if below is not None else {name}
            self._sources[name] = next(iter(found)) if len(found) == 1 else ""
        return self._sources[name]

    def ends(self, name: str) -> int:
        """Return the sum of the magnitudes of all constants in what makes `name`."""
        below = self._operands(name)
        if below is None or name in self._ends:
            return self._ends.get(name, 0)
        own = self.scene.made[name]
        given = [each.value for each in own.inputs if isinstance(each, Literal)] + list(own.attributes.values())
        numbers = [abs(each) for each in given if isinstance(each, int | float) and not isinstance(each, bool)]
        self._ends[name] = min(int(min(sum(numbers), _MOST)) + 1 + sum(self.ends(each) for each in below), 2 * _MOST)
        return self._ends[name]

    def values(self, name: str, every: Array) -> Array:
        """Return `name` for each of these indices."""
        if name not in self._values:
            self._values[name] = self._value(name, every)
        return self._values[name]

    def _value(self, name: str, every: Array) -> Array:
        import numpy as np

        below = self._operands(name)
        if below is None:
            return every
        own = self.scene.made[name]
        operands = [self.values(each, every) for each in below]
        if _is_view(own):
            return operands[0]
        flags = [bool(np.all((each == 0) | (each == 1))) for each in operands]
        scales = has_trait(own.op, Trait.SCALING)
        if scales and not (has_trait(own.op, Trait.PRODUCT) and len(operands) == 2 and any(flags)):
            raise UnsupportedError(f"`{own.op}` of whole numbers")
        if has_trait(own.op, Trait.CONVERSION):
            if not flags[0]:
                raise UnsupportedError(f"`{own.op}` of whole numbers")
            return operands[0]
        return forward(own, operands, [every.shape])[0]


_BY_ELEMENT = (Trait.SUM, Trait.COMPARISON, Trait.MASKING, Trait.SCALING, Trait.CONVERSION)


def _is_view(operator: Compute) -> bool:
    spec = spec_of(operator.op)
    if spec is None or Trait.TRANSPOSE in spec.traits:
        return False
    return spec.family is Family.RESHAPE or Trait.VIEW in spec.traits


def _without_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[:-1] if shape[-1:] == (1,) else shape


def _factor(last: Compute, place: int, flags: Array) -> Array | None:
    """Return what `last` multiplies its operand `place` with, by flags; None where it is not linear in that."""
    import numpy as np

    spec = spec_of(last.op)
    if spec is None or not has_trait(last.op, Trait.MASKING, Trait.SCALING):
        return None
    tensors = [at for at, own in enumerate(last.inputs) if not isinstance(own, Literal)]
    given = tuple(own if isinstance(own, Literal) else flags.shape for own in last.inputs)
    bound = spec.bind(Call(last.op, given, last.attributes, (flags.shape,)))
    if frozenset({tensors.index(place)}) not in bound.linear:
        return None
    return forward(last, [np.ones(flags.shape) if at == place else flags for at in tensors], [flags.shape])[0]


def _replaced(plan: Plan, segments: Mapping[str, Segment], found: _Masked) -> dict[str, Segment]:
    """Return the segments with the lookup in the place of the operators; none where something else reads what these give."""
    inner = {name for own in found.operators[:-1] for name in own.outputs}
    outputs = {own.outputs: own for own in found.operators}
    back = [own for segment in segments.values() for own in segment.operators if isinstance(own, Backward)]
    back = [own for own in back if own.forward.outputs in outputs]
    taken: set[str] = set()
    given: set[str] = set()
    for segment in segments.values():
        for own in segment.operators:
            mine = isinstance(own, Compute) and outputs.get(own.outputs) is own
            if not mine and own not in back and not inner.isdisjoint(reads(own)):
                return {}
            if own not in back:
                taken.update(reads(own))
                given.update(writes(own))
    if inner & {plan.loss, *plan.outputs}:
        return {}
    gradient = _gradient(found, back)
    kept = set() if gradient is None else {*gradient.outputs}
    between = {name for own in back for name in own.outputs if name} - kept
    if (back and gradient is None) or between & (taken | given):
        return {}
    gone = inner | between
    changed = {}
    for name, segment in segments.items():
        operators = tuple(_in_place(segment.operators, found, back, gradient))
        if operators != segment.operators:
            wanted = found.lookup.inputs if any(own is gradient for own in operators) else ()
            more = [own for own in wanted if isinstance(own, str) and own not in segment.inputs]
            changed[name] = replace(
                segment,
                operators=operators,
                inputs=(*(own for own in segment.inputs if own not in gone), *more),
                outputs=tuple(own for own in segment.outputs if own not in gone),
            )
        elif not gone.isdisjoint((*segment.inputs, *segment.outputs)):
            return {}
    return changed


def _gradient(found: _Masked, back: list[Backward]) -> Backward | None:
    """Return the gradient of the lookup in the place of those of its operators, which have to follow one another."""
    by_forward = {own.forward.outputs: own for own in back}
    chain = [by_forward.get(own.outputs) for own in reversed(found.operators)]
    if len(back) != len(found.operators) or any(own is None for own in chain):
        return None
    steps = [own for own in chain if own is not None]
    for before, after in pairwise(steps):
        if not after.inputs or after.inputs[0] not in before.outputs or sum(bool(name) for name in before.outputs) != 1:
            return None
    first, last = steps[0], steps[-1]
    table = str(found.lookup.inputs[0 if found.lookup.op == PICK_IN_RANGE else 1])
    names = [own for own in last.forward.inputs if isinstance(own, str)]
    given = dict(zip(names, last.outputs, strict=False))
    if any(gradient and name != table for name, gradient in given.items()):
        return None
    outputs = tuple(given.get(table, "") if name == table else "" for name in map(str, found.lookup.inputs))
    return replace(last, forward=found.lookup, inputs=first.inputs, outputs=outputs)


def _in_place(
    operators: tuple[Operator, ...], found: _Masked, back: list[Backward], gradient: Backward | None
) -> Iterator[Operator]:
    last = next((own for own in reversed(operators) if own in back), None)
    for own in operators:
        if isinstance(own, Compute) and any(own is each for each in found.operators):
            if own is found.operators[-1]:
                yield found.lookup
        elif isinstance(own, Backward) and own in back:
            if own is last and gradient is not None:
                yield gradient
        else:
            yield own
