"""Programs of one axis that name the same operator, and compute it differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.mesh_axes import SEQUENCE_AXES, batch_axes
from tvlint.analyses.dataflow.operator_diff import difference
from tvlint.analyses.inference.per_rank_types import shared_name
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.matchers.projection import Projection, Site, is_whole
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.placement import Shard
from tvlint.ir.ranks import describe
from tvlint.ops.spec import Trait
from tvlint.ops.table import canonical_name, has_kind, has_trait, is_nonlinear

_MOST_PROGRAMS = 256

_Run: TypeAlias = "tuple[frozenset[int], Compute]"


def computed_otherwise(projection: Projection) -> Iterator[Defect]:
    """Yield the operators that make a value of the same name from values of the same names as most others of an axis, with
    another activation, or with another number of shards of one value. Ranks with data of their own may weigh them.

    In plans that state regions of values, names say nothing.
    """
    plan, facts = projection.facts.plan, projection.facts
    if not 1 < len(plan.programs) <= _MOST_PROGRAMS or any(tensor.region is not None for tensor in plan.tensors.values()):
        return
    by_key = _runs(facts)
    apart = batch_axes(plan) | SEQUENCE_AXES
    for site in projection.sites():
        operator = site.operator
        if not isinstance(operator, Compute) or not _concerns(operator):
            continue
        first, scaling = str(operator.inputs[0]), _scales(operator)
        for axis in projection.axes if len(by_key.get(_key(operator), ())) > 1 else ():
            on = site.on(first, axis)
            concerns = isinstance(on, Shard) if scaling else (isinstance(on, Shard) or is_whole(on))
            others = _others(site, axis, by_key[_key(operator)], operator) if concerns else []
            if others and not (scaling and axis in apart):
                ranks = describe(tuple(sorted(rank for run in others for rank in run[0])))
                text = f"computes `{operator.outputs[0]}` on {{ranks}} otherwise than on {ranks} of `{axis}`: "
                found = Defect("divergent-replicas", True, text + difference(operator, others[0][1]), site.rank)
                yield at(operator, site.segment.name, found)
                break


def _others(site: Site, axis: str, runs: Sequence[_Run], operator: Compute) -> list[_Run]:
    """Return the runs on the rank's line of an axis that compute something else, where they are most; none where they are not.
    """
    line = frozenset(site.projection.plan.mesh.along(site.rank, (axis,)))
    beside = [(run, len(line & run[0]), bool(difference(run[1], operator))) for run in runs]
    alike = sum(count for _, count, differs in beside if not differs)
    differing = sum(count for _, count, differs in beside if differs)
    others = [run for run, count, differs in beside if count and differs]
    most = others and (differing, site.rank) > (alike, min(others[0][0])) and differing >= alike
    return others if most else []


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


def _runs(facts: Facts) -> Mapping[tuple[object, ...], list[_Run]]:
    """Return the operators that are compared, with who runs them."""
    found: dict[tuple[object, ...], list[_Run]] = {}
    for name, segment in facts.plan.segments.items():
        ranks = frozenset(facts.ranks_running(name))
        for operator in segment.operators if ranks else ():
            if isinstance(operator, Compute) and _concerns(operator):
                found.setdefault(_key(operator), []).append((ranks, operator))
    return found
