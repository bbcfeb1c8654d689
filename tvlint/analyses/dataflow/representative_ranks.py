"""Representative ranks: replicas and mesh axes along which every rank does the same are visited once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Communicate, Group, Peer, Receive, ReduceGradients, Send
from tvlint.ir.plan import Plan

_LARGEST_GROUP = 1 << 20
_LONGEST_AXIS = 4096
_VISITED = 64
"""Of a longer axis, along which all ranks run one program, so many ranks are visited: the first ones and the last."""


class Fold:
    """The ranks of a plan, folded to representatives.

    `alike` are the axes along which the ranks cannot be distinguished: no program, peer or explicit rank distinguishes their
    coordinates. `present` are the ranks that are visited: coordinate 0 on those axes, replica 0, and of very long axes along
    which only neighbours are distinguished, the ranks at both ends, as if they were all.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.mesh = plan.mesh
        self._program_of = {rank: index for index, program in enumerate(plan.programs) for rank in program.ranks}
        self.alike = frozenset(_alike_axes(plan, self._program_of, peers=False))
        self._shortened = {
            name: (*range(_VISITED - 1), self.mesh.axis_size(name) - 1)
            for name in (_alike_axes(plan, self._program_of, peers=True) if _has_long_axis(self.mesh) else ())
            if name not in self.alike and self.mesh.axis_size(name) > _LONGEST_AXIS
        }
        self._lines: dict[tuple[tuple[str, ...], int], tuple[int, ...]] = {}
        self._everywhere: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.present = self._representatives()

    def _representatives(self) -> tuple[int, ...]:
        if not self.alike and not self._shortened:
            return tuple(sorted(self._program_of))
        return self._visited_along(0, tuple(axis.name for axis in self.mesh.axes if axis.name not in self.alike))

    def program_of(self, rank: int) -> int | None:
        """Return the index of the program that `rank` runs, if it has one."""
        return self._program_of.get(rank)

    def representative(self, rank: int) -> int | None:
        """Return the visited rank that does what `rank` does; None when no program covers it."""
        replication = self.plan.replication
        if rank not in self._program_of and replication.count > 1 and replication.stride > 0:
            low = min(self._program_of, default=0)
            replica = min(max(rank - low, 0) // replication.stride, replication.count - 1)
            rank -= replica * replication.stride
        if rank not in self._program_of:
            return None
        if not self.alike or rank >= self.mesh.size:
            return rank
        return self._first_alike(rank)

    def _first_alike(self, rank: int) -> int:
        coordinates = self.mesh.coordinates(rank)
        return self.mesh.rank({name: 0 if name in self.alike else at for name, at in coordinates.items()})

    def everywhere(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return all ranks that the representatives `ranks` stand for, ascending."""
        if ranks not in self._everywhere:
            self._everywhere[ranks] = self._stood_for(ranks)
        return self._everywhere[ranks]

    def _stood_for(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        found = set(ranks)
        if self._shortened and found.issuperset(self.present):
            return tuple(sorted(self._program_of))
        if self.alike:
            first = {self._first_alike(rank) for rank in found if rank < self.mesh.size}
            found = {other for rank in first for other in self.mesh.along(rank, tuple(self.alike))}
        replication = self.plan.replication
        if replication.count > 1 and replication.stride > 0:
            shifts = range(min(replication.count, _LARGEST_GROUP // max(1, len(found)) + 1))
            found = {rank + shift * replication.stride for rank in found for shift in shifts}
        return tuple(sorted(found))

    def members(self, group: Group, rank: int) -> tuple[int, ...]:
        """Return the visited ranks of the group that `rank` has, ascending; as written when the group lists its ranks."""
        group = self.plan.declared(group)
        if group.ranks:
            return tuple(sorted(set(group.ranks)))
        folded = self.alike | ({self.plan.replication.axis} if self.plan.replication.count > 1 else set())
        kept = tuple(name for name in group.axes if name not in folded)
        if rank < self.mesh.size and any(name in self._shortened for name in kept):
            return self._line(rank, kept, self._visited_along)
        if rank >= self.mesh.size or prod(self.mesh.axis_size(name) for name in set(kept)) > _LARGEST_GROUP:
            return (rank,)
        return self._line(rank, kept, self.mesh.along)

    def _line(
        self, rank: int, names: tuple[str, ...], along: Callable[[int, tuple[str, ...]], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Return the ranks of `rank`'s line along `names`, found once for all of them."""
        coordinates = self.mesh.coordinates(rank)
        key = (names, self.mesh.rank({name: 0 if name in names else at for name, at in coordinates.items()}))
        if key not in self._lines:
            self._lines[key] = along(rank, names)
        return self._lines[key]

    def _visited_along(self, rank: int, names: tuple[str, ...]) -> tuple[int, ...]:
        coordinates, ranks = self.mesh.coordinates(rank), [0]
        for axis in self.mesh.axes:
            steps = self._shortened.get(axis.name, range(axis.size)) if axis.name in names else (coordinates[axis.name],)
            ranks = [base * axis.size + step for base in ranks for step in steps]
        return tuple(ranks)

    def communicator(self, group: Group, rank: int) -> tuple[object, ...]:
        """Return what two members agree on when they use the same communicator."""
        group = self.plan.declared(group)
        hidden = tuple(sorted(name for name in group.axes if name in self.alike and self.mesh.axis_size(name) > 1))
        return (group.name, hidden, self.members(group, rank))

    def peer(self, peer: Peer, rank: int) -> int | None:
        """Return the absolute rank at the other end; None where the axis ends before it, so that there is none."""
        if peer.rank is not None or not peer.axis:
            return peer.rank
        if rank >= self.mesh.size:
            return None
        coordinates = self.mesh.coordinates(rank)
        visited = self._shortened.get(peer.axis)
        if visited is not None and coordinates[peer.axis] in visited:
            target = visited.index(coordinates[peer.axis]) + peer.offset
            if not 0 <= target < len(visited) and not peer.wrap:
                return None
            return self.mesh.rank({**coordinates, peer.axis: visited[target % len(visited)]})
        return self.plan.peer(peer, rank)


def _has_long_axis(mesh: Mesh) -> bool:
    return any(axis.size > _LONGEST_AXIS for axis in mesh.axes)


def _alike_axes(plan: Plan, program_of: dict[int, int], peers: bool) -> Iterator[str]:
    """Yield the axes along which all ranks do the same, but for whom they send to where `peers`."""
    mesh = plan.mesh
    distinguished: set[str] = {plan.replication.axis} if plan.replication.count > 1 else set()
    for operator in plan.operators():
        if isinstance(operator, (Send, Receive)):
            if operator.peer.rank is not None:
                return
            if not peers:
                distinguished.add(operator.peer.axis)
        if isinstance(operator, (Communicate, ReduceGradients)) and operator.group.ranks:
            return
        if isinstance(operator, Communicate) and operator.root is not None:
            return
    if any(group.ranks for group in plan.communicators) or mesh.size != len(program_of) or plan.replication.count > 1:
        return
    for axis in mesh.axes:
        if axis.size > 1 and axis.name not in distinguished and _same_program_along(axis.name, mesh, program_of):
            yield axis.name


def _same_program_along(axis: str, mesh: Mesh, program_of: dict[int, int]) -> bool:
    stride = 1
    for other in reversed(mesh.axes):
        if other.name == axis:
            size = other.size
            break
        stride *= other.size
    return all(program == program_of.get(rank - rank // stride % size * stride) for rank, program in program_of.items())
