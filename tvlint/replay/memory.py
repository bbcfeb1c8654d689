"""What operators gave on numbers, kept for plans that are run again with one statement changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from hashlib import blake2b
from typing import Any, TypeVar

from tvlint.ir.operators import Compute, Literal
from tvlint.ops.field import Array
from tvlint.replay.stand_ins import StandIns

_MOST_NUMBERS = 1 << 22
"""So many numbers are kept at most, over all that operators gave."""

T = TypeVar("T")


class Memory:
    """Results of operators and of gradients, by what was computed of which numbers. None that a stand-in made is kept."""

    def __init__(self) -> None:
        self._found: dict[bytes, Any] = {}
        self._left = _MOST_NUMBERS

    def recall(
        self,
        compute: Compute,
        asked: Hashable,
        given: Iterable[Array],
        make: Callable[[], T],
        stand_ins: StandIns | None,
    ) -> T:
        """Return what `make` gives of the computation, of the arrays and of what else is `asked`, computed once.

        Arrays that it gives are shared, and are not to be written to.
        """
        key = _key(compute, asked, given)
        if key in self._found:
            known: T = self._found[key]
            return known
        used = stand_ins is not None and stand_ins.used
        if stand_ins is not None:
            stand_ins.used = False
        found = make()
        if stand_ins is None or not stand_ins.used:
            self._keep(key, found)
        if stand_ins is not None:
            stand_ins.used |= used
        return found

    def _keep(self, key: bytes, found: Any) -> None:
        self._left -= sum(array.size for array in (found.values() if isinstance(found, dict) else found))
        if self._left >= 0:
            self._found[key] = found


def _key(compute: Compute, asked: Hashable, given: Iterable[Array]) -> bytes:
    operands = [operand if isinstance(operand, Literal) else None for operand in compute.inputs]
    key = blake2b(repr((compute.op, operands, sorted(compute.attributes.items()), asked)).encode(), digest_size=16)
    for array in given:
        key.update(f"{array.shape} {array.dtype.str}".encode())
        key.update(array.tobytes())
    return key.digest()
