"""Operators that see a shard of a dimension along which they need all of it: attention, choices, running functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tvlint.analyses.communication.calls import messaged_axes
from tvlint.analyses.dataflow.attention import is_attention
from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.mesh_axes import DATA_AXES, SEQUENCE_AXES, batch_axes, traded_axes
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.matchers.projection import On, Projection, Site, is_whole
from tvlint.ir.operators import SUMS, Collective, Communicate, Compute, Literal, Receive, Send
from tvlint.ir.placement import Shard
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_kind, row_of
from tvlint.ops.usual_calls import usual

_CARRYING = (Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.BROADCAST)


def shards_of_all(projection: Projection) -> Iterator[Defect]:
    """Yield operators that see a shard of the keys, of the candidates or of the positions that they need."""
    plan = projection.plan
    messaged, traded, batch = messaged_axes(projection.facts), traded_axes(plan), batch_axes(plan)
    for site in projection.sites:
        if not isinstance(site.operator, Compute) or not site.operator.tensor_operands:
            continue
        operator = usual(site.operator)
        names = operator.tensor_operands
        rank, called = len(site.shape(names[0])), name_of(site.operator)
        for axis in projection.axes if rank else ():
            on, rule, text, at_rank = site.on(names[0], axis), "", "", site.rank
            if is_attention(operator) and axis not in messaged:
                keys = _local_keys(site, operator, names, axis, axis in traded)
                rule, text = "attention-over-local-keys", f"sees only what its own shard of `{axis}` has of the keys `{keys}`"
                text = text if keys else ""
                beyond = _beyond_first(site, axis)
                if not text and beyond >= 0 and _masks_by_own_places(site, operator, names, axis):
                    at_rank = beyond
                    rule, text = "scan-over-shards", f"numbers the queries of its shard of `{axis}` from zero: "
                    text += "they lose keys that come before them"
            elif isinstance(on, Shard) and _chooses(operator, on, rank) and axis not in batch | SEQUENCE_AXES:
                rule = "choice-over-shards"
                if _reduces_places(site, operator, axis) or not _sent_on(site, list(filter(None, operator.outputs)), axis):
                    text = f"compares only a shard: its dimension of `{names[0]}` is split over `{axis}`"
            elif isinstance(on, Shard) and _runs_along(site, operator, on.dim % rank, axis, batch, axis in traded):
                if _is_continued(site, axis):
                    continue
                rule = "scan-over-shards"
                text = f"takes from neighbouring positions of `{names[0]}`, but that dimension is split over `{axis}`: "
                text += "every rank starts anew at its shard"
            if text:
                carried = rule == "scan-over-shards" and not is_attention(operator) and _carries(projection, axis)
                unless = "ranks hand on what a shard lacks" if carried else ""
                found = Defect(rule, True, f"{called} on {{ranks}} {text}", at_rank, unless=unless)
                yield at(site.operator, site.segment.name, found)


def _local_keys(site: Site, operator: Compute, names: Sequence[str], axis: str, is_traded: bool) -> str:
    """Return the keys or values of which attention needs those of other ranks along an axis; empty where it has them all."""
    queries, keys, values = ([site.on(name, axis) for name in names[:3]] + [None] * 3)[:3]
    rank, row = len(site.shape(names[0])), row_of(operator.op)
    sequence = row.sequence if row is not None and (rank == 4 or row.sequence == -2) else None
    if sequence is not None and is_whole(queries) and len(operator.outputs) == 1 and _splits(keys, sequence, rank):
        return names[1]
    if not isinstance(queries, Shard) or axis in DATA_AXES - SEQUENCE_AXES or queries.dim % rank == rank - 1:
        return ""
    dim = queries.dim % rank
    found = ""
    if is_whole(keys) and values == queries:
        found = names[2]
    elif rank == 2 or (rank == 3 and axis in SEQUENCE_AXES if sequence is None else dim == sequence % rank):
        found = names[1] if _splits(keys, dim, rank) else ""
    elif axis in ("cp", "context") and not is_traded and rank > 2 and dim > 0 and keys == queries:
        return names[1]
    return "" if found and _may_be_heads(site, operator, names[0], axis, is_traded) else found


def _masks_by_own_places(site: Site, operator: Compute, names: Sequence[str], axis: str) -> bool:
    """Return whether the causal mask of all keys is by the places of the queries in a shard of the sequence."""
    row, rank = row_of(operator.op), len(site.shape(names[0]))
    if row is None or row.sequence is None or (rank != 4 and row.sequence != -2) or "query_start" in operator.attributes:
        return False
    causal = bool(operator.attributes.get("is_causal"))
    return causal and _splits(site.on(names[0], axis), row.sequence, rank) and is_whole(site.on(names[1], axis))


def _beyond_first(site: Site, axis: str) -> int:
    """Return another rank than the first along an axis that runs the operator; -1 where there is none."""
    return next((rank for rank in site.ranks() if rank != site.projection.plan.mesh.first(rank, (axis,))), -1)


def _splits(on: On, dim: int, rank: int) -> bool:
    return isinstance(on, Shard) and on.dim % rank == dim % rank


def _may_be_heads(site: Site, operator: Compute, queries: str, axis: str, is_traded: bool) -> bool:
    """Return whether what is split over the axis may be heads: just traded for the sequence, or given to a kernel of the
    flash family, whose layout those who name it seldom keep.
    """
    row = row_of(operator.op)
    if row is not None and row.sequence == -2:
        return False
    maker = site.maker(queries)
    if isinstance(maker, Communicate) and maker.kind is Collective.ALL_TO_ALL and site.goes_over(maker, axis):
        return True
    return is_traded or (axis not in SEQUENCE_AXES and (row is None or row.sequence is None))


def _constants(operator: Compute) -> list[object]:
    return [operand.value for operand in operator.inputs if isinstance(operand, Literal)]


def _chooses(operator: Compute, on: Shard, rank: int) -> bool:
    """Return whether the operator picks elements along the split dimension by comparing all of them."""
    row, constants = row_of(operator.op), _constants(operator)
    if row is None or Trait.CHOICE not in row.traits or row.dimension is None:
        return False
    at_place, usual = row.dimension
    dim = operator.attributes.get("dim", constants[at_place] if len(constants) > at_place else usual)
    return dim is None or (isinstance(dim, int) and not isinstance(dim, bool) and dim % rank == on.dim % rank)


def _runs_along(site: Site, operator: Compute, dim: int, axis: str, batch: Collection[str], is_traded: bool) -> bool:
    """Return whether every position along a dimension takes from its neighbours, or from all before it."""
    row, constants, rank = row_of(operator.op), _constants(operator), len(site.shape(str(operator.inputs[0])))
    if row is not None and Trait.SCAN in row.traits and Trait.MIRROR not in row.traits and row.dimension is not None:
        if dim == 0 and axis in batch and axis not in SEQUENCE_AXES:
            return False
        at_place, _ = row.dimension
        usual = constants[at_place] if len(constants) > at_place else None
        given = operator.attributes.get("dim", operator.attributes.get("dims", usual))
        dims = given if isinstance(given, tuple) else (given,)
        return any(isinstance(each_dim, int) and each_dim % rank == dim for each_dim in dims)
    if has_kind(operator.op, Trait.CONVOLUTION):
        return dim >= 2 and _kernel(site, operator, dim) > 1
    if has_kind(operator.op, Trait.RECURRENCE) and axis in SEQUENCE_AXES and rank > 2 and dim in (1, 2):
        return not is_traded
    return False


def _kernel(site: Site, operator: Compute, dim: int) -> int:
    weight = operator.inputs[1] if len(operator.inputs) > 1 else None
    shape = site.shape(weight) if isinstance(weight, str) else ()
    return shape[dim] if dim < len(shape) else (shape[-1] if shape else 0)


def _is_continued(site: Site, axis: str) -> bool:
    """Return whether the segment sends on what the operator makes, or adds to it what came along the axis."""
    made, come = set(writes(site.operator)), set[str]()
    for operator in site.segment.operators:
        given, results = set(reads(operator)), set(writes(operator))
        moves = isinstance(operator, Send | Receive) or (isinstance(operator, Communicate) and site.goes_over(operator, axis))
        if given & made and (isinstance(operator, Send) or given & come):
            return True
        made |= results if given & made else set()
        come |= results if moves or given & come else set()
    return False


def _carries(projection: Projection, axis: str) -> bool:
    """Return whether anything runs along the axis by which ranks could hand on what a shard lacks."""
    return axis in messaged_axes(projection.facts) or axis in _exchanging(projection.facts)


def _exchanging(facts: Facts) -> frozenset[str]:
    every = [axis.name for axis in facts.plan.mesh.axes]
    return frozenset(
        axis for operator in facts.plan.operators_of(Communicate)
        if operator.kind in _CARRYING for axis in operator.group.axes or every
    )  # fmt: skip


def _reduces_places(site: Site, operator: Compute, axis: str) -> bool:
    """Return whether ranks reduce the places that each found in its own shard, which count from the start of that."""
    tensors = site.projection.plan.tensors
    places = {name for name in operator.outputs if name in tensors and holds_whole_numbers(tensors[name].dtype)}
    sums = (each for each in site.segment.operators[site.index + 1 :] if isinstance(each, Communicate) and each.kind in SUMS)
    return any(places.intersection(each_sum.inputs) and site.goes_over(each_sum, axis) for each_sum in sums)


def _sent_on(site: Site, names: Collection[str], axis: str) -> bool:
    """Return whether what the operator makes, or anything made from it, goes into a collective over the axis, into a message,
    or out of the segment with other operators to come.
    """
    plan, reached = site.projection.plan, set(names)
    for operator in site.segment.operators[site.index + 1 :]:
        if not reached.intersection(reads(operator)):
            continue
        if isinstance(operator, Send) or (isinstance(operator, Communicate) and site.goes_over(operator, axis)):
            return True
        reached.update(writes(operator))
    leaves = reached.intersection(site.segment.outputs) - set(plan.outputs)
    return any(leaves.intersection(other.inputs) for name, other in plan.segments.items() if name != site.segment.name)
