"""Telling what goes wrong, at the operator where a reader should look."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import reads
from tvlint.analyses.relations.defect import STOPS, Defect, Fix, Sum, at, source_of
from tvlint.analyses.relations.derivation.localisation.runnable import may_run
from tvlint.analyses.relations.derivation.localisation.sure import (
    Parts,
    is_recovered,
    is_sure,
    joined_before,
    scaling_before,
    scaling_of,
)
from tvlint.analyses.relations.derivation.state import Joined, Machine, RankState, Scaling, Slot
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.pending_ranges import Pending
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import Backward, Communicate, Compute, Operator
from tvlint.ir.plan import Plan, Role
from tvlint.ops.spelling import is_captured, without_overload

_PARTIAL = ("missing-allreduce", "gather-of-partial")
"""Mismatches that a partial sum causes by arriving where it does."""


def tell(
    machine: Machine,
    rank: RankState,
    operator: Operator | None,
    mismatch: Mismatch,
    fatal: bool = False,
    cause: Hashable = None,
    fix: Fix | None = None,
) -> None:
    """Note what is wrong, at its operator, or at the mismatch's `source` where there is none."""
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
        expected=mismatch.compared[0],
        actual=mismatch.compared[1],
        cause=cause,
        fix=fix,
        unless=mismatch.unless,
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

    A partial sum that arrives here is reported once, at the operator that first took it for complete, on the ranks that made
    it. What follows from a value that the reference does not compute is not reported again, unless the operator does not run at
    all.
    """
    if not runs or mismatch.name in STOPS or not may_run(machine, rank, operator):
        tell(machine, rank, operator, mismatch, fatal=True, cause=cause)
        return
    if machine.alone and mismatch.refutes and not is_sure(machine, rank, operator, mismatch):
        mismatch = Mismatch(mismatch.name, mismatch.message, refutes=False, operand=mismatch.operand)
    value = at_fault(machine, rank, operator)
    scaling = scaling_of(machine, rank, operator, mismatch) if machine.alone and mismatch.refutes else None
    if scaling is not None:
        tell_scaling(machine, rank, scaling)
        return
    foreign = any(machine.world.terms.foreign(operand.term) for operand in operands_of(machine, rank, operator))
    if mismatch.name == "scaled-value" and foreign:
        mismatch = Mismatch(mismatch.name, mismatch.message, refutes=False, operand=mismatch.operand)
    if machine.alone and mismatch.name == "unequal-addends":
        text = "uses a sum, of which some addends are in it more often than others, as if it were complete"
        mismatch = Mismatch("missing-allreduce", text, refutes=mismatch.refutes, operand=mismatch.operand)
    if value is None or not value.leaves or mismatch.name not in _PARTIAL:
        if not foreign:
            tell(machine, rank, operator, mismatch, cause=cause)
        return
    doubled = scaling_before(machine.derived, machine.world.terms, value) if machine.alone and mismatch.refutes else None
    if doubled is not None:
        tell_scaling(machine, rank, doubled)
        return
    if machine.alone and is_recovered(machine.derived, machine.world.terms, value):
        return
    joined = joined_before(machine.derived, machine.world.terms, value) if machine.alone and mismatch.refutes else None
    if joined is not None:
        tell_joined(machine, rank, joined[1])
        return
    pending = next(iter(sorted(entry for leaf in value.leaves for entry in leaf.pending)), None)
    if pending is None or pending.origin not in machine.makers:
        tell(machine, rank, operator, mismatch, cause=cause)
        return
    if machine.world.terms.foreign(value.term):
        mismatch = Mismatch(mismatch.name, mismatch.message, refutes=False, operand=mismatch.operand)
    if machine.alone:
        _tell_use_of_partial(machine, rank, operator, mismatch, pending, cause)
        return
    makers, one_sum = machine.makers[pending.origin], (pending.origin, pending.number, mismatch.refutes)
    before = machine.blamed.get(one_sum, 0)
    machine.blamed[one_sum] = len(makers)
    for maker in sorted(makers[before:]):
        _tell_partial(machine, machine.ranks[maker], operator, mismatch, pending)


def _tell_use_of_partial(
    machine: Machine, rank: RankState, operator: Operator, mismatch: Mismatch, pending: Pending, cause: Hashable
) -> None:
    """Tell a use of a partial sum as complete, the first on each rank: the derivation goes on as if the sum were complete."""
    one_sum = (pending.origin, pending.number)
    left = machine.derived.left.get((*one_sum, rank.number))
    if left is not None and left.group.ranks:
        text = f"{name_of(left)} on {{ranks}} sums some parts of a sum, and leaves out those that other ranks have"
        defect = Defect("wrong-collective-group", True, text, rank.number, cause=("left", id(left)))
        machine.derived.defects.append(at(left, segment_of(machine, rank.number, left), defect))
        return
    if rank.incomplete.setdefault(one_sum, operator) is not operator:
        return
    given = operator.inputs if isinstance(operator, Compute | Backward | Communicate) else ()
    names = [name for name in given if isinstance(name, str)]
    held = ((name, rank.local.get(name)) for name in names)
    only = names[0] if len(names) == 1 else ""
    subject = next((name for name, value in held if value is not None and value.leaves), only)
    partial, scope = partial_sum(machine.plan, rank.number, pending), scope_of(pending)
    what = machine.world.terms.keys[pending.origin][0]
    makers, start = machine.makers[pending.origin], ""
    if rank.number not in makers:
        start = f", which starts in `{machine.ranks[makers[0]].carriers[pending.origin][0]}`"
    named = "{subject}, " if subject else ""
    text = f"uses {named}{partial} of `{what}` {scope}{start}, as if it were complete"
    defect = Defect(
        mismatch.name,
        mismatch.refutes,
        f"{name_of(operator)} on {{ranks}} {text}",
        rank.number,
        operator=bare_name(operator),
        subject=subject,
        cause=cause or ("use of partial", *one_sum, source_of(operator) or id(operator)),
    )
    machine.derived.defects.append(at(operator, rank.segment.name if rank.segment else "", defect))


def _tell_partial(machine: Machine, maker: RankState, noticed: Operator, mismatch: Mismatch, pending: Pending) -> None:
    carrier, producer = maker.carriers[pending.origin]
    _, consumer = ("", noticed) if carrier in reads(noticed) else maker.consumers.get(carrier, ("", noticed))
    partial, scope = partial_sum(machine.plan, maker.number, pending), scope_of(pending)
    what = machine.world.terms.keys[pending.origin][0]
    reported = Defect(
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
    machine.derived.defects.append(at(consumer, segment_of(machine, maker.number, consumer), reported))


def tell_scaling(machine: Machine, rank: RankState, scaling: Scaling) -> None:
    """Tell the collective that makes a multiple of a value."""
    operator, segment = scaling.operator, segment_of(machine, rank.number, scaling.operator)
    cause = ("scaling", id(operator))
    defect = Defect(scaling.rule, True, scaling.message, rank.number, operator=bare_name(operator), cause=cause)
    machine.derived.defects.append(at(operator, segment, defect))


def tell_joined(machine: Machine, rank: RankState, joined: Joined) -> None:
    """Tell the operator that adds what ranks hold alike to a part of a sum."""
    segment, parts = segment_of(machine, rank.number, joined.operator), Parts(machine.plan, joined.given)
    machine.derived.defects.append(joins(machine.plan, joined, rank.number, segment, parts))


def joins(plan: Plan, joined: Joined, rank: int, segment: str, parts: Parts) -> Defect:
    """Return what is wrong with an operator that adds what ranks hold alike to a part of a sum."""
    operator, tensor = joined.operator, plan.tensors.get(joined.whole)
    rule = "bias-added-to-partial" if tensor is not None and tensor.role is Role.WEIGHT else "missing-allreduce"
    text = f"{name_of(operator)} on {{ranks}} adds `{joined.whole}` to its part of a sum: once on every rank that has a part"
    axis = next((axis.name for axis in plan.mesh.axes if parts.is_part_over(rank, axis.name)), "")
    if joined.part and axis:
        text = f"`{joined.part}` on {{ranks}} is a part of a sum over `{axis}`, and every rank that has a part adds "
        text += f"`{joined.whole}` to it"
    return at(operator, segment, Defect(rule, True, text, rank, operator=bare_name(operator), cause=("joined", id(operator))))


def segment_of(machine: Machine, rank: int, operator: Operator) -> str:
    """The segment of `rank` in which the operator stands."""
    for step in machine.programs[rank].steps:
        if any(each_operator is operator for each_operator in machine.plan.segments[step.segment].operators):
            return step.segment
    return ""


def operands_of(machine: Machine, rank: RankState, operator: Operator) -> list[Value]:
    """Return the relations that the operator reads, as far as there are any."""
    names = reads(operator) if isinstance(operator, Compute | Backward | Communicate) else ()
    held = (rank.local.get(name) or rank.gradients.get(machine.weight_of.get(name, "")) for name in names)
    return [value for value in held if value is not None]


def at_fault(machine: Machine, rank: RankState, operator: Operator) -> Slot:
    """Return the first operand that is not complete."""
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
    """Return a partial sum in words, with the axis of the mesh whose ranks hold its parts, where that is one axis for certain.

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
        return f"`{_function(operator.op)}`"
    if isinstance(operator, Backward):
        return f"backward of `{_function(operator.forward.op)}`"
    if isinstance(operator, Communicate):
        return f"`{operator.kind.value}`"
    return f"`{type(operator).__name__.lower()}`"


def _function(op: str) -> str:
    """Return the name of a function without its modules, and without the overload that captures name."""
    return (without_overload(op) if is_captured(op) else op).rsplit(".", 1)[-1]


def bare_name(operator: Operator) -> str:
    """Return the operator's name without marks."""
    return name_of(operator).replace("`", "")
