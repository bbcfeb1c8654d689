"""Suggest what to write instead of an operator that the reference does not have."""

from __future__ import annotations

from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_VOCABULARY = (
    "where a rank holds a part of a vocabulary, `embedding(x, w, start=.., stop=..)` and "
    "`masked_gather(x, t, dim=.., start=.., stop=..)` say so and are followed"
)

_CAUSAL = "a causal mask is followed where both plans write it alike, as `is_causal=True` or as scores that are masked"

_INSTEAD = {
    Trait.CONVERSION: "casts round, so that both plans need the same ones",
    Trait.TRIANGLE: _CAUSAL,
    Trait.PADDING: "pad and cut in both plans, or in neither",
    Trait.MASKING: _VOCABULARY,
    Trait.COMPARISON: _VOCABULARY,
}


def instead_of(op: str) -> str:
    """Return advice on the operator, to stand after what is said of it; empty where there is none."""
    words = next((words for trait, words in _INSTEAD.items() if has_trait(op, trait)), "")
    return f": {words}" if words else ""
