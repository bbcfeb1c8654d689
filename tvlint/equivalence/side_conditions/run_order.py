"""Check that runs whose order matters have the same order for every micro-batch.

A gradient needs what its forward operator kept, a draw of random numbers counts the draws before it, and a load gives one
micro-batch its slice of the batch: none of these is an input of a segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from tvlint.analyses.dataflow.def_use import has
from tvlint.analyses.relations.defect import Defect
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import Phase, Plan, Program, Segment, Step
from tvlint.ops.table import spec_of


class Turns:
    """The segments of a plan that depend on the order in which segments run; looked at where orders differ."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def defects(self, program: Program, micro_batches: int) -> Iterator[Defect]:
        """Runs that have other runs before them than the same run of the first micro-batch, where that counts."""
        if micro_batches == 1:
            return
        histories = _Histories()
        ran: dict[int, int] = {}
        first: dict[tuple[str, int], int] = {}
        turns: Counter[tuple[str, int]] = Counter()
        reported: set[str] = set()
        for step in program.steps:
            segment = self._plan.segments[step.segment]
            if segment.phase is Phase.DATA and step.micro_batch < 0:
                text = f"`{segment.name}` on {{ranks}} loads for no micro-batch of {micro_batches}: run it for each"
                yield Defect("outside-micro-batches", False, text, -1, segment.name, source=step.source)
            if segment.name not in self._judged:
                continue
            before = ran.get(step.micro_batch, 0)
            turn = turns[segment.name, step.micro_batch]
            turns[segment.name, step.micro_batch] = turn + 1
            expected = first.setdefault((segment.name, turn), before)
            if expected != before and segment.name not in reported:
                defect = self._out_of_turn(segment, step, histories.names(before), histories.names(expected))
                if defect is not None:
                    reported.add(segment.name)
                    yield defect
            ran[step.micro_batch] = histories.after(before, segment.name)

    def _out_of_turn(self, segment: Segment, step: Step, before: Sequence[str], expected: Sequence[str]) -> Defect | None:
        kept = self._kept_in(segment)
        here, there = ([name for name in sequence if name in kept] for sequence in (before, expected))
        if here != there:
            how = "before its forward run" if not here else "after other forward runs than for the first"
            text = f"`{segment.name}` on {{ranks}} runs for micro-batch {step.micro_batch} {how}"
            return Defect("gradient-before-forward", not here, text, -1, segment.name, source=step.source)
        if segment.name in self._drawing and self._drawn(before) != self._drawn(expected):
            text = f"`{segment.name}` on {{ranks}} draws for micro-batch {step.micro_batch} after others than for the first"
            return Defect("draws-out-of-turn", False, text, -1, segment.name, source=step.source)
        return None

    def _kept_in(self, segment: Segment) -> frozenset[str]:
        """Return the segments whose operators keep what gradients in the segment need."""
        needed = {operator.forward.outputs for operator in segment.operators if isinstance(operator, Backward)}
        return frozenset(name for outputs in needed for name in self._makers.get(outputs, ()))

    def _drawn(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._drawing]

    @cached_property
    def _judged(self) -> frozenset[str]:
        """The segments that have gradients, keep something for them, or draw, whatever their phases."""
        kept = (self._kept_in(segment) for segment in self._plan.segments.values())
        names = (name for name, segment in self._plan.segments.items() if has(segment.operators, {Backward}))
        return self._drawing.union(names, *kept)

    @cached_property
    def _makers(self) -> dict[tuple[str, ...], set[str]]:
        found: dict[tuple[str, ...], set[str]] = {}
        for name, segment in self._plan.segments.items():
            for operator in segment.operators:
                if isinstance(operator, Compute):
                    found.setdefault(operator.outputs, set()).add(name)
        return found

    @cached_property
    def _drawing(self) -> frozenset[str]:
        return frozenset(name for name, segment in self._plan.segments.items() if any(map(_may_draw, segment.operators)))


class _Histories:
    """Sequences of segments as numbers, equal for equal ones; 0 is the empty one."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, str], int] = {}
        self._last: list[tuple[int, str]] = [(0, "")]

    def after(self, history: int, name: str) -> int:
        """Return the history with one more segment."""
        found = self._numbers.setdefault((history, name), len(self._last))
        if found == len(self._last):
            self._last.append((history, name))
        return found

    def names(self, history: int) -> list[str]:
        """Return the segments of a history, in order."""
        found = []
        while history:
            history, name = self._last[history]
            found.append(name)
        return found[::-1]


def _may_draw(operator: Operator) -> bool:
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    return spec is not None and spec.may_draw
