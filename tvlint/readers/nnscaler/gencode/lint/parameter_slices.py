"""Check that the slices of every parameter tile the whole parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, product

from tvlint.findings import Finding, Related
from tvlint.near_names import nearest
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.lint.reductions import error
from tvlint.readers.nnscaler.gencode.lower.replica import Built
from tvlint.readers.nnscaler.gencode.syntax.nodes import stops
from tvlint.readers.nnscaler.gencode.syntax.records import Parameter, RankFile


def same_slices(replicas: Iterable[tuple[RankFile, ...]]) -> None:
    """Raise ReadError where a name is another slice on one rank of a replica than on another, at the rank that is at odds;
    Fails where that slice cannot be copied into the parameter.

    That is the one whose slice does not fit its shape, else the one with what fewer ranks of all replicas say, else the last.
    """
    replicas = list(replicas)
    said: dict[str, Counter[tuple[object, ...]]] = {}
    for files in replicas:
        for file in files:
            for parameter in file.parameters.values():
                said.setdefault(parameter.name, Counter())[_slice(parameter)] += 1
    for files in replicas:
        held: dict[str, list[Parameter]] = {}
        for file in files:
            for parameter in file.parameters.values():
                held.setdefault(parameter.name, []).append(parameter)
        for name, parts in held.items():
            if len({_slice(part) for part in parts}) > 1:
                odd = min(reversed(parts), key=lambda part: (_fits(part), said[part.name][_slice(part)]))
                others = {part.shape for part in parts if part is not odd}
                place = odd.source if odd.shape not in others else odd.map_source or odd.source
                if not _is_filled(odd):
                    unclear = any(file.unclear for file in files)
                    help = "generate the code again: a parameter has the shape of its slice"
                    raise stops(unclear, _said_of_slice(odd), place, help)
                help = "ranks that share a name share the tensor: generate the code again"
                raise ReadError(f"`{name}` is not the same slice on all ranks that have it", place, help)


def match_by_number(replicas: Iterable[tuple[RankFile, ...]], traced: Mapping[str, str]) -> None:
    """Name parameters that are filled with the values of others `<name>, filled as <other>`, in place.

    Files that fill parameters have values by the id of the whole. Each full name has one id, and each id one name: those of
    the traced graph, `traced`, else what most files say.
    """
    replicas = list(replicas)
    files = [file for members in replicas for file in members]
    said = Counter((one.full_name, one.number) for file in files for one in file.parameters.values() if one.number >= 0)
    numbers = {name: int(number) for name, number in traced.items()}
    names = {number: name for name, number in numbers.items()}
    for (name, number), _ in said.most_common():
        names.setdefault(number, name)
        numbers.setdefault(name, number)
    for file in files:
        for key, one in file.parameters.items():
            if one.number >= 0 and (numbers[one.full_name], names[one.number]) != (one.number, one.full_name):
                other = names[one.number] if names[one.number] != one.full_name else f"{one.full_name} {one.number}"
                file.parameters[key] = replace(one, full_name=f"{one.full_name}, filled as {other}")


def _slice(parameter: Parameter) -> tuple[object, ...]:
    return (
        parameter.shape,
        parameter.dtype,
        parameter.is_weight,
        parameter.full_name,
        parameter.whole,
        parameter.region,
        parameter.parts,
    )


def _fits(parameter: Parameter) -> bool:
    """Return whether a slice is inside its whole and as large as its shape."""
    inside = all(0 <= low < high <= size for (low, high), size in zip(parameter.region, parameter.whole, strict=False))
    return inside and tuple(high - low for low, high in parameter.region) == parameter.shape


def _is_filled(parameter: Parameter) -> bool:
    """Return whether the slice can be copied into the parameter, as it is or repeated along dimensions of one element."""
    sizes = [max(0, min(high, size) - low) for (low, high), size in zip(parameter.region, parameter.whole, strict=False)]
    ends = zip(reversed(sizes), reversed(parameter.shape), strict=False)
    return len(sizes) <= len(parameter.shape) and all(size in (1, filled) for size, filled in ends)


def _said_of_slice(parameter: Parameter) -> str:
    shape, whole = parameter.shape, parameter.full_name
    return f"`{parameter.name}` has shape {shape} and is filled with the slice {_box(parameter)} of `{whole}`"


def of_the_graph(files: Iterable[RankFile], traced: Mapping[str, tuple[int, ...]]) -> Iterator[Finding]:
    """Every parameter is one of the traced graph, with its whole shape."""
    for file in files:
        for parameter in file.parameters.values():
            place = parameter.map_source or parameter.source
            name, whole = parameter.full_name, traced.get(parameter.full_name)
            if whole is None:
                near = nearest(name, traced)
                help = f"did you mean `{near}`" if near else "generate the code again: it is not that of this graph"
                said = f"`{name}` on rank {file.rank} is no parameter of the traced graph"
                yield error("parameter-slices-mismatch", said, place, help, ranks=(file.rank,))
            elif whole != parameter.whole and {whole, parameter.whole} != {(), (1,)}:
                said = f"`{name}` on rank {file.rank} is {parameter.whole}, and {whole} in the traced graph"
                yield error("parameter-slices-mismatch", said, place, ranks=(file.rank,))


def slices(built: Built) -> Iterator[Finding]:
    """The slices of a parameter fit its shape and together are the whole, each position once."""
    pieces: dict[str, list[Parameter]] = {}
    for file in built.replica.files:
        for parameter in file.parameters.values():
            place = parameter.map_source or parameter.source
            if parameter.parts == 1 and tuple(high - low for low, high in parameter.region) != parameter.shape:
                yield error("parameter-slices-mismatch", _said_of_slice(parameter), place, ranks=(file.rank,))
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
