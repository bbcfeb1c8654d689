"""Operators that work element by element, with NumPy broadcasting."""

from __future__ import annotations

from collections.abc import Callable

from tvlint.ir.plan import Literal, Value
from tvlint.ops.spec import ONE, Bound, Call, Names, OpSpec, Shape, UnsupportedError, stars


def _broadcast(call: Call) -> tuple[tuple[Names, ...], Names, tuple[Value, ...]]:
    """Names of the tensor operands and the output, and the literals with their positions."""
    shapes: list[Shape] = []
    literals: list[Value] = []
    for position, operand in enumerate(call.inputs):
        if isinstance(operand, Literal):
            literals += [position, operand.value]
        else:
            shapes.append(operand)
    if not shapes:
        raise UnsupportedError(f"`{call.op}` of constants only")
    rank = max(len(shape) for shape in shapes)
    sizes = [max((s[i - rank + len(s)] for s in shapes if i - rank + len(s) >= 0), default=1) for i in range(rank)]
    names = stars(rank)
    operands = []
    for shape in shapes:
        offset = rank - len(shape)
        own = []
        for position, size in enumerate(shape):
            wide = sizes[offset + position]
            if size not in (1, wide):
                raise UnsupportedError(f"`{call.op}` of shapes {', '.join(map(str, shapes))}")
            own.append(names[offset + position] if size == wide else ONE)
        operands.append(tuple(own))
    return tuple(operands), names, tuple(literals)


def _sum(call: Call) -> Bound:
    call.reject_unknown("alpha")
    operands, output, literals = _broadcast(call)
    alpha = call.attributes.get("alpha", 1)
    if literals:
        return Bound(operands, (output,), attributes=(alpha, *literals))
    return Bound(
        operands, (output,), linear=(frozenset({0, 1}),), attributes=(alpha,), commutative=alpha == 1 and call_is_add(call)
    )


def call_is_add(call: Call) -> bool:
    """Whether the call adds (rather than subtracts)."""
    return call.op.rsplit(".", 1)[-1].strip("_") in ("add", "iadd", "radd")


def _product(call: Call) -> Bound:
    call.reject_unknown()
    operands, output, literals = _broadcast(call)
    linear = tuple(frozenset({position}) for position in range(len(operands)))
    return Bound(operands, (output,), linear=linear, attributes=literals, commutative=len(operands) == 2)


def _quotient(call: Call) -> Bound:
    call.reject_unknown("rounding_mode")
    operands, output, literals = _broadcast(call)
    if call.attributes.get("rounding_mode") is not None:
        return Bound(operands, (output,), attributes=(call.attributes["rounding_mode"], *literals))
    divides_by_tensor = isinstance(call.inputs[0], Literal)
    return Bound(operands, (output,), linear=() if divides_by_tensor else (frozenset({0}),), attributes=literals)


def _power(call: Call) -> Bound:
    call.reject_unknown()
    operands, output, literals = _broadcast(call)
    return Bound(operands, (output,), attributes=literals)


def _unary(*attributes: str) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call.reject_unknown("inplace", *attributes)
        if len(call.inputs) != 1:
            raise UnsupportedError(f"`{call.op}` of {len(call.inputs)} operands")
        names = stars(len(call.shape(0)))
        return Bound((names,), (names,), attributes=tuple(call.attributes.get(name) for name in attributes))

    return bind


def _linear_unary(*attributes: str) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call.reject_unknown(*attributes)
        names = stars(len(call.shape(0)))
        literals = tuple(operand.value for operand in call.inputs[1:] if isinstance(operand, Literal))
        if len(literals) != len(call.inputs) - 1:
            raise UnsupportedError(f"`{call.op}` of {len(call.inputs)} tensors")
        given = tuple(call.attributes.get(name) for name in attributes)
        return Bound((names,), (names,), linear=(frozenset({0}),), attributes=(*given, *literals))

    return bind


def _torch(*names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names for module in ("torch", "torch.Tensor", "torch.nn.functional"))


SPECS = (
    OpSpec("add", (*_torch("add"), "operator.add"), _sum),
    OpSpec("sub", (*_torch("sub"), "operator.sub"), _sum),
    OpSpec("mul", (*_torch("mul"), "operator.mul"), _product),
    OpSpec("div", (*_torch("div"), "operator.truediv"), _quotient),
    OpSpec("pow", (*_torch("pow"), "operator.pow"), _power),
    OpSpec("neg", _torch("neg"), _linear_unary()),
    OpSpec("float", ("torch.Tensor.float",), _linear_unary()),
    OpSpec("half", ("torch.Tensor.half",), _linear_unary()),
    OpSpec("bfloat16", ("torch.Tensor.bfloat16",), _linear_unary()),
    OpSpec(
        "to",
        ("torch.Tensor.to", "torch.Tensor.type_as", "nnscaler.runtime.function.to"),
        _linear_unary("dtype", "dtype_or_device", "device"),
    ),
    *(
        OpSpec(name, _torch(name), _unary())
        for name in ("rsqrt", "sqrt", "exp", "log", "sin", "cos", "tanh", "sigmoid", "relu", "silu", "abs")
    ),
    OpSpec("gelu", _torch("gelu"), _unary("approximate")),
)
