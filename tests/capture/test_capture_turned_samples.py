"""Inputs of one sample that a program reads as a column are rows of the reference's batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tvlint.readers.capture.lifting.program import Apply, GivenValue, Program, Ref, Type
from tvlint.readers.capture.rewriting.turned_samples import with_samples_as_given
from tvlint.readers.capture.tapes.tape import Mark

BATCH = np.arange(12).reshape(3, 4)


def reading(numbers: Any) -> Program:
    program = Program(0)
    name, made = (program.fresh(Type(numbers.shape, "int64")) for _ in range(2))
    program.given[name] = GivenValue(None, numbers)
    program.nodes.append(Apply("aten.neg.default", {"self": Ref(name)}, (made,), Mark(micro_batch=2)))
    return program


def test_a_column_that_is_a_row_of_the_batch_is_turned() -> None:
    program = with_samples_as_given(reading(BATCH[1:2].T), [BATCH])
    turn, read = program.nodes
    assert isinstance(turn, Apply)
    ((name, given),) = program.given.items()
    assert (turn.op, turn.arguments["self"], turn.mark.micro_batch) == ("permute", Ref(name), 2)
    assert isinstance(read, Apply)
    assert read.arguments["self"] == Ref(turn.outputs[0])
    np.testing.assert_array_equal(given.numbers, BATCH[1:2])


@pytest.mark.parametrize("numbers", [BATCH[1:2], BATCH[1:2].T + 1, BATCH[:, :1]], ids=["row", "other numbers", "column"])
def test_what_is_no_row_of_the_batch_stays(numbers: Any) -> None:
    program = reading(numbers)
    assert with_samples_as_given(program, [BATCH]) is program
