"""The steps of a program in plan text: segments that it runs, and those of the operators that stand in it directly."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from tvlint.analyses.inference.segments import ImplicitSegment, implicit_segments
from tvlint.ir.operators import Backward, Operator
from tvlint.ir.plan import Phase, Segment, Step


@dataclass(slots=True)
class Steps:
    """The steps of one program, as they are read; what is made of its own operators joins `segments`.

    Operators that several micro-batches run alike are one segment, in which they stand as the first of them writes them. `last`
    are the numbers of the last segments that programs of the plan have named, by phase.
    """

    segments: dict[str, Segment]
    everywhere: frozenset[str]
    accumulated: frozenset[str]
    many: bool
    last: dict[Phase, int]
    steps: list[Step] = field(default_factory=list)
    _alike: dict[Hashable, str] = field(default_factory=dict)
    _ran: set[tuple[str, int]] = field(default_factory=set)

    def read(self, items: list[Operator | Step | int]) -> tuple[Step, ...]:
        """Steps, operators that stand between them, and the micro-batches that lines of the program name."""
        run: list[Operator] = []
        micro_batch = 0
        for item in items:
            if isinstance(item, Step | int):
                self._close(run, micro_batch)
                run = []
            if isinstance(item, int):
                micro_batch = item
            elif isinstance(item, Step):
                self.steps.append(item)
            else:
                run.append(item)
        self._close(run, micro_batch)
        return tuple(self.steps)

    def _close(self, run: list[Operator], micro_batch: int) -> None:
        parts = implicit_segments(run, self.everywhere, self.accumulated, micro_batch, many=self.many)
        for part in parts if run else ():
            key = _key(part)
            known = self._alike.get(key, "") if part.phase in (Phase.FORWARD, Phase.BACKWARD) else ""
            if known and (known, part.micro_batch) not in self._ran:
                name, source = known, part.operators[0].source
            else:
                name, source = self._named(part), None
                self._alike.setdefault(key, name)
            self._ran.add((name, part.micro_batch))
            self.steps.append(Step(name, part.micro_batch, source=source))

    def _named(self, part: ImplicitSegment) -> str:
        """Return a segment of its own for what is part of no other."""
        number = self.last.get(part.phase, 0) + 1
        while (name := f"{part.phase.value}.{number}" if number > 1 else part.phase.value) in self.segments:
            number += 1
        self.last[part.phase] = number
        self.segments[name] = Segment(name, part.phase, part.inputs, part.outputs, part.operators)
        return name


def _key(part: ImplicitSegment) -> Hashable:
    """Return what two segments have in common that do the same."""
    return part.phase, part.inputs, part.outputs, tuple(map(repr, map(_anywhere, part.operators)))


def _anywhere(operator: Operator) -> Operator:
    """Return the operator without its place in the file."""
    if isinstance(operator, Backward):
        return replace(operator, source=None, forward=replace(operator.forward, source=None))
    return replace(operator, source=None)
