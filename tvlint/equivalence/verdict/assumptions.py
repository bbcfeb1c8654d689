"""Assumptions of a verdict about what plans do not state, as they are printed."""

from __future__ import annotations

from tvlint.analyses.relations.assumable import DECLARED_PIECE_ORDER
from tvlint.analyses.relations.derivation.state import Derived
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.ir.operators import ReduceGradients
from tvlint.ir.plan import UNDIVIDED, Plan

_ALWAYS = (
    "real arithmetic, not floating point",
    "backward operators are the true gradients of their forward operators",
    "the data loader gives replica r, micro-batch m its own slice of the global batch, the same to all ranks of a replica",
    "weights with equal full names start equal, and so do constants",
)


def assumptions(
    plan: Plan, reference: Plan, inputs: tuple[str, ...], terms: Terms, derived: Derived, assume: frozenset[str]
) -> tuple[str, ...]:
    """All that a proof of the pair rests on; `inputs` is what is assumed of theirs."""
    more = list(inputs)
    if reference.undivided > 1:
        more.insert(0, UNDIVIDED.format(reference.undivided))
    if DECLARED_PIECE_ORDER in assume:
        more.append("`declared-piece-order`: pieces are cut and joined in the order that the plan declares, not in rank order")
    reducers = [own for part in plan.segments.values() for own in part.operators if isinstance(own, ReduceGradients)]
    if any(reducer.divisor == 0 for reducer in reducers):
        more.append("gradient reducers whose divisor the plan does not say sum and do not divide")
    if any(reducer.scatter for reducer in reducers):
        more.append("weights that are updated in shards are gathered again before they are used")
    return (*more, *plan.assumed, *sorted(derived.assumptions | terms.assumptions), *_ALWAYS)
