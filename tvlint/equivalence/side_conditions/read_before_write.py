"""Gradients that a rank reads before it makes them: they are neither zero nor where gradients start."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.gradients.accumulators import accumulators
from tvlint.analyses.relations.defect import Defect, at
from tvlint.ir.operators import Backward, Communicate, Operator, Send
from tvlint.ir.plan import Plan, Program, Role, Segment


class Early:
    """The gradients that segments read and make; found once for each."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[str, tuple[dict[str, Operator], frozenset[str], frozenset[str]]] = {}

    @cached_property
    def _gradients(self) -> set[str]:
        found = {name for name, tensor in self._plan.tensors.items() if tensor.role is Role.GRADIENT}
        for segment in self._plan.segments.values():
            found.update(name for operator in segment.operators if isinstance(operator, Backward) for name in operator.outputs)
        return found - {""}

    @cached_property
    def _of_weights(self) -> set[str]:
        """The gradients of weights, which add up on a rank from segment to segment."""
        return set(accumulators(self._plan))

    def _reads_and_writes(self, segment: Segment) -> tuple[dict[str, Operator], frozenset[str], frozenset[str]]:
        """Return what the segment reads before it makes it, which of that it makes later, and all that it makes."""
        if segment.name not in self._known:
            first: dict[str, Operator] = {}
            made: set[str] = set()
            late: set[str] = set()
            for operator in segment.operators:
                takes = isinstance(operator, Backward | Communicate | Send)
                for name in self._gradients.intersection(reads(operator)) if takes else ():
                    if name not in made:
                        first.setdefault(name, operator)
                given = self._gradients.intersection(writes(operator))
                late.update(name for name in given if name in first and first[name] is not operator)
                made |= given
            self._known[segment.name] = first, frozenset(late), frozenset(made)
        return self._known[segment.name]

    def defects(self, program: Program) -> Iterator[Defect]:
        """Reads of gradients that nothing has made yet, and that the rank makes later for the same micro-batch."""
        lacking: dict[str, tuple[str, Operator]] = {}
        held: set[str] = set()
        named: set[str] = set()
        reported: set[str] = set()
        for step in program.steps:
            if step.micro_batch > 0:
                continue
            segment = self._plan.segments[step.segment]
            first, late, made = self._reads_and_writes(segment)
            if not first and not made:
                continue
            inputs, outputs = step.outside(segment)
            inward = dict(zip(segment.inputs, inputs, strict=False))
            outward = dict(zip(segment.outputs, outputs, strict=False))
            for name, operator in first.items():
                outside = name if name in self._of_weights else inward.get(name, "")
                if outside in held:
                    continue
                if name in late and name not in reported:
                    reported.add(name)
                    is_first = name not in named and name not in self._of_weights
                    yield self._trouble(segment.name, operator, name, refutes=is_first)
                if outside:
                    lacking.setdefault(outside, (segment.name, operator))
            for name in made:
                outside = name if name in self._of_weights else outward.get(name, "")
                if outside in lacking and lacking[outside][0] != segment.name and outside not in reported:
                    reported.add(outside)
                    yield self._trouble(*lacking[outside], outside, refutes=False)
                held.add(outside)
            held.discard("")
            named |= made

    def _trouble(self, segment: str, operator: Operator, name: str, refutes: bool) -> Defect:
        """Return the defect; a segment that is the first to make a gradient, after it reads it, fails or reads a stale one."""
        text = f"`{name}` on {{ranks}} is read before it is made"
        return at(operator, segment, Defect("use-before-definition", refutes, text, -1))
