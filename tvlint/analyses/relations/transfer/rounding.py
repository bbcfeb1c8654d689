"""Rounding by collectives."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import SUMS, Communicate
from tvlint.ir.plan import Plan
from tvlint.ir.reductions import EXTREMES
from tvlint.ops.dtypes import keeps_all_of
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.kinds import Kind, kind_of


def sent_as_other_numbers(plan: Plan, operator: Communicate) -> Mismatch | None:
    """Return how a collective rounds what it moves, sent as whole numbers or with fewer digits; None where it does not."""
    tensor = plan.tensors.get(operator.inputs[0]) if operator.inputs else None
    if tensor is None or not operator.dtype or keeps_all_of(operator.dtype, tensor.dtype):
        return None
    text = f"communicates {tensor.dtype} as {operator.dtype}"
    if holds_whole_numbers(operator.dtype):
        return Mismatch("whole-numbers", text, refutes=False)
    return Mismatch("other-operator", f"{text}: casts round, so that both plans need the same ones", refutes=False)


def adds_otherwise(plan: Plan, operator: Communicate, given: Iterable[Value]) -> str:
    """Return how a collective may add or divide flags or whole numbers otherwise than real numbers; empty where it does not.

    Of flags backends give where one is set. An average of what is the same on all members loses nothing.
    """
    types = [plan.tensors[name].dtype for name in operator.inputs if name in plan.tensors]
    kinds = {kind_of(dtype) for dtype in types} if operator.kind in SUMS and operator.reduce not in EXTREMES else set()
    if Kind.FLAGS in kinds:
        return "adds flags"
    if Kind.NARROW in kinds:
        return "adds whole numbers of 8 or 16 bits, of which the sum may not fit"
    whole = any(not dtype or holds_whole_numbers(dtype) for dtype in types)
    rounds = operator.reduce == "avg" and whole and any(value.leaves for value in given)
    return "averages whole numbers, which loses what is left over" if rounds else ""
