"""Plans in tvlint's own notation (docs/plan-text.md)."""

from __future__ import annotations

from tvlint.ir.patterns import Pattern
from tvlint.readers.document import Document

_FIRST = Pattern(
    r'[ \t]*(?:plan[ \t]*(?:"|\r?$|#)|mesh[ \t]+\w+[ \t]*=[ \t]*[0-9]|program[ \t]*(?:\r?$|#)'
    r"|micro-batches[ \t]+[0-9]+[ \t]*(?:\r?$|#)"
    r"|(?:weight|input|buffer|tensor|gradient|state|output|loss)[ \t]+\S+[ \t]+(?:bool|[a-z]+[0-9]\w*)[ \t]*\[)"
)


def recognise(text: str) -> bool:
    """Return whether the first statement of `text` is one of a plan."""
    for line in text[:65536].lstrip("\ufeff").split("\n", 400):
        if line.strip() and not line.lstrip().startswith("#"):
            return _FIRST.match(line) is not None
    return False


def read(path: str, text: str) -> Document:
    """Return the plan that `text` states; raises ReadError at the first line that cannot be read."""
    from tvlint.readers.plan_text.statements import read_plan

    return Document(path, "plan-text", plan=read_plan(path, text))
