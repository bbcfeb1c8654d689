"""Compare a run of the parallel plan with one of the reference: gradients, weights and states that are left, results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from fractions import Fraction
from itertools import takewhile

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.equivalence.verdict.numbers.closeness import is_close
from tvlint.equivalence.verdict.numbers.origin import is_generated
from tvlint.equivalence.verdict.numbers.outcome import RETURNED, Agreement, Difference, NotRun
from tvlint.equivalence.verdict.numbers.returned import is_same_returned, other_returned
from tvlint.equivalence.verdict.numbers.run import Run, held_places, run_parallel, run_reference
from tvlint.equivalence.verdict.numbers.whole_values import Whole
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, ReduceGradients, Update
from tvlint.ir.plan import Plan, Role
from tvlint.ops.field import Array
from tvlint.ops.usual_calls import as_copy
from tvlint.replay.memory import Memory
from tvlint.replay.run import Result

_NOTHING = 1e-6
"""A gradient that is smaller throughout may be zero, but for rounding; its errors show nothing."""

_MOST_SINCE = 64
"""So many operators before the first result that differs are looked at for what makes it differ."""

_CERTAIN = 1e-6
"""A gradient that is off by more than this part of the greatest element is another gradient, whatever rounding does."""


def compare_runs(
    case: Case, whole: Whole, known: Run | None = None, memory: Memory | None = None, drops: bool = True
) -> Agreement | Difference | NotRun:
    """Return what a run shows; `known` is that of the reference, where it has been run, and `memory` that of other plans."""
    parallel, reference = case.parallel, case.reference
    alone = known or run_reference(case, whole, memory, drops)
    if isinstance(alone, NotRun):
        return replace(alone, fails=None)
    many = run_parallel(case, whole, memory, drops)
    if isinstance(many, NotRun):
        return many
    expected = _gradients_of(reference, alone.found)
    invented = max(alone.invented, many.invented)
    left = {_left_name(reference, name): value for (_, name), value in alone.found.left.items()}
    otherwise = _left_otherwise(parallel, left, many.found)
    if isinstance(otherwise, NotRun):
        return NotRun(f"the plans {invented}") if invented else otherwise
    written = ({full_name(plan, name) for _, name in run.found.left} for plan, run in ((reference, alone), (parallel, many)))
    updated = set.intersection(*written)
    parts = parallel.mesh.size * micro_batches_of(parallel) if is_generated(parallel, reference) else 0
    different = otherwise or _other_gradient(parallel, expected, many.found, updated, parts)
    if isinstance(different, NotRun):
        return different
    if different is not None:
        if case.reference_micro_batches == 1:
            different = _with_first(different, parallel, alone, many)
        return replace(different, invented=invented)
    if is_same_returned(case, alone.found, many.found):
        return Agreement()
    returned = other_returned(case, alone.found, many.found)
    if returned is None:
        return NotRun(RETURNED)
    return replace(_with_first(returned, parallel, alone, many), invented=invented)


def full_name(plan: Plan, name: str) -> str:
    return plan.tensors[name].logical or name


def _left_name(plan: Plan, name: str) -> str:
    """Return by what a weight or a state goes that is left: a state of a weight, which may be no copy of it, by both names."""
    full = full_name(plan, name)
    return f"{full}: {name}" if _is_of_weight(plan, name) else full


def _is_of_weight(plan: Plan, name: str) -> bool:
    of = plan.tensors.get(plan.tensors[name].logical)
    return plan.tensors[name].role is Role.STATE and of is not None and of.role is Role.WEIGHT


def _made_anew(plan: Plan) -> set[str]:
    """Return the weights that are copied from something before they are read: what is left in them is read by no next step."""
    copied, read_before, read = set[str](), set[str](), set[str]()
    for program in plan.programs:
        given = set[str]()
        for operator in (operator for step in program.steps for operator in plan.segments[step.segment].operators):
            copy = as_copy(operator, plan.tensors) if isinstance(operator, Compute) else operator
            read_before.update({*reads(copy)} - given)
            read.update(reads(copy))
            if copy is not operator:
                given.update(writes(copy))
        copied |= given
    return {name for name in (copied & read) - read_before if plan.tensors[name].role is Role.WEIGHT}


def _gradients_of(reference: Plan, alone: Result) -> dict[str, Array]:
    """Return the gradients of the reference by the full names of weights."""
    return {full_name(reference, name): gradient * reference.undivided for (_, name), gradient in alone.gradients.items()}


def moved_weights(reference: Plan, alone: Result) -> frozenset[str]:
    """Return the weights of which the reference's gradient is not zero throughout, but for rounding."""
    gradients = _gradients_of(reference, alone)
    return frozenset(name for name, gradient in gradients.items() if abs(gradient).max(initial=0) > _NOTHING)


def _left_otherwise(plan: Plan, expected: Mapping[str, Array], many: Result) -> Difference | NotRun | None:
    """Return where ranks leave other numbers in a weight or a state than the reference, of all that both write anew.

    A reason where they write others anew, or hold no pieces of the reference's; None where they leave what it does.
    """
    errors: dict[str, dict[int, float]] = {}
    anew, matched = _made_anew(plan), dict[str, str]()
    kept = [(place, value) for place, value in many.left.items() if place[1] not in anew]
    weights = {full_name(plan, name) for (_, name), _ in kept if plan.tensors[name].role is Role.WEIGHT}
    for (rank, name), value in kept:
        full = full_name(plan, name)
        matched[name] = next((each for each in (_left_name(plan, name), full) if each in expected), "")
        right = expected.get(matched[name])
        if right is None or (_is_of_weight(plan, name) and matched[name] == full and full in weights):
            continue
        first = rank % plan.replication.stride if plan.replication.count > 1 else rank
        try:
            piece = right[held_places(plan, plan.tensors[name], first)]
        except (Mismatch, IndexError):
            return NotRun(f"`{name}` is no piece of the reference's")
        if value.shape != piece.shape:
            return NotRun(f"`{name}` has another shape than the reference's")
        if not is_close(value, piece, float(abs(right).max(initial=0))):
            errors.setdefault(name, {})[rank] = float(abs(value - piece).max())
    if not expected.keys() <= {*matched.values()}:
        return NotRun("the plans write other weights or states anew")
    if not errors:
        return None
    scales = {name: float(abs(expected[matched[name]]).max(initial=0)) for name in errors}
    name = max(errors, key=lambda of: max(errors[of].values()) / max(scales[of], _NOTHING))
    error = max(errors[name].values())
    if not error > _CERTAIN * max(scales[name], _NOTHING):
        return NotRun(f"what is left in `{name}` differs by what rounding may do")
    return Difference(name, tuple(sorted(errors[name])), error, scales[name], None, of_update=True)


def _other_gradient(
    plan: Plan, expected: Mapping[str, Array], many: Result, updated: Set[str], parts: int
) -> Difference | NotRun | None:
    """Return where a rank has another gradient of a piece of a weight that it uses than the reference; None where none has.

    Of the weights that are `updated` in both plans no gradient need be left. Where a plan does not say by what it divides, it
    may be by numbers of its `parts`, if these are known, else by anything.
    """
    import numpy as np

    expected = {name: gradient for name, gradient in expected.items() if name not in updated}
    used = [(rank, name) for rank, name in _used(plan) if full_name(plan, name) not in updated]
    if not expected.keys() <= {plan.tensors[name].logical or name for _, name in used}:
        return NotRun("the plans train different weights")
    undivided = _undivided(plan)
    errors: dict[str, dict[int, float]] = {}
    scaled = ""
    for rank, name in used:
        tensor = plan.tensors[name]
        right = expected.get(tensor.logical or name)
        gradient = many.gradients.get((rank, name))
        if right is None:
            if gradient is not None:
                return NotRun("the plans train different weights")
            continue
        first = rank % plan.replication.stride if plan.replication.count > 1 else rank
        try:
            piece = right[held_places(plan, tensor, first)]
        except (Mismatch, IndexError):
            return NotRun(f"`{name}` is no piece of the reference's")
        held = np.zeros(piece.shape) if gradient is None else gradient
        if held.shape != piece.shape:
            return NotRun(f"the gradient of `{name}` has another shape than the reference's")
        scale = float(np.abs(right).max(initial=0))
        if is_close(held, piece, scale):
            continue
        if name in undivided and _is_multiple(held, piece, scale, parts):
            scaled = name
        else:
            errors.setdefault(name, {})[rank] = float(np.abs(held - piece).max())
    if not errors:
        return NotRun(f"the plan does not say by what it divides the gradient of `{scaled}`") if scaled else None
    scales = {name: float(np.abs(expected[plan.tensors[name].logical or name]).max(initial=0)) for name in errors}
    name = max(errors, key=lambda name_of_weight: max(errors[name_of_weight].values()) / max(scales[name_of_weight], _NOTHING))
    error = max(errors[name].values())
    if error <= _CERTAIN * max(scales[name], _NOTHING):
        return NotRun(f"the gradient of `{name}` differs by what rounding may do", rounds=True)
    return Difference(name, tuple(sorted(errors[name])), error, scales[name], None)


def _undivided(plan: Plan) -> set[str]:
    """Return the weights whose gradients go through a reducer of which the plan does not say by what it divides."""
    operators = plan.operators()
    return {
        name
        for operator in operators
        if isinstance(operator, ReduceGradients) and not operator.divisor
        for name in operator.weights
    }


def _is_multiple(held: Array, piece: Array, scale: float, parts: int) -> bool:
    """Return whether a gradient is the reference's, multiplied with one number.

    Where `parts` are known it is to be a ratio of divisors of these.
    """
    norm = float((piece * piece).sum())
    factor = float((held * piece).sum()) / norm if norm else 0.0
    if factor <= 0 or not is_close(held / factor, piece, scale):
        return False
    ratio = Fraction(factor).limit_denominator(max(1, parts))
    divides = ratio > 0 and parts % ratio.numerator == parts % ratio.denominator == 0
    return not parts or (divides and abs(factor / float(ratio) - 1) < _CERTAIN)


def _with_first(difference: Difference, plan: Plan, alone: Run, many: Run) -> Difference:
    """Return the difference with the first result that is not the reference's value of that name.

    Results that have another shape, or that a collective completes, say nothing; nor does a single number, which may be of the
    batch of one rank.
    """
    right = {name: value for _, _, name, value in alone.given}
    completed = {name for operator in plan.operators_of(Communicate) for name in operator.inputs}
    same = set[tuple[int, str]]()
    for rank, operator, name, value in many.given:
        known = right.get(name)
        if known is None or known.shape != value.shape or name in completed or isinstance(operator, Backward):
            continue
        if is_close(value, known, float(abs(known).max(initial=0))):
            same.add((rank, name))
        elif value.size > 1:
            return replace(difference, first=(name, rank, operator), since=_since(plan, rank, operator, same))
    return difference


def _since(plan: Plan, rank: int, last: Operator, same: Set[tuple[int, str]]) -> tuple[Operator, ...]:
    """Return the operators that make a result, in order, of what is the `same` as in the reference, or what a rank is given."""
    first = rank % plan.replication.stride if plan.replication.count > 1 else rank
    program = next(program for program in plan.programs if first in program.ranks)
    before = [*takewhile(lambda each: each is not last, (operator for _, _, operator in plan.run_by(program)))]
    made = {name: (at, operator) for at, operator in enumerate(before) for name in writes(operator)}
    found, waiting = {len(before): last}, [last]
    while waiting and len(found) < _MOST_SINCE:
        for name in reads(waiting.pop()):
            at, operator = made.get(name, (-1, last))
            if at not in {-1, *found} and (rank, name) not in same:
                found[at] = operator
                waiting.append(operator)
    return tuple(found[at] for at in sorted(found))


def _used(plan: Plan) -> Iterable[tuple[int, str]]:
    """Return the weights that each rank reads, reduces or updates."""
    shifts = [replica * plan.replication.stride for replica in range(plan.replication.count)]
    for program in plan.programs:
        named = {
            name
            for _, _, operator in plan.run_by(program)
            for name in (operator.weights if isinstance(operator, ReduceGradients | Update) else reads(operator))
            if plan.has_role(name, Role.WEIGHT)
        }
        yield from ((rank + shift, name) for rank in program.ranks for shift in shifts for name in sorted(named))
