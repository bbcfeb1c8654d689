"""Facts about one plan, each computed once, when the first check asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from tvlint.analyses.communication.calls import Call, Site, Traffic, traffic
from tvlint.analyses.communication.deadlock import Standstill, standstill
from tvlint.analyses.communication.hazards import Hazard, hazards
from tvlint.analyses.dataflow.representative_ranks import Fold
from tvlint.ir.location import Location
from tvlint.ir.operators import Operator
from tvlint.ir.plan import Plan
from tvlint.ir.ranks import describe

Derived = TypeVar("Derived")


class Facts:
    """Facts that checks share about a plan, each computed once; ranks that behave alike are walked once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._derived: dict[str, Any] = {}
        self._described: dict[tuple[int, ...], str] = {}

    def derived(self, name: str, compute: Callable[[], Derived]) -> Derived:
        """Return the value of `compute`, kept under `name` for whoever asks next."""
        if name not in self._derived:
            self._derived[name] = compute()
        found: Derived = self._derived[name]
        return found

    @cached_property
    def fold(self) -> Fold:
        """Return which ranks stand for all."""
        return Fold(self.plan)

    @cached_property
    def traffic(self) -> Traffic:
        """Return all communications, paired."""
        return traffic(self.plan, self.fold)

    @cached_property
    def rendezvous(self) -> Standstill:
        """Return where ranks stand forever when a send waits for its receive."""
        return standstill(self.traffic, buffered=False)

    @cached_property
    def buffered(self) -> Standstill:
        """Return where ranks stand forever even when sends complete at once."""
        return standstill(self.traffic, buffered=True) if self.rendezvous.blocked else self.rendezvous

    @cached_property
    def hazards(self) -> tuple[Hazard, ...]:
        """Return what single ranks do in the wrong order."""
        return tuple(hazards(self.plan))

    def place(self, segment: str, index: int, operator: Operator | None = None) -> Location:
        """Return where an operator stands: the file's own line when it has one, else a pointer into the plan."""
        if operator is None:
            operator = self.plan.segments[segment].operators[index]
        return operator.source or Location(self.plan.path, pointer=f"segment {segment}/operator {index}")

    def start(self, segment: str) -> Location:
        """Return where a segment begins: the place of its first operator."""
        operators = self.plan.segments[segment].operators
        return self.place(segment, 0, operators[0]) if operators else Location(self.plan.path, pointer=f"segment {segment}")

    def site(self, site: Site) -> Location:
        """Return where the operator of `site` stands."""
        return self.place(site.segment, site.index, site.operator)

    def call(self, call: Call) -> Location:
        """Return where the operator of `call` stands."""
        return self.site(call.site)

    def who(self, ranks: tuple[int, ...]) -> str:
        """Return the ranks that the walked `ranks` stand for, in words."""
        if ranks not in self._described:
            self._described[ranks] = describe(self.fold.everywhere(ranks), self.plan.mesh)
        return self._described[ranks]

    def ranks_running(self, segment: str) -> tuple[int, ...]:
        """Return the walked ranks that run `segment`, ascending."""
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
