"""Who communicates with whom."""

from __future__ import annotations

from collections.abc import Collection

from tvlint.ir.operators import Communicate, Group, Operator, Peer, Receive, ReduceGradients, Send
from tvlint.ir.plan import Plan


class Members:
    """The ranks of a group, ascending; those of one plan with the same ranks are one object (`Groups`)."""

    __slots__ = ("_places", "ranks")

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.ranks = ranks
        self._places = {rank: place for place, rank in enumerate(ranks)}

    def __contains__(self, rank: object) -> bool:
        return rank in self._places

    def __len__(self) -> int:
        return len(self.ranks)

    def place(self, rank: int) -> int:
        """Return how many members come before `rank`."""
        return self._places[rank]

    def have_come(self, ranks: Collection[int]) -> bool:
        """Return whether `ranks`, each once, are the members."""
        return len(ranks) == len(self.ranks) and all(rank in self._places for rank in ranks)


class Groups:
    """The members of the groups of a plan, found once for all ranks that see the same."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lines: dict[tuple[tuple[str, ...], int], Members] = {}
        self._known: dict[tuple[int, ...], Members] = {}
        self._named: dict[int, tuple[Group, Members]] = {}

    def members(self, group: Group, rank: int) -> Members:
        """Return the ranks of `group` as `rank` sees it; a rank that is written twice counts once.

        Of a group that spans replicas these are the members in the rank's own replica.
        """
        group, mesh = self._plan.declared(group), self._plan.mesh
        if group.ranks:
            if id(group) not in self._named:
                self._named[id(group)] = group, self._one(tuple(sorted(set(group.ranks))))
            return self._named[id(group)][1]
        axes = tuple(axis for axis in group.axes if not _folded(self._plan, axis))
        line = axes, mesh.first(rank, axes)
        if line not in self._lines:
            self._lines[line] = self._one(mesh.along(rank, axes))
        return self._lines[line]

    def _one(self, ranks: tuple[int, ...]) -> Members:
        return self._known.setdefault(ranks, Members(ranks))


def spans_replicas(plan: Plan, group: Group) -> bool:
    """Return whether the group goes along the axis on which replicas are folded."""
    return any(_folded(plan, axis) for axis in plan.declared(group).axes)


def _folded(plan: Plan, axis: str) -> bool:
    return plan.replication.count > 1 and axis == plan.replication.axis


def not_of_communicator(plan: Plan) -> str:
    """Return a communicator that the plan declares and by which it communicates with other ranks than it has; empty where none
    is.
    """
    known = {communicator.name: communicator for communicator in plan.communicators if communicator.name}
    groups = Groups(plan)
    for program in plan.programs if known else ():
        for _, _, operator in plan.run_by(program):
            name, whom = communicator_of(operator)
            if name in known and not all(_has(plan, groups, known[name], whom, rank) for rank in program.ranks):
                return name
    return ""


def communicator_of(operator: Operator) -> tuple[str, Group | Peer]:
    """Return the communicator that an operator names, and with whom it communicates by it."""
    if isinstance(operator, Communicate | ReduceGradients):
        return operator.group.name, operator.group
    return (operator.communicator, operator.peer) if isinstance(operator, Send | Receive) else ("", Group())


def _has(plan: Plan, groups: Groups, communicator: Group, whom: Group | Peer, rank: int) -> bool:
    members = groups.members(communicator, rank)
    if isinstance(whom, Peer):
        peer = plan.peer(whom, rank)
        return peer is None or (rank in members and peer in members)
    return members is groups.members(whom, rank) and spans_replicas(plan, communicator) == spans_replicas(plan, whom)
