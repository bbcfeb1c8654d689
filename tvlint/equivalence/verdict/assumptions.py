"""Assumptions of a verdict about what plans do not state, as they are printed."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.analyses.relations.assumable import DECLARED_PIECE_ORDER
from tvlint.analyses.relations.terms.terms_at_indices import FOUND
from tvlint.equivalence.verdict.derivation import Derivation
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.operators import ReduceGradients
from tvlint.ir.plan import UNDIVIDED

_ALWAYS = (
    "real arithmetic, not floating point",
    "backward operators are the true gradients of their forward operators",
    "the data loader gives replica r, micro-batch m its own slice of the global batch, the same to all ranks of a replica",
    "weights with equal full names start equal, and so do constants",
)


def assumptions(case: Case, outer: Derivation, inner: Derivation, compared: Iterable[str]) -> tuple[str, ...]:
    """Return all that a proof of the case rests on: what the derivations of the reference and of the plan, and what their
    comparison assumed.
    """
    plan, reference = case.parallel, case.reference
    more = list(_of_inputs(case))
    if reference.undivided > 1:
        more.insert(0, UNDIVIDED.format(reference.undivided))
    if DECLARED_PIECE_ORDER in case.assume:
        more.append("`declared-piece-order`: pieces are cut and joined in the order that the plan declares, not in rank order")
    reducers = [*plan.operators_of(ReduceGradients)]
    if any(reducer.divisor == 0 for reducer in reducers):
        more.append("gradient reducers whose divisor the plan does not say sum and do not divide")
    if any(reducer.scatter for reducer in reducers):
        more.append("weights that are updated in shards are gathered again before they are used")
    derived = {*outer.derived.assumptions, *inner.derived.assumptions, *inner.world.terms.assumptions, *compared}
    of_reference = [f"of the reference: {text}" for text in reference.assumed if text not in plan.assumed]
    return (*more, *plan.assumed, *of_reference, *sorted(derived), *_ALWAYS)


def holds_on_any_numbers(assumed: Iterable[str]) -> bool:
    """Return whether a proof that rests on these says something of all inputs whose indices are places of their tables."""
    return {*_ALWAYS, FOUND}.issuperset(assumed)


def _of_inputs(case: Case) -> tuple[str, ...]:
    """Return what is assumed where the plans call their inputs by other names, which says nothing of which is which."""
    inner, outer = case.inputs.names, case.reference_inputs.names
    if set(inner) == set(outer):
        return ()
    pairs = ", ".join(f"`{here}` is `{there}`" for here, there in zip(inner, outer, strict=True))
    return (f"inputs that the plans name differently correspond in the order of their first use: {pairs}",)
