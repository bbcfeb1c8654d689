"""What stands in for random numbers, and for functions of which only the annotation is known.

A plan that draws random numbers or calls a function without numbers can be run all the same, on one of the ways in which
numbers may fall and with some function that has that annotation. Two plans that are alike whatever is drawn and whatever the
function computes agree on that run. A difference shows nothing: another function may make none, and right plans may draw
numbers in another order. Where all that is drawn is one number, the greatest, no order counts, and nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from zlib import crc32

from tvlint.ops.field import Array, Field
from tvlint.ops.named_arrays import as_array, sum_of_products
from tvlint.ops.spec import ONE, Bound, Call

_SPREAD = 1e5
"""Numbers that are drawn change by so much with the values that they are drawn by, and by nothing that rounding does."""

_GREATEST = 1 - 2**-24
"""The greatest number that is drawn."""


_Factor = tuple[Any, Sequence[str]]
"""An array with the names of its dimensions."""


class StandIns:
    """Stand-ins for what has no numbers; `used` says whether any was asked for, and `has_drawn` whether of random numbers."""

    def __init__(self, drops: bool = True) -> None:
        self.used = self.has_drawn = False
        self.drops = drops

    def drawn(self, bound: Bound, operands: Sequence[Array]) -> Array:
        """Return random numbers for an operator, each of which follows from the values that it is drawn for, wherever they
        are; where nothing drops, each is the greatest.
        """
        import numpy as np

        assert bound.draws is not None
        if self.drops:
            self.used = self.has_drawn = True
        names, total = bound.draws.names, np.zeros(())
        for weight, place in enumerate(bound.draws.of, 1):
            spread = np.sin(3.7 * np.real(operands[place]) + weight) * weight
            total = total + _placed(spread, bound.operands[place], names)
        return np.asarray(np.mod(_SPREAD * total, 1.0) if self.drops else 0 * total + _GREATEST)

    def results(self, bound: Bound, call: Call, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
        """Return what some function with the annotation of the call gives.

        Along a name that may be split it does the same at every index, and adds over the names that it sums; along a name that
        may not, each index counts otherwise, and it takes the mean where that name is not left. It is linear in the operands in
        which the annotation says so.
        """
        self.used = True
        return tuple(_result(bound, call, operands, place, field) for place in range(len(bound.outputs)))


def _result(bound: Bound, call: Call, operands: Sequence[Array], place: int, field: Field) -> Array:
    """Return the sum of an addend times each of the factors, over all names but those of the result."""
    import numpy as np

    names = tuple(name for name in bound.outputs[place] if name != ONE)
    results = zip(bound.outputs, call.outputs, strict=False)
    declared = {name: size for held, shape in results for name, size in zip(held, shape, strict=False)}
    sizes = {**declared, **bound.sizes_of(call.op, [operand.shape for operand in operands])}
    seed = crc32(repr((call.op, bound.attributes, place)).encode()) % 97
    chosen = bound.row_wise.get(place, frozenset(range(len(operands)))) - bound.shape_only
    every = [*dict.fromkeys((*names, *(name for at in sorted(chosen) for name in bound.operands[at] if name != ONE)))]
    joint = next((group for group in bound.linear if len(group) > 1), frozenset())
    factors: list[_Factor] = []
    for at in sorted(chosen - joint):
        is_linear = frozenset({at}) in bound.linear
        factor = operands[at] if is_linear else field.function("sin", operands[at] + (seed + at)) + 2.0
        factors.append((factor, bound.operands[at]))
    whole = [name for name in every if name in bound.whole and name in sizes]
    factors += [(1.0 + np.arange(sizes[name]) / sizes[name], (name,)) for name in whole]
    factors.append((np.ones([sizes[name] for name in names]), names))
    added: list[_Factor] = [(operands[at] * (at + 1.0), bound.operands[at]) for at in sorted(chosen & joint)]
    gone = prod(sizes[name] for name in whole if name not in names)
    divisor = gone * prod(sizes[name] for name in bound.averaged & sizes.keys() - bound.whole)
    total: Any = 0.0
    for addend in added or [(np.ones(()), ())]:
        total = total + sum_of_products([addend, *factors], names)
    return as_array(total * (1 / divisor))


def _placed(value: Array, held: Sequence[str], names: Sequence[str]) -> Array:
    """Return the sum of a value over the names that are not asked for, its dimensions in the places of those that are."""
    import numpy as np

    summed = sum_of_products([(value, held)], [name for name in names if name in held])
    sizes = dict(zip(held, value.shape, strict=True))
    return np.asarray(summed).reshape([sizes.get(name, 1) for name in names])
