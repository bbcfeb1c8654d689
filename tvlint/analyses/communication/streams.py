"""Values that one stream reads without having waited for the stream that produces them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import handle_of, overwritten, reads, stream_of, streams_named, uses, writes
from tvlint.analyses.dataflow.run_scope import Outside
from tvlint.ir.operators import Await, Record, Update, Wait
from tvlint.ir.plan import Plan, Program, Role


@dataclass(frozen=True, slots=True)
class Crossing:
    """`name` at (`segment`, `index`) is used on `stream`, while `other` on stream `origin` may not have run."""

    segment: str
    index: int
    name: str
    stream: str
    origin: str
    other: tuple[str, int]
    overwrites: bool
    ranks: tuple[int, ...]


def crossings(plan: Plan, strict: bool = False) -> Iterator[Crossing]:
    """Yield the accesses of every program that no event orders after the access of another stream they depend on.

    What is issued asynchronously on a stream is taken to start after the work of all streams so far, as a communicator's own
    stream does, and a wait to hold up all streams. With `strict`, only the stream that it is issued on counts for both.
    """
    if not any(streams_named(segment.operators) - {"main"} for segment in plan.segments.values()):
        return
    yield from dict.fromkeys(found for program in plan.programs for found in _crossings(plan, program, strict))


def _crossings(plan: Plan, program: Program, strict: bool) -> Iterator[Crossing]:
    clocks: dict[str, dict[str, int]] = {}
    now: dict[str, int] = {}
    events: dict[str, dict[str, int]] = {}
    handles: dict[str, dict[str, int]] = {}
    writers: dict[object, tuple[str, int, str, int]] = {}
    pending: dict[object, str] = {}
    readers: dict[object, dict[str, tuple[int, str, int]]] = {}
    for step in program.steps:
        segment = plan.segments.get(step.segment)
        if segment is None:
            continue
        outside = Outside(segment, step)
        micro_batch = step.micro_batch if plan.micro_batches > 1 else 0
        for index, operator in enumerate(segment.operators):
            stream = stream_of(operator)
            clock = clocks.setdefault(stream, {})
            if isinstance(operator, Await):
                _join(clock, events.get(operator.event, {}))
                continue
            if isinstance(operator, Record):
                events[operator.event] = {**clock, stream: now.get(stream, 0)}
                continue
            if isinstance(operator, Wait):
                for each_name in {stream} if strict else {*clocks, stream}:
                    _join(clocks.setdefault(each_name, {}), handles.get(operator.handle, {}))
                pending = {key: handle for key, handle in pending.items() if handle != operator.handle}
                continue
            now[stream] = now.get(stream, 0) + 1
            handle = handle_of(operator)
            if handle:
                for other, at in () if strict else now.items():
                    clock[other] = max(clock.get(other, 0), at)
                handles[handle] = dict(clock) | {stream: now[stream]}
            stepped = operator.weights if isinstance(operator, Update) else ()
            for name in (*uses(operator), *_gradients(plan, stepped)):
                key = _key(plan, name, outside, micro_batch)
                written = writers.get(key)
                known = written is None or key in pending or written[0] == stream or clock.get(written[0], 0) >= written[1]
                if written is not None and not known:
                    yield Crossing(step.segment, index, name, stream, written[0], written[2:], False, program.ranks)
                readers.setdefault(key, {})[stream] = (now[stream], step.segment, index)
            changed = overwritten(operator)
            outside.makes(writes(operator))
            for name in {*writes(operator), *changed, *stepped}:
                key = _key(plan, name, outside, micro_batch)
                for other, (at, where, position) in readers.get(key, {}).items():
                    if other != stream and clock.get(other, 0) < at and (name in changed or name not in reads(operator)):
                        yield Crossing(step.segment, index, name, stream, other, (where, position), True, program.ranks)
                writers[key] = (stream, now[stream], step.segment, index)
                pending.pop(key, None)
                if handle:
                    pending[key] = handle
                readers.pop(key, None)


def _gradients(plan: Plan, weights: Iterable[str]) -> list[str]:
    """Return what an optimizer step reads besides the weights themselves."""
    return [tensor.gradient for weight in weights if (tensor := plan.tensors.get(weight)) is not None and tensor.gradient]


def _join(clock: dict[str, int], other: dict[str, int]) -> None:
    for stream, at in other.items():
        clock[stream] = max(clock.get(stream, 0), at)


def _key(plan: Plan, name: str, outside: Outside, micro_batch: int) -> object:
    tensor = plan.tensors.get(name)
    if tensor is not None and tensor.storage:
        return ("storage", tensor.storage)
    if tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE):
        return name
    return (outside.of(name) or name, micro_batch)
