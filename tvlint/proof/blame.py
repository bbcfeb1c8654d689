"""Telling what goes wrong, at the operator where a reader should look."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.ir.plan import Backward, Communicate, Compute, Literal, Operator
from tvlint.proof.apply import Mismatch
from tvlint.proof.machine import Machine, RankState, Slot
from tvlint.proof.relation import Pending
from tvlint.proof.trouble import Trouble, at


def tell(
    machine: Machine,
    rank: RankState,
    operator: Operator | None,
    mismatch: Mismatch,
    fatal: bool = False,
    expected: str = "",
    actual: str = "",
) -> None:
    segment = rank.segment.name if rank.segment else ""
    subject = name_of(operator) if operator is not None else ""
    message = f"{subject} on {{ranks}} {mismatch.message}".strip()
    trouble = Trouble(mismatch.name, mismatch.refutes, message, rank.number, segment, subject, expected=expected, actual=actual)
    machine.derived.troubles.append(at(operator, segment, trouble) if operator is not None else trouble)
    machine.derived.fatal = machine.derived.fatal or fatal


def blame(machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch) -> None:
    """Tell the mismatch; a partial sum is told at the operator that first takes it for complete."""
    value = at_fault(machine, rank, operator, mismatch)
    if value is None or not value.leaves:
        tell(machine, rank, operator, mismatch)
        return
    pending = next(iter(sorted(entry for leaf in value.leaves for entry in leaf.pending)), None)
    if pending is None:
        tell(machine, rank, operator, mismatch)
        return
    origin = machine.world.terms.keys[pending.origin][0]
    carrier = rank.carriers.get(pending.origin, "")
    consumer = rank.consumers.get(carrier, "")
    scope = scope_of(pending)
    told = Trouble(
        mismatch.name,
        mismatch.refutes,
        f"`{carrier}` on {{ranks}} is a partial sum of `{origin}`, over {scope}; it is used as complete by `{consumer}`",
        rank.number,
        operator=name_of(operator),
        expected="a complete value",
        actual=f"a partial sum over {scope}",
    )
    segment = rank.segment.name if rank.segment else ""
    machine.derived.troubles.append(at(operator, segment, told))


def at_fault(machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch) -> Slot:
    names: Sequence[str] = ()
    if isinstance(operator, Compute):
        names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
    elif isinstance(operator, Backward | Communicate):
        names = operator.inputs
    for name in names:
        value = rank.local.get(name) or rank.gradients.get(name)
        if value is not None and value.leaves:
            return value
    return None


def scope_of(pending: Pending) -> str:
    """What a pending sum still ranges over."""
    parts = []
    if (pending.low, pending.high) != (0, pending.size):
        parts.append(f"indices {pending.low}:{pending.high} of {pending.size}")
    if pending.one_replica:
        parts.append("one data-parallel replica")
    if pending.one_micro_batch:
        parts.append("one micro-batch")
    return " and ".join(parts)


def name_of(operator: Operator) -> str:
    if isinstance(operator, Compute):
        return f"`{operator.op.rsplit('.', 1)[-1]}`"
    if isinstance(operator, Backward):
        return f"backward of `{operator.forward.op.rsplit('.', 1)[-1]}`"
    if isinstance(operator, Communicate):
        return f"`{operator.kind.value}`"
    return f"`{type(operator).__name__.lower()}`"
