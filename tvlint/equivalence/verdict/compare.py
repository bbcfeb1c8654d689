"""Compare what a parallel plan leaves and returns with what the reference does."""

from __future__ import annotations

from dataclasses import dataclass

from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.gradients.over_the_step import held_by, weights_of
from tvlint.equivalence.verdict.compare_gradients import judge_gradients, judge_updates
from tvlint.equivalence.verdict.compare_outputs import judge_returned
from tvlint.equivalence.verdict.compare_roots import judge_roots
from tvlint.equivalence.verdict.compare_states import compare_states, written_out
from tvlint.equivalence.verdict.derivation import Derivation, Reference
from tvlint.equivalence.verdict.pairing import Case
from tvlint.equivalence.verdict.replica_folding import partly_returned


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs from the reference, and what was assumed to find that the rest does not."""

    differences: tuple[Defect, ...]
    assumptions: frozenset[str]


def compare(case: Case, reference: Reference, derivation: Derivation) -> Comparison:
    """Return how reduced gradients, states, returned values and updates differ from the reference's.

    Where there are no differences, every rank has exactly the reference's gradient of every piece of every trained weight,
    updates it once, and returns the reference's values. Backward roots are compared where something differs, to say why.
    """
    world, derived, plan, expected = derivation.world, derivation.derived, case.parallel, reference.expected
    weights, written = weights_of(plan, derived), written_out(plan, derived)
    states, of_states = compare_states(world, plan, derived, expected)
    replicas = 1 if case.folded_axis else plan.replication.count
    returned, of_returned = judge_returned(world, plan, derived, expected.losses, replicas, case.micro_batches)
    partly, of_parts = partly_returned(case, world, derived, expected.losses) if case.folded_axis else ((), frozenset[str]())
    found = [
        *derived.reductions,
        *judge_gradients(world, plan, weights, expected, held_by(derived, weights), written, derived.carriers),
        *states,
        *returned,
        *partly,
        *judge_updates(plan, case.reference, weights, expected, derived.changed, written),
    ]
    if found:
        found.extend(judge_roots(world.terms, plan, reference.derived, derived))
    return Comparison(tuple(found), of_states | of_returned | of_parts)
