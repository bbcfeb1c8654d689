"""Flags of the places that a rank holds, with masks for all others, as comparisons with these places.

A rank that holds classes `start:stop` may shift indices by `start`, put any class in the place of those that others hold, and
set their flags to zero, as a gradient of a cross-entropy over parts of the vocabulary does that is written out. With `f` for
what it makes of an index and `m` for the factor of the flags, as in `masked_lookups.py`,

    one_hot(f(t), n) m(t) = (t == start, start + 1, .., stop - 1).

Flags and what makes index and mask have no gradient and no effect, so they stay where they are; their product is made anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.def_use import are_new
from tvlint.equivalence.verdict.declared_results import has_declared_shapes
from tvlint.equivalence.verdict.masked_lookups import range_of
from tvlint.ir.operators import Backward, Compute, Literal, Operator
from tvlint.ir.plan import Plan, Role, Segment, Tensor
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait, spec_of
from tvlint.replay.lookups import Lookups, made_once

_FLAGS = "one-hot"


def with_compared_places(plan: Plan) -> Plan:
    """Return the plan with comparisons in the place of masked flags of places; the plan itself where it has none."""
    runs = Counter(name for program in plan.programs for name in {step.segment for step in program.steps})
    segments, added = dict(plan.segments), dict[str, Tensor]()
    for program in plan.programs:
        if any(step.inputs is not None or step.outputs is not None for step in program.steps):
            continue
        names = dict.fromkeys(step.segment for step in program.steps if runs[step.segment] == 1)
        for segment in _changed(plan, [plan.segments[name] for name in names], added):
            segments[segment.name] = segment
    is_same = segments == dict(plan.segments) or not are_new(plan, added)
    return plan if is_same else replace(plan, segments=segments, tensors={**plan.tensors, **added})


def _changed(plan: Plan, run_once: list[Segment], added: dict[str, Tensor]) -> Iterator[Segment]:
    """Yield the segments of a program that change; what they need is put among what is added."""
    if not any(_is_flags(operator) for segment in run_once for operator in segment.operators):
        return
    every = [operator for segment in run_once for operator in segment.operators]
    if any(isinstance(operator, Compute) and operator.in_place for operator in every):
        return
    scene = _Scene(plan, made_once(replace(run_once[0], operators=tuple(every))))
    pulled = {operator.forward.outputs for operator in every if isinstance(operator, Backward)}
    for segment in run_once:
        found, sources = list[Operator](), dict.fromkeys(segment.inputs)
        for operator in segment.operators:
            place = scene.place(operator) if isinstance(operator, Compute) and operator.outputs not in pulled else None
            if place is None or not isinstance(operator, Compute):
                found.append(operator)
            else:
                sources[place.indices] = None
                found += _comparison(plan, operator, place, added)
        if len(found) > len(segment.operators):
            yield replace(segment, operators=tuple(found), inputs=tuple(sources))


def _is_flags(operator: Operator) -> bool:
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    return spec is not None and spec.name == _FLAGS


@dataclass(frozen=True, slots=True)
class _Places:
    """The indices whose places are flagged, and the range of these places."""

    indices: str
    bounds: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Scene(Lookups):
    """Where masked flags are looked for: a plan, and what makes each name in all that a program runs once."""

    def place(self, last: Compute) -> _Places | None:
        """Return the places that a product of flags and their mask says; None where it is none."""
        if len(last.outputs) != 1 or last.stream or not has_trait(last.op, Trait.MASKING, Trait.SCALING):
            return None
        filled = self.filled(last)
        made = {at: self._flags(name) for at, name in enumerate(last.inputs) if isinstance(name, str) and at not in filled}
        known = [(place, flags) for place, flags in made.items() if flags is not None]
        if len(made) != 2 or len(known) != 1 or not all(has_declared_shapes(self.plan, each) for each in (known[0][1], last)):
            return None
        ((place, flags),) = known
        (mask,) = (str(last.inputs[at]) for at in made if at != place)
        index, factor = self.made_of(flags.tensor_operands[0]), self.made_of(mask)
        if index is None or factor is None or index.source != factor.source:
            return None
        rows, wide, given = self.shape(index.source), self.shape(flags.outputs[0]), self.plan.tensors.get(index.source)
        if rows is None or wide is None or given is None or given.role is not Role.INPUT:
            return None
        if wide[:-1] != rows or self.shape(last.outputs[0]) != wide or self.shape(mask) != (*rows, 1):
            return None
        bounds = range_of(index, factor, last, place, wide[-1], filled)
        return _Places(index.source, bounds) if bounds is not None else None

    def _flags(self, name: str) -> Compute | None:
        """Return what makes flags of places, which a value is, perhaps as another type; None where it is something else."""
        operator = self.made.get(name)
        while operator is not None and has_trait(operator.op, Trait.CONVERSION) and len(operator.tensor_operands) == 1:
            operator = self.made.get(operator.tensor_operands[0])
        return operator if operator is not None and _is_flags(operator) else None


def _comparison(plan: Plan, last: Compute, places: _Places, added: dict[str, Tensor]) -> tuple[Compute, ...]:
    """Return the comparison of indices with places that `last` is, with the tensors that it needs."""
    result, given = plan.tensors[last.outputs[0]], plan.tensors[places.indices]
    counted, column, compared = (f"{result.name}.{word}" for word in ("places", "column", "compared"))
    wide = (*given.shape, 1)
    for name, shape, dtype in (
        (counted, result.shape[-1:], given.dtype),
        (column, wide, given.dtype),
        (compared, result.shape, "bool"),
    ):
        added[name] = Tensor(name, shape, dtype, Role.ACTIVATION)
    return (
        replace(last, op="torch.arange", inputs=tuple(map(Literal, places.bounds)), outputs=(counted,), attributes={}),
        replace(last, op="torch.Tensor.view", inputs=(places.indices, Literal(wide)), outputs=(column,), attributes={}),
        replace(last, op="torch.eq", inputs=(column, counted), outputs=(compared,), attributes={}),
        replace(last, op="torch.Tensor.to", inputs=(compared,), attributes={"dtype": result.dtype}),
    )
