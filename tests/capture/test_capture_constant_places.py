"""Places that a program chooses by numbers that it makes itself are ranges; what may be data stays a choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tvlint.readers.capture.lifting.program import Apply, GivenValue, Program, Ref, Type
from tvlint.readers.capture.rewriting.constant_places import with_constant_places
from tvlint.readers.capture.tapes.tape import Mark

BATCH = np.arange(12).reshape(3, 4)
TABLE = np.arange(16.0).reshape(8, 2)


def choosing(places: Any, in_chunks: bool) -> Program:
    """Return a program that chooses rows of a table, or chunks of two rows, which it views as rows again."""
    program = Program(0)
    table = program.fresh(Type((8, 2), "float32"))
    index = program.fresh(Type(np.shape(places), "int64"))
    program.given[table] = GivenValue(None, TABLE)
    program.given[index] = GivenValue(None, np.array(places))
    source, shape = table, (len(places), 2)
    if in_chunks:
        source, shape = program.fresh(Type((4, 2, 1, 2), "float32")), (len(places), 2, 1, 2)
        program.nodes.append(Apply("view", {"self": Ref(table), "size": (4, 2, 1, 2)}, (source,), Mark()))
    made = program.fresh(Type(shape, "float32"))
    chosen = {"self": Ref(source), "dim": 0, "index": Ref(index)}
    program.nodes.append(Apply("aten.index_select.default", chosen, (made,), Mark()))
    if in_chunks:
        rows = program.fresh(Type((2 * len(places), 1, 2), "float32"))
        program.nodes.append(Apply("view", {"self": Ref(made), "size": (2 * len(places), 1, 2)}, (rows,), Mark()))
    return program


def numbers_of(program: Program) -> Any:
    """Return what the last operator of a program of moves gives."""
    values = {name: given.numbers for name, given in program.given.items()}
    for node in program.nodes:
        assert isinstance(node, Apply)
        has = node.arguments
        if node.op == "cat":
            made: Any = np.concatenate([values[part.name] for part in has["tensors"]], has["dim"])
        elif node.op == "narrow":
            made = values[has["self"].name].take(range(has["start"], has["start"] + has["length"]), has["dim"])
        else:
            made = values[has["self"].name].reshape(has["size"])
        values[node.outputs[0]] = made
        assert made.shape == program.shape(node.outputs[0])
    return values[program.nodes[-1].outputs[0]]


@pytest.mark.parametrize("places", [(0, 3), (1, 2), (3, 0, 1), (2, 2)])
@pytest.mark.parametrize("in_chunks", [False, True])
def test_places_that_are_chosen_are_ranges(places: tuple[int, ...], in_chunks: bool) -> None:
    found = with_constant_places(choosing(places, in_chunks), [BATCH])
    wanted = TABLE.reshape(4, 2, 1, 2)[list(places)].reshape(-1, 1, 2) if in_chunks else TABLE[list(places)]
    np.testing.assert_array_equal(numbers_of(found), wanted)
    assert len(found.given) == len(found.chosen) == 1


def test_ranges_of_chunks_are_rows_of_what_was_viewed() -> None:
    found = with_constant_places(choosing((0, 3), True), [BATCH])
    ranges = [node for node in found.nodes if isinstance(node, Apply) and node.op == "narrow"]
    assert [(node.arguments["start"], node.arguments["length"]) for node in ranges] == [(0, 2), (6, 2)]
    assert {found.shape(node.arguments["self"].name) for node in ranges} == {(8, 2)}


def test_numbers_that_the_reference_is_given_may_be_data() -> None:
    program = choosing((0, 3), False)
    assert with_constant_places(program, [np.array([0, 3, 1, 2])]) is program


@pytest.mark.parametrize("op", ["aten.neg.default", "aten.embedding.default"])
def test_numbers_that_something_else_reads_too_stay(op: str) -> None:
    program = choosing((0, 3), False)
    index = next(name for name, given in program.given.items() if given.numbers.dtype.kind == "i")
    made = program.fresh(Type((2,), "int64"))
    program.nodes.append(Apply(op, {"self": Ref(index)}, (made,), Mark()))
    assert with_constant_places(program, [BATCH]) is program


@pytest.mark.parametrize("dim", [None, "first", 9])
def test_a_choice_along_no_dimension_stays(dim: Any) -> None:
    program = choosing((0, 3), False)
    choice = program.nodes[-1]
    assert isinstance(choice, Apply)
    program.nodes[-1] = replace(choice, arguments={**choice.arguments, "dim": dim})
    assert with_constant_places(program, [BATCH]) is program
