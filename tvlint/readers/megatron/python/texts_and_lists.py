"""Expressions that give texts and lists, as pieces that know where they stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from tvlint.readers.megatron.python.scope import Scope, Table, Thing, parts_of
from tvlint.readers.megatron.python.texts import DIRECTIVE, PLACEHOLDER, computed, filled, may_be_added
from tvlint.readers.shell.values import (
    Array,
    Gap,
    Hole,
    Item,
    Piece,
    Scalar,
    Span,
    Text,
    Value,
    Word,
    bounded,
    known_text,
    slice_text,
)

OPEN = re.compile(f"{PLACEHOLDER.pattern}|{DIRECTIVE.pattern}")
CHUNK = re.compile(r"(?P<blank>(?:\s|\\\n)+)|(?:(?!\\\n)\S)+")
"""Blanks, with the ends of lines that a shell goes on after; or what stands between them."""
QUOTED = re.compile(r"[\"'`$\\]")
"""What a shell that takes the text may read otherwise."""


def items_of(scope: Scope, node: ast.expr, depth: int) -> Iterator[Item]:
    """Yield the words that an expression adds to the list in which it stands."""
    if isinstance(node, ast.Starred):
        inner = scope.value(node.value, depth + 1)
        yield from inner.items if isinstance(inner, Array) else [Gap("not understood", scope.span(node))]
        return
    value = scope.value(node, depth + 1)
    if isinstance(value, Scalar):
        yield Word(value.pieces or (Text("", scope.span(node), exact=False),))
    else:
        yield Gap("a list within a list", scope.span(node))


def pieces_of(scope: Scope, node: ast.JoinedStr | ast.Constant, depth: int) -> Iterator[Piece]:
    """Yield the pieces of a text, each at its place."""
    whole = scope.span(node)
    at = whole.start
    for part in node.values if isinstance(node, ast.JoinedStr) else [node]:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            for match in CHUNK.finditer(part.value):
                chunk, is_blank = match[0], match["blank"] is not None
                found = scope.source.text.find(chunk, at, whole.end) if not is_blank else -1
                at = found + len(chunk) if found >= 0 else at
                place = Span(scope.source, found, at) if found >= 0 else whole
                if not is_blank and QUOTED.search(chunk):
                    yield Hole("not understood", place)
                else:
                    yield from _with_placeholders(Text(chunk, place, exact=found >= 0))
        elif isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion < 0:
            value = scope.value(part.value, depth + 1)
            yield from value.pieces if isinstance(value, Scalar) else scope.hole(node).pieces
        else:
            yield from scope.hole(node).pieces


def _with_placeholders(text: Text) -> Iterator[Piece]:
    """Yield the parts of a text; what `format` or `%` may fill in is open."""
    start = 0
    for match in OPEN.finditer(text.text):
        if match.start() > start:
            yield slice_text(text, start, match.start())
        yield Hole("filled in elsewhere", slice_text(text, match.start(), match.end()).span)
        start = match.end()
    if start < len(text.text):
        yield slice_text(text, start, len(text.text))


def sum_of(scope: Scope, one: Value, other: Value, node: ast.expr | ast.stmt | None) -> Value:
    """Return what `+` makes of two texts or lists."""
    for each in (one, other):
        scope.spend(each, node)
    if isinstance(one, Scalar) and isinstance(other, Scalar):
        pieces = computed(ast.Add(), one.pieces, other.pieces, scope.span(node))
        if pieces is not None:
            return Scalar(pieces)
        if may_be_added(one.pieces, other.pieces):
            return scope.hole(node)
        return bounded(Scalar((*one.pieces, *other.pieces)), scope.span(node))
    lists = [each.items if isinstance(each, Array) else (Gap("not understood", scope.span(node)),) for each in (one, other)]
    return bounded(Array((*lists[0], *lists[1])), scope.span(node))


def computed_of(
    scope: Scope, operator: ast.operator, one: Value, other: Value, node: ast.expr | ast.stmt
) -> tuple[Piece, ...] | None:
    """Return what an operator other than `+` makes of two values; None where that is not known."""
    if not isinstance(one, Scalar):
        return None
    if isinstance(other, Scalar) and (found := computed(operator, one.pieces, other.pieces, scope.span(node))) is not None:
        return found
    if not isinstance(operator, ast.Mod):
        return None
    if any(isinstance(piece, Text) and "%" in piece.text for piece in one.pieces):
        return None
    table = scope.table(node.right, 0) if isinstance(node, ast.BinOp) else None
    named = {} if table is None else {name: _text_of(scope, thing, node) for name, thing in table.entries.items()}
    parts = [other] if isinstance(other, Scalar) else parts_of(other) or []
    listed = [_text_of(scope, scope.hole(node) if part is None else part, node) for part in parts]
    return tuple(filled(one.pieces, listed, named, DIRECTIVE))


def formatted(scope: Scope, call: ast.Call, template: Value, depth: int) -> Value:
    """Return what `format` makes of a text; what it is not known to fill in stays open."""
    named: dict[str, Thing] = {}
    for keyword in call.keywords:
        table = scope.table(keyword.value, depth) if keyword.arg is None else None
        named |= table.entries if table is not None else {keyword.arg: scope.value(keyword.value, depth)} if keyword.arg else {}
    if not isinstance(template, Scalar) or any(isinstance(each, ast.Starred) for each in call.args):
        return scope.hole(call)
    listed = [_text_of(scope, scope.value(each, depth), each) for each in call.args]
    texts = {name: _text_of(scope, thing, call) for name, thing in named.items()}
    return bounded(Scalar(tuple(filled(template.pieces, listed, texts))), scope.span(call))


def _text_of(scope: Scope, thing: Thing, node: ast.expr | ast.stmt) -> tuple[Piece, ...]:
    return thing.pieces if isinstance(thing, Scalar) else scope.hole(node).pieces


def from_outside(scope: Scope, default: ast.expr, depth: int) -> Value:
    """Return what holds a default where whoever starts the program gives nothing else."""
    value = scope.value(default, depth)
    if not isinstance(value, Scalar) or known_text(value.pieces) == "None":
        return scope.hole(default)
    return Scalar(tuple(replace(piece, outside=True) if isinstance(piece, Text) else piece for piece in value.pieces))


def of_entry(scope: Scope, node: ast.Attribute | ast.Subscript, found: Thing | None, depth: int) -> Value:
    """Return the text or the list that is `found` at an expression; else the default of the option that it names."""
    if found is not None:
        return scope.hole(node) if isinstance(found, Table) else found
    default = scope.names.default(node) if isinstance(node, ast.Attribute) else None
    return from_outside(scope, default, depth) if default is not None else scope.hole(node)
