"""An idiom in a plan, beside a reference that says it in another way, and edits after which the plan is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oracle.judge import is_proved
from oracle.mutate import mutants

from tests.builders.numbers import on_numbers_of
from tests.builders.plan_tapes import with_backward
from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tvlint.equivalence.verdict.numbers.outcome import Agreement, Difference, NotRun
from tvlint.findings import Outcome, Verdict
from tvlint.ir.plan import Plan

MOST = 40
"""About so many mutants of one idiom are taken at most."""


@dataclass(frozen=True)
class Idiom:
    """A reference, a plan that trains the same, and edits of it after which it does not."""

    reference: str
    plan: str
    wrong: tuple[tuple[str, str], ...]

    def texts(self, before: str = "", after: str = "") -> tuple[str, str]:
        """Return the plan, edited where `before` is given, and the reference, both with their backward pass."""
        assert before in self.plan
        return with_backward(self.plan.replace(before, after) if before else self.plan), with_backward(self.reference)

    def plans(self, before: str = "", after: str = "") -> tuple[Plan, Plan]:
        """Return the plans that `texts` says."""
        return plans(*self.texts(before, after))

    def verdict(self, before: str = "", after: str = "") -> Verdict:
        """Return the verdict on `texts`."""
        return verdict_on(*self.texts(before, after))


def twins(idioms: Mapping[str, Idiom]) -> list[tuple[str, str, str]]:
    """Return every edit of every idiom, with the name of the idiom."""
    return [(name, before, after) for name, idiom in idioms.items() for before, after in idiom.wrong]


def numbers_of_proved(idiom: Idiom) -> Agreement | NotRun:
    """Return what the numbers of the plan show, which must be proved and must not give others than the reference."""
    verdict = idiom.verdict()
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    shown = on_numbers_of(*idiom.plans())
    assert not isinstance(shown, Difference)
    return shown


def assert_wrong_mutants_are_not_proved(idiom: Idiom) -> None:
    """Hold no mutant of the plan to be proved that gives other numbers than the reference."""
    parallel, reference = idiom.plans()
    found = list(mutants(parallel))
    proved = [each.plan for each in found[:: max(3, len(found) // MOST)] if is_proved(each.plan, reference)]
    shown = [on_numbers_of(each, reference, any_numbers=True) for each in (parallel, *proved)]
    assert isinstance(shown[0], Agreement)
    assert not [each for each in shown if isinstance(each, Difference)]
