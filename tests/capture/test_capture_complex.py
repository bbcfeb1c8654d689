"""Complex numbers, as pairs of real ones: right programs are proved, and no operator is taken for another one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture.test_capture_proofs import Line, lines_of, path_of, proof, prover_alone, written
from capture.test_capture_reading import capture

from tests.sampling import sampled
from tvlint.findings import Outcome
from tvlint.readers.capture.following import follow
from tvlint.readers.capture.lifting.program import Apply, Program, Ref, Type, references
from tvlint.readers.capture.pairs import Pairs
from tvlint.readers.capture.tapes.tape import Mark
from tvlint.readers.document import ReadError
from tvlint.run.proof.pair import Pair
from tvlint.run.proof.prove import prove_pair

NAME, REFERENCE = "complex_positions", "complex_positions_reference"


def outcome(folder: Path, lines: list[Line]) -> Outcome:
    (verdict,) = prove_pair(Pair(written(folder, lines), path_of(REFERENCE))).verdicts
    return verdict.outcome


def test_rotary_positions_in_complex_numbers_are_proved() -> None:
    verdict = proof(path_of(NAME), REFERENCE)
    assert verdict.outcome is Outcome.PROVED, verdict.reasons
    assert dict(verdict.facts)["recorded gradients"] == "agree with the reference's"


def is_of_pairs(line: Line, op: str, complex_tensors: set[int]) -> bool:
    return line.get("op") == op and not complex_tensors.isdisjoint(line["outputs"])


@pytest.mark.parametrize(
    ("op", "other"),
    [
        ("aten.mul.Tensor", "aten.add.Tensor"),
        ("aten.mul.Tensor", "aten.div.Tensor"),
        ("aten.conj_physical.default", "aten.clone.default"),
    ],
)
@pytest.mark.parametrize("ranks", sampled([1, 2], 2))
def test_another_operator_on_complex_numbers_is_not_proved(
    op: str, other: str, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover_alone(monkeypatch)
    lines = lines_of(NAME)
    start, found = lines.index({"rank": 1}), list[int]()
    for first, part in ((0, lines[:start]), (start, lines[start:])):
        numbers = {line["tensor"] for line in part if line.get("dtype") == "complex64" and "tensor" in line}
        found.append(next(first + at for at, line in enumerate(part) if is_of_pairs(line, op, numbers)))
    changed = [{**line, "op": other} if at in found[:ranks] else line for at, line in enumerate(lines)]
    assert outcome(tmp_path, changed) is not Outcome.PROVED


def made(base: str, *operands: Any) -> Any:
    """Return what an operator gives, run on numbers; None where it is not followed."""
    program, values = Program(0), dict[str, Any]()
    for operand in operands:
        pairs = np.stack([operand.real, operand.imag], -1) if np.iscomplexobj(operand) else operand
        values[program.fresh(Type(pairs.shape, "float32"))] = pairs
    expected = np.broadcast_shapes(*(operand.shape for operand in operands))
    arguments = {name: Ref(value) for name, value in zip(("self", "other"), values, strict=False)}
    name = Pairs(program, Mark()).of(base, arguments, [np.iscomplexobj(each) for each in operands], (*expected, 2))
    for node in program.nodes:
        assert isinstance(node, Apply)
        values[node.outputs[0]] = run(node, [values[name] for each in node.arguments.values() for name in references(each)])
        assert values[node.outputs[0]].shape == program.shape(node.outputs[0])
    return None if name is None else values[name][..., 0] + 1j * values[name][..., 1]


def run(node: Apply, read: Sequence[Any]) -> Any:
    given = node.arguments
    if node.op == "narrow":
        return read[0][..., given["start"] : given["start"] + given["length"]]  # type: ignore[operator]
    if node.op == "cat":
        return np.concatenate(read, -1)
    if node.op == "view":
        return read[0].reshape(given["size"])
    if node.op == "expand":
        return np.broadcast_to(read[0], given["size"])  # type: ignore[arg-type]
    if node.op == "aten.gather.default":
        return np.take_along_axis(read[0], read[1], given["dim"])  # type: ignore[arg-type]
    return {"mul": np.multiply, "add": np.add, "sub": np.subtract, "neg": np.negative}[node.op.split(".")[1]](*read)


ONE, OTHER = (np.random.default_rng(seed).normal(size=(2, *shape)) for seed, shape in ((1, (3, 1, 4)), (2, (5, 4))))
COMPLEX, BROADCAST = ONE[0] + 1j * ONE[1], OTHER[0] + 1j * OTHER[1]


def test_operators_on_pairs_are_those_on_complex_numbers() -> None:
    np.testing.assert_allclose(made("mul", COMPLEX, BROADCAST), COMPLEX * BROADCAST)
    np.testing.assert_allclose(made("mul", COMPLEX, OTHER[0]), COMPLEX * OTHER[0])
    np.testing.assert_allclose(made("mul", OTHER[0], COMPLEX), COMPLEX * OTHER[0])
    np.testing.assert_allclose(made("add", COMPLEX, BROADCAST), COMPLEX + BROADCAST)
    np.testing.assert_allclose(made("sub", COMPLEX, BROADCAST), COMPLEX - BROADCAST)
    np.testing.assert_allclose(made("conj_physical", COMPLEX), COMPLEX.conj())


@pytest.mark.parametrize(
    ("base", "operands"),
    [("div", (COMPLEX, BROADCAST)), ("add", (COMPLEX, OTHER[0])), ("abs", (COMPLEX,)), ("exp", (COMPLEX,))],
)
def test_other_operators_on_pairs_are_not_followed(base: str, operands: tuple[Any, ...]) -> None:
    assert made(base, *operands) is None
    assert Pairs(Program(0), Mark()).of("mul", {"self": Ref("v0"), "other": 2}, [True], (2,)) is None
    assert Pairs(Program(0), Mark()).of("add", {"self": Ref("v0"), "other": Ref("v0"), "alpha": 2}, [True, True], (2,)) is None


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_indices_choose_pairs(dim: int) -> None:
    program, index = Program(0), np.random.default_rng(3).integers(0, 3, size=(3, 4))
    numbers = ONE[0][:, 0] + 1j * ONE[1][:, 0]
    values = {program.fresh(Type(each.shape, "float32")): each for each in (np.stack([numbers.real, numbers.imag], -1), index)}
    pair, chosen = map(Ref, values)
    given = {"self": pair, "dim": dim, "index": chosen}
    name = Pairs(program, Mark()).of("gather", given, [True], (3, 4, 2))
    for node in program.nodes:
        assert isinstance(node, Apply)
        values[node.outputs[0]] = run(node, [values[name] for each in node.arguments.values() for name in references(each)])
    assert name is not None
    np.testing.assert_array_equal(values[name] @ [1, 1j], np.take_along_axis(numbers, index, dim))
    assert Pairs(program, Mark()).of("gather", given, [False], (3, 4, 2)) is None


@pytest.mark.parametrize(("size", "fits"), [([3, -1], True), ([3, 2], True), ([2, -1], False), ([3, -1, 2], False)])
def test_pairs_are_expanded_to_the_size_that_is_asked_for(size: list[int], fits: bool) -> None:
    windows = [
        {"tensor": at, "storage": 0, "offset": 0, "shape": [rows, 2], "stride": [0, 1], "dtype": "complex64"}
        for at, rows in ((0, 1), (1, 3))
    ]
    line = {"op": "aten.expand.default", "arguments": {"self": {"t": 0}, "size": size}, "outputs": [1]}
    if not fits:
        with pytest.raises(ReadError, match="another size than it is asked for"):
            capture(*windows, line)
        return
    made = follow(capture(*windows, line).tapes[0]).nodes[-1]
    assert isinstance(made, Apply)
    assert (made.op, made.arguments["size"]) == ("expand", (3, 2, 2))


def test_the_order_in_which_arguments_are_recorded_says_nothing() -> None:
    """A pair in the place of two numbers, and they in its place, would give another product of the same shape."""
    shapes = {0: ([], "complex64"), 1: ([2], "float32"), 2: ([2], "complex64")}
    windows = [
        {"tensor": number, "storage": number, "offset": 0, "shape": shape, "stride": [1] * len(shape), "dtype": dtype}
        for number, (shape, dtype) in shapes.items()
    ]
    operands = [("self", {"t": 0}), ("other", {"t": 1})]
    products = []
    for arguments in (operands, operands[::-1]):
        line = {"op": "aten.mul.Tensor", "arguments": dict(arguments), "outputs": [2]}
        product = follow(capture(*windows, line).tapes[0]).nodes[-1]
        assert isinstance(product, Apply)
        products.append(product.arguments["self"])
    pair, other = products
    assert pair == Ref("v0")
    assert other == Ref("v1")
