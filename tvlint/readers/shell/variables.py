"""Expand variables, arrays and arguments of a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvlint.readers.shell.state import State, as_scalar
from tvlint.readers.shell.values import Array, Gap, Hole, Item, Piece, Scalar, Span, Text, Word
from tvlint.readers.shell.words import join, quoted_value, split, split_value

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_DIGITS = 12
"""Of a number with more digits as many are read: no script has so many words."""


def variable(state: State, name: str, span: Span) -> tuple[Piece, ...]:
    """Return what `$name` gives: a variable of the file, an argument of the function that runs, or a hole."""
    value = state.variables.get(name)
    if value is not None:
        scalar = as_scalar(value)
        return scalar.pieces if scalar is not None else (Hole(f"`{name}` is an array that is not known", span),)
    if name in ("@", "*"):
        return join(state.words_of_arguments(span))
    if name.isdecimal() and state.arguments is not None and name.strip("0"):
        return _argument(state, state.arguments, name, span)
    if name in state.supposed:
        return (Text(state.supposed[name], span, exact=False),)
    if name.isdecimal() or name in ("#", "?", "$", "!", "-", "_"):
        return (Hole(f"depends on `${name}`", span),)
    return (Hole(f"`{name}` is not set in the file", span),)


def _argument(state: State, arguments: tuple[Item, ...], digits: str, span: Span, first: int = 1) -> tuple[Piece, ...]:
    """Return the word that `digits` number, where the first one is number `first`."""
    number = int(digits[:MOST_DIGITS]) - first
    state.spend(min(number, len(arguments)) // 16)
    if not all(isinstance(item, Word) for item in arguments[: number + 1]):
        return (Hole(f"depends on `${digits}`", span),)
    if number >= len(arguments):
        return ()
    item = arguments[number]
    return item.pieces if isinstance(item, Word) else (Hole(f"depends on `${digits}`", span),)


def variable_of(state: State, node: Node) -> tuple[str, tuple[Piece, ...] | None]:
    """Return the variable's name and, where the file sets it, its text."""
    name = state.text(node)
    if node.type != "subscript":
        if name in state.variables or name in state.supposed or (name.isdecimal() and state.arguments is not None):
            return name, variable(state, name, state.span(node))
        return name, None
    match = re.fullmatch(r"([A-Za-z_]\w*)\[([@*]|\d+)\]", name)
    value = state.variables.get(match[1]) if match else None
    hole = (Hole(f"`{name}` is not known", state.span(node)),)
    if match is None or value is None:
        return name, hole
    if match[2] in "@*":
        return name, join(split_value(value))
    items = split_value(value) if isinstance(value, Array) else quoted_value(value)
    return name, _argument(state, items, match[2], state.span(node), first=0)


def whole_array(state: State, node: Node) -> tuple[Item, ...] | None:
    """Return the words of `"${A[@]}"`, `${A[*]}` or `"$@"` standing alone; None for anything else.

    Without quotes, blanks in an element cut it into words.
    """
    inner = node
    if node.type == "string":
        if len(node.named_children) != 1 or node.named_children[0].end_byte + 1 != node.end_byte:
            return None
        inner = node.named_children[0]
        if inner.start_byte != node.start_byte + 1 or "*" in state.text(inner):
            return None
    if inner.type in ("simple_expansion", "expansion"):
        text = state.text(inner)
        if text in ("$@", "$*", "${@}", "${*}"):
            return state.words_of_arguments(state.span(inner))
        match = re.fullmatch(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}", text)
        if match is None:
            return None
        value = state.variables.get(match[1])
        if value is None:
            return (Gap(f"`{match[1]}` is not set in the file", state.span(inner)),)
        state.spend(len(value.items) if isinstance(value, Array) else 1)
        if isinstance(value, Scalar):
            return quoted_value(value) if node.type == "string" else split_value(value)
        return value.items if node.type == "string" else tuple(_cut_again(value.items))
    return None


def _cut_again(items: tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        if isinstance(item, Word):
            yield from split([(piece, isinstance(piece, Text)) for piece in item.pieces])
        else:
            yield item
