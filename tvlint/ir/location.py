"""Locations in files that a person can open."""

from __future__ import annotations

from tvlint.ir.values import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file.

    Lines and columns are 1-based and count Unicode code points; `end_column` is exclusive. `pointer` names the place inside
    a file that has no lines of its own (`device 2/segment 153/operator 34`, or a JSON pointer). `text` is the source line
    when the artefact itself carries it (nnScaler stores the model's line per operator). `origin` is the place that the place
    was generated from (the model's line of a line of generated code).
    """

    path: str
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    pointer: str = ""
    text: str = ""
    origin: Location | None = None
