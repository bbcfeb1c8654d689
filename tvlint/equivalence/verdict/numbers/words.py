"""Say what runs showed: as defects of the plan, and on what they were run."""

from __future__ import annotations

from collections.abc import Mapping

from tvlint.analyses.relations.defect import Defect, at
from tvlint.equivalence.verdict.mixed_parts import Mixing
from tvlint.equivalence.verdict.numbers.outcome import SEEDS, Difference
from tvlint.ir.plan import Plan

_MOST_SIZES = 3
"""So many sizes that were made smaller are named."""


def describe_runs(sizes: Mapping[int, int]) -> str:
    """Return on what was run, with sizes that were made smaller."""
    if not sizes:
        return f"{SEEDS} runs on random numbers"
    largest = [f"{after} for {before}" for before, after in sorted(sizes.items(), reverse=True)[:_MOST_SIZES]]
    return f"{SEEDS} runs on random numbers, with smaller sizes ({', '.join(largest)})"


def as_defects(plan: Plan, found: Difference, refutes: bool, taken: Mixing | None = None) -> tuple[Defect, ...]:
    """Return the difference as what is wrong on its ranks, at the operator that takes a part of a sum together with what is
    complete, or at that of the first result that differs.

    Where all results are the reference's it is at the weight whose gradient differs.
    """
    what = f"what is left in `{found.weight}`" if found.of_update else f"the gradient of `{found.weight}`"
    where = f"`{found.weight}`, returned on {{ranks}}," if found.of_output else f"{what} on {{ranks}}"
    text = (
        f"{where} is another one in {describe_runs(found.sizes)}: "
        f"off by {found.error:.3g}, where the greatest element is {found.scale:.3g}"
    )
    if found.fails:
        text = f"{found.fails}, on {{ranks}}, in {describe_runs(found.sizes)} on which the reference runs"
        return tuple(Defect("other-numbers", refutes, text, rank, source=found.at) for rank in found.ranks)
    if found.rounds_to:
        text += f"; a cast of the plan rounds to {found.rounds_to}, and the reference keeps all numbers in wider types"
    stride = plan.replication.stride if plan.replication.count > 1 else plan.mesh.size
    ranks = sorted({rank % stride for rank in found.ranks})
    if taken is not None:
        text += f"; {taken.describe()}"
        return tuple(at(taken.operator, taken.segment, Defect("other-numbers", refutes, text, rank)) for rank in ranks)
    if found.first is None:
        weight = plan.tensors.get(found.weight)
        place = weight.source if weight is not None else None
        return tuple(Defect("other-numbers", refutes, text, rank, source=place) for rank in ranks)
    name, _, operator = found.first
    text += f"; the first result that is not the reference's of that name is `{name}`"
    segment = next((segment.name for segment in plan.segments.values() if operator in segment.operators), "")
    return tuple(at(operator, segment, Defect("other-numbers", refutes, text, rank)) for rank in ranks)
