"""Deciding conditions that literal values decide; every other condition stays open."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tvlint.ir.patterns import Pattern
from tvlint.readers.shell.arithmetic import evaluate_arithmetic
from tvlint.readers.shell.expand import expand_text, expand_words
from tvlint.readers.shell.state import DEEPEST, State
from tvlint.readers.shell.values import Word, known_text

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST_PATTERN = 200
ORDERS = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
NUMBER = Pattern(r"[+-]?\d{1,18}")


def decide(state: State, node: Node, depth: int = 0) -> bool | None:
    """Return whether the condition `node` holds; None where the file does not say."""
    state.spend()
    if depth > DEEPEST:
        return None
    kind = node.type
    if kind == "test_command":
        inner = node.named_children
        return decide_test(state, inner[0], depth + 1) if len(inner) == 1 else None
    if kind == "compound_statement" and node.children and node.children[0].type == "((":
        inner = node.named_children
        if len(inner) != 1:
            return None
        value, _ = evaluate_arithmetic(state, inner[0], lambda each: expand_text(state, each))
        return bool(value) if isinstance(value, int) else None
    if kind == "negated_command" and len(node.named_children) == 1:
        return _negated(decide(state, node.named_children[0], depth + 1))
    if kind == "list" and len(node.children) == 3:
        left, right = (decide(state, child, depth + 1) for child in (node.children[0], node.children[2]))
        return _both(left, right) if node.children[1].type == "&&" else _either(left, right)
    if kind == "command":
        return _decide_command(state, node)
    return None


def decide_test(state: State, node: Node, depth: int) -> bool | None:
    """Return whether the expression inside `[ ]` or `[[ ]]` holds."""
    if depth > DEEPEST:
        return None
    kind = node.type
    if kind == "parenthesized_expression" and len(node.named_children) == 1:
        return decide_test(state, node.named_children[0], depth + 1)
    if kind == "unary_expression" and len(node.children) == 2:
        operator = state.text(node.children[0])
        if operator == "!":
            return _negated(decide_test(state, node.children[1], depth + 1))
        return _unary(operator, _text(state, node.children[1]))
    if kind == "binary_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = node.child_by_field_name("operator")
        if left is None or right is None or sign is None:
            return None
        operator = state.text(sign)
        if operator in ("&&", "-a"):
            return _both(decide_test(state, left, depth + 1), decide_test(state, right, depth + 1))
        if operator in ("||", "-o"):
            return _either(decide_test(state, left, depth + 1), decide_test(state, right, depth + 1))
        pattern = "*" if right.type in ("extglob_pattern", "word", "concatenation") else ""
        return _compare(_text(state, left), operator, _text(state, right), bool(pattern))
    text = _text(state, node)
    return bool(text) if text is not None else None


def matches(text: str, pattern: str) -> bool | None:
    """Return whether `text` matches the glob `pattern`; None where the pattern is beyond what is followed."""
    if len(pattern) > LONGEST_PATTERN or len(text) > LONGEST_PATTERN or pattern.count("*") > 4:
        return None
    return fnmatchcase(text, pattern)


def _decide_command(state: State, node: Node) -> bool | None:
    name = node.child_by_field_name("name")
    if name is None:
        return None
    command = state.text(name)
    if command in ("true", "false"):
        return command == "true"
    if command != "test":
        return None
    words: list[str] = []
    for child in node.children_by_field_name("argument"):
        for item in expand_words(state, child):
            text = known_text(item.pieces) if isinstance(item, Word) else None
            if text is None:
                return None
            words.append(text)
    if len(words) == 2:
        return _unary(words[0], words[1])
    return _compare(words[0], words[1], words[2], False) if len(words) == 3 else None


def _text(state: State, node: Node) -> str | None:
    return known_text(expand_text(state, node))


def _unary(operator: str, text: str | None) -> bool | None:
    if text is None or operator not in ("-z", "-n"):
        return None
    return (not text) == (operator == "-z")


def _compare(left: str | None, operator: str, right: str | None, pattern: bool) -> bool | None:
    if left is None or right is None:
        return None
    if operator in ("=", "==", "!="):
        equal = matches(left, right) if pattern else left == right
        return None if equal is None else equal == (operator != "!=")
    if operator not in ORDERS or not NUMBER.fullmatch(left) or not NUMBER.fullmatch(right):
        return None
    one, other = int(left), int(right)
    return {
        "-eq": one == other,
        "-ne": one != other,
        "-lt": one < other,
        "-le": one <= other,
        "-gt": one > other,
        "-ge": one >= other,
    }[operator]


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return True if left and right else None


def _either(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return False if left is False and right is False else None
