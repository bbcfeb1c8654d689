"""Recognise pipeline schedules; their reader is loaded only for what may well be one."""

from __future__ import annotations

import re

from tvlint.ir.patterns import Pattern

SAMPLE = 1 << 13
OPENS_JSON = Pattern(r"\ufeff?\s*[{\[]")
OPENS_ACTION = Pattern(r"[0-9][A-Z]|\)O")
OPENS_CELL = Pattern(r"[^\s,\"][^,\r\n]*")


def recognise(text: str) -> bool:
    """Return whether most cells at the beginning of `text` are actions, and it is no JSON."""
    sample = text[:SAMPLE]
    if OPENS_JSON.match(sample):
        return False
    at_most = len(OPENS_ACTION.findall(sample))
    if not at_most or 2 * at_most < len(OPENS_CELL.findall(sample)) - 1:
        return False
    from tvlint.readers.schedule_csv import is_action

    cells = [cell.strip().strip('"') for cell in re.split(r"[,\r\n]", sample)]
    if len(text) > SAMPLE:
        cells.pop()
    filled = [cell for cell in cells if cell]
    actions = sum(map(is_action, filled))
    return actions >= 2 and actions * 2 >= len(filled)
