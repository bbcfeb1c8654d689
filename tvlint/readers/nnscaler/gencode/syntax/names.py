"""The names in generated code."""

from __future__ import annotations

import re

_NUMBERED = re.compile(r"([A-Za-z_]*?)_?(\d{1,18})", re.ASCII)
_TRAILING = re.compile(r"_(\d{1,18})$", re.ASCII)


def number_of(name: str) -> int:
    """nnScaler's id at the end of a name (`linear_2_39` -> 39); -1 where there is none."""
    found = _TRAILING.search(name)
    return int(found[1]) if found else -1


def cell_name(rank: int, method: str) -> str:
    """Return the segment that a method is on a rank: `device 0/segment 15` for `segment15`."""
    found = _NUMBERED.fullmatch(method)
    return f"device {rank}/{found[1]} {found[2]}" if found and found[1] else f"device {rank}/{method}"
