"""Damaged captures end in a verdict or in a located problem, whatever stands in their lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.capture.test_capture_proofs import Line, lines_of, path_of, written
from tests.sampling import sampled
from tvlint.findings import Outcome
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

NAMES = ("chosen_experts_grouped", "chosen_experts_listed", "chosen_experts_masked", "chosen_experts_split")
OTHERS: dict[type, tuple[Any, ...]] = {
    bool: (True, False, None),
    int: (0, 1, -1, 7, 1 << 40, None, "a", 1.5, [1]),
    str: ("", "x", "int64", "bool", None, 3, "aten.sort.default", "aten.nonzero.default", "aten.index_put_.default"),
    list: ([], None, [0], [1, 2, 3, 4, 5, 6, 7]),
}


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if path and not isinstance(value, dict):
        yield path
    for key, child in children:
        yield from _leaves(child, (*path, key))


def _damaged(lines: list[Line], random: Random) -> list[Line]:
    for _ in range(random.randint(1, 3)):
        line = random.choice(lines[1:])
        paths = [path for path in _leaves(line) if path[-1] not in ("values", "text", "path")]
        *way, last = random.choice(paths)
        place: Any = line
        for key in way:
            place = place[key]
        place[last] = random.choice(OTHERS.get(type(place[last]), (0, [], "")))
    return lines


def _ends(folder: Path, name: str, lines: list[Line]) -> Outcome | None:
    """Return the verdict on a capture; None where there is a problem."""
    report = prove_pair(Pair(written(folder, lines), path_of(f"{name}_reference")))
    assert report.problems or report.verdicts
    return None if report.problems else report.verdicts[0].outcome


@pytest.mark.parametrize("seed", sampled(range(24), 6))
def test_a_damaged_capture_is_judged_or_a_problem(seed: int, tmp_path: Path) -> None:
    name = NAMES[seed % len(NAMES)]
    _ends(tmp_path, name, _damaged(lines_of(name), Random(seed)))


def _of_nothing(line: Line) -> None:
    if line.get("op") == "aten.ones_like.default":
        line["outputs"] = []


def _of_another(line: Line) -> None:
    if "gradient" in line:
        line["gradient"] = "x"


@pytest.mark.parametrize("change", [_of_nothing, _of_another])
def test_results_and_gradients_of_nothing_are_not_proved(change: Callable[[Line], None], tmp_path: Path) -> None:
    lines = lines_of(NAMES[0])
    for line in lines:
        change(line)
    assert _ends(tmp_path, NAMES[0], lines) is not Outcome.PROVED
