"""The state of the placement analysis along one program: values by name, where they come from, and what was found wrong."""

from __future__ import annotations

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.local_shapes import whole_shape
from tvlint.analyses.placement.axes import common_axes, messaged_axes
from tvlint.analyses.placement.domain import Defect, On, Placed, Shuffled, Where, same, words
from tvlint.ir.operators import Group
from tvlint.ir.placement import Partial, Placement, Replicate, Shard
from tvlint.ir.plan import Program, Role, Tensor

TRUSTED = (Role.WEIGHT, Role.BUFFER, Role.INPUT, Role.STATE)
UNKNOWN = Placed({})


class Walk:
    """One program of a plan, at the operator `where`."""

    def __init__(self, facts: Facts, program: Program, sent: dict[Where, Placed]) -> None:
        self.facts = facts
        self.plan = facts.plan
        self.program = program
        self.rank = min(program.ranks, default=0)
        self.axes = common_axes(facts, program)
        self.sent = sent
        self.messaged = facts.derived("messaged axes", lambda: messaged_axes(facts))
        self.found: list[Defect] = []
        self.values: dict[str, Placed] = {}
        self.producer: dict[str, Where] = {}
        self.where: Where = ("", 0)
        self.pieces: dict[str, tuple[str, int, int, int]] = {}
        """Slices of values: of which, along which dimension, from where to where."""

    def value(self, name: str) -> Placed:
        """Return how `name` lies; unknown until it is produced, or declared and trusted."""
        if name in self.values:
            return self.values[name]
        tensor = self.plan.tensors.get(name)
        if tensor is None or tensor.placements is None or tensor.role not in TRUSTED:
            return UNKNOWN
        given = tensor.placements
        self.values[name] = Placed({axis: given.get(axis, Replicate()) for axis in self.axes})
        return self.values[name]

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the local shape of `name`, where it is declared or follows."""
        tensor = self.plan.tensors.get(name)
        return None if tensor is None else tensor.shape

    def whole(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of the whole value of which `name` is a piece, where all its placements are known."""
        shape, value = self.shape(name), self.value(name)
        if shape is None or any(value.on.get(axis) is None for axis in self.axes):
            return None
        placements: dict[str, Placement] = {axis: on for axis, on in value.on.items() if isinstance(on, Shard)}
        tensor = self.plan.tensors[name]
        if tensor.whole is not None and len(tensor.whole) == len(shape) and tensor.role in TRUSTED:
            return tensor.whole
        return whole_shape(self.plan.mesh, shape, placements)

    def say(self, rule: str, name: str, axis: str, operator: str = "", other: str = "", has: str = "") -> None:
        """Note that `rule` is broken at the present operator."""
        value = self.value(name)
        made = value.origin.get(axis) or self.producer.get(name)
        has = has or words(value.on.get(axis))
        self.found.append(Defect(rule, self.where, name, axis, has, operator, other, made))

    def store(self, name: str, on: dict[str, On], origin: dict[str, Where]) -> None:
        """Keep how a result lies; what could not be derived is what the plan declares of it."""
        value = Placed(on, origin)
        self.values[name] = value
        self.producer[name] = self.where
        tensor = self.plan.tensors.get(name)
        if tensor is not None and tensor.placements is not None and tensor.role not in TRUSTED:
            self._against_claim(tensor)

    def _against_claim(self, tensor: Tensor) -> None:
        """Compares what the plan claims of a result with what was derived; where they differ, nothing is known from here on."""
        name, placements = tensor.name, tensor.placements or {}
        value = self.values[name]
        kept = dict(value.on)
        for axis in self.axes:
            claim, placement = placements.get(axis, Replicate()), value.on.get(axis)
            if placement is None:
                if axis in placements and axis not in value.on:
                    kept[axis] = placements[axis]
                continue
            if same(placement, claim) or (isinstance(placement, Partial) and isinstance(claim, Partial)):
                continue
            if isinstance(claim, Shard) and isinstance(placement, Shard) and (claim.parts or placement.parts):
                continue
            if isinstance(placement, Partial):
                self.say("missing-allreduce", name, axis, other="claim")
            elif isinstance(placement, Shuffled) or (
                isinstance(placement, Shard) and isinstance(claim, Shard) and placement.dim == claim.dim
            ):
                self.say("pieces-not-in-rank-order", name, axis, other=words(claim))
            else:
                self.say("wrong-placement-claim", name, axis, other=words(claim))
            del kept[axis]
        self.values[name] = Placed(kept, value.origin)

    def axes_of(self, group: Group) -> tuple[str, ...] | None:
        """Return the mesh axes that the group runs along; None when it is no product of axes."""
        group = self.facts.fold.declared(group)
        if group.axes or not group.ranks:
            return group.axes or self.axes
        ranks, mesh = tuple(sorted(set(group.ranks))), self.plan.mesh
        if self.rank not in ranks or ranks[-1] >= mesh.size:
            return None
        coordinates = [mesh.coordinates(rank) for rank in ranks]
        axes = tuple(axis.name for axis in mesh.axes if len({each[axis.name] for each in coordinates}) > 1)
        size = 1
        for axis in axes:
            size *= mesh.axis_size(axis)
        return axes if size == len(ranks) and mesh.along(self.rank, axes) == ranks else None
