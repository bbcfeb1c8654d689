"""Facts about one plan, each computed once, when the first check asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, TypeVar

from tvlint.analyses.dataflow.representative_ranks import Fold
from tvlint.ir.location import Location
from tvlint.ir.operators import Operator
from tvlint.ir.plan import Plan
from tvlint.ir.ranks import describe

Derived = TypeVar("Derived")


class Facts:
    """A plan and what analyses derived of it so far; ranks that behave alike are represented by one.

    It knows no analysis: a function of facts that is marked `once_per_plan` keeps its result here.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._derived: dict[Callable[[Facts], Any], Any] = {}
        self._described: dict[tuple[int, ...], str] = {}

    def derived(self, analysis: Callable[[Facts], Derived]) -> Derived:
        """Return what `analysis` derives of these facts, which it is asked for once."""
        if analysis not in self._derived:
            self._derived[analysis] = analysis(self)
        found: Derived = self._derived[analysis]
        return found

    @cached_property
    def fold(self) -> Fold:
        """Return which ranks stand for all."""
        return Fold(self.plan)

    def place(self, segment: str, index: int, operator: Operator | None = None) -> Location:
        """Return where an operator stands: the file's own line when it has one, else a pointer into the plan."""
        if operator is None:
            operator = self.plan.segments[segment].operators[index]
        return operator.source or Location(self.plan.path, pointer=f"segment {segment}/operator {index}")

    def start(self, segment: str) -> Location:
        """Return where a segment begins: the place of its first operator."""
        operators = self.plan.segments[segment].operators
        return self.place(segment, 0, operators[0]) if operators else Location(self.plan.path, pointer=f"segment {segment}")

    def who(self, ranks: tuple[int, ...]) -> str:
        """Return the ranks that the visited `ranks` stand for, in words."""
        if ranks not in self._described:
            self._described[ranks] = describe(self.fold.everywhere(ranks), self.plan.mesh)
        return self._described[ranks]

    def ranks_running(self, segment: str) -> tuple[int, ...]:
        """Return the visited ranks that run `segment`, ascending."""
        return self._running.get(segment, ())

    @cached_property
    def _running(self) -> dict[str, tuple[int, ...]]:
        runs = [{step.segment for step in program.steps} for program in self.plan.programs]
        found: dict[str, list[int]] = {}
        for rank in self.fold.present:
            index = self.fold.program_of(rank)
            for name in runs[index] if index is not None else ():
                found.setdefault(name, []).append(rank)
        return {name: tuple(ranks) for name, ranks in found.items()}


def once_per_plan(analysis: Callable[[Facts], Derived]) -> Callable[[Facts], Derived]:
    """Let `analysis` run once for each `Facts`, whoever asks."""

    @wraps(analysis)
    def kept(facts: Facts) -> Derived:
        return facts.derived(analysis)

    return kept
