"""Values of forward segments that two operators make under one name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Phase, Plan, Role


@dataclass(frozen=True, slots=True)
class MadeTwice:
    """Operators `first` and `second` of `segment` both make `name`, the second one not out of the first."""

    segment: str
    first: int
    second: int
    name: str


def made_twice(plan: Plan) -> Iterator[MadeTwice]:
    """Yield the names that a forward segment gives to two values, the second of them computed.

    What an operator makes out of a value may take its name, a message may fill a buffer again, and gradients add up.
    """
    for segment in plan.segments.values():
        if segment.phase is not Phase.FORWARD:
            continue
        made: dict[str, int] = {}
        for index, operator in enumerate(segment.operators):
            for name in writes(operator):
                tensor = plan.tensors.get(name)
                renewed = name in reads(operator) or name in overwritten(operator)
                is_new = isinstance(operator, Compute) and not renewed
                if name in made and is_new and (tensor is None or tensor.role is not Role.GRADIENT):
                    yield MadeTwice(segment.name, made[name], index, name)
                made[name] = index
