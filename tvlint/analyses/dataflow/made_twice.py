"""Values of forward segments that are lost: another value takes their name before anything reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.def_use import overwritten, uses, writes
from tvlint.ir.operators import Compute, Operator
from tvlint.ir.plan import Phase, Plan, Role


@dataclass(frozen=True, slots=True)
class MadeTwice:
    """The operators at `first` and at `where` both make `name`, whose first value nothing reads."""

    name: str
    where: tuple[str, int]
    first: tuple[str, int]


def made_twice(plan: Plan) -> Iterator[MadeTwice]:
    """Yield the names of a forward segment under which a computed value takes the place of one that nothing has read.

    A name may be used again once its value was read, and where one of several results is not wanted; what computes a value
    again gives the same one; what fills a buffer in place, and gradients, which add up, replace nothing.
    """
    for segment in plan.segments.values():
        if segment.phase is not Phase.FORWARD:
            continue
        unread: dict[str, int] = {}
        for index, operator in enumerate(segment.operators):
            for name in (*uses(operator), *overwritten(operator)):
                unread.pop(name, None)
            for name in writes(operator):
                tensor = plan.tensors.get(name)
                is_lost = name in unread and not _is_again(segment.operators[unread[name]], operator)
                if is_lost and isinstance(operator, Compute) and (tensor is None or tensor.role is not Role.GRADIENT):
                    yield MadeTwice(name, (segment.name, index), (segment.name, unread[name]))
                unread.pop(name, None)
            if len(writes(operator)) == 1:
                unread[writes(operator)[0]] = index


def _is_again(first: Operator, second: Operator) -> bool:
    """Return whether the second operator computes what the first one does."""
    return isinstance(first, Compute) and replace(first, source=None, label="") == replace(second, source=None, label="")
