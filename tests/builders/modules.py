"""The modules of tvlint as syntax, for tests that hold rules over all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.shared import ROOT

PRODUCT = ROOT / "tvlint"


@cache
def texts() -> dict[Path, str]:
    """Return the text of every module, in the order of their paths."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(PRODUCT.rglob("*.py"))}


def nodes(*words: str, rooms: tuple[str, ...] = ()) -> Iterator[tuple[Path, ast.AST]]:
    """Yield the syntax of all modules, or of those of some rooms, whose text has one of the words, node by node."""
    for path, text in texts().items():
        if (not words or any(word in text for word in words)) and (not rooms or path.relative_to(PRODUCT).parts[0] in rooms):
            for node in ast.walk(ast.parse(text)):
                yield path, node
