"""One plan run on its pieces of whole values, and what it gives on its way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.relations.derivation.given.trusted_inputs import Inputs, region, whole_shape
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.equivalence.verdict.numbers.outcome import DRAWS, FUNCTIONS, NO_NUMBER, NotRun
from tvlint.equivalence.verdict.numbers.whole_values import Whole
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.operators import Operator
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan, Role, Tensor
from tvlint.ops.field import Array
from tvlint.ops.spec import UnsupportedError
from tvlint.replay.collectives import part_of
from tvlint.replay.memory import Memory
from tvlint.replay.operators import NotReplayedError
from tvlint.replay.run import Result, UnreplayableError, replay
from tvlint.replay.stand_ins import StandIns


@dataclass(slots=True)
class Run:
    """The results of a run, and what operators gave on its way: rank, operator, name and value."""

    found: Result = field(default_factory=Result)
    given: list[tuple[int, Operator, str, Array]] = field(default_factory=list)
    invented: str = ""


def run_reference(case: Case, whole: Whole, memory: Memory | None = None, drops: bool = True) -> Run | NotRun:
    """Return what the reference computes, with the `memory` of other plans, or why that cannot be found out."""
    return _run(case.reference, case, case.reference_inputs, case.reference_micro_batches, whole, memory, StandIns(drops))


def run_parallel(case: Case, whole: Whole, memory: Memory | None = None, drops: bool = True) -> Run | NotRun:
    """Return what the parallel plan computes, with the `memory` of other plans, or why that cannot be found out."""
    count = case.micro_batches * case.parallel.replication.count
    return _run(case.parallel, case, case.inputs, count, whole, memory, StandIns(drops))


def _run(
    plan: Plan, case: Case, inputs: Inputs, count: int, whole: Whole, memory: Memory | None, stand_ins: StandIns
) -> Run | NotRun:
    """Return what the plan computes, or why that cannot be found out."""
    import numpy as np

    weights = {tensor.logical or tensor.name for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT}

    def given(rank: int, name: str, micro_batch: int) -> Array | None:
        tensor = plan.tensors[name]
        replica, first = divmod(rank, plan.replication.stride) if plan.replication.count > 1 else (0, rank)
        held = held_places(plan, tensor, first)
        full = tensor.logical or tensor.name
        if tensor.role is Role.STATE and full not in weights:
            return np.asarray(abs(whole(tensor.role.value, full, whole_shape(tensor), tensor.dtype))[held])
        if tensor.role is not Role.INPUT:
            role = Role.WEIGHT if tensor.role is Role.STATE else tensor.role
            value = whole(role.value, full, whole_shape(tensor), tensor.dtype)
            return np.asarray(addend_of(value, full, whole, tensor)[held])
        number = inputs.position(tensor)
        if number is None:
            return None
        value = whole("input", str(number), case.batch.whole_shapes[number], tensor.dtype)
        value = addend_of(value, str(number), whole, tensor)
        if count > 1:
            dim, slot = case.batch.dims[number], replica * micro_batches_of(plan) + micro_batch
            value = part_of(value, dim, slot, count)
        return np.asarray(value[held])

    run = Run()
    try:
        with np.errstate(all="ignore", over="raise" if np.geterr()["over"] == "raise" else "ignore"):
            run.found = replay(plan, given, lambda *each: run.given.append(each), stand_ins, memory)
        if stand_ins.used:
            run.invented = DRAWS if stand_ins.has_drawn else FUNCTIONS
    except UnreplayableError as error:
        return NotRun(str(error), fails=(error.fails, error.location) if error.fails >= 0 else None)
    except FloatingPointError:
        return NO_NUMBER
    except (Mismatch, NotReplayedError, UnsupportedError, ValueError, IndexError, KeyError, TypeError, ArithmeticError):
        return NotRun(f"`{plan.path}` does not run to its end on numbers")
    values = (*run.found.gradients.values(), *run.found.returned.values())
    is_defined = not any(np.any(np.isnan(value)) for _, _, _, value in run.given)
    if is_defined and all(np.all(np.isfinite(value)) for value in values):
        return run
    return NO_NUMBER


def addend_of(value: Array, name: str, whole: Whole, tensor: Tensor) -> Array:
    """Return the addend of a whole value that a tensor is declared to be, of any that add up to it."""
    place, count = tensor.part
    others = [whole(f"addend {each} of {count}", name, value.shape, tensor.dtype) for each in range(1, count)]
    return others[place - 1] if place else sum((-other for other in others), start=value)


def held_places(plan: Plan, tensor: Tensor, rank: int) -> tuple[Any, ...]:
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
