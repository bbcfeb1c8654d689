"""Operators that work element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from math import prod

from tvlint.ir.operators import Literal
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spelling import OF_FLAGS
from tvlint.readers.capture.lifting.equations.counted_targets import counted_again
from tvlint.readers.capture.lifting.equations.shapes import made_of
from tvlint.readers.capture.lifting.lift import Equation, Lifting, given, is_move
from tvlint.readers.capture.lifting.program import Apply, Argument, Ref

_UNARY = {
    "exp": "torch.exp", "log": "torch.log", "sqrt": "torch.sqrt", "rsqrt": "torch.rsqrt", "sin": "torch.sin",
    "cos": "torch.cos", "tanh": "torch.tanh", "erf": "torch.erf", "sigmoid": "torch.sigmoid", "reciprocal": "torch.reciprocal",
    "neg": "torch.neg", "abs": "torch.abs", "relu": "torch.relu",
    "logical_not": "torch.logical_not", "log1p": "torch.log1p", "expm1": "torch.expm1", "log2": "torch.log2",
    "sign": "torch.sign", "floor": "torch.floor", "ceil": "torch.ceil",
}  # fmt: skip

_BINARY = {
    "lt": "torch.lt", "le": "torch.le", "gt": "torch.gt", "ge": "torch.ge", "eq": "torch.eq", "ne": "torch.ne",
    "logical_and": "torch.logical_and", "logical_or": "torch.logical_or", "maximum": "torch.maximum",
    "minimum": "torch.minimum", "floor_divide": "torch.floor_divide", "pow": "torch.pow", "remainder": "torch.remainder",
}  # fmt: skip


def _unary(op: str) -> Callable[[Lifting, Apply], bool]:
    return lambda lifting, node: lifting.call(node, op, (given(node, "self"),))


def _never_marked(lifting: Lifting, node: Apply) -> bool:
    """Lift the comparison of indices with a negative mark, as of targets that do not count, where no rank is given it."""
    name, mark = lifting.moved_from(given(node, "self")), lifting.number(given(node, "other"))
    source = lifting.program.given.get(name) if name is not None else None
    if mark is None or mark >= 0 or source is None or source.numbers is None or lifting.dtype(str(name)) != "int64":
        return False
    if mark in lifting.program.negative or bool((source.numbers == mark).any()):
        return False
    lifting.result.absent.append((mark, node.mark))
    return made_of(lifting, node, float(node.op.startswith("aten.ne.")))


def _inverted(lifting: Lifting, node: Apply) -> bool:
    number = lifting.number(given(node, "self"))
    is_flag = lifting.dtype(node.outputs[0]) == "bool"
    return number is not None and is_flag and made_of(lifting, node, float(not number))


def _filled_nowhere(lifting: Lifting, node: Apply) -> bool:
    operand, mask, _ = (given(node, name) for name in ("self", "mask", "value"))
    return (
        lifting.number(mask) == 0 and _has_type_of_result(lifting, node, operand) and lifting.equate(node.outputs[0], operand)
    )


def _always_chosen(lifting: Lifting, node: Apply) -> bool:
    number, one, other = lifting.number(given(node, "condition")), given(node, "self"), given(node, "other")
    return number is not None and _widened(lifting, node, one if number else other)


def _widened(lifting: Lifting, node: Apply, operand: Argument) -> bool:
    """Lift what gives an operand of the result's dtype, repeated to its shape."""
    name, made = lifting.value(operand), lifting.program.types[node.outputs[0]]
    if name is None or lifting.dtype(name) != made.dtype:
        return False
    if lifting.shape(name) == made.shape:
        return lifting.equate(node.outputs[0], operand)
    wide = (*(1 for _ in range(len(made.shape) - len(lifting.shape(name)))), *lifting.shape(name))
    viewed = lifting.temporary(node, "torch.Tensor.view", (operand, wide), wide)
    return lifting.call(node, "torch.Tensor.expand", (viewed,), size=made.shape)


def _neutral(number: float) -> Callable[[Lifting, Apply], bool]:
    """Lift what combines flags with one flag that changes none."""

    def lift(lifting: Lifting, node: Apply) -> bool:
        one, other = _two(node)
        changed = [each for each, beside in ((one, other), (other, one)) if lifting.number(beside) == number]
        names = [lifting.value(each) for each in (one, other)]
        are_flags = all(name is not None and lifting.dtype(name) == "bool" for name in names)
        return bool(changed) and are_flags and _widened(lifting, node, changed[0])

    return lift


def _two(node: Apply) -> tuple[Argument, Argument]:
    other = "exponent" if "exponent" in node.arguments else "other"
    return given(node, "self"), given(node, other)


def _binary(op: str) -> Callable[[Lifting, Apply], bool]:
    return lambda lifting, node: lifting.call(node, op, _two(node))


def _flags(op: str) -> Callable[[Lifting, Apply], bool]:
    def lift(lifting: Lifting, node: Apply) -> bool:
        operands = (given(node, "self"),) if op == "torch.logical_not" else _two(node)
        names = [lifting.value(operand) for operand in operands]
        if any(name is None or lifting.dtype(name) != "bool" for name in names):
            return False
        return lifting.call(node, op, operands)

    return lift


def _has_type_of_result(lifting: Lifting, node: Apply, argument: Argument) -> bool:
    """Return whether an operand has the shape and the dtype of the result."""
    name = lifting.value(argument)
    return name is not None and lifting.program.types[name] == lifting.program.types[node.outputs[0]]


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
}  # fmt: skip


def _calculated(op: str) -> Callable[[Lifting, Apply], bool]:
    """Lift what is calculated of numbers throughout, as a count that is added over micro-batches: it is one too."""

    def lift(lifting: Lifting, node: Apply) -> bool:
        operands = (1.0, given(node, "self")) if op == "reciprocal" else _two(node)
        left, right = (lifting.number(operand) for operand in operands)
        divides = op in ("div", "reciprocal")
        if left is None or right is None or lifting.dtype(node.outputs[0]) == "bool" or (divides and not right):
            return False
        if node.arguments.get("rounding_mode") is not None:
            return False
        return made_of(lifting, node, _ARITHMETIC["div" if divides else op](left, _alpha(node) * right))

    return lift


def _alpha(node: Apply) -> float:
    given = node.arguments.get("alpha", 1)
    return given if isinstance(given, int | float) else 1


def _nothing_added(lifting: Lifting, node: Apply) -> bool:
    left, right = _two(node)
    for kept, other in ((left, right), (right, left)):
        if lifting.number(other) != 0 or not (kept is left or _alpha(node) == 1):
            continue
        if _has_type_of_result(lifting, node, kept):
            return lifting.equate(node.outputs[0], kept)
        name, made = lifting.value(kept), lifting.program.types[node.outputs[0]]
        if name is not None and lifting.shape(name) == made.shape:
            return lifting.call(node, "torch.Tensor.to", (kept,), dtype=made.dtype)
    return False


def _added(lifting: Lifting, node: Apply) -> bool:
    left, right = (_in_type_of_result(lifting, node, operand) for operand in _two(node))
    return lifting.call(node, "torch.add", (left, right), **_scaled_by(_alpha(node)))


def _in_type_of_result(lifting: Lifting, node: Apply, operand: Argument) -> Argument:
    """Return an operand that has the shape of the result in its dtype, to which torch casts it."""
    name, made = lifting.value(operand), lifting.program.types[node.outputs[0]]
    if name is None or lifting.program.types[name] == made or lifting.shape(name) != made.shape:
        return operand
    return lifting.temporary(node, "torch.Tensor.to", (operand,), made.shape, dtype=made.dtype)


def _scaled_by(alpha: float) -> dict[str, float]:
    return {} if alpha == 1 else {"alpha": alpha}


def _subtracted(lifting: Lifting, node: Apply) -> bool:
    return lifting.call(node, "torch.sub", _two(node), **_scaled_by(_alpha(node)))


def _subtracted_from(lifting: Lifting, node: Apply) -> bool:
    if _alpha(node) != 1:
        return False
    left, right = _two(node)
    return lifting.call(node, "torch.sub", (right, left))


def _once(lifting: Lifting, node: Apply) -> bool:
    left, right = _two(node)
    for kept, other in ((left, right), (right, left)):
        is_one = lifting.number(other) == 1 or _starts_again(lifting, other, kept)
        if is_one and _has_type_of_result(lifting, node, kept):
            return lifting.equate(node.outputs[0], kept)
        name, made = lifting.value(kept), lifting.program.types[node.outputs[0]]
        single = name is not None and lifting.program.types[name] == made.of_shape(()) and prod(made.shape) == 1
        if lifting.number(other) == 1 and name is not None and single:
            return lifting.call(node, "torch.Tensor.view", (Ref(name), made.shape))
    return False


def _starts_again(lifting: Lifting, one: Argument, gradient: Argument) -> bool:
    """Return whether `one` is what a backward pass starts with, and the other factor is a gradient of a pass already.

    Of a factor that is none the pass starts there, and the product is kept.
    """
    return lifting.value(one) in lifting.result.seeds and lifting.value(gradient) in lifting.started


def _multiplied(lifting: Lifting, node: Apply) -> bool:
    left, right = _two(node)
    for one, other in ((left, right), (right, left)):
        number = _number_for(lifting, other)
        if isinstance(number, int | float):
            return lifting.call(node, "torch.mul", (_in_shape_of_result(lifting, node, one), number))
    return lifting.call(node, "torch.mul", (left, right))


def _number_for(lifting: Lifting, argument: Argument) -> Argument:
    """Return the number that a tensor of one element is, else the argument."""
    name, number = lifting.value(argument), lifting.number(argument)
    return number if name is not None and number is not None and prod(lifting.shape(name)) == 1 else argument


def _in_shape_of_result(lifting: Lifting, node: Apply, argument: Argument) -> Argument:
    """Return an operand as wide as the result in its shape: another operand of one element may have more dimensions."""
    name, shape = lifting.value(argument), lifting.shape(node.outputs[0])
    if name is None or lifting.shape(name) == shape or prod(lifting.shape(name)) != prod(shape):
        return argument
    made = lifting.program.fresh(lifting.program.types[name].of_shape(shape))
    lifting.call(replace(node, outputs=(made,)), "torch.Tensor.view", (argument, shape))
    return Ref(made)


def _divided_by_one(lifting: Lifting, node: Apply) -> bool:
    left, right = _two(node)
    if lifting.number(right) != 1 or node.arguments.get("rounding_mode") is not None:
        return False
    return _has_type_of_result(lifting, node, left) and lifting.equate(node.outputs[0], left)


def _divided(lifting: Lifting, node: Apply) -> bool:
    left, right = _two(node)
    mode = node.arguments.get("rounding_mode")
    if mode is not None and not isinstance(mode, str):
        return False
    number = _number_for(lifting, right)
    left = _in_shape_of_result(lifting, node, left) if isinstance(number, int | float) else left
    return lifting.call(node, "torch.div", (left, number), rounding_mode=mode)


def _filled(lifting: Lifting, node: Apply) -> bool:
    value = lifting.number(given(node, "value"))
    if value is None:
        return False
    return lifting.call(node, "torch.masked_fill", (given(node, "self"), given(node, "mask"), value))


def _filled_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift what autograd computes for the gradient of a masked value, by the mask that the value had."""
    forward, gradient = lifting.forward_of(node.mark, "torch.masked_fill"), lifting.value(given(node, "self"))
    mask = lifting.value(given(node, "mask"))
    if forward is None or gradient is None or mask is None or lifting.number(given(node, "value")) != 0:
        return False
    values = [operand.name for operand in forward.inputs if isinstance(operand, Ref)]
    if values[1:] != [mask] or not lifting.shape(gradient) == lifting.shape(values[0]) == lifting.shape(forward.outputs[0]):
        return False
    return lifting.gradient(forward, (given(node, "self"),), (node.outputs[0], ""), node.mark)


def _smaller_gradient(lifting: Lifting, node: Apply) -> bool:
    """Lift what autograd computes for the gradient of the smaller or greater of two values, half of it where they are equal."""
    forward = lifting.forward_of(node.mark, *_BEYOND)
    masked, mask = (lifting.call_of(lifting.value(given(node, name)) or "") for name in ("self", "mask"))
    if forward is None or masked is None or mask is None or lifting.number(given(node, "value")) != 0:
        return False
    if (masked.op, mask.op) not in {("torch.where", "torch.gt"), ("torch.where", "torch.lt")} or mask.inputs != forward.inputs:
        return False
    equal, half, gradient = masked.inputs
    at = _BEYOND[forward.op].index(mask.op)
    halved, alike = (lifting.call_of(each.name) if isinstance(each, Ref) else None for each in (half, equal))
    if halved is None or halved.op != "torch.div" or halved.inputs != (gradient, Literal(2)):
        return False
    if alike is None or (alike.op, alike.inputs) != ("torch.eq", forward.inputs) or not isinstance(gradient, Ref):
        return False
    outputs = [node.outputs[0] if place == at else "" for place in (0, 1)]
    return lifting.gradient(forward, (gradient,), tuple(outputs), node.mark)


_BEYOND = {"torch.minimum": ("torch.gt", "torch.lt"), "torch.maximum": ("torch.lt", "torch.gt")}
"""How the first and the second of two values compare with each other where the other one is taken."""


def _chosen(lifting: Lifting, node: Apply) -> bool:
    if set(node.arguments) != {"condition", "self", "other"}:
        return False
    operands = (_number_for(lifting, given(node, name)) for name in ("self", "other"))
    return lifting.call(node, "torch.where", (given(node, "condition"), *operands))


def _held(lifting: Lifting, node: Apply) -> bool:
    """A number throughout is one, kept within bounds."""
    number = lifting.number(given(node, "self"))
    low, high = (lifting.number(node.arguments.get(name)) for name in ("min", "max"))
    if number is None or (low is None) != (node.arguments.get("min") is None):
        return False
    if (high is None) != (node.arguments.get("max") is None):
        return False
    number = number if low is None else max(number, low)
    return made_of(lifting, node, number if high is None else min(number, high))


def _bounded(lifting: Lifting, node: Apply) -> bool:
    bounds = tuple(node.arguments.get(name) for name in ("min", "max"))
    low, high = (bound if isinstance(bound, int | float) else None for bound in bounds)
    return bounds == (low, high) and lifting.call(node, "torch.clamp", (given(node, "self"),), min=low, max=high)


def _is_other_than_zero(lifting: Lifting, node: Apply) -> bool:
    name = lifting.value(given(node, "self"))
    if name is None or lifting.dtype(node.outputs[0]) != "bool" or lifting.dtype(name) == "bool":
        return False
    return lifting.call(node, "torch.ne", (given(node, "self"), 0))


def _cast(lifting: Lifting, node: Apply) -> bool:
    dtype = node.arguments.get("dtype")
    name, number = lifting.value(given(node, "self")), lifting.number(given(node, "self"))
    if number is not None and float(number).is_integer():
        lifting.numbers[node.outputs[0]] = number
    if name is not None and lifting.dtype(name) == lifting.dtype(node.outputs[0]):
        return lifting.equate(node.outputs[0], given(node, "self"))
    return isinstance(dtype, str) and lifting.call(node, "torch.Tensor.to", (given(node, "self"),), dtype=dtype)


def _counted(lifting: Lifting, node: Apply) -> bool:
    """Lift the cast of a sum of whole numbers that the step is given, as of a mask of tokens: it rounds nothing."""
    call = lifting.call_of(str(lifting.value(given(node, "self"))))
    if call is None or call.op != "torch.sum" or not isinstance(call.inputs[0], Ref):
        return False
    name = call.inputs[0].name
    moved = lifting.call_of(name)
    while moved is not None and is_move(moved.op) and isinstance(moved.inputs[0], Ref):
        name = lifting.name(moved.inputs[0].name)
        moved = lifting.call_of(name)
    source = lifting.program.given.get(name)
    is_whole = source is not None and source.numbers is not None and bool((source.numbers % 1 == 0).all())
    if not is_whole or not holds_whole_numbers(lifting.dtype(node.outputs[0])):
        return False
    lifting.result.counted.append(node.mark)
    lifting.emit(call.op, (call.inputs[0],), node.outputs, node.mark, call.attributes, node)
    return True


EQUATIONS = (
    *(Equation(name, f"{name}(x, c) is one flag where no x that is given is c", _never_marked) for name in ("eq", "ne")),
    *(Equation(name, f"{name} of one flag is one flag", _inverted) for name in ("logical_not", "bitwise_not")),
    Equation("masked_fill", "masked_fill(x, mask, value) is x where the mask holds nowhere", _filled_nowhere),
    Equation("where", "where(condition, a, b) is a, or b, where the condition is one flag", _always_chosen),
    *(
        Equation(name, f"{name} of numbers throughout is a number throughout", _calculated(name))
        for name in (*_ARITHMETIC, "reciprocal")
    ),
    *(
        Equation(name, f"{name} of flags and one that changes none gives the flags", _neutral(float(op == "torch.logical_and")))
        for name, op in (*_BINARY.items(), *OF_FLAGS.items())
        if op in ("torch.logical_and", "torch.logical_or")
    ),
    *(Equation(name, f"{name}(x) is {op}(x)", _unary(op)) for name, op in _UNARY.items()),
    *(Equation(name, f"{name}(a, b) is {op}(a, b)", _binary(op)) for name, op in _BINARY.items()),
    *(Equation(name, f"{name} of flags is {op}", _flags(op)) for name, op in OF_FLAGS.items()),
    Equation("add", "a + alpha 0 = a, and 0 + a = a, in the dtype of the sum", _nothing_added),
    Equation("add", "add(a, b, alpha) = a + alpha b", _added),
    Equation("sub", "sub(a, b, alpha) = a - alpha b", _subtracted),
    Equation("rsub", "rsub(a, b) = b - a", _subtracted_from),
    Equation("mul", "1 a = a, and the 1 that a pass starts with times a gradient is that", _once),
    Equation("mul", "a / n times n is a, for the number n of targets that count", counted_again),
    Equation("mul", "mul(a, b) = a b", _multiplied),
    Equation("div", "a / 1 = a", _divided_by_one),
    Equation("div", "div(a, b) = a / b", _divided),
    Equation("masked_fill", "masked_fill(g, mask, 0) is the gradient g of masked_fill(x, mask, value)", _filled_gradient),
    Equation(
        "masked_fill", "masked_fill(where(x = y, g / 2, g), x > y, 0) is the gradient g of minimum(x, y)", _smaller_gradient
    ),
    Equation("masked_fill", "masked_fill(x, mask, value) is value where the mask holds, else x", _filled),
    Equation("where", "where(condition, a, b) is a where the condition holds, else b", _chosen),
    Equation("clamp", "clamp(x, min, max) of a number throughout is the number, kept between them", _held),
    Equation("clamp", "clamp(x, min, max) is torch.clamp", _bounded),
    *(Equation(name, f"{name}(x, bool) is x != 0", _is_other_than_zero) for name in ("_to_copy", "to")),
    *(Equation(name, f"{name}(sum(x), int) is sum(x) where x are whole numbers", _counted) for name in ("_to_copy", "to")),
    *(Equation(name, f"{name}(x, dtype) is x in another dtype", _cast) for name in ("_to_copy", "to")),
)
