"""How the oracle's operators take their arguments; what torch would refuse raises ValueError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Attributes: TypeAlias = Mapping[str, Any]


def need(holds: bool, text: str) -> None:
    if not holds:
        raise ValueError(text)


def told_arguments(values: list[Any], attributes: Attributes, *names: str) -> dict[str, Any]:
    """What follows the tensors, by name; together with what is given by name."""
    rest = values[next((i for i, value in enumerate(values) if not isinstance(value, np.ndarray)), len(values)) :]
    if len(names) == 1 and len(rest) > 1:
        rest = [tuple(rest)]
    need(len(rest) <= len(names), f"{len(rest)} constants")
    given = dict(zip(names, rest, strict=False))
    need(not given.keys() & attributes.keys(), "an argument is given twice")
    found = {**given, **attributes}
    need(found.keys() <= set(names), f"no keyword {sorted(found.keys() - set(names))}")
    return found


def axis_of(dim: Any, rank: int) -> int:
    need(isinstance(dim, int) and -rank <= dim < rank, f"dimension {dim} of {rank}")
    return int(dim) % rank


def axes_of(dim: Any, rank: int) -> tuple[int, ...]:
    if dim is None or dim == ():
        return tuple(range(rank))
    found = [axis_of(each, rank) for each in (dim if isinstance(dim, tuple) else (dim,))]
    need(len(set(found)) == len(found), f"dimensions {dim}")
    return tuple(found)
