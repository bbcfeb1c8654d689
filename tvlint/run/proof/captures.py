"""Prove a captured program against its captured reference: both plans are replayed on the recorded numbers first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tvlint.findings import Outcome, Problem, Reason, Verdict
from tvlint.ir.identical import Identical
from tvlint.ir.location import Location
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan
from tvlint.ops.dtypes import DIGITS
from tvlint.readers.document import ReadError
from tvlint.run.proof.blame import Differing, differing, placed, use_of

if TYPE_CHECKING:
    from tvlint.ops.field import Array
    from tvlint.readers.capture.reader import Recorded
    from tvlint.readers.capture.tapes.tape import TapeDefect

ENDINGS = (".capture.jsonl.gz", ".capture.jsonl")
_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 0.05, "bfloat16": 0.2}
"""How far a replayed gradient may be from the recorded one, relative to its largest element, by what it is computed in."""

_FAR = 10
"""Gradients of two programs that differ by so many tolerances are not the same."""

_MOST_ROUNDED = 0.5
"""So much of the largest element is no rounding, in whatever numbers a program computes."""

_MOST_MOVED = 0.02
"""A weight that one step moves by so much more or less, of its largest change, is changed otherwise."""

_NEAR = 0.2
"""Gradients that differ by more are not shown to be the same either."""


_SAME = 1e-3
"""Multiples of gradients that differ by less are one."""

_ROUNDED = 1e-3
"""A gradient that is smaller than such a part of the largest is compared as if it were as large, that is, to the rounding."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The distance between a replay and the recorded numbers, and where it is too large or the replay was not `run`."""

    compared: int
    worst: float
    problem: str = ""
    location: Location | None = None
    run: bool = True


def is_capture(path: str) -> bool:
    """Return whether the file is named as captures are; that it holds one is seen when it is read."""
    return path.endswith(ENDINGS)


def data_of(path: str) -> bytes:
    """Return the content of a capture, unpacked. Raises ReadError."""
    from tvlint.readers.capture.tapes.lines import recognise
    from tvlint.readers.read import unpacked

    data = unpacked(path)
    if not recognise(data):
        raise ReadError("not a capture, which its name says", Location(path, 1), "write one with `tvlint capture`")
    return data


def read_captures(parallel: str, reference: str) -> tuple[Recorded, Recorded] | Problem:
    """Return the plans of a captured program and of its reference, or why there are none.

    Where the program cannot be written as a plan, its recorded numbers are there, with the problem.
    """
    from tvlint.readers.capture.reader import read_pair

    if not is_capture(reference):
        help = "capture the single-device program as well: `tvlint capture --name reference -- python ...`"
        return Problem("the reference of a captured program is a capture too", Location(reference), help)
    try:
        return read_pair((parallel, data_of(parallel)), (reference, data_of(reference)))
    except ReadError as error:
        return error.problem


def read_single(path: str) -> Recorded | Problem | None:
    """Return the plan of a single-device capture, or why there is none; None for a capture of several ranks."""
    from tvlint.readers.capture.reader import read_alone

    try:
        return read_alone(path, data_of(path))
    except ReadError as error:
        return error.problem


def replayed(recorded: Recorded) -> Replayed:
    """Return how far the replay of a plan on the recorded numbers is from the recorded gradients and losses."""
    return _replayed(Identical(recorded))


@lru_cache(2)
def _replayed(of: Identical[Recorded]) -> Replayed:
    import numpy as np

    from tvlint.replay.run import UnreplayableError, replay

    recorded = of.held
    plan = recorded.plan

    def given(rank: int, name: str, micro_batch: int) -> Array | None:
        array = recorded.given.get((rank, name, micro_batch))
        return array if array is not None else recorded.given.get((rank, name, -1))

    try:
        with np.errstate(over="ignore"):
            found = replay(plan, given)
    except UnreplayableError as error:
        return Replayed(0, 0.0, f"cannot be replayed: {error}", error.location, run=False)
    worst, compared, least, rounding = 0.0, 0, _least_scale(recorded), _coarsest(plan)
    for (rank, weight), numbers in recorded.gradients.items():
        gradient = found.gradients.get((rank, weight))
        far = _distance(gradient, numbers, least)
        if far is None or gradient is None or weight not in plan.tensors:
            return Replayed(compared, worst, f"does not make the recorded gradient of `{weight}` on rank {rank}")
        if not far <= max(rounding, _TOLERANCE.get(plan.tensors[weight].dtype, 0.0)):
            text = f"gives another gradient of `{weight}` on rank {rank} than the program when it is replayed"
            ignored = _ignored_targets(recorded)
            if ignored is not None:
                return Replayed(compared, worst, f"{text}: {_IGNORED}", ignored.source)
            return Replayed(compared, worst, f"{text}: off by {far:.2g} of its largest")
        worst, compared = max(worst, far), compared + 1
    loss = next(iter(plan.losses), "")
    for rank, losses in recorded.losses.items():
        for micro_batch, number in enumerate(losses):
            far = _distance(found.returned.get((rank, micro_batch, loss)), number)
            if far is not None and far > max(_TOLERANCE.values()):
                return Replayed(compared, worst, f"gives another loss on rank {rank} than the program when it is replayed")
    return Replayed(compared, worst)


_IGNORED = (
    "a mean over targets of which some do not count, which is not followed; sum the loss, and divide it by the number of"
    " targets that count on all ranks"
)


def _ignored_targets(recorded: Recorded) -> Compute | None:
    """Return a loss that is a mean where the program was given targets that it ignores; None where there is none.

    The mean over a rank's own targets is that over all targets only where every rank has as many that count.
    """
    given = [array for array in recorded.given.values() if array is not None and array.dtype.kind == "i"]
    for operator in recorded.plan.operators_of(Compute):
        if operator.attributes.get("reduction") != "mean":
            continue
        ignored = operator.attributes.get("ignore_index")
        if isinstance(ignored, int) and any(bool((array == ignored).any()) for array in given):
            return operator
    return None


def _coarsest(plan: Plan) -> float:
    """Return the tolerance of the coarsest numbers in which the plan computes, as those of autocast are."""
    return max((_TOLERANCE.get(tensor.dtype, 0.0) for tensor in plan.tensors.values()), default=0.0)


def _least_scale(recorded: Recorded) -> float:
    """Return the size that the largest number of a gradient counts as at least, by that of all gradients.

    A gradient that is zero but for rounding, as of the bias of keys, is no larger than that of others rounds.
    """
    import numpy as np

    known = [np.abs(np.ma.filled(array, 0)).max(initial=0) for array in recorded.gradients.values() if array is not None]
    return float(max(known, default=0.0)) * _ROUNDED


def _distance(one: Array | None, other: Array | None, least: float = 0.0) -> float | None:
    """Return the largest difference, relative to the largest number; None where they cannot be compared."""
    import numpy as np

    if one is None or other is None or one.shape != other.shape:
        return None
    held = ~np.ma.getmaskarray(other) & ~np.ma.getmaskarray(one)
    left, right = (np.asarray(array, dtype=float)[held] for array in (one, other))
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return None
    scale = max(float(np.abs(right).max(initial=0)), least, 1e-12)
    return float(np.abs(left - right).max(initial=0)) / scale


def different_gradients(parallel: Recorded, reference: Recorded) -> dict[str, tuple[float, list[int]]] | None:
    """Return the weights whose recorded gradients are not the reference's, with how far and on which ranks.

    None where they cannot be compared: the programs draw random numbers, start from other numbers, or the parallel program
    lacks a gradient of a weight that the reference trains, on one rank that holds it or of some of its elements.
    """
    found, left = _compared(parallel, reference)
    return None if left and not found else found


def _agree_where_one_clips(parallel: Recorded, reference: Recorded) -> bool:
    """Return whether one program clips by a function of torch and the other does not, and both optimizers find the same.

    The other may clip by operators of its own: its recorded gradients are those behind them, and those of the one before.
    """
    return bool(parallel.clipped) != bool(reference.clipped) and differently_clipped(parallel, reference) == ({}, [])


def differently_clipped(parallel: Recorded, reference: Recorded) -> tuple[dict[str, tuple[float, list[int]]], list[str]]:
    """Return the weights whose gradients are not the reference's where the optimizer finds them, if either program clips any.

    The second ones are those that cannot be compared. The weights behind the step do not tell: the first step of Adam is as
    large for a gradient of any size.
    """
    if not parallel.clipped and not reference.clipped:
        return {}, []
    stepped = (replace(each, gradients={**each.gradients, **each.clipped}) for each in (parallel, reference))
    return _compared(*stepped)


def _compared(parallel: Recorded, reference: Recorded) -> tuple[dict[str, tuple[float, list[int]]], list[str]]:
    """Return the weights whose gradients are not the reference's, with how far and on which ranks, and those left open."""
    if parallel.random or reference.random:
        return {}, sorted({weight for _, weight in reference.gradients})
    found: dict[str, tuple[float, list[int]]] = {}
    rounding = max(map(_coarsest, (parallel.plan, reference.plan)))
    left = _without_gradient(parallel, reference)
    least = _least_scale(reference)
    for (rank, weight), numbers in parallel.gradients.items():
        place, whole = parallel.pieces.get((rank, weight)), reference.gradients.get((0, weight))
        cut = None if place is None or whole is None else whole[place]
        far = _distance(numbers, cut, least)
        if far is None:
            left.add(weight)
            continue
        limit = _FAR * max(rounding, _TOLERANCE.get(parallel.plan.tensors[weight].dtype, 1.0))
        if far > min(limit, _NEAR):
            left.add(weight)
        if far > min(limit, _MOST_ROUNDED):
            most, ranks = found.get(weight, (0.0, []))
            found[weight] = (max(most, far), [*ranks, rank])
    return found, sorted(left)


def different_weights(parallel: Recorded, reference: Recorded) -> dict[str, tuple[float, list[int]]]:
    """Return the weights that one step changed otherwise than the reference's did, with how far and on which ranks.

    Where a gradient is no more than rounding an optimizer may make a whole step of it: such elements do not count.
    """
    import numpy as np

    found: dict[str, tuple[float, list[int]]] = {}
    rounding = max(map(_coarsest, (parallel.plan, reference.plan)))
    limit = min(max(_MOST_MOVED, _FAR * rounding), _MOST_ROUNDED)
    least = _least_scale(reference)
    for (rank, weight), part in parallel.pieces.items():
        pieces = [parallel.given.get((rank, weight, -1)), parallel.after.get((rank, weight))]
        wholes = [each.get((0, weight)) for each in (reference.after, reference.gradients)]
        known = [array for array in (*pieces, reference.given.get((0, weight, -1)), *wholes) if array is not None]
        if len(known) < len(pieces) + 1 + len(wholes):
            continue
        before, after, gradient = (np.asarray(np.ma.filled(array, 0)[part], dtype=float) for array in known[2:])
        changed, wanted = np.asarray(known[1], dtype=float) - known[0], after - before
        large = np.abs(gradient) > max(float(np.abs(gradient).max(initial=0)) * max(_ROUNDED, rounding), least)
        if changed.shape != wanted.shape or not large.any():
            continue
        last = 4 * _last_digit(parallel.plan.tensors[weight].dtype) * float(np.abs(before).max())
        off = float(np.abs(changed - wanted)[large].max()) - last
        far = off / max(float(np.abs(wanted[large]).max()), last, 1e-12)
        if far > limit:
            most, ranks = found.get(weight, (0.0, []))
            found[weight] = (max(most, far), [*ranks, rank])
    return found


def _last_digit(dtype: str) -> float:
    """Return the last digit of a number between one and two; wider numbers than float32 are compared as that is."""
    return 2.0 ** (1 - min(DIGITS.get(dtype, DIGITS["float32"]), DIGITS["float32"]))


def _without_gradient(parallel: Recorded, reference: Recorded) -> set[str]:
    """Return the weights that the reference trains and that have no gradient on a rank that holds them, or in some elements.

    An optimizer that is sharded has gradients of its own elements only; the others are masked.
    """
    import numpy as np

    left = {weight: np.ones(array.shape, dtype=bool) for (_, weight), array in reference.gradients.items() if array is not None}
    lacking = {weight for _, weight in reference.gradients} - left.keys()
    for (rank, weight), part in parallel.pieces.items():
        if weight not in left:
            continue
        gradient = parallel.gradients.get((rank, weight))
        if gradient is None or gradient.shape != left[weight][part].shape:
            lacking.add(weight)
        else:
            left[weight][part] &= np.ma.getmaskarray(gradient)
    return lacking | {weight for weight, array in left.items() if array.any()}


def judged_without_plan(parallel: Recorded, reference: Recorded, problem: Problem) -> Verdict | Problem:
    """Return the verdict that tapes and recorded numbers give of a program that is no plan; its problem where they give none.

    What a plan lacks need not be what is wrong with the program, and refutes nothing. In which types it computes is not known
    either: gradients that rounding in half precision could give refute nothing.
    """
    left = _reason("unsupported-operator", False, problem.message, problem.location)
    verdict = Verdict(reference.plan.path, parallel.plan.path, Outcome.UNKNOWN, reasons=(left,))
    defect = parallel.defect or reference.defect
    if defect is not None:
        return _refuted_by_tapes(verdict, defect)
    found = {} if _agree_where_one_clips(parallel, reference) else different_gradients(parallel, reference) or {}
    different = {weight: (far, ranks) for weight, (far, ranks) in found.items() if far > _MOST_ROUNDED}
    return _refuted(verdict, different, parallel, reference) if different else problem


def _refuted_by_tapes(verdict: Verdict, defect: TapeDefect) -> Verdict:
    reason = Reason(defect.rule, True, defect.message, defect.location, defect.ranks, related=defect.related)
    return replace(verdict, outcome=Outcome.REFUTED, reasons=(reason, *verdict.reasons))


def judged(verdict: Verdict, parallel: Recorded, reference: Recorded) -> Verdict:
    """Return the verdict on the plans with what the recorded numbers say of it, at the lines where one mends it."""
    shown = _judged(verdict, parallel, reference)
    different = different_gradients(parallel, reference) if shown.outcome is Outcome.REFUTED else None
    return placed(shown, differing(different, parallel, reference) if different else None, parallel, reference)


def _judged(verdict: Verdict, parallel: Recorded, reference: Recorded) -> Verdict:
    """Return the verdict on the plans with what the recorded numbers say of it.

    A plan that cannot be replayed, or does not give what its program computed, is unknown, unless the recorded gradients
    differ, which says of the programs themselves that they are not the same. Where recorded gradients differ nothing is
    proved, and what was unknown is refuted; where they agree no value is said to be another one. A program of which the
    tapes show a mistake by themselves is refuted.
    """
    defect = parallel.defect or reference.defect
    if defect is not None and not (_is_race(defect.rule) and any(map(_races, verdict.reasons))):
        return _refuted_by_tapes(verdict, defect)
    facts = list(verdict.facts)
    for recorded, name in ((parallel, "parallel plan"), (reference, "reference plan")):
        this_replayed = replayed(recorded)
        if this_replayed.problem:
            reason = _reason(
                "replay-differs",
                False,
                f"the {name} {this_replayed.problem}",
                this_replayed.location or Location(recorded.plan.path),
            )
            if any(map(_races, verdict.reasons)):
                return _refuted_for_races(verdict, reason)
            unknown = replace(verdict, outcome=Outcome.UNKNOWN, reasons=(reason, *_open(verdict)))
            different = different_gradients(parallel, reference)
            different = {} if _agree_where_one_clips(parallel, reference) else different
            if not different and not this_replayed.run and _is_reported(verdict, this_replayed.location):
                return replace(unknown, reasons=_open(verdict))
            if not different:
                return unknown
            return _refuted(unknown, different, parallel, reference)
        facts.append(
            (
                f"replay of the {name}",
                f"{this_replayed.compared} gradients agree with the program, to {this_replayed.worst:.1g}",
            )
        )
    different = different_gradients(parallel, reference)
    clipped, left = differently_clipped(parallel, reference)
    if verdict.outcome is not Outcome.PROVED and _agree_where_one_clips(parallel, reference):
        different = {}
        text = "one program clips gradients by a function of torch and the other by operators of its own: what they clip is not"
        text += " compared, and what their optimizers find agrees; clip them by the function in both"
        reason = _reason("clipped-gradient-not-compared", False, text, Location(parallel.plan.path))
        verdict = replace(verdict, reasons=(reason, *(each for each in verdict.reasons if each.name != "other-numbers")))
    if different is None:
        facts.append(("recorded gradients", "not comparable with the reference's"))
        return _not_compared(replace(verdict, facts=tuple(facts)), left, parallel.plan)
    if not different:
        said = ("recorded gradients", "agree with the reference's")
        moved = clipped or different_weights(parallel, reference)
        if moved:
            reason = _other_weights(moved, bool(clipped), parallel)
            facts += [said, ("weights behind the step", "are not the reference's")]
            return replace(verdict, outcome=Outcome.REFUTED, reasons=(reason, *_open(verdict)), facts=tuple(facts))
        outcome = Outcome.UNKNOWN if _is_of_values(verdict) else verdict.outcome
        reasons = _open(verdict) if outcome is not verdict.outcome else verdict.reasons
        return _not_compared(replace(verdict, outcome=outcome, reasons=reasons, facts=(*facts, said)), left, parallel.plan)
    return _refuted(replace(verdict, facts=tuple(facts)), different, parallel, reference)


def _refuted(
    verdict: Verdict, different: Mapping[str, tuple[float, list[int]]], parallel: Recorded, reference: Recorded
) -> Verdict:
    """Return the verdict on programs whose recorded gradients differ: refuted, or unknown where the plans are proved."""
    refutes = verdict.outcome is not Outcome.PROVED
    times = _times(parallel, reference, different)
    reason = _difference(different, refutes, differing(different, parallel, reference), parallel.plan, verdict, times)
    outcome = Outcome.REFUTED if refutes else Outcome.UNKNOWN
    explained = verdict.outcome is Outcome.REFUTED and not _by_numbers_alone(verdict)
    reasons = (*verdict.reasons, reason) if explained else (reason, *verdict.reasons)
    facts = (*verdict.facts, ("recorded gradients", "are not the reference's"))
    return replace(verdict, outcome=outcome, reasons=reasons, facts=facts)


def _not_compared(verdict: Verdict, left: list[str], plan: Plan) -> Verdict:
    """Return the verdict where clipped gradients of the weights `left` cannot be compared: nothing is proved then."""
    if not left:
        return verdict
    text = f"the clipped gradient of `{left[0]}`{_and_more(left, 'of ')} cannot be compared with the reference's"
    reason = _reason("clipped-gradient-not-compared", False, text, use_of(left[0], plan))
    outcome = Outcome.UNKNOWN if verdict.outcome is Outcome.PROVED else verdict.outcome
    return replace(verdict, outcome=outcome, reasons=(*verdict.reasons, reason))


def _races(reason: Reason) -> bool:
    """Return whether a reason refutes for what is read or written before it is waited for, on which numbers depend too."""
    return reason.refutes and _is_race(reason.name)


def _is_race(rule: str) -> bool:
    from tvlint.analyses.relations.grounds import REFUTING, Ground

    return REFUTING.get(rule) is Ground.RACES


def _refuted_for_races(verdict: Verdict, replay: Reason) -> Verdict:
    """Return the verdict on a program that does not wait; what it issues and waits for is recorded, and lifted by none."""
    races = [reason for reason in verdict.reasons if _races(reason)]
    others = [replace(reason, refutes=False) for reason in verdict.reasons if not _races(reason)]
    return replace(verdict, outcome=Outcome.REFUTED, reasons=(*races, replay, *others))


def _is_reported(verdict: Verdict, place: Location | None) -> bool:
    """Return whether a reason says already that an operator at this line is not known, without which no plan is replayed."""
    every = [reason.location for reason in verdict.reasons if reason.name == "unsupported-operator"]
    return place is not None and any((each.path, each.line) == (place.path, place.line) for each in every)


def _is_of_values(verdict: Verdict) -> bool:
    """Return whether a verdict refutes, and only for values that are said to be other ones than the reference's."""
    from tvlint.analyses.relations.grounds import REFUTING, Ground

    names = {reason.name for reason in verdict.reasons if reason.refutes}
    others = {"gradient-of-another-slice", "output-of-another-slice"}
    return verdict.outcome is Outcome.REFUTED and all(REFUTING.get(name) is Ground.DIFFERS or name in others for name in names)


def _times(parallel: Recorded, reference: Recorded, different: Mapping[str, tuple[float, list[int]]]) -> str:
    """Return that all gradients that differ are one multiple of the reference's; nothing where they are not."""
    import numpy as np

    factors: list[float] = []
    for weight, (_, ranks) in different.items():
        whole = reference.gradients.get((0, weight))
        for rank in ranks:
            numbers, place = parallel.gradients.get((rank, weight)), parallel.pieces.get((rank, weight))
            if numbers is None or whole is None or place is None:
                return ""
            held = ~np.ma.getmaskarray(numbers)
            here, there = np.asarray(numbers, dtype=float)[held], np.asarray(whole[place], dtype=float)[held]
            factor = float(here @ there) / max(float(there @ there), 1e-30)
            if np.abs(here - factor * there).max(initial=0) > _SAME * np.abs(here).max(initial=0):
                return ""
            factors += [factor] if held.any() else []
    alike = bool(factors) and max(factors) - min(factors) <= _SAME * abs(factors[0])
    return f", {factors[0]:.4g} times the reference's everywhere" if alike else ""


def _difference(
    different: Mapping[str, tuple[float, list[int]]], refutes: bool, found: Differing, plan: Plan, verdict: Verdict, times: str
) -> Reason:
    weight, (far, ranks) = max(different.items(), key=lambda item: item[1][0])
    more = _and_more(different, "of ")
    text = f"the gradient of `{weight}`{more} that the program computed is not the reference's: off by {far:.2g} of its largest"
    text += times + found.text
    open_ones = [reason for reason in verdict.reasons if not reason.refutes] if _by_numbers_alone(verdict) else []
    is_replayed = all(reason.name != "replay-differs" for reason in verdict.reasons)
    first = next(iter((*open_ones, *verdict.reasons)), None) if is_replayed else None
    is_shown = first is not None and _is_shown(first, found) and not (times and not found.agreeing and first.location.pointer)
    location = first.location if first is not None and is_shown else found.place
    location = location or use_of(weight, plan)
    return replace(_reason("other-recorded-gradient", refutes, text, location), ranks=tuple(ranks))


def _is_shown(reason: Reason, found: Differing) -> bool:
    """Return whether a reason's place is that of what differs, and not only of what is not followed."""
    known = reason.refutes or reason.name.startswith("other-") or not found.agreeing or found.place is None
    return known and reason.location.line is not None


def _other_weights(different: Mapping[str, tuple[float, list[int]]], by_clipping: bool, parallel: Recorded) -> Reason:
    weight, (far, ranks) = max(different.items(), key=lambda item: item[1][0])
    more = _and_more(different)
    text = f"`{weight}`{more}, with the reference's gradients, changed otherwise in the step"
    text += f": off by {far:.2g} of the largest change"
    if by_clipping:
        text = f"the gradient of `{weight}`{more} is the reference's until it is clipped"
        text += f", and then off by {far:.2g} of its largest"
    behind = parallel.behind[:1] if by_clipping else parallel.behind[-1:]
    location = next(iter(behind), use_of(weight, parallel.plan))
    return replace(_reason("other-recorded-weight", True, text, location), ranks=tuple(ranks))


def _and_more(weights: Collection[str], of: str = "") -> str:
    """Return how many weights there are beside the one that is named: ` and of 3 more weights`."""
    more = len(weights) - 1
    return f" and {of}{more} more weight{'s' if more > 1 else ''}" if more else ""


def _by_numbers_alone(verdict: Verdict) -> bool:
    """Return whether nothing but a run on random numbers refutes, which finds no cause."""
    return {reason.name for reason in verdict.reasons if reason.refutes} == {"other-numbers"}


def _open(verdict: Verdict) -> tuple[Reason, ...]:
    """Return the reasons of a verdict on a plan that is not the program, which refute nothing."""
    return tuple(replace(reason, refutes=False) for reason in verdict.reasons)


def _reason(name: str, refutes: bool, message: str, location: Location) -> Reason:
    return Reason(name, refutes, message, location)
