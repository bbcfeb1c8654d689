"""Commands, assignments and expansions of a script by the places at which they stand."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from tvlint.readers.languages import is_shell
from tvlint.readers.shell.syntax import Syntax, errors_in
from tvlint.readers.shell.values import source_of

if TYPE_CHECKING:
    from tree_sitter import Node


QUOTES = frozenset({"string", "raw_string", "ansi_c_string"})
PASSED_TO_NOTHING = frozenset({"comment", "heredoc_body", "raw_string", "ansi_c_string"})


def quoted_lines(path: str, text: str, numbers: Iterable[int]) -> frozenset[int]:
    """Return those of the lines of a script that begin in quotes or in a here-document; none of another file."""
    data = text.encode()
    if not is_shell(path, data, 0):
        return frozenset()
    source = source_of(path, data)
    tree = CommandTree(Syntax().tree(source).root_node)
    starts = [0, *accumulate(len(line) + 1 for line in source.data.split(b"\n"))]
    return frozenset(number for number in numbers if tree.is_quoted(starts[number - 1]))


class CommandTree:
    """The syntax tree of a script, to look up what stands at a byte; text that is no syntax of a shell has no commands."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.wrong = sorted((node.start_byte, node.end_byte) for node in errors_in(root))

    def command(self, start: int) -> Node | None:
        """Return the command whose name begins at the byte; None where none does."""
        place = bisect(self.wrong, start, key=lambda each: each[0])
        if place and start < self.wrong[place - 1][1]:
            return None
        node = self.root.descendant_for_byte_range(start, start + 1)
        while node is not None and node.type != "command_name":
            if node.start_byte != start:
                return None
            node = node.parent
        return node.parent if node is not None else None

    def is_assignment(self, start: int) -> bool:
        """Return whether a variable is set whose name begins at the byte."""
        node = self.root.descendant_for_byte_range(start, start + 1)
        return node is not None and node.parent is not None and node.parent.type == "variable_assignment"

    def is_expansion(self, start: int, end: int) -> bool:
        """Return whether the bytes are the expansion of a variable, to which blanks before it may belong."""
        node = self.root.descendant_for_byte_range(start, end)
        return node is not None and node.type in ("simple_expansion", "expansion")

    def around(self, last: int, start: int) -> tuple[str, str]:
        """Return whether the byte stands in a `command`, behind its last word, in an `array` or in a `string` in double quotes,
        and the variable that the string is the value of; empty texts where its words are passed to nothing.

        `last` is the byte before it that is no blank: a backslash before a line end is a part of nothing.
        """
        place = bisect(self.wrong, start, key=lambda each: each[0])
        node = self.root.descendant_for_byte_range(last, last + 1)
        if place and start < self.wrong[place - 1][1]:
            return "", ""
        is_quoted = False
        while node is not None and node.type not in PASSED_TO_NOTHING:
            is_quoted = is_quoted or (node.type == "string" and node.end_byte > start)
            if node.type == "variable_assignment" and is_quoted:
                name = node.child_by_field_name("name")
                return ("string", name.text.decode()) if name is not None and name.text is not None else ("", "")
            if node.type in ("command", "array"):
                return ("", "") if is_quoted else (node.type, "")
            node = node.parent
        return "", ""

    def is_quoted(self, start: int) -> bool:
        """Return whether the byte stands in quotes or in a here-document, where nothing is a comment."""
        node = self.root.descendant_for_byte_range(start, start)
        while node is not None:
            if node.type == "heredoc_body" or (node.type in QUOTES and node.start_byte < start):
                return True
            node = node.parent
        return False
