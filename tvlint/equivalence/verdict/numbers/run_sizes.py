"""The sizes at which a pair is run: its own where they are small enough, smaller ones, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.equivalence.sizes.factors import SMALL
from tvlint.equivalence.sizes.shrink import shrink
from tvlint.equivalence.verdict.numbers.origin import is_generated
from tvlint.equivalence.verdict.numbers.outcome import NotRun
from tvlint.equivalence.verdict.pairing import Case, pair
from tvlint.ir.operators import Operator
from tvlint.ir.plan import Plan

_MOST_NUMBERS = 1 << 23
"""Plans of which the ranks hold more numbers are not run."""

_TIMES_AS_MANY = 6
"""Plans of so many times as many numbers are run where their sizes cannot be made smaller."""

_MOST_NUMBERS_OF_EDITS = 1 << 20
"""Plans of which the ranks hold more numbers are not run again for each edit."""

_MOST_OPERATORS = 20_000
"""Nor are plans of which the ranks run more operators."""

_MOST_OPERATORS_OF_EDITS = 2_000
"""Of plans of which the ranks run more operators, fewer replicas are run for each edit, where these are equal."""


@dataclass(frozen=True, slots=True)
class Small:
    """A case that is small enough to be run, and the sizes that were made smaller for it."""

    case: Case
    sizes: Mapping[int, int] = field(default_factory=dict)


def to_run(case: Case, most: int | None = None, operators: int | None = None) -> Small | NotRun:
    """Return the case, where it is too large with sizes as small as the plans allow."""
    largest = _TIMES_AS_MANY * _MOST_NUMBERS if most is None else most
    most = _MOST_NUMBERS if most is None else most
    operators = _MOST_OPERATORS if operators is None else operators
    if not _is_too_large(case, most) and _operators_run(case.parallel) <= operators:
        return Small(case)
    if _fewest_operators_run(case.parallel) > _MOST_OPERATORS:
        return NotRun("the plans are too large")
    generated = is_generated(case.parallel, case.reference)
    found = shrink(case.parallel, case.reference, case.inputs, case.reference_inputs, case.batch, SMALL, generated)
    if isinstance(found, str):
        is_small = not _is_too_large(case, largest) and _operators_run(case.parallel) <= operators
        return Small(case) if is_small else NotRun(f"the plans are too large, and {found}")
    small = pair(found.parallel, found.reference, case.assume)
    if not isinstance(small, Case) or _is_too_large(small, most) or _operators_run(small.parallel) > _MOST_OPERATORS:
        return NotRun("the plans are too large")
    return Small(small, found.sizes)


def to_run_again(case: Case) -> Small | NotRun:
    """Return the case as small as it is to be where it is run again for each edit."""
    return to_run(case, _MOST_NUMBERS_OF_EDITS, _MOST_OPERATORS_OF_EDITS)


def in_plan(plan: Plan, small: Plan, operator: Operator) -> Operator:
    """Return the operator of a plan that stands where one of the plan with smaller sizes does."""
    for name, segment in small.segments.items():
        for before, after in zip(plan.segments[name].operators, segment.operators, strict=True):
            if after is operator:
                return before
    return operator


def _is_too_large(case: Case, most: int) -> bool:
    return size_of(case.parallel) > most or size_of(case.reference) > most


def size_of(plan: Plan) -> int:
    """Return how many numbers the ranks hold, those of a tensor once on each rank that names it."""
    found = 0
    for program in plan.programs:
        operators = [operator for _, _, operator in plan.run_by(program)]
        named = {name for operator in operators for name in (*reads(operator), *writes(operator)) if name in plan.tensors}
        found += len(program.ranks) * sum(prod(plan.tensors[name].shape) for name in named)
    return found * plan.replication.count


def _fewest_operators_run(plan: Plan) -> int:
    """Return how many operators the ranks run at least in smaller sizes, which leave one replica of an axis of ranks."""
    replicas = 1 if plan.replication.count > 1 else max((axis.size for axis in plan.mesh.axes), default=1)
    return _operators_run(plan) // replicas


def _operators_run(plan: Plan) -> int:
    """Return how many operators the ranks run."""
    of_segments = {name: len(segment.operators) for name, segment in plan.segments.items()}
    runs = sum(len(program.ranks) * sum(of_segments[step.segment] for step in program.steps) for program in plan.programs)
    return runs * plan.replication.count
