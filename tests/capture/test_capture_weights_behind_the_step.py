"""The weights behind the step of the optimizer, compared as numbers: another step than the reference's is refuted."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture.test_capture_proofs import Line, lines_of, path_of, proof, written

from tvlint.findings import Outcome, Problem, Reason, Verdict
from tvlint.ir.location import Location
from tvlint.readers.capture.reader import Recorded
from tvlint.run.proof import captures
from tvlint.run.proof.captures import Replayed, different_weights, differently_clipped, read_captures
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

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
    assert differently_clipped(clipped(parallel, {0: 0.5, 1: 0.5}), clipped(reference, {0: 0.5})) == ({}, [])


def test_gradients_that_each_rank_clips_by_its_own_norm_are_different() -> None:
    parallel, reference = pair()
    found, _ = differently_clipped(clipped(parallel, {0: 0.5, 1: 0.4}), clipped(reference, {0: 0.5}))
    assert found.keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert all(ranks == [1] for _, ranks in found.values())


def test_gradients_that_one_program_alone_clips_are_different() -> None:
    parallel, reference = pair()
    assert differently_clipped(clipped(parallel, {0: 0.5, 1: 0.5}), reference)[0]
    assert differently_clipped(parallel, clipped(reference, {0: 0.5}))[0]


def times(recorded: Recorded, by: float) -> Recorded:
    """Return a capture of a program that multiplies its gradients by operators of its own."""
    gradients = {key: None if own is None else own * by for key, own in recorded.gradients.items()}
    return replace(recorded, gradients=gradients)


@pytest.mark.parametrize(("by", "outcome"), [(0.5, Outcome.UNKNOWN), (0.4, Outcome.REFUTED)])
def test_gradients_that_one_program_clips_by_operators_are_compared_behind_it(
    by: float, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of the one has the clipping and that of the other has not, so that they are not the same, and none is proved."""
    parallel, reference = pair()
    other = Reason("other-numbers", True, "another gradient in 3 runs", Location("parallel"))
    verdict = Verdict("reference", "parallel", Outcome.REFUTED, reasons=(other,))
    monkeypatch.setattr(captures, "replayed", lambda _: Replayed(1, 0.0))
    found = captures.judged(verdict, times(parallel, by), clipped(reference, {0: 0.5}))
    assert found.outcome is outcome
    names = [reason.name for reason in found.reasons]
    assert names[0] == ("clipped-gradient-not-compared" if outcome is Outcome.UNKNOWN else "other-recorded-gradient")


def test_what_was_not_recorded_is_not_compared() -> None:
    parallel, reference = pair()
    assert different_weights(replace(stepped(parallel, 2 * RATE), pieces={}), reference) == {}
    assert different_weights(stepped(parallel, 2 * RATE), replace(reference, after={})) == {}


def test_ranks_that_clip_by_norms_of_their_own_are_refuted() -> None:
    verdict = proof(path_of("sequence_parallel_own_norm"), "sequence_parallel_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.reasons[0].name == "other-recorded-weight"
    assert "and 6 more weights is the reference's until it is clipped" in verdict.reasons[0].message


def clipped_otherwise(weight: str, change: Callable[[Line], Line]) -> list[Line]:
    """Return the step in sequence parallelism with the clipped gradient of a weight changed on the last rank."""
    lines = lines_of("sequence_parallel")
    at = max(i for i, line in enumerate(lines) if "update" in line)
    clipped = [change(entry) if entry["gradient"] == weight else entry for entry in lines[at]["clipped"]]
    assert clipped != lines[at]["clipped"]
    return [*lines[:at], {**lines[at], "clipped": clipped}, *lines[at + 1 :]]


def scaled(entry: Line) -> Line:
    numbers = np.frombuffer(base64.b64decode(entry["values"]), "<f4") * np.float32(1.2)
    return {**entry, "values": base64.b64encode(numbers.tobytes()).decode()}


@pytest.mark.parametrize("weight", ["norm.weight", "table.weight", "up.weight", "down.bias"])
def test_each_gradient_that_a_rank_clips_otherwise_is_refuted_however_it_lies(weight: str, tmp_path: Path) -> None:
    verdict = proof(written(tmp_path, clipped_otherwise(weight, scaled)), "sequence_parallel_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert f"`{weight}` is the reference's until it is clipped" in verdict.reasons[0].message


def as_averages(entry: Line) -> Line:
    return {**entry, "placements": {"tp": {"kind": "partial", "reduce": "avg"}}}


def without_values(entry: Line) -> Line:
    return {key: value for key, value in entry.items() if key != "values"}


@pytest.mark.parametrize("change", [as_averages, without_values])
def test_clipped_gradients_that_cannot_be_compared_are_unknown(change: Callable[[Line], Line], tmp_path: Path) -> None:
    verdict = proof(written(tmp_path, clipped_otherwise("norm.weight", change)), "sequence_parallel_reference")
    assert verdict.outcome is Outcome.UNKNOWN
    assert [reason.name for reason in verdict.reasons] == ["clipped-gradient-not-compared"]


def test_a_capture_must_say_which_gradients_are_clipped(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {key: value for key, value in line.items() if key != "clipped"} for line in lines_of("sequence_parallel")
    ]
    report = prove_pair(Pair(written(tmp_path, lines), path_of("sequence_parallel_reference")))
    assert not report.verdicts
    assert "clipped" in report.problems[0].message


def from_zero(recorded: Recorded, dtype: str) -> Recorded:
    """Return a capture of weights that are zero, in numbers of a type."""
    given = {key: np.zeros_like(array) if key[2] < 0 else array for key, array in recorded.given.items()}
    tensors = {name: replace(tensor, dtype=dtype) for name, tensor in recorded.plan.tensors.items()}
    return replace(recorded, plan=replace(recorded.plan, tensors=tensors), given=given)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_doubled_step_is_different_in_coarse_numbers_too(dtype: str) -> None:
    parallel, reference = (from_zero(each, dtype) for each in pair())
    assert different_weights(stepped(parallel, RATE), stepped(reference, RATE)) == {}
    assert different_weights(stepped(parallel, 2 * RATE), stepped(reference, RATE))


def never_sent(lines: list[Line]) -> list[Line]:
    """Return the lines in which each rank keeps what it had of weights that other ranks step."""
    given: dict[str, Line] = {}
    found: list[Line] = []
    for line in lines:
        if "rank" in line and len(line) == 1:
            given, numbers, tensors = {}, {}, {}
        if "given" in line:
            numbers[line["given"]] = line
        if "tensor" in line:
            tensors[line["tensor"]] = line["storage"]
        if line.get("role") == "weight":
            given[line["name"]] = numbers[tensors[line["of"]]]
        kept = {name: given[name]["values"] for name in line.get("values", ())} if line.get("elsewhere") else {}
        found.append({**line, "values": kept} if kept else line)
    return found


def never_recorded(lines: list[Line]) -> list[Line]:
    return [line for line in lines if not line.get("elsewhere")]


@pytest.mark.parametrize("change", [never_sent, never_recorded])
def test_weights_that_another_rank_steps_and_does_not_send_are_not_proved(
    change: Callable[[list[Line]], list[Line]], tmp_path: Path
) -> None:
    changed = change(lines_of("owned_steps"))
    assert changed != lines_of("owned_steps")
    verdict = proof(written(tmp_path, changed), "owned_steps_reference")
    assert verdict.outcome is Outcome.REFUTED
    assert verdict.reasons[0].name in ("other-recorded-weight", "not-updated-once")
