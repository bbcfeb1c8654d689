"""Operators of which every rank makes one block of the result, and no rank the blocks beside it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import messaged_axes
from tvlint.analyses.dataflow.mesh_axes import DATA_AXES, SEQUENCE_AXES
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.matchers.projection import Blocks, Projection, Site
from tvlint.ir.operators import Compute
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import spec_of


def lone_blocks(projection: Projection) -> Iterator[Defect]:
    """Yield operators that combine tensors which an axis splits along different dimensions.

    Where shards travel along the axis, a rank makes its other blocks later; products of what is made of a rank's own batch are
    of that batch alone.
    """
    messaged = messaged_axes(projection.facts)
    for site in projection.sites:
        operator = site.operator
        if not isinstance(operator, Compute) or len(operator.outputs) != 1 or not operator.outputs[0]:
            continue
        operands = operator.tensor_operands
        if len(set(operands)) < 2:
            continue
        for axis in projection.axes:
            split = [name for name in operands if isinstance(site.on(name, axis), Shard)]
            if axis in messaged or len(set(split)) < 2:
                continue
            made = site.on(operator.outputs[0], axis)
            if not isinstance(made, Blocks) or len(made.dims) < 2:
                continue
            if projection.covers(operator.outputs[0]) or (axis in DATA_AXES - SEQUENCE_AXES and _is_own_batch(site, split)):
                continue
            text = f"{name_of(operator)} on {{ranks}} combines `{split[0]}` with `{split[1]}`, which `{axis}` splits along "
            text += "another dimension: each rank makes one block of the result"
            found = Defect("mismatched-shards", True, text, site.rank, cause=("blocks", id(operator)))
            yield at(operator, site.segment.name, found)


def _is_own_batch(site: Site, split: list[str]) -> bool:
    """Return whether the operator is a product of tensors that are made of a rank's own batch."""
    operator = site.operator
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    roles = {site.projection.plan.tensors[name].role for name in split if name in site.projection.plan.tensors}
    return spec is not None and Trait.PRODUCT in spec.traits and roles.isdisjoint({Role.WEIGHT, Role.STATE})
