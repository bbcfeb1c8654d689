"""Says of one mutant whether a verdict about it is right."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.compare import compare
from oracle.generate import Pair
from oracle.mutant import Mutant


@dataclass(frozen=True, slots=True)
class Truth:
    """`label`: `wrong` (another result, or an error), `equal`, or `undecided` where running does not settle it.

    Undecided are mutants that compute the right numbers against a statement of their own (a declared shape, a value made
    twice), and those that hang only when sends have no buffer.
    """

    label: str
    reason: str


def truth(pair: Pair, mutant: Mutant) -> Truth:
    """What running the mutant shows."""
    found = compare(pair.reference, mutant.plan)
    if found.outcome == "deadlocks" and compare(pair.reference, mutant.plan, buffered=True).outcome == "equal":
        return Truth("undecided", "safe only with buffered sends")
    if found.outcome != "equal":
        return Truth("wrong", f"{found.outcome}: {found.difference}")
    if found.claims or mutant.kind == "claim":
        return Truth("undecided", "; ".join(found.claims))
    return Truth("equal", "")
