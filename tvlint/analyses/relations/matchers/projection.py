"""How local tensors lie on mesh axes, read off the relations that the ranks of one plan hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.shared_names import shared_name
from tvlint.analyses.relations.derivation.localisation.sure import parts_of_one_sum
from tvlint.analyses.relations.derivation.single_plan import Alone
from tvlint.analyses.relations.derivation.state import Slot
from tvlint.analyses.relations.transfer.index_maps import Pieces, joined
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Communicate, Operator
from tvlint.ir.placement import Invariant, Partial, Placement, Replicate, Shard
from tvlint.ir.plan import GIVEN, Segment


@dataclass(frozen=True, slots=True)
class Blocks:
    """The ranks of an axis hold pieces that differ in these dimensions at once."""

    dims: tuple[int, ...]


On: TypeAlias = Placement | Blocks | None
"""How a value lies on one axis; None is unknown."""


def is_whole(on: On) -> bool:
    """Return whether every rank of the axis holds the whole, complete value."""
    return isinstance(on, Replicate | Invariant)


class Projection:
    """The relations of a plan, as placements."""

    def __init__(self, facts: Facts, alone: Alone) -> None:
        self.facts, self.alone, self.plan = facts, alone, alone.plan
        self.axes = tuple(axis.name for axis in self.plan.mesh.axes if axis.size > 1)
        self._known: dict[tuple[str, int, str], On] = {}
        self._first = cache(lambda rank, axis: self.plan.mesh.first(rank, (axis,)))

    @cached_property
    def held(self) -> Mapping[int, Mapping[str, Slot]]:
        """Return what each rank holds under each name, as far as it is made once."""
        found: dict[int, dict[str, Slot]] = {rank: dict(held) for rank, held in self.alone.derived.environments.items()}
        for (rank, _), local in self.alone.derived.locals.items():
            for name, value in local.items():
                known = found.setdefault(rank, {}).setdefault(name, value)
                if known is not value:
                    found[rank][name] = None
        for names in found.values():
            names.update({shared_name(name): value for name, value in names.items() if shared_name(name) not in names})
        return found

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Return every operator of every segment that is run, as the first of its ranks runs it."""
        run = ((program, site) for program in self.plan.programs if program.ranks for site in self.plan.run_by(program))
        return tuple(
            Site(self, self.plan.segments[name], index, operator, min(program.ranks))
            for program, (name, index, operator) in first_of_each(run, lambda each: each[1][:2])
        )

    def on(self, name: str, rank: int, axis: str) -> On:
        """Return how what a rank holds as `name` lies on an axis: as declared where it is given, else as derived."""
        tensor = self.plan.tensors.get(name)
        if tensor is not None and tensor.role in GIVEN and self.held.get(rank, {}).get(name) is None:
            return None if tensor.placements is None else tensor.placements.get(axis, Replicate())
        if self.plan.replication.count > 1 and axis == self.plan.replication.axis:
            return self._over_replicas(shared_name(name), rank)
        key = (name, self._first(rank, axis), axis)
        if key not in self._known:
            self._known[key] = self._derived(shared_name(name), *key[1:])
        return self._known[key]

    def _over_replicas(self, name: str, rank: int) -> On:
        here, terms = self.held.get(rank, {}).get(name), self.alone.world.terms
        if here is None:
            return None
        slot = terms.slot[terms.whole(here.term)]
        one = any(entry.one_replica for leaf in here.leaves for entry in leaf.pending)
        return Shard(slot) if slot >= 0 else Partial() if one else Replicate()

    def _derived(self, name: str, first: int, axis: str) -> On:
        """Return how what the ranks hold that differ from `first` along the axis alone lies on it."""
        values, terms = self.alone.world.values, self.alone.world.terms
        line = {rank: self.held.get(rank, {}).get(name) for rank in self.plan.mesh.along(first, (axis,))}
        known = [value for value in line.values() if value is not None]
        if len(known) < len(line) or len({terms.whole(value.term) for value in known}) > 1:
            return None
        here = known[0]
        held = [values.pieces_of(value) for value in known]
        dims = tuple(dim for dim in range(len(here.box)) if any(pieces[dim] != held[0][dim] for pieces in held))
        if len(dims) > 1:
            return Blocks(dims)
        if dims:
            return Shard(dims[0]) if _in_order([pieces[dims[0]] for pieces in held]) else Blocks(dims)
        if all(value is here for value in known):
            return Replicate()
        folds = {value.fold.kind for value in known if value.fold is not None}
        if folds:
            return Partial(next(iter(folds)))
        return Partial() if first in parts_of_one_sum(line) else None

    def held_as(self, name: str) -> Iterator[tuple[int, Slot]]:
        """Yield each rank with what it holds as `name`."""
        yield from ((rank, names.get(name)) for rank, names in self.held.items())

    def covers(self, name: str) -> bool:
        """Return whether the ranks together hold every element of the value."""
        values = {value for _, value in self.held_as(shared_name(name)) if value is not None}
        boxes: dict[int, set[tuple[Pieces, ...]]] = {}
        for value in values:
            boxes.setdefault(self.alone.world.terms.whole(value.term), set()).add(self.alone.world.values.pieces_of(value))
        return all(_volume(held) >= prod(self.alone.world.terms.shape[term]) for term, held in boxes.items())


def _in_order(pieces: list[Pieces]) -> bool:
    """Return whether the ranks hold one piece each that continue each other."""
    together = joined(bounds for held in pieces for bounds in held)
    return len(together) == 1 and all(len(held) == 1 for held in pieces)


def _volume(boxes: set[tuple[Pieces, ...]]) -> int:
    return sum(prod(sum(high - low for low, high in pieces) for pieces in box) for box in boxes)


@dataclass(frozen=True, slots=True)
class Site:
    """An operator of a segment, as a rank runs it."""

    projection: Projection
    segment: Segment
    index: int
    operator: Operator
    rank: int

    def on(self, name: str, axis: str) -> On:
        """Return how what the rank holds as `name` lies on an axis."""
        return self.projection.on(name, self.rank, axis)

    def value(self, name: str) -> Value | None:
        """Return the relation of what the rank holds as `name`."""
        return self.projection.held.get(self.rank, {}).get(name)

    def ranks(self) -> tuple[int, ...]:
        """Return all ranks that run the segment."""
        facts = self.projection.facts
        return facts.fold.everywhere(facts.ranks_running(self.segment.name))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the local shape of a tensor, as the plan has it."""
        tensor = self.projection.plan.tensors.get(name)
        return tensor.shape if tensor is not None else ()

    def maker(self, name: str) -> Operator | None:
        """Return the operator of the segment that makes `name` before this one."""
        before = reversed(self.segment.operators[: self.index])
        return next((operator for operator in before if name in writes(operator)), None)

    def goes_over(self, operator: Communicate, axis: str) -> bool:
        """Return whether a collective of the rank runs over an axis."""
        group, mesh = self.projection.facts.plan.declared(operator.group), self.projection.plan.mesh
        if group.axes or not group.ranks:
            return not group.axes or axis in group.axes
        return len(set(mesh.along(self.rank, (axis,))).intersection(group.ranks)) > 1
