"""Casts to a narrower type than any that the reference has, as what they do to numbers.

A run on numbers has the precision of `float64` throughout, so that a cast changes nothing in it. Where the reference keeps all
real numbers in types of 32 bits or more, and the plan its weights and inputs too, a cast to a narrower type is a rounding that
the reference does not have. Here three operators take its place, which round in the arithmetic of `float64` to as many digits
as the type has: with `c = x * (2**k + 1)`, `c - (c - x)` is `x` rounded to `53 - k` binary digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvlint.equivalence.verdict.casts import type_of_cast
from tvlint.ir.operators import Compute, Literal, Operator
from tvlint.ir.plan import GIVEN, Plan, Tensor
from tvlint.ops.dtypes import DIGITS
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_NARROW = tuple(dtype for dtype, digits in DIGITS.items() if digits < DIGITS["float32"])
_WIDE = ("float32", "float64", "complex64", "complex128")


def with_rounding(parallel: Plan, reference: Plan) -> tuple[Plan, str] | None:
    """Return the plan in which narrowing casts round, and the type of one; None where it has none, or where the reference or
    what the plan is given is as narrow.
    """
    given = [tensor for tensor in parallel.tensors.values() if tensor.role in GIVEN]
    if not all(map(_is_wide, (*given, *reference.tensors.values()))) or any(_narrowing(reference)):
        return None
    narrow = {id(cast): dtype for cast, dtype in _narrowing(parallel)}
    if not narrow:
        return None
    segments = {
        name: replace(segment, operators=tuple(each for one in segment.operators for each in _rounded(one, narrow)))
        for name, segment in parallel.segments.items()
    }
    return replace(parallel, segments=segments), min(narrow.values())


def _is_wide(tensor: Tensor) -> bool:
    return tensor.dtype in _WIDE or tensor.dtype == "bool" or holds_whole_numbers(tensor.dtype)


def _narrowing(plan: Plan) -> Iterator[tuple[Compute, str]]:
    """Yield the casts of wide tensors to narrow types, with the type."""
    for operator in plan.operators_of(Compute):
        if not has_trait(operator.op, Trait.CONVERSION):
            continue
        dtype, operand = type_of_cast(operator, plan.tensors), operator.inputs[0]
        before = plan.tensors.get(operand) if isinstance(operand, str) else None
        if dtype in _NARROW and before is not None and before.dtype in _WIDE and len(operator.outputs) == 1:
            yield operator, dtype


def _rounded(operator: Operator, narrow: dict[int, str]) -> Iterator[Operator]:
    dtype = narrow.get(id(operator))
    if dtype is None or not isinstance(operator, Compute):
        yield operator
        return
    (result,) = operator.outputs
    operand, scaled, rest = operator.inputs[0], f"{result}.scaled", f"{result}.rest"
    factor = Literal(2 ** (DIGITS["float64"] - DIGITS[dtype]) + 1)
    yield replace(operator, op="torch.mul", inputs=(operand, factor), outputs=(scaled,), attributes={}, in_place=())
    yield replace(operator, op="torch.sub", inputs=(scaled, operand), outputs=(rest,), attributes={}, in_place=())
    yield replace(operator, op="torch.sub", inputs=(scaled, rest), outputs=(result,), attributes={}, in_place=())
