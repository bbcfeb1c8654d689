"""Here-documents: text for a variable, or a script of its own that a shell, a scheduler or a file takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

from tvlint.readers.shell.bindings import Bindings
from tvlint.readers.shell.quotes import literal, unescaped
from tvlint.readers.shell.sources import DEEPEST_SOURCE
from tvlint.readers.shell.state import State
from tvlint.readers.shell.values import Piece, Scalar, Source

if TYPE_CHECKING:
    from tree_sitter import Node

Expand: TypeAlias = "Callable[[State, Node], tuple[Piece, ...]]"

ESCAPED = re.compile(rb"\\([$`\\])")
FILLS = re.compile(rb"\bread\b(?:[ \t]+-\w+)*[ \t]+-\w*d[ \t]*(?:''|\"\")[ \t]+(?:-\w+[ \t]+)*([A-Za-z_]\w*)")
RUNS = re.compile(
    rb"(?:^|[\s;|&(/])(?:ba|z|k|da)?sh\b|\b(?:ssh|sbatch|srun|qsub|bsub|pdsh|tee|docker|kubectl|apptainer|singularity)\b"
    rb"|(?<![0-9&])>(?!&)"
)
"""What takes a script, or writes a file that may be one."""
OTHERS = re.compile(
    rb"[>\s][\"']?[^\s\"'>]*\.(?:ya?ml|json|toml|py|md|rst|txt|ini|cfg|html?|xml)\b|\bpython[\d.]*\b|>[ \t]*/dev/"
)
"""What is no shell's."""
SILENCED = re.compile(rb"(\btee\b[^|;&>]*)>[ \t]*/dev/null")
"""A file that is written, with what is shown of it thrown away."""
TELLING = re.compile(rb"[-_]parallel[-_]|[-_]batch[-_]size|num[-_]layers")
ASSIGNS = re.compile(rb"(?:^|[\s;&({])([A-Za-z_]\w*)\+?=(?![\"']?\$\{?\1\}?[\"']?(?:\s|;|$))", re.MULTILINE)
"""An assignment other than `X=$X`, which changes nothing."""
USES = re.compile(rb"(?<!\\)(?:\\\\)*\$\{?([A-Za-z_]\w*)")
LATER = re.compile(rb"\\\$\{?([A-Za-z_]\w*)")
COMPUTED = re.compile(rb"(?<!\\)\$\(\(")
"""Arithmetic of the first shell, which names variables without a sign."""
FILLED = "FILLED_IN_"
"""What the name of a variable begins with that the first shell fills in, where the second one has another of its name."""
GROUPS = frozenset({"subshell", "compound_statement", "redirected_statement", "pipeline"})
DEEPEST_GROUP = 4


def follow_heredoc(state: State, statement: Node, expand: Expand) -> None:
    """Follow what a redirected statement is given to read: as a variable's text, or as a script where its head runs one."""
    body = _body(state, statement)
    if body is None:
        return
    head = state.source.data[statement.start_byte : body[0].start_byte] + _behind_groups(state, statement)
    if fills := FILLS.search(head):
        state.assign(fills[1].decode(), Scalar(heredoc_text(state, statement, expand) or ()), state.span(statement))
        return
    if not RUNS.search(head) or OTHERS.search(SILENCED.sub(rb"\1", head)) or state.sources >= DEEPEST_SOURCE:
        return
    inner = _script(state, *body)
    if inner is not None:
        inner.follow_all(state.trace.syntax.tree(inner.source).root_node.children)


def heredoc_text(state: State, statement: Node, expand: Expand) -> tuple[Piece, ...] | None:
    """Return the text of the here-document of a statement as its reader gets it; None where it has none."""
    body = _body(state, statement)
    if body is None:
        return None
    node, quoted = body
    if quoted:
        return (literal(state, node.start_byte, node.end_byte),)
    pieces: list[Piece] = []
    place = node.start_byte
    for child in node.children:
        if child.type == "heredoc_content" or state.start(child) < place:
            continue
        pieces.extend(piece for piece, _ in unescaped(state, place, state.start(child), "$`\\", anything=False))
        pieces.extend(expand(state, child))
        place = child.end_byte
    pieces.extend(piece for piece, _ in unescaped(state, place, node.end_byte, "$`\\", anything=False))
    return tuple(pieces)


def _body(state: State, statement: Node) -> tuple[Node, bool] | None:
    """The body of the only here-document of a statement, and whether the shell leaves it as it stands."""
    redirects = [child for child in statement.children if child.type == "heredoc_redirect"]
    if len(redirects) != 1:
        return None
    parts = {child.type: child for child in redirects[0].children}
    start, body = parts.get("heredoc_start"), parts.get("heredoc_body")
    if start is None or body is None:
        return None
    return body, any(mark in state.text(start) for mark in "'\"\\")


def _behind_groups(state: State, statement: Node) -> bytes:
    """Return what takes the output of the groups that the statement stands in."""
    parts: list[bytes] = []
    node = statement
    for _ in range(DEEPEST_GROUP):
        outer = node.parent
        if outer is None or outer.type not in GROUPS:
            break
        if outer.type in ("redirected_statement", "pipeline"):
            parts.append(state.source.data[node.end_byte : outer.end_byte])
        node = outer
    return b" ".join(parts)


def _script(state: State, body: Node, quoted: bool) -> State | None:
    """Return the state in which another shell starts with the body as its script; None where it cannot be followed.

    Such a shell has the exported variables only. What the first shell fills in, it does so before.
    """
    data = state.source.data[body.start_byte : body.end_byte]
    if not TELLING.search(data):
        return None
    state.spend(1 + len(data) // 16)
    filled = set() if quoted else {name.decode() for name in USES.findall(data)}
    later = {name.decode() for name in (USES if quoted else LATER).findall(data)}
    hidden = {name for name in later if name not in state.exported}
    twice = filled & (hidden | {name.decode() for name in ASSIGNS.findall(data)})
    if twice and COMPUTED.search(data):
        return None
    inner = state.fork()
    inner.source = _source(state.source, body.start_byte, data, quoted, twice)
    inner.sources, inner.arguments, inner.functions, inner.ended = state.sources + 1, None, Bindings(), False
    for name in sorted(twice & state.variables.keys()):
        inner.variables[FILLED + name] = state.variables[name]
    for name in sorted(hidden - (filled - twice)):
        inner.variables.pop(name, None)
    return inner


def _source(outer: Source, start: int, data: bytes, quoted: bool, twice: Collection[str]) -> Source:
    """Return a part of the outer file as a script of its own, with its places in that file.

    The variables of `twice` that the first shell fills in have another name in it.
    """
    dropped = frozenset() if quoted else frozenset(match.start() for match in ESCAPED.finditer(data))
    renamed = {match.start(1) for match in USES.finditer(data) if match[1].decode() in twice}
    written = bytearray()
    kept: list[int] = []
    for place in range(len(data) + 1):
        if place in renamed:
            written += FILLED.encode()
            kept += [start + place] * len(FILLED)
        if place not in dropped:
            written += data[place : place + 1]
            kept.append(start + place)
    offsets = outer.byte_offsets
    places = tuple(kept) if offsets is None else tuple(offsets[place] for place in kept)
    return Source(outer.path, outer.text, bytes(written), outer.lines, places)
