"""What a sum or an extreme over ranks of different values is: that of them, as operators of the plan would make it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from tvlint.analyses.relations.derivation.forward_rules import applied
from tvlint.analyses.relations.derivation.state import Machine, Slot
from tvlint.analyses.relations.transfer.collectives import chunk
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.groups import Members
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Value
from tvlint.ir.operators import Collective, Communicate, Compute, Literal
from tvlint.ir.reductions import ADDING
from tvlint.ops.spec import UnsupportedError


def added_up(machine: Machine, operator: Communicate, members: Members, given: Sequence[Value]) -> dict[int, Slot] | None:
    """Return what a collective makes of different values, in the order of its members; None where one of them is not whole."""
    if operator.reduce not in ADDING or operator.kind not in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER):
        return None
    groups = dict[int, list[Value]]()
    for value in given:
        groups.setdefault(value.term, []).append(value)
    world, total = machine.world, None
    try:
        for _, alike in sorted(groups.items()):
            one = world.values.sum_over(-1, alike)
            if one is None or not one.clean:
                return None
            total = one if total is None else applied(machine, Compute("torch.add", ("sum", "other"), ("",)), total, one)
        if total is None:
            return None
        if operator.reduce == "avg" and prod(world.terms.shape[total.term]) == 1:
            total = applied(machine, Compute("torch.div", ("sum", Literal(len(members))), ("",)), total)
            machine.derived.averaged[total.term] = operator
        elif operator.reduce == "avg":
            total = world.values.scaled(total, Fraction(1, len(members)))
        if operator.kind is Collective.ALL_REDUCE:
            return dict.fromkeys(members.ranks, total)
        dim = (operator.dim or 0) % len(total.box)
        return {rank: chunk(world, total, dim, place, len(members)) for place, rank in enumerate(members.ranks)}
    except (AmbiguousSumError, Mismatch, UnsupportedError):
        return None


def extreme_of(machine: Machine, operator: Communicate, members: Members, given: Sequence[Value]) -> dict[int, Slot] | None:
    """Return the greatest or least of different values on every member, element by element; None where one is not whole."""
    name = {"max": "torch.maximum", "min": "torch.minimum"}.get(operator.reduce)
    if name is None or operator.kind is not Collective.ALL_REDUCE or not all(value.clean for value in given):
        return None
    found, *others = dict.fromkeys(given)
    try:
        for other in others:
            found = applied(machine, Compute(name, ("one", "other"), ("",)), found, other)
    except (Mismatch, UnsupportedError):
        return None
    return dict.fromkeys(members.ranks, found)
