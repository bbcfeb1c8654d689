"""No broken plan is proved: every mutant that computes something else when it is run must not be Proved."""

from __future__ import annotations

import pytest
from oracle.generate import Pair, Way, pair, random_pair
from oracle.judge import truth
from oracle.mutate import mutants

from tvlint.equivalence.verdict.prove import prove
from tvlint.findings import Outcome

PAIRS = (
    (pair("mlp", Way(dp=2, tp=2, nm=2), seed=1), 23),
    (pair("mlp", Way(pp=2, tp=2, nm=2, pieces=True), seed=2), 29),
    (pair("mlp", Way(tp=2, rows=4), seed=4), 11),
    (pair("llama", Way(pp=2, tp=2, nm=2), seed=1), 131),
    (pair("moe", Way(dp=2, tp=2), seed=1), 13),
)
"""Pairs, and which of their mutants the quick run takes: every N-th."""

ALLOWED = 0.05
"""The share of the equal mutants that may be Refuted."""


def _judge(made: Pair, every: int) -> tuple[list[str], list[str], int]:
    """Wrong mutants that are Proved, equal ones that are Refuted, and how many are equal."""
    unsound, refuted, equal = [], [], 0
    for number, mutant in enumerate(mutants(made.parallel)):
        if number % every:
            continue
        found = truth(made, mutant)
        outcome = prove(mutant.plan, made.reference).outcome
        where = f"{made.name}, mutant {number}: {mutant.kind}: {mutant.description}: {found.reason}"
        if found.label == "wrong" and outcome is Outcome.PROVED:
            unsound.append(where)
        if found.label == "equal":
            equal += 1
            refuted += [where] if outcome is Outcome.REFUTED else []
    return unsound, refuted, equal


@pytest.mark.parametrize(("made", "every"), PAIRS, ids=[made.name for made, _ in PAIRS])
def test_no_wrong_mutant_is_proved(made: Pair, every: int) -> None:
    unsound, _, _ = _judge(made, every)
    assert not unsound, "\n".join(unsound)


@pytest.mark.heavy
def test_no_wrong_mutant_of_many_pairs_is_proved_and_few_equal_ones_are_refuted() -> None:
    unsound, refuted, equal = [], [], 0
    for seed in range(16):
        more = _judge(random_pair(seed), 149)
        unsound += more[0]
        refuted += more[1]
        equal += more[2]
    assert not unsound, "\n".join(unsound)
    assert len(refuted) <= ALLOWED * equal, "\n".join(refuted)
