"""Programs of one axis that name the same operator, and compute it differently."""

from __future__ import annotations

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.operator_diff import difference
from tvlint.analyses.inference.per_rank_types import shared_name
from tvlint.analyses.placement.axes import SEQUENCE_AXES, batch_axes
from tvlint.analyses.placement.domain import Defect, Where, is_whole
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Plan
from tvlint.ir.ranks import describe
from tvlint.ops.spec import Trait
from tvlint.ops.table import canonical_name, has_kind, has_trait, is_nonlinear

_MOST_PROGRAMS = 256

_Run = tuple[Where, tuple[int, ...], Compute]


def mates(walk: Walk, operator: Compute) -> None:
    """Says where most others of an axis compute a value of this name from values of the same names with another activation, or
    scale their shards of one value by another number. Ranks with data of their own may weigh them."""
    if len(walk.plan.programs) < 2 or not _concerns(operator):
        return
    runs = walk.facts.derived("operators by what they take and give", lambda: _runs(walk.facts)).get(_key(operator), [])
    first, mesh = str(operator.inputs[0]), walk.plan.mesh
    own = walk.facts.derived("batch axes", lambda: batch_axes(walk.plan)) | SEQUENCE_AXES
    for axis in walk.axes if len(runs) > 1 else ():
        on = walk.value(first).on.get(axis)
        scaling = _scales(operator)
        if not isinstance(on, Shard) if scaling else not (isinstance(on, Shard) or is_whole(on)):
            continue
        if scaling and axis in own:
            continue
        line = set(mesh.along(walk.rank, (axis,))) if walk.rank < mesh.size else set()
        beside = [run for run in runs if line.intersection(run[1])]
        other = [run for run in beside if difference(run[2], operator)]
        alike = sum(len(line.intersection(run[1])) for run in beside if run not in other)
        differing = sum(len(line.intersection(run[1])) for run in other)
        if other and (differing, walk.rank) > (alike, min(other[0][1])) and differing >= alike:
            ranks = tuple(sorted(rank for run in other for rank in run[1]))
            text = difference(operator, other[0][2])
            walk.found.append(
                Defect("divergent-replicas", walk.where, operator.outputs[0], axis, text, "mates", describe(ranks), other[0][0])
            )
            return


def _scales(operator: Compute) -> bool:
    return has_trait(operator.op, Trait.SCALING) or canonical_name(operator.op) == "pow"


def _is_function(operator: Compute) -> bool:
    """Return whether the operator is a function of one tensor that is not linear, an activation for example."""
    return has_kind(operator.op, Trait.ACTIVATION) or (len(operator.inputs) == 1 and is_nonlinear(operator.op))


def _concerns(operator: Compute) -> bool:
    if not operator.inputs or not operator.outputs or not isinstance(operator.inputs[0], str):
        return False
    constants = [operand.value for operand in operator.inputs[1:] if isinstance(operand, Literal)]
    number = len(constants) == 1 == len(operator.inputs) - 1 and isinstance(constants[0], int | float) and bool(constants[0])
    return _is_function(operator) or (_scales(operator) and number)


def _key(operator: Compute) -> tuple[object, ...]:
    kind = "function" if _is_function(operator) else operator.op
    names = tuple(shared_name(name) for name in operator.inputs if isinstance(name, str))
    return kind, names, shared_name(operator.outputs[0])


def _runs(facts: Facts) -> dict[tuple[object, ...], list[_Run]]:
    """The operators that are compared, with where they stand and who runs them; none of plans that state regions of values."""
    plan, found = facts.plan, dict[tuple[object, ...], list[_Run]]()
    if len(plan.programs) > _MOST_PROGRAMS or _states_regions(plan):
        return found
    for name, segment in plan.segments.items():
        ranks = facts.ranks_running(name)
        for index, operator in enumerate(segment.operators) if ranks else ():
            if isinstance(operator, Compute) and _concerns(operator):
                found.setdefault(_key(operator), []).append(((name, index), ranks, operator))
    return found


def _states_regions(plan: Plan) -> bool:
    return any(tensor.region is not None for tensor in plan.tensors.values())
