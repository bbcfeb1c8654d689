"""Where the real plans are that do not ship with the project; tests that need them skip, visibly, without them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""


def _found() -> Path | None:
    folder = Path(os.environ["TVLINT_SHARED"]) if "TVLINT_SHARED" in os.environ else ROOT.parent / "shared"
    return folder if (folder / "plans").is_dir() else None


SHARED: Path | None = _found()
"""The folder that holds `plans/` and `facts/`: `$TVLINT_SHARED`, or `shared` beside the checkout; None where it is absent."""

needs_shared = pytest.mark.skipif(SHARED is None, reason="the shared plans are not here; set TVLINT_SHARED to their folder")
