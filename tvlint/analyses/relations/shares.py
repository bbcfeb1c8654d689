"""Weights of which every rank adds a share to its part of a sum, and steps them with that share of their gradient.

What the ranks add up to holds the whole weight, so that its gradient is what they add up to as well. Ranks that step the weight
alike with the gradient of their own share have a part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.relations.derivation.localisation.sure import Parts
from tvlint.analyses.relations.derivation.single_plan import Alone
from tvlint.analyses.relations.derivation.state import Stepped
from tvlint.analyses.relations.multiples import unchanged
from tvlint.analyses.relations.terms.loss_identities import multiplied
from tvlint.analyses.relations.terms.terms import Terms


def stepped_with_shares(alone: Alone) -> Iterator[tuple[Stepped, str]]:
    """Yield the steps with the gradient of one rank's share, and the axis over which the ranks add shares up."""
    terms = alone.world.terms
    for step in alone.derived.steps:
        share = _scaled(terms, step.gradient.term) if step.gradient is not None and step.gradient.clean else None
        yield from ((step, axis) for axis in (_added_over(alone, step, share) if share is not None else ()))


def undoes_share(alone: Alone, step: Stepped, times: int | Fraction) -> bool:
    """Return whether the step takes the gradient of one rank's share as many times as there are shares."""
    terms, value = alone.world.terms, step.gradient
    share = _scaled(terms, unchanged(terms, value.term)) if value is not None and times > 1 else None
    return share is not None and share * times == 1 and any(True for _ in _added_over(alone, step, share))


def _scaled(terms: Terms, gradient: int) -> Fraction | None:
    """Return the constant below 1 that the gradient of a product or quotient is multiplied with; None for other gradients."""
    below = multiplied(terms, gradient) if str(terms.keys[gradient][0]).endswith(" gradient") else None
    return below[0] if below is not None and 0 < below[0] < 1 else None


def _added_over(alone: Alone, step: Stepped, share: Fraction) -> Iterator[str]:
    """Yield the axes of as many ranks as there are shares over which parts of sums are to be added up that take this share of
    the weight, where nothing else does.
    """
    terms, held = alone.world.terms, alone.derived.environments[step.rank]
    axes = [axis.name for axis in alone.plan.mesh.axes if axis.size * share == 1]
    weight = alone.plan.tensors[step.weight].logical or step.weight
    shares = {name: value.term for name, value in held.items() if value is not None and value.clean}
    shares = {name: term for name, term in shares.items() if _is_share(alone, term, share, weight)}
    if not axes or not shares or any(not set(shares.values()).isdisjoint(operands) for operands in terms.operands):
        return
    reading = [operator for operator in alone.plan.operators() if not shares.keys().isdisjoint(reads(operator))]
    for name in (name for operator in reading for name in writes(operator)):
        of_rank = {rank: environment.get(name) for rank, environment in alone.derived.environments.items()}
        parts = Parts(alone.plan, of_rank, of_rank)
        yield from (axis for axis in axes if parts.is_part_over(step.rank, axis))


def _is_share(alone: Alone, term: int, share: Fraction, weight: str) -> bool:
    """Return whether the term is such a share of the weight."""
    below = multiplied(alone.world.terms, term)
    return below is not None and below[0] == share and alone.world.terms.keys[below[1]][:2] == ("weight", weight)
