"""What runs of a pair on random numbers show."""

from __future__ import annotations

from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference, NotRun
from tvlint.equivalence.verdict.numbers.run_both import run_both
from tvlint.equivalence.verdict.pairing import Case, pair
from tvlint.ir.plan import Plan


def on_numbers_of(parallel: Plan, reference: Plan, any_numbers: bool = False) -> Agreement | Difference | NotRun:
    """Return what runs of both plans show."""
    case = pair(parallel, reference)
    assert isinstance(case, Case), case
    return run_both(case, any_numbers)
