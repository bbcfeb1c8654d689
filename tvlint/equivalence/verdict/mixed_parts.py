"""Where a plan that returns other numbers first takes a part of a sum together with what is complete.

Sums are linear, so that such a value is followed as both, and may still be put right. Where a rank returns one, nothing has put
it right: the place that is to be changed is the operator that takes the part, and not the last one that passes it on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tvlint.analyses.relations.derivation.state import Slot
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.equivalence.verdict.derivation import NotUnderstood, derive_parallel, derive_reference
from tvlint.equivalence.verdict.pairing import Case
from tvlint.equivalence.verdict.replica_folding import fold_replicas
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan, Program


def taken_with_what_is_complete(case: Case) -> tuple[str, Compute] | None:
    """Return the first operator of a rank that adds a part of a sum to what is complete, and the part; None where no rank
    returns what comes of that.
    """
    arithmetic = replace(fold_replicas(case) or case, telling=Telling.ARITHMETIC)
    reference = derive_reference(arithmetic)
    if isinstance(reference, NotUnderstood):
        return None
    environments = derive_parallel(arithmetic, reference).derived.environments
    for program in arithmetic.parallel.programs:
        for rank in program.ranks[:1]:
            known = environments.get(rank, {})
            if any(_is_mixed(known.get(name)) for name in arithmetic.parallel.outputs):
                return next(_mixing(arithmetic.parallel, program, known), None)
    return None


def _mixing(plan: Plan, program: Program, known: Mapping[str, Slot]) -> Iterator[tuple[str, Compute]]:
    """Yield the operators that make such a value of values that are none, each with the part that it takes."""
    for _, _, operator in plan.run_by(program):
        if not isinstance(operator, Compute) or not any(_is_mixed(known.get(name)) for name in operator.outputs):
            continue
        names = operator.tensor_operands
        parts = [name for name in names if isinstance(value := known.get(name), Value) and value.leaves]
        if parts and not any(_is_mixed(known.get(name)) for name in names):
            yield parts[0], operator


def _is_mixed(value: Slot | None) -> bool:
    """Return whether a value is a sum of something complete and of a part of a sum."""
    return isinstance(value, Value) and len({bool(leaf.pending) for leaf in value.leaves}) == 2
