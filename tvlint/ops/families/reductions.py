"""Sums, means, and operators that need whole rows: softmax, normalisation, losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from tvlint.ir.operators import Literal, Value
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.field import Array, Field, Rows
from tvlint.ops.formulas import by_formula, evaluated, numeral, one
from tvlint.ops.named_arrays import align, as_array, contract, spread
from tvlint.ops.spec import (
    ONE,
    PREVIOUS,
    Bound,
    Call,
    MisfitError,
    Names,
    OpSpec,
    Steps,
    Trait,
    UnsupportedError,
    having,
    stars,
)
from tvlint.plurals import counted


def reduced_dims(call: Call, rank: int) -> tuple[int, ...]:
    """Return the dimensions that the attribute `dim` lists, in order; all of them without it. Raises UnsupportedError."""
    dim = call.attributes.get("dim")
    if dim is None or dim == ():
        return tuple(range(rank))
    listed = dim if isinstance(dim, tuple) else (dim,)
    found = []
    for entry in listed:
        said = f"`{call.op}` over dim {dim} of a tensor of {counted(rank, 'dimension')}"
        if not isinstance(entry, int) or isinstance(entry, bool) or not rank:
            raise UnsupportedError(said)
        if not -rank <= entry < rank:
            raise MisfitError(said, f"`dim` has to be from {-rank} to {rank - 1}")
        found.append(entry % rank)
    if len(set(found)) < len(found):
        raise UnsupportedError(f"`{call.op}` over dim {dim}, which names one twice")
    return tuple(sorted(found))


def rows_of(call: Call) -> tuple[Names, Names, frozenset[str]]:
    """Return the names of the dimensions of the one operand and of a number for every row of it, and those of a row, which
    `dim` lists and `keepdim` keeps with size 1.
    """
    call.expect(1)
    names = stars(len(call.shape(0)))
    gone, keep = reduced_dims(call, len(names)), call.flag("keepdim")
    result = tuple(ONE if i in gone else name for i, name in enumerate(names) if keep or i not in gone)
    if not result and call.outputs and call.outputs[0] == (1,):
        result = (ONE,)
    return names, result, frozenset(names[i] for i in gone)


def _reduction(average: bool) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call = call.with_arguments("dim", "keepdim")
        call.reject_unknown("dim", "keepdim", "dtype")
        names, result, gone = rows_of(call)
        return Bound(
            (names,),
            (result,),
            reduced=frozenset() if average else gone,
            averaged=gone if average else frozenset(),
            linear=() if holds_whole_numbers(call.attributes.get("dtype")) else (frozenset({0}),),
            attributes=(call.attributes.get("dtype"),),
        )

    return bind


def _total(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    if holds_whole_numbers(bound.attributes[0]):
        raise UnsupportedError("a cast that rounds")
    return contract(bound, operands, field)


def _addend(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    """Return the elements themselves, which the bound says to add up."""
    return one(operands)


def _rows(call: Call) -> Bound:
    call = call.with_arguments("dim")
    functional = not call.op.startswith(("torch.softmax", "torch.log_softmax", "torch.Tensor."))
    call.reject_unknown("dim", "dtype", *(("_stacklevel",) if functional else ()))
    call.expect(1)
    names = stars(len(call.shape(0)))
    if "dim" not in call.attributes:
        raise UnsupportedError(f"`{call.op}` without `dim`")
    dims = reduced_dims(call, len(names))
    if len(dims) != 1:
        raise UnsupportedError(f"`{call.op}` over {len(dims)} dims")
    return Bound((names,), (names,), whole=frozenset(names[i] for i in dims), attributes=(call.attributes.get("dtype"),))


def _axes(bound: Bound) -> tuple[int, ...]:
    return tuple(axis for axis, name in enumerate(bound.operands[0]) if name in bound.whole)


def _softmax(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    x = one(operands)
    powers = field.function("exp", x - rows.peak(x))
    return field.divide(powers, rows.total(powers))


def _log_softmax(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    x = one(operands)
    scores = x - rows.peak(x)
    return scores - field.function("log", rows.total(field.function("exp", scores)))


def _softmin_steps(call: Call) -> Steps:
    bound = _rows(call)
    (dim,) = _axes(bound)
    return ("neg", (0,)), ("softmax", (PREVIOUS, Literal(dim)))


def _softmin(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return evaluated(_softmax)(bound, [-operands[0]], field)


def _cumulative(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    import numpy as np

    return (np.cumsum(operands[0], axis=_axes(bound)[0]),)


def _cumsum(call: Call) -> Bound:
    bound = _rows(call)
    return replace(bound, linear=() if holds_whole_numbers(bound.attributes[0]) else (frozenset({0}),))


def _greatest(call: Call) -> Bound:
    """`amax`, and `max` of one tensor; with one `dim`, `max` gives the places as well."""
    call = call.with_arguments("dim", "keepdim")
    call.reject_unknown("dim", "keepdim")
    names, result, whole = rows_of(call)
    places = call.op.rsplit(".", 1)[-1] == "max" and call.attributes.get("dim") is not None
    return Bound(
        (names,),
        (result, result) if places else (result,),
        whole=whole,
        attributes=("first" if places else "all",),
        splits={} if places else dict.fromkeys(whole, "max"),
    )


def _least(call: Call) -> Bound:
    """`amin`, and `min` of the whole tensor."""
    bound = _greatest(call)
    if len(bound.outputs) > 1 or (call.op.rsplit(".", 1)[-1] == "min" and call.attributes.get("dim") is not None):
        raise UnsupportedError(f"`{call.op}` with places")
    return replace(bound, splits={})


def _least_steps(call: Call) -> Steps:
    _least(call)
    call = call.with_arguments("dim", "keepdim")
    dims = Literal(call.attributes.get("dim")), Literal(call.flag("keepdim"))
    return ("neg", (0,)), ("amax", (PREVIOUS, *dims)), ("neg", (PREVIOUS,))


def _least_of_rows(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return tuple(-found for found in greatest_of_rows(bound, [-operands[0]], field))


def greatest_of_rows(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return the greatest element along the whole dimensions and, where there are two results, its place."""
    import numpy as np

    names, x = bound.operands[0], operands[0]
    kept = [name for name in names if name not in bound.whole]
    rows: Array = align(x, names, [*kept, *(name for name in names if name in bound.whole)]).reshape(
        [*_kept_sizes(x, names, kept), -1]
    )

    def larger(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
        less = field.less(one[0], other[0])
        return field.where(less, other[0], one[0]), field.where(less, other[1], one[1])

    places = [(rows[..., i], np.full(rows.shape[:-1], i, dtype=int)) for i in range(rows.shape[-1])]
    found = reduce(larger, places)
    return tuple(spread(as_array(part), kept, result) for part, result in zip(found, bound.outputs, strict=False))


def _kept_sizes(x: Array, names: Names, kept: Sequence[str]) -> list[int]:
    return [x.shape[names.index(name)] for name in kept]


def _normalisation(operand_count: int, epsilon: float | None = None) -> Callable[[Call], Bound]:
    def bind(call: Call) -> Bound:
        call = without_none(_by_name(without_absent(call)), "weight", "bias")
        call.reject_unknown("normalized_shape", "eps")
        call.expect(1, operand_count)
        names = stars(len(call.shape(0)))
        size = len(call.shape(1)) if len(call.inputs) > 1 else 1
        normalized = call.attributes.get("normalized_shape")
        if normalized is not None:
            size = len(normalized) if isinstance(normalized, tuple) else 0
            if not size:
                raise UnsupportedError(f"`{call.op}` over {normalized} of shape {call.shape(0)}")
            if normalized != call.shape(0)[-size:]:
                expected = f"it normalises the last dimensions where they are {normalized}"
                raise MisfitError(f"`{call.op}` over {normalized} of shape {call.shape(0)}", expected)
        if not 0 < size <= len(names) or any(len(shape) != size for shape in map(call.shape, range(1, len(call.inputs)))):
            raise UnsupportedError(f"`{call.op}` over {counted(size, 'dimension')} of shape {call.shape(0)}")
        tail = names[len(names) - size :]
        operands = (names, *(tail for _ in call.inputs[1:]))
        given = (call.attributes.get("eps", epsilon),)
        affine = frozenset(range(1, len(operands)))
        return Bound(operands, (names,), whole=frozenset(tail), linear=(affine,) if affine else (), attributes=given)

    return bind


def _by_name(call: Call) -> Call:
    """Return the call with a normalised shape that follows its tensor, and an epsilon that comes last, as attributes."""
    inputs, attributes = list(call.inputs), dict(call.attributes)
    shape = inputs[1].value if len(inputs) > 1 and isinstance(inputs[1], Literal) else None
    if shape is not None and "normalized_shape" not in attributes:
        attributes["normalized_shape"] = shape if isinstance(shape, tuple) else (shape,)
        del inputs[1]
        if isinstance(last := inputs[-1], Literal) and isinstance(last.value, float) and "eps" not in attributes:
            attributes["eps"] = last.value
            inputs.pop()
    return without_absent(replace(call, inputs=tuple(inputs), attributes=attributes))


def without_absent(call: Call) -> Call:
    """Return the call without operands that are `None` at its end."""
    inputs = list(call.inputs)
    while inputs and inputs[-1] == Literal(None):
        inputs.pop()
    return replace(call, inputs=tuple(inputs))


def without_none(call: Call, *names: str) -> Call:
    """Return the call without the operands that it gives by name as `None`."""
    given = {word: value for word, value in call.attributes.items() if value is not None or word not in names}
    return call if len(given) == len(call.attributes) else replace(call, attributes=given)


def mean_of_rows(field: Field, rows: Rows, x: Any) -> Any:
    """Return the mean of every row."""
    return field.divide(rows.total(x), field.number(rows.count))


def centred(field: Field, rows: Rows, x: Any) -> Any:
    """Return what is left of every element without the mean of its row."""
    return x - mean_of_rows(field, rows, x)


def _layer_norm(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    (x, *affine), (epsilon,) = operands, attributes
    apart = centred(field, rows, x)
    variance = mean_of_rows(field, rows, field.power(apart, field.number(2)))
    result = field.divide(apart, field.function("sqrt", variance + numeral(epsilon, field)))
    scaled = result * affine[0] if affine else result
    return scaled + affine[1] if len(affine) > 1 else scaled


def _rms_norm(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    (x, *weight), (epsilon,) = operands, attributes
    square = mean_of_rows(field, rows, field.power(x, field.number(2)))
    result = field.divide(x, field.function("sqrt", square + numeral(epsilon, field)))
    return result * weight[0] if weight else result


def _rms_norm_of_floats(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """An epsilon that is not given depends on the type of the operand; it is that of `float32` here."""
    (epsilon,) = bound.attributes
    return evaluated(_rms_norm)(replace(bound, attributes=(2.0**-23 if epsilon is None else epsilon,)), operands, field)


def _both(name: str) -> tuple[str, ...]:
    return (f"torch.{name}", f"torch.Tensor.{name}", f"torch.nn.functional.{name}")


SPECS = (
    *having(
        (Trait.REDUCTION,),
        OpSpec("sum", _both("sum"), _reduction(average=False), formula=_addend, evaluate=_total),
        *having((Trait.REAL,), OpSpec("mean", _both("mean"), _reduction(average=True), formula=_addend, evaluate=_total)),
    ),
    *having(
        (Trait.NONLINEAR, Trait.PEAK, Trait.REDUCTION),
        OpSpec("amax", (*_both("amax"), "torch.max", "torch.Tensor.max"), _greatest, evaluate=greatest_of_rows),
        OpSpec(
            "amin",
            (*_both("amin"), "torch.min", "torch.Tensor.min"),
            _least,
            steps=_least_steps,
            evaluate=_least_of_rows,
        ),
    ),
    *having((Trait.SCAN,), OpSpec("cumsum", _both("cumsum"), _cumsum, evaluate=_cumulative, dimension=(0, None))),
    *having(
        (Trait.SOFTMAX, Trait.REAL),
        by_formula(_softmax, OpSpec("softmax", _both("softmax"), _rows)),
        OpSpec("softmin", ("torch.nn.functional.softmin",), _rows, steps=_softmin_steps, evaluate=_softmin),
        by_formula(_log_softmax, OpSpec("log-softmax", _both("log_softmax"), _rows)),
    ),
    *having(
        (Trait.NORMALISATION,),
        *having(
            (Trait.STATISTICS,),
            by_formula(
                _layer_norm,
                OpSpec("layer-norm", (*_both("layer_norm"), "nnscaler.runtime.function.layer_norm"), _normalisation(3, 1e-5)),
            ),
        ),
        OpSpec("rms-norm", _both("rms_norm"), _normalisation(2), formula=_rms_norm, evaluate=_rms_norm_of_floats),
    ),
)
