"""Weights that join several, of which ranks hold a share of each: right programs are proved, wrong ones never."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capture.test_capture_proofs import lines_of, path_of, proof, prover_alone, without, written

from tvlint.findings import Outcome
from tvlint.readers.capture.pairing import Held, place_of
from tvlint.readers.capture.placing import blocks_of, whole_box

NAME, REFERENCE = "joined_weights", "joined_weights_reference"


def test_shares_of_each_part_are_proved_and_a_bias_of_zeros_lies_as_its_weight_does() -> None:
    verdict = proof(path_of(NAME), REFERENCE)
    assert verdict.outcome is Outcome.PROVED, verdict.reasons
    text = "`joined_bias` lies in blocks as other weights of the ranks do, which its numbers do not show"
    assert [each for each in verdict.assumptions if "numbers do not show" in each] == [text]


@pytest.mark.parametrize("place", range(3))
def test_without_a_sum_over_the_ranks_they_are_not_proved(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prover_alone(monkeypatch)
    lines = lines_of(NAME)
    talks = [at for at, line in enumerate(lines) if line.get("communication") == "all-reduce"]
    assert len(talks) == 6
    kept = without(without(lines, talks[place + 3]), talks[place])
    assert proof(written(tmp_path, kept), REFERENCE).outcome is not Outcome.PROVED


def test_keys_that_are_taken_for_values_are_not_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prover_alone(monkeypatch)
    other = {8: 16, 16: 8}
    lines = [
        {**line, "offset": other.get(line["offset"], line["offset"])} if line.get("stride", ())[:1] == [144] else line
        for line in lines_of(NAME)
    ]
    assert lines != lines_of(NAME)
    assert proof(written(tmp_path, lines), REFERENCE).outcome is not Outcome.PROVED


def test_the_place_of_blocks_takes_them_out_of_the_whole() -> None:
    whole = np.arange(24.0).reshape(12, 2)
    part = np.concatenate([whole[2:4], whole[6:8], whole[10:12]])
    blocks = blocks_of(part, whole, [])
    assert blocks is not None
    assert (blocks.dim, blocks.size, blocks.places) == (0, 2, (1, 3, 5))
    assert np.array_equal(whole[place_of(Held(whole_box(part.shape), True, blocks))], part)
