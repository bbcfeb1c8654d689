"""Defects found while deriving relations, and how they are merged into reasons of a verdict."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tvlint.analyses.relations.grounds import REFUTING
from tvlint.findings import Reason, Related, Scene
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import Plan
from tvlint.ir.ranks import describe
from tvlint.ops.annotations.declared import with_plain_names

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
class Defect:
    """One thing that is wrong or undecided on one rank.

    `message` tells it with `{ranks}` where the ranks go and `{subject}` where the tensors go. Defects with the same `cause`
    are one reason; without a cause, those that differ only in their rank are. `unless` is what may make it right in a plan that
    has no reference: a plan is warned of it, not refuted.
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
    unless: str = ""


Draw: TypeAlias = Callable[[Sequence[Defect]], tuple[Scene, ...]]
"""Draws what happens around the defects of one reason."""


STOPS = frozenset(
    {"use-before-definition", "root-only-result-used", "absent-gradient"}
    | {"shape-mismatch", "wrong-dimension", "wrong-root", "wrong-shape-claim", "wrong-view-size"}
)
"""What no framework runs, or may not."""


def stops(defect: Defect) -> bool:
    """Return whether the defect keeps the plan from being proved, also where nothing uses what the operator would have made.

    It does where no framework runs the operator, and where it is not known what a call does.
    """
    return defect.name in STOPS or (defect.name == "unsupported-operator" and isinstance(defect.place, Compute))


def at(operator: Operator, segment: str, defect: Defect) -> Defect:
    """Return the defect at `operator` of a segment."""
    return replace(defect, segment=segment, source=source_of(operator), label=operator.label, place=operator)


def source_of(operator: Operator) -> Location | None:
    """Return where the operator stands in the model's source; a gradient operator stands where its forward operator does."""
    forward = getattr(operator, "forward", None)
    return operator.source or (forward.source if forward is not None else None)


def reasons(plan: Plan, defects: Iterable[Defect], draw: Draw | None = None) -> tuple[Reason, ...]:
    """Return the defects as reasons, each once, with all its ranks, those that refute first; the first ones drawn."""
    groups: dict[Hashable, list[Defect]] = {}
    for defect in defects:
        key = defect.cause or (defect.name, defect.message, defect.label, defect.source, defect.expected)
        groups.setdefault(key, []).append(defect)
    ordered = sorted(groups.values(), key=lambda members: not members[0].refutes)
    reported = [_reason(plan, members) for members in ordered]
    if draw is not None:
        reported[:_MOST_DRAWN] = [drawn(*each) for each in zip(reported[:_MOST_DRAWN], map(draw, ordered), strict=False)]
    return tuple(reported)


def drawn(reason: Reason, scenes: tuple[Scene, ...]) -> Reason:
    """Return the reason with the scenes of its defect, and the way by which the wrong value comes to it in the first one."""
    way = [led for scene in scenes[:1] for led in _way(scene) if led.location != reason.location]
    return replace(reason, scenes=scenes, related=(*way, *reason.related))


def _way(scene: Scene) -> Iterator[Related]:
    """Yield the operators by way of which the wrong value comes to the one to blame, from its cause on."""
    wrong: set[str] = set()
    led = []
    for step in reversed(scene.steps):
        made = [piece for piece in step.gives if piece.tensor in wrong]
        if step.blamed or made:
            wrong.update(piece.tensor for piece in step.reads if piece.lacks)
        if made and step.location is not None:
            said = ", ".join(f"`{piece.tensor}` ({piece.lacks})" for piece in made)
            led.append(Related(f"`{step.operator}` gives {said}", step.location, leads=True))
    yield from reversed(led)


def _reason(plan: Plan, defects: Sequence[Defect]) -> Reason:
    first = defects[0]
    if first.refutes and first.name not in REFUTING:
        raise AssertionError(f"nothing says why `{first.name}` refutes")
    ranks = everywhere(plan, {defect.rank for defect in defects})
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
    message = first.message.replace("{ranks}", describe(ranks, plan.mesh)).replace("{subject}", _subjects(defects))
    return Reason(
        name=first.name,
        refutes=first.refutes,
        message=with_plain_names(message),
        location=location,
        ranks=ranks,
        operator=first.operator.strip("`"),
        expected=first.expected,
        actual=first.actual,
        repair=first.repair,
        related=related,
        segments=tuple(dict.fromkeys(defect.segment for defect in defects if defect.segment)),
        unless=first.unless,
    )


def _subjects(defects: Sequence[Defect]) -> str:
    names = list(dict.fromkeys(defect.subject for defect in defects if defect.subject))
    return ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def everywhere(plan: Plan, ranks: Iterable[int]) -> tuple[int, ...]:
    """Return the ranks and their copies in every replica."""
    replicas = range(max(1, plan.replication.count))
    return tuple(sorted(rank + replica * plan.replication.stride for rank in ranks for replica in replicas))
