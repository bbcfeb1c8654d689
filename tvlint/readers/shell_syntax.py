"""The syntax tree of shell text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from tvlint.readers.shell_values import Source

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree


def parse(source: Source) -> Tree:
    """The syntax tree of `source`; wrong syntax gives error nodes, never an exception."""
    return _parser().parse(source.data)


def all_nodes(node: Node) -> Iterator[Node]:
    """`node` and every node below it."""
    pending = [node]
    while pending:
        each = pending.pop()
        yield each
        pending.extend(each.children)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
