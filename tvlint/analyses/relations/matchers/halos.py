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
    """Yield convolutions over what is joined of pieces that are no neighbours, or ends in zeros where other rows follow.

    Rows of a batch and channels have no neighbours, and what is stacked has the dimension anew.
    """
    for site in projection.sites:
        operator = site.operator
        if not isinstance(operator, Compute) or not has_kind(operator.op, Trait.CONVOLUTION):
            continue
        if len(operator.tensor_operands) < 2:
            continue
        dims, spatial = len(site.shape(operator.tensor_operands[0])), len(site.shape(operator.tensor_operands[1])) - 2
        joins = site.maker(operator.tensor_operands[0])
        if not isinstance(joins, Compute) or not has_trait(joins.op, Trait.JOIN):
            continue
        constants = [operand.value for operand in joins.inputs if isinstance(operand, Literal)]
        dim = joins.attributes.get("dim", constants[0] if constants else 0)
        if not isinstance(dim, int) or not 0 < spatial < dims or dim % dims < dims - spatial:
            continue
        for rank in projection.facts.ranks_running(site.segment.name):
            held = projection.held.get(rank, {})
            parts = [value for name in joins.tensor_operands if (value := held.get(name)) is not None]
            if len(parts) < len(joins.tensor_operands) or any(len(value.box) != dims for value in parts):
                continue
            lies = _order(projection.alone.world, parts, dim % dims)
            if lies:
                text = f"{name_of(operator)} on {{ranks}} runs over indices {lies} in a row, which are no neighbours"
                repair = "join the indices that stand before and behind those of the shard, in their order"
                found = Defect("scan-over-shards", True, text, rank, cause=("halo", id(operator)), repair=repair)
                yield at(operator, site.segment.name, found)


def _order(world: World, parts: Sequence[Value], dim: int) -> str:
    """Return which indices of one value are joined, in words; empty where they follow each other or are not known.

    Whatever stands before the first index and behind the last is what the ends are padded with.
    """
    whole, ways = world.terms.whole, world.values.pieces_of
    rows = [value for value in parts if not is_zeros(world.terms, value)]
    beside = {(*ways(value)[:dim], *ways(value)[dim + 1 :]) for value in rows}
    if len({whole(value.term) for value in rows}) != 1 or len(beside) > 1 or any(not value.clean for value in rows):
        return ""
    size = world.terms.shape[whole(rows[0].term)][dim]
    ranges = [bounds for value in parts for bounds in (ways(value)[dim] if value in rows else [(-1, -1)])]
    longest = max(range(len(ranges)), key=lambda at: ranges[at][1] - ranges[at][0])
    first = next((at for at in range(longest, -1, -1) if ranges[at][0] == 0), 0)
    last = next((at for at in range(longest, len(ranges)) if ranges[at][1] == size), len(ranges) - 1)
    begin, end = ranges[longest]
    in_place = all(high != begin for _, high in ranges[longest:]) and all(low != end for low, _ in ranges[:longest])
    if in_place and all(low == high for (_, high), (low, _) in pairwise(ranges[first : last + 1])):
        return ""
    return ", ".join("zeros" if bounds == (-1, -1) else f"{bounds[0]}:{bounds[1]}" for bounds in ranges)
