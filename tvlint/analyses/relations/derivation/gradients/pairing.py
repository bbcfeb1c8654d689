"""Gradients stand in the places of what they are the gradients of."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.analyses.relations.defect import Defect, Exchange, at
from tvlint.analyses.relations.derivation.localisation.localise import tell
from tvlint.analyses.relations.derivation.state import Machine, RankState, Saved
from tvlint.analyses.relations.transfer.context import Mismatch, is_zero
from tvlint.ir.operators import Backward
from tvlint.ops.spec import Family


def check_gradient_names(machine: Machine, rank: RankState, operator: Backward, saved: Saved, operands: Sequence[str]) -> None:
    """Gradients stand in the places of what they are the gradients of; a mistake where none of them may be zero."""
    for names, places, what in (
        (operator.inputs, operator.forward.outputs, "takes"),
        (operator.outputs, operands, "stores"),
    ):
        for name, place in zip(names, places, strict=False):
            owners = machine.forward_of.get(name, ())
            if place in owners or name not in machine.plan.tensors or not any(owner in places for owner in owners):
                continue
            zero = any(value is not None and is_zero(value) for value in (*saved.inputs, *saved.outputs))
            zero = zero or (machine.alone and _are_alike(saved, what))
            owner = next(owner for owner in owners if owner in places)
            text = f"{what} `{name}`, the gradient of `{owner}`, as the gradient of `{place}`"
            compared = f"the gradient of `{place}`", f"the gradient of `{owner}`"
            mismatch = Mismatch("swapped-gradients", text, refutes=not zero, compared=compared)
            other = next((name for name in names if place in machine.forward_of.get(name, ())), "")
            tell(
                machine,
                rank,
                operator,
                mismatch,
                cause=("swapped-gradients", operator.forward.outputs, what),
                fix=Exchange(operator, (name, other)) if other else None,
            )


def check_owners(machine: Machine, rank: RankState, operator: Backward, saved: Saved, operands: Sequence[str]) -> None:
    """Tell of a gradient that is stored as that of one value and then as that of another one of its shape, and adds both up."""
    terms, stored = machine.world.terms, set[str]()
    for name, of, value in zip(operator.outputs, operands, saved.inputs, strict=False):
        if not name or value is None or name in machine.weight_of:
            continue
        if name not in stored and name not in rank.local:
            rank.owners.pop(name, None)
        stored.add(name)
        known, owner = rank.owners.setdefault(name, (value.term, of))
        if known != value.term and owner != of and terms.shape[known] == terms.shape[value.term]:
            text = f"stores `{name}`, the gradient of `{owner}`, as the gradient of `{of}`"
            segment = rank.segment.name if rank.segment else ""
            wrong = Defect("swapped-gradients", False, f"`{operator.forward.op}` on {{ranks}} {text}", rank.number)
            machine.derived.contradicted.append(at(operator, segment, wrong))


def _are_alike(saved: Saved, what: str) -> bool:
    """Return whether it makes no difference which gradient stands where: copies add up, and the operands of a sum have one."""
    if saved.family is Family.IDENTITY or what == "takes" or saved.bound is None:
        return saved.family is Family.IDENTITY
    return bool(saved.bound.commutative) and any(len(group) > 1 for group in saved.bound.linear)


def check_absent(machine: Machine, rank: RankState, operator: Backward, name: str, operand: str) -> None:
    """Tell of an operand that has no gradient, and gives one to what is that of something else, or of whole numbers."""
    owners, tensor = machine.forward_of.get(name, ()), machine.plan.tensors.get(operand)
    whole = tensor is not None and tensor.dtype.startswith(("int", "uint", "bool"))
    if whole:
        text = f"stores in `{name}` the gradient of `{operand}`, which holds whole numbers and has none"
        tell(machine, rank, operator, Mismatch("gradient-of-none", text, refutes=False), fatal=True)
    elif owners and operand not in owners:
        text = f"stores in `{name}`, the gradient of `{owners[0]}`, that of `{operand}`, which has none"
        tell(machine, rank, operator, Mismatch("gradient-of-none", text, refutes=False), fatal=True)
