"""Gradients stand in the places of what they are the gradients of."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.analyses.relations.defect import Exchange
from tvlint.analyses.relations.derivation.localise import tell
from tvlint.analyses.relations.derivation.state import Machine, RankState, Saved
from tvlint.analyses.relations.transfer.context import Mismatch, is_zero
from tvlint.ir.operators import Backward


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
            owner = next(owner for owner in owners if owner in places)
            text = f"{what} `{name}`, the gradient of `{owner}`, as the gradient of `{place}`"
            mismatch = Mismatch("swapped-gradients", text, refutes=not zero)
            other = next((name for name in names if place in machine.forward_of.get(name, ())), "")
            tell(
                machine,
                rank,
                operator,
                mismatch,
                expected=f"the gradient of `{place}`",
                actual=f"the gradient of `{owner}`",
                cause=("swapped-gradients", operator.forward.outputs, what),
                fix=Exchange(operator, (name, other)) if other else None,
            )


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
