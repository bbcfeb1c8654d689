"""Types of operands that operators of the table take together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tvlint.ir.operators import Value
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Bound, OpSpec, Trait

DIGITS: Mapping[str, int] = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""How many binary digits the numbers of a type have."""

_REAL = ("float16", "bfloat16", "float32", "float64")
"""Types of real numbers that operators take as they are: those of 8 bits come with scales, for kernels of their own."""
SOME_WHOLE, SOME_REAL = "int", "real"
"""Some type of whole numbers, or of real ones, where more is not known."""

_HALF = frozenset({"float16", "bfloat16"})
_OF_INDICES = ("int32", "int64", SOME_WHOLE)
_TAKES_REAL = frozenset({Trait.NORMALISATION, Trait.ATTENTION, Trait.CLASS_LOSS, Trait.REAL})
_TAKES_REAL_AMONG = frozenset({Trait.LOG_SUM_EXP_MERGE, Trait.REAL_AMONG})
OF_REAL_NUMBERS = _TAKES_REAL | _TAKES_REAL_AMONG | {Trait.SOFTMAX}


def expected_types(spec: OpSpec, bound: Bound | None, dtypes: Sequence[str], attributes: Mapping[str, Value]) -> str:
    """Return what has to be of the types of the tensor operands, where they do not fit; empty where they do or are unknown.

    Of a call that fits no signature, whole numbers and flags may be indices and masks beside real numbers.
    """
    traits = spec.traits
    indices = () if bound is None else bound.indices
    masks = bound.zero_gradient if bound is not None and Trait.MASKING in traits else frozenset()
    beside = frozenset({3} if Trait.ATTENTION in traits else ())
    for position, dtype in enumerate(dtypes):
        if position in indices and not _is_index(dtype, traits):
            bits = "64" if Trait.WIDE in traits else "32 or 64"
            return f"operand {position} holds indices, which have to be whole numbers of {bits} bits, and is {dtype}"
        if position in masks and dtype not in ("", "bool") and (dtype != "uint8" or spec.name != "where"):
            return f"operand {position} is a mask, which has to hold flags, and is {dtype}"
        if position in beside and dtypes[0] in _REAL and dtype not in ("", "bool", "float32", SOME_REAL, dtypes[0]):
            return f"operand {position} is a mask, which has to hold flags or numbers of {dtypes[0]}, and is {dtype}"
    numbers = [dtype for position, dtype in enumerate(dtypes) if position not in {*indices, *masks, *beside}]
    surely = numbers if bound is not None else [dtype for dtype in numbers if dtype in (*_REAL, SOME_REAL)]
    return _of_one_type(spec, bound, surely) or _of_numbers(traits, numbers, attributes)


def _is_index(dtype: str, traits: Collection[Trait]) -> bool:
    if Trait.WIDE in traits:
        return dtype in ("", "int64", SOME_WHOLE) or (dtype == "uint8" and Trait.CLASS_LOSS in traits)
    return dtype in ("", *_OF_INDICES)


def _of_one_type(spec: OpSpec, bound: Bound | None, numbers: Sequence[str]) -> str:
    """Return that numbers have to be of one type, where the operator takes no others and they are not."""
    adds = Trait.CONTRACTION in spec.traits and (spec.name != "einsum" or bound is None or bool(bound.reduced))
    real = {dtype for dtype in numbers if dtype in (*_REAL, SOME_REAL)}
    whole = {dtype for dtype in numbers if holds_whole_numbers(dtype)}
    differ = (real and whole) or len(real - {SOME_REAL}) > 1 or len(whole - {SOME_WHOLE}) > 1
    if not differ or not (adds or spec.traits & {Trait.ONE_TYPE, Trait.STATISTICS}):
        return ""
    if Trait.STATISTICS in spec.traits and numbers[0] in _HALF and set(numbers[1:]) <= {"float32", ""}:
        return ""
    return f"the operands have to be of one type, and are {' and '.join(sorted(real | whole))}"


def _of_numbers(traits: frozenset[Trait], numbers: Sequence[str], attributes: Mapping[str, Value]) -> str:
    """Return of which kind numbers have to be, where they are of another."""
    if not any(numbers):
        return ""
    wanted = attributes.get("dtype")
    if traits & _TAKES_REAL and holds_whole_numbers(numbers[0] if wanted is None else wanted):
        return f"operand 0 has to hold real numbers, and is {numbers[0]}"
    if traits & _TAKES_REAL_AMONG and all(map(holds_whole_numbers, numbers)):
        return f"an operand has to hold real numbers, and they are {' and '.join(sorted(set(numbers)))}"
    if "bool" in numbers and traits & {Trait.DIFFERENCE, Trait.NEGATION}:
        return "flags are not subtracted"
    of_two = traits & {Trait.CONTRACTION, Trait.NO_TWO_FLAGS} or attributes.get("rounding_mode") is not None
    of_numbers = Trait.NO_FLAGS in traits or (of_two and len(numbers) > 1)
    return "operands have to hold numbers, and are flags" if of_numbers and set(numbers) == {"bool"} else ""


def keeps_all_of(dtype: str, before: str) -> bool:
    """Return whether each real number of the type `before` is one of `dtype`; types of 8 bits keep none but their own."""
    dtype, before = dtype.removeprefix("torch."), before.removeprefix("torch.")
    if dtype == before:
        return True
    return 0 < DIGITS.get(before, 0) <= DIGITS.get(dtype, 0) and (before, dtype) != ("bfloat16", "float16")


def promoted(dtypes: Collection[str]) -> str:
    """Return the type of a sum or product, element by element, of tensors of `dtypes`; empty where it is not known."""
    if len(dtypes) == 1:
        return next(iter(dtypes))
    if not all(dtype in _REAL for dtype in dtypes):
        return ""
    return "float64" if "float64" in dtypes else "float32"
