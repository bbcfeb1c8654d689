"""All-to-alls of parts that are a dimension of their own split and join the dimensions that these are moved from and to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tvlint.ir.operators import Literal
from tvlint.readers.capture.lifting.lift import Call, Lifted, LiftedNode
from tvlint.readers.capture.lifting.program import Exchange, Program, Ref, RootValue, Type
from tvlint.readers.capture.rewriting.exchanged_places import with_exchanged_places
from tvlint.readers.capture.tapes.tape import Mark

RANKS, MARK = 2, Mark(micro_batch=0)
Steps = list[tuple[int, ...]]
"""Permutations and views in turn: a permutation names each dimension once, from 0."""


def chain(program: Program, nodes: list[LiftedNode], name: str, steps: Steps) -> str:
    for step in steps:
        array = np.empty(program.shape(name))
        turns = sorted(step) == list(range(array.ndim))
        made = program.fresh(Type((array.transpose(step) if turns else array.reshape(step)).shape, "float64"))
        inputs: tuple[Any, ...] = (Ref(name),) if turns else (Ref(name), Literal(step))
        nodes.append(
            Call("torch.permute" if turns else "torch.Tensor.view", inputs, {"dims": step} if turns else {}, (made,), MARK)
        )
        name = made
    return name


def run(nodes: list[LiftedNode], values: list[dict[str, Any]]) -> None:
    """Compute what the nodes give on every rank."""
    for node in nodes:
        if isinstance(node, Exchange):
            split, joined = node.dim or 0, node.dim if node.joined is None else node.joined
            parts = [np.split(own[node.inputs[0]], RANKS, split) for own in values]
            for rank, own in enumerate(values):
                own[node.outputs[0]] = np.concatenate([sent[rank] for sent in parts], joined)
        if isinstance(node, Call):
            source, dims, shape = node.inputs[0], node.attributes.get("dims"), node.inputs[-1]
            assert isinstance(source, Ref)
            for own in values:
                moved = (
                    own[source.name].reshape(shape.value) if isinstance(shape, Literal) else own[source.name].transpose(dims)
                )
                own[node.outputs[0]] = moved


@pytest.mark.parametrize(
    ("given", "before", "after", "along"),
    [
        ((4, 3, 5), [(2, 2, 3, 5)], [(1, 0, 2, 3), (2, 6, 5)], (0, 1)),
        ((2, 6, 5), [(2, 2, 3, 5), (1, 0, 2, 3)], [(4, 3, 5)], (1, 0)),
        ((2, 6, 5), [(2, 2, 3, 5), (1, 0, 2, 3)], [(2, 0, 1, 3), (3, 4, 5)], (1, 0)),
        ((3, 4), [(3, 2, 2), (1, 2, 0)], [(2, 0, 1), (3, 4)], (0, None)),
        ((4, 3), [], [(2, 2, 3), (1, 0, 2), (2, 6)], (0, 1)),
        ((2, 6, 5), [(2, 2, 3, 5), (1, 0, 2, 3), (4, 3, 5)], [], (1, 0)),
        ((4, 3), [], [], (0, None)),
        ((4, 3, 5), [(2, 2, 3, 5)], [(1, 0, 2, 3)], (0, None)),
    ],
)
def test_parts_are_exchanged_along_the_dimensions_that_they_are_moved_from_and_to(
    given: tuple[int, ...], before: Steps, after: Steps, along: tuple[int, int | None]
) -> None:
    program, nodes = Program(0), list[LiftedNode]()
    first = program.fresh(Type(given, "float64"))
    sent = chain(program, nodes, first, before)
    received = program.fresh(program.types[sent])
    nodes.append(Exchange("all-to-all", (sent,), (received,), tuple(range(RANKS)), MARK, dim=0))
    last = chain(program, nodes, received, after)
    program.roots.append(RootValue(last, "x", MARK))
    lifted = with_exchanged_places(Lifted(program, nodes=nodes, roots=[RootValue(last, "x", MARK)]))
    (exchange,) = (node for node in lifted.nodes if isinstance(node, Exchange))
    assert (exchange.dim, exchange.joined) == along
    numbers = [{first: np.random.default_rng(rank).random(given)} for rank in range(RANKS)]
    others = [dict(own) for own in numbers]
    run(nodes, numbers)
    run(lifted.nodes, others)
    for own, other in zip(numbers, others, strict=True):
        assert np.array_equal(own[last], other[last])
