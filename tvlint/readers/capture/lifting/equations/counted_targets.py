"""Means over the targets of a loss that count, and their number, by which a program multiplies such a mean again.

A mean over a part of the batch times the number of targets that count in it is a sum, of which ranks and micro-batches have
shares; so the number is cancelled wherever it stands in a chain of factors of one number each. That it is never zero, where the
mean would be no number, is assumed, and listed.
"""

from __future__ import annotations

from tvlint.ir.operators import Literal
from tvlint.ops.dtypes import DIGITS
from tvlint.ops.kinds import Kind, kind_of
from tvlint.readers.capture.lifting.lift import Call, Lifting, given, inputs_of
from tvlint.readers.capture.lifting.program import Apply, Argument, Ref, Type

_FACTORS = ("torch.mul", "torch.div")


def are_marked(lifting: Lifting, targets: Argument, ignored: int) -> bool:
    """Return whether any rank is given targets that a loss ignores."""
    name = lifting.moved_from(targets)
    source = lifting.program.given.get(name) if name is not None else None
    if source is None or source.numbers is None:
        return False
    return ignored in lifting.program.negative or bool((source.numbers == ignored).any())


def count_of(lifting: Lifting, node: Apply, targets: Argument, ignored: int) -> Ref:
    """Add the number of targets that count; return it."""
    shape, types = lifting.shape(str(lifting.value(targets))), lifting.program.types
    flags, numbers = (lifting.program.fresh(Type(shape, dtype)) for dtype in ("bool", types[node.outputs[0]].dtype))
    lifting.emit("torch.ne", (targets, ignored), (flags,), node.mark, {})
    lifting.emit("torch.Tensor.to", (Ref(flags),), (numbers,), node.mark, {"dtype": types[numbers].dtype})
    return lifting.temporary(node, "torch.sum", (Ref(numbers),), (), dim=tuple(range(len(shape))), keepdim=False)


def counted_again(lifting: Lifting, node: Apply) -> bool:
    """Lift a mean over the targets that count, times their number, with other factors between or not."""
    operands = given(node, "self"), given(node, "other")
    for value, count in (operands, operands[::-1]):
        counted = _counted(lifting, count)
        found = _without(lifting, node, value, counted, "torch.div") if counted is not None else None
        if found is not None and lifting.program.types[str(lifting.value(found))] == lifting.program.types[node.outputs[0]]:
            return lifting.equate(node.outputs[0], found)
    return False


def divided_by_count(lifting: Lifting, node: Apply, value: Argument, count: Ref) -> Argument:
    """Return a gradient over the number of targets that count, without that number where it is a factor of the gradient."""
    counted = _counted(lifting, count)
    found = _without(lifting, node, value, counted, "torch.mul") if counted is not None else None
    return found if found is not None else lifting.temporary(node, "torch.div", (value, count), ())


def _counted(lifting: Lifting, argument: Argument) -> tuple[str, object] | None:
    """Return the targets of which a value is the number of those that count, and the one that does not."""
    total = lifting.call_of(_viewed(lifting, argument))
    if (
        total is None
        or total.op != "torch.sum"
        or not isinstance(total.inputs[0], Ref)
        or lifting.shape(total.outputs[0]) != ()
    ):
        return None
    flags = lifting.call_of(_viewed(lifting, total.inputs[0]))
    if flags is None or flags.op != "torch.ne" or not isinstance(flags.inputs[0], Ref):
        return None
    ignored = flags.inputs[1]
    return (_viewed(lifting, flags.inputs[0]), ignored.value) if isinstance(ignored, Literal) else None


def _viewed(lifting: Lifting, argument: Argument) -> str:
    """Return the value of which an argument is all numbers, in another shape or dtype; empty where it is no tensor."""
    name = lifting.value(argument) or ""
    call = lifting.call_of(name)
    while call is not None and _keeps_numbers(lifting, call) and isinstance(call.inputs[0], Ref):
        name = lifting.name(call.inputs[0].name)
        call = lifting.call_of(name)
    return name


def _keeps_numbers(lifting: Lifting, call: Call) -> bool:
    """Return whether a call is another shape, or a cast that changes no flag and no whole number that torch counts up to."""
    if call.op != "torch.Tensor.to":
        return call.op == "torch.Tensor.view"
    made = lifting.program.types[call.outputs[0]].dtype
    is_wide = kind_of(made) is Kind.WHOLE or DIGITS.get(made, 0) >= DIGITS["float32"]
    return is_wide or all(lifting.program.types[name].dtype == "bool" for name in inputs_of(call))


def _without(lifting: Lifting, node: Apply, value: Argument, counted: tuple[str, object], op: str) -> Argument | None:
    """Return a value without the number of targets by which it is multiplied (or divided, as `op` says); None without one."""
    chain: list[Call] = []
    call = lifting.call_of(lifting.value(value) or "")
    while call is not None and call.op in _FACTORS and lifting.shape(call.outputs[0]) == ():
        pairs = [call.inputs, call.inputs[::-1]] if call.op == "torch.mul" else [call.inputs]
        left = [one for one, other in pairs if call.op == op and isinstance(other, Ref) and _counted(lifting, other) == counted]
        if left and isinstance(left[0], Ref):
            lifting.result.cancelled.append(node.mark)
            return _applied(lifting, node, left[0], chain)
        chain.append(call)
        call = lifting.call_of(call.inputs[0].name) if isinstance(call.inputs[0], Ref) else None
    return None


def _applied(lifting: Lifting, node: Apply, value: Ref, chain: list[Call]) -> Ref:
    """Return a value with the factors of a chain, the last of which comes first."""
    for call in reversed(chain):
        inputs = tuple(each if isinstance(each, Ref) else each.value for each in call.inputs[1:])
        value = lifting.temporary(node, call.op, (value, *inputs), ())
    return value
