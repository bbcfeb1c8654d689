"""Types of operands that operators of the table take together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tvlint.ir.operators import Value
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Trait

DIGITS: Mapping[str, int] = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""How many binary digits the numbers of a type have."""

_REAL = ("float16", "bfloat16", "float32", "float64")
"""Types of real numbers that operators take as they are: those of 8 bits come with scales, for kernels of their own."""
_ONE_TYPE = (Trait.CONTRACTION, Trait.CONVOLUTION)
OF_REAL_NUMBERS = (Trait.NORMALISATION, Trait.SOFTMAX, Trait.ATTENTION, Trait.CLASS_LOSS, Trait.REAL)


def expected_types(
    traits: frozenset[Trait], dtypes: Sequence[str], indices: Collection[int], attributes: Mapping[str, Value]
) -> str:
    """Return what has to be of the types of the tensor operands, where they do not fit; empty where they do or are unknown.

    `indices` are the operands that hold indices.
    """
    for position in indices:
        if dtypes[position] in _REAL or dtypes[position] == "bool":
            return f"operand {position} holds indices, which have to be whole numbers"
    numbers = [dtype for position, dtype in enumerate(dtypes[:3]) if position not in indices]
    kinds = sorted({dtype for dtype in numbers if dtype in _REAL or holds_whole_numbers(dtype)})
    if not traits.isdisjoint(_ONE_TYPE) and len(kinds) > 1 and any(kind in _REAL for kind in kinds):
        return f"the operands have to be of one type, and are {' and '.join(kinds)}"
    if not traits.isdisjoint(OF_REAL_NUMBERS) and holds_whole_numbers(dtypes[0]) and "dtype" not in attributes:
        return f"operand 0 has to hold real numbers, and is {dtypes[0]}"
    return ""


def promoted(dtypes: Collection[str]) -> str:
    """Return the type of a sum or product, element by element, of tensors of `dtypes`; empty where it is not known."""
    if len(dtypes) == 1:
        return next(iter(dtypes))
    if not all(dtype in _REAL for dtype in dtypes):
        return ""
    return "float64" if "float64" in dtypes else "float32"
