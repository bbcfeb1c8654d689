"""Programs of one axis that name the same operator, and compute it differently."""

from __future__ import annotations

from collections.abc import Sequence

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
    """Say where most others of an axis compute a value of this name from values of the same names with another activation, or
    scale their shards of one value by another number. Ranks with data of their own may weigh them."""
    if len(walk.plan.programs) < 2 or not _concerns(operator):
        return
    runs = walk.facts.derived("operators by what they take and give", lambda: _runs(walk.facts)).get(_key(operator), [])
    first = str(operator.inputs[0])
    names = walk.facts.derived("batch axes", lambda: batch_axes(walk.plan)) | SEQUENCE_AXES
    for axis in walk.axes if len(runs) > 1 else ():
        on = walk.value(first).on.get(axis)
        scaling = _scales(operator)
        if not isinstance(on, Shard) if scaling else not (isinstance(on, Shard) or is_whole(on)):
            continue
        if scaling and axis in names:
            continue
        others = _others(walk, axis, runs, operator)
        if others is not None:
            text = difference(operator, others[0][2])
            ranks, name = tuple(sorted(rank for run in others for rank in run[1])), operator.outputs[0]
            found = Defect("divergent-replicas", walk.where, name, axis, text, "mates", describe(ranks), others[0][0])
            walk.found.append(found)
            return


def _others(walk: Walk, axis: str, runs: Sequence[_Run], operator: Compute) -> list[_Run] | None:
    """Return the runs on the rank's line of an axis that compute something else, where they are most; None where they are not.

    Runs of one kind on one line are counted once.
    """
    known: dict[object, tuple[int, int, list[_Run]]] = walk.facts.derived("runs of other kinds by line", dict)
    mesh, on_mesh = walk.plan.mesh, walk.rank < walk.plan.mesh.size
    place = tuple(at for name, at in mesh.coordinates(walk.rank).items() if name != axis) if on_mesh else ()
    key = (_key(operator), _kind(operator), axis, place, on_mesh)
    if key not in known:
        line = set(mesh.along(walk.rank, (axis,))) if on_mesh else set()
        beside = [(run, len(line.intersection(run[1])), bool(difference(run[2], operator))) for run in runs]
        alike = sum(count for _, count, differs in beside if not differs)
        differing = sum(count for _, count, differs in beside if differs)
        known[key] = alike, differing, [run for run, count, differs in beside if count and differs]
    alike, differing, others = known[key]
    most = others and (differing, walk.rank) > (alike, min(others[0][1])) and differing >= alike
    return others if most else None


def _kind(operator: Compute) -> str:
    """Return what an operator computes, equal only for those between which there is no difference."""
    constants = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    return f"{operator.op} {constants} {sorted(operator.attributes.items())}"


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
