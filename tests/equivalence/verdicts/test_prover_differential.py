"""Random correct parallelisations of random small models are Proved, and compute what their reference computes."""

from __future__ import annotations

import pytest
from oracle.compare import compare
from oracle.generate import random_pair

from tests.sampling import sampled
from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome


@pytest.mark.parametrize("seed", sampled(range(100, 160), 3))
def test_correct_plans_are_proved(seed: int) -> None:
    made = random_pair(seed)
    assert compare(made.reference, made.parallel).outcome == "equal", made.name
    verdict = prove(made.parallel, made.reference)
    assert verdict.outcome is Outcome.PROVED, (made.name, [(reason.name, reason.message) for reason in verdict.reasons])


@pytest.mark.heavy
def test_correct_plans_are_proved_at_length() -> None:
    for seed in range(1000, 1300):
        made = random_pair(seed)
        assert compare(made.reference, made.parallel).outcome in ("equal", "undefined"), made.name
        verdict = prove(made.parallel, made.reference)
        assert verdict.outcome is Outcome.PROVED, (made.name, [(reason.name, reason.message) for reason in verdict.reasons])


@pytest.mark.heavy
def test_another_model_is_not_proved() -> None:
    """The reference of one seed against the plan of another, where the models differ."""
    for seed in range(12):
        one, other = random_pair(seed), random_pair(seed + 1)
        if compare(one.reference, other.parallel).outcome != "equal":
            assert prove(other.parallel, one.reference).outcome is not Outcome.PROVED, (one.name, other.name)
