"""Programs of one axis that name the same operator, and compute it differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.mesh_axes import SEQUENCE_AXES, batch_axes
from tvlint.analyses.dataflow.operator_diff import difference
from tvlint.analyses.dataflow.shared_names import shared_name
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.matchers.projection import Projection, is_whole
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.placement import Shard
from tvlint.ir.ranks import describe
from tvlint.ops.spec import Trait
from tvlint.ops.table import canonical_name, has_kind, has_trait, is_nonlinear

_Runs: TypeAlias = "dict[int, list[Compute]]"
"""The operators that are compared with each other, by the rank that runs them."""


def computed_otherwise(projection: Projection) -> Iterator[Defect]:
    """Yield the operators that make a value of the same name from values of the same names as most others of an axis, with
    another activation, or with another number of shards of one value. Ranks with data of their own may weigh them.

    In plans that state regions of values, names say nothing.
    """
    plan, facts = projection.facts.plan, projection.facts
    if len(plan.programs) < 2 or any(tensor.region is not None for tensor in plan.tensors.values()):
        return
    by_key, lines = _runs(facts), dict[tuple[object, str, int], _Line]()
    apart = batch_axes(plan) | SEQUENCE_AXES
    for site in projection.sites:
        operator = site.operator
        if not isinstance(operator, Compute) or not _concerns(operator):
            continue
        first, scaling = str(operator.inputs[0]), _scales(operator)
        for axis in projection.axes if _key(operator) in by_key else ():
            on = site.on(first, axis)
            if not (isinstance(on, Shard) if scaling else (isinstance(on, Shard) or is_whole(on))):
                continue
            place = (_key(operator), axis, plan.mesh.first(site.rank, (axis,)))
            if place not in lines:
                lines[place] = _Line(by_key[place[0]], plan.mesh.along(site.rank, (axis,)))
            others = lines[place].others(operator, site.rank)
            if others is not None and not (scaling and axis in apart):
                usual, ranks = others
                text = f"computes `{operator.outputs[0]}` on {{ranks}} otherwise than on {describe(ranks)} of `{axis}`: "
                found = Defect("divergent-replicas", True, text + difference(operator, usual), site.rank)
                yield at(operator, site.segment.name, found)
                break


class _Line:
    """The runs of one operator on the ranks of one line of an axis, those together that compute alike."""

    def __init__(self, runs: _Runs, line: Iterable[int]) -> None:
        kinds: dict[object, tuple[Compute, set[int]]] = {}
        for rank in line:
            for operator in runs.get(rank, ()):
                kinds.setdefault(_signature(operator), (operator, set()))[1].add(rank)
        self.kinds = tuple(kinds.values())
        self.size = sum(len(ranks) for _, ranks in self.kinds)

    def others(self, operator: Compute, rank: int) -> tuple[Compute, tuple[int, ...]] | None:
        """Return what most ranks compute otherwise than the operator on `rank`, and they; None where they are not most."""
        others = [kind for kind in self.kinds if difference(kind[0], operator)]
        ranks = tuple(sorted(rank for _, members in others for rank in members))
        alike = self.size - len(ranks)
        most = others and (len(ranks), rank) > (alike, ranks[0]) and len(ranks) >= alike
        return (others[0][0], ranks) if most else None


def _signature(operator: Compute) -> object:
    constants = tuple(repr(operand.value) for operand in operator.inputs if isinstance(operand, Literal))
    return operator.op, constants, tuple(sorted((name, repr(value)) for name, value in operator.attributes.items()))


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
    names = tuple(shared_name(name) for name in operator.tensor_operands)
    return kind, names, shared_name(operator.outputs[0])


def _runs(facts: Facts) -> Mapping[tuple[object, ...], _Runs]:
    """Return the operators that are compared, as far as several stand for one another."""
    found: dict[tuple[object, ...], list[tuple[str, Compute]]] = {}
    for name, segment in facts.plan.segments.items():
        for operator in segment.operators if facts.ranks_running(name) else ():
            if isinstance(operator, Compute) and _concerns(operator):
                found.setdefault(_key(operator), []).append((name, operator))
    by_key: dict[tuple[object, ...], _Runs] = {}
    for key, operators in found.items():
        for name, operator in operators if len(operators) > 1 else ():
            for rank in facts.ranks_running(name):
                by_key.setdefault(key, {}).setdefault(rank, []).append(operator)
    return by_key
