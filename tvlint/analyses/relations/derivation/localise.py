"""Telling what goes wrong, at the operator where a reader should look."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from tvlint.analyses.relations.defect import STOPS, Defect, Fix, Sum, at
from tvlint.analyses.relations.derivation.runnable import may_run
from tvlint.analyses.relations.derivation.state import Machine, RankState, Slot
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.pending_ranges import Pending
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Communicate, Compute, Literal, Operator
from tvlint.ir.plan import Plan

_PARTIAL = ("missing-allreduce", "gather-of-partial")
"""Mismatches that a partial sum causes by arriving where it does."""


def tell(
    machine: Machine,
    rank: RankState,
    operator: Operator | None,
    mismatch: Mismatch,
    fatal: bool = False,
    expected: str = "",
    actual: str = "",
    cause: Hashable = None,
    fix: Fix | None = None,
    source: Location | None = None,
) -> None:
    """Note what is wrong, at its operator, or at `source` where there is none."""
    segment = rank.segment.name if rank.segment else ""
    subject = name_of(operator) if operator is not None else ""
    message = f"{subject} on {{ranks}} {mismatch.message}".strip()
    if cause is None and operator is not None:
        read = tuple(value.term for value in operands_of(machine, rank, operator))
        cause = (mismatch.name, message, read) if read else None
    defect = Defect(
        mismatch.name,
        mismatch.refutes,
        message,
        rank.number,
        segment,
        bare_name(operator) if operator is not None else "",
        expected=expected,
        actual=actual,
        cause=cause,
        fix=fix,
        source=source,
    )
    if operator is not None:
        defect = at(operator, segment, defect)
    if mismatch.source is not None:
        defect = replace(defect, source=mismatch.source)
    machine.derived.defects.append(defect)
    machine.derived.fatal = machine.derived.fatal or fatal


def blame(
    machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch, cause: Hashable = None, runs: bool = True
) -> None:
    """Tell the mismatch where it comes from.

    A partial sum that arrives here is told once, at the operator that first took it for complete, on the ranks that made it.
    What follows from a value that the reference does not compute is not told again, unless the operator does not run at all.
    """
    if not runs or mismatch.name in STOPS or not may_run(machine, rank, operator):
        tell(machine, rank, operator, mismatch, fatal=True, cause=cause)
        return
    value = at_fault(machine, rank, operator)
    foreign = any(machine.world.terms.foreign(own.term) for own in operands_of(machine, rank, operator))
    if mismatch.name == "scaled-value" and foreign:
        mismatch = Mismatch(mismatch.name, mismatch.message, refutes=False, operand=mismatch.operand)
    if value is None or not value.leaves or mismatch.name not in _PARTIAL:
        if not foreign:
            tell(machine, rank, operator, mismatch, cause=cause)
        return
    pending = next(iter(sorted(entry for leaf in value.leaves for entry in leaf.pending)), None)
    if pending is None or pending.origin not in machine.makers:
        tell(machine, rank, operator, mismatch, cause=cause)
        return
    if machine.world.terms.foreign(value.term):
        mismatch = Mismatch(mismatch.name, mismatch.message, refutes=False, operand=mismatch.operand)
    makers, one_sum = machine.makers[pending.origin], (pending.origin, pending.number, mismatch.refutes)
    before = machine.blamed.get(one_sum, 0)
    machine.blamed[one_sum] = len(makers)
    for maker in sorted(makers[before:]):
        _tell_partial(machine, machine.ranks[maker], operator, mismatch, pending)


def _tell_partial(machine: Machine, maker: RankState, noticed: Operator, mismatch: Mismatch, pending: Pending) -> None:
    carrier, producer = maker.carriers[pending.origin]
    _, consumer = maker.consumers.get(carrier, ("", noticed))
    partial, scope = partial_sum(machine.plan, maker.number, pending), scope_of(pending)
    what = machine.world.terms.keys[pending.origin][0]
    told = Defect(
        "missing-allreduce",
        mismatch.refutes,
        f"{{subject}} on {{ranks}} is {partial} of `{what}`, {scope}; {name_of(consumer)} uses it as complete",
        maker.number,
        operator=bare_name(consumer),
        expected="a complete value",
        actual=f"{partial}, {scope}",
        subject=carrier,
        cause=("partial", pending.origin, pending.number),
        fix=Sum(carrier, producer),
    )
    machine.derived.defects.append(at(consumer, segment_of(machine, maker.number, consumer), told))


def segment_of(machine: Machine, rank: int, operator: Operator) -> str:
    """The segment of `rank` in which the operator stands."""
    for step in machine.programs[rank].steps:
        if any(own is operator for own in machine.plan.segments[step.segment].operators):
            return step.segment
    return ""


def operands_of(machine: Machine, rank: RankState, operator: Operator) -> list[Value]:
    """The relations that the operator reads, as far as there are any."""
    names: Sequence[str] = ()
    if isinstance(operator, Compute):
        names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
    elif isinstance(operator, Backward | Communicate):
        names = operator.inputs
    held = (rank.local.get(name) or rank.gradients.get(machine.weight_of.get(name, "")) for name in names)
    return [value for value in held if value is not None]


def at_fault(machine: Machine, rank: RankState, operator: Operator) -> Slot:
    """The first operand that is not complete."""
    return next((value for value in operands_of(machine, rank, operator) if value.leaves), None)


def scope_of(pending: Pending) -> str:
    """Return what a pending sum lacks."""
    parts = []
    if (pending.low, pending.high) != (0, pending.size):
        parts.append(f"over a part of {pending.size} indices")
    if pending.one_replica:
        parts.append("over one data-parallel replica")
    if pending.one_micro_batch:
        parts.append("over one micro-batch")
    return " and ".join(parts)


def partial_sum(plan: Plan, rank: int, pending: Pending) -> str:
    """A partial sum in words, with the axis of the mesh whose ranks hold its parts, where that is one axis for certain.

    A part of so many is one of an axis of that size, at the rank's place on it. Pipeline stages and replicas hold no parts of
    one sum of the same micro-batch.
    """
    length = pending.high - pending.low
    apart = {"pp", plan.replication.axis if plan.replication.count > 1 else ""}
    sized = [axis.name for axis in plan.mesh.axes if axis.size > 1 and axis.size * length == pending.size]
    among = [name for name in sized if name not in apart]
    place = plan.mesh.coordinates(rank)
    found = len(among) == 1 and place[among[0]] * length == pending.low
    return f"a partial sum over {among[0]}" if found else "a partial sum"


def name_of(operator: Operator) -> str:
    if isinstance(operator, Compute):
        return f"`{operator.op.rsplit('.', 1)[-1]}`"
    if isinstance(operator, Backward):
        return f"backward of `{operator.forward.op.rsplit('.', 1)[-1]}`"
    if isinstance(operator, Communicate):
        return f"`{operator.kind.value}`"
    return f"`{type(operator).__name__.lower()}`"


def bare_name(operator: Operator) -> str:
    """The operator's name without marks."""
    return name_of(operator).replace("`", "")
