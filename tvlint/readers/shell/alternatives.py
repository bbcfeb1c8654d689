"""Find the variables that a script branches on or loops over, with the texts that it names for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tvlint.ir.patterns import Pattern
from tvlint.readers.shell.syntax import all_nodes
from tvlint.readers.shell.values import Source

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

MOST_NODES = 50_000
SUBJECT = Pattern(r"\"?\$\{?([A-Za-z_]\w*|[1-9])(?::?-[^}]*)?\}?\"?")
LITERAL = Pattern(r"[\"']?([A-Za-z0-9][\w.+-]{0,39})[\"']?")
EQUAL = frozenset({"=", "==", "-eq", "!=", "-ne"})


def alternatives(source: Source, tree: Tree) -> dict[str, tuple[str, ...]]:
    """Return the texts that the branches and loops of a script name, by variable or number of an argument.

    One that the script only compares may be empty too. What parses options (`case $1 in --size)`, `getopts`) names no such
    texts, nor does a function for its own arguments.
    """
    found: dict[str, dict[str, None]] = {}
    compared: set[str] = set()
    assigned: set[str] = set()
    parsed: set[str] = set()
    nodes = [*islice(all_nodes(tree.root_node), MOST_NODES)]
    for node in sorted(nodes, key=lambda each: each.start_byte):
        if node.type == "command" and _text(source, node).startswith("getopts "):
            parsed.update(_text(source, node).split()[2:3])
        if node.type == "variable_assignment" and node.children:
            assigned.add(_text(source, node.children[0]))
        for name, text in _named(source, node):
            if not name.isdigit() or not _in_function(node):
                found.setdefault(name, {})[text] = None
                compared.update([name] if node.type == "binary_expression" else [])
    for name in compared - assigned:
        found[name][""] = None
    return {name: tuple(texts) for name, texts in found.items() if name not in parsed}


def _named(source: Source, node: Node) -> Iterator[tuple[str, str]]:
    if node.type == "case_statement":
        subject = node.child_by_field_name("value")
        patterns = [
            child for item in node.named_children if item.type == "case_item" for child in item.children_by_field_name("value")
        ]
        yield from _pairs(source, subject, patterns)
    elif node.type == "for_statement":
        variable = node.child_by_field_name("variable")
        words = [LITERAL.fullmatch(_text(source, child)) for child in node.children_by_field_name("value")]
        if variable is not None and len(words) > 1:
            yield from ((_text(source, variable), word[1]) for word in words if word is not None)
    elif node.type == "binary_expression":
        operator, left, right = (node.child_by_field_name(each) for each in ("operator", "left", "right"))
        if operator is not None and right is not None and _text(source, operator) in EQUAL:
            yield from _pairs(source, left, [right])


def _pairs(source: Source, subject: Node | None, others: list[Node]) -> Iterator[tuple[str, str]]:
    name = SUBJECT.fullmatch(_text(source, subject)) if subject is not None else None
    texts = [LITERAL.fullmatch(_text(source, node)) for node in others]
    if name is not None and not any(_text(source, node).strip("\"'").startswith("-") for node in others):
        yield from ((name[1], text[1]) for text in texts if text is not None)


def _in_function(node: Node) -> bool:
    around = node.parent
    while around is not None and around.type != "function_definition":
        around = around.parent
    return around is not None


def _text(source: Source, node: Node) -> str:
    return source.data[node.start_byte : node.end_byte].decode(errors="replace")
