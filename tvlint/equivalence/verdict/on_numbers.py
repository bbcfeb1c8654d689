"""Both plans run on the same random numbers: what confirms that a refuted plan computes something else.

What refutes by its structure, a partial sum that is taken for a whole one, say, shows that a value is another one than the
reference's at that place. It may yet make no difference in the end: a partial sum through an operator that leaves sums as they
are, parts that are put right later, what is multiplied with zero. Where a pair is small enough to be run, it is run. Plans
that agree in all gradients and returned values are not refuted, and not proved either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import reads
from tvlint.analyses.relations.derivation.trusted_inputs import Inputs, region, whole_shape
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.operators import ReduceGradients, Update
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Plan, Role, Tensor
from tvlint.ops.elementwise import holds_whole_numbers
from tvlint.ops.field import Array
from tvlint.replay.run import Result, UnreplayableError, replay

SEEDS = 3
"""So many times a pair is run."""

_MOST_NUMBERS = 1 << 19
"""Plans that hold more numbers on all ranks are not run."""

_MOST_OPERATORS = 20_000
"""Nor are plans of which the ranks run more operators."""

_TOLERANCE = 1e-7

_Whole: TypeAlias = Callable[[str, str, tuple[int, ...], str], Array]
"""The numbers of a whole value: by its role, its full name, its shape and its type."""


def agree_on_numbers(case: Case) -> bool:
    """Return whether the pair was run, and all gradients and returned values were those of the reference every time."""
    parallel, reference = case.parallel, case.reference
    if _size(parallel) > _MOST_NUMBERS or _runs(parallel) > _MOST_OPERATORS or _size(reference) > _MOST_NUMBERS:
        return False
    below = _least_index(parallel)
    return all(_agree(case, _numbers(seed, below)) for seed in range(SEEDS))


def _size(plan: Plan) -> int:
    ranks = sum(len(program.ranks) for program in plan.programs) * plan.replication.count
    return ranks * sum(prod(tensor.shape) for tensor in plan.tensors.values())


def _runs(plan: Plan) -> int:
    """Return how many operators the ranks run."""
    of_segments = {name: len(segment.operators) for name, segment in plan.segments.items()}
    runs = sum(len(program.ranks) * sum(of_segments[step.segment] for step in program.steps) for program in plan.programs)
    return runs * plan.replication.count


def _least_index(plan: Plan) -> int:
    """Return a number of which all that are below it are indices of every table, and classes of every loss."""
    weights = (tensor for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT)
    return min((size for tensor in weights for size in whole_shape(tensor) if size > 1), default=2)


def _numbers(seed: int, below: int) -> _Whole:
    """Return what gives every whole value numbers of its own, the same to both plans."""
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


def _agree(case: Case, whole: _Whole) -> bool:
    parallel, reference = case.parallel, case.reference
    alone = _run(case, reference, case.reference_inputs, 1, whole)
    many = _run(case, parallel, case.inputs, case.total_slots, whole)
    if alone is None or many is None:
        return False
    expected = {}
    for (_, name), gradient in alone.gradients.items():
        tensor = reference.tensors[name]
        expected[tensor.logical or name] = gradient * reference.undivided
    return _same_gradients(parallel, expected, many) and _same_returned(parallel, reference, case.total_slots, alone, many)


def _run(case: Case, plan: Plan, inputs: Inputs, slots: int, whole: _Whole) -> Result | None:
    """Return what the plan computes of inputs in so many `slots`; None where that is not known, or is no number."""
    import numpy as np

    def given(rank: int, name: str, micro_batch: int) -> Array | None:
        tensor = plan.tensors[name]
        replica, first = divmod(rank, plan.replication.stride) if plan.replication.count > 1 else (0, rank)
        box = tuple(slice(low, high) for low, high in region(plan, tensor, first))
        full = tensor.logical or tensor.name
        if tensor.role is not Role.INPUT:
            return whole(tensor.role.value, full, whole_shape(tensor), tensor.dtype)[box]
        number = inputs.position(tensor)
        if number is None:
            return None
        value = whole("input", str(number), case.reference_inputs.shapes[number], tensor.dtype)
        if slots > 1:
            slot = replica * case.micro_batches + micro_batch
            value = np.split(value, slots, axis=case.slots[number])[slot]
        return value[box]

    try:
        with np.errstate(all="ignore"):
            found = replay(plan, given)
    except (UnreplayableError, Mismatch, ValueError, IndexError, KeyError, TypeError, ArithmeticError):
        return None
    values = (*found.gradients.values(), *found.returned.values())
    return found if all(np.all(np.isfinite(value)) for value in values) else None


def _same_gradients(plan: Plan, expected: Mapping[str, Array], many: Result) -> bool:
    """Return whether every rank has the reference's gradient of every piece of a weight that it uses."""
    import numpy as np

    used = [*_used(plan)]
    if not expected.keys() <= {plan.tensors[name].logical or name for _, name in used}:
        return False
    for rank, name in used:
        tensor = plan.tensors[name]
        right = expected.get(tensor.logical or name)
        own = many.gradients.get((rank, name))
        if right is None:
            if own is not None:
                return False
            continue
        first = rank % plan.replication.stride if plan.replication.count > 1 else rank
        try:
            piece = right[tuple(slice(low, high) for low, high in region(plan, tensor, first))]
        except (Mismatch, IndexError):
            return False
        if not _close(np.zeros(piece.shape) if own is None else own, piece, float(np.abs(right).max(initial=0))):
            return False
    return True


def _used(plan: Plan) -> Iterable[tuple[int, str]]:
    """Return the weights that each rank reads, reduces or updates."""
    shifts = [replica * plan.replication.stride for replica in range(plan.replication.count)]
    for program in plan.programs:
        named = {
            name
            for segment in {step.segment for step in program.steps}
            for own in plan.segments[segment].operators
            for name in (own.weights if isinstance(own, ReduceGradients | Update) else reads(own))
            if name in plan.tensors and plan.tensors[name].role is Role.WEIGHT
        }
        yield from ((rank + shift, name) for rank in program.ranks for shift in shifts for name in sorted(named))


def _same_returned(parallel: Plan, reference: Plan, count: int, alone: Result, many: Result) -> bool:
    """Return whether all ranks return what the reference does: the value, or their micro-batches' and replicas' parts of it.

    A plan that says of nothing that it returns it has nothing to compare.
    """
    if not parallel.outputs:
        return True
    right = [value for name in reference.outputs for (_, _, own), value in alone.returned.items() if own == name]
    ranks = {rank for rank, _, _ in many.returned}
    for rank in ranks:
        names = [name for name in parallel.outputs if any((rank, *key) in many.returned for key in _keys(many, name))]
        found = [_total(parallel, many, rank, name) for name in names]
        if len(found) != len(right):
            return False
        for own, value in zip(found, right, strict=True):
            if own is None or own.shape != value.shape:
                return False
            if not any(_close(own / share, value, float(abs(value).max(initial=0))) for share in (1, count)):
                return False
    return bool(ranks)


def _keys(many: Result, name: str) -> set[tuple[int, str]]:
    return {(micro_batch, own) for _, micro_batch, own in many.returned if own == name}


def _total(plan: Plan, many: Result, rank: int, name: str) -> Array | None:
    """Return what a rank returns over all micro-batches and replicas, and over the axes on which the plan says it is a part."""
    tensor: Tensor | None = plan.tensors.get(name)
    partial = {axis: own for axis, own in ((tensor.placements if tensor else None) or {}).items() if isinstance(own, Partial)}
    if {own.reduce for own in partial.values()} - {"sum", "avg"}:
        return None
    folded = (plan.replication.axis,) if plan.replication.count > 1 else ()
    members = plan.mesh.along(rank, tuple(dict.fromkeys((*partial, *folded))))
    found = [value for (own, _, other), value in many.returned.items() if own in members and other == name]
    if not found or len({value.shape for value in found}) > 1:
        return None
    averaged = prod(plan.mesh.axis_size(axis) for axis, own in partial.items() if own.reduce == "avg")
    total: Array = sum(found[1:], start=found[0]) / averaged
    return total


def _close(one: Array, other: Array, scale: float) -> bool:
    import numpy as np

    return one.shape == other.shape and bool(np.all(np.abs(one - other) <= _TOLERANCE * max(scale, 1e-30)))
