"""Where two members of a communicator, or the ends of a channel, part, of which one runs more calls than the other.

From there on each call meets another one than its own, so that whatever else differs follows from it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tvlint.analyses.dataflow.shared_names import shared_name
from tvlint.ir.operators import Communicate, Operator, Receive, ReduceGradients, Send
from tvlint.ir.plan import Plan


def place_of_parting(plan: Plan, longer: Sequence[Operator], shorter: Sequence[Operator]) -> int:
    """Return the place of the first call of the one that runs more which the other does not run there.

    Calls are the same that are of one kind, along the same dimensions, of tensors of one shape; and of one name, where the
    longer has all names of the shorter.
    """
    named = {_names(operator) for operator in shorter} <= {_names(operator) for operator in longer}

    def is_the_same(one: Operator, other: Operator) -> bool:
        return _kind(plan, one) == _kind(plan, other) and (not named or _names(one) == _names(other))

    places = (at for at, (one, other) in enumerate(zip(longer, shorter, strict=False)) if not is_the_same(one, other))
    return next(places, min(len(longer), len(shorter)))


def _kind(plan: Plan, operator: Operator) -> Hashable:
    given = next((plan.tensors[name] for name in _given(operator)[:1] if name in plan.tensors), None)
    how = (operator.kind, operator.reduce, operator.dim, operator.joined_dim) if isinstance(operator, Communicate) else ()
    return how, None if given is None else given.shape


def _names(operator: Operator) -> tuple[str, ...]:
    return tuple(map(shared_name, _given(operator)))


def _given(operator: Operator) -> tuple[str, ...]:
    if isinstance(operator, Send | Receive):
        return (operator.tensor,)
    if isinstance(operator, ReduceGradients):
        return operator.weights
    return operator.inputs if isinstance(operator, Communicate) else ()
