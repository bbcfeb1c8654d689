"""Steps of optimizers, which plans write out: every element of a weight by its own gradient and its own states.

What a step gives is what it overwrites: the weight, and then its states. With `step` the moments of Adam are corrected for
their start from zero; without, they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tvlint.ir.operators import Value
from tvlint.ops.field import Array, Field, Rows
from tvlint.ops.spec import Bound, Call, MisfitError, OpSpec, Trait, UnsupportedError, having, stars
from tvlint.plurals import counted

_Step: TypeAlias = Callable[[Mapping[str, float], Sequence[Array], Field], tuple[Array, ...]]


def _sgd(how: Mapping[str, float], operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    weight, gradient = operands
    decayed = gradient + field.number(how["weight_decay"]) * weight
    return (weight - field.number(how["lr"]) * decayed,)


def _momentum(how: Mapping[str, float], operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    weight, gradient, moment = operands
    decayed = gradient + field.number(how["weight_decay"]) * weight
    moment = field.number(how["momentum"]) * moment + decayed
    return weight - field.number(how["lr"]) * moment, moment


def _adam(how: Mapping[str, float], operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    weight, gradient, *moments = operands
    decayed = gradient + field.number(how["weight_decay"]) * weight
    return _by_moments(how, weight, decayed, moments, field)


def _adamw(how: Mapping[str, float], operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    weight, gradient, *moments = operands
    shrunk = weight - field.number(how["lr"] * how["weight_decay"]) * weight
    return _by_moments(how, shrunk, gradient, moments, field)


def _by_moments(
    how: Mapping[str, float], weight: Array, gradient: Array, moments: Sequence[Array], field: Field
) -> tuple[Array, ...]:
    first, second = moments
    kept, kept_squares, times = how["beta1"], how["beta2"], how["step"]
    first = field.number(kept) * first + field.number(1 - kept) * gradient
    second = field.number(kept_squares) * second + field.number(1 - kept_squares) * gradient * gradient
    rate = how["lr"] / (1 - kept**times) if times else how["lr"]
    spread = field.function("sqrt", second)
    if times:
        spread = field.number((1 - kept_squares**times) ** -0.5) * spread
    return weight - field.divide(field.number(rate) * first, spread + field.number(how["eps"])), first, second


_SGD = {"lr": 1e-3, "weight_decay": 0.0}
_MOMENTS = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "step": 0}


def _numbers(call: Call, defaults: Mapping[str, float]) -> tuple[Value, ...]:
    """Return the constants of a call, in the order of `defaults`; `betas` are the two of them."""
    given = dict(call.attributes)
    betas = given.pop("betas", None)
    if betas is not None:
        if "beta1" not in defaults or not isinstance(betas, tuple) or len(betas) != 2:
            raise UnsupportedError(f"`{call.op}` with `betas` of {betas}")
        given |= {"beta1": betas[0], "beta2": betas[1]}
    unknown = next((name for name in given if name not in defaults), None)
    if unknown is not None:
        raise UnsupportedError(f"`{call.op}` has the unknown keyword `{unknown}`")
    values = [given.get(name, default) for name, default in defaults.items()]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise UnsupportedError(f"`{call.op}` with constants that are no numbers")
    return tuple(values)


def _spec(name: str, states: int, defaults: Mapping[str, float], step: _Step, decays: bool = True) -> OpSpec:
    """Return the row of a step; `decays` says whether the decay of the weight goes into its states."""

    def bind(call: Call) -> Bound:
        call.expect(2 + states)
        shape = call.shape(0)
        if any(call.shape(position) != shape for position in range(2 + states)):
            said = f"`{call.op}` of shapes {', '.join(str(each_input) for each_input in call.inputs)}"
            raise MisfitError(said, "the weight, its gradient and its states have to be of one shape")
        names, numbers = stars(len(shape)), _numbers(call, defaults)
        decayed = decays and numbers[list(defaults).index("weight_decay")] != 0
        needs = {1 + state: frozenset({1, 2 + state} | ({0} if decayed else set())) for state in range(states)}
        linear = (frozenset(range(2 + states)),) if states < 2 else ()
        return Bound((names,) * (2 + states), (names,) * (1 + states), linear=linear, attributes=numbers, row_wise=needs)

    def evaluate(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
        how = {
            key: float(value) for key, value in zip(defaults, bound.attributes, strict=True) if isinstance(value, int | float)
        }
        return step(how, operands, field)

    def formula(field: Field, rows: Rows, operands: Sequence[Array], numbers: tuple[Value, ...]) -> Array:
        """Return the weight that a step without states gives."""
        if len(operands) != 2:
            raise UnsupportedError(f"`{name}` of {counted(len(operands), 'operand')}")
        how = {key: value for key, value in zip(defaults, numbers, strict=True) if isinstance(value, int | float)}
        return step(how, operands, field)[0]

    function = name.replace("-", "_")
    spec = OpSpec(name, (function,), bind, evaluate=evaluate, traits=frozenset({Trait.OPTIMIZER}))
    return spec if states else replace(spec, formula=formula)


SPECS = (
    _spec("sgd-step", 0, _SGD, _sgd),
    _spec("momentum-step", 1, {**_SGD, "momentum": 0.9}, _momentum),
    *having(
        (Trait.RESTRICTED,),
        _spec("adam-step", 2, _MOMENTS, _adam),
        _spec("adamw-step", 2, _MOMENTS, _adamw, decays=False),
    ),
)
