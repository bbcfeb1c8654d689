"""Hazards on one rank: handles, buffers in flight, values read before they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.def_use import handle_of, of_kinds, overwritten, uses, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.dataflow.run_scope import Outside
from tvlint.ir.operators import Collective, Communicate, Group, Receive, ReduceGradients, Send, Update, Wait
from tvlint.ir.plan import Plan, Program, Role, Segment, Step

_ASYNCHRONOUS = frozenset({Communicate, Send, Receive, ReduceGradients, Wait})


@dataclass(frozen=True, slots=True)
class Hazard:
    """One thing in the wrong order, at (`segment`, `index`); `name` is the tensor or handle, `other` the earlier operator.

    That has the `handle`.
    """

    kind: str
    segment: str
    index: int
    name: str
    ranks: tuple[int, ...]
    other: tuple[str, int] | None = None
    handle: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class _Issue:
    """An operator that is under way until its handle is waited for."""

    segment: str
    index: int
    step: int
    micro_batch: int
    handle: str
    names: dict[object, str]
    reading: frozenset[object]
    writing: frozenset[object]


@once_per_plan
def hazards(facts: Facts) -> tuple[Hazard, ...]:
    """Return the hazards of all programs; the same place is named once, with the ranks of every program that has it."""
    plan = facts.plan
    merged: dict[Hazard, set[int]] = {}
    asynchronous = frozenset(
        name
        for name, segment in plan.segments.items()
        if any(isinstance(operator, Wait) or handle_of(operator) for _, operator in of_kinds(segment.operators, _ASYNCHRONOUS))
    )
    for program in plan.programs if asynchronous else ():
        walk = _Walk(plan, program, asynchronous)
        for hazard in walk.run():
            merged.setdefault(replace(hazard, ranks=()), set()).update(program.ranks)
    return tuple(replace(hazard, ranks=tuple(sorted(ranks))) for hazard, ranks in merged.items())


class _Walk:
    """One pass over a program, with what is under way."""

    def __init__(self, plan: Plan, program: Program, asynchronous: frozenset[str]) -> None:
        self.plan = plan
        self.program = program
        self.asynchronous = asynchronous
        self.batches = sorted({step.micro_batch for step in program.steps})[:64] if plan.micro_batches > 1 else [0]
        self.open: dict[str, list[_Issue]] = {}
        self.closed: dict[str, list[_Issue]] = {}
        self.writing: dict[object, _Issue] = {}
        self.reading: dict[object, dict[_Issue, None]] = {}
        self.first: dict[str, dict[tuple[str, int, int], dict[tuple[Collective, Group], _Issue]]] = {}
        """By handle and run of a segment, the first collective of each kind and group that is under way."""

    def run(self) -> Iterator[Hazard]:
        for number, step in enumerate(self.program.steps):
            segment = self.plan.segments.get(step.segment)
            if segment is not None and (segment.name in self.asynchronous or self.open):
                yield from self._segment(number, step, segment)
        for issues in self.open.values():
            for issue in issues:
                yield self._hazard("never-waited", issue.segment, issue.index, issue.handle)

    def _segment(self, number: int, step: Step, segment: Segment) -> Iterator[Hazard]:
        inner = Outside(segment, step)
        renamed = step.inputs is not None or step.outputs is not None
        together, last = 0, ""
        for index, operator in enumerate(segment.operators):
            if not isinstance(operator, Communicate) or operator.handle != last:
                together, last = index, operator.handle if isinstance(operator, Communicate) else ""
            if isinstance(operator, Wait):
                yield from self._wait(operator.handle, step, segment.name, index)
                continue
            read = {self._key(name, inner, renamed, step, number): name for name in uses(operator)}
            inner.makes(writes(operator))
            written = {self._key(name, inner, renamed, step, number): name for name in writes(operator)}
            written |= {self._key(name, inner, renamed, step, number): name for name in overwritten(operator)}
            if isinstance(operator, ReduceGradients):
                written |= {("gradient", weight): weight for weight in operator.weights}
                written |= self._gradients(operator, inner, renamed, step, number)
            if isinstance(operator, Update):
                read |= {("gradient", weight): weight for weight in operator.weights}
                read |= self._gradients(operator, inner, renamed, step, number)
                written |= {weight: weight for weight in operator.weights}
            yield from self._collisions(read, written, segment.name, index)
            handle = handle_of(operator)
            if handle:
                issue = _Issue(
                    segment.name, index, number, step.micro_batch, handle, read | written, frozenset(read), frozenset(written)
                )
                before = self._reissued(issue, operator, together) if isinstance(operator, Communicate) else None
                if before is not None:
                    yield self._hazard("reissued", segment.name, index, handle, before)
                self.open.setdefault(handle, []).append(issue)
                for key in written:
                    self.writing[key] = issue
                for key in read:
                    self.reading.setdefault(key, {})[issue] = None

    def _gradients(
        self, operator: ReduceGradients | Update, inner: Outside, renamed: bool, step: Step, number: int
    ) -> dict[object, str]:
        """Return the gradients of the operator's weights, which all micro-batches add up to, by their keys."""
        tensors = (self.plan.tensors.get(weight) for weight in operator.weights)
        names = [tensor.gradient for tensor in tensors if tensor is not None and tensor.gradient]
        name_of_gradient = {self._key(name, inner, renamed, step, number): name for name in names}
        return name_of_gradient | {(name, micro_batch): name for name in names for micro_batch in self.batches}

    def _reissued(self, issue: _Issue, operator: Communicate, together: int) -> _Issue | None:
        """Return the collective that is still under way on the handle of another one.

        Those of one kind and group that are issued together, without anything in between, share a handle: from the operator
        `together` on.
        """
        run = (issue.segment, issue.step, issue.micro_batch)
        under_way = self.first.setdefault(issue.handle, {}).setdefault(run, {})
        kind_and_group = (operator.kind, operator.group)
        before = next((each for kind, each in under_way.items() if each.index < together or kind != kind_and_group), None)
        under_way.setdefault(kind_and_group, issue)
        return before

    def _collisions(self, read: dict[object, str], written: dict[object, str], segment: str, index: int) -> Iterator[Hazard]:
        """Yield what the operator does to what is under way; of all that overwrite what one operator reads, the first one."""
        if not self.open:
            return
        for key, name in read.items():
            issue = self.writing.get(key)
            if issue is None:
                continue
            same = issue.names.get(key) == name
            yield self._hazard("read-in-flight" if same else "alias-read-in-flight", segment, index, name, issue)
        for key, name in written.items():
            issue = self.writing.get(key)
            if issue is not None and key not in read:
                yield self._hazard("write-over-write", segment, index, name, issue)
            for issue in [issue for issue in self.reading.get(key, ()) if key not in issue.writing]:
                yield self._hazard("write-over-read", segment, index, name, issue)
                del self.reading[key][issue]

    def _wait(self, handle: str, step: Step, segment: str, index: int) -> Iterator[Hazard]:
        issues = self.open.get(handle)
        if not issues:
            known = handle in self.closed
            other = (self.closed[handle][-1].segment, self.closed[handle][-1].index) if known else None
            yield Hazard("waited-twice" if known else "unknown-handle", segment, index, handle, self.program.ranks, other)
            return
        chosen = [issue for issue in issues if issue.micro_batch == step.micro_batch]
        if not chosen:
            chosen = [issue for issue in issues if issue.step == issues[0].step]
        for issue in chosen:
            issues.remove(issue)
            self.first.get(handle, {}).pop((issue.segment, issue.step, issue.micro_batch), None)
            for key in issue.writing:
                if self.writing.get(key) is issue:
                    del self.writing[key]
            for key in issue.reading:
                self.reading.get(key, {}).pop(issue, None)
        if not issues:
            del self.open[handle]
        self.closed[handle] = chosen

    def _key(self, name: str, inner: Outside, renamed: bool, step: Step, number: int) -> object:
        tensor = self.plan.tensors.get(name)
        if tensor is not None and tensor.storage:
            return ("storage", tensor.storage)
        if tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE):
            return name
        micro_batch = step.micro_batch if self.plan.micro_batches > 1 else 0
        outer = inner.of(name)
        if outer:
            return (outer, micro_batch)
        return (name, micro_batch, number) if renamed else (name, micro_batch)

    def _hazard(self, kind: str, segment: str, index: int, name: str, issue: _Issue | None = None) -> Hazard:
        other = None if issue is None else (issue.segment, issue.index)
        return Hazard(kind, segment, index, name, self.program.ranks, other, "" if issue is None else issue.handle)
