"""The weights behind the step of the optimizer, compared as numbers: another step than the reference's is refuted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from capture.test_capture_proofs import path_of

from tvlint.findings import Problem
from tvlint.readers.capture.reader import Recorded
from tvlint.run.proof.captures import different_weights, differently_clipped, read_captures

RATE = 1e-3


def pair() -> tuple[Recorded, Recorded]:
    found = read_captures(path_of("uneven_shards"), path_of("uneven_shards_reference"))
    assert not isinstance(found, Problem)
    parallel, reference = found
    return stepped(parallel, RATE), stepped(reference, RATE)


def stepped(recorded: Recorded, rate: float, moved: float = 0.0) -> Recorded:
    """Return a capture as if its optimizer had gone along the signs of the gradients, as Adam does in its first step."""
    after = {}
    for (rank, weight), gradient in recorded.gradients.items():
        before = recorded.given[rank, weight, -1]
        assert before is not None
        assert gradient is not None
        after[rank, weight] = (before - rate * np.sign(gradient) + moved * (weight == "2.bias")).astype(before.dtype)
    return replace(recorded, after=after)


def test_equal_steps_are_not_different() -> None:
    assert different_weights(*pair()) == {}


@pytest.mark.parametrize("rate", [1e-6, 1e-5])
def test_a_step_that_is_not_much_more_than_rounding_is_not_different(rate: float) -> None:
    parallel, reference = pair()
    assert different_weights(stepped(parallel, rate), stepped(reference, rate)) == {}


@pytest.mark.parametrize("rate", [0.0, 2 * RATE, -RATE])
def test_another_step_is_different_on_every_rank(rate: float) -> None:
    parallel, reference = pair()
    found = different_weights(stepped(parallel, rate), reference)
    assert found.keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert all(ranks == [0, 1] for _, ranks in found.values())


def test_a_weight_that_something_else_moves_is_different() -> None:
    parallel, reference = pair()
    assert different_weights(stepped(parallel, RATE, moved=0.1), reference).keys() == {"2.bias"}


def test_a_gradient_of_rounding_does_not_tell_a_step() -> None:
    parallel, reference = pair()
    gradient = reference.gradients[0, "0.weight"]
    assert gradient is not None
    small = gradient.copy()
    small[0, 0] = 1e-12
    after = {key: None if own is None else own.copy() for key, own in parallel.after.items()}
    for rank in (0, 1):
        changed = after[rank, "0.weight"]
        assert changed is not None
        changed[0, 0] += RATE
    assert different_weights(replace(parallel, after=after), reference).keys() == {"0.weight"}
    rounded = replace(reference, gradients={**reference.gradients, (0, "0.weight"): small})
    assert different_weights(replace(parallel, after=after), rounded) == {}


def clipped(recorded: Recorded, factors: dict[int, float]) -> Recorded:
    """Return a capture as if the optimizer had found the gradients of each rank times its factor."""
    found = {key: None if array is None else array * factors[key[0]] for key, array in recorded.gradients.items()}
    return replace(recorded, clipped=found)


def test_gradients_that_both_programs_clip_alike_are_not_different() -> None:
    parallel, reference = pair()
    assert differently_clipped(clipped(parallel, {0: 0.5, 1: 0.5}), clipped(reference, {0: 0.5})) == {}


def test_gradients_that_each_rank_clips_by_its_own_norm_are_different() -> None:
    parallel, reference = pair()
    found = differently_clipped(clipped(parallel, {0: 0.5, 1: 0.4}), clipped(reference, {0: 0.5}))
    assert found.keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert all(ranks == [1] for _, ranks in found.values())


def test_gradients_that_one_program_alone_clips_are_different() -> None:
    parallel, reference = pair()
    assert differently_clipped(clipped(parallel, {0: 0.5, 1: 0.5}), reference)
    assert differently_clipped(parallel, clipped(reference, {0: 0.5}))


def test_what_was_not_recorded_is_not_compared() -> None:
    parallel, reference = pair()
    assert different_weights(replace(stepped(parallel, 2 * RATE), pieces={}), reference) == {}
    assert different_weights(stepped(parallel, 2 * RATE), replace(reference, after={})) == {}
