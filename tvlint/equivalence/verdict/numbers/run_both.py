"""Both plans run on the same random numbers: what confirms that a refuted plan computes something else, and decides others.

What refutes by its structure, a partial sum that is taken for a whole one, say, shows that a value is another one than the
reference's at that place. It may yet make no difference in the end: a partial sum through an operator that leaves sums as they
are, parts that are put right later, what is multiplied with zero, keys that a mask hides. Where a pair is small enough to be
run, it is run, also with masks in the place of its buffers and flags. Plans that agree in all gradients and returned values,
and in what weights and states become where both write that out, are not refuted, and not proved either. Where random numbers
are drawn, or a function has no numbers, something stands in for them (`tvlint/replay/stand_ins.py`). A difference of random
numbers counts where it is there, too, when nothing is dropped. That of functions counts in code that a generator made of a
traced graph: it splits a function by its annotation alone, so that what it makes is right for all functions with that
annotation, or not right.

A pair that is too large is run with smaller sizes (`tvlint/equivalence/sizes/shrink.py`, which says why a difference of that
pair is one of the pair itself).

A pair that the derivation leaves open is refuted where the gradient of a weight is another one in every run, or what is left in
a weight or a state whose update both plans write out. Nothing is concluded from a difference where the numbers may be none that
the plans are made for, or where the run does not show what counts: gradients of other weights beside those, inputs of which it
is assumed which is which. Where a plan does not say by what it divides gradients, a multiple of the reference's shows nothing.

A right plan may use the content of buffers, masks and positions (`contents.py`). A difference then counts only where both plans
read the same of these tensors, and where no likely content makes them agree. Code that a generator made of a traced graph rests
on no content, which the generator does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from math import inf

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.equivalence.verdict.declared_results import otherwise_declared
from tvlint.equivalence.verdict.numbers.compare import compare_runs, moved_weights
from tvlint.equivalence.verdict.numbers.contents import Held, content_of, likely_contents, likely_masks, names_read
from tvlint.equivalence.verdict.numbers.origin import is_generated
from tvlint.equivalence.verdict.numbers.outcome import (
    DRAWS,
    FUNCTIONS,
    NO_NUMBER,
    RETURNED,
    SEEDS,
    Agreement,
    Difference,
    NotRun,
)
from tvlint.equivalence.verdict.numbers.rounding import with_rounding
from tvlint.equivalence.verdict.numbers.run import Run, run_reference
from tvlint.equivalence.verdict.numbers.run_sizes import Small, in_plan, to_run, to_run_again
from tvlint.equivalence.verdict.numbers.shared_memory import seen_elsewhere
from tvlint.equivalence.verdict.numbers.whole_values import least_index, random_numbers
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.operators import Compute, ReduceGradients
from tvlint.ir.plan import Plan, Program, Role
from tvlint.replay.memory import Memory

_MOST_RUNS = 4 * SEEDS
"""So many runs are made where some of them show a difference: what differs for some data may not show in each."""

_LARGE = 6.0
"""The greatest of random numbers that a bound of values cuts off, as `clamp(x, -7, 7)` does."""

_NEAR_ZERO = 2**-6
"""The greatest of random numbers beside which what is added to a mean of squares shows."""

_ROUNDED = 1e-5
"""A gradient that casts round is off by more than this part of the greatest element, which `float32` never is."""

_PLAIN = 1e-3
"""Where something stands in for a function, which may make rounding errors larger, a gradient is off by more than this."""


def run_both(case: Case, any_numbers: bool = False) -> Agreement | Difference | NotRun:
    """Run the pair on random numbers, and return what they show.

    With `any_numbers` the plans are to agree on any numbers, whatever inputs and buffers are made for, as a proof says. Nothing
    is run where operators are known to give other shapes than those that are declared.
    """
    otherwise = otherwise_declared(case.parallel) or otherwise_declared(case.reference)
    return NotRun(otherwise) if otherwise else run_in_declared_shapes(case, any_numbers)


def run_in_declared_shapes(case: Case, any_numbers: bool = False) -> Agreement | Difference | NotRun:
    """Run the pair as `run_both` does, in the shapes that are declared whatever operators say, as smaller sizes need it."""
    small = to_run(case)
    if isinstance(small, NotRun):
        return small
    found = _shown(small.case, any_numbers)
    if isinstance(found, Agreement):
        found = _rounded(small.case) or found
    if isinstance(found, NotRun):
        return found
    if isinstance(found, Difference) and found.first is not None:
        name, rank, operator = found.first
        first = name, rank, in_plan(case.parallel, small.case.parallel, operator)
        since = tuple(in_plan(case.parallel, small.case.parallel, each) for each in found.since)
        found = replace(found, first=first, since=since)
    return replace(found, sizes=small.sizes)


def run_once(case: Case, any_numbers: bool) -> Difference | None:
    """Return the difference that `run_both` finds where the first run on random numbers shows one.

    What weights and states become counts where the plans are to agree on any numbers.
    """
    small = to_run(case)
    if isinstance(small, NotRun):
        return None
    _, first = _first_run(small.case)
    if not isinstance(first, Difference) or (first.of_update and not any_numbers):
        return None
    found = run_both(case, any_numbers)
    return found if isinstance(found, Difference) else None


def _first_run(case: Case, drops: bool = True) -> tuple[int, Agreement | Difference | NotRun]:
    """Return what the first run on random numbers shows, and below what the indices in it are."""
    below = least_index(case.reference)
    first = compare_runs(case, random_numbers(0, below), drops=drops)
    if first == NO_NUMBER and below > 1:
        below //= 2
        first = compare_runs(case, random_numbers(0, below), drops=drops)
    return below, first


def _shown(case: Case, any_numbers: bool, plain: float = _PLAIN, drops: bool = True) -> Agreement | Difference | NotRun:
    """Return what runs of a pair show that is small enough, where functions stand in for others if it is as `plain`."""
    parallel, reference = case.parallel, case.reference
    below, first = _first_run(case, drops)
    found: list[Difference] = []
    for seed in range(_MOST_RUNS):
        each = compare_runs(case, random_numbers(seed, below), drops=drops) if seed else first
        if isinstance(each, NotRun) and each.fails is not None:
            rank, place = each.fails
            each = Difference("", (rank,), inf, 1.0, None, fails=each.why, at=place)
        if isinstance(each, NotRun):
            return each
        if isinstance(each, Difference):
            found.append(each)
        if seed + 1 >= SEEDS and len(found) in (0, SEEDS):
            break
    found = found or _of_large_numbers(case, below, drops)
    if not found:
        return Agreement()
    invented = found[-1].invented
    if invented == DRAWS:
        alike = _shown(case, any_numbers, plain, drops=False)
        return alike if isinstance(alike, Difference) else NotRun(f"the plans {invented}")
    if invented == FUNCTIONS and is_generated(parallel, reference) and all(each.error > plain * each.scale for each in found):
        invented = ""
    why = f"the plans {invented}" if invented else _inconclusive(parallel, reference, any_numbers, found[-1].of_update)
    if found[-1].of_update and case.agrees:
        why = why or "the programs have given the same numbers"
    why = why or ("" if any_numbers else _of_other_content(case, below))
    if why or len(found) < SEEDS:
        return NotRun(why or "runs on other numbers agree")
    return found[-1]


def _of_large_numbers(case: Case, below: int, drops: bool) -> list[Difference]:
    """Return the differences of runs on numbers that reach the bounds of values; none where one of them shows no plain one.

    A run in which a number gets too large for its type shows none.
    """
    import numpy as np

    runs = (compare_runs(case, random_numbers(seed, below, spread=_LARGE), drops=drops) for seed in range(SEEDS))
    plain = takewhile(lambda each: isinstance(each, Difference) and each.error > _PLAIN * each.scale, runs)
    with np.errstate(over="raise"):
        found = [each for each in plain if isinstance(each, Difference)]
    return found if len(found) == SEEDS else []


def _rounded(case: Case) -> Difference | None:
    """Return the difference that casts to a narrower type make to a plan that is the reference but for these.

    A generator casts nothing that the graph does not cast. Others who compare a plan of mixed precision with a reference of
    whole precision may mean it: the pair stays unknown.
    """
    generated = is_generated(case.parallel, case.reference)
    rounding = with_rounding(case.parallel, case.reference) if generated else None
    if rounding is None:
        return None
    plan, dtype = rounding
    found = _shown(replace(case, parallel=plan), any_numbers=True, plain=_ROUNDED)
    if not isinstance(found, Difference) or found.error <= _ROUNDED * found.scale:
        return None
    return replace(found, first=None, rounds_to=dtype)


def where_runs_agree(case: Case) -> str:
    """Return for which numbers both plans give the same, random ones or those of a mask; empty where they do for none.

    What a mask hides shows only where what it leaves moves each weight that random numbers move. Numbers near zero show what is
    added to larger ones that it vanishes beside.
    """
    small = to_run(case)
    if isinstance(small, NotRun):
        return ""
    case = small.case
    below = least_index(case.reference)
    if all(isinstance(compare_runs(case, random_numbers(seed, below)), Agreement) for seed in range(SEEDS)):
        shows = isinstance(compare_runs(case, random_numbers(SEEDS, below, spread=_NEAR_ZERO)), Difference)
        return "" if shows else f"in {SEEDS} runs on random numbers"
    name = _mask_that_explains(case, below, _content_that_matters(case))
    return f"where {name}" if name else ""


def gradients_may_agree(case: Case) -> Callable[[Case], bool]:
    """Return what says of cases with other plans in the place of the case's whether the gradients of a run are the reference's.

    Where a run of the case shows a difference, a plan that cannot be run shows no agreement.
    """
    small = to_run_again(case)
    if isinstance(small, NotRun):
        return lambda changed: True
    is_small, case = small.case is case, small.case
    whole, memory = random_numbers(0, least_index(case.reference)), Memory()
    alone = run_reference(case, whole)
    if isinstance(alone, NotRun):
        return lambda changed: True
    differs = isinstance(compare_runs(case, whole, alone, memory), Difference)

    def agree(changed: Case) -> bool:
        small = Small(changed) if is_small else to_run_again(changed)
        known = alone if is_small else None
        found = small if isinstance(small, NotRun) else compare_runs(small.case, whole, known, memory)
        if isinstance(found, NotRun):
            return not differs or found.rounds or found == NotRun(RETURNED)
        return isinstance(found, Agreement)

    return agree


def _weights_by_program(plan: Plan) -> Iterator[list[str]]:
    """Yield the full names of the weights that each program uses."""
    for program in plan.programs:
        read = dict.fromkeys(name for _, _, operator in plan.run_by(program) for name in reads(operator))
        weights = [plan.tensors[name] for name in read if name in plan.tensors]
        yield [tensor.logical or tensor.name for tensor in weights if tensor.role is Role.WEIGHT]


def _runs_of(program: Program) -> list[tuple[str, int]]:
    return [(step.segment, step.micro_batch) for step in program.steps]


def _of_other_content(case: Case, below: int) -> str:
    """Return why inputs and buffers may not be any numbers: masks, positions and orders are not, which a right plan may use."""
    if set(case.inputs.names) != set(case.reference_inputs.names):
        return "the plans call their inputs by other names"
    called = {name: case.inputs.names[number] for name, number in case.inputs.number.items()}
    for role in (Role.INPUT, Role.BUFFER):
        here = {called.get(name, name) for name in names_read(case.parallel, role)}
        if here != (there := names_read(case.reference, role)):
            return f"one of the plans does not read `{min(here ^ there)}`"
    held = _content_that_matters(case)
    if not held:
        return ""
    contents = likely_contents(held)
    agreed = (name for name, of in contents if isinstance(compare_runs(case, random_numbers(0, below, of)), Agreement))
    name = next(agreed, "") or _mask_that_explains(case, below, held)
    return f"the plans agree where {name}" if name else ""


def _content_that_matters(case: Case) -> Held:
    """Return what a right plan may hold to be no random numbers: nothing where a generator made it, which knows no content."""
    return {} if is_generated(case.parallel, case.reference) else content_of(case.reference, case.reference_inputs)


def _mask_that_explains(case: Case, below: int, held: Held) -> str:
    """Return a mask with which the plans agree, and which moves each weight that random numbers move; empty for none."""
    alone = run_reference(case, random_numbers(0, below)) if held else None
    if not isinstance(alone, Run):
        return ""
    moved = moved_weights(case.reference, alone.found)
    for name, contents in likely_masks(held):
        whole = random_numbers(0, below, contents)
        alone = run_reference(case, whole)
        if isinstance(alone, NotRun) or not moved_weights(case.reference, alone.found) >= moved:
            continue
        if isinstance(compare_runs(case, whole, alone), Agreement):
            return name
    return ""


def _inconclusive(parallel: Plan, reference: Plan, any_numbers: bool, of_update: bool) -> str:
    """Return why a difference shows nothing; nothing where it does.

    Plans that are to agree on any numbers are to agree where a segment runs twice, too. What is left in weights and states is
    what operators write under their names, and under no other name of what lies in one place.
    """
    for plan in (parallel, reference):
        if any(len(set(names)) < len(names) for names in _weights_by_program(plan)):
            return "a rank has one weight under two names"
        if not any_numbers and any(len(set(runs)) < len(runs) for runs in map(_runs_of, plan.programs)):
            return "a segment runs twice for one micro-batch"
        if of_update and (seen := seen_elsewhere(plan)):
            return seen
        for operator in plan.operators():
            if isinstance(operator, Compute) and operator.in_place:
                over = (str(operator.inputs[place]) for place in operator.in_place)
                if not of_update or not all(plan.has_role(name, Role.WEIGHT, Role.STATE, Role.GRADIENT) for name in over):
                    return f"`{operator.op}` overwrites its operand"
            if of_update and isinstance(operator, ReduceGradients) and not operator.divisor:
                return "the plan does not say by what it divides gradients"
            if not of_update and any(plan.has_role(name, Role.WEIGHT, Role.STATE) for name in writes(operator)):
                return "the plan writes out how weights are updated"
    return ""
