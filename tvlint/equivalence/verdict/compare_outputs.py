"""Compare the returned values with the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from math import prod

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.dataflow.mesh_axes import batch_axes
from tvlint.analyses.relations.defect import Declare, Defect, source_of
from tvlint.analyses.relations.derivation.given.trusted_inputs import pieces_held
from tvlint.analyses.relations.derivation.localisation.localise import scope_of
from tvlint.analyses.relations.derivation.state import Derived, Slot
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.apply import fold_text
from tvlint.analyses.relations.transfer.boxes import covers
from tvlint.analyses.relations.transfer.collectives import over_micro_batches, over_replicas, whole_sum
from tvlint.analyses.relations.transfer.context import Mismatch, World
from tvlint.analyses.relations.transfer.groups import Groups, Members, spans_replicas
from tvlint.analyses.relations.transfer.index_maps import Pieces, cells
from tvlint.analyses.relations.transfer.pending_ranges import Pending
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Leaf, Value
from tvlint.ir.location import Location
from tvlint.ir.operators import Group, Operator, Receive
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Box, Plan
from tvlint.ir.reductions import EXTREMES
from tvlint.plurals import counted

OWN_MEAN = "`{}`, of which the plan does not say how the ranks' values belong together, is averaged over {} where it is read"


def judge_returned(
    world: World, plan: Plan, derived: Derived, losses: tuple[tuple[int, ...], ...], replicas: int, micro_batches: int
) -> tuple[list[Defect], frozenset[str]]:
    """Return what is wrong with the values that the plan returns, and what is assumed of the rest."""
    together = Returned(world, plan, derived, Groups(plan), replicas, micro_batches)
    found = list(_judged(together, losses))
    return found, frozenset(together.assumptions)


def _judged(together: Returned, losses: tuple[tuple[int, ...], ...]) -> Iterator[Defect]:
    world, plan, derived = together.world, together.plan, together.derived
    if not plan.outputs:
        text = f"the plan returns nothing and the reference returns {counted(len(losses), 'value')}"
        yield Defect("other-outputs", False, text, plan.programs[0].ranks[0])
    everywhere = plan.format.startswith("nnscaler-")
    returned = False
    held: dict[tuple[str, int], list[Box]] = {}
    makers: dict[int, dict[str, Operator]] = {}
    places: dict[str, Location | None] = {}
    for rank, environment in derived.environments.items():
        names = [name for name in plan.outputs if name in environment]
        returned = returned or bool(names)
        if not names and everywhere and plan.outputs:
            text = f"the plan returns `{plan.outputs[0]}`, which nothing makes on {{ranks}}"
            yield Defect("missing-output", True, text, rank)
        if names and len(names) != len(losses):
            text = f"on {{ranks}} the plan returns {counted(len(names), 'value')} where the reference returns {len(losses)}"
            yield Defect("other-outputs", False, text, rank)
            continue
        for name, terms in together.expected(rank, losses).items():
            value = together.value(rank, name)
            pieces = None if value is None else world.values.pieces_of(value)
            of_term = together.of_terms(value, terms)
            same = next((term for term, made in of_term if together.is_one_slot(made)), None)
            if same is not None and pieces is not None:
                held.setdefault((name, same), []).extend(cells(pieces))
                yield from _misdeclared(plan, name, rank, pieces)
                continue
            if any(together.is_averaged(rank, name, term) for term in terms):
                continue
            if name not in places and rank not in makers:
                makers[rank] = {each: operator for operator in plan.run_on(rank) for each in writes(operator)}
            if name not in places:
                places[name] = _made_at(makers[rank].get(name))
            yield replace(together.wrong_output(name, rank, terms, of_term[0][1] if of_term else value), source=places[name])
    for (name, term), boxes in held.items():
        if not covers(boxes, world.terms.shape[term]):
            text = f"the pieces of `{name}` that the ranks return do not make up the whole"
            yield Defect("uncovered-output", True, text, plan.programs[0].ranks[0])
    if plan.outputs and not returned:
        yield Defect("missing-output", True, "nothing computes what the plan returns", plan.programs[0].ranks[0])


def _made_at(made: Operator | None) -> Location | None:
    """Return where a rank makes what it returns, by the operator that makes it last; None where another rank does."""
    return None if made is None or isinstance(made, Receive) else source_of(made)


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


@dataclass(frozen=True, slots=True)
class Returned:
    """What ranks return, summed or averaged over the axes on which the plan declares it partial."""

    world: World
    plan: Plan
    derived: Derived
    groups: Groups
    replicas: int
    micro_batches: int
    assumptions: set[str] = field(default_factory=set)
    _together: dict[tuple[Members, str, Fraction], Slot] = field(default_factory=dict)

    def value(self, rank: int, name: str) -> Slot:
        """Return the value that `rank` returns as `name`, as far as it is known."""
        kinds = self._kinds(name)
        if not {"sum", "avg", *EXTREMES}.issuperset(kinds.values()):
            return None
        return self._put_together(rank, name, {axis: kind for axis, kind in kinds.items() if kind in ("sum", "avg")})

    def expected(self, rank: int, losses: tuple[tuple[int, ...], ...]) -> dict[str, tuple[int, ...]]:
        """Return the terms of the reference that each value is to be which `rank` returns."""
        names = [name for name in self.plan.outputs if name in self.derived.environments[rank]]
        return dict(zip(names, losses, strict=False))

    def of_terms(self, value: Slot, terms: tuple[int, ...]) -> list[tuple[int, Value]]:
        """Return the value as a multiple of each of the terms of which it is one."""
        one = None if value is None else self.world.values.out_of_pieces(value)
        ways = [] if one is None else [(term, self.world.values.as_multiple(one, term)) for term in terms]
        return [(term, made) for term, made in ways if made.term == term]

    def is_one_slot(self, value: Value) -> bool:
        """Return whether the value is exactly its slot's part."""
        return _is_one_slot(self.world, value, self.replicas, self.micro_batches)

    def is_averaged(self, rank: int, name: str, term: int) -> bool:
        """Return whether the rank returns a number that is a mean over its own part, of which nothing is declared, and the
        average over some axes is all of it. That whoever reads it takes the average is then assumed, as loops do with losses;
        they do not do so with tensors or with numbers that go on from those of the step before, as running statistics do.
        """
        value = self._own_part(rank, name, term)
        if value is None or not _is_own_mean(self.world, self.plan, value):
            return False
        chosen = self._put_together_over(rank, name, term, "avg", frozenset(axis.name for axis in self.plan.mesh.axes))
        if chosen:
            self.assumptions.add(OWN_MEAN.format(name, " and ".join(f"`{axis}`" for axis in chosen)))
        return bool(chosen)

    def wrong_output(self, name: str, rank: int, terms: tuple[int, ...], value: Slot) -> Defect:
        """Return what is wrong with what `rank` returns as `name`, beside the terms that the reference returns."""
        subject = f"`{name}`, returned on {{ranks}},"
        if value is None:
            return Defect("undecided-output", False, f"{subject} depends on an earlier value that is wrong or undecided", rank)
        if value.term not in terms:
            return Defect("other-output", False, f"{subject} is not the expression that the reference returns", rank)
        if value.fold is not None:
            return Defect("incomplete-output", True, f"{subject} is {fold_text(value.fold)}", rank)
        if any(not _whole(entry) for leaf in value.leaves for entry in leaf.pending):
            return self.incomplete_output(rank, name, value)
        return Defect("scaled-output", True, f"{subject} is a multiple of what the reference returns", rank)

    def incomplete_output(self, rank: int, name: str, value: Value) -> Defect:
        """Return what is said of a returned value that is a sum over a part of the indices, or over one replica.

        A mean or a sum over the rank's own part, of which nothing is declared, may be what the loop around the plan averages
        or adds up.
        """
        pending = sorted(entry for leaf in value.leaves for entry in leaf.pending)
        partly = next((entry._replace(one_replica=False) for entry in pending if not _whole(entry)), pending[0])
        lacks = scope_of(partly._replace(one_micro_batch=False))
        if not _is_declared(self.plan, name) and _is_own_mean(self.world, self.plan, value):
            text = f"`{name}`, returned on {{ranks}}, is the mean of their own part of the batch, and is not declared to be one"
            return Defect("own-part-returned", False, text, rank, fix=Declare(name))
        if self._is_own_sum(rank, name, value):
            text = f"`{name}`, returned on {{ranks}}, is a sum over their own part of the batch, and is not declared to be one"
            return Defect("own-part-returned", False, text, rank, fix=Declare(name))
        text = f"`{name}`, returned on {{ranks}}, is a partial sum, {lacks}"
        return Defect("incomplete-output", True, text, rank, fix=Declare(name))

    def _is_own_sum(self, rank: int, name: str, value: Value) -> bool:
        """Return whether a number that the rank returns is all of the reference's when ranks with other samples add theirs."""
        if self._own_part(rank, name, value.term) is None:
            return False
        if any(entry.one_replica for leaf in value.leaves for entry in leaf.pending):
            return self.is_one_slot(value)
        return bool(self._put_together_over(rank, name, value.term, "sum", batch_axes(self.plan)))

    def _own_part(self, rank: int, name: str, term: int) -> Slot:
        """Return what the rank returns as a multiple of the term, where it is a part of one number that is not declared."""
        value = self.derived.environments[rank][name]
        if value is None or _is_declared(self.plan, name) or not _is_number_of_step(self.world.terms, term):
            return None
        value = self.world.values.as_multiple(value, term)
        return value if value.term == term and value.leaves else None

    def _put_together_over(self, rank: int, name: str, term: int, kind: str, among: frozenset[str]) -> tuple[str, ...]:
        """Return the fewest of these axes over which what the ranks return is put together to all of the term."""
        axes = [axis.name for axis in self.plan.mesh.axes if axis.size > 1 and axis.name in among]
        for chosen in (some for count in range(1, len(axes) + 1) for some in combinations(axes, count)):
            total = self._put_together(rank, name, dict.fromkeys(chosen, kind))
            total = None if total is None else self.world.values.as_multiple(total, term)
            if total is not None and total.term == term and self.is_one_slot(total):
                return chosen
        return ()

    def _kinds(self, name: str) -> dict[str, str]:
        """Return how the parts of `name` are put together, by axis."""
        tensor = self.plan.tensors.get(name)
        placements = (tensor.placements if tensor is not None else None) or {}
        return {axis: placement.reduce for axis, placement in placements.items() if isinstance(placement, Partial)}

    def _put_together(self, rank: int, name: str, kinds: Mapping[str, str]) -> Slot:
        value = self.derived.environments[rank][name]
        group = Group(axes=tuple(axis for kind in ("sum", "avg") for axis, each_kind in kinds.items() if each_kind == kind))
        if not group.axes or value is None:
            return value
        members = self.groups.members(group, rank)
        share = Fraction(1, prod(self.plan.mesh.axis_size(axis) for axis, kind in kinds.items() if kind == "avg"))
        if (members, name, share) not in self._together:
            self._together[members, name, share] = self._sum(group, members, name, share)
        return self._together[members, name, share]

    def _sum(self, group: Group, members: Members, name: str, share: Fraction) -> Slot:
        parts = [self.derived.environments.get(member, {}).get(name) for member in members.ranks]
        whole = [part for part in parts if part is not None]
        try:
            total = whole_sum(self.world, -1, whole, share) if len(whole) == len(parts) else None
            if total is not None and spans_replicas(self.plan, group):
                total = over_replicas(self.world, total, self.plan.replication.count)
            return total
        except (AmbiguousSumError, Mismatch):
            return None


def _is_declared(plan: Plan, name: str) -> bool:
    tensor = plan.tensors.get(name)
    return tensor is not None and (tensor.placements is not None or tensor.region is not None or tensor.part != (0, 1))


def _is_number_of_step(terms: Terms, term: int) -> bool:
    """Return whether a term is one number, and is not computed from numbers that the plan starts with by numbers alone."""
    seen, waiting = {term}, [term]
    while waiting:
        each = waiting.pop()
        if prod(terms.shape[each]) == 1:
            if terms.keys[each][0] in ("buffer", "state"):
                return False
            waiting.extend(set(terms.operands[each]) - seen)
            seen.update(terms.operands[each])
    return prod(terms.shape[term]) == 1


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


def returned_by_reference(world: World, value: Value, micro_batches: int) -> tuple[int, ...]:
    """Return the terms that a value which the reference returns may be; nothing for a part or a multiple of one.

    Of several micro-batches each returns its own value, or its share of one: then the term is what they add up to.
    """
    if value.clean:
        return (value.term,)
    found = (value.term,) if _is_one_slot(world, value, 1, micro_batches) else ()
    try:
        whole = over_micro_batches(world, value, micro_batches)
    except Mismatch:
        return found
    if whole.leaves or whole.fold is not None or micro_batches == 1:
        return found
    while whole.coefficient != 1 and (below := multiplied(world.terms, whole.term)) is not None:
        whole = world.values.multiple(below[1], whole.box, whole.coefficient * below[0])
    return (*found, whole.term) if whole.clean else found


def _is_one_slot(world: World, value: Value, replicas: int, micro_batches: int) -> bool:
    """Return whether the value is exactly the part of one micro-batch of a replica, in all that adds up to it: of a sum its
    addend, of a mean its own mean, beside which all may have the same value.
    """
    if value.clean:
        return True
    if world.terms.slot[value.term] >= 0 or not value.leaves:
        return False
    scopes = {(entry.one_replica, entry.one_micro_batch) for leaf in value.leaves for entry in leaf.pending}
    same = [leaf for leaf in value.leaves if not leaf.pending]
    least = 1 if same else 0
    parts = (leaf for leaf in value.leaves if leaf.pending)
    exact = all(leaf.coefficient == 1 for leaf in same)
    return exact and len(scopes) == 1 and all(_addend(world, leaf, replicas, micro_batches, least) for leaf in parts)


def _addend(world: World, leaf: Leaf, replicas: int, micro_batches: int, least: int) -> bool:
    """Return whether an addend is its slot's part of a mean, or of a sum where the coefficient is above `least`."""
    if len(leaf.pending) != 1:
        return False
    (entry,) = leaf.pending
    averages = world.terms.averages(entry.origin, entry.number)
    share = (replicas if entry.one_replica else 1) * (micro_batches if entry.one_micro_batch else 1)
    return _whole(entry) and (least < leaf.coefficient == 1 or (averages and leaf.coefficient == share))
