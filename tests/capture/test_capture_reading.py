"""Captures are read without running anything of them, and every broken line is reported with its number."""

from __future__ import annotations

import gzip
import json
import struct
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from shared import ROOT

from tvlint.ir.plan import Role
from tvlint.readers.capture.assemble import Lifting, _is_sum, lift_parallel, lift_reference
from tvlint.readers.capture.following import follow
from tvlint.readers.capture.lifting.program import Apply, Exchange, GivenValue, Program, Ref, RootValue, Type
from tvlint.readers.capture.pairing import Held, Whole, _apart, _settle
from tvlint.readers.capture.rewriting.uneven_batches import with_whole_batches
from tvlint.readers.capture.tapes.lines import read_capture
from tvlint.readers.capture.tapes.tape import Capture, Mark
from tvlint.readers.document import ReadError

RECORDED = ROOT / "fixtures" / "capture" / "recorded"
HEAD = '{"tvlint_capture": 1, "ranks": 1}'
WINDOW = {"tensor": 0, "storage": 0, "offset": 0, "shape": [2, 3], "stride": [3, 1], "dtype": "float32"}
OTHER = {**WINDOW, "tensor": 1}
IN_PLACE = {"op": "aten.exp_.default", "arguments": {"self": {"t": 0}}, "outputs": [0], "writes": [0]}
EXP = {"op": "aten.exp.default", "arguments": {"self": {"t": 0}}, "outputs": [1]}
NARROW = {**WINDOW, "tensor": 1, "storage": 1, "stride": [2, 1]}
APART = ({**WINDOW, "tensor": 1, "storage": 1}, {**WINDOW, "tensor": 2, "storage": 1, "offset": 5})
SUM = {"communication": "all-reduce", "group": [0], "reduce": "sum", "inputs": [0], "outputs": [0], "work": 0}
GATHER = {"communication": "all-gather", "group": [0], "inputs": [0], "outputs": [0], "work": 0}
ALL = {"communication": "all-to-all", "inputs": [0, 0], "outputs": [0, 0]}


def capture(*lines: dict[str, Any], head: str = HEAD) -> Capture:
    text = "\n".join([head, '{"rank": 0}', *(json.dumps(line) for line in lines)])
    return read_capture("a.capture.jsonl.gz", text.encode())


def recorded(name: str) -> Capture:
    path = RECORDED / f"{name}.capture.jsonl.gz"
    return read_capture(str(path), gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize(
    ("lines", "message", "number"),
    [
        ([{"tensor": 0}], "the key `storage` is missing", 3),
        ([{**WINDOW, "stride": [1]}], "1 stride for 2 dimensions", 3),
        ([WINDOW, {"name": "w", "role": "weight", "of": 1}], "there is no tensor 1", 4),
        ([WINDOW, {"name": "w", "role": "weigth", "of": 0}], "`weigth` is not `weight` or `buffer` or `input`", 4),
        ([{"op": "aten.mm.default", "arguments": {"self": {"t": 7}}, "outputs": []}], "there is no tensor 7", 3),
        ([{"op": "aten.mm.default", "arguments": {"self": {}}, "outputs": []}], "a value of more than one kind", 3),
        ([{"op": "narrow", "arguments": {}, "outputs": []}], "`narrow` is no operator of torch", 3),
        ([{**WINDOW, "shape": [1] * 33, "stride": [1] * 33}], "an array of 33 elements where 0 to 32 belong", 3),
        ([WINDOW, {"root": 0, "values": "%"}], "the values are no base64", 4),
        ([WINDOW, {**WINDOW, "offset": 1}], "tensor 0 stands twice", 4),
        ([{"given": 0, "dtype": "float32", "bytes": 4}] * 2, "storage 0 stands twice", 4),
        ([{"place": 0, "path": "a.py", "line": 1}] * 2, "place 0 stands twice", 4),
        ([{"given": 0, "dtype": "float32", "bytes": 20}, WINDOW], "tensor 0 ends behind its storage", 4),
        ([{"given": 0, "dtype": "bool", "bytes": 5}, {**WINDOW, "dtype": "bool"}], "tensor 0 ends behind its storage", 4),
        ([{"wait": 0, "at": 1}], "there is no place 1", 3),
        ([WINDOW, {**IN_PLACE, "arguments": {}}], "`aten.exp_.default` overwrites a tensor that it is not", 4),
        ([WINDOW, {**IN_PLACE, "outputs": [0, 0], "writes": []}], "`aten.exp_.default` gives a tensor twice", 4),
        ([WINDOW, OTHER, {**IN_PLACE, "outputs": [1]}], "`aten.exp_.default` gives other tensors than those", 5),
        ([WINDOW, {"given": 0, "dtype": "float32", "bytes": 24}], "storage 0 is given after a tensor on it", 4),
        ([WINDOW, NARROW, {**EXP, "outputs": [1]}], "two elements of what `aten.exp.default` gives are in one place", 5),
        ([WINDOW, *APART, {**EXP, "outputs": [1, 2]}], "two elements of what `aten.exp.default` gives are in one", 6),
        ([WINDOW, {**SUM, "outputs": []}], "a `all-reduce` of 1 tensor gives 0", 4),
        ([WINDOW, {**SUM, "communication": "send", "peer": 0}], "a `send` of 1 tensor gives 1", 4),
        ([WINDOW, {key: own for key, own in SUM.items() if key != "reduce"}], "a `all-reduce` does not say how", 4),
        ([WINDOW, {**SUM, "splits": [4]}], "a `all-reduce` of 1 tensor takes no `splits`", 4),
        ([WINDOW, {**SUM, "root": 0}], "a `all-reduce` of 1 tensor takes no `root`", 4),
        ([WINDOW, {**GATHER, "splits": [4, 4]}], "a `all-gather` of 1 tensor takes no `splits`", 4),
        ([WINDOW, {**GATHER, "reduce": "sum"}], "a `all-gather` of 1 tensor takes no `reduce`", 4),
        ([WINDOW, {**GATHER, **ALL, "splits": [4]}], "a `all-to-all` of 2 tensors takes no", 4),
        ([WINDOW, {**SUM, "group": [0, 0]}], "a rank stands twice in a group", 4),
        ([WINDOW, {**SUM, "communication": "reduce", "root": 1}], "rank 1 is none of the group", 4),
        ([{"rank": 0}], "rank 0 is given twice, or is not one of 1", 3),
        ([{"rank": 4}], "rank 4 is given twice, or is not one of 1", 3),
        ([{"tvlint_capture": 1, "ranks": 1}], "the line belongs to no rank", 3),
        ([{"unknown": 1}], "one of the keys", 3),
    ],
)
def test_a_broken_line_is_reported(lines: list[dict[str, Any]], message: str, number: int) -> None:
    with pytest.raises(ReadError) as caught:
        capture(*lines)
    assert caught.value.problem.message.startswith(message)
    assert caught.value.problem.location.line == number


def test_a_rank_that_is_missing_is_reported() -> None:
    with pytest.raises(ReadError, match="rank 1 is missing: the capture is not complete"):
        capture(head='{"tvlint_capture": 1, "ranks": 2}')


def test_any_damage_is_a_problem_of_the_file() -> None:
    random, refused = Random(0), 0
    data = gzip.decompress((RECORDED / "mlp.capture.jsonl.gz").read_bytes())
    for _ in range(60):
        broken = bytearray(data)
        for _ in range(random.randrange(1, 4)):
            at = random.randrange(len(broken))
            broken[at : at + random.randrange(1, 40)] = random.randbytes(random.randrange(4))
        try:
            for tape in read_capture("a.capture.jsonl.gz", bytes(broken)).tapes:
                follow(tape)
        except ReadError:
            refused += 1
    assert refused > 20


def test_the_recorded_ranks_have_named_weights_and_gradients() -> None:
    found = recorded("tensor_parallel_mlp")
    assert (found.ranks, found.launch) == (2, ("tensor_parallel_mlp.py",))
    for tape in found.tapes:
        program = follow(tape)
        names = {given.named.name: given.numbers for given in program.given.values() if given.named is not None}
        assert program.gradients.keys() == names.keys()
        assert {"0.up", "0.norm.weight", "1.down_bias"} <= names.keys()
        for name, (value, numbers) in program.gradients.items():
            assert numbers is not None
            assert numbers.shape == program.shape(value) == names[name].shape


def test_operators_stand_at_the_lines_of_the_program() -> None:
    path = ROOT / "fixtures" / "capture" / "tensor_parallel_mlp.py"
    lines = path.read_text().splitlines()
    program = follow(recorded("tensor_parallel_mlp").tapes[0])
    places = [node.mark.place for node in program.nodes if isinstance(node, Apply | Exchange)]
    assert all(place is not None and lines[(place.line or 0) - 1].strip() == place.text for place in places if place)
    reductions = [node for node in program.nodes if isinstance(node, Exchange)]
    assert {(own.mark.phase, own.mark.place.text if own.mark.place else "") for own in reductions} == {
        ("forward", "dist.all_reduce(x)"),
        ("backward", "dist.all_reduce(gradient)"),
    }


def test_writes_through_views_reach_every_reader() -> None:
    whole = {**WINDOW, "shape": [4], "stride": [1]}
    half = {**whole, "tensor": 1, "offset": 2, "shape": [2]}
    found = capture(
        {"given": 0, "dtype": "float32", "bytes": 16},
        whole,
        half,
        {"op": "aten.mul_.Scalar", "arguments": {"self": {"t": 1}, "other": 2.0}, "outputs": [1], "writes": [1]},
        {**whole, "tensor": 2, "storage": 1},
        {"op": "aten.exp.default", "arguments": {"self": {"t": 0}}, "outputs": [2]},
    )
    program = follow(found.tapes[0])
    ops = [node.op for node in program.nodes if isinstance(node, Apply)]
    assert ops[-2:] == ["cat", "aten.exp.default"]
    assert "aten.mul.Scalar" in ops


@pytest.mark.parametrize("offset", [0, 2, 4])
def test_a_tensor_without_elements_is_read_of_nothing(offset: int) -> None:
    whole = {**WINDOW, "shape": [4], "stride": [1]}
    found = capture(
        {"given": 0, "dtype": "float32", "bytes": 16},
        whole,
        {"op": "aten.mul_.Scalar", "arguments": {"self": {"t": 0}, "other": 2.0}, "outputs": [0], "writes": [0]},
        {**whole, "tensor": 1, "offset": offset, "shape": [0, 4], "stride": [4, 1]},
        {**whole, "tensor": 2, "storage": 1, "shape": [0, 4], "stride": [4, 1]},
        {"op": "aten.exp.default", "arguments": {"self": {"t": 1}}, "outputs": [2]},
    )
    program = follow(found.tapes[0])
    nodes = [node for node in program.nodes if isinstance(node, Apply)]
    assert [node.op for node in nodes] == ["aten.mul.Scalar", "aten.full.default", "aten.exp.default"]
    assert [program.shape(node.outputs[0]) for node in nodes] == [(4,), (0, 4), (0, 4)]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "change",
    [lambda own: own[::-1], lambda own: [own[0]] * len(own)],
    ids=["reversed", "one for all"],
)
def test_operators_with_the_arguments_of_others_end_in_a_plan_or_in_an_error_of_the_capture(
    change: Callable[[list[Any]], list[Any]],
) -> None:
    alone = lift_reference(recorded("accumulation_reference"))
    text = gzip.decompress((RECORDED / "accumulation_fsdp.capture.jsonl.gz").read_bytes())
    lines = [json.loads(line) for line in text.splitlines()]
    for op in sorted({line["op"] for line in lines if line.get("arguments")}):
        others = [
            {**line, "arguments": dict(zip(line["arguments"], change([*line["arguments"].values()]), strict=True))}
            if line.get("op") == op and line["arguments"]
            else line
            for line in lines
        ]
        with suppress(ReadError):
            own = lift_parallel(read_capture("a", "\n".join(map(json.dumps, others)).encode()), alone)
            assert own.plan.programs or own.problem is not None


def test_an_input_whose_samples_are_alike_lies_where_another_one_shows_it() -> None:
    def lifted(name: str, reference: Lifting | None) -> Lifting:
        lines = map(json.loads, gzip.decompress((RECORDED / f"{name}.capture.jsonl.gz").read_bytes()).splitlines())
        rows = {"values": b64encode(8 * struct.pack("8f", *range(8))).decode()}
        alike = [json.dumps({**line, **rows} if line.get("given") == 6 else line) for line in lines]
        found = read_capture("a.capture.jsonl.gz", "\n".join(alike).encode())
        return lift_reference(found) if reference is None else lift_parallel(found, reference)

    parallel = lifted("data_parallel_2_micro_batches", lifted("data_parallel_reference", None))
    inputs = [whole for whole in parallel.found.wholes.values() if whole.role is Role.INPUT]
    places = [{(rank, at): held.box[0] for rank, by in whole.held.items() for at, held in by.items()} for whole in inputs]
    assert len(places) == 2
    assert places[0] == places[1]
    assert len({*places[0].values()}) == 4


def test_a_constant_shows_nothing_of_where_an_input_lies() -> None:
    first, second = (Held(((low, low + 2), (0, 4)), True) for low in (0, 2))
    wholes = {
        "constant": Whole("constant", Role.INPUT, (2,), "float32", {0: {0: Held(((0, 2),), True)}}, (2,)),
        "alike": Whole("alike", Role.INPUT, (4, 4), "int64", {0: {0: replace(first, others=(second,))}}, (2, 4)),
        "tokens": Whole("tokens", Role.INPUT, (4, 4), "int64", {0: {0: second}}, (2, 4)),
    }
    _settle(wholes, 0)
    assert wholes["alike"].held[0][0] == second


def test_the_schema_file_is_a_schema() -> None:
    from jsonschema import Draft202012Validator

    schema = json.loads((ROOT / "schemas" / "capture.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for line in gzip.decompress(Path(RECORDED / "mlp.capture.jsonl.gz").read_bytes()).splitlines():
        assert validator.is_valid(json.loads(line)), line


def test_targets_that_are_equal_in_several_micro_batches_are_those_of_one_each() -> None:
    box = {place: ((place, place + 2),) for place in (0, 2, 4)}
    first = Held(box[0], True)
    either = Held(box[0], True, others=(Held(box[4], True),))
    found = _apart({0: [either, *either.others], 1: [Held(box[2], True)], 2: [first]})
    assert {number: held.box for number, held in found.items()} == {0: box[4], 1: box[2], 2: box[0]}
    assert _apart({0: [first], 1: [first]}) == {0: first, 1: first}


@pytest.mark.parametrize(
    ("ranks", "alone", "is_sum"),
    [
        ([[4.0], [4.2]], [4.1], False),
        ([[2.0], [2.1]], [4.1], True),
        ([[2.0, 2.0], [2.1, 2.1]], [4.1], False),
        ([[1.0, 1.0], [1.1, 1.1]], [2.05, 2.15], True),
        ([[2.0, 2.0], [2.1, 2.1]], [2.05, 2.05], False),
        ([[4.0, 4.0], [4.2, 4.2]], [4.1, 4.1], False),
    ],
)
def test_losses_are_shares_of_what_the_reference_has_in_as_many_micro_batches(
    ranks: list[list[float]], alone: list[float], is_sum: bool
) -> None:
    def program(losses: list[float]) -> Any:
        roots = [RootValue("loss", "", Mark(), np.array(number)) for number in losses]
        return SimpleNamespace(lifted=SimpleNamespace(losses=roots))

    assert _is_sum([program(losses) for losses in ranks], program(alone)) is is_sum


def test_rows_that_lie_in_several_places_are_those_behind_the_rows_of_the_ranks_before() -> None:
    """Labels are few numbers: the same ones follow each other in several places."""
    whole = np.array([1, 2, 1, 2, 3])
    programs = [Program(rank) for rank in range(2)]
    for program, rows in zip(programs, (whole[:2], whole[2:]), strict=True):
        program.types["labels"] = Type(rows.shape, "int64")
        program.given["labels"] = GivenValue(None, rows)
        program.nodes.append(Apply("aten.neg.default", {"self": Ref("labels")}, ("x",), Mark()))
    for program in with_whole_batches(programs, [whole]):
        cut, _ = program.nodes
        assert isinstance(cut, Exchange)
        assert (cut.kind, cut.outputs, cut.splits) == ("chunk", ("labels",), (2, 3))
        assert [value.numbers is whole for value in program.given.values()] == [True]


def test_a_flat_buffer_to_which_another_one_is_added_is_added_up_piece_by_piece() -> None:
    """So `fully_shard` over replicas adds what it has scattered of all weights of a layer in the micro-batches before."""
    lines: list[dict[str, Any]] = []
    for storage in (0, 1):
        pieces: list[dict[str, Any]] = [
            {"offset": 0, "shape": [6], "stride": [1]}, {"offset": 0, "shape": [2], "stride": [1]},
            {"offset": 2, "shape": [2, 2]},
        ]  # fmt: skip
        lines += [
            {**OTHER, "stride": [2, 1], **piece, "storage": storage, "tensor": 3 * storage + at}
            for at, piece in enumerate(pieces)
        ]
        lines += [
            {"op": "aten.ones.default", "arguments": {"size": pieces[at]["shape"]}, "outputs": [3 * storage + at]}
            for at in (1, 2)
        ]
    added = {"op": "aten.add_.Tensor", "arguments": {"self": {"t": 0}, "other": {"t": 3}}, "outputs": [0], "writes": [0]}
    program = follow(capture(*lines, added).tapes[0])
    made = [node.outputs[0] for node in program.nodes if isinstance(node, Apply) and node.op == "aten.ones.default"]
    sums = [node for node in program.nodes if isinstance(node, Apply) and node.op == "aten.add.Tensor"]
    operands = [(node.arguments["self"], node.arguments["other"]) for node in sums]
    assert operands == [(Ref(made[0]), Ref(made[2])), (Ref(made[1]), Ref(made[3]))]
    assert len(program.nodes) == 6
