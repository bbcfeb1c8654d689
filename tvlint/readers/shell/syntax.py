"""The syntax tree of shell text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from time import process_time
from typing import TYPE_CHECKING

from tvlint.ir.location import Location
from tvlint.ir.patterns import Pattern
from tvlint.readers.document import ReadError
from tvlint.readers.shell.values import Source

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Tree


PLACEHOLDER = Pattern(
    rb"^([ \t]*(?:export[ \t]+)?[A-Za-z_]\w*=)<([A-Za-z][^<>|&;()\n]{2,200})>"
    rb"([ \t]*(?:\\[ \t]*\r?\n[ \t]*)?\(e\.g\.[^()\n]{,200}\)|)(?=[^\s>&|;()]*[ \t]*\r?$)",
    re.MULTILINE,
)
"""The rest of a template: a value that is still to be filled in (`DATA=<path of the data> (e.g., /data)`)."""


SECONDS = 2.0
"""So long the parser may take for all scripts that are read with one; real ones take a hundredth of a second."""


class Syntax:
    """The syntax trees of a script and of those in it and around it: each is found once, and all in a limited time.

    What is no shell's may take the parser time with the square of its length.
    """

    def __init__(self) -> None:
        self._trees: dict[bytes, Tree] = {}
        self._left = SECONDS

    def tree(self, source: Source) -> Tree:
        """Return the tree of `source`; wrong syntax gives error nodes. Raises ReadError where the time is over.

        A placeholder, which a shell would take for redirections, counts as a variable that nothing sets.
        """
        if source.data not in self._trees:
            self._trees[source.data] = self._parsed(source, filled_in(source.data))
        return self._trees[source.data]

    def _parsed(self, source: Source, data: bytes) -> Tree:
        from tree_sitter import Parser

        started, last = process_time(), 0

        def is_late(place: int, _: bool) -> bool:
            nonlocal last
            last = place
            return process_time() - started > self._left

        try:
            return Parser(_grammar()).parse(lambda place, _: data[place:], progress_callback=is_late)
        except ValueError:
            offsets = source.byte_offsets
            line, _ = source.lines.place(last if offsets is None else offsets[min(last, len(offsets) - 1)])
            text = f"the script is no shell's: its syntax is not found in {SECONDS:g} seconds"
            raise ReadError(text, Location(source.path, line)) from None
        finally:
            self._left -= process_time() - started


def filled_in(data: bytes) -> bytes:
    """Return the text with unset variables in the place of placeholders; every other place stays."""
    return PLACEHOLDER.sub(_unset, data)


def _unset(found: re.Match[bytes]) -> bytes:
    """As many bytes, so that every place stays."""
    return found[1] + b"${" + b"_" * (len(found[2]) - 1) + b"}" + re.sub(rb"[^\r\n]", b" ", found[3])


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
def _grammar() -> Language:
    from tree_sitter import Language

    return Language(_compiled_grammar())


def _compiled_grammar() -> object:
    """Return the grammar of the shell.

    Its package loads what reads resources, a twentieth of a check, for queries that are not used here: the extension alone
    is loaded, where it lies in the package under the name that it has today.
    """
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    package = PathFinder.find_spec("tree_sitter_bash")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("tree_sitter_bash._binding", folders) if folders else None
    if spec is None or spec.loader is None:
        import tree_sitter_bash

        return tree_sitter_bash.language()
    binding = module_from_spec(spec)
    spec.loader.exec_module(binding)
    return binding.language()
