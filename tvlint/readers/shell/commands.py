"""Assignments, declarations and simple commands, and what the shell's own commands do to the state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.shell.expand import add_words, expand_text, expand_value, expand_words
from tvlint.readers.shell.sources import find_sourced
from tvlint.readers.shell.started import follow_started
from tvlint.readers.shell.state import Command, State
from tvlint.readers.shell.syntax import all_nodes
from tvlint.readers.shell.values import (
    Array,
    Gap,
    Hole,
    Item,
    Scalar,
    Span,
    Text,
    Value,
    Word,
    from_outside,
    known_text,
    leading_text,
    source_of,
)
from tvlint.readers.shell.words import quoted_value

if TYPE_CHECKING:
    from tree_sitter import Node

DEEPEST_CALL = 8
READS = frozenset({"read", "mapfile", "readarray", "getopts"})

PASSES_OPTIONS = Pattern(r"[- ]|\.\w+=")


def assign(state: State, node: Node) -> None:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if name is None:
        return
    span = state.span(node)
    if name.type == "subscript":
        target = name.child_by_field_name("name")
        if target is not None:
            state.variables[state.text(target)] = Array((Gap("elements of the array are set one by one", span),))
        return
    adds = any(child.type == "+=" for child in node.children)
    nothing = Scalar((Text("", Span(span.source, span.end, span.end), exact=False),))
    new = expand_value(state, value) if value is not None else nothing
    old = state.variables.get(state.text(name))
    if adds:
        new = _added(old, new, state.text(name), span)
    state.assign(state.text(name), new, span)


def _added(old: Value | None, new: Value, name: str, span: Span) -> Value:
    if old is None and isinstance(new, Scalar):
        return Scalar((Hole(f"`{name}` is not set in the file before", span), *new.pieces))
    if old is None:
        return new
    if isinstance(new, Array):
        first: tuple[Item, ...] = old.items if isinstance(old, Array) else quoted_value(old)
        return Array((*first, *new.items))
    if isinstance(old, Scalar):
        return Scalar((*old.pieces, *new.pieces))
    return Array((*old.items, Gap("text is added to an array", span)))


def assign_all(state: State, node: Node) -> None:
    for child in node.children:
        if child.type == "variable_assignment":
            assign(state, child)


def declare(state: State, node: Node) -> None:
    exports = node.children[0].type == "export"
    for child in node.children[1:]:
        if child.type == "word" and state.text(child).startswith("-") and "x" in state.text(child):
            exports = True
        if child.type == "variable_assignment":
            assign(state, child)
        if not exports:
            continue
        name = child.child_by_field_name("name") if child.type == "variable_assignment" else child
        if name is not None and name.type == "variable_name":
            state.exported[state.text(name)] = True


def unset(state: State, node: Node) -> None:
    for child in node.named_children:
        if child.type in ("variable_name", "word"):
            state.variables[state.text(child)] = Scalar(())
            state.exported.pop(state.text(child), None)


def run_command(state: State, node: Node) -> None:
    name = node.child_by_field_name("name")
    assigned = [child for child in node.children if child.type == "variable_assignment"]
    if name is None or (assigned and _on_a_line_before(state, assigned[0], name)):
        for child in assigned:
            assign(state, child)
        if name is None:
            return
        assigned = []
    scope = state
    if assigned:
        scope = state.fork()
        for child in assigned:
            assign(scope, child)
            target = child.child_by_field_name("name")
            if target is not None:
                scope.exported[state.text(target)] = True
    words: list[Item] = expand_words(state, name)
    previous: Node | None = None
    for child in node.children:
        if child.start_byte < name.end_byte or child.type == "variable_assignment":
            continue
        if child.type.endswith("redirect") or child.type in ("comment", "herestring_redirect"):
            continue
        add_words(state, child, previous, words)
        previous = child
    before = {name: state.variables.get(name) for name in scope.variables.set_since() if assigned and _runs_here(state, words)}
    for each_name in before:
        state.variables[each_name] = scope.variables[each_name]
    _run(state, node, words, scope)
    for each_name, value in before.items():
        _restore(state, each_name, value)


def _runs_here(state: State, words: list[Item]) -> bool:
    """Return whether the command is a sourced file or a function, which sees variables that are assigned before it."""
    command = _plain(words[0]) if words else None
    return command in ("source", ".") or command in state.functions


def _restore(state: State, name: str, value: Value | None) -> None:
    if value is not None:
        state.variables[name] = value
    else:
        state.variables.pop(name, None)


def _on_a_line_before(state: State, assignment: Node, name: Node) -> bool:
    between = state.source.data[assignment.end_byte : name.start_byte].replace(b"\\\n", b"").replace(b"\\\r\n", b"")
    return b"\n" in between and assignment.end_byte <= name.start_byte


def _run(state: State, node: Node, words: list[Item], scope: State) -> None:
    """Run a command; `scope` is the state with what is assigned for this command only."""
    command = _plain(words[0]) if words else None
    found = Command(tuple(words), state.span(node), _exported(scope)) if _passes_options(words) else None
    _run_own(state, node, words, command)
    if found is not None:
        state.trace.commands.append(found)
    follow_started(state, scope, words)


def _passes_options(words: list[Item]) -> bool:
    return any(not isinstance(item, Word) or PASSES_OPTIONS.search(leading_text(item.pieces)) for item in words)


def _exported(scope: State) -> dict[str, Value]:
    """Return the variables that a command in `scope` is given."""
    scope.spend(len(scope.exported))
    return {name: scope.variables[name] for name in scope.exported if name in scope.variables}


def _run_own(state: State, node: Node, words: list[Item], command: str | None) -> None:
    """Change the state as a command of the shell, a sourced file or a function does; other commands change nothing."""
    if command in ("exit", "return", "exec"):
        state.ended = command != "exec" or len(words) > 1
    if command in ("continue", "break") and state.supposed:
        state.ended = True
    if command in ("source", "."):
        _source(state, node, words[1:])
    elif command == "export":
        for text in filter(None, map(_plain, words[1:])):
            state.exported[text] = True
    elif command == "set":
        _set(state, words[1:])
    elif command == "eval" and any(
        isinstance(item, Word) and re.match(r"set\b", leading_text(item.pieces)) for item in words[1:2]
    ):
        state.arguments = None
    elif command == "shift":
        _shift(state, words[1:])
    elif command == "let":
        for text in filter(None, map(_plain, words[1:])):
            _forget(state, text.partition("=")[0].rstrip("+-*/%"), "set by an arithmetic statement", node)
    elif command == "read" and (given := _given_text(state, node)) is not None:
        _read(state, words[1:], given)
    elif command in READS:
        for text in filter(None, map(_plain, words[1:])):
            if text.isidentifier():
                _forget(state, text, f"set by `{command}`", node)
    elif command is not None and command in state.functions:
        _call(state, command, words[1:])


def _given_text(state: State, node: Node) -> Text | None:
    """Return the text that a command reads after `<<<`; None where it reads something else, or other separators count."""
    given = [child for child in node.children if child.type == "herestring_redirect"]
    if len(given) != 1 or any(child.type == "variable_assignment" for child in node.children) or "IFS" in state.variables:
        return None
    pieces = tuple(piece for child in given[0].named_children for piece in expand_text(state, child))
    text = known_text(pieces)
    return Text(text, state.span(given[0]), False, from_outside(pieces)) if text is not None else None


def _read(state: State, words: list[Item], given: Text) -> None:
    """Set the variables that `read` names to the words of a text, the last one to all that are left."""
    parts = given.text.partition("\n")[0].split()
    texts = [_plain(item) or "" for item in words]
    names = [text for text in texts if text.isidentifier()]
    state.spend(1 + len(parts))
    is_list = any(re.fullmatch(r"-r?a", text) for text in texts)
    if any(text.startswith("-") and not re.fullmatch(r"-r?a?", text) for text in texts) or (is_list and len(names) != 1):
        for name in names:
            state.variables[name] = Scalar((Hole(f"`{name}` is set by `read`", given.span),))
        return
    if is_list:
        state.assign(names[0], Array(tuple(Word((replace(given, text=part),)) for part in parts)), given.span)
        return
    for place, name in enumerate(names):
        text = " ".join(parts[place:]) if place == len(names) - 1 else "".join(parts[place : place + 1])
        state.assign(name, Scalar((replace(given, text=text),)), given.span)


def _plain(item: Item) -> str | None:
    return known_text(item.pieces) if isinstance(item, Word) else None


def _set(state: State, words: list[Item]) -> None:
    texts = [_plain(item) for item in words]
    if "--" in texts:
        state.arguments = tuple(words[texts.index("--") + 1 :])
    elif words and not (texts[0] or "").startswith(("-", "+")):
        state.arguments = None


def _shift(state: State, words: list[Item]) -> None:
    if state.arguments is None:
        return
    count = _plain(words[0]) if words else "1"
    known = count is not None and count.isdigit() and len(count) < 4
    if known and all(isinstance(item, Word) for item in state.arguments[: int(count or 0)]):
        state.spend(len(state.arguments) // 64)
        state.arguments = state.arguments[int(count or 0) :]
    else:
        state.arguments = None


def _call(state: State, name: str, words: list[Item]) -> None:
    state.trace.called.add(name)
    if state.calls >= DEEPEST_CALL:
        return
    source, body = state.functions[name]
    outer_source, outer_arguments = state.source, state.arguments
    state.source, state.arguments, state.calls = source, tuple(words), state.calls + 1
    try:
        state.follow(body)
    finally:
        state.source, state.arguments, state.calls = outer_source, outer_arguments, state.calls - 1
    state.ended = False


def _source(state: State, node: Node, words: list[Item]) -> None:
    span = state.span(node)
    target = _plain(words[0]) if words else None
    found = find_sourced(state, target) if target is not None else None
    if found is None:
        state.trace.unresolved_sources.append(span)
        return
    inner = source_of(*found)
    outer = state.source
    state.source, state.sources = inner, state.sources + 1
    try:
        state.follow_all(state.trace.syntax.tree(inner).root_node.children)
    finally:
        state.source, state.sources = outer, state.sources - 1
    state.ended = False


def define_function(state: State, node: Node) -> None:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        state.functions[state.text(name)] = (state.source, body)


def _forget(state: State, name: str, why: str, node: Node) -> None:
    state.variables[name] = Scalar((Hole(f"`{name}` is {why}", state.span(node)),))


def compute(state: State, node: Node) -> None:
    for child in all_nodes(node):
        if child.type in ("binary_expression", "postfix_expression", "unary_expression", "variable_assignment"):
            operator = child.child_by_field_name("operator")
            name = child.child_by_field_name("left") or child.child_by_field_name("name")
            sign = state.text(operator) if operator is not None else "="
            if name is None and child.named_children:
                name = child.named_children[0]
            if name is not None and (sign in ("++", "--") or (sign.endswith("=") and sign not in ("==", "<=", ">=", "!="))):
                _forget(state, state.text(name), "set by an arithmetic statement", node)
