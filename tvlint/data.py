"""Paths of the data that tvlint ships: rule pages and schemas."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_path(kind: str) -> Path:
    """Return the directory of `rules` or `schemas`: inside an installed package, else at the top of the checkout."""
    packaged = _PACKAGE / "_data" / kind
    if packaged.is_dir():
        return packaged
    return _PACKAGE.parent / kind
