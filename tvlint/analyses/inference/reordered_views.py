"""Views that stand in the place of a transpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Family
from tvlint.ops.table import spec_of


@dataclass(frozen=True, slots=True)
class Reordered:
    """At (`segment`, `index`) `name`, of `sizes`, is viewed as the same sizes in another order, `as_sizes`."""

    name: str
    sizes: str
    as_sizes: str
    segment: str
    index: int


def reordered_views(plan: Plan) -> Iterator[Reordered]:
    """Yield the views of a tensor with its sizes in another order, which moves elements out of their rows."""
    known: dict[str, bool] = {}
    for segment in plan.segments.values():
        for index, operator in enumerate(segment.operators):
            if not isinstance(operator, Compute) or len(operator.outputs) != 1 or not operator.inputs:
                continue
            if operator.op not in known:
                spec = spec_of(operator.op)
                known[operator.op] = spec is not None and spec.family is Family.RESHAPE
            if not known[operator.op] or not isinstance(operator.inputs[0], str):
                continue
            given, made = plan.tensors.get(operator.inputs[0]), plan.tensors.get(operator.outputs[0])
            if given is None or made is None or given.shape == made.shape or prod(given.shape) < 1:
                continue
            before, after = ([size for size in shape if size != 1] for shape in (given.shape, made.shape))
            if before != after and sorted(before) == sorted(after):
                yield Reordered(given.name, str(list(given.shape)), str(list(made.shape)), segment.name, index)
