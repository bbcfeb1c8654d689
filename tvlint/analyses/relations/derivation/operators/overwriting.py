"""Operators that overwrite their operands, as the functions that they are, and what shares memory with what they overwrite."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from tvlint.analyses.relations.derivation.state import Machine, RankState
from tvlint.ir.operators import Collective, Communicate, Compute, Operand, Operator
from tvlint.ir.plan import Phase, Role, Segment
from tvlint.ops.spec import Family, Trait
from tvlint.ops.table import spec_of
from tvlint.ops.usual_calls import as_new

_SHARES = frozenset(
    {
        Trait.APART,
        Trait.BROADCAST,
        Trait.CONVERSION,
        Trait.DETACHED,
        Trait.RANGES,
        Trait.SELECTION,
        Trait.TRANSPOSE,
        Trait.VIEW,
    }
)
"""Functions that may give the memory of their operand, all or some of it."""


def as_function(machine: Machine, rank: RankState, segment: Segment, operator: Compute) -> Compute:
    """Return an operator that overwrites operands as the function that gives them anew, after the backward pass, or as soon as
    it overwrites gradients of weights alone. Before, gradients need what forward operators read.
    """
    over = [operator.inputs[position] for position in operator.in_place if 0 <= position < len(operator.inputs)]
    alone = segment.phase is Phase.BACKWARD and not machine.world.many_micro_batches
    of_weights = alone and all(isinstance(name, str) and name in machine.weight_of for name in over)
    once = (of_weights or segment.phase in (Phase.REDUCE, Phase.OPTIMIZER)) and not operator.outputs
    roots = [rank.shares.get(name, name) for name in operator.tensor_operands] if operator.in_place else []
    if once and len(set(roots)) == len(roots):
        operator = as_new(operator, machine.plan.tensors)
    spec = spec_of(operator.op)
    if not operator.in_place or not once or spec is None or spec.family is not Family.INDEXED:
        return operator
    given = tuple(name for name in over if isinstance(name, str))
    if len(set(given)) < len(operator.in_place):
        return operator
    return replace(operator, outputs=given, in_place=())


def note_shared(rank: RankState, operator: Operator, name: str, inputs: Sequence[Operand]) -> None:
    """Note of which tensor `name` may be a part; what is overwritten stays what it is a part of."""
    read = [operand for operand in inputs if isinstance(operand, str)]
    if name in read:
        return
    rank.shares.pop(name, None)
    if read and may_share(operator):
        name_shared(rank, name, read[0])


def name_shared(rank: RankState, name: str, of: str) -> None:
    """Note that `name` may be a part of what `of` is a part of."""
    root = rank.shares[name] = rank.shares.get(of, of)
    rank.parts.setdefault(root, set()).add(name)


def may_share(operator: Operator) -> bool:
    """Return whether the results of an operator may lie in the memory of its first operand."""
    if isinstance(operator, Communicate):
        return operator.kind is Collective.CHUNK
    spec = spec_of(operator.op) if isinstance(operator, Compute) else None
    if spec is None:
        return False
    moves = spec.family in (Family.IDENTITY, Family.RESHAPE)
    return moves or spec.may_draw or not spec.traits.isdisjoint(_SHARES)


def forget_what_shares(machine: Machine, rank: RankState, names: Set[str], what: str) -> None:
    """Make unknown what may share memory with the tensors `own`, which `what` has overwritten."""
    roots = {rank.shares.get(name, name) for name in names}
    others = {name for root in roots for name in rank.parts.get(root, ()) if rank.shares.get(name) == root} | roots
    forget_what_was_read(rank, others | names)
    for name in others - names:
        for held in (rank.local, rank.environment):
            if name in held:
                held[name] = None
        rank.undefined[name] = f"{what} overwrites what may be the same memory"
        tensor = machine.plan.tensors.get(name)
        if tensor is not None and tensor.role in (Role.WEIGHT, Role.STATE):
            rank.renewed[name] = None
        if machine.weight_of.get(name, "") in rank.gradients:
            rank.gradients[machine.weight_of[name]] = None


def forget_what_was_read(rank: RankState, names: Set[str]) -> None:
    """Make unknown what forward operators keep for their gradients that have read one of the tensors."""
    for name in names:
        for outputs in rank.readers.get(name, ()):
            ran, saved = rank.saved.get(outputs, (None, None))
            if ran is not None and saved is not None and name in ran.inputs:
                rank.saved[outputs] = ran, replace(saved, inputs=(None,) * len(saved.inputs))
