"""How much of a plan a derivation has understood."""

from __future__ import annotations

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.ir.coverage import Coverage
from tvlint.ir.plan import Plan


def coverage_of(plan: Plan, derived: Derived) -> Coverage:
    """Return of how many of the operators that the ranks run all results are known."""
    segments = {step.segment for step in plan.steps()}
    every = [operator for name in segments for operator in plan.segments[name].operators if writes(operator)]
    return Coverage(sum(id(operator) not in derived.unknown for operator in every), len(every))
