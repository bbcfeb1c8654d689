"""Reducers that scatter leave each rank a shard of a gradient, which is added up with the same shard and no other."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.relations.defect import Trouble, at
from tvlint.analyses.relations.derivation.gradients import reducers_of, together
from tvlint.analyses.relations.transfer.groups import spans_replicas
from tvlint.ir.operators import ReduceGradients
from tvlint.ir.plan import Plan


def check_shards(plan: Plan) -> Iterator[Trouble]:
    """Reducers of members that hold different shards of a gradient by then."""
    if not any(isinstance(own, ReduceGradients) and own.scatter for part in plan.segments.values() for own in part.operators):
        return
    shards: dict[tuple[int, str], tuple[tuple[int, int, bool], ...]] = {}
    for members, operators in together(plan, reducers_of(plan)):
        segment, first = operators[members[0]]
        spans = first.replicated or spans_replicas(plan, first.group)
        for named in zip(*(operators[member][1].weights for member in members), strict=False):
            slots = [*zip(members, named, strict=True)]
            own = [shards.get(slot, ()) for slot in slots]
            if any(shard != own[0] for shard in own) or (spans and any(over_all for *_, over_all in own[0])):
                text = f"the gradient of `{named[0]}` on {{ranks}} is reduced over ranks that hold other shards of it by then"
                for member in members:
                    yield at(first, segment, Trouble("reduced-shards", False, text, member))
            for position, slot in enumerate(slots if first.scatter else ()):
                shards[slot] = (*own[position], (position, len(slots), spans))
