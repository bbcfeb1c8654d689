"""The numbers that a tape recorded, in the shapes of windows on storages."""

from __future__ import annotations

from tvlint.readers.capture.lifting.program import Array
from tvlint.readers.capture.tapes.tape import Given, Window
from tvlint.readers.capture.tapes.windows import Narrow, count, span

_NUMPY = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "i1",
          "uint8": "u1", "bool": "?"}  # fmt: skip


def _array(values: bytes | None, dtype: str) -> Array | None:
    """Return the numbers in `values`; None where there are none, or of a type that NumPy does not have."""
    import numpy as np

    if values is None:
        return None
    if dtype == "bfloat16":
        wide = np.frombuffer(values[: len(values) // 2 * 2], dtype="<u2").astype("<u4") << 16
        return wide.view("<f4")
    kind = np.dtype(_NUMPY.get(dtype, "V1"))
    if dtype not in _NUMPY:
        return None
    return np.frombuffer(values[: len(values) // kind.itemsize * kind.itemsize], dtype=kind)


def range_of(numbers: Array | None, cut: Narrow) -> Array | None:
    """Return a range of numbers along a dimension."""
    return None if numbers is None else numbers.take(range(cut.start, cut.start + cut.size), cut.dim)


def numbers_of(values: bytes | None, window: Window) -> Array | None:
    """Return recorded numbers in the shape of a window; None where they are not those of one."""
    array = _array(values, window.dtype)
    return None if array is None or array.size != count(window) else array.reshape(window.shape)


def same_throughout(numbers: Array | None) -> float | None:
    """Return the number that all elements are; None where they differ, or are several whole numbers, as tokens are."""
    if numbers is None or not numbers.size or (numbers.size > 1 and numbers.dtype.kind in "iu"):
        return None
    first = numbers.flat[0]
    same = bool((numbers == first).all())
    return first.item() if same and numbers.dtype.kind != "b" else None


def part_of(given: Given, window: Window) -> Array | None:
    """Return the numbers of a window on a storage that was recorded."""
    import numpy as np

    array = _array(given.values, window.dtype)
    if array is None or span(window)[1] > array.size:
        return None
    item = array.dtype.itemsize
    view = np.lib.stride_tricks.as_strided(
        array[window.offset :], window.shape, tuple(stride * item for stride in window.stride), writeable=False
    )
    return np.array(view)
