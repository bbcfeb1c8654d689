"""Where two members of a communicator, or the ends of a channel, part, of which one runs more calls than the other.

From there on each call meets another one than its own, so that whatever else differs follows from it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TypeAlias

from tvlint.analyses.dataflow.shared_names import shared_name
from tvlint.ir.operators import Communicate, Operator, Receive, ReduceGradients, Send
from tvlint.ir.plan import Plan

Run: TypeAlias = tuple[Operator, int]
"""An operator and the micro-batch for which it is run; less than zero for none."""


def place_of_parting(plan: Plan, longer: Sequence[Run], shorter: Sequence[Run]) -> int:
    """Return the place of the first call of the one that runs more which the other does not run there."""
    return next(left_over(plan, longer, shorter))


def left_over(plan: Plan, longer: Sequence[Run], shorter: Sequence[Run]) -> Iterator[int]:
    """Yield the places of as many calls as one runs more, which the other does not run there; all others are in order.

    Calls are the same that are of one kind, along the same dimensions, of tensors of one shape, for one micro-batch; and of one
    name, where the longer has all names of the shorter.
    """
    named = {_names(operator) for operator, _ in shorter} <= {_names(operator) for operator, _ in longer}
    more = len(longer) - len(shorter)
    left = 0
    for at, run in enumerate(longer):
        other = shorter[at - left] if at - left < len(shorter) else None
        if left < more and (other is None or not _are_the_same(plan, run, other, named)):
            left += 1
            yield at


def _are_the_same(plan: Plan, one: Run, other: Run, named: bool) -> bool:
    (first, batch), (second, other_batch) = one, other
    together = batch == other_batch or min(batch, other_batch) < 0
    return together and _kind(plan, first) == _kind(plan, second) and (not named or _names(first) == _names(second))


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
