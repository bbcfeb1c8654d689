"""Operands that stand in each other's places by their names, and views that stand in the place of a transpose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Family
from tvlint.ops.spelling import USUAL_NAMES, without_overload
from tvlint.ops.table import spec_of

_NUMBERED = re.compile(r"[_\d]+$")


@dataclass(frozen=True, slots=True)
class Swapped:
    """At (`segment`, `index`), `function` takes `name` as its `role` and `other` as its `other_role`, against their names."""

    name: str
    role: str
    other: str
    other_role: str
    function: str
    segment: str
    index: int


def swapped_operands(plan: Plan) -> Iterator[Swapped]:
    """Yield the operators of which two operands have the names of each other's parameters."""
    known: dict[str, tuple[tuple[str, ...], ...]] = {}
    for segment in plan.segments.values():
        for index, operator in enumerate(segment.operators):
            if not isinstance(operator, Compute):
                continue
            if operator.op not in known:
                known[operator.op] = USUAL_NAMES.get(without_overload(operator.op).rsplit(".", 1)[-1], ())
            roles = known[operator.op]
            if not roles:
                continue
            names = [name if isinstance(name, str) else "" for name in operator.inputs[: len(roles)]]
            words = [_NUMBERED.sub("", name.partition("@")[0].rpartition(".")[2]) for name in names]
            pairs = ((one, two) for two in range(len(words)) for one in range(two))
            for one, two in pairs:
                if words[one] in roles[two] and words[two] in roles[one]:
                    function = operator.op.rpartition(".")[2]
                    yield Swapped(names[one], roles[one][0], names[two], roles[two][0], function, segment.name, index)


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
