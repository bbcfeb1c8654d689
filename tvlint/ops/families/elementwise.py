"""Operators that work element by element, with NumPy broadcasting."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import pi, sqrt
from typing import Any

from tvlint.ir.operators import Literal, Value
from tvlint.ops.field import Array, Field, Floats, Rows
from tvlint.ops.formulas import by_formula, constant, evaluated, of_elements, one, two, with_constants
from tvlint.ops.named_arrays import aligned, every_name, spread
from tvlint.ops.spec import (
    ONE,
    PREVIOUS,
    Bound,
    Call,
    Evaluate,
    Formula,
    MisfitError,
    Names,
    OpSpec,
    Shape,
    Steps,
    Trait,
    UnsupportedError,
    having,
    stars,
)
from tvlint.ops.spelling import in_functional
from tvlint.plurals import counted


def broadcast(call: Call) -> tuple[tuple[Names, ...], Names, tuple[Value, ...]]:
    """Return names of the tensor operands and the output, and the literals with their positions."""
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
        own_names = []
        for position, size in enumerate(shape):
            wide = sizes[offset + position]
            if size not in (1, wide):
                said = f"`{call.op}` of shapes {', '.join(map(str, shapes))}"
                expected = f"dimension {position} of {shape}, {size} long, has to be 1 or {wide} long"
                raise MisfitError(said, expected)
            own_names.append(names[offset + position] if size == wide else ONE)
        operands.append(tuple(own_names))
    return tuple(operands), names, tuple(literals)


def _two(call: Call) -> tuple[tuple[Names, ...], Names, tuple[Value, ...]]:
    """As `broadcast`, of two operands that are numbers."""
    if len(call.inputs) != 2:
        raise UnsupportedError(f"`{call.op}` of {counted(len(call.inputs), 'operand')}")
    reject_flags(call)
    return broadcast(call)


def reject_flags(call: Call) -> None:
    """Raise UnsupportedError for a flag among the constants: `mask * True` is a mask, and `mask * 1.0` is none."""
    for operand in call.inputs:
        if isinstance(operand, Literal) and isinstance(operand.value, bool):
            raise UnsupportedError(f"`{call.op}` with {operand.value}, which is no number")


def _sum(call: Call) -> Bound:
    call.reject_unknown("alpha")
    operands, output, literals = _two(call)
    alpha = call.attributes.get("alpha", 1)
    if literals:
        linear = (frozenset({0}),) if literals[1] == 0 else ()
        return Bound(operands, (output,), linear=linear, attributes=(alpha, *literals))
    return Bound(
        operands, (output,), linear=(frozenset({0, 1}),), attributes=(alpha,), commutative=alpha == 1 and call_is_add(call)
    )


def call_is_add(call: Call) -> bool:
    """Return whether the call adds (rather than subtracts)."""
    return call.op.rsplit(".", 1)[-1].strip("_") in ("add", "iadd", "radd")


def _product(call: Call) -> Bound:
    call.reject_unknown()
    operands, output, literals = _two(call)
    linear = tuple(frozenset({position}) for position in range(len(operands)))
    return Bound(operands, (output,), linear=linear, attributes=literals, commutative=len(operands) == 2)


def _quotient(call: Call) -> Bound:
    call.reject_unknown("rounding_mode")
    operands, output, literals = _two(call)
    if call.attributes.get("rounding_mode") is not None:
        return Bound(operands, (output,), attributes=(call.attributes["rounding_mode"], *literals))
    divides_by_tensor = isinstance(call.inputs[0], Literal)
    return Bound(operands, (output,), linear=() if divides_by_tensor else (frozenset({0}),), attributes=literals)


def _floor_division(call: Call) -> Bound:
    """Quotients that are rounded, which torch does not differentiate."""
    bound = _two_numbers(call)
    return replace(bound, zero_gradient=frozenset(range(len(bound.operands))))


def _two_numbers(call: Call) -> Bound:
    """Return a function of two numbers of which nothing is known, such as a power or what is left of a division."""
    call.reject_unknown()
    operands, output, literals = _two(call)
    return Bound(operands, (output,), attributes=literals)


def _product_with_logarithm(call: Call) -> Bound:
    """`x log(y)`, and 0 where `x` is."""
    bound = _two_numbers(call)
    return bound if isinstance(call.inputs[0], Literal) else replace(bound, linear=(frozenset({0}),))


def two_tensors(call: Call) -> Bound:
    """Bind a function of two tensors that may be exchanged, which is linear in neither."""
    call.reject_unknown()
    call.expect(2)
    operands, output, _ = broadcast(call)
    return Bound(operands, (output,), commutative=True)


def _interpolation(call: Call) -> Bound:
    """`a + weight * (b - a)`."""
    call = call.with_arguments("weight")
    call.reject_unknown("weight")
    weight = call.attributes.get("weight")
    call.expect(3 if weight is None else 2)
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        raise UnsupportedError(f"`{call.op}` with the weight {weight}")
    operands, output, _ = broadcast(call)
    return Bound(operands, (output,), linear=(frozenset({0, 1}),), attributes=() if weight is None else (weight,))


def _interpolation_steps(call: Call) -> Steps:
    weight = _interpolation(call).attributes
    scale = Literal(weight[0]) if weight else 2
    return ("sub", (1, 0)), ("mul", (PREVIOUS, scale)), ("add", (0, PREVIOUS))


def _interpolated(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    first, second, *weight = aligned(bound, operands, bound.outputs[0])
    scale = weight[0] if weight else field.number(constant(bound.attributes[0]))
    return (first + scale * (second - first),)


def _added_product(call: Call) -> Bound:
    """`a + value * b * c`, or with a quotient in place of the product."""
    call.reject_unknown("value")
    call.expect(3)
    if not isinstance(call.attributes.get("value", 1), int | float):
        raise UnsupportedError(f"`{call.op}` with the value {call.attributes['value']}")
    operands, output, literals = broadcast(call)
    if literals:
        raise UnsupportedError(f"`{call.op}` of constants")
    return Bound(operands, (output,), attributes=(call.attributes.get("value", 1),))


def _added_steps(op: str) -> Callable[[Call], Steps]:
    def steps(call: Call) -> Steps:
        (value,) = _added_product(call).attributes
        scaled: Steps = (("mul", (PREVIOUS, Literal(value))),) if value != 1 else ()
        return (op, (1, 2)), *scaled, ("add", (0, PREVIOUS))

    return steps


def _added_of(op: str) -> Callable[[Bound, Sequence[Array], Field], tuple[Array, ...]]:
    def evaluate(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
        added, one, other = aligned(bound, operands, bound.outputs[0])
        (value,) = bound.attributes
        product = one * other if op == "mul" else field.divide(one, other)
        return (added + (field.number(value) * product if isinstance(value, int | float) and value != 1 else product),)

    return evaluate


def _squared(call: Call) -> Bound:
    """`square` is the power of 2, under its name."""
    call.reject_unknown()
    call.expect(1)
    return _two_numbers(replace(call, inputs=(call.inputs[0], Literal(2))))


def _unary(*attributes: str) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call.reject_unknown("inplace", *attributes)
        if call.attributes.get("inplace"):
            raise UnsupportedError(f"`{call.op}` overwrites its operand")
        call.expect(1)
        names = stars(len(call.shape(0)))
        return Bound((names,), (names,), attributes=tuple(call.attributes.get(name) for name in attributes))

    return bind


def _linear_unary(*attributes: str) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call.reject_unknown(*attributes)
        names = stars(len(call.shape(0)))
        literals = tuple(operand.value for operand in call.inputs[1:] if isinstance(operand, Literal))
        if len(literals) != len(call.inputs) - 1:
            raise UnsupportedError(f"`{call.op}` of {counted(len(call.inputs), 'tensor')}")
        given = (*(call.attributes.get(name) for name in attributes), *literals)
        linear = () if any(holds_whole_numbers(value) for value in given) else (frozenset({0}),)
        return Bound((names,), (names,), linear=linear, attributes=given)

    return bind


_HOW_A_CAST_IS_STORED = ("copy", "memory_format", "non_blocking")
"""What `to` takes beside the type and device: the numbers are the same, in whatever order, place or time."""

_DEVICE = re.compile(r"(cpu|cuda|hpu|mps|npu|xpu)(:\d+)?")
"""Devices that keep numbers as they are (`meta` keeps none)."""


def _to(call: Call) -> Bound:
    """A type that is given by its number is not understood: most numbers stand for types that numbers are rounded to."""
    given = [operand.value for operand in call.inputs if isinstance(operand, Literal)]
    numbers = [value for value in (*given, call.attributes.get("dtype")) if isinstance(value, int)]
    if any(not isinstance(value, bool) for value in numbers) or (given and isinstance(given[0], bool)):
        raise UnsupportedError(f"`{call.op}` to a type or device that is given by its number")
    kept = {name: value for name, value in call.attributes.items() if name not in _HOW_A_CAST_IS_STORED}
    bound = _linear_unary("dtype", "dtype_or_device", "device")(replace(call, attributes=kept))
    named = [value.removeprefix("torch.") if isinstance(value, str) else value for value in bound.attributes]
    named = [None if isinstance(value, str) and _DEVICE.fullmatch(value) else value for value in named]
    said = [value for value in named if value is not None]
    if call.op.startswith("nnscaler.") and len(call.inputs) == 1 and not kept:
        raise MisfitError(f"`{call.op}` of one operand", "the type or device has to be given")
    return replace(bound, attributes=tuple(named if len(said) > 1 else said))


def _cast_to(dtype: str) -> Callable[[Call], Bound]:
    """Return a method that is named after the type that it casts to."""

    def bind(call: Call) -> Bound:
        call.expect(1)
        return replace(_linear_unary()(call), attributes=(dtype,))

    return bind


def holds_whole_numbers(dtype: Value) -> bool:
    """Return whether `dtype` names a type that a real number is rounded to, as torch or plan text spell it, or is the number
    of some type: casting to it is not linear.
    """
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        return True
    return isinstance(dtype, str) and _WHOLE.match(dtype.rsplit(".", 1)[-1]) is not None


_WHOLE = re.compile(r"q?u?int|[iu]\d|long|short|char|byte|bool", re.IGNORECASE)


def pair(bound: Bound, operands: Sequence[Array], field: Field, literals: Sequence[Value]) -> tuple[list[str], list[Array]]:
    """Return the names of the result without those of size 1, and all operands with constants in their places."""
    names = every_name(bound)
    return names, with_constants(aligned(bound, operands, names), literals, field)


def placed(bound: Bound, names: list[str], result: Array) -> tuple[Array, ...]:
    """Return the one result, from an array with the axes `names`."""
    return (spread(result, names, bound.outputs[0]),)


def _linear_combination(sign: int) -> Formula:
    def formula(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
        alpha, *literals = attributes
        left, right = two(operands, literals, field)
        if not isinstance(alpha, int | float):
            raise UnsupportedError(f"`alpha` is {alpha}")
        return left + field.number(sign * alpha) * right

    return formula


def _times(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    left, right = two(operands, attributes, field)
    return left * right


def _over(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    rounding, *literals = attributes if len(attributes) % 2 else (None, *attributes)
    quotient = field.divide(*two(operands, literals, field))
    if rounding not in (None, "floor", "trunc"):
        raise UnsupportedError(f"`rounding_mode` is {rounding}")
    if rounding == "floor":
        quotient = field.function("floor", quotient)
    return truncated(quotient, field) if rounding == "trunc" else quotient


def _rest(rounded: Callable[[Array, Field], Array]) -> Evaluate:
    """Return what is left of the first operand after a division by the second whose quotient is rounded."""

    def evaluate(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
        names, (left, right) = pair(bound, operands, field, bound.attributes)
        return placed(bound, names, left - right * rounded(field.divide(left, right), field))

    return evaluate


def _times_logarithm(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    names, (left, right) = pair(bound, operands, field, bound.attributes)
    is_zero, product = field.equal(left, field.number(0)), left * field.function("log", right)
    return placed(bound, names, field.where(is_zero, field.number(0), product))


def _floor_quotient(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    names, (left, right) = pair(bound, operands, field, bound.attributes)
    return placed(bound, names, field.function("floor", field.divide(left, right)))


def truncated(x: Array, field: Field) -> Array:
    """Return the whole number next to `x` towards zero."""
    return field.where(field.less(x, field.number(0)), -field.function("floor", -x), field.function("floor", x))


def _to_the_power(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    return field.power(*two(operands, attributes, field))


def _named_function(name: str) -> Callable[[Array, Field], Array]:
    return lambda x, field: field.function(name, x)


def sigmoid(x: Array, field: Field) -> Array:
    """1 / (1 + exp(-x))."""
    return field.function("sigmoid", x)


def silu(x: Array, field: Field) -> Array:
    """x sigmoid(x)."""
    return x * sigmoid(x, field)


def _relu(x: Array, field: Field) -> Array:
    return field.where(field.less(field.number(0), x), x, field.number(0))


def _abs(x: Array, field: Field) -> Array:
    return field.where(field.less(x, field.number(0)), -x, x)


def _gelu(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    x, way = one(operands), attributes[0]
    if way not in (None, "none", "tanh"):
        raise UnsupportedError(f"`approximate` is {way}")
    if way == "tanh":
        inner = field.number(sqrt(2 / pi)) * (x + field.number(0.044715) * field.power(x, field.number(3)))
        return field.number(0.5) * x * (field.number(1) + field.function("tanh", inner))
    return field.number(0.5) * x * (field.number(1) + field.function("erf", field.number(sqrt(0.5)) * x))


def _gated(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    gate, up = two(operands, attributes, field)
    return silu(gate, field) * up


def _swiglu(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    if len(operands) == 1:
        half = operands[0].shape[-1] // 2
        return (silu(operands[0][..., :half], field) * operands[0][..., half:],)
    return evaluated(_gated)(bound, operands, field)


def _bind_swiglu(call: Call) -> Bound:
    call.reject_unknown()
    call.expect(1, 2)
    if len(call.inputs) == 2:
        operands, output, _ = broadcast(call)
        return Bound(operands, (output,), linear=(frozenset({1}),))
    names = stars(len(call.shape(0)))
    if not names or call.shape(0)[-1] % 2:
        raise MisfitError(f"`{call.op}` of shape {call.shape(0)}", "the last dimension has to be even")
    sizes = {"half": call.shape(0)[-1] // 2}
    return Bound((names,), ((*names[:-1], "half"),), whole=frozenset({names[-1], "half"}), sizes=sizes)


def _glu(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    axis = next(at for at, name in enumerate(bound.operands[0]) if name in bound.whole)
    value, gate = np.split(operands[0], 2, axis)
    return (value * sigmoid(gate, field),)


def _bind_glu(call: Call) -> Bound:
    call = call.with_arguments("dim")
    call.reject_unknown("dim")
    call.expect(1)
    names, dim = stars(len(call.shape(0))), call.attributes.get("dim", -1)
    if not isinstance(dim, int) or isinstance(dim, bool) or not -len(names) <= dim < len(names):
        raise UnsupportedError(f"`{call.op}` over the dimension {dim}")
    at = dim % len(names)
    if call.shape(0)[at] % 2:
        raise MisfitError(f"`{call.op}` of shape {call.shape(0)}", f"dimension {dim} has to be even")
    sizes = {"half": call.shape(0)[at] // 2}
    return Bound((names,), ((*names[:at], "half", *names[at + 1 :]),), whole=frozenset({names[at], "half"}), sizes=sizes)


def _cast(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return the operand; flags of what is no zero; whole floats as they are, without a gradient."""
    import numpy as np

    rounded = [str(value).rsplit(".", 1)[-1] for value in bound.attributes if holds_whole_numbers(value)]
    if rounded == ["bool"]:
        return (field.where(field.equal(operands[0], 0), field.number(0), field.number(1)),)
    if not rounded:
        return (operands[0],)
    real = np.real(operands[0])
    if not isinstance(field, Floats) or not np.array_equal(np.rint(real), real) or not np.isfinite(real).all():
        raise UnsupportedError("a cast that rounds")
    return (real,)


def _same(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return (operands[0],)


_FUNCTIONS: dict[str, Callable[[Array, Field], Array]] = {
    **{name: _named_function(name) for name in ("sqrt", "exp", "log", "sin", "cos", "tanh", "erf")},
    "rsqrt": lambda x, field: field.divide(field.number(1), field.function("sqrt", x)),
    "reciprocal": lambda x, field: field.divide(field.number(1), x),
    "sigmoid": sigmoid,
    "silu": silu,
    "relu": _relu,
    "abs": _abs,
}

_TRAITS = {
    "exp": (Trait.NONLINEAR, Trait.RISING, Trait.EXPONENTIAL),
    "erf": (Trait.NONLINEAR, Trait.RISING),
    **dict.fromkeys(("log", "sqrt"), (Trait.NONLINEAR, Trait.RISING, Trait.RESTRICTED)),
    **dict.fromkeys(("sin", "cos"), (Trait.NONLINEAR,)),
    "abs": (Trait.NONLINEAR, Trait.NO_FLAGS),
    **dict.fromkeys(("rsqrt", "reciprocal"), (Trait.NONLINEAR, Trait.RESTRICTED)),
    **dict.fromkeys(("sigmoid", "tanh"), (Trait.ACTIVATION, Trait.RISING)),
    "relu": (Trait.ACTIVATION, Trait.RISING, Trait.HOMOGENEOUS, Trait.NO_FLAGS),
    "silu": (Trait.ACTIVATION, Trait.REAL),
}

_SQUARES = frozenset({"pow", "mul", "norm", "vector-norm"})
_UNDONE_BY = {
    "sqrt": _SQUARES,
    "log": frozenset({"exp", "logsumexp"}),
    "exp": frozenset({"log"}),
    "reciprocal": frozenset({"reciprocal", "div", "pow"}),
    "rsqrt": frozenset({"reciprocal", "div", "pow"}),
}


def _log_of_sum(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    left, right = two(operands, attributes, field)
    return field.function("log", field.function("exp", left) + field.function("exp", right))


SPECS = (
    *having(
        (Trait.SUM, Trait.RISING),
        by_formula(_linear_combination(1), OpSpec("add", (*in_functional("add"), "operator.add"), _sum)),
        *having(
            (Trait.DIFFERENCE,),
            by_formula(_linear_combination(-1), OpSpec("sub", (*in_functional("sub"), "operator.sub"), _sum)),
        ),
    ),
    *having(
        (Trait.SCALING, Trait.PRODUCT),
        by_formula(_times, OpSpec("mul", (*in_functional("mul"), "operator.mul"), _product)),
    ),
    *having(
        (Trait.SCALING, Trait.RESTRICTED),
        by_formula(_over, OpSpec("div", (*in_functional("div"), "operator.truediv"), _quotient)),
    ),
    *having(
        (Trait.NONLINEAR, Trait.RESTRICTED, Trait.NO_TWO_FLAGS),
        OpSpec(
            "floor-divide",
            (*in_functional("floor_divide"), "operator.floordiv"),
            _floor_division,
            evaluate=_floor_quotient,
        ),
        OpSpec(
            "remainder",
            (*in_functional("remainder"), "operator.mod"),
            _two_numbers,
            evaluate=_rest(_named_function("floor")),
        ),
        OpSpec("fmod", in_functional("fmod"), _two_numbers, evaluate=_rest(truncated)),
    ),
    *having(
        (Trait.NONLINEAR, Trait.RESTRICTED),
        OpSpec("xlogy", in_functional("xlogy"), _product_with_logarithm, evaluate=_times_logarithm),
    ),
    *having(
        (Trait.NONLINEAR, Trait.REAL_AMONG),
        by_formula(_log_of_sum, OpSpec("logaddexp", in_functional("logaddexp"), two_tensors)),
    ),
    *having(
        (Trait.ONE_TYPE, Trait.REAL),
        OpSpec("lerp", in_functional("lerp"), _interpolation, steps=_interpolation_steps, evaluate=_interpolated),
    ),
    *having(
        (Trait.NONLINEAR,),
        *having(
            (Trait.NO_FLAGS,),
            OpSpec("addcmul", in_functional("addcmul"), _added_product, steps=_added_steps("mul"), evaluate=_added_of("mul")),
        ),
        by_formula(_to_the_power, OpSpec("pow", (*in_functional("square"), "square"), _squared)),
        *having(
            (Trait.REAL,),
            OpSpec("swiglu", ("swiglu",), _bind_swiglu, evaluate=_swiglu, formula=_gated, halves=(0, "silu")),
            OpSpec("glu", ("torch.nn.functional.glu",), _bind_glu, evaluate=_glu, halves=(1, "sigmoid")),
        ),
    ),
    *having(
        (Trait.NONLINEAR, Trait.RESTRICTED, Trait.REAL_AMONG),
        OpSpec("addcdiv", in_functional("addcdiv"), _added_product, steps=_added_steps("div"), evaluate=_added_of("div")),
    ),
    *having(
        (Trait.NONLINEAR, Trait.RESTRICTED, Trait.NO_TWO_FLAGS),
        by_formula(
            _to_the_power,
            OpSpec(
                "pow",
                (*in_functional("pow"), "operator.pow", "_operator.pow"),
                _two_numbers,
                undone_by=_SQUARES | {"sqrt"},
            ),
        ),
    ),
    *having(
        (Trait.NEGATION,),
        by_formula(
            of_elements(lambda x, field: -x),
            OpSpec("neg", (*in_functional("neg"), "operator.neg", "_operator.neg"), _linear_unary()),
        ),
    ),
    *having(
        (Trait.CONVERSION,),
        OpSpec("to", ("torch.Tensor.float", "float"), _cast_to("float32"), evaluate=_same),
        OpSpec("to", ("torch.Tensor.double", "double"), _cast_to("float64"), evaluate=_same),
        OpSpec("to", ("torch.Tensor.half", "half"), _cast_to("float16"), evaluate=_same),
        OpSpec("to", ("torch.Tensor.bfloat16", "bfloat16"), _cast_to("bfloat16"), evaluate=_same),
        OpSpec(
            "to",
            ("torch.Tensor.to", "torch.Tensor.type_as", "nnscaler.runtime.function.to"),
            _to,
            evaluate=_cast,
        ),
    ),
    *(
        by_formula(
            of_elements(function),
            OpSpec(
                name,
                in_functional(name),
                _unary(),
                traits=frozenset(_TRAITS.get(name, ())),
                undone_by=_UNDONE_BY.get(name, frozenset()),
            ),
        )
        for name, function in _FUNCTIONS.items()
    ),
    *having((Trait.ACTIVATION, Trait.REAL), by_formula(_gelu, OpSpec("gelu", in_functional("gelu"), _unary("approximate")))),
)
