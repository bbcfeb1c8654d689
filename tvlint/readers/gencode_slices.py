"""Whether the slices of every parameter are the whole parameter, each position once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

from tvlint.findings import Finding, Related
from tvlint.readers.gencode_plan import Built
from tvlint.readers.gencode_records import Parameter
from tvlint.readers.gencode_reductions import error


def slices(built: Built) -> Iterator[Finding]:
    """The slices of a parameter fit its shape and together are the whole, each position once."""
    pieces: dict[str, list[Parameter]] = {}
    for file in built.replica.files:
        for parameter in file.parameters.values():
            place = parameter.map_source or parameter.source
            if parameter.parts == 1 and tuple(high - low for low, high in parameter.region) != parameter.shape:
                said = (
                    f"`{parameter.name}` of shape {parameter.shape} is the slice {_box(parameter)} of `{parameter.full_name}`"
                )
                yield error("parameter-slices-mismatch", said, place, ranks=(file.rank,))
            elif any(not 0 <= low < high <= size for (low, high), size in zip(parameter.region, parameter.whole, strict=False)):
                said = f"the slice {_box(parameter)} of `{parameter.full_name}` is outside its shape {parameter.whole}"
                yield error("parameter-slices-mismatch", said, place, ranks=(file.rank,))
            else:
                pieces.setdefault(parameter.full_name, []).append(parameter)
    for name, parts in pieces.items():
        whole = parts[0].whole
        other = next((part for part in parts if part.whole != whole), None)
        if other is not None:
            said = f"`{name}` is {other.whole} here and {whole} elsewhere"
            related = (Related("elsewhere", parts[0].map_source or parts[0].source),)
            yield error("parameter-slices-mismatch", said, other.map_source or other.source, "", related)
            continue
        distinct = {part.region: part for part in reversed(parts)}
        edges = [sorted({edge for box in distinct for edge in box[dim]} | {0, size}) for dim, size in enumerate(whole)]
        for cell in product(*(pairwise(marks) for marks in edges)):
            holders = [box for box in distinct if _inside(cell, box)]
            if len(holders) == 1 or not cell:
                continue
            part = distinct[holders[-1]] if holders else min(distinct.values(), key=lambda one: one.name)
            said = f"ranks hold overlapping slices of `{name}`" if holders else f"no rank holds {_shown(cell)} of `{name}`"
            yield error("parameter-slices-mismatch", said, part.map_source or part.source)
            break


def _inside(cell: tuple[tuple[int, int], ...], box: tuple[tuple[int, int], ...]) -> bool:
    return all(low <= a and b <= high for (low, high), (a, b) in zip(box, cell, strict=True))


def _box(parameter: Parameter) -> str:
    return _shown(parameter.region)


def _shown(box: tuple[tuple[int, int], ...]) -> str:
    return "[" + ", ".join(f"{low}:{high}" for low, high in box) + "]"
