"""Scripts that end inside of what they have opened, and scripts that a merge has left in two versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

from tvlint.findings import Finding, Severity
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.document import ReadError
from tvlint.readers.shell.syntax import Syntax, errors_in
from tvlint.readers.shell.values import Source, location_of, source_of, span_of_bytes

RULE = "broken-script"
CLOSERS = {
    "a command": "\n:",
    '`"`': '"',
    "`'`": "'",
    "a backtick": "`",
    "`}`": "}",
    "`)`": ")",
    "`fi`": "\nfi",
    "`done`": "\ndone",
    "`esac`": "\nesac",
    "`}` on a line": "\n}",
    "`)` on a line": "\n)",
}
"""What may be missing at the end of a script, and the text that closes what is open there."""
LARGEST = 64 << 10
"""Bytes of the largest script that is looked at: its syntax is found anew for each attempt."""
ENDS = b" \t\r\n\\$"
"""What may end a script without meaning anything: a command that goes on, and goes nowhere."""
MARKERS = (b"\n<<<<<<<", b"\n=======", b"\n>>>>>>>")
CONFLICT = Pattern(
    rb"^<{7}(?: [^\n]*|\r)?$(?:\n(?!<{7}|>{7})[^\n]*)*\n={7}\r?$(?:\n(?!<{7}|>{7})[^\n]*)*\n>{7}(?: |\r?$)", re.MULTILINE
)


def broken(path: str, data: bytes) -> Iterator[Finding]:
    """Yield a finding about a script that no shell runs to its end."""
    if len(data) > LARGEST or b"\0" in data:
        return
    source, syntax = source_of(path, data), Syntax()
    data = source.data
    merged = CONFLICT.search(data) if all(marker in b"\n" + data for marker in MARKERS) else None
    if merged is not None:
        place = location_of(span_of_bytes(source, merged.start(), merged.start() + 7))
        message = "a merge has left two versions of these lines, and the shell reads both"
        yield Finding(RULE, Severity.ERROR, message, place, "keep one of them, and take out the marks")
        return
    try:
        missing = _missing(source, syntax)
    except ReadError:
        return
    if missing:
        first = min((node.start_byte for node in errors_in(syntax.tree(source).root_node)), default=0) or len(data.rstrip()) - 1
        place = location_of(span_of_bytes(source, first, first + 1))
        message = f"the script ends where {' and '.join(dict.fromkeys(missing))} must follow"
        yield Finding(RULE, Severity.ERROR, message, place, "close what is open")


def _missing(source: Source, syntax: Syntax) -> Sequence[str]:
    """Return what must follow the end of a script; nothing where that is not known.

    That the grammar does not understand a text says little, since shells take more. Where it understands the text with
    something behind its end, the text is unfinished.
    """
    if not syntax.tree(source).root_node.has_error:
        return ()
    text = source.data.rstrip(ENDS)
    for count in (0, 1, 2):
        for names in product(CLOSERS, repeat=count):
            end = "".join(CLOSERS[name] for name in names)
            if not syntax.tree(replace(source, data=text + end.encode() + b"\n")).root_node.has_error:
                return names
    return ()
