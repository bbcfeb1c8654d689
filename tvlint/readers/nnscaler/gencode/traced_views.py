"""Views in a traced graph, for a batch of another size than it was traced with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from tvlint.ir.operators import Compute
from tvlint.ops.spec import Family
from tvlint.ops.table import spec_of
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind


def reshaped(operator: Compute, traced: Mapping[str, Kind], kinds: Mapping[str, Kind]) -> Compute:
    """Return a view whose sizes fit the operand with all slots; other operators as they are."""
    spec = spec_of(operator.op)
    names = operator.tensor_operands
    if spec is None or spec.family is not Family.RESHAPE or not names or len(operator.outputs) != 1:
        return operator
    if names[0] not in kinds or names[0] not in traced or operator.outputs[0] not in traced:
        return operator
    before, after = traced[names[0]][0], traced[operator.outputs[0]][0]
    now = kinds[names[0]][0]
    differing = [dim for dim, (one, other) in enumerate(zip(before, now, strict=False)) if one != other]
    if len(before) != len(now) or len(differing) != 1:
        return operator
    dim = differing[0]
    place = next(_places(after, prod(before[:dim])), None)
    if place is None:
        return operator
    size = (*after[:place], after[place] * (now[dim] // before[dim]), *after[place + 1 :])
    return replace(operator, op="torch.Tensor.view", inputs=(names[0],), attributes={"size": size})


def _places(shape: tuple[int, ...], product: int) -> Iterator[int]:
    """Yield the dimensions of `shape` that begin after `product` elements of the outer ones, those longer than 1 first."""
    found = [dim for dim in range(len(shape)) if prod(shape[:dim]) == product]
    yield from (dim for dim in found if shape[dim] > 1)
    yield from (dim for dim in found if shape[dim] == 1)
