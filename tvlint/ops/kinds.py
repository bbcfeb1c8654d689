"""Flags, whole numbers and real numbers: what operators make of them, and where they compute something else than of real ones.

Real arithmetic is what torch does of real numbers. Of flags a sum is true where one of them is, and no sum; what is written
among flags or whole numbers, or made of them in their type, is rounded to one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from math import isinf

from tvlint.ir.operators import Compute, Literal, Value
from tvlint.ir.plan import Tensor
from tvlint.ops.dtypes import OF_REAL_NUMBERS
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Bound, OpSpec, Trait
from tvlint.ops.table import bound_in, spec_of


class Kind(IntEnum):
    """What a tensor holds; a function of several kinds takes each for the last of them."""

    FLAGS = 0
    NARROW = 1
    """Whole numbers of 8 or 16 bits, whose sums and products may not fit."""
    COUNTS = 2
    """Whole numbers of which none is negative."""
    WHOLE = 3
    REAL = 4


_MOVES = frozenset({
    Trait.VIEW, Trait.TRANSPOSE, Trait.BROADCAST, Trait.RANGES, Trait.SELECTION, Trait.PICK, Trait.JOIN, Trait.MOVES,
    Trait.TRIANGLE, Trait.LIKE, Trait.PEAK, Trait.DETACHED, Trait.POSITIONAL, Trait.MASKING,
})  # fmt: skip
_KEEPS = _MOVES | {Trait.SUM, Trait.PRODUCT}
_COUNTS = frozenset({Trait.REDUCTION, Trait.SCAN})
_TYPED = frozenset({
    Trait.COMPARISON, Trait.ORDER, Trait.CHOICE, Trait.CONVERSION, Trait.MASKING, Trait.FILLED, Trait.PADDING, Trait.SCAN,
    Trait.DIFFERENCE, Trait.PEAK,
})  # fmt: skip

_FEW_BITS = ("int8", "int16")


def kind_of(dtype: Value) -> Kind | None:
    """Return what a type holds; None where it is not known."""
    if not isinstance(dtype, str) or not dtype:
        return None
    if not holds_whole_numbers(dtype):
        return Kind.REAL
    name = dtype.rsplit(".", 1)[-1]
    return Kind.FLAGS if name == "bool" else Kind.NARROW if name.endswith(_FEW_BITS) else Kind.WHOLE


def is_of_reals(operator: Compute, spec: OpSpec, given: Collection[Kind | None]) -> bool:
    """Return whether an operator takes and gives real numbers alone, but for indices, whatever its attributes say."""
    return Kind.REAL in given and spec.traits.isdisjoint(_TYPED) and "dtype" not in operator.attributes


def kinds_given(operator: Compute, tensors: Mapping[str, Tensor], given: Sequence[Kind | None]) -> Sequence[Kind | None] | None:
    """Return what the results of a call hold, where its tensors hold what is `given`; None where its meaning is not known."""
    spec = spec_of(operator.op)
    if spec is not None and is_of_reals(operator, spec, given):
        return [Kind.REAL] * len(operator.outputs)
    bound = bound_in(operator, tensors)
    return None if spec is None or bound is None else kinds_made(operator, spec, bound, given)


def kinds_made(operator: Compute, spec: OpSpec, bound: Bound, given: Sequence[Kind | None]) -> list[Kind | None]:
    """Return what the results of an operator hold, where its tensors hold what is `given`; None where that is not known."""
    traits, results = spec.traits, len(operator.outputs)
    if Trait.COMPARISON in traits:
        return [Kind.FLAGS] * results
    dtype = bound.attributes[1] if Trait.FILLED in traits else operator.attributes.get("dtype")
    if Trait.CONVERSION in traits:
        return [kind_of(bound.attributes[0]) if bound.attributes else given[-1]] * results
    counts = Trait.ORDER in traits or (Trait.POSITIONS in traits and all(map(_is_count, bound.attributes[:2])))
    if dtype is not None and not (counts and kind_of(dtype) is Kind.WHOLE):
        return [kind_of(dtype)] * results
    if given and bound.indices.keys() >= {*range(len(given))}:
        return [Kind.COUNTS] * results
    if not given or counts:
        whole = Kind.WHOLE if Trait.POSITIONS in traits and not any(map(_is_real, bound.attributes)) else Kind.REAL
        return [Kind.COUNTS if counts else whole] * results
    kind = _promoted(operator, spec, bound, given)
    if kind not in (None, Kind.REAL) and traits.isdisjoint(_KEEPS):
        divides = Trait.SCALING in traits and operator.attributes.get("rounding_mode") is None
        of_reals = divides or not traits.isdisjoint(OF_REAL_NUMBERS)
        bounded = Trait.BOUNDED in traits and kind in (Kind.COUNTS, Kind.WHOLE) and not any(map(_is_real, bound.attributes))
        kind = Kind.REAL if of_reals else Kind.WHOLE if bounded or not traits.isdisjoint(_COUNTS) else None
    if kind is Kind.COUNTS and Trait.SUM in traits and (Trait.DIFFERENCE in traits or not _is_count(bound.attributes[0])):
        kind = Kind.WHOLE
    return [*[kind] * (results - 1), Kind.WHOLE if gives_places(spec, results) else kind]


def gives_places(spec: OpSpec, results: int) -> bool:
    """Return whether the last result of an operator holds places in a dimension, which are whole numbers."""
    return Trait.CHOICE in spec.traits or (Trait.PEAK in spec.traits and results > 1)


def is_otherwise(operator: Compute, spec: OpSpec, bound: Bound, given: Sequence[Kind | None]) -> str:
    """Return why an operator may compute something else than real arithmetic does; empty where it does not."""
    traits, kind = spec.traits, _promoted(operator, spec, bound, given)
    if Trait.SCAN in traits and kind_of(operator.attributes.get("dtype")) not in (None, Kind.REAL):
        return "may round what it adds"
    if Trait.FILLED in traits:
        number, dtype, *_ = bound.attributes
        return _rounded(number, kind_of(dtype) if dtype is not None else kind if given else Kind.REAL)
    if Trait.PADDING in traits or spec.name == "masked-fill":
        return _rounded(bound.attributes[-1], kind)
    if kind is Kind.REAL:
        return ""
    if Trait.SUM in traits and kind in (None, Kind.FLAGS) and all(each in (None, Kind.FLAGS) for each in given):
        return "adds what may be flags, of which torch gives where one is set"
    fits = not traits.isdisjoint(_MOVES | {Trait.ACTIVATION}) or (Trait.RISING in traits and Trait.SUM not in traits)
    if kind is Kind.NARROW and not fits and kinds_made(operator, spec, bound, given)[:1] in ([kind], [None]):
        return "may make what does not fit into 8 or 16 bits"
    of_whole = not any(map(_is_real, bound.attributes)) and all(isinstance(each, str) for each in operator.inputs[-1:])
    if spec.name == "pow" and of_whole and given[-1] not in (Kind.FLAGS, Kind.COUNTS):
        return "may round powers"
    promotes = spec.name == "pow" or bool(traits & {Trait.SUM, Trait.SCALING, Trait.COMPARISON}) or spec.name == "where"
    return "may round numbers" if any(map(_is_real, bound.attributes)) and not promotes else ""


def _promoted(operator: Compute, spec: OpSpec, bound: Bound, given: Sequence[Kind | None]) -> Kind | None:
    """Return what a function of all the numbers that an operator is given holds; None where that is not known."""
    unread = {*bound.indices, *(() if Trait.LIKE in spec.traits else bound.shape_only)}
    kinds = [kind for position, kind in enumerate(given) if position not in unread]
    if Trait.MASKING in spec.traits:
        kinds = kinds[1:] if spec.name == "where" else kinds[:1]
    if spec.traits & {Trait.SUM, Trait.SCALING} or spec.name == "where":
        kinds += [_kind_of_number(each.value, kinds) for each in operator.inputs if isinstance(each, Literal)]
    known = [kind for kind in kinds if kind is not None]
    return Kind.REAL if Kind.REAL in known else max(known) if len(known) == len(kinds) and known else None


def _rounded(number: Value, kind: Kind | None) -> str:
    """Return why a number that is written among others of a kind may be rounded; empty where it is not.

    torch refuses to write what is infinite among whole numbers.
    """
    whole = isinstance(number, int) or (isinstance(number, float) and (number.is_integer() or isinf(number)))
    few = isinstance(number, int | float) and 0 <= number < 1 << 7
    least = Kind.FLAGS if number in (0, 1) else Kind.REAL if not whole else Kind.NARROW if few else Kind.WHOLE
    most = Kind.WHOLE if kind is Kind.COUNTS else kind or Kind.FLAGS
    return "may round the number that it writes" if least > most else ""


def _kind_of_number(value: Value, beside: Collection[Kind | None]) -> Kind:
    """Return what a number counts as; a whole one takes the type of the whole numbers that it stands beside."""
    if isinstance(value, bool):
        return Kind.FLAGS
    if isinstance(value, int) and Kind.NARROW in beside:
        return Kind.NARROW
    return Kind.COUNTS if _is_count(value) else Kind.WHOLE if isinstance(value, int) else Kind.REAL


def _is_count(value: Value) -> bool:
    return isinstance(value, int) and value >= 0


def _is_real(value: Value) -> bool:
    return isinstance(value, float)
