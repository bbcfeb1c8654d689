"""Which reasons leave open what values are, and which of these other normal forms of the values may close."""

from __future__ import annotations

from tvlint.analyses.relations.defect import stops
from tvlint.equivalence.verdict.attempt import Attempt, has_run
from tvlint.equivalence.verdict.causes import CONSEQUENCES, FACTORS

_UNEQUAL = ("ambiguous-sum", "other-constant", "other-gradient", "other-output", "reference-gradient", "unequal-addends")
EXPRESSIONS = frozenset((*CONSEQUENCES, *FACTORS, *_UNEQUAL))
"""Gaps between expressions, which normal forms of them may close."""

OF_VALUES = frozenset(
    {
        *EXPRESSIONS,
        "batch-with-itself",
        "declared-partial",
        "declared-placement",
        "gathers-parts",
        "max-of-different-values",
        "missing-allreduce",
        "mismatched-dimensions",
        "mismatched-shards",
        "needs-whole-batch",
        "other-forward",
        "other-outputs",
        "other-update",
        "own-part-returned",
        "part-gradient",
        "part-used-as-complete",
        "partial-times-scaled",
        "reduced-per-micro-batch",
        "reshape-of-split-dimension",
        "scaled-value",
        "split-dimension",
        "split-twice",
        "undecided-gradient",
        "undecided-output",
        "undecided-update",
        "unequal-roots",
        "unsupported-operator",
        "whole-numbers",
        "wrong-gather-dim",
        "wrong-reduce-op",
    }
)
"""Reasons that leave open what values are. Others leave open how the plan runs, and a run has to take one way of several."""


def is_open(attempt: Attempt) -> bool:
    """Return whether a case that an attempt does not prove may be proved with other terms for values.

    It is not where a side condition is violated or where something stops the plan that no value decides: neither depends on
    how terms tell values.
    """
    if attempt.violations and not attempt.values_agree:
        return False
    derived = attempt.derivation.derived
    if any(stops(defect) and defect.name not in OF_VALUES for defect in derived.defects):
        return False
    return has_run(derived) or any(defect.name in OF_VALUES for defect in derived.defects)
