"""Values that a backward segment computes again, by other operators than the forward pass."""

from __future__ import annotations

from tvlint.analyses.dataflow.operator_diff import same_operator
from tvlint.analyses.relations.derivation.localisation.localise import tell
from tvlint.analyses.relations.derivation.state import Machine, RankState, Slot
from tvlint.analyses.relations.transfer.context import of_one_plan
from tvlint.ir.operators import Backward, Compute, Operand
from tvlint.ir.plan import Phase


def check_recomputed(
    machine: Machine, rank: RankState, ran: Compute, before: tuple[Slot, ...], operator: Compute, now: tuple[Slot, ...]
) -> None:
    """Tell of an operator that computes again what `ran` gave as `before` and goes backward, and gives something else.

    What follows from it is another value too, and no other mistake.
    """
    segment = rank.segment
    if segment is None or segment.phase is not Phase.BACKWARD or same_operator(ran, operator):
        return
    known = [(one.term, other.term) for one, other in zip(before, now, strict=False) if one is not None and other is not None]
    if all(one == other for one, other in known) or any(each is ran for each in segment.operators):
        return
    if any(isinstance(each, Backward) and each.forward.outputs == operator.outputs for each in segment.operators):
        text = f"computes `{operator.outputs[0]}` again as {_written(operator)}, which the forward pass makes as "
        text += _written(ran)
        tell(machine, rank, operator, of_one_plan("gradient-of-another-operator", text))


def _written(operator: Compute) -> str:
    given = [_operand(operand) for operand in operator.inputs]
    given += [f"{key}={value}" for key, value in operator.attributes.items()]
    return f"`{operator.op}({', '.join(given)})`"


def _operand(operand: Operand) -> str:
    return operand if isinstance(operand, str) else str(operand.value)
