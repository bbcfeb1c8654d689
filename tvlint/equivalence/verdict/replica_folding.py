"""Fold the replicas of a pair, and carry what is derived of one to all of them; docs/soundness.md has the argument."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tvlint.analyses.relations.defect import Defect, everywhere
from tvlint.analyses.relations.derivation.given.equal_replicas import equal_replicas, first_replica
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.analyses.relations.transfer.context import World
from tvlint.analyses.relations.transfer.groups import Groups
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.equivalence.verdict.compare_outputs import Returned
from tvlint.equivalence.verdict.pairing import Case, pair
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Tensor


def fold_replicas(case: Case) -> Case | None:
    """Return the case of one replica, whose relations are those of every replica in its own slot; None where there is none."""
    found = equal_replicas(case.parallel, case.inputs)
    if found is None:
        return None
    axis, slots, tensors = found
    if any(dim not in (-1, slot) for dim, slot in zip(case.batch.dims, slots, strict=True)):
        return None
    one = pair(first_replica(case.parallel, axis, tensors), case.reference, case.assume)
    if not isinstance(one, Case) or one.batch.dims != slots:
        return None
    return replace(one, written=case.parallel, folded_axis=axis, telling=case.telling)


def partly_returned(
    case: Case, world: World, derived: Derived, losses: tuple[tuple[int, ...], ...]
) -> tuple[list[Defect], frozenset[str]]:
    """Return what is wrong with returned values that are sums over one replica's part of the batch, and what is assumed.

    For a plan that is written folded each replica may return its own part; in one that writes its ranks out nothing may but
    means, which whoever reads them averages. Sums may be added up there; that is left open.
    """
    together = _together(case, world, derived)
    found = []
    for rank, name, value in _returned(together):
        of_term = together.of_terms(value, together.expected(rank, losses).get(name, ()))
        made = next((each for _, each in of_term if together.is_one_slot(each)), value)
        partly = any(entry.one_replica for leaf in made.leaves for entry in leaf.pending)
        if partly and not together.is_averaged(rank, name, made.term):
            found.append(together.incomplete_output(rank, name, made))
    return found, frozenset(together.assumptions)


def returns_declared(case: Case, world: World, derived: Derived) -> bool:
    """Return whether replicas return the slices of the batch that the written plan declares, where it declares any."""
    for _, name, value in _returned(_together(case, world, derived)):
        tensor = case.written.tensors.get(name)
        declares = tensor is not None and (tensor.region is not None or tensor.placements is not None)
        if tensor is not None and declares and world.terms.slot[value.term] != _declared_slot(tensor, case.folded_axis):
            return False
    return True


def _together(case: Case, world: World, derived: Derived) -> Returned:
    return Returned(world, case.parallel, derived, Groups(case.parallel), 1, case.micro_batches)


def _returned(together: Returned) -> Iterator[tuple[int, str, Value]]:
    """Yield what the ranks of the first replica return, as far as it is known."""
    for rank, environment in together.derived.environments.items():
        for name in together.plan.outputs:
            value = together.value(rank, name) if name in environment else None
            if value is not None:
                yield rank, name, value


def of_first_replica(case: Case, defects: Iterable[Defect]) -> list[Defect]:
    """Return the defects on ranks of the folded plan; those of other replicas are the same."""
    ranks = {rank for program in case.parallel.programs for rank in program.ranks}
    return [defect for defect in defects if defect.rank in ranks]


def on_all_replicas(case: Case, defects: Iterable[Defect]) -> list[Defect]:
    """Return the defects of the folded plan on the ranks of the written one."""
    return [replace(defect, rank=rank) for defect in defects for rank in everywhere(case.parallel, (defect.rank,))]


def _declared_slot(tensor: Tensor, axis: str) -> int:
    """Return the dimension that the tensor declares the axis to cut; -1 for none."""
    placement = (tensor.placements or {}).get(axis)
    if not isinstance(placement, Shard) or tensor.region is not None or tensor.whole is None:
        return -1
    return placement.dim % len(tensor.whole)
