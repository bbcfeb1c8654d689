"""Scripts that a shell refuses to read, and scripts that a merge has left in two versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tvlint.findings import Finding, Severity
from tvlint.ir.patterns import Pattern
from tvlint.readers.shell.refusal import refusal
from tvlint.readers.shell.syntax import filled_in
from tvlint.readers.shell.values import location_of, source_of, span_of_bytes

RULE = "broken-script"
SHELLS = Pattern(rb"#![^\n]*\b(?:sh|bash|dash)\b")
"""First lines of scripts whose grammar is known, where there is one."""
TEMPLATES = Pattern(rb"\{[{%]|<%")
"""Signs of a script that another program is still to write."""
FILLED_IN = Pattern(r"<[A-Za-z][^<>\n]*>")
MARKERS = (b"\n<<<<<<<", b"\n=======", b"\n>>>>>>>")
CONFLICT = Pattern(
    rb"^<{7}(?: [^\n]*|\r)?$(?:\n(?!<{7}|>{7})[^\n]*)*\n={7}\r?$(?:\n(?!<{7}|>{7})[^\n]*)*\n>{7}(?: |\r?$)", re.MULTILINE
)


def broken(path: str, data: bytes) -> Iterator[Finding]:
    """Yield a finding about a script that no shell runs to its end."""
    if b"\0" in data:
        return
    source = source_of(path, data)
    data = source.data
    merged = CONFLICT.search(data) if all(marker in b"\n" + data for marker in MARKERS) else None
    if merged is not None:
        place = location_of(span_of_bytes(source, merged.start(), merged.start() + 7))
        message = "a merge has left two versions of these lines, and the shell reads both"
        yield Finding(RULE, Severity.ERROR, message, place, "keep one of them, and take out the marks")
        return
    if other_shell(path, data) or TEMPLATES.search(data):
        return
    text = filled_in(data).decode("latin-1")
    lines = text.replace("\r\n", "\n")
    if "\r" in lines or len(text) - len(lines) not in (0, lines.count("\n")):
        return
    refused = refusal(lines)
    if refused is None or _is_to_be_filled_in(lines, refused.start):
        return
    before = lines.count("\n", 0, refused.start) if text != lines else 0
    place = location_of(span_of_bytes(source, refused.start + before, refused.end + before))
    message, help = (text.encode("latin-1").decode("utf-8", "replace") for text in (refused.message, refused.help))
    yield Finding(RULE, Severity.ERROR, message, place, help)


def _is_to_be_filled_in(text: str, place: int) -> bool:
    """Return whether a line, with those that it continues, has a word in pointed brackets that stands for a value."""
    start, end = text.rfind("\n", 0, place), text.find("\n", place)
    while start > 0 and text[start - 1] == "\\":
        start = text.rfind("\n", 0, start)
    return FILLED_IN.search(text, start + 1, len(text) if end < 0 else end) is not None


def other_shell(path: str, data: bytes) -> bool:
    """Return whether a script is one of a shell with another grammar."""
    return path.lower().endswith((".zsh", ".ksh")) or (data.startswith(b"#!") and SHELLS.match(data) is None)
