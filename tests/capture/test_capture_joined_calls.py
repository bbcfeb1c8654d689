"""Calls of a model before one backward pass are one micro-batch where a loss compares what they give, and else are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from capture.test_capture_proofs import Line, lines_of, path_of, written

from tvlint.equivalence.verdict.prove import is_proved
from tvlint.findings import Problem
from tvlint.readers.capture.tapes.joined_calls import with_calls_joined
from tvlint.readers.capture.tapes.tape import Capture, Mark, Operation, Root, Tape
from tvlint.run.proof.captures import read_captures


def capture_of(passes: Sequence[tuple[str, int]]) -> Capture:
    """A capture of one rank with an operator, or the start of a backward pass and an operator in it, for each micro-batch."""
    events: list[Operation | Root] = []
    for phase, number in passes:
        if phase == "backward":
            events.append(Root(0, None, None, Mark(micro_batch=number)))
        events.append(Operation("aten.neg.default", {}, (0,), (), None, Mark(phase, number)))
    return Capture("a.capture.jsonl.gz", (), 1, (Tape(0, {}, tuple(events)),))


def numbers_of(capture: Capture) -> list[int]:
    return [event.mark.micro_batch for event in capture.tapes[0].events if isinstance(event, Operation)]


F, B = "forward", "backward"


@pytest.mark.parametrize(
    ("passes", "numbers"),
    [
        ([(F, 0), (F, 1), (B, 0)], [0, 0, 0]),
        ([(F, 0), (F, 1), (B, 1), (F, 2), (F, 3), (B, 2)], [0, 0, 0, 1, 1, 1]),
        ([(F, 0), (B, 0), (F, 1), (F, 2), (B, 2)], [0, 0, 1, 1, 1]),
        ([(F, 0), (F, 1), (B, 0), (B, 1)], [0, 0, 0, 0]),
    ],
)
def test_calls_before_one_backward_pass_are_one_micro_batch(passes: list[tuple[str, int]], numbers: list[int]) -> None:
    joined = with_calls_joined(capture_of(passes))
    assert numbers_of(joined) == numbers
    assert with_calls_joined(joined) is joined


@pytest.mark.parametrize(
    "passes",
    [
        [(F, 0), (B, 0), (F, 1), (B, 1)],
        [(F, 0), (F, 1), (B, 0), (F, 2), (B, 1), (B, 2)],
        [(F, 0), (F, 1), (B, 0), (F, 2), (B, 1), (F, 3), (B, 2), (B, 3)],
        [(F, 0), (F, 1)],
    ],
)
def test_passes_in_another_order_stay_as_they_are(passes: list[tuple[str, int]]) -> None:
    capture = capture_of(passes)
    assert with_calls_joined(capture) is capture


def is_proved_of(folder: Path, lines: list[Line]) -> bool:
    """Return whether the plans alone prove changed lines, as if the recorded numbers were theirs."""
    found = read_captures(written(folder, lines), path_of("preferences_reference"))
    return not isinstance(found, Problem) and is_proved(found[0].plan, found[1].plan)


@pytest.mark.parametrize("name", ["preferences", "preferences_2"])
def test_what_is_recorded_is_proved_by_the_plans_alone(name: str, tmp_path: Path) -> None:
    assert is_proved_of(tmp_path, lines_of(name))


@pytest.mark.parametrize("phase", [F, B])
@pytest.mark.parametrize("name", ["preferences", "preferences_2"])
def test_another_scale_of_the_margin_is_not_proved(name: str, phase: str, tmp_path: Path) -> None:
    scaled = [line.get("op") == "aten.mul.Tensor" and line["phase"] == phase for line in lines_of(name)]
    assert any(scaled)
    lines = [
        {**line, "arguments": {**line["arguments"], "other": 0.2}} if at else line
        for at, line in zip(scaled, lines_of(name), strict=True)
    ]
    assert not is_proved_of(tmp_path, lines)


@pytest.mark.parametrize("name", ["preferences", "preferences_2"])
def test_what_is_not_preferred_taken_for_what_is_is_not_proved(name: str, tmp_path: Path) -> None:
    lines = lines_of(name)
    margins = [at for at, line in enumerate(lines) if line.get("op") == "aten.sub.Tensor" and line["phase"] == F]
    changed = [
        {**line, "arguments": {"self": line["arguments"]["other"], "other": line["arguments"]["self"]}}
        if at in margins[2::3] else line
        for at, line in enumerate(lines)
    ]  # fmt: skip
    assert changed != lines
    assert not is_proved_of(tmp_path, changed)
