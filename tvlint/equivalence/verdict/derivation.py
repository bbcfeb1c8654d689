"""Derive both plans of a case into one table of terms: first the reference, then the parallel plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import cast

from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.derive import derive
from tvlint.analyses.relations.derivation.given.trusted_inputs import Batch, Inputs, has_blocks, whole_shape
from tvlint.analyses.relations.derivation.given.well_formed import first_rank
from tvlint.analyses.relations.derivation.gradients.over_the_step import held_by, weights_of
from tvlint.analyses.relations.derivation.nearest_reference_value import Nearest
from tvlint.analyses.relations.derivation.state import Derived, Machine, Slot
from tvlint.analyses.relations.terms.terms import Telling, Terms
from tvlint.analyses.relations.transfer.context import World
from tvlint.analyses.relations.transfer.relation import Value, Values
from tvlint.equivalence.verdict.compare_gradients import Expected
from tvlint.equivalence.verdict.compare_outputs import returned_by_reference
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.identical import Identical
from tvlint.ir.plan import Plan, Role

_FOR_TRAINING = "prove the plan that trains this model; rules check this one as it is"


@dataclass(frozen=True, slots=True)
class Derivation:
    """The relations of one plan, in the tables of `world`."""

    world: World
    derived: Derived


@dataclass(frozen=True, slots=True)
class Reference(Derivation):
    """The relations of the reference, and what it computes."""

    expected: Expected
    dtypes: Mapping[int, str]
    """The dtype of each of its terms."""


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """Why it is not known what a reference computes."""

    gaps: tuple[Defect, ...]


def derive_reference(case: Case) -> Reference | NotUnderstood:
    """Return what the reference computes, in tables that are the caller's to write to; or why that is not known.

    All terms in the tables are then the reference's, its gradients and returned values are whole, and the tables are sealed:
    terms that are made later are the parallel plan's alone.
    """
    inputs = replace(case.reference_inputs, shapes=case.inputs.shapes)
    asked = Identical(case.reference), inputs, case.batch, case.reference_micro_batches, case.telling
    found = derived_last(*asked)
    if isinstance(found, NotUnderstood):
        return found
    values = found.world.values.copied()
    if values is None:
        return cast("Reference", derived_last.__wrapped__(*asked))
    return replace(found, world=replace(found.world, terms=values.terms, values=values))


@lru_cache(2 * len(Telling))
def derived_last(
    reference: Identical[Plan], inputs: Inputs, batch: Batch, micro_batches: int, telling: Telling
) -> Reference | NotUnderstood:
    """Return what a reference computes, in tables that nothing writes to; or why that is not known.

    A plan is compared with one reference again and again: one replica and all, in each telling, and each repair that is tried.
    """
    terms = Terms(telling)
    terms.accumulates = micro_batches > 1
    world = World(terms, Values(terms), batch.held, False, micro_batches > 1, batch.parts)
    dtypes: dict[int, str] = {}
    derived = derive(Machine(world, reference.held, inputs, batch.dims, batch.slots, dtypes=dtypes))
    expected = _expected(world, reference.held, micro_batches, derived)
    if isinstance(expected, list):
        return NotUnderstood(tuple(expected))
    terms.sealed = len(terms.keys)
    return Reference(world, derived, expected, dtypes)


def derive_parallel(case: Case, reference: Reference, nearest: Nearest | None = None) -> Derivation:
    """Return the relations of the parallel plan to the reference's terms; with `nearest` beyond the first mistake as well."""
    many_replicas, many_micro_batches = case.parallel.replication.count > 1, case.micro_batches > 1
    world = World(reference.world.terms, reference.world.values, 1, many_replicas, many_micro_batches)
    world.in_blocks = has_blocks(case.parallel)
    machine = Machine(
        world,
        case.parallel,
        case.inputs,
        case.batch.dims,
        case.batch.slots,
        losses=frozenset(root.value.term for root in reference.derived.roots),
        dtypes=dict(reference.dtypes),
        nearest=nearest,
        assume=case.assume,
    )
    return Derivation(world, derive(machine))


def _expected(world: World, plan: Plan, micro_batches: int, derived: Derived) -> Expected | list[Defect]:
    """Return what the reference computes; or why it is not understood."""
    defects: list[Defect] = [*derived.defects, *derived.reductions, *derived.contradicted]
    held = held_by(derived, weights_of(plan, derived))
    rank = first_rank(plan)
    gradients: dict[str, Value] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    known: dict[str, Slot | str] = {}
    for tensor in plan.tensors.values():
        if tensor.role is not Role.WEIGHT:
            continue
        name, whole = tensor.logical or tensor.name, whole_shape(tensor)
        value = held.get((rank, tensor.name), "none")
        if shapes.setdefault(name, whole) != whole:
            defects.append(_odd_gradient(f"the reference declares `{name}` with two shapes", rank))
        if value == "none" and (rank, tensor.name) not in derived.used:
            continue
        if known.setdefault(name, value) is not value:
            defects.append(_odd_gradient(f"the reference has two gradients of `{name}`, under two names", rank))
        if isinstance(value, Value) and _is_whole(value, shapes[name]):
            gradients[name] = world.values.scaled(value, Fraction(plan.undivided))
        elif value != "none":
            odd = _odd_gradient("the reference's gradient of {subject} is not whole", rank)
            defects.append(replace(odd, subject=name, cause=("reference-gradient", "not whole")))
    environment = derived.environments.get(rank, {})
    returned = [environment[name] for name in plan.outputs if name in environment]
    losses = [returned_by_reference(world, value, micro_batches) for value in returned if value is not None]
    if not all(losses):
        text = "the reference returns a part or a multiple of a value"
        defects.append(Defect("reference-not-understood", False, text, rank))
    left: dict[str, Value] = {}
    for name, value in derived.renewed.get(rank, {}).items():
        tensor = plan.tensors[name]
        if value is None or not value.clean or value.box != tuple((0, size) for size in whole_shape(tensor)):
            defects.append(_odd_gradient(f"what the reference puts in the place of `{name}` is not understood", rank))
        elif left.setdefault(tensor.logical or name, value) is not value:
            defects.append(_odd_gradient(f"the reference writes `{tensor.logical or name}` anew under two names", rank))
    weights = [tensor for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT]
    lacks = not gradients and any(tensor.requires_grad for tensor in weights if (tensor.logical or tensor.name) in shapes)
    if defects or not derived.finished or len(losses) != len(returned) or not losses or lacks:
        if not defects:
            inference = "the reference computes no gradients: it is inference, and a proof compares what is trained"
            text, repair = ("the reference returns nothing", "") if not losses else (inference, _FOR_TRAINING)
            defects.append(Defect("reference-not-understood", False, text, rank, repair=repair))
        return [replace(defect, refutes=False) for defect in defects]
    return Expected(gradients, shapes, tuple(losses), left)


def _is_whole(value: Value, whole: tuple[int, ...]) -> bool:
    """Return whether the gradient is that of all of a weight, and complete."""
    complete = not value.leaves and value.fold is None and value.coefficient != 0
    return complete and value.box == tuple((0, size) for size in whole)


def _odd_gradient(text: str, rank: int) -> Defect:
    return Defect("reference-gradient", False, text, rank)
