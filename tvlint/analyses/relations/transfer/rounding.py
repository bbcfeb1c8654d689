"""Rounding: by collectives, and by operators whose results have fewer digits than what they take."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ir.operators import SUMS, Backward, Communicate, Compute, Operator
from tvlint.ir.plan import Plan
from tvlint.ir.reductions import EXTREMES
from tvlint.ops.dtypes import DIGITS, keeps_all_of
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.kinds import Kind, kind_of
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


def sent_as_other_numbers(plan: Plan, operator: Communicate) -> Mismatch | None:
    """Return how a collective rounds what it moves, sent as whole numbers or with fewer digits; None where it does not."""
    tensor = plan.tensors.get(operator.inputs[0]) if operator.inputs else None
    if tensor is None or not operator.dtype or keeps_all_of(operator.dtype, tensor.dtype):
        return None
    text = f"communicates {tensor.dtype} as {operator.dtype}"
    if holds_whole_numbers(operator.dtype):
        return Mismatch("whole-numbers", text, refutes=False)
    return Mismatch("other-operator", f"{text}: casts round, so that both plans need the same ones", refutes=False)


def rounded_from(plan: Plan, operator: Operator, name: str) -> str:
    """Return the type of the numbers that an operator rounds for its result `name`, a cast apart; empty where it rounds none.

    Of operands of several types a result may have any. The gradient of a value has the type of that.
    """
    declared = plan.tensors[name].dtype
    if isinstance(operator, Compute) and isinstance(said := operator.attributes.get("dtype"), str):
        declared = said.removeprefix("torch.")
    if isinstance(operator, Backward):
        taken = [
            of for gradient, of in zip(operator.outputs, operator.forward.tensor_operands, strict=False) if gradient == name
        ]
    elif isinstance(operator, Communicate):
        taken = list(operator.inputs)
    elif not isinstance(operator, Compute) or has_trait(operator.op, Trait.CONVERSION):
        return ""
    else:
        taken = list(operator.tensor_operands)
    types = {plan.tensors[each].dtype for each in taken if each in plan.tensors}
    wide = (dtype for dtype in sorted(types) if dtype in DIGITS and not keeps_all_of(declared, dtype))
    is_real = kind_of(declared) is Kind.REAL and not declared.startswith("complex")
    return next(wide, "") if is_real and declared not in types else ""


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
