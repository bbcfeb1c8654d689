"""How many operations a piece of work takes, counted instead of timed: lines of Python, calls, and elements that C loops over.

A line inside a loop counts each time it is begun, a call of a function written in C once and, where the method walks all of its
own object (`list.count`, `str.splitlines`, `dict.copy`), once for every element. What C does without a call (`a + b`, `x in
list`, `dict(other)`, a search by a regular expression) is not seen; `tests/end_to_end/test_linear_cost.py` says why
that is linear too.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_WALKING = frozenset(
    {"count", "copy", "remove", "insert", "splitlines", "split", "replace", "union", "difference", "intersection", "issubset"}
)


def operations(work: Callable[[], object]) -> Counter[str]:
    """Return the operations of `work` by the function that they are in, on all threads that it starts."""
    counts: defaultdict[int, int] = defaultdict(int)
    codes: dict[int, CodeType] = {}
    """What was begun, by its identity: the hash of code is that of all its constants."""

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            counts[id(frame.f_code)] += 1
        elif event == "call":
            codes[id(frame.f_code)] = frame.f_code
        return line

    def called(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            codes[id(frame.f_code)] = frame.f_code
            counts[id(frame.f_code)] += _elements(function)

    before = sys.gettrace(), sys.getprofile()
    threading.settrace(line)
    threading.setprofile(called)
    sys.settrace(line)
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
        threading.settrace(None)  # type: ignore[arg-type]
        threading.setprofile(None)
    named: Counter[str] = Counter()
    for identity, count in counts.items():
        named[f"{codes[identity].co_filename}:{codes[identity].co_name}"] += count
    return named


def _elements(function: Any) -> int:
    own = getattr(function, "__self__", None)
    if function.__name__ not in _WALKING or not isinstance(own, str | bytes | list | tuple | dict | set | frozenset):
        return 1
    return 1 + len(own)
