"""The syntax tree of shell text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.shell.values import Source

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree


PLACEHOLDER = re.compile(
    rb"^([ \t]*(?:export[ \t]+)?[A-Za-z_]\w*=)<([A-Za-z][^<>|&;()\n]{2,200})>(?=[^\s>&|;()]*[ \t]*\r?$)", re.MULTILINE
)
"""The rest of a template: a value that is still to be filled in (`DATA=<path of the data>`)."""


_OPERATORS = re.compile(rb"[()<>|&;{}]{10000}")
"""What no shell takes, and the parser needs time for with the square of its length: operators without a word between them."""


def parse(source: Source) -> Tree:
    """The syntax tree of `source`; wrong syntax gives error nodes. Raises ReadError for ten thousand operators in a row.

    A placeholder, which a shell would take for redirections, counts as a variable that nobody sets.
    """
    if found := _OPERATORS.search(source.data):
        line = source.data.count(b"\n", 0, found.start()) + 1
        raise ReadError("the script has ten thousand operators in a row, which no shell takes", Location(source.path, line))
    return _parser().parse(PLACEHOLDER.sub(_unset, source.data))


def _unset(found: re.Match[bytes]) -> bytes:
    """As many bytes, so that every place stays."""
    return found[1] + b"${" + b"_" * (len(found[2]) - 1) + b"}"


def all_nodes(node: Node) -> Iterator[Node]:
    """`node` and every node below it."""
    pending = [node]
    while pending:
        this_node = pending.pop()
        yield this_node
        pending.extend(this_node.children)


def errors_in(node: Node) -> Iterator[Node]:
    """Yield the outermost nodes at and below `node` that are no syntax of a shell."""
    pending = [node]
    while pending:
        this_node = pending.pop()
        if this_node.is_error:
            yield this_node
        elif this_node.has_error:
            pending.extend(this_node.children)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
