"""The functions of the expression language; each raises `ValueError` on an argument it has no answer for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from tvlint.ir.configuration import SettingValue, Unknown
from tvlint.rulebook.megatron.batch_schedule import batch_schedule_sizes, is_batch_schedule, ramp_sizes
from tvlint.rulebook.megatron.layer_pattern import (
    expert_layers,
    hybrid_layers,
    hybrid_segments,
    is_hybrid_pattern,
    list_pattern_length,
)
from tvlint.rulebook.megatron.pipeline_layout import layout_count, layout_stages, layout_stages_with, parse_layout
from tvlint.topology.stages import Ends, hybrid_stages, split_layers

MAX_MAGNITUDE = 2**128


def is_number(value: SettingValue | Unknown) -> TypeGuard[int | float]:
    """Return whether `value` is an integer or a float; truth values are not numbers."""
    return type(value) is int or type(value) is float


def show(value: SettingValue | Unknown) -> str:
    """`value` as a message writes it."""
    if isinstance(value, Unknown):
        return "?"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(show(item) for item in value) + "]"
    if is_number(value) and abs(value) > MAX_MAGNITUDE:
        return "a huge number"
    return str(value)


def _count(value: SettingValue) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{show(value)} is not an integer")
    if abs(value) > MAX_MAGNITUDE:
        raise ValueError("a number is too large")
    return value


def _positive(value: SettingValue) -> int:
    number = _count(value)
    if number <= 0:
        raise ValueError(f"{number} is not positive")
    return number


def _text(value: SettingValue) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a text")
    return value


def _numbers(values: tuple[SettingValue, ...]) -> list[int | float]:
    if len(values) == 1 and isinstance(values[0], tuple):
        values = values[0]
    numbers = [value for value in values if is_number(value)]
    if not numbers or len(numbers) != len(values):
        raise ValueError("not all of the values are numbers")
    return numbers


def divides(divisor: SettingValue, number: SettingValue) -> bool:
    """Return whether `number` is a multiple of `divisor`."""
    return _count(number) % _positive(divisor) == 0


def exact(number: SettingValue, divisor: SettingValue) -> int:
    """Return the quotient where it is whole."""
    quotient, rest = divmod(_count(number), _positive(divisor))
    if rest:
        raise ValueError(f"{number} is not a multiple of {divisor}")
    return quotient


def multiple_above(number: SettingValue, step: SettingValue) -> int:
    """Return the smallest multiple of `step` that is not below `number`."""
    return -(-_count(number) // _positive(step)) * _positive(step)


def nearest_multiple(number: SettingValue, step: SettingValue) -> str:
    """Return the positive multiples of `step` next to `number`: `46 or 48`."""
    size, wanted = _positive(step), _positive(number)
    below = wanted // size * size
    return " or ".join(str(found) for found in sorted({below, multiple_above(wanted, size)}) if found)


def divisors_near(number: SettingValue, wanted: SettingValue) -> str:
    """Return the divisors of `number` closest to `wanted`, ascending: `4 or 6`."""
    whole, near = _positive(number), _positive(wanted)
    if whole > 10**9:
        raise ValueError("the number is too large to factor here")
    divisors = {found for d in range(1, math.isqrt(whole) + 1) if whole % d == 0 for found in (d, whole // d)}
    below = max((d for d in divisors if d <= near), default=None)
    above = min((d for d in divisors if d > near), default=None)
    return " or ".join(str(found) for found in (below, above) if found is not None)


def length(value: SettingValue) -> int:
    """Return how many items a list has; a text, which stands for a list in files that are no command line, is one."""
    if not isinstance(value, tuple | str):
        raise ValueError(f"{show(value)} has no length")
    return len(value) if isinstance(value, tuple) else 1


def others(values: SettingValue, allowed: SettingValue) -> tuple[SettingValue, ...]:
    """Return what `values` (a list, or one value) holds beyond the list `allowed`."""
    if not isinstance(allowed, tuple):
        raise ValueError(f"{show(allowed)} is not a list")
    return tuple(value for value in (values if isinstance(values, tuple) else (values,)) if value not in allowed)


def not_multiples(values: SettingValue, step: SettingValue) -> tuple[int, ...]:
    """Return the integers of a list that are no multiples of `step`."""
    if not isinstance(values, tuple):
        raise ValueError(f"{show(values)} is not a list")
    return tuple(_count(value) for value in values if _count(value) % _positive(step))


def product(values: SettingValue) -> int:
    """Return the product of a list of integers."""
    if not isinstance(values, tuple):
        raise ValueError(f"{show(values)} is not a list")
    found = 1
    for value in values:
        found = _count(found * _count(value))
    return found


def _optional(value: SettingValue) -> int | None:
    return None if value is None else _count(value)


def _whole(value: SettingValue) -> int:
    """Return a number, or the text of one."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else _count(value)


def _frequency(value: SettingValue) -> int | str | tuple[object, ...]:
    return value if isinstance(value, str | tuple) else _positive(value)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": lambda x: abs(_count(x)),
    "batch_schedule_sizes": lambda x: batch_schedule_sizes(_text(x)),
    "contains": lambda x, part: part in x if isinstance(x, tuple) else _text(part) in _text(x),
    "default": lambda x, otherwise: otherwise if x is None else x,
    "divides": divides,
    "divisors_near": divisors_near,
    "ends_with": lambda x, suffix: _text(x).endswith(_text(suffix)),
    "exact": exact,
    "expert_layers": lambda frequency, layers: expert_layers(_frequency(frequency), _positive(layers)),
    "gcd": lambda *values: math.gcd(*map(_positive, values)),
    "hybrid_layers": lambda x: hybrid_layers(_text(x)),
    "hybrid_segments": lambda x: hybrid_segments(_text(x)),
    "hybrid_stages": lambda pattern, pp, first, last: hybrid_stages(
        _text(pattern), _positive(pp), _optional(first), _optional(last)
    ),
    "is_batch_schedule": lambda x, seq_length: is_batch_schedule(_text(x), _positive(seq_length)),
    "is_hybrid_pattern": lambda x: is_hybrid_pattern(_text(x)),
    "is_integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "is_layout": lambda x: parse_layout(_text(x)) is not None,
    "layout_count": lambda x, kind: layout_count(_text(x), _text(kind)),
    "layout_list": lambda x: layout_stages(_text(x)),
    "layout_stages": lambda x: len(layout_stages(_text(x))),
    "layout_stages_with": lambda x, kind: layout_stages_with(_text(x), _text(kind)),
    "layout_text": lambda x: "".join(layout_stages(_text(x))),
    "layout_empty_stages": lambda x: sum(not stage for stage in layout_stages(_text(x))),
    "list_pattern_length": lambda x: list_pattern_length(_text(x)),
    "lcm": lambda *values: math.lcm(*map(_positive, values)),
    "len": length,
    "max": lambda *values: max(_numbers(values)),
    "min": lambda *values: min(_numbers(values)),
    "multiple_above": multiple_above,
    "nearest_multiple": nearest_multiple,
    "not_multiples": not_multiples,
    "others": others,
    "product": product,
    "ramp_sizes": lambda ramp, last: ramp_sizes(tuple(map(_whole, ramp)) if isinstance(ramp, tuple) else (), _positive(last)),
    "split_layers": lambda layers, pp, virtual, first, last, embedding, loss, extra: split_layers(
        _positive(layers),
        _positive(pp),
        _positive(virtual),
        Ends(_optional(first), _optional(last), embedding is True, loss is True),
        _count(extra),
    ),
    "starts_with": lambda x, prefix: _text(x).startswith(_text(prefix)),
    "text": show,
}
"""Every function by its name, apart from `set` and `known`, which ask about their argument instead of taking its value."""
