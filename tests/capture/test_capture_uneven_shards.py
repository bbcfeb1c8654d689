"""Weights of which ranks hold unequal shards: right programs are proved, wrong ones never, and others are errors at a line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from capture.test_capture_proofs import Line, lines_of, path_of, proof, prover_alone, written

from tvlint.findings import Outcome
from tvlint.readers.capture.lifting.program import Apply, Exchange, Program, Ref, Type
from tvlint.readers.capture.rewriting.flat_gradients import FlatGradient, FlatWeight, NotFlatError
from tvlint.readers.capture.tapes.tape import Laid, Mark, Named
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


WHOLE = 3, 2


def uneven(rank: int) -> FlatWeight:
    """Return a weight of three rows of which every other rank holds two, and those between them one."""
    laid, group = Laid("weight", WHOLE, 0, True), (rank // 2 * 2, rank // 2 * 2 + 1)
    named = Named("weight", "weight", 0, True, flat=(laid,), group=group)
    return FlatWeight(named, 4, rank, {(0, 6): laid}, 6, frozenset({rank % 2, rank % 2 + 2}))


@pytest.mark.parametrize("ranks", [(0, 2), (0, 1), (0, 3), (0, 2, 4)])
def test_parts_of_a_gradient_are_summed_over_ranks_that_hold_the_same_rows_alone(ranks: tuple[int, ...]) -> None:
    program, part = doubled(0, 0)
    total = program.fresh(Type((2, 2), "float32"))
    program.nodes.append(Exchange("all-reduce", (part,), (total,), ranks, Mark(), "avg"))
    flat, gradient = uneven(0), FlatGradient(program)
    if ranks == (0, 2):
        assert program.shape(gradient.of(total, flat.laid[0], flat)) == WHOLE
        return
    with pytest.raises(NotFlatError):
        gradient.of(total, flat.laid[0], flat)


def doubled(rank: int, times: int) -> tuple[Program, str]:
    """Return a program that scatters a gradient of three rows over two ranks, and adds its part to itself again and again."""
    program, rows = Program(rank), 2 - rank
    given, filled, scattered = (program.fresh(Type((rows, 2), "float32")) for rows in (3, 4, 2))
    part = program.fresh(Type((rows, 2), "float32"))
    pad = {"self": Ref(given), "pad": (0, 0, 0, 1), "value": 0}
    program.nodes.append(Apply("aten.constant_pad_nd.default", pad, (filled,), Mark()))
    program.nodes.append(Exchange("reduce-scatter", (filled,), (scattered,), (0, 1), Mark(), "avg", 0))
    program.nodes.append(Apply("narrow", {"self": Ref(scattered), "dim": 0, "start": 0, "length": rows}, (part,), Mark()))
    for _ in range(times):
        total = program.fresh(Type((rows, 2), "float32"))
        program.nodes.append(Apply("aten.add.Tensor", {"self": Ref(part), "other": Ref(part)}, (total,), Mark()))
        part = total
    return program, part


@pytest.mark.parametrize(("start", "length"), [(1, 1), (0, 2)])
def test_rows_of_a_gradient_that_are_not_those_of_the_rank_are_not_followed(start: int, length: int) -> None:
    program, part = doubled(1, 1)
    narrow, flat = program.nodes[2], uneven(1)
    assert isinstance(narrow, Apply)
    program.types[narrow.outputs[0]] = Type((length, 2), "float32")
    program.nodes[2] = replace(narrow, arguments={**narrow.arguments, "start": start, "length": length})
    with pytest.raises(NotFlatError):
        FlatGradient(program).of(part, flat.laid[0], flat)


def test_parts_that_are_added_to_themselves_are_taken_whole_once() -> None:
    (peer, value), (program, _) = doubled(0, 60), doubled(1, 0)
    flats, count = [uneven(rank) for rank in range(2)], len(program.nodes)
    gradient = FlatGradient(program)
    made = gradient.of_nothing(replace(program, nodes=[*program.nodes]), peer, value, flats[1].laid[0], flats[1])
    gradient.put()
    assert program.shape(made) == WHOLE
    assert len(program.nodes) == count + 60
    gradient = FlatGradient(peer)
    whole = gradient.of(value, flats[0].laid[0], flats[0])
    gradient.put()
    assert peer.shape(whole) == WHOLE
    assert len(peer.nodes) == 3 + 2 * 60
