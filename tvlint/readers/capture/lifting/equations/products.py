"""Products of matrices."""

from __future__ import annotations

from tvlint.readers.capture.lifting.equations.shapes import made_of
from tvlint.readers.capture.lifting.lift import Equation, Lifting, NotLiftedError, given, is_move
from tvlint.readers.capture.lifting.program import Apply, Argument, Ref


def _product(lifting: Lifting, node: Apply) -> bool:
    name = node.op.split(".")[1]
    operands = _matrices(lifting, given(node, "self"), given(node, "mat2"), 2 if name == "mm" else 3)
    return lifting.call(node, f"torch.{name}", operands)


def _matrices(lifting: Lifting, left: Argument, right: Argument, dims: int) -> tuple[Argument, Argument]:
    """Return two operands that are matrices, or batches of them, which can be multiplied. Raises NotLiftedError."""
    names = [lifting.value(side) for side in (left, right)]
    here, there = (() if name is None else lifting.shape(name) for name in names)
    fits = len(here) == len(there) == dims and here[:-2] == there[:-2] and here[-1] == there[-2]
    if not fits:
        raise NotLiftedError(f"tensors of shapes {here} and {there} have no product")
    return left, right


def _nothing(lifting: Lifting, node: Apply) -> bool:
    """Lift a product with zeros throughout, as of the state that a recurrent layer begins with: it is zeros."""
    operands = _matrices(lifting, given(node, "self"), given(node, "mat2"), len(lifting.shape(node.outputs[0])))
    return any(_is_nothing(lifting, operand) for operand in operands) and made_of(lifting, node, 0)


def _is_nothing(lifting: Lifting, operand: Argument) -> bool:
    """Return whether a value is zeros that the program makes, in whatever view; data may be zeros in this step alone."""
    name = lifting.value(operand)
    call = lifting.call_of(name) if name is not None and lifting.number(operand) == 0 else None
    while call is not None and is_move(call.op) and isinstance(call.inputs[0], Ref):
        call = lifting.call_of(call.inputs[0].name)
    return call is not None and call.op == "torch.zeros" and all(call.mark is not mark for _, mark in lifting.program.constants)


def _nothing_added(lifting: Lifting, node: Apply) -> bool:
    """Lift what a product with zeros throughout is added to: it is that, in the shape of the product."""
    is_nothing = any(_is_nothing(lifting, given(node, name)) for name in ("mat1", "mat2"))
    name, made = lifting.value(given(node, "self")), lifting.program.types[node.outputs[0]]
    if not is_nothing or _factor(node, "beta") != 1 or name is None or lifting.dtype(name) != made.dtype:
        return False
    _matrices(lifting, given(node, "mat1"), given(node, "mat2"), 2)
    if lifting.shape(name) == made.shape:
        return lifting.equate(node.outputs[0], Ref(name))
    wide = (*(1 for _ in range(len(made.shape) - len(lifting.shape(name)))), *lifting.shape(name))
    viewed = lifting.temporary(node, "torch.Tensor.view", (Ref(name), wide), wide)
    return lifting.call(node, "torch.Tensor.expand", (viewed,), size=made.shape)


def _factor(node: Apply, name: str) -> float:
    value = node.arguments.get(name, 1)
    return value if isinstance(value, int | float) else 1


def _scaled(lifting: Lifting, node: Apply, value: Argument, factor: float) -> Argument:
    """Return the value times a factor."""
    name = lifting.value(value)
    if factor == 1 or name is None:
        return value
    return lifting.temporary(node, "torch.mul", (value, factor), lifting.shape(name))


def _plus(lifting: Lifting, node: Apply, product: str, left: Argument, right: Argument) -> bool:
    """Lift `beta self + alpha (left right)`, which does not read `self` where beta is 0."""
    left, right = _matrices(lifting, left, right, 2 if product == "torch.mm" else 3)
    alpha, beta = _factor(node, "alpha"), _factor(node, "beta")
    shape = lifting.shape(node.outputs[0])
    if beta == 0 and alpha == 1:
        return lifting.call(node, product, (left, right))
    multiplied: Argument = lifting.temporary(node, product, (left, right), shape)
    if beta == 0:
        return lifting.call(node, "torch.mul", (multiplied, alpha))
    multiplied = _scaled(lifting, node, multiplied, alpha)
    return lifting.call(node, "torch.add", (multiplied, _scaled(lifting, node, given(node, "self"), beta)))


def _matrix(lifting: Lifting, node: Apply) -> bool:
    return _plus(lifting, node, "torch.mm", given(node, "mat1"), given(node, "mat2"))


def _batch(lifting: Lifting, node: Apply) -> bool:
    return _plus(lifting, node, "torch.bmm", given(node, "batch1"), given(node, "batch2"))


EQUATIONS = (
    Equation("mm", "mm of zeros that the program makes is zeros", _nothing),
    Equation("bmm", "bmm of zeros that the program makes is zeros", _nothing),
    Equation("addmm", "addmm(c, a, b) is c where a or b is zeros that the program makes", _nothing_added),
    Equation("mm", "mm(a, b) is torch.mm", _product),
    Equation("bmm", "bmm(a, b) is torch.bmm", _product),
    Equation("addmm", "addmm(c, a, b, beta, alpha) = beta c + alpha a b; c is not read where beta is 0", _matrix),
    Equation("baddbmm", "baddbmm(c, a, b, beta, alpha) = beta c + alpha a b; c is not read where beta is 0", _batch),
)
