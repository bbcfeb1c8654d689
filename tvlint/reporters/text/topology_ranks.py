"""Ranks of process groups in few words, however many there are: `0-7  8-15  …  16376-16383`."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.ir.ranks import runs_of
from tvlint.topology.grid import GroupKind

LISTED = 4
"""So many members are listed one by one."""
SHOWN = 8
"""So many groups are shown all; of more, the first few and the last."""


def members(ranks: Sequence[int]) -> str:
    """Return the ascending members of one group: `5`, `0-7`, `0,8,16`, `0,8,…,120`, `0-3,64-67,…,192-195`."""
    runs = runs_of(ranks)
    texts = [str(low) if low == high else f"{low},{high}" if high == low + 1 else f"{low}-{high}" for low, high in runs]
    if len(texts) <= LISTED:
        return ",".join(texts)
    return f"{texts[0]},{texts[1]},…,{texts[-1]}"


def examples(kind: GroupKind, width: int) -> str:
    """Groups of one kind: all where they are few and fit into `width` columns, else the first few and, if it fits, the last."""
    if kind.size == 1 and not kind.ends:
        return "each rank by itself"
    if kind.count == 1:
        return members(kind.group(0))
    if kind.count <= SHOWN:
        whole = "  ".join(members(kind.group(index)) for index in range(kind.count))
        if len(whole) <= width:
            return whole
    texts = [members(kind.group(index)) for index in range(min(3, kind.count))]
    last = members(kind.group(kind.count - 1))
    for shown in ([*texts, "…", last], [*texts[:2], "…", last], [texts[0], "…", last]):
        line = "  ".join(shown)
        if len(line) <= width and len(shown) - 1 < kind.count:
            return line
    return f"{texts[0]}  …"
