"""Files that a change gives another name, known by the lines that they keep."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

SAME = 0.6
"""From this share of lines in common on, a file that came is one that is gone."""
MOST_PAIRS = 4096
"""Of more pairs, only those of files with the same name are looked at."""


def moves(came: Sequence[str], gone: Sequence[str], lines: Callable[[str, bool], Sequence[bytes]]) -> Mapping[str, str]:
    """Return what each file that came was called before, as far as it is one that is gone.

    `lines` gives those of a file, and whether it is one that came.
    """
    every = len(came) * len(gone) <= MOST_PAIRS
    scored = [
        (_share(lines(new, True), lines(old, False)), new, old)
        for new in came
        for old in gone
        if os.path.splitext(new)[1] == os.path.splitext(old)[1] and (every or os.path.basename(new) == os.path.basename(old))
    ]
    found: dict[str, str] = {}
    taken: set[str] = set()
    for share, new, old in sorted(scored, key=lambda each: (-each[0], each[1:])):
        if share >= SAME and new not in found and old not in taken:
            found[new] = old
            taken.add(old)
    return found


def _share(one: Sequence[bytes], other: Sequence[bytes]) -> float:
    common = sum((Counter(one) & Counter(other)).values())
    return 2 * common / (len(one) + len(other)) if one or other else 0
