"""Losses between two tensors, element by element: squared, absolute, and of chances; summed, averaged or as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tvlint.ir.operators import Value
from tvlint.ops.field import Array, Field, Rows
from tvlint.ops.formulas import by_formula, numeral, two
from tvlint.ops.spec import ONE, Bound, Call, Formula, MisfitError, OpSpec, Trait, UnsupportedError, having, stars

_Each = Callable[..., Array]
_REDUCTIONS = ("none", "mean", "sum")


_OF_EACH_ELEMENT = ("torch", "torch._C._nn")
"""Modules of functions that reduce nothing where no reduction is given (`torch.kl_div`), unlike those of `aten`."""


def _bind(
    call: Call, *, options: dict[str, Value], reductions: tuple[str, ...], commutative: bool, switches: tuple[str, ...]
) -> Bound:
    call = call.with_arguments()
    call.reject_unknown("size_average", "reduce", "reduction", "weight", "pos_weight", *switches, *options)
    call.expect(2)
    for name in ("size_average", "reduce", "weight", "pos_weight"):
        if call.attributes.get(name) is not None:
            raise UnsupportedError(f"`{call.op}` with `{name}`")
    for name in switches:
        if call.flag(name):
            raise UnsupportedError(f"`{call.op}` with `{name}`")
    if "reduction" not in call.attributes and call.op.rpartition(".")[0] in _OF_EACH_ELEMENT:
        raise UnsupportedError(f"`{call.op}` without `reduction`")
    reduction = call.attributes.get("reduction", "mean")
    if any(1 not in sizes and sizes[0] != sizes[1] for sizes in zip(call.shape(0)[::-1], call.shape(1)[::-1], strict=False)):
        raise MisfitError(f"`{call.op}` of shapes {call.shape(0)} and {call.shape(1)}", "both have to be of one shape")
    if reduction not in reductions or call.shape(0) != call.shape(1):
        raise UnsupportedError(f"`{call.op}` of shapes {call.shape(0)} and {call.shape(1)} with the reduction `{reduction}`")
    names = stars(len(call.shape(0)))
    averaged = names if reduction == "mean" else names[:1] if reduction == "batchmean" else ()
    scalar = (ONE,) if call.outputs and call.outputs[0] == (1,) else ()
    constants = tuple(call.attributes.get(name, value) for name, value in options.items())
    if not all(isinstance(value, int | float) and value > 0 for value in constants):
        raise UnsupportedError(f"`{call.op}` with {', '.join(options)} {constants}")
    return Bound(
        (names, names),
        (names if reduction == "none" else scalar,),
        reduced=frozenset() if reduction == "none" else frozenset(names) - frozenset(averaged),
        averaged=frozenset(averaged),
        attributes=constants,
        commutative=commutative,
    )


def _of_two(each: _Each) -> Formula:
    def formula(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
        return each(field, *two(operands, (), field), *(numeral(value, field) for value in attributes))

    return formula


def _size(field: Field, x: Array) -> Array:
    return field.where(field.less(x, field.number(0)), -x, x)


def _squared(field: Field, x: Array, y: Array) -> Array:
    return field.power(x - y, field.number(2))


def _absolute(field: Field, x: Array, y: Array) -> Array:
    return _size(field, x - y)


def _smooth(field: Field, x: Array, y: Array, beta: Any) -> Array:
    size = _size(field, x - y)
    return field.where(
        field.less(size, beta),
        field.divide(size * size, field.number(2) * beta),
        size - field.divide(beta, field.number(2)),
    )


def _huber(field: Field, x: Array, y: Array, delta: Any) -> Array:
    result: Array = delta * _smooth(field, x, y, delta)
    return result


def _binary(field: Field, x: Array, y: Array) -> Array:
    one = field.number(1)
    result: Array = -(y * field.function("log", x) + (one - y) * field.function("log", one - x))
    return result


def _binary_of_scores(field: Field, x: Array, y: Array) -> Array:
    result: Array = field.function("log", field.number(1) + field.function("exp", x)) - x * y
    return result


def _divergence(field: Field, x: Array, y: Array) -> Array:
    return field.where(field.equal(y, field.number(0)), field.number(0), y * (field.function("log", y) - x))


def _spec(
    name: str,
    each: _Each,
    *,
    commutative: bool = False,
    reductions: tuple[str, ...] = _REDUCTIONS,
    switches: tuple[str, ...] = (),
    **options: Value,
) -> OpSpec:
    function = name.replace("-", "_")
    signatures = f"torch.nn.functional.{function}", f"torch.{function}", f"torch._C._nn.{function}"
    bind = partial(_bind, options=options, reductions=reductions, commutative=commutative, switches=switches)
    return by_formula(_of_two(each), OpSpec(name, signatures, bind))


SPECS = (
    _spec("l1-loss", _absolute, commutative=True),
    *having(
        (Trait.REAL_AMONG,),
        _spec("mse-loss", _squared, commutative=True),
        _spec("smooth-l1-loss", _smooth, commutative=True, beta=1.0),
    ),
    *having(
        (Trait.REAL,),
        _spec("huber-loss", _huber, commutative=True, delta=1.0),
        _spec("binary-cross-entropy-with-logits", _binary_of_scores),
        *having(
            (Trait.RESTRICTED,),
            *having((Trait.ONE_TYPE,), _spec("binary-cross-entropy", _binary)),
            _spec("kl-div", _divergence, reductions=(*_REDUCTIONS, "batchmean"), switches=("log_target",)),
        ),
    ),
)
