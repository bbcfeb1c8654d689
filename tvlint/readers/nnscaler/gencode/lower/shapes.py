"""Shapes and dtypes of what a segment computes, derived from the operator table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from tvlint.ir.operators import Collective, Communicate, Compute, Operator, Receive
from tvlint.ops.annotations.bracketed import without_bracketed
from tvlint.ops.families.shaping import viewed_shape
from tvlint.ops.spec import ONE, Bound, Call, Family, MisfitError, OpSpec, Trait, UnsupportedError, call_of
from tvlint.ops.table import has_trait, spec_of
from tvlint.plurals import counted

Kind: TypeAlias = tuple[tuple[int, ...], str]
"""Shape and dtype; an empty dtype is not known."""

_CASTS = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "long": "int64",
    "int": "int32",
    "bool": "bool",
}
_PLACES = frozenset({("topk", 1), ("amax", 1), ("argmax", 0)})
"""Results that are places: the operator and the position of the result."""
_COUNTS = frozenset({"sum", "cumsum"})
"""What makes of any whole numbers, and of masks, one of 64 bits."""
_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64")


class Contradiction(Exception):
    """No shape fits; `certain` when the operands cannot go together, not only when the table does not know this use."""

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain


def bound_of(operator: Compute, known: Mapping[str, Kind], scalar: tuple[int, ...]) -> Bound | None:
    """Return the annotation of one use of an operator; None where the table or the operands do not give one."""
    spec, call = spec_of(operator.op), _call(operator, known, scalar)
    if spec is None or call is None:
        return None
    try:
        return _bound(spec, call)
    except UnsupportedError:
        return None


def _call(operator: Compute, known: Mapping[str, Kind], scalar: tuple[int, ...]) -> Call | None:
    return call_of(operator, lambda name: known[name][0] if name in known else None, (scalar,) * len(operator.outputs))


def _bound(spec: OpSpec, call: Call) -> Bound:
    """Return the annotation of a call whose results are as many as `call.outputs`, of shapes that are still to be found.

    Sums over everything say by the first of them how many dimensions they leave; other operators are asked without.
    Raises UnsupportedError.
    """
    try:
        return spec.bind(call)
    except UnsupportedError as error:
        try:
            return spec.bind(replace(call, outputs=()))
        except UnsupportedError:
            raise error from None


def in_its_dimensions(operator: Operator, known: Mapping[str, Kind]) -> tuple[Operator, ...]:
    """Return the operator between views where it is declared with several dimensions in one; alone where it is not."""
    if not isinstance(operator, Compute):
        return (operator,)
    return without_bracketed(operator, {name: shape for name, (shape, _) in _of(operator, known)})


def _of(operator: Compute, known: Mapping[str, Kind]) -> list[tuple[str, Kind]]:
    return [(name, known[name]) for name in operator.tensor_operands if name in known]


def results(operator: Operator, known: Mapping[str, Kind], scalar: tuple[int, ...]) -> dict[str, Kind]:
    """Return shape and dtype of what `operator` makes, as far as they follow; raises Contradiction where nothing can fit.

    `scalar` is the shape of a sum over everything, which nnScaler has written in two ways.
    """
    if isinstance(operator, Communicate):
        return _communicated(operator, known)
    if not isinstance(operator, Compute) or isinstance(operator, Receive):
        return {}
    spec, call = spec_of(operator.op), _call(operator, known, scalar)
    if spec is None or call is None:
        return {}
    try:
        bound = _bound(spec, call)
        viewed = viewed_shape(call, call.shape(0)) if spec.family is Family.RESHAPE else None
    except UnsupportedError as error:
        raise Contradiction(str(error), certain=isinstance(error, MisfitError)) from None
    dtype = _dtype(operator, bound, known)
    if spec.family is Family.IDENTITY:
        return dict.fromkeys(operator.outputs, (call.shape(0), dtype))
    if viewed is not None:
        return dict.fromkeys(operator.outputs, (viewed, dtype))
    if len(bound.outputs) != len(operator.outputs):
        raise Contradiction(f"`{operator.op}` has {counted(len(operator.outputs), 'output')}", certain=False)
    sizes = _sizes(operator.op, bound, call.shapes)
    sizes.update({name: size for name, size in bound.sizes.items() if name not in sizes})
    found: dict[str, Kind] = {}
    for position, (name, names) in enumerate(zip(operator.outputs, bound.outputs, strict=True)):
        shape: list[int] = []
        for one in names:
            if one not in sizes and not shape:
                break
            shape.append(sizes.setdefault(one, shape[-1] if shape else 1))
        if len(shape) == len(names):
            found[name] = tuple(shape), _own_dtype(spec.name, position, dtype, "dtype" in operator.attributes)
    return found


def _own_dtype(name: str, position: int, dtype: str, stated: bool) -> str:
    """Return the dtype of one result where it is not that of the operands; `stated` where the call gives it."""
    if has_trait(name, Trait.COMPARISON):
        return "bool"
    counted = name in _COUNTS and dtype in _ORDER[: _ORDER.index("float16")] and not stated
    return "int64" if counted or (name, position) in _PLACES else dtype


def _sizes(op: str, bound: Bound, shapes: list[tuple[int, ...]]) -> dict[str, int]:
    sizes = {ONE: 1}
    for names, shape in zip(bound.operands, shapes, strict=False):
        for one, size in zip(names, shape, strict=False):
            if one != ONE and sizes.setdefault(one, size) != size:
                raise Contradiction(f"`{op}` of shapes {', '.join(map(str, shapes))}", certain=True)
    return sizes


def _dtype(operator: Compute, bound: Bound, known: Mapping[str, Kind]) -> str:
    for word in ("dtype", "dtype_or_device"):
        given = operator.attributes.get(word)
        if isinstance(given, str) and given.removeprefix("torch.") in _ORDER:
            return given.removeprefix("torch.")
    cast = _CASTS.get(operator.op.rsplit(".", 1)[-1])
    if cast:
        return cast
    names = operator.tensor_operands
    kept = [
        known[name][1]
        for position, name in enumerate(names)
        if position not in bound.zero_gradient and position not in bound.shape_only
    ]
    if not kept and not bound.zero_gradient - bound.shape_only:
        kept = [known[name][1] for position, name in enumerate(names) if position in bound.shape_only]
    if not kept or not all(dtype in _ORDER for dtype in kept):
        return ""
    return max(kept, key=_ORDER.index)


def _communicated(operator: Communicate, known: Mapping[str, Kind]) -> dict[str, Kind]:
    if len(operator.inputs) != 1 or len(operator.outputs) != 1 or operator.inputs[0] not in known:
        return {}
    shape, dtype = known[operator.inputs[0]]
    count = len(operator.group.ranks)
    sizes = list(shape)
    dim = operator.dim
    for where in (dim, operator.concat_dim):
        if where is not None and where >= len(sizes):
            raise Contradiction(f"dim {where} of a tensor of shape {shape}", certain=True)
    if operator.kind is Collective.ALL_GATHER and dim is not None:
        sizes[dim] *= count
    elif operator.kind in (Collective.CHUNK, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL) and dim is not None:
        if sizes[dim] % count:
            raise Contradiction(f"shape {shape} in {counted(count, 'piece')} of dim {dim}", certain=True)
        sizes[dim] //= count
        if operator.kind is Collective.ALL_TO_ALL and operator.concat_dim is not None:
            sizes[operator.concat_dim] *= count
    return {operator.outputs[0]: (tuple(sizes), dtype)}
