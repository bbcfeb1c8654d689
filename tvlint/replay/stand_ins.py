"""What stands in for random numbers, and for functions of which only the annotation is known.

A plan that draws random numbers or calls a function without numbers can be run all the same, on one of the ways in which
numbers may fall and with some function that has that annotation. Two plans that are alike whatever is drawn and whatever the
function computes agree on that run. A difference shows nothing: another function may make none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any
from zlib import crc32

from tvlint.ops.field import Array
from tvlint.ops.spec import ONE, Bound, Call

_SPREAD = 1e5
"""Numbers that are drawn change by so much with the values that they are drawn by, and by nothing that rounding does."""


_Factor = tuple[Any, Sequence[str]]
"""An array with the names of its dimensions."""


class StandIns:
    """Stand-ins for what has no numbers; `used` says whether any was asked for, and `has_drawn` whether of random numbers."""

    def __init__(self) -> None:
        self.used = self.has_drawn = False

    def drawn(self, bound: Bound, operands: Sequence[Array]) -> Array:
        """Return random numbers for an operator, each of which follows from the values that it is drawn for, wherever they
        are.
        """
        import numpy as np

        assert bound.draws is not None
        self.used = self.has_drawn = True
        names, total = bound.draws.names, np.zeros(())
        for weight, place in enumerate(bound.draws.of, 1):
            spread = np.sin(3.7 * np.real(operands[place]) + weight) * weight
            total = total + _placed(spread, bound.operands[place], names)
        return np.asarray(np.mod(_SPREAD * total, 1.0))

    def results(self, bound: Bound, call: Call, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Return what some function with the annotation of the call gives.

        Along a name that may be split it does the same at every index, and adds over the names that it sums; along a name that
        may not, each index counts otherwise, and it takes the mean where that name is not left. It is linear in the operands in
        which the annotation says so.
        """
        self.used = True
        return tuple(_result(bound, call, operands, place) for place in range(len(bound.outputs)))

    def gradient(
        self, bound: Bound, call: Call, operands: Sequence[Array], incoming: Mapping[int, Array], position: int
    ) -> Array:
        """Return the vector-Jacobian product of `results` for one operand, from the gradients of results, by place."""
        import numpy as np

        self.used = True
        each = [_gradient(bound, call, operands, place, gradient, position) for place, gradient in incoming.items()]
        return np.asarray(sum(each, np.zeros(operands[position].shape)))


@dataclass(frozen=True)
class _Products:
    """A result of a stand-in: the sum of an addend times each of the factors, over all names but those of the result."""

    names: tuple[str, ...]
    factors: Mapping[int, tuple[Array, Array]]
    """By position of an operand: what it counts as, and the derivative of that by the operand, element by element."""
    weights: Sequence[_Factor]
    """What an index counts along names that may not be split, and ones along those of the result."""
    joint: Mapping[int, float]
    """By position of an operand in which the result is linear jointly with others: its factor."""
    divisor: int

    def addends(self, bound: Bound, operands: Sequence[Array]) -> list[_Factor]:
        """Return what is added up before it is multiplied, with the names of its dimensions; a one where nothing is."""
        import numpy as np

        one: list[_Factor] = [(np.ones(()), ())]
        return [(operands[at] * factor, bound.operands[at]) for at, factor in self.joint.items()] or one


def _products(bound: Bound, call: Call, operands: Sequence[Array], place: int) -> _Products:
    import numpy as np

    names = tuple(name for name in bound.outputs[place] if name != ONE)
    results = zip(bound.outputs, call.outputs, strict=False)
    declared = {name: size for held, shape in results for name, size in zip(held, shape, strict=False)}
    sizes = {**declared, **bound.sizes_of(call.op, [operand.shape for operand in operands])}
    seed = crc32(repr((call.op, bound.attributes, place)).encode()) % 97
    chosen = bound.row_wise.get(place, frozenset(range(len(operands)))) - bound.shape_only
    every = [*dict.fromkeys((*names, *(name for at in sorted(chosen) for name in bound.operands[at] if name != ONE)))]
    joint = next((group for group in bound.linear if len(group) > 1), frozenset())
    factors: dict[int, tuple[Array, Array]] = {}
    for at in sorted(chosen - joint):
        if frozenset({at}) in bound.linear:
            factors[at] = operands[at], np.ones(operands[at].shape)
        else:
            factors[at] = np.sin(operands[at] + seed + at) + 2.0, np.cos(operands[at] + seed + at)
    weights: list[_Factor]
    whole = [name for name in every if name in bound.whole and name in sizes]
    weights = [(1.0 + np.arange(sizes[name]) / sizes[name], (name,)) for name in whole]
    gone = prod(sizes[name] for name in whole if name not in names)
    weights.append((np.ones([sizes[name] for name in names]), names))
    added = {at: at + 1.0 for at in sorted(chosen & joint)}
    divisor = gone * prod(sizes[name] for name in bound.averaged & sizes.keys() - bound.whole)
    return _Products(names, factors, weights, added, divisor)


def _result(bound: Bound, call: Call, operands: Sequence[Array], place: int) -> Array:
    import numpy as np

    products = _products(bound, call, operands, place)
    factors = [*((value, bound.operands[at]) for at, (value, _) in products.factors.items()), *products.weights]
    addends = products.addends(bound, operands)
    return np.asarray(sum(_summed([addend, *factors], products.names) for addend in addends) / products.divisor)


def _gradient(bound: Bound, call: Call, operands: Sequence[Array], place: int, incoming: Array, position: int) -> Array:
    """Return the gradient of one result by one operand: the product of what came in and of everything else in the sum."""
    import numpy as np

    products, held = _products(bound, call, operands, place), bound.operands[position]
    came = incoming.reshape([size for size, name in zip(incoming.shape, bound.outputs[place], strict=True) if name != ONE])
    others: list[_Factor] = [(value, bound.operands[at]) for at, (value, _) in products.factors.items() if at != position]
    others += [(came, products.names), (np.ones(operands[position].shape), held), *products.weights]
    kept = [name for name in held if name != ONE]
    if position in products.joint:
        total = _summed(others, kept) * products.joint[position]
    elif position in products.factors:
        total = sum(_summed([addend, *others], kept) for addend in products.addends(bound, operands))
        total = total * np.reshape(products.factors[position][1], np.shape(total))
    else:
        return np.zeros(operands[position].shape)
    return np.asarray(np.reshape(total / products.divisor, operands[position].shape))


def _summed(factors: Sequence[_Factor], names: Sequence[str]) -> Any:
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
