"""The whole values that both plans are given alike: random numbers, and other content where a run asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeAlias

from tvlint.analyses.relations.derivation.given.trusted_inputs import whole_shape
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan, Role
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.field import Array
from tvlint.ops.table import bound_in

Whole: TypeAlias = Callable[[str, str, tuple[int, ...], str], Array]
"""The numbers of a whole value: by its role, its full name, its shape and its type."""

Contents: TypeAlias = Mapping[tuple[str, str], Callable[[Array], Array]]
"""What takes the place of the random numbers of tensors, by role and full name."""


def random_numbers(seed: int, below: int, contents: Contents | None = None, spread: float = 1.5) -> Whole:
    """Return what gives every whole value numbers of its own, the same to both plans, and some of them other content."""
    import numpy as np

    known: dict[tuple[str, str, tuple[int, ...]], Array] = {}

    def whole(role: str, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        key = (role, name, shape)
        if key not in known:
            random = np.random.default_rng([seed, *f"{role} {name}".encode()])
            if dtype.rsplit(".", 1)[-1].startswith("bool"):
                known[key] = random.integers(0, 2, shape).astype(float)
            elif holds_whole_numbers(dtype):
                known[key] = _indices(random, below, shape).astype(float)
            else:
                known[key] = random.uniform(-spread, spread, shape)
            if contents is not None and (role, name) in contents:
                known[key] = contents[role, name](known[key])
        return known[key]

    return whole


def _indices(random: Any, below: int, shape: tuple[int, ...]) -> Array:
    """Return random indices, with the first and the last among them, where ranges end, or with all where there is room."""
    found: Array = random.integers(0, below, prod(shape))
    among = [*range(below)] if len(found) >= 2 * below else [0, below - 1]
    if len(found) >= len(among):
        found[random.permutation(len(found))[: len(among)]] = among
    return found.reshape(shape)


def least_index(reference: Plan) -> int:
    """Return a number of which all that are below it are indices of every table that is looked up in, and classes of losses."""
    computed = [*reference.operators_of(Compute)]
    looked_up = [size for operator in computed for size in lengths_looked_up(reference, operator).values()]
    weights = (tensor for tensor in reference.tensors.values() if tensor.role is Role.WEIGHT)
    sizes = looked_up or [size for tensor in weights for size in whole_shape(tensor) if size > 1]
    return min(sizes, default=2)


def lengths_looked_up(plan: Plan, operator: Compute) -> dict[str, int]:
    """Return the lengths of the dimensions in which the operator looks something up, by the tensor that holds the indices."""
    bound, names = bound_in(operator, plan.tensors), operator.tensor_operands
    if bound is None:
        return {}
    sizes = {
        name: size
        for operand, tensor in zip(bound.operands, names, strict=False)
        for name, size in zip(operand, plan.tensors[tensor].shape, strict=True)
    }
    return {names[place]: sizes[name] for place, name in bound.indices.items() if name in sizes}
