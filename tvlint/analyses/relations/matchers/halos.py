"""Convolutions along a dimension that ranks share out, over their own rows and those that other ranks hand them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.matchers.projection import Projection
from tvlint.analyses.relations.transfer.context import World, is_zeros
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Compute, Literal
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind, has_trait


def broken_halos(projection: Projection) -> Iterator[Defect]:
    """Yield convolutions over what is joined of pieces that are no neighbours, or ends in zeros where other rows follow."""
    for site in projection.sites:
        operator = site.operator
        if not isinstance(operator, Compute) or not has_kind(operator.op, Trait.CONVOLUTION) or not operator.tensor_operands:
            continue
        joins = site.maker(operator.tensor_operands[0])
        if not isinstance(joins, Compute) or not has_trait(joins.op, Trait.JOIN):
            continue
        constants = [operand.value for operand in joins.inputs if isinstance(operand, Literal)]
        dim = joins.attributes.get("dim", constants[0] if constants else 0)
        if not isinstance(dim, int):
            continue
        for rank in projection.facts.ranks_running(site.segment.name):
            held = projection.held.get(rank, {})
            parts = [value for name in joins.tensor_operands if (value := held.get(name)) is not None]
            lies = _order(projection.alone.world, parts, dim) if len(parts) == len(joins.tensor_operands) else ""
            if lies:
                text = f"{name_of(operator)} on {{ranks}} runs over indices {lies} in a row, which are no neighbours"
                found = Defect("scan-over-shards", True, text, rank, cause=("halo", id(operator)))
                yield at(operator, site.segment.name, found)


def _order(world: World, parts: Sequence[Value], dim: int) -> str:
    """Return which indices of one value are joined, in words; empty where they follow each other, around the ends too, or are
    not known.
    """
    whole, ways = world.terms.whole, world.values.pieces_of
    rows = [value for value in parts if not is_zeros(world.terms, value)]
    dim %= len(parts[0].box) if parts else 1
    beside = {(*ways(value)[:dim], *ways(value)[dim + 1 :]) for value in rows}
    if len({whole(value.term) for value in rows}) != 1 or len(beside) > 1 or any(not value.clean for value in rows):
        return ""
    size = world.terms.shape[whole(rows[0].term)][dim]
    ranges = [bounds for value in parts for bounds in (ways(value)[dim] if value in rows else [(-1, -1)])]
    ends = [(0, 0) if bounds == (-1, -1) else bounds for bounds in ranges[:1]] + ranges[1:-1]
    ends += [(size, size) if bounds == (-1, -1) else bounds for bounds in ranges[1:][-1:]]
    if all(low in (high, high - size) for (_, high), (low, _) in pairwise(ends)):
        return ""
    return ", ".join("zeros" if bounds == (-1, -1) else f"{bounds[0]}:{bounds[1]}" for bounds in ranges)
