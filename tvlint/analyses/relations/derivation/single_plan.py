"""Derive the relations of one plan on its own: from declared placements and the operator table, with no reference.

What is given is trusted where the plan says how it lies: weights, buffers and inputs, and states and gradients that nothing
makes. Whatever the plan leaves open is unknown, and nothing is said of what follows from it. Behind a mistake the derivation
goes on with what the operator wants, a complete value in the place of a part of it, so that independent mistakes are all found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.analyses.dataflow.mesh_axes import MODEL_AXES, SEQUENCE_AXES, batch_axes
from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.derive import derive
from tvlint.analyses.relations.derivation.given.equal_replicas import cut_inputs, equal_replicas, first_replica
from tvlint.analyses.relations.derivation.given.nested_shards import nested_as_gathered
from tvlint.analyses.relations.derivation.given.trusted_inputs import has_blocks, inputs_of
from tvlint.analyses.relations.derivation.given.well_formed import odd_replicas, underivable
from tvlint.analyses.relations.derivation.localisation.localise import joins, name_of
from tvlint.analyses.relations.derivation.localisation.sure import Parts, is_mixed, joined_and_summed, lasting_scaling
from tvlint.analyses.relations.derivation.state import Derived, Joined, Machine, Stepped
from tvlint.analyses.relations.terms.loss_identities import multiple_of, subtractions
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import World
from tvlint.analyses.relations.transfer.relation import Values
from tvlint.ir.operators import Backward, Operator
from tvlint.ir.placement import Invariant, Partial, Shard
from tvlint.ir.plan import Plan, Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_MOST_RUNS = 400_000
"""Plans whose ranks run more operators in one micro-batch would take longer than a file may; those of 405B run 111,000."""


@dataclass(frozen=True, slots=True)
class Alone:
    """The relations of `plan`, which is one replica of a plan where all are equal."""

    plan: Plan
    world: World
    derived: Derived
    bare: dict[int, tuple[Fraction, int]] = field(default_factory=dict, compare=False)
    """What values are multiples of by constants, as far as it was asked for."""
    operators: _Operators = field(init=False, compare=False, repr=False)
    micro_batches: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", _Operators(self.plan))
        object.__setattr__(self, "micro_batches", micro_batches_of(self.plan))

    def final_gradients(self) -> Iterator[Stepped]:
        """Yield what weights are stepped with; of a plan without steps, what it leaves as their gradients to its caller."""
        yield from self.derived.steps
        for rank, gradients in self.derived.gradients.items() if not self.derived.steps else ():
            for weight, value in gradients.items():
                name = self.plan.tensors[weight].gradient
                made = self.operators.makers_on(rank).get(name)
                if made is not None:
                    yield Stepped(rank, made[1], weight, name, value, frozenset({weight}), None)


class _Operators:
    """Where the operators of a plan stand and what they make, found when asked for first."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._segments: dict[int, str] = {}
        self._makers: dict[int, dict[str, tuple[str, Operator]]] = {}

    def segment_of(self, operator: Operator) -> str:
        """Return the name of the first segment with the operator; empty where none has it."""
        if not self._segments:
            for name, segment in self._plan.segments.items():
                for each_operator in segment.operators:
                    self._segments.setdefault(id(each_operator), name)
        return self._segments.get(id(operator), "")

    def makers_on(self, rank: int) -> dict[str, tuple[str, Operator]]:
        """Return the last operator that makes each tensor on a rank, or changes it in place, and its segment."""
        if rank not in self._makers:
            steps = [step.segment for program in self._plan.programs if rank in program.ranks for step in program.steps]
            last_runs = [*dict.fromkeys(reversed(steps))][::-1]
            self._makers[rank] = {
                name: (segment, operator)
                for segment in last_runs
                for operator in self._plan.segments[segment].operators
                for name in (*writes(operator), *overwritten(operator))
            }
        return self._makers[rank]


def derive_alone(plan: Plan) -> Alone | str:
    """Return the relations of a plan to the values that it computes itself; or why it has none, in words."""
    gap = underivable(plan)
    if gap is not None:
        return gap.message
    if plan.replication.count > 1 and plan.count_run() > _MOST_RUNS:
        return _too_large(plan)
    plan = nested_as_gathered(plan)
    inputs, slots = inputs_of(plan), None
    found = cut_inputs(plan, inputs) or equal_replicas(plan, inputs)
    if found is not None and found[0] in batch_axes(plan) - SEQUENCE_AXES:
        axis, slots, tensors = found
        plan = first_replica(plan, axis, tensors)
        inputs = inputs_of(plan)
    gap = odd_replicas(plan)
    if gap is not None or plan.count_run() > _MOST_RUNS:
        return _too_large(plan) if gap is None else gap.message
    micro_batches, replicas = micro_batches_of(plan), plan.replication.count
    terms, many = Terms(alone=True), micro_batches * replicas > 1
    world = World(terms, Values(terms), 1, replicas > 1, micro_batches > 1, in_blocks=has_blocks(plan))
    slots = slots or tuple(0 if many and shape else -1 for shape in inputs.shapes)
    machine = Machine(world, plan, inputs, slots, micro_batches * replicas, alone=True)
    return Alone(plan, world, derive(machine))


def _too_large(plan: Plan) -> str:
    run = f"the plan runs {plan.count_run():,} operators on its ranks in one micro-batch"
    return f"{run}, more than the {_MOST_RUNS:,} that `check` derives"


def sure_defects(alone: Alone) -> Iterator[Defect]:
    """Yield what is wrong with the plan whatever its reference is."""
    plan, derived = alone.plan, alone.derived
    cut = dict(_cut_parts(alone))
    ends = (*_never_summed(alone), *_incomplete_outputs(alone), *_multiplied_outputs(alone), *_invariants(alone))
    noted = (*derived.defects, *derived.reductions, *derived.contradicted, *ends)
    found = [each_defect for each_defect in noted if each_defect.refutes and each_defect.place is not None]
    away = _Subtracted(alone) if derived.joined else None
    found = [*cut.values(), *(defect for defect in found if not _follows(alone, defect, cut, away))]
    batch = _batch_axes(plan) - MODEL_AXES
    beside: dict[tuple[str, int], list[Defect]] = {}
    for defect in found:
        beside.setdefault((defect.name, id(defect.place)), []).append(defect)
    for defect in found:
        others = beside[defect.name, id(defect.place)]
        if defect.name != "split-dimension" or not _is_of_the_batch(plan, batch, defect, others):
            yield defect


def _cut_parts(alone: Alone) -> Iterator[tuple[tuple[int, int, int], Defect]]:
    """Yield the operators that make of a part of a sum a part of a piece, while ranks with the other parts make other pieces.

    Each comes with the rank and a sum that it leaves without its other parts.
    """
    plan, blamed = alone.plan, set[tuple[int, int, int]]()
    for operator, held in alone.derived.cut.values():
        parts, made = ({rank: pair[at] for rank, pair in held.items()} for at in (0, 1))
        together = Parts(plan, parts)
        for rank, part in parts.items():
            sums = {(entry.origin, entry.number, rank) for leaf in part.leaves for entry in leaf.pending}
            axes = [axis.name for axis in plan.mesh.axes if together.is_part_over(rank, axis.name)]
            others = [made[other] for axis in axes for other in plan.mesh.along(rank, (axis,))]
            if is_mixed(part) or not blamed.isdisjoint(sums) or all(other.box == made[rank].box for other in others):
                continue
            blamed |= sums
            name = next((name for name in reads(operator) if name), "")
            text = f"{name_of(operator)} on {{ranks}} takes `{name}`, a part of a sum, for complete"
            text += ": ranks make other pieces of the other parts"
            segment = alone.operators.segment_of(operator)
            defect = at(operator, segment, Defect("missing-allreduce", True, text, rank, cause=("cut", id(operator))))
            yield from ((one_sum, defect) for one_sum in sums)


def sums_taken_for_complete(alone: Alone) -> set[tuple[int, int]]:
    """Return the sums, by where they start, of which an operator took a part for all: what follows is that mistake."""
    return {*alone.derived.incomplete, *((origin, number) for (origin, number, _), _ in _cut_parts(alone))}


class _Subtracted:
    """Where values are subtracted, or negative multiples of them added, in a plan that adds whole values to parts of sums."""

    def __init__(self, alone: Alone) -> None:
        self._plan, self._terms, self._found = alone.plan, alone.world.terms, subtractions(alone.world.terms)
        self._sums: dict[int, list[int]] = {}
        for term, (head, operands) in enumerate(zip(self._terms.keys, self._terms.operands, strict=True)):
            for operand in set(operands) if len(head) == 5 and has_trait(str(head[0]), Trait.SUM) else ():
                self._sums.setdefault(operand, []).append(term)

    def is_undone(self, term: int, joined: Joined) -> bool:
        """Return whether so much of the value is taken out of the sum again as ranks have added too much, or it is not known
        how much.
        """
        factor, value = multiple_of(self._terms, joined.term)
        places = {made for made, found in self._found.items() if any(each == value for _, each, _ in found)}
        taken, waiting, seen = set[Fraction](), [(term, Fraction(0))], set[tuple[int, Fraction]]()
        while waiting:
            each, often = waiting.pop()
            followers = [made for made in self._sums.get(each, ()) if made in places]
            taken |= set() if followers else {often}
            for made in followers:
                more = sum((times for of, out, times in self._found[made] if out == value and of == each), Fraction(0))
                waiting += [(made, often + more)] if (made, often + more) not in seen else []
                seen.add((made, often + more))
        parts, rank = Parts(self._plan, joined.given), min(joined.given, default=0)
        leaves = joined.given[rank].leaves if rank in joined.given else ()
        replicas = self._plan.replication.count if any(entry.one_replica for leaf in leaves for entry in leaf.pending) else 1
        count = replicas * prod(axis.size for axis in self._plan.mesh.axes if parts.is_part_over(rank, axis.name))
        too_much = (count - 1) * factor
        is_followed = places <= {made for made, _ in seen}
        return bool(places) and not (is_followed and taken.isdisjoint({too_much, too_much / count}))


def _follows(alone: Alone, defect: Defect, cut: Mapping[tuple[int, int, int], Defect], away: _Subtracted | None) -> bool:
    """Return whether a defect is of what was made of a piece of a part of a sum, or of what is taken out of the sum again."""
    cause = defect.cause if isinstance(defect.cause, tuple) else ()
    if cause[:1] != ("joined",):
        return cause[:1] == ("use of partial",) and (*cause[1:3], defect.rank) in cut
    found = {term: joined for term, joined in alone.derived.joined.items() if joined.operator is defect.place}
    if away is not None and any(away.is_undone(term, joined) for term, joined in found.items()):
        return True
    made = [joined.given.get(defect.rank) for joined in found.values()]
    pending = {entry for value in made if value is not None for leaf in value.leaves for entry in leaf.pending}
    return any((entry.origin, entry.number, defect.rank) in cut for entry in pending)


def _never_summed(alone: Alone) -> Iterator[Defect]:
    """Yield the operators that add what is whole to a part of a sum that nothing sums.

    What ranks with batches of their own have may be a part of a loss, which the loop around the plan adds up.
    """
    plan, terms, batch = alone.plan, alone.world.terms, batch_axes(alone.plan)
    summed = joined_and_summed(alone.derived, terms)
    for term, joined in alone.derived.joined.items():
        declared = [plan.tensors[name].placements for name in writes(joined.operator) if name in plan.tensors]
        stated = any(isinstance(placement, Partial) for placements in declared for placement in (placements or {}).values())
        apart = batch if prod(terms.shape[term]) == 1 else _batch_axes(plan)
        parts = Parts(plan, joined.given)
        for rank in joined.given if not stated and term not in summed else ():
            if any(parts.is_part_over(rank, axis.name) for axis in plan.mesh.axes if axis.name not in apart):
                segment = alone.operators.segment_of(joined.operator)
                yield from [joins(plan, joined, rank, segment, parts)] if segment else []


def _incomplete_outputs(alone: Alone) -> Iterator[Defect]:
    """Yield the outputs that are parts of a sum over ranks that share their batch, where nothing says that they are.

    What ranks with batches of their own have may be a part of a loss, which the loop around the plan adds up.
    """
    plan, batch = alone.plan, batch_axes(alone.plan)
    for name in plan.outputs or _unnamed_results(plan):
        tensor = plan.tensors.get(name)
        placements = tensor.placements if tensor is not None else None
        if tensor is None or tensor.part != (0, 1) or any(isinstance(on, Partial) for on in (placements or {}).values()):
            continue
        if tensor.gradient_of or tensor.role is Role.GRADIENT:
            continue
        apart = batch if prod(tensor.shape) == 1 else _batch_axes(plan)
        shared = [axis.name for axis in plan.mesh.axes if axis.size > 1 and axis.name not in apart]
        held = {rank: value.get(name) for rank, value in alone.derived.environments.items()}
        parts = Parts(plan, held)
        for rank in held:
            axis = next((axis for axis in shared if parts.is_part_over(rank, axis)), "")
            if axis and not is_mixed(held[rank]):
                text = f"the plan returns `{name}`, which on {{ranks}} is a part of a sum over `{axis}`"
                defect = Defect("missing-allreduce", True, text, rank)
                yield from _at_maker(alone, name, defect)


def _unnamed_results(plan: Plan) -> tuple[str, ...]:
    """Return the tensors that a plan makes for its caller, where it names none: of one that is given no parts of sums.

    A single number may be logged as each rank has it; where a name is misspelt, another value seems to be unread.
    """
    given = [tensor for tensor in plan.tensors.values() if tensor.role is not Role.ACTIVATION]
    parts = any(isinstance(on, Partial) for tensor in given for on in (tensor.placements or {}).values())
    operators = list(plan.operators())
    made = {name for operator in operators for name in writes(operator)}
    given_names = {tensor.name for tensor in given}
    if plan.losses or parts or any(name not in made | given_names for operator in operators for name in reads(operator)):
        return ()
    return tuple(name for name in results_of(plan) if name in plan.tensors and prod(plan.tensors[name].shape) > 1)


def _invariants(alone: Alone) -> Iterator[Defect]:
    """Yield gradients that are left parts of a sum, of values declared to be invariant, whose gradients ranks have to sum."""
    plan = alone.plan
    for name, tensor in plan.tensors.items():
        axes = [axis for axis, placement in (tensor.placements or {}).items() if isinstance(placement, Invariant)]
        if not axes or tensor.role is Role.WEIGHT:
            continue
        held = {rank: value.get(tensor.gradient) for rank, value in alone.derived.environments.items()}
        parts = Parts(plan, held)
        for rank, axis in ((rank, axis) for rank in held for axis in axes):
            if parts.is_part_over(rank, axis):
                text = f"leaves `{tensor.gradient}`, the gradient of `{name}`, on {{ranks}} a part of a sum over `{axis}`"
                defect = Defect("missing-gradient-reduction", True, text, rank)
                yield from _at_maker(alone, tensor.gradient, defect)


def results_of(plan: Plan) -> tuple[str, ...]:
    """Return what the plan returns; of one that says nothing of that, the values that none of its operators reads."""
    if plan.outputs:
        return plan.outputs
    operators = list(plan.operators())
    read = {name for operator in operators for name in reads(operator)}
    made = (name for operator in operators if not isinstance(operator, Backward) for name in writes(operator))
    return tuple(name for name in dict.fromkeys(made) if name not in read)


def _multiplied_outputs(alone: Alone) -> Iterator[Defect]:
    """Yield the collectives that make multiples of values which outputs still are; of a loss, of some of its addends."""
    plan, derived, terms = alone.plan, alone.derived, alone.world.terms
    names = (*results_of(plan), *plan.losses)
    for rank, held in derived.environments.items():
        named = ((name, held.get(name)) for name in names)
        values = [(name, value) for name, value in named if value and (value.leaves or not _is_loss(alone, name, value.term))]
        makers = alone.operators.makers_on(rank)
        scalings = [lasting_scaling(derived, terms, value, makers.get(name, ("", None))[1]) for name, value in values]
        for found in {id(scaling): scaling for scaling in scalings if scaling is not None}.values():
            at_rank = Defect(found.rule, True, found.message, rank, cause=("scaling", id(found.operator)))
            yield at(found.operator, alone.operators.segment_of(found.operator), at_rank)


def _is_loss(alone: Alone, name: str, term: int) -> bool:
    return name in alone.plan.losses or prod(alone.world.terms.shape[term]) == 1


def _at_maker(alone: Alone, name: str, defect: Defect) -> Iterator[Defect]:
    """Yield the defect at the last operator that makes a tensor on its rank; nothing where none does."""
    made = alone.operators.makers_on(defect.rank).get(name)
    if made is not None:
        yield at(made[1], made[0], defect)


def _batch_axes(plan: Plan) -> frozenset[str]:
    """Return the axes that split the first dimension of an input, whose ranks may each have a batch of their own."""
    inputs = (tensor for tensor in plan.tensors.values() if tensor.role is Role.INPUT)
    placed = (entry for tensor in inputs for entry in (tensor.placements or {}).items())
    return frozenset(axis for axis, placement in placed if isinstance(placement, Shard) and placement.dim == 0)


def _is_of_the_batch(plan: Plan, batch: frozenset[str], defect: Defect, others: list[Defect]) -> bool:
    """Return whether the dimension that is split may be that of the batch: ranks along one of its axes have other parts."""
    at = plan.mesh.coordinates(defect.rank)
    for other in others:
        if other.message != defect.message:
            coordinates = plan.mesh.coordinates(other.rank)
            if any(coordinates[axis] != at[axis] for axis in batch) and all(
                coordinates[axis] == at[axis] for axis in at.keys() - batch
            ):
                return True
    return False
