"""No broken plan is proved: every mutant that computes something else when it is run must not be Proved."""

from __future__ import annotations

import pytest
from oracle.generate import Pair, Way, pair, random_pair
from oracle.judge import equal_and_refuted, proved_and_not_equal
from oracle.mutant import Mutant
from oracle.mutate import mutants

from tests.sampling import sampled

PAIRS = (
    (pair("mlp", Way(dp=2, tp=2, nm=2), seed=1), 23),
    (pair("mlp", Way(pp=2, tp=2, nm=2, pieces=True), seed=2), 29),
    (pair("mlp", Way(tp=2, rows=4), seed=4), 11),
    (pair("llama", Way(pp=2, tp=2, nm=2), seed=1), 131),
    (pair("moe", Way(dp=2, tp=2), seed=1), 13),
)
"""Pairs, and which of their mutants are taken: every N-th, of which the daily suite runs every third."""

MOST = 40
"""How many mutants of one pair are taken, and a few."""
ALLOWED = 0.05
"""The share of the equal mutants that may be Refuted."""


def _taken(made: Pair, every: int) -> list[Mutant]:
    found = list(mutants(made.parallel))
    return found[:: max(every, len(found) // MOST)]


@pytest.mark.parametrize("start", sampled(range(3), 3))
@pytest.mark.parametrize(("made", "every"), PAIRS, ids=[made.name for made, _ in PAIRS])
def test_no_wrong_mutant_is_proved(made: Pair, every: int, start: int) -> None:
    assert not list(proved_and_not_equal(made.reference, _taken(made, every)[start::3]))


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(16))
def test_no_wrong_mutant_of_many_pairs_is_proved(seed: int) -> None:
    made = random_pair(seed)
    assert not list(proved_and_not_equal(made.reference, _taken(made, 149)))


@pytest.mark.heavy
def test_few_equal_mutants_of_many_pairs_are_refuted() -> None:
    equal, refuted = 0, []
    for seed in range(16):
        made = random_pair(seed)
        count, found = equal_and_refuted(made.reference, _taken(made, 149)[::2])
        equal += count
        refuted += [f"{made.name}: {own.kind}: {own.description}" for own in found]
    assert len(refuted) <= ALLOWED * equal, "\n".join(refuted)
