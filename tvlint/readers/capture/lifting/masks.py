"""Follow marked elements through the operators that move tensors, join them, or work on each element by itself."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.readers.capture.lifting.lift import function_of, sizes
from tvlint.readers.capture.lifting.program import Apply, Array, Exchange, Program, reads
from tvlint.readers.capture.tapes.spelling import MOVES


def masks_of(node: Apply | Exchange, masks: Mapping[str, Array], program: Program) -> dict[str, Array]:
    """Return the masks of a node's results, where it reads anything that is marked.

    A result of another operator than those is marked as a whole.
    """
    import numpy as np

    if not any(name in masks for name in reads(node)):
        return {}
    made = {name: np.ones(program.shape(name), dtype=bool) for name in node.outputs}
    if len(node.outputs) != 1:
        return made
    (result,) = node.outputs
    held = [masks.get(name, np.zeros(program.shape(name), dtype=bool)) for name in reads(node)]
    if isinstance(node, Apply) and node.op in MOVES:
        return {result: moved(node, held[0])}
    if isinstance(node, Apply) and function_of(node.op) == "cat":
        dim = node.arguments.get("dim", 0)
        return {result: np.concatenate(held, dim)} if isinstance(dim, int) else made
    if all(mask.shape in (made[result].shape, ()) for mask in held):
        return {result: np.broadcast_to(np.logical_or.reduce(np.broadcast_arrays(*held)), made[result].shape)}
    return made


def moved(node: Apply, mask: Array) -> Array:
    """Return the elements of an array where a move puts them."""
    import numpy as np

    def given(name: str) -> tuple[int, ...]:
        return sizes(node.arguments[name])

    if node.op == "permute":
        reordered: Array = mask.transpose(given("dims"))
        return reordered
    if node.op == "view":
        viewed: Array = mask.reshape(given("size"))
        return viewed
    if node.op == "expand":
        repeated: Array = np.broadcast_to(mask, given("size"))
        return repeated
    (dim,), (start,), (length,) = (given(name) for name in ("dim", "start", "length"))
    taken: Array = mask.take(range(start, start + length), dim)
    return taken
