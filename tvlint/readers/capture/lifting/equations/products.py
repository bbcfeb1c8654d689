"""Products of matrices."""

from __future__ import annotations

from tvlint.readers.capture.lifting.lift import Equation, Lifting, NotLiftedError, given
from tvlint.readers.capture.lifting.program import Apply, Argument


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
    Equation("mm", "mm(a, b) is torch.mm", _product),
    Equation("bmm", "bmm(a, b) is torch.bmm", _product),
    Equation("addmm", "addmm(c, a, b, beta, alpha) = beta c + alpha a b; c is not read where beta is 0", _matrix),
    Equation("baddbmm", "baddbmm(c, a, b, beta, alpha) = beta c + alpha a b; c is not read where beta is 0", _batch),
)
