"""Loops: followed once, with everything that changes from round to round unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tvlint.ir.patterns import Pattern
from tvlint.readers.shell.bindings import Bindings
from tvlint.readers.shell.branches import join_branches, mark_replaceable
from tvlint.readers.shell.expand import expand_words
from tvlint.readers.shell.state import Moment, State
from tvlint.readers.shell.syntax import all_nodes
from tvlint.readers.shell.values import (
    Array,
    Choice,
    Hole,
    Scalar,
    Value,
    Word,
    known_text,
    line_of,
    weight,
)

if TYPE_CHECKING:
    from tree_sitter import Node

PARSES_ARGUMENTS = Pattern(r"\$\{?#|\$\{?1\b|\bgetopts\b")
_ARGUMENTS_LEFT = Pattern(
    r"""(?:\[\[?\s*(?P<quote>"?)(?:\$\#|\$\{\#\})(?P=quote)\s+(?:-gt\s+0|-ne\s+0|-ge\s+1|!=\s+"?0"?)\s*\]\]?
    |\(\(\s*(?:\$\#|\$\{\#\})\s*(?:>\s*0|!=\s*0|>=\s*1)?\s*\)\))""",
    re.VERBOSE,
)
_LEAVES_LOOP = Pattern(r"\bbreak\b")


def follow_for(state: State, node: Node) -> None:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None:
        follow_while(state, node)
        return
    items = [item for child in node.children_by_field_name("value") for item in expand_words(state, child)]
    span = state.span(node)
    name = state.text(variable)
    if len(items) == 1 and isinstance(items[0], Word):
        state.assign(name, Scalar(items[0].pieces), span)
        state.follow(body)
        state.ended = state.ended and not state.supposed
        return
    words = [item.pieces for item in items if isinstance(item, Word)]
    reason = f"takes several values in the loop at line {line_of(span)}"
    if words and len(words) == len(items):
        looped = Scalar((Choice(tuple(words), reason, span, 1 + sum(map(weight, words))),))
    else:
        looped = Scalar((Hole(reason, span),))
    _loop_body(state, node, body, (name, looped))


def follow_while(state: State, node: Node) -> None:
    body = node.child_by_field_name("body")
    if body is None:
        return
    conditions = node.children_by_field_name("condition")
    for child in conditions:
        state.follow(child)
    before, since = state.variables.fork(), state.now()
    _loop_body(state, node, body, None)
    if any(PARSES_ARGUMENTS.search(state.text(child)) for child in conditions) and state.arguments is None:
        _keep_defaults(state, before, since)
    if _takes_all_arguments(state, node, conditions, body):
        state.arguments = ()


def _takes_all_arguments(state: State, node: Node, conditions: list[Node], body: Node) -> bool:
    """Return whether the loop ends only where the script has no arguments left."""
    return (
        node.type == "while_statement"
        and node.children[0].type == "while"
        and _ARGUMENTS_LEFT.fullmatch(" ".join(state.text(child) for child in conditions).strip(" \t;\n")) is not None
        and _LEAVES_LOOP.search(state.text(body)) is None
    )


def _keep_defaults(state: State, before: Bindings[Value], since: Moment) -> None:
    """After a loop over the script's arguments, variables hold what they held before, unless an argument replaces it."""
    for name in dict.fromkeys(state.variables.set_since(since.variables)):
        value = before.get(name)
        if value is None or state.variables.get(name) is value:
            continue
        if isinstance(value, Array) or known_text(value.pieces) is not None:
            state.variables[name] = value
            mark_replaceable(state, name)


def _loop_body(state: State, node: Node, body: Node, looped: tuple[str, Value] | None) -> None:
    """Follow a body once, with everything that it sets unknown, and then leave it open whether it ran."""
    since = state.now()
    inner = state.fork()
    for all_node in all_nodes(body):
        state.spend()
        if all_node.type == "variable_assignment":
            name = all_node.child_by_field_name("name")
            adds = any(child.type == "+=" for child in all_node.children)
            if name is not None and (adds or _mentions(state, all_node, state.text(name))):
                inner.variables[state.text(name)] = Scalar((Hole("changes in a loop", state.span(all_node)),))
    if looped is not None:
        inner.assign(looped[0], looped[1], state.span(node))
    inner.arguments = None
    inner.follow(body)
    inner.ended = False
    join_branches(state, [state.fork(), inner], node, since)


def _mentions(state: State, assignment: Node, name: str) -> bool:
    value = assignment.child_by_field_name("value")
    return value is not None and name in state.text(value)
