"""Commands, assignments and expansions of a script by the places at which they stand."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING

from tvlint.readers.shell.syntax import errors_in

if TYPE_CHECKING:
    from tree_sitter import Node


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
