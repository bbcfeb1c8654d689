"""Both plans run on the same random numbers: what confirms that a refuted plan computes something else, and decides others.

What refutes by its structure, a partial sum that is taken for a whole one, say, shows that a value is another one than the
reference's at that place. It may yet make no difference in the end: a partial sum through an operator that leaves sums as they
are, parts that are put right later, what is multiplied with zero. Where a pair is small enough to be run, it is run. Plans
that agree in all gradients and returned values are not refuted, and not proved either.

A pair that the derivation leaves open is refuted where the gradient of a weight is another one in every run. Nothing is
concluded from a difference where the numbers may be none that the plans are made for, or where the run does not show what
counts: weights that the plan itself updates, inputs of which it is assumed which is which, buffers, whose content is part of
the model (masks, tables of sines), and inputs of whole numbers or flags that are neither rows of a weight nor classes: a causal
mask, positions in order, a permutation. Code that a generator made of a traced graph rests on no such content, which the
generator does not know. Where a plan does not say by what it divides gradients, a multiple of the reference's shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.trusted_inputs import Inputs, region, whole_shape
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.operators import Backward, Communicate, Compute, Literal, Operator, ReduceGradients, Update
from tvlint.ir.placement import Partial, Shard
from tvlint.ir.plan import Plan, Program, Role, Tensor
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.field import Array
from tvlint.ops.spec import Call, Trait, UnsupportedError
from tvlint.ops.table import has_trait, spec_of
from tvlint.replay.collectives import part_of
from tvlint.replay.operators import NotReplayedError
from tvlint.replay.run import Result, UnreplayableError, replay

SEEDS = 3
"""So many runs have to show a difference, or all runs none."""

_MOST_RUNS = 4 * SEEDS
"""So many runs are made where some of them show a difference: what differs for some data may not show in each."""

_MOST_NUMBERS = 1 << 20
"""Plans of which the ranks hold more numbers are not run."""

_MOST_OPERATORS = 20_000
"""Nor are plans of which the ranks run more operators."""

_TOLERANCE = 1e-7
_NOTHING = 1e-6
"""A gradient that is smaller throughout may be zero, but for rounding; its errors show nothing."""

_CERTAIN = 1e-6
"""A gradient that is off by more than this part of the greatest element is another gradient, whatever rounding does."""

GENERATED = ("nnscaler-gencode", "nnscaler-graph")
"""The formats of code that a generator made, and of what it made the code of."""

_Whole: TypeAlias = Callable[[str, str, tuple[int, ...], str], Array]
"""The numbers of a whole value: by its role, its full name, its shape and its type."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """All gradients and returned values were those of the reference in each of `SEEDS` runs."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The gradient of `weight` was another one than the reference's on `ranks`, in each of `SEEDS` runs.

    `error` is the greatest error of the last run, where the greatest element of the reference's is `scale`. `first` is the
    first result in the order of the program that is not the reference's value of that name, and the operator that gives it.
    `invented` says that something stood in for random numbers, or for a function that has none.
    """

    weight: str
    ranks: tuple[int, ...]
    error: float
    scale: float
    first: tuple[str, int, Operator] | None


@dataclass(frozen=True, slots=True)
class NotRun:
    """Nothing is concluded from numbers, for a reason."""

    why: str


def run_both(case: Case, any_numbers: bool = False) -> Agreement | Difference | NotRun:
    """Run the pair on random numbers, and return what they show.

    With `any_numbers` the plans are to agree on any numbers, whatever inputs and buffers are made for, as a proof says.
    """
    parallel, reference = case.parallel, case.reference
    if _is_too_large(case):
        return NotRun("the plans are too large")
    below = _least_index(reference)
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
    why = _inconclusive(parallel, reference) or ("" if any_numbers else _of_other_content(case))
    if why or len(found) < SEEDS:
        return NotRun(why or "runs on other numbers agree")
    return found[-1]


def runs_agree(case: Case) -> bool:
    """Return whether both plans can be run on random numbers, and give the same in each of `SEEDS` runs."""
    if _is_too_large(case):
        return False
    below = _least_index(case.reference)
    return all(isinstance(_compared(case, _numbers(seed, below)), Agreement) for seed in range(SEEDS))


def a_run_differs(case: Case) -> bool:
    """Return whether a run of both plans on random numbers shows a difference; not where they cannot be run."""
    return not _is_too_large(case) and isinstance(_compared(case, _numbers(0, _least_index(case.reference))), Difference)


def _is_too_large(case: Case) -> bool:
    most, runs = _MOST_NUMBERS, _MOST_OPERATORS
    return _size(case.parallel) > most or _runs(case.parallel) > runs or _size(case.reference) > most


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


def as_troubles(plan: Plan, found: Difference, refutes: bool) -> tuple[Defect, ...]:
    """Return the difference as what is wrong on its ranks, at the operator of the first result that differs.

    Where all results are the reference's it is at the weight whose gradient differs.
    """
    text = (
        f"the gradient of `{found.weight}` on {{ranks}} is another one in {SEEDS} runs on random numbers: "
        f"off by {found.error:.3g}, where the greatest element is {found.scale:.3g}"
    )
    stride = plan.replication.stride if plan.replication.count > 1 else plan.mesh.size
    ranks = sorted({rank % stride for rank in found.ranks})
    if found.first is None:
        return tuple(Defect("other-numbers", refutes, text, rank) for rank in ranks)
    name, _, operator = found.first
    text += f"; the first result that is not the reference's of that name is `{name}`"
    segment = next((segment.name for segment in plan.segments.values() if operator in segment.operators), "")
    return tuple(at(operator, segment, Defect("other-numbers", refutes, text, rank)) for rank in ranks)


def _of_other_content(case: Case) -> str:
    """Return why inputs and buffers may not be any numbers: masks, positions and orders are not, which a right plan may use."""
    if set(case.inputs.names) != set(case.reference_inputs.names):
        return "the plans call their inputs by other names"
    read_here, read_there = _read_inputs(case.parallel), _read_inputs(case.reference)
    if read_here != read_there:
        return f"one of the plans does not read `{min(read_here ^ read_there)}`"
    if _is_generated(case.parallel, case.reference):
        return ""
    if any(tensor.role is Role.BUFFER for plan in (case.parallel, case.reference) for tensor in plan.tensors.values()):
        return "what buffers hold is part of the model"
    data = _looked_up_inputs(case.reference)
    for name, dtype in zip(case.reference_inputs.names, case.reference_inputs.dtypes, strict=True):
        if name not in data and (holds_whole_numbers(dtype) or dtype.rsplit(".", 1)[-1].startswith("bool")):
            return f"`{name}` holds neither indices of rows of a weight nor classes of a loss, and may be no data"
    return ""


def _is_generated(parallel: Plan, reference: Plan) -> bool:
    """Return whether a generator made the plan of the reference, without knowing what buffers and inputs hold."""
    return (parallel.format, reference.format) == GENERATED


def _read_inputs(plan: Plan) -> set[str]:
    """Return the full names of the inputs that operators read."""
    operators = (operator for segment in plan.segments.values() for operator in segment.operators)
    tensors = (plan.tensors[name] for operator in operators for name in reads(operator) if name in plan.tensors)
    return {tensor.logical or tensor.name for tensor in tensors if tensor.role is Role.INPUT}


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
    spec = spec_of(operator.op)
    names = [operand for operand in operator.inputs if isinstance(operand, str)]
    if spec is None or any(name not in plan.tensors for name in names):
        return {}
    given = tuple(operand if isinstance(operand, Literal) else plan.tensors[operand].shape for operand in operator.inputs)
    try:
        bound = spec.bind(Call(operator.op, given, operator.attributes))
    except UnsupportedError:
        return {}
    sizes = {
        name: size
        for operand, tensor in zip(bound.operands, names, strict=False)
        for name, size in zip(operand, plan.tensors[tensor].shape, strict=True)
    }
    return {names[place]: sizes[name] for place, name in bound.indices.items() if name in sizes}


def _numbers(seed: int, below: int) -> _Whole:
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
                known[key] = random.uniform(-1.5, 1.5, shape)
        return known[key]

    return whole


def _compared(case: Case, whole: _Whole) -> Agreement | Difference | NotRun:
    parallel, reference = case.parallel, case.reference
    alone = _run(reference, case, case.reference_inputs, 1, whole)
    if isinstance(alone, NotRun):
        return alone
    many = _run(parallel, case, case.inputs, case.total_slots, whole)
    if isinstance(many, NotRun):
        return many
    expected = {}
    for (_, name), gradient in alone.found.gradients.items():
        tensor = reference.tensors[name]
        expected[tensor.logical or name] = gradient * reference.undivided
    different = _other_gradient(parallel, expected, many.found)
    if isinstance(different, NotRun):
        return different
    if different is not None:
        return _with_first(different, parallel, alone, many)
    if _same_returned(parallel, reference, case.total_slots, alone.found, many.found):
        return Agreement()
    return NotRun("the gradients agree, and what is returned does not")


@dataclass(slots=True)
class _Run:
    """The results of a run, and what operators gave on its way: rank, operator, name and value."""

    found: Result = field(default_factory=Result)
    given: list[tuple[int, Operator, str, Array]] = field(default_factory=list)


def _run(plan: Plan, case: Case, inputs: Inputs, count: int, whole: _Whole) -> _Run | NotRun:
    """Return what the plan computes, or why that cannot be found out."""
    import numpy as np

    def given(rank: int, name: str, micro_batch: int) -> Array | None:
        tensor = plan.tensors[name]
        replica, first = divmod(rank, plan.replication.stride) if plan.replication.count > 1 else (0, rank)
        held = _places(plan, tensor, first)
        full = tensor.logical or tensor.name
        if tensor.role is not Role.INPUT:
            return np.asarray(whole(tensor.role.value, full, whole_shape(tensor), tensor.dtype)[held])
        number = inputs.position(tensor)
        if number is None:
            return None
        value = whole("input", str(number), case.reference_inputs.shapes[number], tensor.dtype)
        if count > 1:
            dim, slot = case.slots[number], replica * micro_batches_of(plan) + micro_batch
            value = part_of(value, dim, slot, count)
        return np.asarray(value[held])

    run = _Run()
    try:
        with np.errstate(all="ignore"):
            run.found = replay(plan, given, lambda *each: run.given.append(each))
    except UnreplayableError as error:
        return NotRun(str(error))
    except (Mismatch, NotReplayedError, ValueError, IndexError, KeyError, TypeError, ArithmeticError):
        return NotRun(f"`{plan.path}` does not run to its end on numbers")
    values = (*run.found.gradients.values(), *run.found.returned.values())
    is_defined = not any(np.any(np.isnan(value)) for _, _, _, value in run.given)
    if is_defined and all(np.all(np.isfinite(value)) for value in values):
        return run
    return NotRun("what the plans give is no number")


def _places(plan: Plan, tensor: Tensor, rank: int) -> tuple[Any, ...]:
    """Return which elements of the whole value the rank holds, as an index of arrays. Raises Mismatch."""
    import numpy as np

    placements = tensor.placements or {}
    if tensor.region is not None or not any(
        isinstance(each_placement, Shard) and (each_placement.order or each_placement.parts)
        for each_placement in placements.values()
    ):
        return tuple(slice(low, high) for low, high in region(plan, tensor, rank))
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


def _other_gradient(plan: Plan, expected: Mapping[str, Array], many: Result) -> Difference | NotRun | None:
    """Return where a rank has another gradient of a piece of a weight that it uses than the reference; None where none has.

    Of the weights that are `updated` in both plans no gradient need be left.
    """
    import numpy as np

    used = [*_used(plan)]
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
        if name in undivided and _is_multiple(held, piece, scale):
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


def _is_multiple(held: Array, piece: Array, scale: float) -> bool:
    """Return whether a gradient is the reference's, multiplied with one number."""
    norm = float((piece * piece).sum())
    factor = float((held * piece).sum()) / norm if norm else 0.0
    return factor > 0 and _close(held / factor, piece, scale)


def _with_first(difference: Difference, plan: Plan, alone: _Run, many: _Run) -> Difference:
    """Return the difference with the first result that is not the reference's value of that name.

    Results that have another shape, or that a collective completes, say nothing.
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
        if not _close(value, known, float(abs(known).max(initial=0))):
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


def _same_returned(parallel: Plan, reference: Plan, count: int, alone: Result, many: Result) -> bool:
    """Return whether all ranks return what the reference does: the value, or their micro-batches' and replicas' parts of it.

    A plan that says of nothing that it returns it has nothing to compare.
    """
    if not parallel.outputs:
        return True
    right = [value for name in reference.outputs for (_, _, each_name), value in alone.returned.items() if each_name == name]
    ranks = {rank for rank, _, _ in many.returned}
    for rank in ranks:
        found = _totals(parallel, many, rank)
        if len(found) != len(right):
            return False
        for array, value in zip(found, right, strict=True):
            if array is None or array.shape != value.shape:
                return False
            if not any(_close(array / share, value, float(abs(value).max(initial=0))) for share in (1, count)):
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
