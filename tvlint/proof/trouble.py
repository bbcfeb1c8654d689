"""What goes wrong during a derivation, as it happens and as it is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tvlint.findings import Reason, Related, Scene
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import Plan
from tvlint.ir.ranks import describe
from tvlint.ops.table import spec_of

_MOST_DRAWN = 20
"""So many reasons of a verdict are drawn."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A change to try: sum `tensor` over some ranks right after `producer`."""

    tensor: str
    producer: Operator


@dataclass(frozen=True, slots=True)
class Constant:
    """A change to try: `expected` in the place of `actual` in `operator`."""

    operator: Compute
    actual: Any
    expected: Any


@dataclass(frozen=True, slots=True)
class Exchange:
    """A change to try: the gradients that `operator` takes (or gives), in the places of what they are the gradients of."""

    operator: Backward
    names: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Substitute:
    """A change to try: the operator `op` in the place of `operator`."""

    operator: Compute
    op: str


@dataclass(frozen=True, slots=True)
class Declare:
    """A change to try: the returned `tensor` declared partial, so that what the ranks return is taken together."""

    tensor: str


Fix: TypeAlias = Sum | Constant | Exchange | Substitute | Declare


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong or undecided on one rank.

    `message` tells it with `{ranks}` where the ranks go and `{subject}` where the tensors go. Troubles with the same `cause`
    are one reason; without a cause, those that differ only in their rank are.
    """

    name: str
    refutes: bool
    message: str
    rank: int
    segment: str = ""
    operator: str = ""
    source: Location | None = None
    label: str = ""
    expected: str = ""
    actual: str = ""
    repair: str = ""
    subject: str = ""
    cause: Hashable = None
    fix: Fix | None = None
    place: Operator | None = None


Draw: TypeAlias = Callable[[Sequence[Trouble]], tuple[Scene, ...]]
"""Draws what happens around the troubles of one reason."""


STOPS = frozenset({"missing-value", "wrong-dimension", "wrong-root", "wrong-shape", "wrong-view-size"})
"""What no framework runs, or may not."""


def stops(trouble: Trouble) -> bool:
    """Whether the plan may not run to its end for it, also where nothing uses what the operator would have made.

    That is left open of a call of a known operator that is not understood, and of one that by its name changes what others
    read; one that nobody knows is taken to run, and to leave its operands as they are.
    """
    if trouble.name != "unsupported-operator":
        return trouble.name in STOPS
    place = trouble.place
    return isinstance(place, Compute) and (spec_of(place.op) is not None or _changes_others(place))


_CHANGING = re.compile(
    r"(?:.*[^_]_|_*(?:set|del)(?:attr|item)_*|__i[a-z]+__|i(?:add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor|lshift|rshift|concat)"
    r"|backward|register_\w*hook|manual_seed|seed|set_\w+)",
    re.ASCII,
)
"""Functions, by the last part of their name, that change a tensor, what autograd makes of it, or what is drawn."""


def _changes_others(operator: Compute) -> bool:
    """Whether a call of an operator that nobody knows changes other values than those that it gives."""
    if operator.in_place or "out" in operator.attributes or operator.op.startswith("torch.distributed."):
        return True
    return _CHANGING.fullmatch(operator.op.rpartition(".")[2]) is not None


def at(operator: Operator, segment: str, trouble: Trouble) -> Trouble:
    """The trouble at `operator` of a segment."""
    return replace(trouble, segment=segment, source=source_of(operator), label=operator.label, place=operator)


def source_of(operator: Operator) -> Location | None:
    """Where the operator stands in the model's source; a gradient operator stands where its forward operator does."""
    forward = getattr(operator, "forward", None)
    return operator.source or (forward.source if forward is not None else None)


def reasons(plan: Plan, troubles: Iterable[Trouble], draw: Draw | None = None) -> tuple[Reason, ...]:
    """The troubles as reasons, each once, with all its ranks, those that refute first; the first ones drawn."""
    groups: dict[Hashable, list[Trouble]] = {}
    for trouble in troubles:
        key = trouble.cause or (trouble.name, trouble.message, trouble.label, trouble.source, trouble.expected)
        groups.setdefault(key, []).append(trouble)
    ordered = sorted(groups.values(), key=lambda members: not members[0].refutes)
    told = [_reason(plan, members) for members in ordered]
    if draw is not None:
        drawn = [replace(told[i], scenes=draw(ordered[i])) for i in range(min(len(told), _MOST_DRAWN))]
        told[: len(drawn)] = drawn
    return tuple(told)


def _reason(plan: Plan, troubles: Sequence[Trouble]) -> Reason:
    first = troubles[0]
    ranks = everywhere(plan, {trouble.rank for trouble in troubles})
    pointer = "/".join(part for part in (first.segment, first.label) if part)
    place = Location(plan.path, pointer=pointer)
    location = place
    related: tuple[Related, ...] = ()
    if first.source is not None:
        location = first.source if first.source.pointer else replace(first.source, pointer=pointer)
        if first.source.path != plan.path:
            related = (Related("in the plan", place),)
        if first.source.origin is not None:
            related = (Related("generated from this line of the model", first.source.origin),)
    return Reason(
        name=first.name,
        refutes=first.refutes,
        message=first.message.replace("{ranks}", describe(ranks, plan.mesh)).replace("{subject}", _subjects(troubles)),
        location=location,
        ranks=ranks,
        operator=first.operator.strip("`"),
        expected=first.expected,
        actual=first.actual,
        repair=first.repair,
        related=related,
        segments=tuple(dict.fromkeys(trouble.segment for trouble in troubles if trouble.segment)),
    )


def _subjects(troubles: Sequence[Trouble]) -> str:
    names = list(dict.fromkeys(trouble.subject for trouble in troubles if trouble.subject))
    return ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def everywhere(plan: Plan, ranks: Iterable[int]) -> tuple[int, ...]:
    """The ranks and their copies in every replica."""
    replicas = range(max(1, plan.replication.count))
    return tuple(sorted(rank + replica * plan.replication.stride for rank in ranks for replica in replicas))
