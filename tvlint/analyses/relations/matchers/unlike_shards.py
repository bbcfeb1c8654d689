"""Shards that differ and that a plan takes for alike: gradients of them that are added up, choices for all of them by one."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.matchers.projection import Projection, Site
from tvlint.ir.operators import Backward, Collective, Communicate, Compute
from tvlint.ir.placement import Partial, Shard
from tvlint.ir.plan import Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


def unlike_shards(projection: Projection) -> Iterator[Defect]:
    """Yield sums of gradients of different slices of a weight, where no relation is known, and choices between whole tensors by
    the greatest or least value of one shard.
    """
    for site in projection.sites:
        for axis in projection.axes:
            rule, text = _summed(projection, site, axis) or _chosen(site, axis) or ("", "")
            if rule:
                yield from (at(site.operator, site.segment.name, Defect(rule, True, text, rank)) for rank in site.ranks())
                break


def _summed(projection: Projection, site: Site, axis: str) -> tuple[str, str] | None:
    operator = site.operator
    if not isinstance(operator, Communicate) or operator.kind is not Collective.ALL_REDUCE or len(operator.inputs) != 1:
        return None
    name = operator.inputs[0]
    maker = site.maker(name) if site.value(name) is None and site.goes_over(operator, axis) else None
    if not isinstance(maker, Backward) or name not in maker.outputs:
        return None
    operands = maker.forward.tensor_operands
    place = maker.outputs.index(name)
    weight = projection.plan.tensors.get(operands[place]) if place < len(operands) else None
    if weight is None or weight.role is not Role.WEIGHT or not isinstance((weight.placements or {}).get(axis), Shard):
        return None
    return "allreduce-of-shards", f"{name_of(operator)} on {{ranks}} sums gradients of different slices of `{weight.name}`"


def _chosen(site: Site, axis: str) -> tuple[str, str] | None:
    operator = site.operator
    if not isinstance(operator, Compute) or not has_trait(operator.op, Trait.MASKING) or not operator.inputs:
        return None
    condition, *others = operator.inputs
    maker = site.maker(condition) if isinstance(condition, str) and site.shape(condition) == () else None
    if not isinstance(maker, Compute) or not has_trait(maker.op, Trait.COMPARISON):
        return None
    compared = maker.tensor_operands
    tensors = [name for name in others if isinstance(name, str) and site.shape(name)]
    on = site.on(compared[0], axis) if len(compared) == 1 and len(tensors) == 2 else None
    if not isinstance(on, Partial) or on.reduce not in ("max", "min"):
        return None
    text = f"{name_of(operator)} on {{ranks}} chooses between `{tensors[0]}` and `{tensors[1]}` by `{compared[0]}`, "
    return "partial-through-nonlinear", text + f"the {on.reduce} of a part that other ranks of `{axis}` do not compare with"
