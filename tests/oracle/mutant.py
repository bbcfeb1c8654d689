"""One broken plan, and how plans are rebuilt with a change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvlint.ir.operators import Operator
from tvlint.ir.plan import Plan, Segment


@dataclass(frozen=True, slots=True)
class Mutant:
    """A plan with one mistake; `kind` is the family, `description` the place."""

    kind: str
    description: str
    plan: Plan


def with_segment(plan: Plan, segment: Segment) -> Plan:
    return replace(plan, segments={**plan.segments, segment.name: segment})


def with_operators(plan: Plan, segment: Segment, operators: list[Operator]) -> Plan:
    return with_segment(plan, replace(segment, operators=tuple(operators)))


def alike(plan: Plan, name: str, limit: int = 2) -> list[str]:
    """Other tensors of the same device, role and shape."""
    own = plan.tensors[name]
    device = name.removeprefix("g.").split(".")[0]
    found = [
        other.name
        for other in plan.tensors.values()
        if other.role is own.role
        and other.shape == own.shape
        and other.name != name
        and "@" not in other.name
        and other.name.removeprefix("g.").split(".")[0] == device
    ]
    later = [each for each in found if each > name]
    return [*found[:1], *later[:1]][:limit]
