"""Compare the returned values with the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import prod

from tvlint.analyses.relations.defect import Declare, Defect
from tvlint.analyses.relations.derivation.localise import scope_of
from tvlint.analyses.relations.derivation.state import Derived, Slot
from tvlint.analyses.relations.derivation.trusted_inputs import pieces_held
from tvlint.analyses.relations.terms.product_normal_form import bare
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.apply import fold_text
from tvlint.analyses.relations.transfer.boxes import covers
from tvlint.analyses.relations.transfer.collectives import over_replicas
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.groups import Groups, Members, spans_replicas
from tvlint.analyses.relations.transfer.index_maps import Pieces, cells
from tvlint.analyses.relations.transfer.pending_ranges import Pending
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Leaf, Value
from tvlint.ir.operators import Group
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Box, Plan


def judge_returned(
    world: World, plan: Plan, derived: Derived, losses: tuple[int, ...], replicas: int, micro_batches: int
) -> Iterator[Defect]:
    """Return what is wrong with the values that the plan returns, and what is assumed of the rest."""
    if not plan.outputs:
        text = f"the plan returns nothing and the reference returns {len(losses)} values"
        yield Defect("other-outputs", False, text, plan.programs[0].ranks[0])
    everywhere = plan.format.startswith("nnscaler-")
    returned = False
    held: dict[tuple[str, int], list[Box]] = {}
    together = Returned(world, plan, derived)
    for rank, environment in derived.environments.items():
        names = [name for name in plan.outputs if name in environment]
        returned = returned or bool(names)
        if not names and everywhere and plan.outputs:
            yield Defect("missing-output", True, f"{{ranks}} return `{plan.outputs[0]}`, which nothing gives them", rank)
        if names and len(names) != len(losses):
            text = f"{{ranks}} return {len(names)} values where the reference returns {len(losses)}"
            yield Defect("other-outputs", False, text, rank)
            continue
        for name, term in zip(names, losses, strict=False):
            value = together.value(rank, name)
            pieces = None if value is None else world.values.pieces_of(value)
            value = None if value is None else world.values.without_constants(world.values.out_of_pieces(value))
            same = value is not None and value.term == term and _one_slot(world, value, replicas, micro_batches)
            if same and pieces is not None:
                held.setdefault((name, term), []).extend(cells(pieces))
                yield from _misdeclared(plan, name, rank, pieces)
                continue
            yield _wrong_output(world, plan, name, rank, term, value)
    for (name, term), boxes in held.items():
        if not covers(boxes, world.terms.shape[term]):
            text = f"the pieces of `{name}` that the ranks return do not make up the whole"
            yield Defect("uncovered-output", True, text, plan.programs[0].ranks[0])
    if plan.outputs and not returned:
        yield Defect("missing-output", True, "nothing computes what the plan returns", plan.programs[0].ranks[0])


def _misdeclared(plan: Plan, name: str, rank: int, pieces: tuple[Pieces, ...]) -> Iterator[Defect]:
    """Yield what is wrong with the declaration of a returned value of which `rank` holds these pieces; nothing where none says
    which.
    """
    tensor = plan.tensors.get(name)
    if tensor is None:
        return
    if tensor.part != (0, 1):
        text = f"`{name}`, returned on {{ranks}}, is declared to be a part of a sum and is all of it"
        yield Defect("output-is-no-part", False, text, rank)
    if tensor.region is None and tensor.placements is None:
        return
    shards = {axis: placement for axis, placement in (tensor.placements or {}).items() if not isinstance(placement, Partial)}
    try:
        declared = pieces_held(plan, replace(tensor, placements=shards, part=(0, 1)), rank)
    except Mismatch as mismatch:
        yield Defect(mismatch.name, False, f"of what is returned on {{ranks}}, {mismatch.message}", rank)
        return
    if declared != pieces:
        text = f"`{name}`, returned on {{ranks}}, holds another slice than the plan declares"
        yield Defect("output-of-another-slice", True, text, rank)


class Returned:
    """What ranks return, summed or averaged over the axes on which the plan declares it partial."""

    def __init__(self, world: World, plan: Plan, derived: Derived) -> None:
        self._world, self._plan, self._derived = world, plan, derived
        self._groups = Groups(plan)
        self._together: dict[tuple[Members, str], Slot] = {}

    def value(self, rank: int, name: str) -> Slot:
        """Return the value that `rank` returns as `name`, as far as it is known."""
        kinds = self._kinds(name)
        value = self._derived.environments[rank][name]
        if not _KNOWN.issuperset(kinds.values()):
            return None
        group = Group(axes=tuple(axis for kind in ("sum", "avg") for axis, each_kind in kinds.items() if each_kind == kind))
        if not group.axes or value is None:
            return value
        members = self._groups.members(group, rank)
        if (members, name) not in self._together:
            self._together[members, name] = self._sum(group, members, name)
        return self._together[members, name]

    def _kinds(self, name: str) -> dict[str, str]:
        """Return how the parts of `name` are put together, by axis."""
        tensor = self._plan.tensors.get(name)
        placements = (tensor.placements if tensor is not None else None) or {}
        return {axis: placement.reduce for axis, placement in placements.items() if isinstance(placement, Partial)}

    def _sum(self, group: Group, members: Members, name: str) -> Slot:
        values, environments = self._world.values, self._derived.environments
        parts = [environments.get(member, {}).get(name) for member in members.ranks]
        whole = [part for part in parts if part is not None]
        averaged = [axis for axis, kind in self._kinds(name).items() if kind == "avg"]
        share = Fraction(1, prod(self._plan.mesh.axis_size(axis) for axis in averaged))
        try:
            total = values.sum_over(-1, whole) if len(whole) == len(parts) else None
            if total is not None and spans_replicas(self._plan, group):
                total = over_replicas(self._world, total, self._plan.replication.count)
            return None if total is None else values.scaled(total, share)
        except (AmbiguousSumError, Mismatch):
            return None


_KNOWN = frozenset({"sum", "avg", "max", "min"})
"""How parts are put together; the greatest and the least of equal values are that value."""


def _wrong_output(world: World, plan: Plan, name: str, rank: int, term: int, value: Slot) -> Defect:
    subject = f"`{name}`, returned on {{ranks}},"
    if value is None:
        return Defect("undecided-output", False, f"{subject} depends on something that is wrong or undecided before", rank)
    if value.term != term:
        return Defect("other-output", False, f"{subject} is not the expression that the reference returns", rank)
    if value.fold is not None:
        return Defect("incomplete-output", True, f"{subject} is {fold_text(value.fold)}", rank)
    if any(not _whole(entry) for leaf in value.leaves for entry in leaf.pending):
        return incomplete_output(world, plan, name, rank, value)
    return Defect("scaled-output", True, f"{subject} is a multiple of what the reference returns", rank)


def incomplete_output(world: World, plan: Plan, name: str, rank: int, value: Value) -> Defect:
    """Return what is said of a returned value that is a sum over a part of the indices, or over one replica.

    A mean over the rank's own part, of which nothing is declared, may be what the loop around the plan averages.
    """
    pending = sorted(entry for leaf in value.leaves for entry in leaf.pending)
    partly = next((entry._replace(one_replica=False) for entry in pending if not _whole(entry)), pending[0])
    lacks = scope_of(partly._replace(one_micro_batch=False))
    tensor = plan.tensors.get(name)
    declared = tensor is not None and (tensor.placements is not None or tensor.region is not None or tensor.part != (0, 1))
    if not declared and _is_own_mean(world, plan, value):
        text = f"`{name}`, returned on {{ranks}}, is the mean of their own part of the batch, and is not declared to be one"
        return Defect("own-mean-returned", False, text, rank, fix=Declare(name))
    text = f"`{name}`, returned on {{ranks}}, is a partial sum, {lacks}"
    return Defect("incomplete-output", True, text, rank, fix=Declare(name))


def _is_own_mean(world: World, plan: Plan, value: Value) -> bool:
    """Return whether each addend is a mean over the indices that the rank has of it, in however many pieces."""
    shares: dict[int, Fraction] = {}
    for leaf in value.leaves:
        share = _share_of_own_mean(world, plan, leaf)
        if share is None:
            return False
        shares[leaf.token] = shares.get(leaf.token, Fraction(0)) + share
    return all(share == 1 for share in shares.values())


def _share_of_own_mean(world: World, plan: Plan, leaf: Leaf) -> Fraction | None:
    """Return how much of a mean over what the rank has the addend is; None where it is no mean."""
    if not all(world.terms.averages(entry.origin, entry.number) for entry in leaf.pending):
        return None
    share = Fraction(leaf.coefficient)
    for entry in leaf.pending:
        share *= Fraction(entry.high - entry.low, entry.size)
        share /= (plan.replication.count if entry.one_replica else 1) * (plan.micro_batches if entry.one_micro_batch else 1)
    return share


def _whole(entry: Pending) -> bool:
    return (entry.low, entry.high) == (0, entry.size)


def _one_slot(world: World, value: Value, replicas: int, micro_batches: int) -> bool:
    """Return whether the value is exactly its slot's part, in all that adds up to it: of a sum its addend, of a mean its own
    mean, beside which all slots may have the same value.
    """
    if value.clean:
        return True
    if world.terms.slot[value.term] >= 0 or not value.leaves:
        return False
    scopes = {(entry.one_replica, entry.one_micro_batch) for leaf in value.leaves for entry in leaf.pending}
    mean = _is_mean(world.terms, value.term, replicas * micro_batches)
    same = [leaf for leaf in value.leaves if not leaf.pending]
    least = 1 if same else 0
    parts = (leaf for leaf in value.leaves if leaf.pending)
    exact = all(leaf.coefficient == 1 for leaf in same)
    return exact and len(scopes) == 1 and all(_addend(world, leaf, replicas, micro_batches, mean, least) for leaf in parts)


def _is_mean(terms: Terms, term: int, slots: int) -> bool:
    """Return whether the term is a mean over the batch as a normal form tells it: a sum, divided by the number of addends."""
    inner, (sign, square) = bare(terms, term)
    if terms.keys[inner][0] != "sum":
        return False
    (operand,) = terms.operands[inner]
    if terms.slot[operand] < 0 or terms.slot[inner] >= 0:
        return False
    count = prod(terms.shape[operand]) * slots // prod(terms.shape[inner])
    return (sign, square) == (1, Fraction(1, count**2))


def _addend(world: World, leaf: Leaf, replicas: int, micro_batches: int, mean: bool, least: int) -> bool:
    """Return whether an addend is its slot's part of a mean, or of a sum where the coefficient is above `least`."""
    if len(leaf.pending) != 1:
        return False
    (entry,) = leaf.pending
    averages = mean or world.terms.averages(entry.origin, entry.number)
    share = (replicas if entry.one_replica else 1) * (micro_batches if entry.one_micro_batch else 1)
    return _whole(entry) and (least < leaf.coefficient == 1 or (averages and leaf.coefficient == share))
