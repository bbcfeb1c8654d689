"""What is wrong with generated code, as far as the code alone shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvlint.findings import Finding

if TYPE_CHECKING:
    from tvlint.readers.gencode import Folder


def findings(folder: Folder) -> Iterator[Finding]:
    """The findings about a folder, in the order of ranks and lines."""
    yield from ()
