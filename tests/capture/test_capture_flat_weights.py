"""Weights that lie in flat ones of which ranks hold ranges: right programs are proved, wrong ones never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture.test_capture_proofs import Line, lines_of, path_of, proof, prover_alone, written

from tvlint.findings import Outcome
from tvlint.ir.location import Location
from tvlint.readers.capture.lifting.program import Apply, End, Exchange, GivenValue, Program, Ref, Type, reads
from tvlint.readers.capture.rewriting.flat_gradients import FlatGradient, FlatWeight, NotFlatError
from tvlint.readers.capture.rewriting.flat_weights import without_flat_weights
from tvlint.readers.capture.tapes.tape import Capture, Laid, Mark, Named, Tape, Window
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

LAID = Laid("one", (2, 2), 0, True)
NAME, REFERENCE = "flat_shards", "flat_shards_reference"


def outcomes(folder: Path, lines: list[Line]) -> set[Outcome]:
    report = prove_pair(Pair(written(folder, lines), path_of(REFERENCE)))
    return {verdict.outcome for verdict in report.verdicts}


def problems(folder: Path, lines: list[Line]) -> list[tuple[str, Location]]:
    report = prove_pair(Pair(written(folder, lines), path_of(REFERENCE)))
    return [(problem.message, problem.location) for problem in report.problems]


def test_flat_weights_that_are_gathered_whole_are_proved() -> None:
    verdict = proof(path_of(NAME), REFERENCE)
    assert verdict.outcome is Outcome.PROVED, verdict.reasons
    facts = dict(verdict.facts)
    assert (facts["mesh"], facts["gradients"]) == ("dp 2", "14")
    assert facts["recorded gradients"] == "agree with the reference's"


@pytest.mark.parametrize("reduce", ["avg", "max"])
def test_another_reduction_of_flat_gradients_is_refuted_by_the_proof_alone(
    reduce: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = [{**own, "reduce": reduce} if own.get("communication") == "reduce-scatter" else own for own in lines_of(NAME)]
    assert outcomes(tmp_path, lines) == {Outcome.REFUTED}


@pytest.mark.heavy
def test_no_capture_that_lacks_a_gather_or_a_reduction_of_flat_weights_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the gathers the first ones: nothing says that what is gathered is thrown away before it is gathered again."""
    prover_alone(monkeypatch)
    lines = lines_of(NAME)
    start = lines.index({"rank": 1})
    gathers, scatters = (
        [at for at, line in enumerate(lines) if line.get("communication") == kind] for kind in ("all-gather", "reduce-scatter")
    )
    for talks, some in ((gathers, (0, 2)), (scatters, (0, 5))):
        of_rank = [at for at in talks if at < start]
        assert len(of_rank) * 2 == len(talks) >= 12
        for at in (of_rank[place] for place in some):
            both = at, talks[talks.index(at) + len(of_rank)]
            for gone in (both, both[:1]):
                assert Outcome.PROVED not in outcomes(tmp_path, [line for place, line in enumerate(lines) if place not in gone])


def is_flat(line: Line, name: str) -> bool:
    return line.get("name") == name and "flat" in line


def exchanged(laid: list[Line], one: int, other: int) -> list[Line]:
    names = {one: laid[other]["name"], other: laid[one]["name"]}
    return [{**each, "name": names.get(at, each["name"])} for at, each in enumerate(laid)]


@pytest.mark.parametrize(("one", "other"), [(0, 1), (0, 5), (1, 5)])
def test_weights_that_lie_elsewhere_in_a_flat_one_are_not_proved(one: int, other: int, tmp_path: Path) -> None:
    name = "layers.0._flat_param"
    lines = lines_of(NAME)
    (laid,) = {str(line["flat"]): line["flat"] for line in lines if is_flat(line, name)}.values()
    assert laid[one]["shape"] == laid[other]["shape"] == [6]
    changed = [{**line, "flat": exchanged(line["flat"], one, other)} if is_flat(line, name) else line for line in lines]
    assert Outcome.PROVED not in outcomes(tmp_path, changed)


def test_ranges_that_ranks_hold_in_another_order_are_not_proved(tmp_path: Path) -> None:
    lines = [{**line, "group": [1, 0]} if "flat" in line else line for line in lines_of(NAME)]
    assert Outcome.PROVED not in outcomes(tmp_path, lines)
    assert problems(tmp_path, lines)


def test_a_flat_weight_that_is_read_without_a_gather_is_an_error_at_the_line(tmp_path: Path) -> None:
    gather = {"communication": "all-gather"}.items()
    lines = [{**own, "communication": "all-to-all"} if gather <= own.items() else own for own in lines_of(NAME)]
    ((message, place),) = problems(tmp_path, lines)
    assert message == "the flat weight `_flat_param` is read, gathered or reduced in another way than is followed here"
    assert (place.path.rpartition("/")[2], place.line) == ("flat_shards.py", 47)


def first(change: Callable[[Line], Line]) -> list[Line]:
    lines = lines_of(NAME)
    at = next(at for at, line in enumerate(lines) if "flat" in line)
    return [*lines[:at], change(lines[at]), *lines[at + 1 :]]


BROKEN: dict[str, Callable[[Line], Line]] = {
    "that overlap": lambda line: {**line, "flat": [{**each, "at": 0} for each in line["flat"]]},
    "that end behind it": lambda line: {**line, "flat": [{**each, "at": each["at"] + 100000} for each in line["flat"]]},
    "of ranks without this one": lambda line: {**line, "group": [1]},
    "of no ranks": lambda line: {key: value for key, value in line.items() if key != "group"},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_flat_weight_with_weights_that_do_not_fit_is_an_error(kind: str, tmp_path: Path) -> None:
    ((message, _),) = problems(tmp_path, first(BROKEN[kind]))
    assert message.endswith("do not lie in it one after the other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: {**line, "group": [0, 1, 2]}, "is read, gathered or reduced in another way than is followed here"),
        (lambda line: {**line, "flat": [{**each, "name": "one"} for each in line["flat"]]}, "a weight lies twice in"),
        (lambda line: {**line, "flat": [{**each, "shape": [1] * 100} for each in line["flat"]]}, "an array of 100 elements"),
    ],
)
def test_flat_weights_that_no_program_holds_are_errors(change: Callable[[Line], Line], message: str, tmp_path: Path) -> None:
    ((found, _),) = problems(tmp_path, [change(line) if "flat" in line else line for line in lines_of(NAME)])
    assert message in found


def scattered(handle: str = "", **changed: Any) -> tuple[Program, FlatWeight, str]:
    """Return a program that scatters two gradients that are joined, and divides its range of the sum."""
    program = Program(0)
    one, other = (program.fresh(Type(shape, "float32")) for shape in ((2, 3), (4,)))
    flat, part, mean = (program.fresh(Type(shape, "float32")) for shape in ((10,), (5,), (5,)))
    program.nodes = [
        Apply("cat", {"tensors": (Ref(one), Ref(other)), "dim": 0}, (flat,), Mark()),
        Exchange("reduce-scatter", (flat,), (part,), (0, 1), Mark(), "sum", 0, handle=handle, **changed),
        *([End(handle, Mark())] if handle else []),
        Apply("aten.div.Tensor", {"self": Ref(part), "other": 2}, (mean,), Mark()),
    ]
    laid = Laid("one", (2, 3), 0, True), Laid("other", (4,), 6, True)
    named = Named("flat", "weight", 0, True, flat=laid, group=(0, 1))
    return program, FlatWeight(named, 5, 0, {(0, 6): laid[0], (6, 10): laid[1]}, 10), mean


def test_each_gradient_in_a_flat_one_is_reduced_and_waited_for_by_itself() -> None:
    program, flat, value = scattered("h0")
    gradient = FlatGradient(program)
    values = [gradient.of(value, laid, flat) for laid in flat.laid]
    gradient.put()
    assert [program.shape(each) for each in values] == [(2, 3), (4,)]
    exchanges = [node for node in program.nodes if isinstance(node, Exchange)]
    assert [(node.kind, node.reduce, program.shape(node.inputs[0])) for node in exchanges] == [
        ("all-reduce", "sum", (2, 3)),
        ("all-reduce", "sum", (4,)),
    ]
    assert [node.handle for node in program.nodes if isinstance(node, End)] == [node.handle for node in exchanges]
    assert len({node.handle for node in exchanges}) == 2


def test_a_weight_that_is_cast_before_it_is_gathered_is_cast_whole() -> None:
    named = Named("flat", "weight", 0, True, flat=(LAID,), group=(0,))
    tape, program = Tape(0, {0: Window(0, 0, (6,), (1,), "float32")}, (named,)), Program(0)
    given = program.fresh(Type((6,), "float32"))
    cast, low, high, joined = (program.fresh(Type((size,), "bfloat16")) for size in (6, 2, 2, 4))
    shaped, made = (program.fresh(Type((2, 2), "bfloat16")) for _ in range(2))
    program.given[given] = GivenValue(named, np.arange(6.0))
    cuts = [{"self": Ref(cast), "dim": 0, "start": start, "length": 2} for start in (0, 2)]
    program.nodes = [
        Apply("aten._to_copy.default", {"self": Ref(given), "dtype": "bfloat16"}, (cast,), Mark()),
        *(Apply("narrow", cut, (half,), Mark()) for cut, half in zip(cuts, (low, high), strict=True)),
        Apply("cat", {"tensors": (Ref(low), Ref(high)), "dim": 0}, (joined,), Mark()),
        Apply("view", {"self": Ref(joined), "size": (2, 2)}, (shaped,), Mark()),
        Apply("aten.exp.default", {"self": Ref(shaped)}, (made,), Mark()),
    ]
    (changed,) = without_flat_weights(Capture("path", (), 1, (tape,)), [program])
    whole = next(name for name, each in changed.given.items() if each.named is not None and each.named.name == "one")
    left = [node.op for node in changed.nodes if isinstance(node, Apply)]
    assert left == ["aten._to_copy.default", "view", "view", "aten.exp.default"]
    assert reads(changed.nodes[0]) == (whole,)


@pytest.mark.parametrize("changed", [{"kind": "all-reduce"}, {"group": (0, 2)}, {"group": (1, 0)}, {"dim": 1}])
def test_a_gradient_that_other_ranks_reduce_is_not_followed(changed: dict[str, Any]) -> None:
    program, flat, value = scattered()
    program.nodes[1] = replace(program.nodes[1], **changed)  # type: ignore[arg-type]
    with pytest.raises(NotFlatError):
        FlatGradient(program).of(value, flat.laid[0], flat)


def test_gradients_of_a_flat_weight_cost_as_much_as_they_are_many() -> None:
    """A sum of a range with itself again and again is taken once."""
    program, flat, value = scattered()
    for _ in range(200):
        total = program.fresh(Type((5,), "float32"))
        program.nodes.append(Apply("aten.add.Tensor", {"self": Ref(value), "other": Ref(value)}, (total,), Mark()))
        value = total
    gradient = FlatGradient(program)
    gradient.of(value, flat.laid[0], flat)
    before = len(program.nodes)
    gradient.put()
    assert len(program.nodes) < 2 * before + 10
