"""JSON in ASCII."""

from __future__ import annotations

import json
import re
from typing import Any

from tvlint.ir.patterns import Pattern
from tvlint.reporters.escape.escaped import Escaped

_COMMAND = Pattern(r"##(?=\[|vso\[)")
_NUMBERS = Pattern(r"\[\n\s+\d+(?:,\n\s+\d+)*\n\s+\]")
"""A list of numbers as `indent` breaks it; no string of the document holds a line break."""


def data(value: Any) -> Escaped:
    """Return the value as one JSON document; a log that shows it holds no command."""
    return Escaped(_NUMBERS.sub(_on_one_line, dumped(value, 2)) + "\n")


def dumped(value: Any, indent: int | None = None) -> str:
    """Return the value as JSON; `##[command]`, which services obey wherever it stands, with its first sign as an escape."""
    return _COMMAND.sub(r"\\u0023#", json.dumps(value, indent=indent, ensure_ascii=True, allow_nan=False))


def _on_one_line(match: re.Match[str]) -> str:
    return f"[{', '.join(match[0][1:-1].replace(',', ' ').split())}]"
