"""What stands in for random numbers, and for functions of which only the annotation is known.

A plan that draws random numbers or calls a function without numbers can be run all the same, on one of the ways in which
numbers may fall and with some function that has that annotation. Two plans that are alike whatever is drawn and whatever the
function computes agree on that run. A difference shows nothing: another function may make none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from tvlint.ops.field import Array
from tvlint.ops.spec import ONE, Bound, Call

_SPREAD = 1e5
"""Numbers that are drawn change by so much with the values that they are drawn by, and by nothing that rounding does."""


class StandIns:
    """Stand-ins for what has no numbers; `used` says whether any was asked for."""

    def __init__(self) -> None:
        self.used = False

    def drawn(self, bound: Bound, operands: Sequence[Array]) -> Array:
        """Return random numbers for an operator, each of which follows from the values that it is drawn for, wherever they
        are.
        """
        import numpy as np

        assert bound.draws is not None
        self.used = True
        names, total = bound.draws.names, np.zeros(())
        for weight, place in enumerate(bound.draws.of, 1):
            spread = np.sin(3.7 * np.real(operands[place]) + weight) * weight
            total = total + _placed(spread, bound.operands[place], names)
        return np.asarray(np.mod(_SPREAD * total, 1.0))

    def results(self, bound: Bound, call: Call, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Return what some function with the annotation of the call gives.

        Along a name that may be split it does the same at every index, and adds over the names that it sums; along a name that
        may not, each index counts otherwise. It is linear in the operands in which the annotation says so.
        """
        self.used = True
        return tuple(_result(bound, call, operands, place) for place in range(len(bound.outputs)))


def _result(bound: Bound, call: Call, operands: Sequence[Array], place: int) -> Array:
    import numpy as np

    names = [name for name in bound.outputs[place] if name != ONE]
    every = [*dict.fromkeys((*names, *(name for held in bound.operands for name in held if name != ONE)))]
    sizes = bound.sizes_of(call.op, [operand.shape for operand in operands])
    seed = crc32(repr((call.op, bound.attributes, place)).encode()) % 97
    chosen = bound.row_wise.get(place, frozenset(range(len(operands))))
    joint = next((group for group in bound.linear if len(group) > 1), frozenset())
    factors: list[tuple[Any, Sequence[str]]] = []
    for at in sorted(chosen - joint):
        linear = frozenset({at}) in bound.linear
        factors.append((operands[at] if linear else np.sin(operands[at] + seed + at) + 2.0, bound.operands[at]))
    for name in every:
        if name in bound.whole and name in sizes:
            factors.append((1.0 + np.arange(sizes[name]) / sizes[name], (name,)))
    addends = [(operands[at] * (at + 1.0), bound.operands[at]) for at in sorted(chosen & joint)] or [(np.ones(()), ())]
    total = sum(_summed([addend, *factors], names) for addend in addends)
    for name in sorted(bound.averaged & sizes.keys()):
        total = total / sizes[name]
    return np.asarray(total)


def _summed(factors: Sequence[tuple[Any, Sequence[str]]], names: Sequence[str]) -> Any:
    """Return the sum of products over all names that are not asked for."""
    import numpy as np

    numbers = {name: at for at, name in enumerate(dict.fromkeys(name for _, held in factors for name in held if name != ONE))}
    arguments: list[Any] = []
    for array, held in factors:
        kept = [(size, name) for size, name in zip(np.shape(array), held, strict=True) if name != ONE]
        arguments += [np.reshape(array, [size for size, _ in kept]), [numbers[name] for _, name in kept]]
    return np.einsum(*arguments, [numbers[name] for name in names], optimize=True)


def _placed(value: Array, held: Sequence[str], names: Sequence[str]) -> Array:
    """Return the sum of a value over the names that are not asked for, its dimensions in the places of those that are."""
    import numpy as np

    summed = _summed([(value, held)], [name for name in names if name in held])
    sizes = dict(zip(held, value.shape, strict=True))
    return np.asarray(summed).reshape([sizes.get(name, 1) for name in names])
