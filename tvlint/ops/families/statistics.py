"""Statistics of rows: variance, norm, log-sum-exp, the index of the greatest element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvlint.ir.operators import Literal, Value
from tvlint.ops.families.reductions import centred, greatest_of_rows, mean_of_rows, reduced_dims, rows_of
from tvlint.ops.field import Array, Field, Rows
from tvlint.ops.formulas import by_formula, constant, evaluated, one
from tvlint.ops.spec import PREVIOUS, Bound, Call, Formula, Names, OpSpec, Steps, Trait, UnsupportedError, having, stars


def _rows(call: Call, attributes: tuple[Value, ...], *, sums: bool = False) -> Bound:
    """One number for every row along `dim`; one that `sums` is the sum of what the parts of the row come to."""
    names, result, along = rows_of(call)
    summed, whole = (along, frozenset[str]()) if sums else (frozenset[str](), along)
    return Bound((names,), (result,), summed, whole=whole, attributes=attributes)


def _axes(bound: Bound) -> tuple[int, ...]:
    return tuple(i for i, name in enumerate(bound.operands[0]) if name in bound.whole | bound.reduced)


def _shaped(bound: Bound, result: Array) -> tuple[Array, ...]:
    """Return a result that keeps the summed axes with size 1, without those that the call does not keep."""
    if len(bound.outputs[0]) == len(bound.operands[0]):
        return (result,)
    kept = [n for n, name in zip(result.shape, bound.operands[0], strict=True) if name not in bound.whole | bound.reduced]
    return (result.reshape(kept or [1] * len(bound.outputs[0])),)


def _bind_spread(call: Call) -> Bound:
    """`var` and `std`: `correction` is what is taken from the count, 1 by default; `unbiased` is its older form."""
    call = call.with_arguments("dim", "unbiased", "keepdim")
    dim = call.attributes.get("dim")
    if isinstance(dim, bool):
        call = replace(call, attributes={**call.attributes, "unbiased": dim, "dim": None})
    call.reject_unknown("dim", "unbiased", "correction", "keepdim")
    unbiased = call.attributes.get("unbiased")
    correction = call.attributes.get("correction")
    if correction is None:
        correction = 1 if unbiased is None else int(bool(unbiased))
    if not isinstance(correction, int):
        raise UnsupportedError(f"`{call.op}` with the correction {correction}")
    bound = _rows(call, (correction,))
    if prod(call.shape(0)[i] for i in _axes(bound)) <= correction:
        raise UnsupportedError(f"`{call.op}` of too few numbers: shape {call.shape(0)}")
    return bound


def _variance(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    x, (correction,) = one(operands), attributes
    left = rows.count - constant(correction)
    if left <= 0:
        raise UnsupportedError(f"the variance of {rows.count} numbers with the correction {correction}")
    return field.divide(rows.total(field.power(centred(field, rows, x), field.number(2))), field.number(left))


def _deviation(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    return field.function("sqrt", _variance(field, rows, operands, attributes))


def _bind_both(call: Call) -> Bound:
    """`var_mean`: the variance and the mean of every row."""
    bound = _bind_spread(call)
    return replace(bound, outputs=(*bound.outputs, *bound.outputs))


def _both_steps(call: Call) -> Steps:
    bound = _bind_both(call)
    call = call.with_arguments("dim", "unbiased", "keepdim")
    (correction,) = bound.attributes
    if correction not in (0, 1):
        raise UnsupportedError(f"`{call.op}` with the correction {correction}")
    dims, kept = Literal(_axes(bound)), Literal(call.flag("keepdim"))
    return ("var", (0, dims, Literal(correction == 1), kept)), ("mean", (0, dims, kept))


def _both(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    def each(formula: Formula, outputs: tuple[Names, ...]) -> Array:
        return evaluated(formula)(replace(bound, outputs=outputs), operands, field)[0]

    return each(_variance, bound.outputs[:1]), each(_mean, bound.outputs[1:])


def _mean(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    return mean_of_rows(field, rows, one(operands))


def _bind_norm(name: str) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call = call.with_arguments(name, "dim", "keepdim")
        call.reject_unknown(name, "dim", "keepdim", "dtype", "out")
        order = call.attributes.get(name, 2)
        if order not in (1, 2, "fro") or call.attributes.get("dtype") is not None or call.attributes.get("out") is not None:
            raise UnsupportedError(f"`{call.op}` of the order {order}")
        return _rows(call, (1 if order == 1 else 2,), sums=order == 1)

    return bind


def _norm(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    """One of the order 1 is what its bound adds up."""
    x = one(operands)
    if attributes == (1,):
        return field.where(field.less(x, field.number(0)), -x, x)
    return field.function("sqrt", rows.total(field.power(x, field.number(2))))


def _along_dims(call: Call) -> Bound:
    call = call.with_arguments("dim", "keepdim")
    call.reject_unknown("dim", "keepdim")
    if call.attributes.get("dim") in (None, ()):
        raise UnsupportedError(f"`{call.op}` without `dim`")
    return _rows(call, ())


def _log_sum_exp(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    x = one(operands)
    greatest = rows.peak(x)
    return greatest + field.function("log", rows.total(field.function("exp", x - greatest)))


def _bind_place(call: Call) -> Bound:
    return replace(_along_dims(call), zero_gradient=frozenset({0}))


def _place(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    both = replace(bound, outputs=(bound.outputs[0],) * 2)
    return (greatest_of_rows(both, operands, field)[1],)


def _least_place(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return _place(bound, [-operands[0]], field)


def _least_steps(call: Call) -> Steps:
    _bind_place(call)
    call = call.with_arguments("dim", "keepdim")
    along = Literal(call.attributes.get("dim")), Literal(call.flag("keepdim"))
    return ("neg", (0,)), ("argmax", (PREVIOUS, *along))


def _bind_unit(call: Call) -> Bound:
    """Rows divided by their norm, which is taken for `eps` where it is less."""
    call = call.with_arguments("p", "dim", "eps")
    call.reject_unknown("p", "dim", "eps", "out")
    order, eps = call.attributes.get("p", 2.0), call.attributes.get("eps", 1e-12)
    if order != 2 or call.attributes.get("out") is not None or not isinstance(eps, int | float):
        raise UnsupportedError(f"`{call.op}` by the norm of the order {order}")
    call.expect(1)
    names = stars(len(call.shape(0)))
    gone = reduced_dims(replace(call, attributes={"dim": call.attributes.get("dim", 1)}), len(names))
    return Bound((names,), (names,), whole=frozenset(names[i] for i in gone), attributes=(gone, eps))


def _unit_steps(call: Call) -> Steps:
    dims, eps = _bind_unit(call).attributes
    norm = ("norm", (0, Literal(2), Literal(dims), Literal(True)))
    return norm, ("clamp", (PREVIOUS, Literal(eps), Literal(None))), ("div", (0, PREVIOUS))


def _unit(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    _, eps = bound.attributes
    least = field.number(eps if isinstance(eps, int | float) else 0)
    norm = field.function("sqrt", (operands[0] * operands[0]).sum(axis=_axes(bound), keepdims=True))
    return (field.divide(operands[0], field.where(field.less(norm, least), least, norm)),)


def _bind_likeness(call: Call) -> Bound:
    """Return the cosine of the angle between rows: their product, divided by norms that are taken for `eps` where they are
    less.
    """
    call = call.with_arguments("dim", "eps")
    call.reject_unknown("dim", "eps")
    call.expect(2)
    names, eps = stars(len(call.shape(0))), call.attributes.get("eps", 1e-8)
    if call.shape(0) != call.shape(1) or isinstance(eps, bool) or not isinstance(eps, int | float):
        raise UnsupportedError(f"`{call.op}` of shapes {call.shape(0)} and {call.shape(1)}")
    gone = reduced_dims(replace(call, attributes={"dim": call.attributes.get("dim", 1)}), len(names))
    kept = tuple(name for i, name in enumerate(names) if i not in gone)
    along = frozenset(names[i] for i in gone)
    return Bound((names, names), (kept,), whole=along, attributes=(gone, eps), commutative=True)


def _likeness_steps(call: Call) -> Steps:
    dims, eps = _bind_likeness(call).attributes
    product, norms = (
        ("mul", (0, 1)),
        tuple(
            step
            for place in (0, 1)
            for step in (
                ("norm", (place, Literal(2), Literal(dims), Literal(False))),
                ("clamp", (PREVIOUS, Literal(eps), Literal(None))),
            )
        ),
    )
    return product, ("sum", (PREVIOUS, Literal(dims))), *norms, ("mul", (PREVIOUS, PREVIOUS - 2)), ("div", (1 - 7, PREVIOUS))


def _likeness(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    left, right = operands
    _, eps = bound.attributes
    axes, least = _axes(bound), field.number(eps if isinstance(eps, int | float) else 0)
    norms = [field.function("sqrt", (x * x).sum(axis=axes, keepdims=True)) for x in operands]
    one, other = (field.where(field.less(norm, least), least, norm) for norm in norms)
    return _shaped(bound, field.divide((left * right).sum(axis=axes, keepdims=True), one * other))


def _bind_product(call: Call) -> Bound:
    call = call.with_arguments("dim", "keepdim")
    call.reject_unknown("dim", "keepdim")
    return _rows(call, ())


def _product(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return _shaped(bound, operands[0].prod(axis=_axes(bound), keepdims=True))


def _torch(*names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names for module in ("torch", "torch.Tensor", "torch.functional"))


SPECS = (
    *having(
        (Trait.NONLINEAR, Trait.REAL),
        by_formula(_variance, OpSpec("var", _torch("var"), _bind_spread)),
        by_formula(_deviation, OpSpec("std", _torch("std"), _bind_spread)),
        OpSpec("var-mean", ("torch.var_mean",), _bind_both, steps=_both_steps, evaluate=_both),
        *having(
            (Trait.NORM,),
            by_formula(
                _norm,
                OpSpec("norm", _torch("norm"), _bind_norm("p"), undone_by=frozenset({"pow", "mul", "norm", "vector-norm"})),
            ),
            by_formula(
                _norm, OpSpec("vector-norm", ("torch.linalg.vector_norm", "torch.linalg_vector_norm"), _bind_norm("ord"))
            ),
        ),
        OpSpec("normalize", ("torch.nn.functional.normalize",), _bind_unit, steps=_unit_steps, evaluate=_unit),
    ),
    *having(
        (Trait.NONLINEAR,),
        OpSpec(
            "cosine-similarity",
            ("torch.nn.functional.cosine_similarity", "torch.cosine_similarity"),
            _bind_likeness,
            steps=_likeness_steps,
            evaluate=_likeness,
            traits=frozenset({Trait.REAL_AMONG}),
        ),
        OpSpec("prod", _torch("prod"), _bind_product, evaluate=_product),
    ),
    *having(
        (Trait.REDUCTION, Trait.SOFTMAX),
        by_formula(
            _log_sum_exp,
            OpSpec("logsumexp", _torch("logsumexp"), _along_dims, undone_by=frozenset({"exp", "logsumexp"})),
        ),
    ),
    *having(
        (Trait.CHOICE, Trait.NONLINEAR, Trait.NO_FLAGS),
        OpSpec("argmax", _torch("argmax"), _bind_place, evaluate=_place, dimension=(0, None)),
        OpSpec("argmin", _torch("argmin"), _bind_place, steps=_least_steps, evaluate=_least_place, dimension=(0, None)),
    ),
)
