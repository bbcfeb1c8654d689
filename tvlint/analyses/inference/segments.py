"""The segments of operators that a plan lists without saying where segments begin: how plan text is read and written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import needs, overwritten, reads, writes
from tvlint.analyses.inference.accumulation import replaces_gradients
from tvlint.ir.operators import (
    Await,
    Backward,
    Communicate,
    Compute,
    Operator,
    Record,
    ReduceGradients,
    Update,
    Wait,
)
from tvlint.ir.plan import Phase
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


@dataclass(frozen=True, slots=True)
class ImplicitSegment:
    """Operators that follow each other in one phase; `micro_batch` as a step's."""

    phase: Phase
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    micro_batch: int


def signature(operators: Sequence[Operator], everywhere: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what `operators` read from outside, names visible `everywhere` left out, and all that they produce."""
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {}
    for operator in operators:
        for name in needs(operator):
            if name not in outputs and name not in everywhere:
                inputs[name] = None
        changed = (name for name in overwritten(operator) if name not in everywhere)
        for name in (*writes(operator), *changed):
            outputs[name] = None
    return tuple(inputs), tuple(outputs)


def implicit_segments(
    operators: Sequence[Operator],
    everywhere: Collection[str],
    accumulated: Collection[str],
    micro_batch: int,
    *,
    many: bool,
) -> Iterator[ImplicitSegment]:
    """Yield the segments of `operators`, cut where the phase changes.

    `backward`, `reduce-gradients`, `update` and steps of optimizers set the phase. Any other operator stays in the phase it
    stands in, except that one that touches a value of a micro-batch leaves the reduce and optimizer phases: what is made
    there of gradients of weights is no such value. `everywhere` are the names that are visible on a rank for good,
    `accumulated` the gradients of weights. Where there are `many` micro-batches, all-reduces
    that replace accumulated gradients set the phase as well, and so does what a gradient is divided or clipped by. With one,
    what overwrites after the backward pass what stays is a step.
    """
    phase = Phase.FORWARD
    within = Phase.FORWARD
    start = 0
    of_step = {*everywhere, *accumulated}
    for index, operator in enumerate(operators):
        replaces = many and replaces_gradients(operator, accumulated)
        steps = many and phase is Phase.BACKWARD and _makes_gradients_of_gradients(operator, of_step, accumulated)
        steps = steps or (within is Phase.BACKWARD and not many and any(name in everywhere for name in overwritten(operator)))
        following = Phase.REDUCE if replaces else Phase.OPTIMIZER if steps else _phase(operator, phase, within, of_step)
        if following in (Phase.REDUCE, Phase.OPTIMIZER):
            of_step.update((*writes(operator), *overwritten(operator)))
        else:
            of_step.difference_update(name for name in writes(operator) if name not in everywhere and name not in accumulated)
        if following is not phase:
            if index > start:
                yield _cut(phase, operators[start:index], everywhere, micro_batch)
            phase, start = following, index
        if phase in (Phase.FORWARD, Phase.BACKWARD):
            within = phase
    if len(operators) > start:
        yield _cut(phase, operators[start:], everywhere, micro_batch)


def _makes_gradients_of_gradients(operator: Operator, of_step: Collection[str], accumulated: Collection[str]) -> bool:
    """Return whether the operator makes, of gradients of weights and nothing of a micro-batch, what takes the place of some."""
    if not isinstance(operator, Compute):
        return False
    read, made = reads(operator), writes(operator)
    return bool(read) and all(name in of_step for name in read) and any(name in accumulated and name in read for name in made)


def _phase(operator: Operator, phase: Phase, within: Phase, of_step: Collection[str]) -> Phase:
    if isinstance(operator, Backward):
        return Phase.BACKWARD
    if isinstance(operator, ReduceGradients):
        return Phase.REDUCE
    if isinstance(operator, Update) or (isinstance(operator, Compute) and has_trait(operator.op, Trait.OPTIMIZER)):
        return Phase.OPTIMIZER
    if isinstance(operator, Wait | Record | Await) or phase in (Phase.FORWARD, Phase.BACKWARD):
        return phase
    read = reads(operator)
    names = read if read and isinstance(operator, Compute | Communicate) else (*read, *writes(operator))
    return phase if all(name in of_step for name in names) else within


def _cut(phase: Phase, operators: Sequence[Operator], everywhere: Collection[str], micro_batch: int) -> ImplicitSegment:
    inputs, outputs = signature(operators, everywhere)
    number = micro_batch if phase in (Phase.FORWARD, Phase.BACKWARD) else -1
    return ImplicitSegment(phase, tuple(operators), inputs, outputs, number)
