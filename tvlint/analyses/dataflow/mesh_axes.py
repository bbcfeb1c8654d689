"""The axes of a mesh on which a placement means something."""

from __future__ import annotations

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.shared_names import shared_name
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, ReduceGradients
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan, Program, Role

PIPELINE_AXES = frozenset({"pp", "pipe", "pipeline", "stage", "stages"})
DATA_AXES = frozenset({"dp", "cp", "fsdp", "ddp", "data", "dp_replicate", "dp_shard"})

SEQUENCE_AXES = frozenset({"cp", "context", "sp", "seq", "sequence"})

MODEL_AXES = frozenset({"tp", "mp", "model", "tensor", "sp", "seq", "sequence"})

_COMPARED = 64
"""With so many of the other programs along an axis a program is compared."""


def common_axes(facts: Facts, program: Program) -> tuple[str, ...]:
    """Return the axes along which ranks compute the same values, so that a placement means something there.

    Along a pipeline axis ranks run different layers; there nothing is replicated, sharded or partial. An axis is one by its
    name, or where its ranks compute mostly different values and never meet in a collective along it. Folded replicas have data
    of their own: their axis counts where the plan says how something lies over it.
    """
    names = facts.derived("computed names", lambda: [_computed(facts, program) for program in facts.plan.programs])
    exchanging = facts.derived("collective axes", lambda: _exchanging(facts))
    silent = facts.derived("silent axes", lambda: _silent(facts))
    mesh, fold = facts.plan.mesh, facts.fold
    places = facts.derived("places of programs", lambda: {id(program): at for at, program in enumerate(facts.plan.programs)})
    number = places[id(program)]
    tensor, rank = names[number], min(program.ranks, default=0)
    found = []
    for axis in mesh.axes:
        if axis.size == 1 or rank >= mesh.size or axis.name in PIPELINE_AXES or axis.name in silent:
            continue
        others = _programs_along(facts, rank, axis.name) - {number} if axis.name not in fold.uniform else frozenset()
        compared = sorted(others)[:_COMPARED]
        alike = all(2 * len(tensor & names[other]) >= len(tensor | names[other]) for other in compared)
        if alike or axis.name in exchanging:
            found.append(axis.name)
    return tuple(found)


def _programs_along(facts: Facts, rank: int, axis: str) -> frozenset[int]:
    """Return the programs that the ranks of `rank`'s line along `axis` run; looked up once a line."""
    start = facts.plan.mesh.rank({**facts.plan.mesh.coordinates(rank), axis: 0})

    def find() -> frozenset[int]:
        along = (facts.fold.program_of(other) for other in facts.plan.mesh.along(start, (axis,)))
        return frozenset(program for program in along if program is not None)

    return facts.derived(f"programs along {axis} from {start}", find)


def _silent(facts: Facts) -> frozenset[str]:
    """Return the axis of folded replicas, where no tensor is said to lie over it."""
    axis = facts.plan.replication.axis
    named = any(axis in (tensor.placements or {}) for tensor in facts.plan.tensors.values())
    return frozenset() if named or facts.plan.replication.count < 2 else frozenset({axis})


def messaged_axes(facts: Facts) -> frozenset[str]:
    """Return the axes along which a message goes from one rank to another."""
    mesh, found = facts.plan.mesh, set[str]()
    for source, target, _ in facts.traffic.channels:
        if max(source, target) < mesh.size and source != target:
            one, other = mesh.coordinates(source), mesh.coordinates(target)
            found.update(axis.name for axis in mesh.axes if one[axis.name] != other[axis.name])
    return frozenset(found)


def batch_axes(plan: Plan) -> frozenset[str]:
    """Return the axes over which ranks have batches of their own: by their names, or since inputs are split over them, by rows
    or where gradients of weights are reduced over them as well.
    """
    reduced = {
        axis for segment in plan.segments.values() for operator in segment.operators if isinstance(operator, ReduceGradients)
        for axis in operator.group.axes
    }  # fmt: skip
    split = {
        axis for tensor in plan.tensors.values() if tensor.role is Role.INPUT
        for axis, on in (tensor.placements or {}).items() if isinstance(on, Shard) and (on.dim == 0 or axis in reduced)
    }  # fmt: skip
    return DATA_AXES | (split - MODEL_AXES - PIPELINE_AXES)


def traded_axes(plan: Plan) -> frozenset[str]:
    """Return the axes over which an all-to-all runs or weights are split, so that heads may be split over them."""
    found: set[str] = set()
    for segment in plan.segments.values():
        for operator in segment.operators:
            if isinstance(operator, Communicate) and operator.kind is Collective.ALL_TO_ALL:
                found.update(operator.group.axes or [axis.name for axis in plan.mesh.axes])
    for tensor in plan.tensors.values():
        if tensor.role is Role.WEIGHT:
            found.update(axis for axis, placement in (tensor.placements or {}).items() if isinstance(placement, Shard))
    return frozenset(found)


def _exchanging(facts: Facts) -> frozenset[str]:
    """Return the axes along which collectives run and no message goes."""
    operators = (operator for segment in facts.plan.segments.values() for operator in segment.operators)
    met = {axis for operator in operators if isinstance(operator, Communicate) for axis in operator.group.axes}
    return frozenset(met) - messaged_axes(facts)


def _computed(facts: Facts, program: Program) -> frozenset[str]:
    segments = {step.segment for step in program.steps if step.segment in facts.plan.segments}
    return frozenset(
        shared_name(name)
        for segment in segments
        for operator in facts.plan.segments[segment].operators
        if isinstance(operator, Compute | Backward | Communicate)
        for name in operator.outputs
        if name
    )
