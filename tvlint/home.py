"""Addresses of the project, stated once."""

from __future__ import annotations

HOME = "https://github.com/tvlint/tvlint"


def page(path: str, version: str) -> str:
    """Return the address of a file of the project as it was in that version."""
    return f"{HOME}/blob/v{version}/{path}"
