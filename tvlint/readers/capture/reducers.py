"""Follow gradients of weights between the backward passes and the optimizer.

The gradient that the optimizer finds is a sum over micro-batches, on which collectives and divisions work, often on many
gradients at once that lie one after the other in a flat buffer. They are the plan's reducers; what stands before them are the
addends. A gradient is followed as the flat ranges of values that it consists of; all of its elements must go the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.dead import without_dead
from tvlint.readers.capture.lifting.equations.shapes import PAD
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode, inputs_of, makers_of, outputs_of, read_in
from tvlint.readers.capture.lifting.program import Array, End, Exchange, Program, Ref
from tvlint.readers.capture.tapes.tape import Mark


@dataclass(frozen=True, slots=True)
class Reducer:
    """A reduction of the gradient of one weight, then a division; `scatter`: each element is left to one of the ranks."""

    weight: str
    group: tuple[int, ...]
    reduce: str
    divisor: int
    mark: Mark
    scatter: bool = False


@dataclass(frozen=True, slots=True)
class Reduced:
    """The addends of each weight's gradient, what reduces their sum, in order, and the nodes that the reducers stand for.

    `left` are weights of which ranks are left parts, with the factor by which a gradient is multiplied before; `none` those of
    which this rank is left none.
    """

    addends: Mapping[str, tuple[str, ...]]
    reducers: tuple[Reducer, ...]
    gone: frozenset[int]
    left: Mapping[str, float]
    none: frozenset[str] = frozenset()
    averaged: frozenset[tuple[str, tuple[int, ...], int]] = frozenset()


Step: TypeAlias = "Exchange | float"
"""A reduction, or a factor."""


@dataclass(frozen=True, slots=True)
class Part:
    """The elements of a value from `low` to `high`, counted in row-major order, and what is done with them, the last first."""

    value: str
    low: int
    high: int
    steps: tuple[Step, ...] = ()


def agree_on_means(ranks: Sequence[Reduced]) -> bool:
    """Return whether all ranks of a group average an addend together, where one of them does so before a later mean."""
    return all(key in ranks[rank].averaged for each in ranks for key in each.averaged for rank in key[1] if rank < len(ranks))


def reducers_of(lifted: Lifted, averages: bool = True) -> Reduced:
    """Return the addends and the reducers of all gradients.

    `averages` says whether means of addends are left out that a later mean makes needless.
    """
    trace = _Trace(lifted)
    kept: frozenset[int] = frozenset()
    while True:
        found = {weight: trace.reduction(weight, value, kept) for weight, (value, _) in lifted.gradients.items()}
        summed = {weight: list(trace.addends(weight, each, kept, averages)) for weight, each in found.items()}
        addends = {weight: tuple(each.start for each in sums) for weight, sums in summed.items()}
        every = [*found.values(), *(each for sums in summed.values() for each in sums)]
        gone = frozenset(id(step) for each in every for step in each.exchanges)
        read = _read_elsewhere(lifted, addends, gone)
        if not read:
            break
        kept |= read
    ends = {step.handle for each in every for step in each.exchanges} - {""}
    waits = {id(node) for node in lifted.nodes if isinstance(node, End) and node.handle in ends}
    left = {weight: each.before for weight, each in found.items() if each.before is not None}
    none = frozenset(weight for weight, each in found.items() if each.is_elsewhere)
    places = _places_in_groups(lifted)
    averaged = frozenset(
        (weight, *places[id(step)]) for weight, sums in summed.items() for each in sums for step in each.exchanges
    )
    reducers = tuple(reducer for each in found.values() for reducer in each.reducers)
    return Reduced(addends, reducers, gone | waits, left, none, averaged)


def _places_in_groups(lifted: Lifted) -> dict[int, tuple[tuple[int, ...], int]]:
    """Return the group of each collective, with its place among those of the group."""
    counts: dict[tuple[int, ...], int] = {}
    places: dict[int, tuple[tuple[int, ...], int]] = {}
    for node in lifted.nodes:
        if isinstance(node, Exchange):
            group = tuple(node.group)
            places[id(node)] = (group, counts.setdefault(group, 0))
            counts[group] += 1
    return places


def _read_elsewhere(lifted: Lifted, addends: Mapping[str, tuple[str, ...]], gone: frozenset[int]) -> frozenset[int]:
    """Return the reductions among `gone` whose results something reads that is there without them."""
    values = [value for names in addends.values() for value in names]
    gradients: dict[str, tuple[str, Array | None]] = {str(place): (value, None) for place, value in enumerate(values)}
    kept = [node for node in lifted.nodes if id(node) not in gone]
    rest = without_dead(replace(lifted, nodes=kept, gradients=gradients))
    read = read_in(rest)
    made = {name: id(node) for node in lifted.nodes if id(node) in gone for name in outputs_of(node)}
    return frozenset(made[name] for name in made.keys() & {*read, *values})


@dataclass(frozen=True, slots=True)
class Reduction:
    """The value that is reduced, its reducers in order, and the collectives that they stand for.

    `before` is the factor by which it is multiplied before ranks are left their parts of it, None where they are left none;
    `is_elsewhere` says that all of it is left to other ranks.
    """

    start: str
    reducers: tuple[Reducer, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    before: float | None = None
    is_elsewhere: bool = False


class _Trace:
    """The values of a program, followed back to where they are added up."""

    def __init__(self, lifted: Lifted) -> None:
        self.lifted = lifted
        self.program: Program = lifted.program
        self.makers = makers_of(lifted)
        self.waited = {node.handle for node in lifted.nodes if isinstance(node, End) and node.mark.phase != "optimizer"}

    def reduction(self, weight: str, value: str, kept: frozenset[int]) -> Reduction:
        """Return how the gradient of a weight is reduced; not at all where its elements go different ways.

        What is done with elements after they are left to another rank, that rank says.
        """
        rank = self.program.rank
        every = self._parts(value, kept)
        parts = [replace(part, steps=_until_left(part.steps, rank)) for part in every]
        mine = [part for part, known in zip(parts, every, strict=True) if not _is_left(known.steps, rank)]
        ways = {tuple(map(_way, part.steps)) for part in mine or parts}
        before = {tuple(map(_way, _up_to_scatter(part.steps))) for part in parts}
        sources = {part.value for part in parts}
        if len(ways) != 1 or len(before) != 1 or len(sources) != 1 or not _tiles(parts, self._count(parts[0].value)):
            return Reduction(value)
        steps = (mine or parts)[0].steps
        reducers = tuple(_reducers(weight, steps, rank))
        if not reducers:
            return Reduction(value if steps else parts[0].value)
        scattered = any(reducer.scatter for reducer in reducers)
        factor = prod(step for step in _up_to_scatter(steps) if isinstance(step, float)) if scattered else None
        exchanges = tuple(step for part in every for step in part.steps if isinstance(step, Exchange))
        return Reduction(parts[0].value, reducers, exchanges, factor, not mine)

    def addends(self, weight: str, whole: Reduction, kept: frozenset[int], averages: bool) -> Iterator[Reduction]:
        """Yield what is added up to the value that is reduced: gradients of one name are summed.

        Where that sum is averaged over ranks, an addend that was averaged over them before is yielded as the value that was:
        mean(mean(a) + b) = mean(a + b). So are gradients that every micro-batch averages with what is there already.
        """
        for name in _addends(whole.start, self.lifted, self.makers):
            is_part = averages and name != whole.start and _is_mean(whole.reducers)
            before = self.reduction(weight, name, kept) if is_part else Reduction(name)
            if _is_mean(before.reducers) and before.reducers[0].group == whole.reducers[0].group:
                for each in self.addends(weight, before, kept, averages):
                    yield replace(each, exchanges=(*before.exchanges, *each.exchanges))
            else:
                yield Reduction(name)

    def _count(self, value: str) -> int:
        return prod(self.program.shape(value))

    def _parts(self, value: str, kept: frozenset[int]) -> list[Part]:
        """Return the parts that a value consists of, in order."""
        node, count = self.makers.get(value), self._count(value)
        if isinstance(node, Exchange) and self._reduces(node) and id(node) not in kept:
            return [replace(part, steps=(node, *part.steps)) for part in self._parts(node.inputs[0], kept)]
        if isinstance(node, Call):
            factor = _factor(node) if _is_after_accumulation(node) else None
            if factor is not None:
                return [replace(part, steps=(factor, *part.steps)) for part in self._parts(inputs_of(node)[0], kept)]
            if node.op == "torch.Tensor.view":
                return self._parts(inputs_of(node)[0], kept)
            if node.op == "torch.cat" and node.attributes.get("dim") == 0:
                return _joined([part for name in inputs_of(node) for part in self._parts(name, kept)])
            if node.op == "torch.narrow" and node.inputs[1] == Literal(0):
                return self._range(node, kept)
            source = inputs_of(node)[:1]
            if node.op == PAD and source and len(self.program.shape(value)) == 1:
                pad = node.attributes.get("pad")
                if isinstance(pad, tuple) and len(pad) == 2 and pad[0] == 0 and isinstance(pad[1], int) and pad[1] > 0:
                    return [*self._parts(source[0], kept), Part(value, self._count(source[0]), count)]
        return [Part(value, 0, count)]

    def _range(self, node: Call, kept: frozenset[int]) -> list[Part]:
        """Return the parts of a range of the first dimension."""
        source = inputs_of(node)[0]
        start, length = (argument.value for argument in node.inputs[2:] if isinstance(argument, Literal))
        assert isinstance(start, int)
        assert isinstance(length, int)
        row = self._count(source) // self.program.shape(source)[0]
        return _between(self._parts(source, kept), start * row, (start + length) * row)

    def _reduces(self, node: Exchange) -> bool:
        """Return whether a collective reduces, and is waited for where it does not end at once."""
        kinds = node.kind in ("all-reduce", "reduce") and node.reduce in ("sum", "avg")
        return kinds and len(node.outputs) == 1 and (not node.handle or node.handle in self.waited)


def _is_mean(reducers: Sequence[Reducer]) -> bool:
    """Return whether reducers are one, which leaves every rank the mean of what the ranks of a group hold."""
    if len(reducers) != 1 or reducers[0].scatter:
        return False
    (mean,) = reducers
    return mean.divisor == (1 if mean.reduce == "avg" else len(mean.group))


def _between(parts: Sequence[Part], low: int, high: int) -> list[Part]:
    found, at = list[Part](), 0
    for part in parts:
        size = part.high - part.low
        start, end = max(low, at), min(high, at + size)
        if start < end:
            found.append(replace(part, low=part.low + start - at, high=part.low + end - at))
        at += size
    return found


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Return the parts, those as one that follow each other."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if last is not None and (last.value, last.steps, last.high) == (part.value, part.steps, part.low):
            found[-1] = replace(last, high=part.high)
        else:
            found.append(part)
    return found


def _tiles(parts: Sequence[Part], count: int) -> bool:
    """Return whether the parts are all of a value, in order."""
    at = 0
    for part in parts:
        if part.low != at:
            return False
        at = part.high
    return at == count


def _way(step: Step) -> object:
    """Return what is the same of a step for all elements that go the same way: not which rank an element is left to."""
    return step if isinstance(step, float) else (step.kind, step.reduce, frozenset(step.group))


def _is_scatter(step: Step) -> bool:
    return not isinstance(step, float) and step.kind == "reduce"


def _is_left(steps: Sequence[Step], rank: int) -> bool:
    """Return whether steps leave elements to another rank."""
    return any(_is_scatter(step) and not isinstance(step, float) and step.root != rank for step in steps)


def _until_left(steps: tuple[Step, ...], rank: int) -> tuple[Step, ...]:
    """Return the steps, the last first, up to the one that leaves elements to another rank, where one does."""
    while _is_left(steps, rank) and not _is_left(steps[:1], rank):
        steps = steps[1:]
    return steps


def _up_to_scatter(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps, the last first, up to the last one that leaves ranks their parts; all of them where none does."""
    while any(map(_is_scatter, steps)) and not _is_scatter(steps[0]):
        steps = steps[1:]
    return steps


def _is_after_accumulation(node: Call) -> bool:
    return node.mark.phase != "backward" or "AccumulateGrad" in node.mark.node or not node.mark.node


def _factor(node: LiftedNode) -> float | None:
    """Return the number that a node multiplies a tensor by; None where it is no number."""
    if not isinstance(node, Call) or node.op not in ("torch.mul", "torch.div") or len(node.inputs) != 2:
        return None
    tensor, number = node.inputs
    value = number.value if isinstance(number, Literal) else None
    if not isinstance(tensor, Ref) or not isinstance(value, int | float) or isinstance(value, bool) or not value:
        return None
    return float(value if node.op == "torch.mul" else 1 / value)


def _reducers(weight: str, steps: Sequence[Step], rank: int) -> list[Reducer]:
    """Return the reducers that steps are, the last step first; none where they divide by no whole number.

    A division without a collective is a reducer of the rank alone.
    """
    found: list[Reducer] = []
    factor = 1.0
    for step in reversed(steps):
        if isinstance(step, float):
            factor *= step
        else:
            group = tuple(sorted(step.group))
            found.append(Reducer(weight, group, step.reduce, 1, step.mark, step.kind == "reduce"))
    divisor = round(1 / factor) if factor > 0 else 0
    if not steps or divisor < 1 or abs(divisor * factor - 1) > 1e-9:
        return []
    found = found or [Reducer(weight, (rank,), "sum", 1, Mark())]
    return [*found[:-1], replace(found[-1], divisor=divisor)]


def _addends(value: str, lifted: Lifted, makers: Mapping[str, LiftedNode]) -> list[str]:
    """Return what is added up to `value`: gradients of one name are summed."""
    node = makers.get(value)
    if not isinstance(node, Call) or node.op != "torch.add" or node.attributes.get("alpha", 1) != 1:
        return [value]
    operands = inputs_of(node)
    if len(operands) != 2 or any(lifted.program.types[operand] != lifted.program.types[value] for operand in operands):
        return [value]
    return [addend for operand in operands for addend in _addends(operand, lifted, makers)]
