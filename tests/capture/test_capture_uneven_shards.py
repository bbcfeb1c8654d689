"""Weights of which ranks hold unequal shards: right programs are proved, wrong ones never, and others are errors at a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture.test_capture_proofs import Line, lines_of, path_of, proof, prover_alone, written

from tvlint.findings import Outcome
from tvlint.readers.capture.lifting.program import Apply, Exchange, Program, Ref, Type
from tvlint.readers.capture.rewriting.shard_gradients import NotFollowedError, UnevenWeight, WholeGradient, gradient_of_none
from tvlint.readers.capture.tapes.tape import Mark
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

NAME, REFERENCE = "uneven_shards", "uneven_shards_reference"


def outcomes(folder: Path, lines: list[Line]) -> set[Outcome]:
    report = prove_pair(Pair(written(folder, lines), path_of(REFERENCE)))
    return {verdict.outcome for verdict in report.verdicts}


def test_shards_that_are_gathered_whole_are_proved() -> None:
    verdict = proof(path_of(NAME), REFERENCE)
    assert verdict.outcome is Outcome.PROVED, verdict.reasons
    assert dict(verdict.facts)["recorded gradients"] == "agree with the reference's"


def test_an_average_over_ranks_that_is_a_sum_is_refuted_by_the_proof_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = [{**own, "reduce": "sum"} if own.get("communication") == "reduce-scatter" else own for own in lines_of(NAME)]
    assert outcomes(tmp_path, lines) == {Outcome.REFUTED}


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_capture_that_lacks_a_collective_is_not_proved(
    place: int, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of(NAME)
    talks = [at for at, line in enumerate(lines) if "communication" in line]
    gone = {talks[place], talks[place + 4]} if ranks == 2 else {talks[place]}
    works = {at: lines[at]["work"] for at in gone}
    start = lines.index({"rank": 1})
    kept = [
        line
        for at, line in enumerate(lines)
        if at not in gone and not any(line.get("wait") == work and (at > start) == (own > start) for own, work in works.items())
    ]
    assert Outcome.PROVED not in outcomes(tmp_path, kept)


def test_a_shard_that_is_read_without_a_gather_is_an_error_at_the_line(tmp_path: Path) -> None:
    lines = lines_of(NAME)
    gather = {"communication": "all-gather"}.items()
    changed = [{**own, "communication": "all-to-all"} if gather <= own.items() else own for own in lines]
    report = prove_pair(Pair(written(tmp_path, changed), path_of(REFERENCE)))
    (problem,) = report.problems
    assert "of unequal sizes, (4, 6) and (3, 6), which is not followed here" in problem.message
    assert (problem.location.path.rpartition("/")[2], problem.location.line) == ("uneven_shards.py", 27)


GROUPS = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}


@pytest.mark.parametrize("ranks", [(0, 2), (0, 1), (0, 3), (0, 2, 4)])
def test_parts_of_a_gradient_are_summed_over_ranks_that_hold_the_same_rows_alone(ranks: tuple[int, ...]) -> None:
    program, part = doubled(0, 0)
    total = program.fresh(Type((2, 2), "float32"))
    program.nodes.append(Exchange("all-reduce", (part,), (total,), ranks, Mark(), "avg"))
    taken = WholeGradient(program, UnevenWeight("weight", (3, 2), {rank: (2 - rank % 2, 2) for rank in range(4)}), 0, GROUPS)
    if ranks == (0, 2):
        assert program.shape(taken.whole(total)) == (3, 2)
        return
    with pytest.raises(NotFollowedError):
        taken.whole(total)


def doubled(rank: int, times: int) -> tuple[Program, str]:
    """Return a program that scatters a gradient of three rows over two ranks, and adds its part to itself again and again."""
    program = Program(rank)
    given, filled = (program.fresh(Type((rows, 2), "float32")) for rows in (3, 4))
    part = program.fresh(Type((2 - rank, 2), "float32"))
    pad = {"self": Ref(given), "pad": (0, 0, 0, 1), "value": 0}
    program.nodes.append(Apply("aten.constant_pad_nd.default", pad, (filled,), Mark()))
    program.nodes.append(Exchange("reduce-scatter", (filled,), (part,), (0, 1), Mark(), "avg", 0))
    for _ in range(times):
        total = program.fresh(Type((2 - rank, 2), "float32"))
        program.nodes.append(Apply("aten.add.Tensor", {"self": Ref(part), "other": Ref(part)}, (total,), Mark()))
        part = total
    return program, part


def test_parts_that_are_added_to_themselves_are_taken_whole_once() -> None:
    weight = UnevenWeight("weight", (3, 2), {0: (2, 2), 1: (1, 2)})
    (peer, value), (program, _) = doubled(0, 60), doubled(1, 0)
    count = len(program.nodes)
    made = gradient_of_none(program, peer, value, weight.whole, WholeGradient(program, weight, 1, GROUPS).whole)
    assert made is not None
    assert len(program.nodes) == count + 60
    whole = WholeGradient(peer, weight, 0, GROUPS).whole(value)
    assert peer.shape(whole) == weight.whole
    assert len(peer.nodes) == 2 + 2 * 60
