"""Run counts of segments for every micro-batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import has, needs, writes
from tvlint.ir.operators import Backward
from tvlint.ir.plan import Phase, Plan


@dataclass(frozen=True, slots=True)
class Count:
    """On `ranks`, `segment` runs `times` times for `micro_batch`; right were `expected` times, or so many micro-batches."""

    segment: str
    forward: str
    micro_batch: int
    times: int
    expected: int
    ranks: tuple[int, ...]


def uneven_backwards(plan: Plan) -> Iterator[Count]:
    """Backward segments that run more or less often for a micro-batch than the forward segment they mirror.

    Where several mirror it, as halves of a split backward do, only those that run more often.
    """
    mirrors: dict[str, list[str]] = {}
    for name, segment in plan.segments.items():
        if segment.phase is Phase.BACKWARD and segment.mirror in plan.segments:
            mirrors.setdefault(segment.mirror, []).append(name)
    for program in plan.programs:
        runs = Counter((step.segment, step.micro_batch) for step in program.steps)
        used: dict[str, set[int]] = {}
        for name, batch in runs:
            used.setdefault(name, set()).add(batch)
        for forward in used:
            names = [name for name in mirrors.get(forward, ()) if name in used]
            for backward in names:
                for batch in sorted(used[forward] | used[backward]):
                    times, expected = runs[backward, batch], runs[forward, batch]
                    if times > expected or (times < expected and len(names) == 1):
                        yield Count(backward, forward, batch, times, expected, program.ranks)


def repeated(plan: Plan) -> Iterator[Count]:
    """Forward segments that run more than once for a micro-batch, without being recomputed; once for the same ranks."""
    found: dict[tuple[str, tuple[int, ...]], Count] = {}
    for program in plan.programs:
        order: dict[int, list[str]] = {}
        batches: dict[str, set[int]] = {}
        for step in program.steps:
            order.setdefault(step.micro_batch, []).append(step.segment)
            batches.setdefault(step.segment, set()).add(step.micro_batch)
        for (name, batch), times in Counter((step.segment, step.micro_batch) for step in program.steps).items():
            segment = plan.segments.get(name)
            if times == 1 or batch < 0 or segment is None or segment.phase is not Phase.FORWARD or segment.checkpointed:
                continue
            if len(batches[name]) < plan.micro_batches or not _is_for_backward(plan, order[batch], name):
                found.setdefault((name, program.ranks), Count(name, name, batch, times, 1, program.ranks))
    yield from found.values()


def _is_for_backward(plan: Plan, run: list[str], name: str) -> bool:
    """Return whether a segment runs again for one micro-batch only for what goes back after it, and that once."""
    backwards = [at for at, each in enumerate(run) if each in plan.segments and plan.segments[each].phase is Phase.BACKWARD]
    last = len(run) - 1 - run[::-1].index(name)
    return bool(backwards) and backwards[0] > last and len({run[at] for at in backwards}) == len(backwards)


def backward_again(plan: Plan) -> Iterator[Count]:
    """Backward segments that mirror none and run more than once for a micro-batch, on the same values."""
    for program in plan.programs:
        steps = [step for step in program.steps if step.inputs is None and step.outputs is None and step.micro_batch >= 0]
        for (name, batch), times in Counter((step.segment, step.micro_batch) for step in steps).items():
            segment = plan.segments.get(name)
            if times > 1 and segment is not None and segment.phase is Phase.BACKWARD and segment.mirror not in plan.segments:
                yield Count(name, "", batch, times, 1, program.ranks)


def backward_twice(plan: Plan) -> Iterator[tuple[str, int, str]]:
    """Yield where a segment goes back through the result of an operator a second time, with the same values."""
    for name, segment in plan.segments.items():
        done, changed = dict[tuple[tuple[str, ...], ...], int](), dict[str, int]()
        for index, operator in enumerate(segment.operators) if has(segment.operators, {Backward}) else ():
            if isinstance(operator, Backward) and any(operator.inputs) and any(operator.outputs):
                before = done.setdefault((operator.forward.outputs, operator.inputs, operator.outputs), index)
                if before != index and all(changed.get(each, -1) <= before for each in needs(operator)):
                    yield name, index, operator.forward.outputs[0]
            changed.update(dict.fromkeys(writes(operator), index))


def out_of_range(plan: Plan) -> Iterator[Count]:
    """Runs for micro-batches that the plan does not have; once for each segment."""
    found: dict[str, Count] = {}
    for program in plan.programs:
        for name, batch in dict.fromkeys((step.segment, step.micro_batch) for step in program.steps):
            if batch >= plan.micro_batches:
                found.setdefault(name, Count(name, name, batch, 1, plan.micro_batches, program.ranks))
    yield from found.values()
