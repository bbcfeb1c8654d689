"""What the fuzzing command takes for a find, and that it draws the same inputs again."""

from __future__ import annotations

import random
from importlib.util import find_spec

import pytest
from shared import ROOT

from benchmarks.fuzz import LOADED, Mutator, Seed, wrong

TEXT = ("check", "-o", "text", "a.sh")
JSON = ("check", "-o", "json", "a.sh")


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err", "find"),
    [
        (TEXT, 3, "", "tvlint: internal error: KeyError: x", "exit 3: tvlint: internal error: KeyError: x"),
        (TEXT, -11, "", "", "exit -11: "),
        (TEXT, 0, "", "Traceback (most recent call last):", "a traceback"),
        (TEXT, 2, "a.sh: error: the file needs more than 6 seconds of processor time", "", "needs more than its budget"),
        (TEXT, 1, "\x1b[2J", "", "a control character: '\\x1b'"),
        (JSON, 1, "{", "", "json does not parse"),
        (TEXT, 1, "the backend needs more than one rank", "", ""),
        (JSON, 2, '{"problems": []}', "", ""),
    ],
)
def test_a_find_is_what_no_input_may_cause(arguments: tuple[str, ...], code: int, out: str, err: str, find: str) -> None:
    found = wrong(arguments, code, out, err)
    assert found.startswith(find)
    assert bool(found) == bool(find)


def test_the_same_seed_gives_the_same_inputs() -> None:
    seed = Seed("train.sh", (ROOT / "fixtures" / "tour" / "train.sh").read_bytes())
    drawn = [[Mutator(random.Random(7), [seed]).changed(seed.data) for _ in range(20)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert seed.data not in drawn[0]


@pytest.mark.parametrize("module", LOADED)
def test_what_is_loaded_beforehand_is_there(module: str) -> None:
    assert find_spec(f"tvlint.{module}") is not None
