"""Marked elements are followed through operators as the elements themselves move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tvlint.readers.capture.lifting.masks import masks_of
from tvlint.readers.capture.lifting.program import Apply, Argument, Program, Ref, Type
from tvlint.readers.capture.tapes.tape import Mark

MARKED = np.array([[True, False, False], [False, False, True]])


@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        ("permute", {"dims": (1, 0)}, MARKED.T),
        ("view", {"size": (3, 2)}, MARKED.reshape(3, 2)),
        ("narrow", {"dim": 1, "start": 1, "length": 2}, MARKED[:, 1:]),
        ("aten.mul.Tensor", {"other": 2}, MARKED),
        ("aten.sort.default", {}, np.ones((2, 3), dtype=bool)),
        ("aten.sum.default", {}, np.ones((), dtype=bool)),
    ],
)
def test_marks_move_with_their_elements(op: str, arguments: dict[str, Argument], expected: Any) -> None:
    program = Program(0)
    source, made = program.fresh(Type((2, 3), "float32")), program.fresh(Type(expected.shape, "float32"))
    node = Apply(op, {"self": Ref(source), **arguments}, (made,), Mark())
    marked = np.ones((2, 3), dtype=bool) if op == "aten.sort.default" else MARKED
    np.testing.assert_array_equal(masks_of(node, {source: marked}, program)[made], expected)
    assert masks_of(node, {}, program) == {}


def test_what_is_joined_keeps_the_marks_of_its_parts() -> None:
    program = Program(0)
    one, other, made = (program.fresh(Type(shape, "float32")) for shape in ((2, 3), (1, 3), (3, 3)))
    node = Apply("cat", {"tensors": (Ref(one), Ref(other)), "dim": 0}, (made,), Mark())
    expected = np.concatenate([MARKED, np.zeros((1, 3), dtype=bool)])
    np.testing.assert_array_equal(masks_of(node, {one: MARKED}, program)[made], expected)
