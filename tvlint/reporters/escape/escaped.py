"""Text that may be written to a stream or a file."""

from __future__ import annotations

from tvlint.ir.values import dataclass


@dataclass(frozen=True, slots=True)
class Escaped:
    """The text of a document in one format, in which whatever came from a file is data.

    It is no `str`: writers take nothing else, and only the modules beside this one make it (kept by a test).
    """

    text: str


def joined(parts: tuple[Escaped, ...]) -> Escaped:
    """Return the parts one after the other."""
    return Escaped("".join(part.text for part in parts))
