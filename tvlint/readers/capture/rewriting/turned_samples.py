"""Inputs of one sample that the program turns: the numbers lie in memory as before, so nothing records that it did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tvlint.readers.capture.lifting.program import Apply, Array, Node, Program, Ref, reads
from tvlint.readers.capture.placing import boxes_of


def with_samples_as_given(program: Program, wholes: Iterable[Array]) -> Program:
    """Return the program with inputs of one sample as rows where it reads them as columns, and the reference is given rows."""
    known = [whole for whole in wholes if whole.ndim == 2]
    turned = {name for name in program.given if _is_turned(program, name, known)}
    if not turned:
        return program
    given, types = dict(program.given), dict(program.types)
    made = replace(program, given=given, types=types)
    nodes: list[Node] = []
    for node in program.nodes:
        for name in turned.intersection(reads(node)):
            turned.discard(name)
            value, type = given.pop(name), types[name]
            row = made.fresh(type.of_shape(type.shape[::-1]))
            given[row] = replace(value, numbers=None if value.numbers is None else value.numbers.T)
            nodes.append(Apply("permute", {"self": Ref(row), "dims": (1, 0)}, (name,), node.mark))
        nodes.append(node)
    return replace(made, nodes=nodes)


def _is_turned(program: Program, name: str, known: list[Array]) -> bool:
    value, shape = program.given[name], program.shape(name)
    if value.named is not None or value.numbers is None or len(shape) != 2 or shape[1] != 1 or shape[0] == 1:
        return False
    numbers = value.numbers
    return not any(boxes_of(numbers, whole) for whole in known) and any(boxes_of(numbers.T, whole) for whole in known)
