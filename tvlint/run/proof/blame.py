"""Places in a captured program where one mends what is wrong with its gradients, its batch and its step.

A gradient is made where its weight is used, and what goes wrong with it often elsewhere: in the reduction that a program issues
behind its backward pass, in the loss that all gradients start from, or in the backward pass of one layer, behind which all
gradients are other ones. Which gradients differ shows which of these it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.findings import Outcome, Reason, Verdict
from tvlint.ir.location import Location
from tvlint.ir.operators import Communicate, ReduceGradients
from tvlint.ir.plan import Plan, Role
from tvlint.plurals import counted

if TYPE_CHECKING:
    from tvlint.readers.capture.reader import Recorded

_OF_ONE_WEIGHT = ("missing-gradient-reduction", "wrong-gradient-scale", "missing-gradient")
_ROUNDED = 1e-6
"""A gradient that is smaller than such a part of the largest of all may be rounding."""

_ENOUGH = 2 / 3
"""Of such a part of the gradients that agree the place is where the program reduces gradients."""


@dataclass(frozen=True, slots=True)
class Differing:
    """The weights whose recorded gradients differ and those whose do not, with the place in the program of the first cause."""

    weights: Collection[str]
    agreeing: tuple[str, ...]
    place: Location | None
    text: str = ""


def use_of(weight: str, plan: Plan) -> Location:
    """Return the first line of the program that uses a weight; its capture where none is known."""
    return _uses(plan, (weight,)).get(weight, (0, Location(plan.path)))[1]


def differing(different: Collection[str], parallel: Recorded, reference: Recorded) -> Differing:
    """Return where gradients begin to differ in a program.

    Where none agrees, that is where the backward pass starts; where only those do that it computes before, at the weight whose
    gradient is the first that differs; else where the program reduces the gradients that agree.
    """
    agreeing = tuple(sorted(_with_a_gradient(reference) - {*different}))
    if not agreeing:
        return Differing(different, agreeing, parallel.backward)
    uses = _uses(parallel.plan, {*different, *agreeing})
    known = sorted(weight for weight in different if weight in uses)
    last = max(known, key=lambda weight: uses[weight][0], default="")
    if last and all(uses[weight][0] >= uses[last][0] for weight in agreeing if weight in uses):
        text = f"; that of `{last}` is the first, those of {counted(len(agreeing), 'weight')} behind it agree"
        return Differing(different, agreeing, uses[last][1], text if len(different) > 1 else "")
    return Differing(different, agreeing, _where_reduced(parallel.plan, agreeing, different))


def _with_a_gradient(reference: Recorded) -> set[str]:
    """Return the weights whose gradients are more than rounding: others agree whatever a program does."""
    import numpy as np

    most = {
        weight: float(np.abs(array).max(initial=0)) for (_, weight), array in reference.gradients.items() if array is not None
    }
    return {weight for weight, size in most.items() if size > _ROUNDED * max(most.values())}


def placed(verdict: Verdict, found: Differing | None, parallel: Recorded, reference: Recorded) -> Verdict:
    """Return a verdict with its reasons about gradients where these are reduced, or started, one for all of them."""
    if verdict.outcome is not Outcome.REFUTED:
        return verdict
    reasons = verdict.reasons
    trained = {weight for _, weight in reference.gradients}
    for name in _OF_ONE_WEIGHT:
        group = [reason for reason in reasons if reason.refutes and reason.name == name]
        if len(group) > 1 and len(group) >= len(trained) and len({reason.actual for reason in group}) == 1:
            one = _of_all(group[0], len(trained) - 1, parallel)
            reasons = tuple(one if reason is group[0] else reason for reason in reasons if reason not in group[1:])
        elif found is not None and found.agreeing and found.place is not None and not found.text:
            moved = {id(reason): replace(reason, location=found.place) for reason in group if len(group) == len(found.weights)}
            reasons = tuple(moved.get(id(reason), reason) for reason in reasons)
    return replace(verdict, reasons=tuple(_with_samples(reason, parallel, reference) for reason in reasons))


def _of_all(reason: Reason, others: int, parallel: Recorded) -> Reason:
    text = ", and the optimizer finds none" if reason.name == "missing-gradient" else ""
    message = f"{reason.message}{text}; so it is with the other {counted(others, 'weight')}"
    return replace(reason, message=message, location=parallel.backward or reason.location)


def _uses(plan: Plan, weights: Collection[str]) -> dict[str, tuple[int, Location]]:
    """Return where the program uses weights first, in the order of its operators."""
    found: dict[str, tuple[int, Location]] = {}
    for number, operator in enumerate(plan.operators()):
        place = operator.source
        if place is not None and place.line is not None:
            for name in getattr(operator, "inputs", ()):
                if name in weights:
                    found.setdefault(name, (number, place))
    return found


def _where_reduced(plan: Plan, agreeing: Iterable[str], different: Iterable[str]) -> Location | None:
    """Return the line at which most gradients that agree are made last, if none that differs is made there; of those that are
    made by a reduction, if any are.
    """
    weights = {tensor.name for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT}
    gradients = weight_gradients(plan)
    made: dict[str, Location] = {}
    reducing: set[tuple[str, int | None]] = set()
    for operator in plan.run_on(plan.programs[0].ranks[0]) if plan.programs else ():
        if isinstance(operator, ReduceGradients | Communicate) and operator.source is not None:
            reducing.add((operator.source.path, operator.source.line))
        reduced = operator.weights if isinstance(operator, ReduceGradients) else ()
        if operator.source is not None and operator.source.line is not None:
            made.update((gradients.get(name, name), operator.source) for name in (*reduced, *writes(operator)))
    made = {name: place for name, place in made.items() if name in weights}
    lines = [(made[name].path, made[name].line) for name in agreeing if name in made]
    places = Counter([line for line in lines if line in reducing] or lines)
    ((line, count),) = places.most_common(1) or [(("", 0), 0)]
    if count < 2 or count < _ENOUGH * places.total():
        return None
    if any((made[name].path, made[name].line) == line for name in different if name in made):
        return None
    return next(place for place in made.values() if (place.path, place.line) == line)


def _with_samples(reason: Reason, parallel: Recorded, reference: Recorded) -> Reason:
    """Return a reason about the batch with what ranks leave of it, where they read it twice."""
    unread = _unread(parallel.given, reference.given, parallel.plan) if reason.name == "other-batch" else ()
    if not unread:
        return reason
    left, every = unread
    text = f"{left} of the {every} samples of the reference's batch are read by no rank, and others by several"
    return replace(reason, message=f"{text}: {reason.message}", location=parallel.backward or reason.location)


def _unread(
    parallel: Mapping[tuple[int, str, int], object], reference: Mapping[tuple[int, str, int], object], plan: Plan
) -> tuple[int, int] | tuple[()]:
    """Return how many samples of an input no rank reads, and how many there are, if all that ranks read are some of them."""
    import numpy as np

    inputs = {tensor.name for tensor in plan.tensors.values() if tensor.role is Role.INPUT}
    for name in sorted(inputs):
        wholes = [np.asarray(numbers) for (_, other, _), numbers in reference.items() if other == name and numbers is not None]
        parts = [np.asarray(numbers) for (_, other, _), numbers in parallel.items() if other == name and numbers is not None]
        if (
            not wholes
            or not parts
            or not all(each.ndim and each.shape[1:] == wholes[0].shape[1:] for each in (*wholes, *parts))
        ):
            continue
        every = [row.tobytes() for whole in wholes for row in whole]
        read = Counter(row.tobytes() for part in parts for row in part.astype(wholes[0].dtype))
        if set(read) < set(every) and max(read.values()) > 1:
            return sum(row not in read for row in every), len(every)
    return ()
