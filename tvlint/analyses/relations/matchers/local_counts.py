"""Means whose sum is over what several ranks hold, and whose count is of what one rank holds."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import TypeGuard

from tvlint.analyses.dataflow.def_use import reads
from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.derivation.localisation.sure import is_of_inputs
from tvlint.analyses.relations.matchers.projection import Projection, Site
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.ir.operators import SUMS, Communicate, Compute, Operator
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


def means_by_local_counts(projection: Projection) -> Iterator[Defect]:
    """Yield what divides the sum of all ranks by the number of elements that its own rank has added up.

    What is scaled by another constant after that may be a mean again.
    """
    for site in projection.sites:
        if isinstance(site.operator, Communicate) and site.operator.reduce == "avg":
            yield from _of_unequal_shares(site)
        counted = _counted(site)
        if counted is None or _scaled_again(site):
            continue
        local, every = counted
        text = f"{name_of(site.operator)} on {{ranks}} divides a sum of {every} elements by {local}, the number on one rank"
        unless = f"{every // local} times the mean is meant"
        for rank in site.ranks():
            found = Defect("mean-by-local-count", True, text, rank, unless=unless)
            yield at(site.operator, site.segment.name, found)


def _of_unequal_shares(site: Site) -> Iterator[Defect]:
    """Yield an average of means over unequal numbers of elements, each of which counts as one."""
    value = site.value(site.operator.outputs[0]) if isinstance(site.operator, Communicate) and site.operator.outputs else None
    if value is None or len({leaf.coefficient for leaf in value.leaves}) < 2 or len({leaf.token for leaf in value.leaves}) > 1:
        return
    parts = [entry for leaf in value.leaves for entry in leaf.pending]
    whole = len({(entry.origin, entry.number) for entry in parts}) == 1 and len(parts) == len(value.leaves)
    if whole and sum(entry.high - entry.low for entry in parts) == parts[0].size:
        sizes = " and ".join(str(size) for size in sorted({entry.high - entry.low for entry in parts}))
        text = (
            f"{name_of(site.operator)} on {{ranks}} averages means over {sizes} of {parts[0].size} indices, which count alike"
        )
        for rank in site.ranks():
            found = Defect("mean-by-local-count", True, text, rank, unless="the mean of each rank is to count the same")
            yield at(site.operator, site.segment.name, found)


def _counted(site: Site) -> tuple[int, int] | None:
    """Return how many elements a rank adds up and how many all do, where the operator divides their sum by the former."""
    operator, terms = site.operator, site.projection.alone.world.terms
    if not _scales(operator) or not isinstance(operator.inputs[0], str):
        return None
    summed = site.maker(operator.inputs[0])
    added = site.maker(summed.inputs[0]) if isinstance(summed, Communicate) and summed.kind in SUMS else None
    value = site.value(operator.outputs[0])
    if value is None or value.leaves or value.fold is not None or not isinstance(added, Compute):
        return None
    if not has_trait(added.op, Trait.REDUCTION) or has_trait(added.op, Trait.NONLINEAR) or not is_of_inputs(terms, value.term):
        return None
    scaled = multiplied(terms, value.term)
    if scaled is None or not has_trait(str(terms.keys[scaled[1]][0]), Trait.REDUCTION):
        return None
    local = prod(site.shape(str(added.inputs[0]))) // max(1, prod(site.shape(added.outputs[0])))
    every = prod(terms.shape[terms.operands[scaled[1]][0]]) // prod(terms.shape[scaled[1]])
    return (local, every) if every > local > 1 and scaled[0] * value.coefficient == Fraction(1, local) else None


def _scaled_again(site: Site) -> bool:
    """Return whether another operator scales the result by a constant, or a collective takes it."""
    made = site.operator.outputs[0] if isinstance(site.operator, Compute) else ""
    readers = [each for each in site.segment.operators if made in reads(each)]
    return any(isinstance(each, Communicate) or _scales(each) for each in readers)


def _scales(operator: Operator) -> TypeGuard[Compute]:
    """Return whether the operator multiplies a tensor by a constant."""
    if not isinstance(operator, Compute) or len(operator.outputs) != 1 or len([*reads(operator)]) != 1:
        return False
    return has_trait(operator.op, Trait.SCALING)
