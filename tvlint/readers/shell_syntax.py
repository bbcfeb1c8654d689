"""The syntax tree of shell text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tvlint.readers.shell_values import Source

if TYPE_CHECKING:
    from tree_sitter import Parser, Tree


def parse(source: Source) -> Tree:
    """The syntax tree of `source`; wrong syntax gives error nodes, never an exception."""
    return _parser().parse(source.data)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
