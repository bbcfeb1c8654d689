"""A later replica, written with the ranks of the first one."""

from __future__ import annotations

from dataclasses import replace

from tvlint.ir.operators import Communicate, Group, Operator, Peer, Receive, ReduceGradients, Send
from tvlint.ir.plan import Plan


def as_first_replica(plan: Plan, low: int, name: str) -> Plan:
    """`plan` with all ranks of its programs, groups and peers lower by `low`; places in files stay."""
    if low == 0:
        return replace(plan, name=name)
    programs = tuple(replace(program, ranks=tuple(rank - low for rank in program.ranks)) for program in plan.programs)
    segments = plan.with_operators(lambda operator: _operator(operator, low))
    return replace(plan, programs=programs, segments=segments, name=name)


def _operator(operator: Operator, low: int) -> Operator:
    if isinstance(operator, Communicate):
        root = None if operator.root is None else operator.root - low
        return replace(operator, group=_group(operator.group, low), root=root)
    if isinstance(operator, ReduceGradients):
        return replace(operator, group=_group(operator.group, low))
    if isinstance(operator, (Send, Receive)) and operator.peer.rank is not None:
        return replace(operator, peer=Peer(rank=operator.peer.rank - low))
    return operator


def _group(group: Group, low: int) -> Group:
    return replace(group, ranks=tuple(rank - low for rank in group.ranks))
