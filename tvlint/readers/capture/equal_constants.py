"""One name for constants with the same numbers: layers that each keep their own table read one table.

A stage of a pipeline finds the constants of its layers by their numbers, and would take those of the first layers for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvlint.ir.plan import Role
from tvlint.readers.capture.pairing import Found, Whole, uses_of
from tvlint.readers.capture.rank import Prepared


def with_one_name(found: Found, reference: Prepared, wholes: Found, parallel: Found) -> Found:
    """Return what a program is given with one name for equal constants, by what is known of the reference and of the ranks.

    A constant is what every rank of the parallel program reads whole in every micro-batch, beside a batch that is cut: what is
    equal by chance may be the batch itself.
    """
    same = _same(reference, wholes, parallel)
    if not same:
        return found
    merged = {name: whole for name, whole in found.wholes.items() if name not in same}
    for name, first in same.items():
        if name in found.wholes and first in merged:
            merged[first] = replace(merged[first], held={**found.wholes[name].held, **merged[first].held})
    names = tuple({value: same.get(name, name) for value, name in by_value.items()} for by_value in found.names)
    said = [f"the constants with the numbers of `{first}` are one, as recorded" for first in dict.fromkeys(same.values())]
    return Found(merged, names, (*found.assumed, *said))


def _same(reference: Prepared, wholes: Found, parallel: Found) -> Mapping[str, str]:
    """Return the first constant with the same numbers for each that has one before it."""
    nameless = dict.fromkeys(wholes.names[0][use.value] for use in uses_of(reference) if use.given.named is None)
    constants = {name for name, whole in parallel.wholes.items() if whole.role is Role.BUFFER and whole.local == whole.shape}
    numbers = {name: _numbers(wholes.wholes[name]) for name in nameless if name in constants or name not in parallel.wholes}
    first: dict[object, str] = {}
    for name, key in numbers.items():
        if key and name in constants:
            first.setdefault(key, name)
    found = {name: first.get(key, name) for name, key in numbers.items()}
    return {name: one for name, one in found.items() if one != name}


def _numbers(whole: Whole) -> tuple[object, ...]:
    """Return the numbers of a value as they can be compared; nothing where they are not known."""
    return (whole.shape, whole.dtype, whole.numbers.tobytes()) if whole.numbers is not None else ()
