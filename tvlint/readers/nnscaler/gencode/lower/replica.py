"""A plan as it is built from the files of one replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.operators import Operator, Receive, ReduceGradients, Send
from tvlint.ir.plan import Program, Role, Segment, Tensor
from tvlint.readers.nnscaler.gencode.lower.operators import Body
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind
from tvlint.readers.nnscaler.gencode.syntax.records import RankFile, RunBackward

Asked: TypeAlias = tuple[int, str, int]
"""A gradient that a rank takes of a segment: the rank, the segment and the position among the inputs."""


@dataclass(frozen=True, slots=True)
class Replica:
    """The files of one replica, and how the others relate to it.

    Rank r of replica k is `files[r - low]` shifted by k x `stride`; `low` is the first rank of this one.
    """

    files: tuple[RankFile, ...]
    count: int
    stride: int
    low: int = 0

    def base(self, ranks: Sequence[int]) -> tuple[tuple[int, ...], bool, bool]:
        """Return the ranks of a reducer that lie in this replica, whether it extends over all replicas, and whether it fits."""
        size = len(self.files)
        members = tuple(rank for rank in ranks if self.low <= rank < self.low + size)
        offsets = {rank - self.low for rank in members}
        everywhere = {offset + replica * size for offset in offsets for replica in range(self.count)}
        if set(ranks) == everywhere and len(set(ranks)) == len(ranks):
            return members, self.count > 1, True
        return members, False, set(members) == set(ranks) and self.count == 1


@dataclass(slots=True)
class Built:
    """The plan as it is built."""

    replica: Replica
    inputs: Mapping[tuple[str, int], Kind]
    scalar: tuple[int, ...]
    kinds: dict[str, Kind] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    disputed: set[str] = field(default_factory=set)
    stated: dict[str, Kind] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """Gradient -> what it is the gradient of."""
    own_gradient: dict[str, str] = field(default_factory=dict)
    logical: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    forward_cells: dict[int, list[str]] = field(default_factory=dict)
    groups: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    bodies: dict[tuple[int, str], Body] = field(default_factory=dict)
    contradictions: list[tuple[str, Location, int, tuple[tuple[str, Location], ...]]] = field(default_factory=list)
    """What cannot fit, where, on which rank, and where its operands were made."""
    unbound: list[tuple[str, Location, int]] = field(default_factory=list)
    """Names of the schedule that nothing made before, where, on which rank."""
    ungiven: dict[Asked, tuple[str, str, RunBackward]] = field(default_factory=dict)
    """Gradients that autograd does not make, of the first run: the name, the input that it is of, where."""
    asked: dict[Asked, tuple[str, str, RunBackward]] = field(default_factory=dict)
    """Gradients of what a loader gives that are taken with others, likewise."""
    early: list[tuple[str, Location, Location, int]] = field(default_factory=list)
    """Asynchronous reducers that are waited for before they start: where, what starts them, on which rank."""
    objects: set[str] = field(default_factory=set)
    """What loaders give that is no tensor, under all its names in schedules."""
    returned_batches: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The micro-batches of the values that each rank returns."""
    micro_batches: int = 1

    def declare(self, name: str, kind: Kind, role: Role = Role.ACTIVATION) -> None:
        """Note shape and dtype of a tensor; what ranks disagree about stays undeclared, unless a message states it."""
        if role is not Role.ACTIVATION or name not in self.roles:
            self.roles[name] = role
        known = self.kinds.setdefault(name, self.stated.get(name, kind))
        if known[0] != kind[0] and name not in self.stated:
            self.disputed.add(name)


def made_by(operator: Operator) -> tuple[str, ...]:
    """Return the names that an operator gives a value."""
    if isinstance(operator, Receive):
        return (operator.tensor,)
    if isinstance(operator, (Send, ReduceGradients)):
        return ()
    return tuple(name for name in getattr(operator, "outputs", ()) if name)
