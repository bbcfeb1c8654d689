"""What runs on random numbers show of a mutant of a plan: whether it computes something else than the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvlint.analyses.relations.derivation.given.trusted_inputs import whole_shape
from tvlint.equivalence.verdict.numbers.run import addend_of, held_places
from tvlint.equivalence.verdict.numbers.whole_values import random_numbers
from tvlint.ir.plan import Plan, Role
from tvlint.replay.run import replay
from tvlint.replay.stand_ins import StandIns

_SEEDS = (1, 2)

Results = Mapping[tuple[Any, ...], Any]
"""What a plan gives, by its kind, rank and name."""


def results_of(plan: Plan) -> list[Results] | None:
    """What the plan gives in each run; None where it does not run, or nothing is left of what it computes."""
    try:
        found = [_run(plan, seed) for seed in _SEEDS]
    except Exception:
        return None
    return found if all(found) else None


def verdict_of(base: Sequence[Results] | None, mutant: Plan) -> str:
    """One of `not run`, `same`, `of the loop`, where ranks return other parts of the same sum or mean, and `wrong`.

    The loop around a plan sums or averages what its ranks return; a mutant that does not run is wrong.
    """
    if base is None:
        return "not run"
    found = results_of(mutant)
    if found is None:
        return "wrong"
    verdicts = {_compared(one, other) for one, other in zip(base, found, strict=True)}
    return next(each for each in ("wrong", "of the loop", "same") if each in verdicts)


def _compared(one: Results, other: Results) -> str:
    if one.keys() != other.keys():
        return "wrong"
    differing = [key for key in one if not _close(one[key], other[key])]
    if not differing:
        return "same"
    if any(key[0] != "returned" or np.size(one[key]) != 1 for key in differing):
        return "wrong"
    for name in {key[-1] for key in differing}:
        first, second = (
            [value for key, value in each.items() if key[0] == "returned" and key[-1] == name] for each in (one, other)
        )
        if not _close(np.mean(first, axis=0), np.mean(second, axis=0)) and not _close(first[0], np.sum(second, axis=0)):
            return "wrong"
    return "of the loop"


def _close(one: Any, other: Any) -> bool:
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-6, atol=1e-9, equal_nan=True)


def _run(plan: Plan, seed: int) -> Results:
    whole = random_numbers(seed, 2)

    def given(rank: int, name: str, micro_batch: int) -> Any:
        tensor = plan.tensors[name]
        replica, first = divmod(rank, plan.replication.stride) if plan.replication.count > 1 else (0, rank)
        full = tensor.logical or tensor.name
        if tensor.role is Role.INPUT:
            full = f"{full} {micro_batch} {replica}"
        value = whole(tensor.role.value, full, whole_shape(tensor), tensor.dtype)
        value = abs(value) if tensor.role is Role.STATE else value
        return np.asarray(addend_of(value, full, whole, tensor)[held_places(plan, tensor, first)])

    with np.errstate(all="ignore"):
        found = replay(plan, given, lambda *_: None, StandIns())
    kinds = (("gradient", found.gradients), ("returned", found.returned), ("left", found.left))
    return {(kind, *key): value for kind, values in kinds for key, value in values.items()}
