"""What was named or found and is not judged, reported like every finding: in every format, with the reason."""

from __future__ import annotations

from tvlint.findings import Finding, Severity
from tvlint.ir.location import Location

RULE = "unjudged-file"


def unjudged(path: str, reason: str, location: Location | None = None) -> Finding:
    """Return the finding that the file was not judged, for a reason, which may have a place in the file."""
    return Finding(RULE, Severity.NOTE, f"not judged: {reason}", location or Location(path))
