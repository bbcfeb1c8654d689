"""Suggest what to write instead of an operator that the reference does not have."""

from __future__ import annotations

from tvlint.ops.spec import Trait
from tvlint.ops.table import spec_of

_VOCABULARY = (
    "where a rank holds a part of a vocabulary, `embedding(x, w, start=.., stop=..)` and "
    "`masked_gather(x, t, dim=.., start=.., stop=..)` say so and are followed"
)

_INSTEAD = {
    "to": "casts round, so that both plans need the same ones",
    "tril": "a causal mask is followed where both plans write it alike, as `is_causal=True` or as scores that are masked",
    "pad": "pad and cut in both plans, or in neither",
    "masked-fill": _VOCABULARY,
}


def instead_of(op: str) -> str:
    """Advice on the operator, after what is told of it; empty where there is none."""
    spec = spec_of(op)
    if spec is None:
        return ""
    words = _VOCABULARY if Trait.COMPARISON in spec.traits else _INSTEAD.get(spec.name, "")
    return f": {words}" if words else ""
