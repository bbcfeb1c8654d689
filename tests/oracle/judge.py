"""Says of one mutant whether a verdict about it is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oracle.compare import Comparison, compare
from oracle.mutant import Mutant
from tvlint.equivalence.verdict.prove import is_proved, prove
from tvlint.findings import Outcome
from tvlint.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class Truth:
    """`label`: `wrong` (another result, or an error), `equal`, or `undecided` where running does not settle it.

    Undecided are mutants that compute the right numbers against a statement of their own (a declared shape, a value made
    twice), and those that hang only when sends have no buffer.
    """

    label: str
    reason: str


def truth(reference: Plan, mutant: Mutant) -> Truth:
    """What running the mutant shows."""
    found = compare(reference, mutant.plan)
    if found.outcome == "deadlocks" and compare(reference, mutant.plan, buffered=True).outcome == "equal":
        return Truth("undecided", "safe only with buffered sends")
    if found.outcome != "equal":
        return Truth("wrong", f"{found.outcome}: {found.difference}")
    if found.claims or mutant.kind == "claim":
        return Truth("undecided", "; ".join(found.claims))
    return Truth("equal", "")


def proved_and_not_equal(reference: Plan, mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, Comparison]]:
    """The mutants that are proved and compute something else, also where messages have buffers.

    A proof that assumes that the ranks' losses are averaged where they are read is held to their mean.
    """
    for mutant in mutants:
        if not is_proved(mutant.plan, reference):
            continue
        found = compare(reference, mutant.plan)
        if found.outcome == "deadlocks":
            found = compare(reference, mutant.plan, buffered=True)
        if found.outcome == "fails" and any("is averaged over" in text for text in prove(mutant.plan, reference).assumptions):
            found = compare(reference, mutant.plan, own_losses=True)
        if found.outcome != "equal":
            yield mutant, found


def equal_and_refuted(reference: Plan, mutants: Iterable[Mutant]) -> tuple[int, list[Mutant]]:
    """How many of the mutants compute what the reference does, and which of those are refuted."""
    equal = [own for own in mutants if truth(reference, own).label == "equal"]
    return len(equal), [own for own in equal if prove(own.plan, reference).outcome is Outcome.REFUTED]
