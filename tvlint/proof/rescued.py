"""Whether a result that was computed on a part of a dimension may be put right afterwards.

A softmax, a norm or a variance over a part of a dimension is a mistake by its structure where the plan goes on as the reference
does. It is none where the plan computes more than the reference: attention that is written out in blocks rescales each with the
sum of its own rows, and a norm is that of the norms of the parts.
"""

from __future__ import annotations

from collections import Counter

from tvlint.ir.plan import Backward, Compute, Phase, Plan
from tvlint.ops.spec import Family
from tvlint.ops.table import spec_of
from tvlint.proof.insensitive import Readers, readers_of
from tvlint.proof.machine import Derived
from tvlint.proof.trouble import Trouble

_POWERS = frozenset({"softmax", "log-softmax", "logsumexp"})
"""What is rescaled with a sum that is computed from the same operand."""


def put_right_later(plan: Plan, reference: Plan, derived: Derived) -> list[Trouble]:
    """What is told of split dimensions that a right plan may have as well."""
    split = [trouble for trouble in derived.troubles if trouble.refutes and trouble.name == "split-dimension"]
    if not split:
        return []
    readers, known = readers_of(plan), _computed(reference, reference.programs[0].ranks[0])
    more = {rank for rank in {trouble.rank for trouble in split} if _computed(plan, rank) - known}
    return [own for own in split if derived.foreign or own.rank in more or _read_again(readers, own)]


def _read_again(readers: Readers, trouble: Trouble) -> bool:
    """Whether the operand of what is rescaled with a sum of its powers is read by something else as well."""
    if not isinstance(trouble.place, Compute | Backward):
        return False
    forward = trouble.place.forward if isinstance(trouble.place, Backward) else trouble.place
    spec = spec_of(forward.op)
    again = [own for name in forward.inputs if isinstance(name, str) for own in readers.get(name, ())]
    return spec is not None and spec.name in _POWERS and any(isinstance(own, Compute) and own != forward for own in again)


def _computed(plan: Plan, rank: int) -> Counter[str]:
    """How often the rank runs each operator that computes something, forwards and for one micro-batch."""
    found: Counter[str] = Counter()
    for program in plan.programs:
        if rank not in program.ranks:
            continue
        first = min((step.micro_batch for step in program.steps if step.micro_batch >= 0), default=-1)
        for step in program.steps:
            segment = plan.segments[step.segment]
            if segment.phase is Phase.FORWARD and step.micro_batch in (-1, first):
                found.update(own.op for own in segment.operators if isinstance(own, Compute))
    total: Counter[str] = Counter()
    for op, times in found.items():
        spec = spec_of(op)
        if spec is None or spec.family is Family.INDEXED:
            total[op if spec is None else spec.name] += times
    return total
