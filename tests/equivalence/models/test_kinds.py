"""Kinds of parallel plans that users write are proved and compute the same; with a mistake they are not proved."""

from __future__ import annotations

import pytest
from oracle.compare import compare
from oracle.judge import proved_and_not_equal
from oracle.mutate import mutants

from tests.equivalence.models.test_attention import plans
from tests.equivalence.verdicts.test_text_plans import verdict_on
from tests.kinds import exchanged, layers, masks, micro_batches, pipelines, sharded_data, tables
from tests.kinds.kind import Kind
from tests.sampling import sampled, sampled_tuples
from tvlint.findings import Outcome

pytestmark = pytest.mark.usefixtures("without_repairs")

KINDS = [kind for room in (sharded_data, layers, exchanged, masks, tables, pipelines, micro_batches) for kind in room.KINDS]


@pytest.mark.parametrize("kind", sampled(KINDS, 3), ids=lambda kind: kind.name)
def test_a_plan_that_is_right_is_proved_and_computes_the_same(kind: Kind) -> None:
    verdict = verdict_on(kind.plan, kind.reference)
    assert verdict.outcome is Outcome.PROVED, [reason.message for reason in verdict.reasons]
    assert compare(*plans(kind.reference, kind.plan)).outcome == "equal"


MISTAKES = [(kind, mistake) for kind in KINDS for mistake in kind.mistakes]


@pytest.mark.parametrize(
    ("kind", "mistake"), sampled_tuples(MISTAKES, 3), ids=[f"{kind.name}: {new or old}" for kind, (old, new) in MISTAKES]
)
def test_a_plan_with_a_mistake_is_not_proved(kind: Kind, mistake: tuple[str, str]) -> None:
    text = kind.broken(mistake)
    verdict = verdict_on(text, kind.reference)
    assert verdict.outcome is not Outcome.PROVED
    assert verdict.reasons
    assert compare(*plans(kind.reference, text)).outcome != "equal"


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_mutant_that_computes_something_else_is_proved(kind: Kind) -> None:
    reference, parallel = plans(kind.reference, kind.plan)
    every = list(mutants(parallel))
    assert not list(proved_and_not_equal(reference, every[3 :: max(7, len(every) // 12)]))
