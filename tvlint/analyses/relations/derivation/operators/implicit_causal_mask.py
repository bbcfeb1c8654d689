"""Attention without a mask to keys that a causal mask would hide from none of the queries.

Query `i` sees the keys up to `i`. Where the last key that is held is not after the first query that is held, the mask hides
nothing, and attention without one is attention with it, and so are the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.analyses.relations.derivation.operators.composite_operators import evaluated_once
from tvlint.analyses.relations.derivation.state import Machine, Saved
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.memo import Case
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ops.spec import Call, OpSpec, UnsupportedError


def below_the_diagonal(machine: Machine, spec: OpSpec, call: Call, values: Sequence[Value], saved: Saved) -> Saved:
    """Causal attention in the place of `saved`, which is attention without a mask that the reference does not compute.

    It stays what it is where a mask would hide something, or where the reference does not compute causal attention either.
    """
    terms = machine.world.terms
    if (
        len(values) != 3
        or call.attributes.get("is_causal")
        or not any(output and terms.foreign(output.term) for output in saved.outputs)
    ):
        return saved
    dims = [len(value.box) - 2 for value in values[:2]]
    if any(terms.slot[value.term] == dim for value, dim in zip(values, dims, strict=False)):
        return saved
    (first, stop), (low, last) = (value.box[dim] for value, dim in zip(values, dims, strict=False))
    if last > first + 1:
        return saved
    places = {"query_start": first, "query_stop": stop, "key_start": low, "key_stop": last}
    causal = replace(call, attributes={**call.attributes, **places, "is_causal": True})
    try:
        found = evaluated_once(machine, Case(saved.op, causal, spec.bind(causal).given_draws()), tuple(values))
    except (Mismatch, UnsupportedError):
        return saved
    known = all(output is not None and not terms.foreign(output.term) for output in found.outputs[:1])
    return found if known else saved
