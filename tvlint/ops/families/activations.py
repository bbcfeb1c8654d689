"""Functions of one number with constants: activations beyond the plain ones, bounds, logarithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvlint.ir.operators import Literal, Value
from tvlint.ops.families.elementwise import sigmoid, truncated
from tvlint.ops.field import Array, Field
from tvlint.ops.formulas import by_formula, of_elements
from tvlint.ops.spec import Bound, Call, MisfitError, OpSpec, Steps, Trait, UnsupportedError, having, stars

_Function = Callable[..., Array]


def _bind(defaults: dict[str, Value], signs: dict[str, int], least: int) -> Callable[[Call], Bound]:
    """Return the call with every constant, given or not; `signs` says which must be positive (1) or not negative (0).

    At least `least` of them have to be there.
    """

    def bind(call: Call) -> Bound:
        call = call.with_arguments(*defaults)
        call.reject_unknown("inplace", *defaults)
        if call.attributes.get("inplace"):
            raise UnsupportedError(f"`{call.op}` overwrites its operand")
        call.expect(1)
        names = stars(len(call.shape(0)))
        constants = tuple(call.attributes.get(name, value) for name, value in defaults.items())
        if len(constants) - constants.count(None) < least:
            raise MisfitError(
                f"`{call.op}` without `{'` and `'.join(defaults)}`", f"at least {least} of its constants have to be given"
            )
        for name, value in zip(defaults, constants, strict=True):
            if not isinstance(value, int | float) and (value is not None or defaults[name] is not None):
                raise UnsupportedError(f"`{call.op}` with `{name}` {value}")
            if name in signs and isinstance(value, int | float) and value < (0 if signs[name] == 0 else 1e-12):
                raise UnsupportedError(f"`{call.op}` with `{name}` {value}")
        return Bound((names,), (names,), attributes=constants)

    return bind


def _positive(x: Array, field: Field) -> Array:
    return field.less(field.number(0), x)


def _leaky_relu(x: Array, field: Field, slope: Any) -> Array:
    return field.where(_positive(x, field), x, slope * x)


def _elu(x: Array, field: Field, alpha: Any) -> Array:
    return field.where(_positive(x, field), x, alpha * (field.function("exp", x) - field.number(1)))


def _celu(x: Array, field: Field, alpha: Any) -> Array:
    return field.where(_positive(x, field), x, alpha * (field.function("exp", field.divide(x, alpha)) - field.number(1)))


def _selu(x: Array, field: Field) -> Array:
    scale, alpha = field.number(1.0507009873554804934193349852946), field.number(1.6732632423543772848170429916717)
    result: Array = scale * _elu(x, field, alpha)
    return result


def _softplus(x: Array, field: Field, beta: Any, threshold: Any) -> Array:
    soft = field.divide(field.function("log", field.number(1) + field.function("exp", beta * x)), beta)
    return field.where(field.less(threshold, beta * x), x, soft)


def _log_sigmoid(x: Array, field: Field) -> Array:
    return field.function("log", sigmoid(x, field))


def _mish(x: Array, field: Field) -> Array:
    soft = field.function("log", field.number(1) + field.function("exp", x))
    return x * field.function("tanh", soft)


def _bounded(x: Array, field: Field, low: Any, high: Any) -> Array:
    above = x if low is None else field.where(field.less(x, low), low, x)
    return above if high is None else field.where(field.less(high, above), high, above)


def _at_least(x: Array, field: Field, low: Any) -> Array:
    return _bounded(x, field, low, None)


def _at_most(x: Array, field: Field, high: Any) -> Array:
    return _bounded(x, field, None, high)


def _relu6(x: Array, field: Field) -> Array:
    return _bounded(x, field, field.number(0), field.number(6))


def _hard_sigmoid(x: Array, field: Field) -> Array:
    return field.divide(_relu6(x + field.number(3), field), field.number(6))


def _hard_swish(x: Array, field: Field) -> Array:
    return x * _hard_sigmoid(x, field)


def _softsign(x: Array, field: Field) -> Array:
    return field.divide(x, field.number(1) + _size(x, field))


def _sign(x: Array, field: Field) -> Array:
    below = field.where(field.less(x, field.number(0)), field.number(-1), field.number(0))
    return field.where(_positive(x, field), field.number(1), below)


def _log1p(x: Array, field: Field) -> Array:
    return field.function("log", field.number(1) + x)


def _expm1(x: Array, field: Field) -> Array:
    result: Array = field.function("exp", x) - field.number(1)
    return result


def _logarithm(base: int) -> _Function:
    def function(x: Array, field: Field) -> Array:
        from math import log

        return field.divide(field.function("log", x), field.number(log(base)))

    return function


def _tan(x: Array, field: Field) -> Array:
    return field.divide(field.function("sin", x), field.function("cos", x))


def _sinh(x: Array, field: Field) -> Array:
    result: Array = field.number(0.5) * (field.function("exp", x) - field.function("exp", -x))
    return result


def _cosh(x: Array, field: Field) -> Array:
    result: Array = field.number(0.5) * (field.function("exp", x) + field.function("exp", -x))
    return result


def _exp2(x: Array, field: Field) -> Array:
    from math import log

    return field.function("exp", field.number(log(2)) * x)


def _erfc(x: Array, field: Field) -> Array:
    result: Array = field.number(1) - field.function("erf", x)
    return result


def _logit(x: Array, field: Field) -> Array:
    return field.function("log", x) - field.function("log", field.number(1) - x)


def _ceil(x: Array, field: Field) -> Array:
    result: Array = -field.function("floor", -x)
    return result


def _frac(x: Array, field: Field) -> Array:
    return x - truncated(x, field)


def _hard_shrink(x: Array, field: Field, lambd: Any) -> Array:
    return field.where(field.less(lambd, _size(x, field)), x, field.number(0))


def _soft_shrink(x: Array, field: Field, lambd: Any) -> Array:
    return x - _bounded(x, field, -lambd, lambd)


def _threshold(x: Array, field: Field, threshold: Any, value: Any) -> Array:
    return field.where(field.less(threshold, x), x, value)


def _size(x: Array, field: Field) -> Array:
    return field.where(_positive(x, field), x, -x)


def _named(name: str) -> _Function:
    return lambda x, field: field.function(name, x)


def _tanhshrink(x: Array, field: Field) -> Array:
    return x - field.function("tanh", x)


def _between(low: Value, high: Value) -> Steps:
    return (("clamp", (0, Literal(low), Literal(high))),)


def _clamps(spec: OpSpec, bounds: Callable[..., Steps]) -> OpSpec:
    """Return the operator as the one that keeps numbers between two bounds, which follow from its constants.

    `hardtanh` and `relu6` are not: at a bound they have no gradient, and `clamp` has one.
    """
    return replace(spec, steps=lambda call: bounds(*spec.bind(call).attributes))


def _spec(
    name: str, function: _Function, /, *more: str, signs: dict[str, int] | None = None, least: int = 0, **defaults: Value
) -> OpSpec:
    functions = (name.replace("-", "_"), *more)
    modules = ("torch", "torch.Tensor", "torch.nn.functional", "torch._C._nn")
    signatures = tuple(f"{module}.{function}" for function in functions for module in modules)
    return by_formula(of_elements(function), OpSpec(name, signatures, _bind(defaults, signs or {}, least)))


SPECS = (
    *having(
        (Trait.ACTIVATION, Trait.REAL),
        _spec("elu", _elu, alpha=1.0),
        _spec("celu", _celu, alpha=1.0, signs={"alpha": 1}),
        *having((Trait.HOMOGENEOUS,), _spec("leaky-relu", _leaky_relu, negative_slope=0.01)),
        _spec("mish", _mish),
        _spec("hardsigmoid", _hard_sigmoid),
        _spec("hardswish", _hard_swish),
        _spec("hardshrink", _hard_shrink, lambd=0.5, signs={"lambd": 0}),
        _spec("softplus", _softplus, beta=1, threshold=20, signs={"beta": 1}),
        *having(
            (Trait.RISING,),
            _spec("selu", _selu),
            _spec("logsigmoid", _log_sigmoid, "log_sigmoid"),
            _spec("softshrink", _soft_shrink, lambd=0.5, signs={"lambd": 0}),
        ),
    ),
    *having(
        (Trait.ACTIVATION, Trait.NO_FLAGS),
        _spec("tanhshrink", _tanhshrink),
        _spec("threshold", _threshold, least=2, threshold=None, value=None),
        *having(
            (Trait.RISING,),
            _spec("hardtanh", _bounded, min_val=-1.0, max_val=1.0),
            _spec("relu6", _relu6),
            _spec("softsign", _softsign),
        ),
    ),
    *having(
        (Trait.NONLINEAR, Trait.RISING),
        *having(
            (Trait.BOUNDED,),
            _spec("clamp", _bounded, "clip", least=1, min=None, max=None),
            _clamps(_spec("clamp-min", _at_least, least=1, min=None), lambda low: _between(low, None)),
            _clamps(_spec("clamp-max", _at_most, least=1, max=None), lambda high: _between(None, high)),
        ),
        _spec("sign", _sign, "sgn"),
        _spec("expm1", _expm1),
        _spec("exp2", _exp2),
        _spec("sinh", _sinh),
        *having(
            (Trait.NO_FLAGS,),
            _spec("floor", _named("floor")),
            _spec("ceil", _ceil),
            _spec("trunc", truncated, "fix"),
            _spec("round", _named("round")),
        ),
        _spec("atan", _named("atan"), "arctan"),
        _spec("asinh", _named("asinh"), "arcsinh"),
    ),
    *having((Trait.NONLINEAR,), _spec("cosh", _cosh), _spec("erfc", _erfc), _spec("tan", _tan)),
    *having((Trait.NONLINEAR, Trait.REAL), _spec("frac", _frac)),
    *having((Trait.NONLINEAR, Trait.RESTRICTED), _spec("acos", _named("acos"), "arccos")),
    *having(
        (Trait.NONLINEAR, Trait.RISING, Trait.RESTRICTED),
        _spec("log1p", _log1p),
        _spec("log2", _logarithm(2)),
        _spec("log10", _logarithm(10)),
        _spec("logit", _logit),
        _spec("asin", _named("asin"), "arcsin"),
        _spec("atanh", _named("atanh"), "arctanh"),
    ),
)
