"""Values of unknown relation, by what makes them: which ranks hold the same one.

What a known function makes of the same values is the same; what it makes of others may be another, until a collective makes one
of them. Nothing is known behind a function that is not known, since it may communicate, and behind what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeAlias

from tvlint.analyses.relations.derivation.state import Machine, Opaque, RankState
from tvlint.analyses.relations.transfer.groups import spans_replicas
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import NOT_UNDERSTOOD, Backward, Collective, Communicate, Compute, Literal, Operator, ReduceGradients
from tvlint.ops.spec import Trait
from tvlint.ops.table import row_of

_GIVES_ALL = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.BROADCAST)
"""The collectives that give all members the same."""

Held: TypeAlias = Callable[[str], Opaque | None]


def of_value(machine: Machine, value: Value) -> Opaque:
    """Return which value a known relation is."""
    apart = machine.world.terms.slot[value.term] >= 0 or any(
        pending.one_replica for leaf in value.leaves for pending in leaf.pending
    )
    return _opaque(machine, value, apart)


def _opaque(machine: Machine, key: Hashable, of_replica: bool) -> Opaque:
    return Opaque(machine.opaque.setdefault(key, len(machine.opaque)), of_replica)


def _made(machine: Machine, head: Hashable, given: Iterable[Opaque | None]) -> Opaque | None:
    operands = tuple(given)
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands):
        return None
    return _opaque(machine, (head, *(opaque.number for opaque in known)), any(opaque.of_replica for opaque in known))


def added(machine: Machine, one: Opaque | None, other: Opaque | None) -> Opaque | None:
    """Return the sum of two values."""
    return _made(machine, "sum", (one, other))


def made_by(machine: Machine, rank: RankState, operator: Operator, name: str, held: Held) -> Opaque | None:
    """Return which value the operator makes as `name`, where `held` says which values the rank holds."""
    if _is_wrong(machine, operator):
        return None
    if isinstance(operator, Compute) and _is_followed(operator):
        return _made(machine, _function(operator, operator.outputs.index(name)), map(held, operator.tensor_operands))
    if isinstance(operator, Backward) and _is_followed(operator.forward):
        given = [_gradient(machine, operator, at, held) for at, each_input in enumerate(operator.inputs) if each_input]
        head = ("gradient", _function(operator.forward, operator.outputs.index(name)))
        return _made(machine, head, (*given, *map(held, operator.forward.tensor_operands)))
    if isinstance(operator, Communicate) and operator.kind is Collective.CHUNK and operator.inputs:
        place = machine.groups.members(operator.group, rank.number).place(rank.number)
        return _made(machine, ("piece", place, operator.dim), (held(operator.inputs[0]),))
    return None


def _is_followed(operator: Compute) -> bool:
    """Return whether the function makes the same of the same operands and does nothing beside."""
    row = row_of(operator.op)
    exchanges = row is None or Trait.COMMUNICATING_ATTENTION in row.traits
    return not exchanges and not operator.in_place and NOT_UNDERSTOOD not in operator.attributes


def _function(operator: Compute, place: int) -> Hashable:
    constants = tuple((at, repr(operand.value)) for at, operand in enumerate(operator.inputs) if isinstance(operand, Literal))
    return operator.op, constants, repr(sorted(operator.attributes.items())), place


def _gradient(machine: Machine, operator: Backward, place: int, held: Held) -> Opaque | None:
    """Return which gradient the operator takes; one that nothing makes starts alike for the same value."""
    name, results = operator.inputs[place], operator.forward.outputs
    if name in machine.names_made or place >= len(results):
        return held(name)
    return held(name) or _made(machine, "start", (held(results[place]),))


def _is_wrong(machine: Machine, operator: Operator) -> bool:
    """Return whether a mistake was found at the operator."""
    defects = machine.derived.defects
    machine.wrong.update(id(defect.place) for defect in defects[machine.judged :] if defect.refutes)
    machine.judged = len(defects)
    return id(operator) in machine.wrong


def exchanged(machine: Machine, operator: Communicate, given: Mapping[int, Opaque | None]) -> dict[int, Opaque | None]:
    """Return by member which value a collective gives it, where `given` is put in."""
    if _is_wrong(machine, operator):
        return {}
    members = sorted(given)
    one = _made(
        machine, (operator.kind, operator.reduce, operator.dim, operator.joined_dim), [given[member] for member in members]
    )
    if one is None:
        return {}
    one = Opaque(one.number, one.of_replica and not spans_replicas(machine.plan, operator.group))
    if operator.kind in _GIVES_ALL:
        return dict.fromkeys(members, one)
    return {member: _made(machine, ("piece", place, operator.dim), (one,)) for place, member in enumerate(members)}


def reduced(machine: Machine, operator: ReduceGradients, given: Iterable[Opaque | None]) -> Opaque | None:
    """Return which gradient a reducer leaves its members, of those that they give; None for their shards."""
    total = None if operator.scatter else _made(machine, ("reduced", operator.reduce), given)
    if total is None:
        return None
    spans = operator.replicated or spans_replicas(machine.plan, operator.group)
    return Opaque(total.number, total.of_replica and not spans)
