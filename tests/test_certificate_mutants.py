"""No wrong plan can be certified: not by the certificate of the right one, nor by the best that can be forged for it."""

from __future__ import annotations

import pytest
from oracle.generate import Pair, Way, pair
from oracle.judge import truth
from oracle.mutate import mutants

from tests.certificates import certified, forged, objection

PAIRS = (
    (pair("mlp", Way(dp=2, tp=2, nm=2), seed=1), 13),
    (pair("mlp", Way(pp=2, tp=2, nm=2, pieces=True), seed=2), 19),
    (pair("mlp", Way(tp=2, rows=4), seed=4), 11),
    (pair("llama", Way(pp=2, tp=2, nm=2), seed=1), 173),
    (pair("moe", Way(dp=2, tp=2), seed=1), 29),
)
"""Pairs, and which of their mutants the quick run takes: every N-th."""


def _verified(made: Pair, every: int) -> tuple[list[str], int, int]:
    """Mutants that verify though they compute something else; how many were forged for, and how many verify at all."""
    right = certified(made.parallel, made.reference)
    assert right is not None
    assert objection(right, made.parallel, made.reference) == ""
    wrong, tried, verified = [], 0, 0
    for number, mutant in enumerate(mutants(made.parallel)):
        if number % every:
            continue
        own = forged(mutant.plan, made.reference)
        tried += own is not None
        best = [each for each in (right, own) if each is not None]
        if all(objection(each, mutant.plan, made.reference) for each in best):
            continue
        verified += 1
        found = truth(made, mutant)
        if found.label == "wrong":
            wrong.append(f"{made.name}, mutant {number}: {mutant.kind}: {mutant.description}: {found.reason}")
    return wrong, tried, verified


@pytest.mark.parametrize(("made", "every"), PAIRS, ids=[made.name for made, _ in PAIRS])
def test_no_wrong_mutant_verifies(made: Pair, every: int) -> None:
    wrong, tried, _ = _verified(made, every)
    assert not wrong, "\n".join(wrong)
    assert tried > 0


@pytest.mark.heavy
def test_no_wrong_mutant_of_many_verifies() -> None:
    wrong, verified = [], 0
    for made, every in PAIRS:
        more = _verified(made, max(1, every // 3))
        wrong += more[0]
        verified += more[2]
    assert not wrong, "\n".join(wrong)
    assert verified > 0
