"""Texts that pass options of Megatron and that no reader follows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tvlint.findings import Finding, Severity
from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.readers.languages import is_prose

LARGEST = 2 << 20
RULE = "launch-not-followed"
PASSED = Pattern(
    rb"--(?<![\w`>-]--)(?:(?:tensor|pipeline|expert)[-_]model|context)[-_]parallel[-_]size[\"']?"
    rb"(?:[ \t]+|=|[ \t]*,\s*|\s*\n[ \t]*-[ \t]+)[\"']?(?:\d|\$[({A-Za-z_]|\{)"
)
"""An option that only Megatron has, with a value; in backticks, or as an element of markup, it stands in a sentence."""
SHOWN = Pattern(rb"(?:^|\s)(?:#|//)|^(?:<pre>)?[ \t]*\d+ (?:\||&#124;)")
"""What stands before a comment, and before a line of source that a report shows."""
SENTENCE = Pattern(rb"\d*(?:[,;:]\s+[A-Za-z]|\.(?:\s|[\"']))")
"""How a sentence goes on or ends after a value."""
HELP = "write the launch as a command of a shell script, or silence this with `# tvlint: ignore-file[launch-not-followed]`"


def launch_in(path: str, data: bytes) -> Finding | None:
    """Return the finding about the first option of Megatron that a text passes to something; None where it passes none.

    Text for people shows commands that nothing runs, and the Python that reads options names them without a value.
    """
    if is_prose(path) or b"\0" in data or len(data) > LARGEST:
        return None
    return next(_passed(path, data, [(0, len(data))]), None)


def launches_in(path: str, data: bytes, spans: Iterable[tuple[int, int]], followed: frozenset[int | None]) -> Iterator[Finding]:
    """Yield a finding for each of the byte ranges `spans` that passes an option on a line that is not among `followed`."""
    for span in spans:
        finding = next((finding for finding in _passed(path, data, [span]) if finding.location.line not in followed), None)
        if finding is not None:
            yield finding


def _passed(path: str, data: bytes, spans: Iterable[tuple[int, int]]) -> Iterator[Finding]:
    for start, end in spans:
        for match in PASSED.finditer(data, start, end):
            first = data.rfind(b"\n", 0, match.start()) + 1
            before = data[first : match.start()]
            is_alone = b" " in match[0] and b'"' not in match[0] and b"'" not in match[0]
            if SHOWN.search(before) or (is_alone and SENTENCE.match(data, match.end(), end)):
                continue
            line = data.count(b"\n", 0, match.start()) + 1
            option = re.split(rb"[^\w-]", match[0])[0].decode()
            column = len(before.decode(errors="replace")) + 1
            place = Location(path, line, column, line, column + len(option))
            yield Finding(RULE, Severity.NOTE, f"`{option}` is passed here, tvlint does not see to which program", place, HELP)
