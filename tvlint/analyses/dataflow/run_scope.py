"""Map segment-local names to plan-level names for one run."""

from __future__ import annotations

from collections.abc import Iterable

from tvlint.ir.plan import Segment, Step


class Outside:
    """The names of one run, while its operators are visited: a name that comes in means another value once it is made anew."""

    def __init__(self, segment: Segment, step: Step) -> None:
        inputs, outputs = step.outside(segment)
        self._in = dict(zip(segment.inputs, inputs, strict=False))
        self._out = dict(zip(segment.outputs, outputs, strict=False))
        self._made: set[str] = set()

    def makes(self, names: Iterable[str]) -> None:
        """The operators after this one mean what this one makes."""
        self._made.update(names)

    def of(self, name: str) -> str:
        """Return the name outside of what `name` stands for now; empty for what stays inside."""
        if name in self._in and name not in self._made:
            return self._in[name]
        return self._out.get(name) or self._in.get(name, "")
