"""Both plans run on the same random numbers: what confirms that a refuted plan computes something else, and decides others.

What refutes by its structure, a partial sum that is taken for a whole one, say, shows that a value is another one than the
reference's at that place. It may yet make no difference in the end: a partial sum through an operator that leaves sums as they
are, parts that are put right later, what is multiplied with zero, keys that a mask hides. Where a pair is small enough to be
run, it is run, also with masks in the place of its buffers and flags. Plans that agree in all gradients and returned values,
and in what weights and states become where both write that out, are not refuted, and not proved either. Where random numbers
are drawn, or a function has no numbers, something stands in for them (`tvlint/replay/stand_ins.py`): a difference then shows
nothing, but for functions in code that a generator made of a traced graph. It splits a function by its annotation alone, so
that what it makes is right for all functions with that annotation, or not right.

A pair that is too large is run with smaller sizes (`tvlint/equivalence/sizes/shrink.py`, which says why a difference of that
pair is one of the pair itself).

A pair that the derivation leaves open is refuted where the gradient of a weight is another one in every run. Nothing is
concluded from a difference where the numbers may be none that the plans are made for, or where the run does not show what
counts: weights that the plan itself updates, inputs of which it is assumed which is which. Where a plan does not say by what it
divides gradients, a multiple of the reference's shows nothing.

The content of buffers is part of the model (masks, tables of sines), and so may be that of inputs of whole numbers or flags
that are neither rows of a weight nor classes: a causal mask, positions in order. A right plan may use that content. A
difference then counts only where both plans read the same of these tensors, and where no content of `_CONTENTS` makes them
agree. Code that a generator made of a traced graph rests on no content, which the generator does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import prod
from typing import Any, TypeAlias

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.given.trusted_inputs import Inputs, region, whole_shape
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.equivalence.sizes.shrink import shrink
from tvlint.equivalence.verdict.declared_results import otherwise_declared
from tvlint.equivalence.verdict.pairing import Case, first_rank, pair
from tvlint.equivalence.verdict.rounding import with_rounding
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, ReduceGradients, Update
from tvlint.ir.placement import Partial, Shard
from tvlint.ir.plan import Plan, Program, Role, Tensor
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.field import Array
from tvlint.ops.spec import Trait, UnsupportedError
from tvlint.ops.table import bound_in, has_trait
from tvlint.replay.collectives import part_of
from tvlint.replay.memory import Memory
from tvlint.replay.operators import NotReplayedError
from tvlint.replay.run import Result, UnreplayableError, replay
from tvlint.replay.stand_ins import StandIns

SEEDS = 3
"""So many runs have to show a difference, or all runs none."""

_MOST_RUNS = 4 * SEEDS
"""So many runs are made where some of them show a difference: what differs for some data may not show in each."""

_MOST_NUMBERS = 1 << 23
"""Plans of which the ranks hold more numbers are not run."""

_TIMES_AS_MANY = 6
"""Plans of so many times as many numbers are run where their sizes cannot be made smaller."""

_MOST_NUMBERS_OF_EDITS = 1 << 20
"""Plans of which the ranks hold more numbers are not run again for each edit."""

_MOST_OPERATORS = 20_000
"""Nor are plans of which the ranks run more operators."""

_MOST_SIZES = 3
"""So many sizes that were made smaller are named."""

_MOST_OPERATORS_OF_EDITS = 2_000
"""Of plans of which the ranks run more operators, fewer replicas are run for each edit, where these are equal."""

_TOLERANCE = 1e-7
_NOTHING = 1e-6
"""A gradient that is smaller throughout may be zero, but for rounding; its errors show nothing."""

_CERTAIN = 1e-6
"""A gradient that is off by more than this part of the greatest element is another gradient, whatever rounding does."""

_NEAR_ZERO = 2**-6
"""The greatest of random numbers beside which what is added to a mean of squares shows."""

_ROUNDED = 1e-5
"""A gradient that casts round is off by more than this part of the greatest element, which `float32` never is."""

_PLAIN = 1e-3
"""Where something stands in for a function, which may make rounding errors larger, a gradient is off by more than this."""

FUNCTIONS = "call what has no numbers"
"""Of plans for whose functions something stood in, and for nothing else."""

_RETURNED = "the gradients agree, and what is returned does not"

GENERATED = ("nnscaler-gencode", "nnscaler-graph")
"""The formats of code that a generator made, and of what it made the code of."""

_FROM_A_GRAPH = (GENERATED, ("nnscaler-pickle", "nnscaler-pickle"))
"""The formats of pairs of which a generator made the plan from a traced graph: as code, or as it exports plan and graph."""

_Whole: TypeAlias = Callable[[str, str, tuple[int, ...], str], Array]
"""The numbers of a whole value: by its role, its full name, its shape and its type."""

_Held: TypeAlias = Mapping[tuple[str, str], str]
"""The kind of the numbers of tensors, by role and full name."""

_Contents: TypeAlias = Mapping[tuple[str, str], Callable[[Array], Array]]
"""What takes the place of the random numbers of tensors, by role and full name."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """All gradients and returned values were those of the reference in each of `SEEDS` runs."""

    moved: frozenset[str] = frozenset()
    """The weights whose gradients are not zero throughout."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """As in `Difference`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The gradient of `weight` was another one than the reference's on `ranks`, in each of `SEEDS` runs.

    `error` is the greatest error of the last run, where the greatest element of the reference's is `scale`. `first` is the
    first result in the order of the program that is not the reference's value of that name, and the operator that gives it.
    `invented` says for what something stood in, random numbers or functions that have none. `sizes` are those of dimensions
    that were made smaller for the run, by what they are in the plan.
    """

    weight: str
    ranks: tuple[int, ...]
    error: float
    scale: float
    first: tuple[str, int, Operator] | None
    invented: str = ""
    sizes: Mapping[int, int] = field(default_factory=dict)
    rounds_to: str = ""
    """The narrower type whose casts alone make the difference; empty where others do."""


@dataclass(frozen=True, slots=True)
class NotRun:
    """Nothing is concluded from numbers, for a reason."""

    why: str


_NO_NUMBER = NotRun("what the plans give is no number")
"""As where a class is asked for whose score is minus infinity, since only the first classes are ever right."""


def run_both(case: Case, any_numbers: bool = False) -> Agreement | Difference | NotRun:
    """Run the pair on random numbers, and return what they show.

    With `any_numbers` the plans are to agree on any numbers, whatever inputs and buffers are made for, as a proof says. Nothing
    is run where operators are known to give other shapes than those that are declared.
    """
    otherwise = otherwise_declared(case.parallel) or otherwise_declared(case.reference)
    return NotRun(otherwise) if otherwise else run_in_declared_shapes(case, any_numbers)


def run_in_declared_shapes(case: Case, any_numbers: bool = False) -> Agreement | Difference | NotRun:
    """Run the pair as `run_both` does, in the shapes that are declared whatever operators say, as smaller sizes need it."""
    small = _to_run(case)
    if isinstance(small, NotRun):
        return small
    found = _shown(small.case, any_numbers)
    if isinstance(found, Agreement):
        found = _rounded(small.case) or found
    if isinstance(found, NotRun):
        return found
    if isinstance(found, Difference) and found.first is not None:
        name, rank, operator = found.first
        found = replace(found, first=(name, rank, _in_plan(case.parallel, small.case.parallel, operator)))
    return replace(found, sizes=small.sizes)


def _shown(case: Case, any_numbers: bool, plain: float = _PLAIN) -> Agreement | Difference | NotRun:
    """Return what runs of a pair show that is small enough, where functions stand in for others if it is as `plain`."""
    parallel, reference = case.parallel, case.reference
    below = _least_index(reference)
    if below > 1 and _compared(case, _numbers(0, below)) == _NO_NUMBER:
        below //= 2
    found: list[Difference] = []
    for seed in range(_MOST_RUNS):
        each = _compared(case, _numbers(seed, below))
        if isinstance(each, NotRun):
            return each
        if isinstance(each, Difference):
            found.append(each)
        if seed + 1 >= SEEDS and len(found) in (0, SEEDS):
            break
    if not found:
        return Agreement()
    invented = found[-1].invented
    if invented == FUNCTIONS and _is_generated(parallel, reference) and all(each.error > plain * each.scale for each in found):
        invented = ""
    why = f"the plans {invented}" if invented else _inconclusive(parallel, reference)
    why = why or ("" if any_numbers else _of_other_content(case, below))
    if why or len(found) < SEEDS:
        return NotRun(why or "runs on other numbers agree")
    return found[-1]


def _rounded(case: Case) -> Difference | None:
    """Return the difference that casts to a narrower type make to a plan that is the reference but for these.

    A generator casts nothing that the graph does not cast. Others who compare a plan of mixed precision with a reference of
    whole precision may mean it: the pair stays unknown.
    """
    generated = _is_generated(case.parallel, case.reference)
    rounding = with_rounding(case.parallel, case.reference) if generated else None
    if rounding is None:
        return None
    plan, dtype = rounding
    found = _shown(replace(case, parallel=plan), any_numbers=True, plain=_ROUNDED)
    if not isinstance(found, Difference) or found.error <= _ROUNDED * found.scale:
        return None
    return replace(found, first=None, rounds_to=dtype)


@dataclass(frozen=True, slots=True)
class _Small:
    """A case that is small enough to be run, and the sizes that were made smaller for it."""

    case: Case
    sizes: Mapping[int, int] = field(default_factory=dict)


def _to_run(case: Case, most: int | None = None, operators: int | None = None) -> _Small | NotRun:
    """Return the case, where it is too large with sizes as small as the plans allow."""
    largest = _TIMES_AS_MANY * _MOST_NUMBERS if most is None else most
    most = _MOST_NUMBERS if most is None else most
    operators = _MOST_OPERATORS if operators is None else operators
    if not _is_too_large(case, most) and _runs(case.parallel) <= operators:
        return _Small(case)
    found = shrink(case.parallel, case.reference, case.inputs, case.reference_inputs, case.batch)
    if isinstance(found, str):
        is_small = not _is_too_large(case, largest) and _runs(case.parallel) <= operators
        return _Small(case) if is_small else NotRun(f"the plans are too large, and {found}")
    small = pair(found.parallel, found.reference, case.assume)
    if not isinstance(small, Case) or _is_too_large(small, most) or _runs(small.parallel) > _MOST_OPERATORS:
        return NotRun("the plans are too large")
    return _Small(small, found.sizes)


def _in_plan(plan: Plan, small: Plan, operator: Operator) -> Operator:
    """Return the operator of a plan that stands where one of the plan with smaller sizes does."""
    for name, segment in small.segments.items():
        for before, after in zip(plan.segments[name].operators, segment.operators, strict=True):
            if after is operator:
                return before
    return operator


def where_runs_agree(case: Case) -> str:
    """Return for which numbers both plans give the same, random ones or those of a mask; empty where they do for none.

    What a mask hides shows only where what it leaves moves each weight that random numbers move. Numbers near zero show what is
    added to larger ones that it vanishes beside.
    """
    small = _to_run(case)
    if isinstance(small, NotRun):
        return ""
    case = small.case
    below = _least_index(case.reference)
    if all(isinstance(_compared(case, _numbers(seed, below)), Agreement) for seed in range(SEEDS)):
        shows = isinstance(_compared(case, _numbers(SEEDS, below, spread=_NEAR_ZERO)), Difference)
        return "" if shows else f"in {SEEDS} runs on random numbers"
    name = _mask_that_explains(case, below, _content_of(case.reference, case.reference_inputs))
    return f"where {name}" if name else ""


def gradients_may_agree(case: Case) -> Callable[[Case], bool]:
    """Return what says of cases with other plans in the place of the case's whether the gradients of a run are the reference's.

    Where a run of the case shows a difference, a plan that cannot be run shows no agreement.
    """
    small = _to_run(case, _MOST_NUMBERS_OF_EDITS, _MOST_OPERATORS_OF_EDITS)
    if isinstance(small, NotRun):
        return lambda changed: True
    is_small, case = small.case is case, small.case
    whole, memory = _numbers(0, _least_index(case.reference)), Memory()
    alone = _run(case.reference, case, case.reference_inputs, case.reference_micro_batches, whole)
    if isinstance(alone, NotRun):
        return lambda changed: True
    differs = isinstance(_compared(case, whole, alone, memory), Difference)

    def agree(changed: Case) -> bool:
        small = _Small(changed) if is_small else _to_run(changed, _MOST_NUMBERS_OF_EDITS, _MOST_OPERATORS_OF_EDITS)
        known = alone if is_small else None
        found = small if isinstance(small, NotRun) else _compared(small.case, whole, known, memory)
        return isinstance(found, Agreement) or (isinstance(found, NotRun) and (not differs or found == NotRun(_RETURNED)))

    return agree


def _is_too_large(case: Case, most: int) -> bool:
    return _size(case.parallel) > most or _size(case.reference) > most


def _weights_by_program(plan: Plan) -> Iterator[list[str]]:
    """Yield the full names of the weights that each program uses."""
    for program in plan.programs:
        operators = [
            operator for name in {step.segment for step in program.steps} for operator in plan.segments[name].operators
        ]
        read = dict.fromkeys(name for operator in operators for name in reads(operator))
        weights = [plan.tensors[name] for name in read if name in plan.tensors]
        yield [tensor.logical or tensor.name for tensor in weights if tensor.role is Role.WEIGHT]


def _runs_of(program: Program) -> list[tuple[str, int]]:
    return [(step.segment, step.micro_batch) for step in program.steps]


def runs(sizes: Mapping[int, int]) -> str:
    """Return on what was run, with sizes that were made smaller."""
    if not sizes:
        return f"{SEEDS} runs on random numbers"
    largest = [f"{after} for {before}" for before, after in sorted(sizes.items(), reverse=True)[:_MOST_SIZES]]
    return f"{SEEDS} runs on random numbers, with smaller sizes ({', '.join(largest)})"


def as_troubles(
    plan: Plan, found: Difference, refutes: bool, taken: tuple[str, Compute] | None = None
) -> tuple[Defect, ...]:
    """Return the difference as what is wrong on its ranks, at the operator that takes a part of a sum together with what is
    complete, or at that of the first result that differs.

    Where all results are the reference's it is at the weight whose gradient differs.
    """
    text = (
        f"the gradient of `{found.weight}` on {{ranks}} is another one in {runs(found.sizes)}: "
        f"off by {found.error:.3g}, where the greatest element is {found.scale:.3g}"
    )
    if found.rounds_to:
        text += f"; a cast of the plan rounds to {found.rounds_to}, and the reference keeps all numbers in wider types"
    stride = plan.replication.stride if plan.replication.count > 1 else plan.mesh.size
    ranks = sorted({rank % stride for rank in found.ranks})
    if taken is not None:
        part, adds = taken
        text += f"; `{adds.op.rsplit('.', 1)[-1]}` adds the part of a sum that `{part}` is to what is complete"
        segment = next((segment.name for segment in plan.segments.values() if adds in segment.operators), "")
        return tuple(at(adds, segment, Defect("other-numbers", refutes, text, rank)) for rank in ranks)
    if found.first is None:
        weight = plan.tensors.get(found.weight)
        place = weight.source if weight is not None else None
        return tuple(Defect("other-numbers", refutes, text, rank, source=place) for rank in ranks)
    name, _, operator = found.first
    text += f"; the first result that is not the reference's of that name is `{name}`"
    segment = next((segment.name for segment in plan.segments.values() if operator in segment.operators), "")
    return tuple(at(operator, segment, Defect("other-numbers", refutes, text, rank)) for rank in ranks)


def _of_other_content(case: Case, below: int) -> str:
    """Return why inputs and buffers may not be any numbers: masks, positions and orders are not, which a right plan may use."""
    if set(case.inputs.names) != set(case.reference_inputs.names):
        return "the plans call their inputs by other names"
    called = {name: case.inputs.names[number] for name, number in case.inputs.number.items()}
    for role in (Role.INPUT, Role.BUFFER):
        here = {called.get(name, name) for name in _names_read(case.parallel, role)}
        if here != (there := _names_read(case.reference, role)):
            return f"one of the plans does not read `{min(here ^ there)}`"
    if _is_generated(case.parallel, case.reference) or not (held := _content_of(case.reference, case.reference_inputs)):
        return ""
    contents = _contents(held)
    agreed = (name for name, of in contents if isinstance(_compared(case, _numbers(0, below, of)), Agreement))
    name = next(agreed, "") or _mask_that_explains(case, below, held)
    return f"the plans agree where {name}" if name else ""


def _contents(held: _Held) -> Iterator[tuple[str, _Contents]]:
    """Yield contents of tensors, all of one kind alike, with what they are called."""
    kinds = sorted(set(held.values()))
    for chosen in product(*(_CONTENTS[kind].items() for kind in kinds)):
        of_kind = {kind: content for kind, (_, content) in zip(kinds, chosen, strict=True)}
        yield " and ".join(name for name, _ in chosen), {key: of_kind[kind] for key, kind in held.items()}


def _masks(held: _Held) -> Iterator[tuple[str, _Contents]]:
    """Yield masks of one shape as the content of all tensors, with what they are called; a kind says alike what is hidden.

    Of each shape it is the narrowest that leaves two keys, which hides all that a wider one hides.
    """
    kinds = sorted(set(held.values()))
    for name, hidden in _HIDDEN.items():
        for chosen in product(*(_WAYS[kind].items() for kind in kinds)):
            ways = dict(zip(kinds, chosen, strict=True))
            said = ", ".join(f"{kind} {word}" for kind, (word, _) in ways.items())
            contents = {key: partial(_mask, hidden, ways[kind][1]) for key, kind in held.items()}
            yield f"masks hide {name} ({said})", contents


def _mask_that_explains(case: Case, below: int, held: _Held) -> str:
    """Return a mask with which the plans agree, and which moves each weight that random numbers move; empty for none."""
    alone = _run(case.reference, case, case.reference_inputs, case.reference_micro_batches, _numbers(0, below))
    if isinstance(alone, NotRun) or not held:
        return ""
    moved = _moved(_gradients_of(case.reference, alone.found))
    for name, contents in _masks(held):
        found = _compared(case, _numbers(0, below, contents))
        if isinstance(found, Agreement) and found.moved >= moved:
            return name
    return ""


def _mask(hidden: Callable[[Array, Array], Array], way: Callable[[Array], Array], value: Array) -> Array:
    """Return a mask in the place of a value; of one dimension, one that hides the second half of a row."""
    columns = _in_order(value, -1)
    return way((hidden(_in_order(value, -2), columns) if value.ndim > 1 else columns >= value.size / 2) * 1.0)


def _content_of(reference: Plan, inputs: Inputs) -> dict[tuple[str, str], str]:
    """Return what is read and may not be any data, by the kind of its numbers: buffers, and inputs that nothing looks up.

    Floating inputs are data. A tensor is named by its role and its full name, an input by its position.
    """
    read = _names_read(reference, Role.INPUT) - _looked_up_inputs(reference)
    named = [
        (("input", str(number)), dtype)
        for number, (name, dtype) in enumerate(zip(inputs.names, inputs.dtypes, strict=True))
        if name in read and _kind_of(dtype) != "numbers"
    ]
    buffers = _names_read(reference, Role.BUFFER)
    tensors = ((tensor.logical or tensor.name, tensor.dtype) for tensor in reference.tensors.values())
    named += [(("buffer", name), dtype) for name, dtype in tensors if name in buffers]
    return {key: _kind_of(dtype) for key, dtype in named}


def _kind_of(dtype: str) -> str:
    if dtype.rsplit(".", 1)[-1].startswith("bool"):
        return "flags"
    return "whole numbers" if holds_whole_numbers(dtype) else "numbers"


def _in_order(value: Array, dim: int) -> Array:
    """Return the indices along a dimension."""
    import numpy as np

    return np.asarray(np.indices(value.shape)[dim], dtype=float) if value.ndim else value


def _is_causal(value: Array) -> Array:
    """Return whether a column is not past its row; of one dimension, whether it is in the first half."""
    columns = _in_order(value, -1)
    return columns <= (_in_order(value, -2) if value.ndim > 1 else value.size // 2)


def _repeated(value: Array, pairs: bool) -> Array:
    """Return numbers of which the halves, or the two of each pair, are equal along the last dimension."""
    import numpy as np

    if not value.ndim or value.shape[-1] % 2:
        return value
    half = value[..., : value.shape[-1] // 2]
    return np.repeat(half, 2, axis=-1) if pairs else np.concatenate([half, half], axis=-1)


_CONTENTS: dict[str, dict[str, Callable[[Array], Array]]] = {
    "flags": {
        "flags are a causal mask": lambda value: _is_causal(value) * 1.0,
        "flags hide what is not causal": lambda value: 1.0 - _is_causal(value),
        "all flags are set": lambda value: 1.0 + 0 * value,
    },
    "whole numbers": {
        "whole numbers are positions in the last dimension": lambda value: _in_order(value, -1),
        "whole numbers are positions in the first dimension": lambda value: _in_order(value, 0),
        "whole numbers are a causal mask": lambda value: _is_causal(value) * 1.0,
        "whole numbers are one": lambda value: 1.0 + 0 * value,
    },
    "numbers": {
        "buffers hold any numbers": lambda value: value,
        "buffers hold equal halves": lambda value: _repeated(value, pairs=False),
        "buffers hold equal pairs": lambda value: _repeated(value, pairs=True),
        "buffers hold what is added for a causal mask": lambda value: 1e4 * (_is_causal(value) - 1.0),
        "buffers hold what is multiplied for a causal mask": lambda value: _is_causal(value) * 1.0,
        "buffers hold ones": lambda value: 1.0 + 0 * value,
    },
}
"""What masks, positions and tables hold in the models that are trained, of flags, of whole numbers and of other numbers."""


_HIDDEN: dict[str, Callable[[Array, Array], Array]] = {
    "later keys": lambda row, column: column > row,
    "all keys but the query's and the one before": lambda row, column: (column > row) | (column < row - 1),
    "later keys, and all but the first two": lambda row, column: (column > row) | (column > 1),
    "keys of other documents, two in each": lambda row, column: row // 2 != column // 2,
    "keys of other documents, three in each": lambda row, column: row // 3 != column // 3,
}
"""What masks hide, of rows of queries and columns of keys."""

_WAYS: dict[str, dict[str, Callable[[Array], Array]]] = {
    "flags": {"say what is hidden": lambda hidden: hidden, "say what is kept": lambda hidden: 1.0 - hidden},
    "whole numbers": {"say what is hidden": lambda hidden: hidden, "say what is kept": lambda hidden: 1.0 - hidden},
    "numbers": {"are added": lambda hidden: -1e4 * hidden, "are multiplied": lambda hidden: 1.0 - hidden},
}
"""The ways in which tensors say what is hidden, by the kind of their numbers."""


def _is_generated(parallel: Plan, reference: Plan) -> bool:
    """Return whether a generator made the plan of the reference, without knowing what buffers and inputs hold."""
    return (parallel.format, reference.format) in _FROM_A_GRAPH


def _names_read(plan: Plan, role: Role) -> set[str]:
    """Return the full names of the tensors of a role that operators read."""
    operators = (operator for segment in plan.segments.values() for operator in segment.operators)
    tensors = (plan.tensors[name] for operator in operators for name in reads(operator) if name in plan.tensors)
    return {tensor.logical or tensor.name for tensor in tensors if tensor.role is role}


def _looked_up_inputs(plan: Plan) -> set[str]:
    """Return the full names of the inputs that are indices of rows of weights, classes of losses or choices of experts."""
    found: set[str] = set()
    computed = [
        operator for segment in plan.segments.values() for operator in segment.operators if isinstance(operator, Compute)
    ]
    for each_operator in reversed(computed):
        names = [operand for operand in each_operator.inputs if isinstance(operand, str)]
        if has_trait(each_operator.op, *_KEEP_ELEMENTS) and found.intersection(each_operator.outputs):
            found.update(names)
        tables = {name for name in names if name in plan.tensors and plan.tensors[name].role is Role.WEIGHT}
        if tables or has_trait(each_operator.op, *_LOOK_UP):
            found.update(_looked_up(plan, each_operator))
    return {plan.tensors[name].logical or name for name in found if name in plan.tensors}


_KEEP_ELEMENTS = (Trait.VIEW, Trait.RANGES, Trait.CONVERSION, Trait.JOIN)
_LOOK_UP = (Trait.CLASS_LOSS, Trait.MASKED_LOOKUP, Trait.TOKEN_DISPATCH, Trait.TOKEN_COMBINE)
"""Operators that look up what their indices are made for, in whatever they look it up."""


def _inconclusive(parallel: Plan, reference: Plan) -> str:
    """Return why a difference shows nothing; nothing where it does."""
    for plan in (parallel, reference):
        if any(len(set(names)) < len(names) for names in _weights_by_program(plan)):
            return "a rank has one weight under two names"
        if any(len(set(runs)) < len(runs) for runs in map(_runs_of, plan.programs)):
            return "a segment runs twice for one micro-batch"
        for segment in plan.segments.values():
            for operator in segment.operators:
                if isinstance(operator, Compute) and operator.in_place:
                    return f"`{operator.op}` overwrites its operand"
                if any(
                    plan.tensors[name].role in (Role.WEIGHT, Role.STATE) for name in writes(operator) if name in plan.tensors
                ):
                    return "the plan writes out how weights are updated"
    return ""


def _size(plan: Plan) -> int:
    """Return how many numbers the ranks hold, those of a tensor once on each rank that names it."""
    found = 0
    for program in plan.programs:
        operators = [
            operator for name in {step.segment for step in program.steps} for operator in plan.segments[name].operators
        ]
        named = {name for operator in operators for name in (*reads(operator), *writes(operator)) if name in plan.tensors}
        found += len(program.ranks) * sum(prod(plan.tensors[name].shape) for name in named)
    return found * plan.replication.count


def _runs(plan: Plan) -> int:
    """Return how many operators the ranks run."""
    of_segments = {name: len(segment.operators) for name, segment in plan.segments.items()}
    runs = sum(len(program.ranks) * sum(of_segments[step.segment] for step in program.steps) for program in plan.programs)
    return runs * plan.replication.count


def _least_index(reference: Plan) -> int:
    """Return a number of which all that are below it are indices of every table that is looked up in, and classes of losses."""
    computed = [
        operator for segment in reference.segments.values() for operator in segment.operators if isinstance(operator, Compute)
    ]
    looked_up = [size for operator in computed for size in _looked_up(reference, operator).values()]
    weights = (tensor for tensor in reference.tensors.values() if tensor.role is Role.WEIGHT)
    sizes = looked_up or [size for tensor in weights for size in whole_shape(tensor) if size > 1]
    return min(sizes, default=2)


def _looked_up(plan: Plan, operator: Compute) -> dict[str, int]:
    """Return the lengths of the dimensions in which the operator looks something up, by the tensor that holds the indices."""
    bound, names = bound_in(operator, plan.tensors), [operand for operand in operator.inputs if isinstance(operand, str)]
    if bound is None:
        return {}
    sizes = {
        name: size
        for operand, tensor in zip(bound.operands, names, strict=False)
        for name, size in zip(operand, plan.tensors[tensor].shape, strict=True)
    }
    return {names[place]: sizes[name] for place, name in bound.indices.items() if name in sizes}


def _numbers(seed: int, below: int, contents: _Contents | None = None, spread: float = 1.5) -> _Whole:
    """Return what gives every whole value numbers of its own, the same to both plans, and some of them other content."""
    import numpy as np

    known: dict[tuple[str, str, tuple[int, ...]], Array] = {}

    def whole(role: str, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        key = (role, name, shape)
        if key not in known:
            random = np.random.default_rng([seed, *f"{role} {name}".encode()])
            if dtype.rsplit(".", 1)[-1].startswith("bool"):
                known[key] = random.integers(0, 2, shape).astype(float)
            elif holds_whole_numbers(dtype):
                known[key] = random.integers(0, below, shape).astype(float)
            else:
                known[key] = random.uniform(-spread, spread, shape)
            if contents is not None and (role, name) in contents:
                known[key] = contents[role, name](known[key])
        return known[key]

    return whole


def _compared(
    case: Case, whole: _Whole, known: _Run | None = None, memory: Memory | None = None
) -> Agreement | Difference | NotRun:
    """Return what a run shows; `known` is that of the reference, where it has been run, and `memory` that of other plans."""
    parallel, reference = case.parallel, case.reference
    alone = known or _run(reference, case, case.reference_inputs, case.reference_micro_batches, whole)
    if isinstance(alone, NotRun):
        return alone
    many = _run(parallel, case, case.inputs, case.micro_batches * parallel.replication.count, whole, memory)
    if isinstance(many, NotRun):
        return many
    expected = _gradients_of(reference, alone.found)
    left = {_full_name(reference, name): value for (_, name), value in alone.found.left.items()}
    if not _are_left(parallel, left, many.found):
        return NotRun("weights or states become something else")
    updated = {name for name in left if name in {_full_name(parallel, held) for _, held in many.found.left}}
    parts = parallel.mesh.size * micro_batches_of(parallel) if _is_generated(parallel, reference) else 0
    different = _other_gradient(parallel, expected, many.found, updated, parts)
    if isinstance(different, NotRun):
        return different
    if different is not None:
        if case.reference_micro_batches == 1:
            different = _with_first(different, parallel, alone, many)
        return replace(different, invented=max(alone.invented, many.invented))
    if _same_returned(case, alone.found, many.found):
        return Agreement(_moved(expected))
    return NotRun(_RETURNED)


def _full_name(plan: Plan, name: str) -> str:
    return plan.tensors[name].logical or name


def _gradients_of(reference: Plan, alone: Result) -> dict[str, Array]:
    """Return the gradients of the reference by the full names of weights."""
    return {_full_name(reference, name): gradient * reference.undivided for (_, name), gradient in alone.gradients.items()}


def _moved(gradients: Mapping[str, Array]) -> frozenset[str]:
    """Return the weights of which the gradient is not zero throughout, but for rounding."""
    return frozenset(name for name, gradient in gradients.items() if abs(gradient).max(initial=0) > _NOTHING)


def _are_left(plan: Plan, expected: Mapping[str, Array], many: Result) -> bool:
    """Return whether the ranks leave in weights and states what the reference does, of all that both write anew."""
    for (rank, name), value in many.left.items():
        right = expected.get(_full_name(plan, name))
        if right is None:
            continue
        first = rank % plan.replication.stride if plan.replication.count > 1 else rank
        try:
            piece = right[_places(plan, plan.tensors[name], first)]
        except (Mismatch, IndexError):
            return False
        if not _close(value, piece, float(abs(right).max(initial=0))):
            return False
    return expected.keys() <= {_full_name(plan, name) for _, name in many.left}


@dataclass(slots=True)
class _Run:
    """The results of a run, and what operators gave on its way: rank, operator, name and value."""

    found: Result = field(default_factory=Result)
    given: list[tuple[int, Operator, str, Array]] = field(default_factory=list)
    invented: str = ""


def _run(
    plan: Plan, case: Case, inputs: Inputs, count: int, whole: _Whole, memory: Memory | None = None
) -> _Run | NotRun:
    """Return what the plan computes, or why that cannot be found out."""
    import numpy as np

    weights = {tensor.logical or tensor.name for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT}

    def given(rank: int, name: str, micro_batch: int) -> Array | None:
        tensor = plan.tensors[name]
        replica, first = divmod(rank, plan.replication.stride) if plan.replication.count > 1 else (0, rank)
        held = _places(plan, tensor, first)
        full = tensor.logical or tensor.name
        if tensor.role is Role.STATE and full not in weights:
            return np.asarray(abs(whole(tensor.role.value, full, whole_shape(tensor), tensor.dtype))[held])
        if tensor.role is not Role.INPUT:
            role = Role.WEIGHT if tensor.role is Role.STATE else tensor.role
            value = whole(role.value, full, whole_shape(tensor), tensor.dtype)
            return np.asarray(_addend(value, full, whole, tensor)[held])
        number = inputs.position(tensor)
        if number is None:
            return None
        value = whole("input", str(number), case.batch.whole_shapes[number], tensor.dtype)
        value = _addend(value, str(number), whole, tensor)
        if count > 1:
            dim, slot = case.batch.dims[number], replica * micro_batches_of(plan) + micro_batch
            value = part_of(value, dim, slot, count)
        return np.asarray(value[held])

    run = _Run()

    stand_ins = StandIns()
    try:
        with np.errstate(all="ignore"):
            run.found = replay(plan, given, lambda *each: run.given.append(each), stand_ins, memory)
        if stand_ins.used:
            run.invented = "draw random numbers" if stand_ins.has_drawn else FUNCTIONS
    except UnreplayableError as error:
        return NotRun(str(error))
    except (Mismatch, NotReplayedError, UnsupportedError, ValueError, IndexError, KeyError, TypeError, ArithmeticError):
        return NotRun(f"`{plan.path}` does not run to its end on numbers")
    values = (*run.found.gradients.values(), *run.found.returned.values())
    is_defined = not any(np.any(np.isnan(value)) for _, _, _, value in run.given)
    if is_defined and all(np.all(np.isfinite(value)) for value in values):
        return run
    return _NO_NUMBER


def _addend(value: Array, name: str, whole: _Whole, tensor: Tensor) -> Array:
    """Return the addend of a whole value that a tensor is declared to be, of any that add up to it."""
    place, count = tensor.part
    others = [whole(f"addend {each} of {count}", name, value.shape, tensor.dtype) for each in range(1, count)]
    return others[place - 1] if place else sum((-other for other in others), start=value)


def _places(plan: Plan, tensor: Tensor, rank: int) -> tuple[Any, ...]:
    """Return which elements of the whole value the rank holds, as an index of arrays. Raises Mismatch."""
    import numpy as np

    placements = tensor.placements or {}
    if tensor.region is not None or not any(
        isinstance(each_placement, Shard) and (each_placement.order or each_placement.parts)
        for each_placement in placements.values()
    ):
        return tuple(slice(low, high) for low, high in region(plan, replace(tensor, part=(0, 1)), rank))
    held = [np.arange(size) for size in whole_shape(tensor)]
    coordinates = plan.mesh.coordinates(rank)
    for axis in plan.mesh.axes:
        placement = placements.get(axis.name)
        if not isinstance(placement, Shard):
            continue
        parts = np.split(held[placement.dim], np.cumsum(placement.parts)[:-1]) if placement.parts else [held[placement.dim]]
        chosen = placement.order[coordinates[axis.name]] if placement.order else (coordinates[axis.name],)
        count = sum(map(len, placement.order)) or axis.size
        held[placement.dim] = np.concatenate([np.split(part, count)[piece] for part in parts for piece in chosen])
    return np.ix_(*held)


def _other_gradient(
    plan: Plan, expected: Mapping[str, Array], many: Result, updated: Set[str], parts: int
) -> Difference | NotRun | None:
    """Return where a rank has another gradient of a piece of a weight that it uses than the reference; None where none has.

    Of the weights that are `updated` in both plans no gradient need be left. Where a plan does not say by what it divides, it
    may be by numbers of its `parts`, if these are known, else by anything.
    """
    import numpy as np

    expected = {name: gradient for name, gradient in expected.items() if name not in updated}
    used = [(rank, name) for rank, name in _used(plan) if _full_name(plan, name) not in updated]
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
            piece = right[_places(plan, tensor, first)]
        except (Mismatch, IndexError):
            return NotRun(f"`{name}` is no piece of the reference's")
        held = np.zeros(piece.shape) if gradient is None else gradient
        if held.shape != piece.shape:
            return NotRun(f"the gradient of `{name}` has another shape than the reference's")
        scale = float(np.abs(right).max(initial=0))
        if _close(held, piece, scale):
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
        return NotRun(f"the gradient of `{name}` differs by what rounding may do")
    return Difference(name, tuple(sorted(errors[name])), error, scales[name], None)


def _undivided(plan: Plan) -> set[str]:
    """Return the weights whose gradients go through a reducer of which the plan does not say by what it divides."""
    operators = (operator for segment in plan.segments.values() for operator in segment.operators)
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
    if factor <= 0 or not _close(held / factor, piece, scale):
        return False
    ratio = Fraction(factor).limit_denominator(max(1, parts))
    divides = ratio > 0 and parts % ratio.numerator == parts % ratio.denominator == 0
    return not parts or (divides and abs(factor / float(ratio) - 1) < _CERTAIN)


def _with_first(difference: Difference, plan: Plan, alone: _Run, many: _Run) -> Difference:
    """Return the difference with the first result that is not the reference's value of that name.

    Results that have another shape, or that a collective completes, say nothing; nor does a single number, which may be of the
    batch of one rank.
    """
    right = {name: value for _, _, name, value in alone.given}
    completed = {
        name
        for segment in plan.segments.values()
        for operator in segment.operators
        if isinstance(operator, Communicate)
        for name in operator.inputs
    }
    for rank, operator, name, value in many.given:
        known = right.get(name)
        if known is None or known.shape != value.shape or name in completed or isinstance(operator, Backward):
            continue
        if value.size > 1 and not _close(value, known, float(abs(known).max(initial=0))):
            return replace(difference, first=(name, rank, operator))
    return difference


def _used(plan: Plan) -> Iterable[tuple[int, str]]:
    """Return the weights that each rank reads, reduces or updates."""
    shifts = [replica * plan.replication.stride for replica in range(plan.replication.count)]
    for program in plan.programs:
        named = {
            name
            for segment in {step.segment for step in program.steps}
            for operator in plan.segments[segment].operators
            for name in (operator.weights if isinstance(operator, ReduceGradients | Update) else reads(operator))
            if name in plan.tensors and plan.tensors[name].role is Role.WEIGHT
        }
        yield from ((rank + shift, name) for rank in program.ranks for shift in shifts for name in sorted(named))


def _same_returned(case: Case, alone: Result, many: Result) -> bool:
    """Return whether all ranks return what the reference does: the value, or their micro-batches' and replicas' parts of it.

    A plan that says of nothing that it returns it has nothing to compare.
    """
    parallel, count = case.parallel, case.micro_batches * case.parallel.replication.count
    if not parallel.outputs:
        return True
    right = _totals(case.reference, alone, first_rank(case.reference))
    shares = [Fraction(*pair) for pair in product((1, count), (1, case.reference_micro_batches))]
    ranks = {rank for rank, _, _ in many.returned}
    for rank in ranks:
        found = _totals(parallel, many, rank)
        if len(found) != len(right):
            return False
        for array, value in zip(found, right, strict=True):
            if array is None or value is None or array.shape != value.shape:
                return False
            if not any(_close(array / float(share), value, float(abs(value).max(initial=0))) for share in shares):
                return False
    return bool(ranks)


def _totals(plan: Plan, many: Result, rank: int) -> list[Array | None]:
    """Return what a rank returns, in order, over all micro-batches, each of which may have a name of its own for it."""
    names: dict[int, list[str]] = {}
    for name in plan.outputs:
        for returned, micro_batch, other in many.returned:
            if (returned, other) == (rank, name):
                names.setdefault(micro_batch, []).append(name)
    if len({len(returned) for returned in names.values()}) != 1:
        return []
    return [_total(plan, many, rank, dict(zip(names, column, strict=True))) for column in zip(*names.values(), strict=True)]


def _total(plan: Plan, many: Result, rank: int, names: Mapping[int, str]) -> Array | None:
    """Return what a rank returns over all micro-batches and replicas, and over the axes on which the plan says it is a part.

    `names` are those of the value by micro-batch.
    """
    total: Array | None = None
    for micro_batch, name in names.items():
        tensor: Tensor | None = plan.tensors.get(name)
        placements = (tensor.placements if tensor is not None else None) or {}
        partial = {axis: placement for axis, placement in placements.items() if isinstance(placement, Partial)}
        if {placement.reduce for placement in partial.values()} - {"sum", "avg"}:
            return None
        folded = (plan.replication.axis,) if plan.replication.count > 1 else ()
        members = plan.mesh.along(rank, tuple(dict.fromkeys((*partial, *folded))))
        found = [many.returned[key] for member in members if (key := (member, micro_batch, name)) in many.returned]
        if not found or len({value.shape for value in found}) > 1:
            return None
        averaged = prod(plan.mesh.axis_size(axis) for axis, placement in partial.items() if placement.reduce == "avg")
        part = sum(found[1:], start=found[0]) / averaged
        if total is not None and total.shape != part.shape:
            return None
        total = part if total is None else total + part
    return total


def _close(one: Array, other: Array, scale: float) -> bool:
    import numpy as np

    return one.shape == other.shape and bool(np.all(np.abs(one - other) <= _TOLERANCE * max(scale, 1e-30)))
