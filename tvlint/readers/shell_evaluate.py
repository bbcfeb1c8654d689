"""Following a shell script statement by statement, without running anything: which commands it runs, with which words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvlint.readers.shell_conditions import decide, matches
from tvlint.readers.shell_expand import expand_text, expand_value, expand_words
from tvlint.readers.shell_sources import find_sourced, sbatch_variables
from tvlint.readers.shell_state import DEEPEST, Command, State, TooMuchWork, Trace
from tvlint.readers.shell_syntax import parse
from tvlint.readers.shell_values import (
    Array,
    Choice,
    Gap,
    Hole,
    Item,
    Scalar,
    Source,
    Span,
    Text,
    Value,
    Word,
    known_text,
    leading_text,
    line_of,
    source_of,
    weight,
)
from tvlint.readers.shell_words import merge

if TYPE_CHECKING:
    from tree_sitter import Node

STEPS = 400_000
DEEPEST_CALL = 8
UNSET_TEST = re.compile(r"\[\[?\s+-z\s+\"?\$\{?([A-Za-z_]\w*)(?::?-)?\}?\"?\s+\]\]?")
PARSES_ARGUMENTS = re.compile(r"\$\{?#|\$\{?1\b|\bgetopts\b")
READS = frozenset({"read", "mapfile", "readarray", "getopts"})
DECLARES = frozenset({"export", "declare", "local", "typeset", "readonly"})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What following a script brought up: its commands in order, its variables at the end, and what was not followed."""

    source: Source
    commands: tuple[Command, ...]
    variables: dict[str, Value]
    unresolved_sources: tuple[Span, ...]
    heredocs: tuple[Span, ...]
    gave_up: bool
    has_error: bool


def evaluate(source: Source) -> Evaluation:
    """Follow `source` from top to bottom; functions that nothing calls are followed last, as if called once."""
    tree = parse(source)
    state = State(source, Trace(STEPS))
    state.variables.update(sbatch_variables(source))
    gave_up = False
    try:
        _statements(state, tree.root_node.children)
        _uncalled(state)
    except TooMuchWork:
        gave_up = True
    heredocs = tuple(_heredocs(state, tree.root_node)) if b"<<" in source.data else ()
    trace = state.trace
    return Evaluation(
        source,
        tuple(trace.commands),
        state.variables,
        tuple(trace.unresolved_sources),
        heredocs,
        gave_up,
        tree.root_node.has_error,
    )


def _uncalled(state: State) -> None:
    for name, (source, body) in list(state.functions.items()):
        if name not in state.trace.called:
            inner = state.fork()
            inner.source, inner.ended, inner.calls = source, False, 1
            _statement(inner, body)


def _heredocs(state: State, node: Node) -> Iterable[Span]:
    pending = [node]
    while pending:
        each = pending.pop()
        if each.type == "heredoc_body":
            yield state.span(each)
        elif each.child_count:
            pending.extend(each.children)


def _statements(state: State, nodes: Sequence[Node]) -> None:
    for node in nodes:
        if state.ended:
            return
        _statement(state, node)


def _statement(state: State, node: Node) -> None:
    state.spend()
    handler = HANDLERS.get(node.type)
    if handler is None or state.depth > DEEPEST:
        return
    state.depth += 1
    try:
        handler(state, node)
    finally:
        state.depth -= 1


def _block(state: State, node: Node) -> None:
    if node.children and node.children[0].type == "((":
        _arithmetic_statement(state, node)
        return
    _statements(state, node.children)


def _arithmetic_statement(state: State, node: Node) -> None:
    for child in _all_nodes(node):
        if child.type in ("binary_expression", "postfix_expression", "unary_expression", "variable_assignment"):
            operator = child.child_by_field_name("operator")
            name = child.child_by_field_name("left") or child.child_by_field_name("name")
            sign = state.text(operator) if operator is not None else "="
            if name is None and child.named_children:
                name = child.named_children[0]
            if name is not None and (sign in ("++", "--") or (sign.endswith("=") and sign not in ("==", "<=", ">=", "!="))):
                _forget(state, state.text(name), "set by an arithmetic statement", node)


def _all_nodes(node: Node) -> Iterable[Node]:
    pending = [node]
    while pending:
        each = pending.pop()
        yield each
        pending.extend(each.children)


def _forget(state: State, name: str, why: str, node: Node) -> None:
    state.variables[name] = Scalar((Hole(f"`{name}` is {why}", state.span(node)),))


def _assignment(state: State, node: Node) -> None:
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
    new = expand_value(state, value) if value is not None else Scalar(())
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
        first: tuple[Item, ...] = old.items if isinstance(old, Array) else (Word(old.pieces),) if old.pieces else ()
        return Array((*first, *new.items))
    if isinstance(old, Scalar):
        return Scalar((*old.pieces, *new.pieces))
    return Array((*old.items, Gap("text is added to an array", span)))


def _assignments(state: State, node: Node) -> None:
    for child in node.children:
        if child.type == "variable_assignment":
            _assignment(state, child)


def _declaration(state: State, node: Node) -> None:
    exports = node.children[0].type == "export"
    for child in node.children[1:]:
        if child.type == "word" and state.text(child).startswith("-") and "x" in state.text(child):
            exports = True
        if child.type == "variable_assignment":
            _assignment(state, child)
        if not exports:
            continue
        name = child.child_by_field_name("name") if child.type == "variable_assignment" else child
        if name is not None and name.type == "variable_name":
            state.exported |= {state.text(name)}


def _unset(state: State, node: Node) -> None:
    for child in node.named_children:
        if child.type in ("variable_name", "word"):
            state.variables[state.text(child)] = Scalar(())
            state.exported -= {state.text(child)}


def _command(state: State, node: Node) -> None:
    name = node.child_by_field_name("name")
    assigned = [child for child in node.children if child.type == "variable_assignment"]
    if name is None or any(_on_a_line_before(state, child, name) for child in assigned):
        for child in assigned:
            _assignment(state, child)
        if name is None:
            return
        assigned = []
    exported = state.exported
    scope = state
    if assigned:
        scope = state.fork()
        for child in assigned:
            _assignment(scope, child)
            target = child.child_by_field_name("name")
            exported = exported | ({state.text(target)} if target is not None else set())
    words: list[Item] = expand_words(state, name)
    for child in node.children:
        if child.start_byte < name.end_byte or child.type == "variable_assignment":
            continue
        if child.type.endswith("redirect") or child.type in ("comment", "herestring_redirect"):
            continue
        words.extend(expand_words(state, child))
    _run(state, node, words, {each: scope.variables[each] for each in exported if each in scope.variables})


def _on_a_line_before(state: State, assignment: Node, name: Node) -> bool:
    between = state.source.data[assignment.end_byte : name.start_byte].replace(b"\\\n", b"").replace(b"\\\r\n", b"")
    return b"\n" in between and assignment.end_byte <= name.start_byte


def _run(state: State, node: Node, words: list[Item], exported: dict[str, Value]) -> None:
    first = words[0] if words else None
    command = known_text(first.pieces) if isinstance(first, Word) else None
    if command in ("exit", "return", "exec"):
        state.ended = command != "exec" or len(words) > 1
    if command in ("source", "."):
        _source(state, node, words[1:])
    elif command == "export":
        state.exported |= {text for text in map(_plain, words[1:]) if text}
    elif command == "set":
        _set(state, words[1:])
    elif command == "shift":
        _shift(state, words[1:])
    elif command == "let":
        for text in filter(None, map(_plain, words[1:])):
            _forget(state, text.partition("=")[0].rstrip("+-*/%"), "set by an arithmetic statement", node)
    elif command in READS:
        for text in filter(None, map(_plain, words[1:])):
            if text.isidentifier():
                _forget(state, text, f"set by `{command}`", node)
    elif command in state.functions:
        _call(state, command, words[1:])
    if any(
        not isinstance(item, Word) or "-" in leading_text(item.pieces) or " " in leading_text(item.pieces) for item in words
    ):
        state.trace.commands.append(Command(tuple(words), state.span(node), exported))


def _plain(item: Item) -> str | None:
    return known_text(item.pieces) if isinstance(item, Word) else None


def _set(state: State, words: list[Item]) -> None:
    texts = [_plain(item) for item in words]
    if "--" in texts:
        state.arguments = tuple(words[texts.index("--") + 1 :])


def _shift(state: State, words: list[Item]) -> None:
    if state.arguments is None:
        return
    count = _plain(words[0]) if words else "1"
    known = count is not None and count.isdigit() and len(count) < 4
    if known and all(isinstance(item, Word) for item in state.arguments[: int(count or 0)]):
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
        _statement(state, body)
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
        _statements(state, parse(inner).root_node.children)
    finally:
        state.source, state.sources = outer, state.sources - 1
    state.ended = False


def _function(state: State, node: Node) -> None:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is not None and body is not None:
        state.functions[state.text(name)] = (state.source, body)


def _join_branches(state: State, branches: list[State], node: Node) -> None:
    """Leave in `state` what holds after one of `branches` ran; a branch that leaves the script does not count."""
    going_on = [branch for branch in branches if not branch.ended]
    if not going_on:
        state.ended = True
        return
    span = state.span(node)
    reason = f"set in an undecided branch at line {line_of(span)}"
    names: dict[str, None] = {}
    for branch in going_on:
        names.update(dict.fromkeys(branch.variables))
    for name in names:
        values = [branch.variables.get(name) for branch in going_on]
        if any(value is not values[0] for value in values[1:]):
            hole = Scalar((Hole(f"`{name}` is not set in the file on every path", span),))
            present = [value if value is not None else hole for value in values]
            state.assign(name, merge(present, reason, span), span)
            state.spend(sum(weight(value.pieces) if isinstance(value, Scalar) else len(value.items) for value in present))
        elif values[0] is not None:
            state.variables[name] = values[0]
    state.exported = frozenset().union(*(branch.exported for branch in going_on))
    for branch in going_on:
        state.functions.update(branch.functions)
    if any(branch.arguments is not going_on[0].arguments for branch in going_on):
        state.arguments = None
    else:
        state.arguments = going_on[0].arguments


def _if(state: State, node: Node) -> None:
    """A branch that is decided and leaves the script counts as undecided: nobody keeps a script that always leaves there."""
    clauses = _clauses(node)
    defaulted = _default_for(state, clauses)
    if defaulted:
        _statements(state, clauses[0][1])
        _replaceable(state, defaulted)
        return
    branches: list[State] = []
    for condition, body in clauses:
        decided = _condition(state, condition)
        if decided is False:
            continue
        branch = _branch(state, body)
        if decided and not branch.ended:
            branches.append(branch)
            break
        branches.append(branch)
    else:
        branches.append(state.fork())
    _join_branches(state, branches, node)


def _branch(state: State, body: Sequence[Node]) -> State:
    branch = state.fork()
    _statements(branch, body)
    return branch


def _condition(state: State, condition: list[Node]) -> bool | None:
    if not condition:
        return True
    for each in condition:
        if each.type not in ("test_command", "compound_statement"):
            _statement(state, each)
    return decide(state, condition[0]) if len(condition) == 1 else None


def _clauses(node: Node) -> list[tuple[list[Node], list[Node]]]:
    """The (condition, body) pairs of an `if`; the condition of `else` is empty."""
    clauses = [_clause(node.children)]
    for child in node.children:
        if child.type == "elif_clause":
            clauses.append(_clause(child.children))
        elif child.type == "else_clause":
            clauses.append(([], list(child.named_children)))
    return clauses


def _clause(children: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    then = next((place for place, each in enumerate(children) if each.type == "then"), len(children))
    condition = [each for each in children[:then] if each.is_named and each.type != "comment"]
    body = [each for each in children[then:] if each.is_named and each.type not in ("elif_clause", "else_clause")]
    return condition, body


def _default_for(state: State, clauses: list[tuple[list[Node], list[Node]]]) -> str:
    """The variable that `if [ -z "$X" ]; then X=...; fi` gives a default, where the file does not set it before."""
    if len(clauses) != 1 or len(clauses[0][0]) != 1:
        return ""
    match = UNSET_TEST.fullmatch(state.text(clauses[0][0][0]))
    if match is None or match[1] in state.variables:
        return ""
    sets = any(
        child.type == "variable_assignment" and state.text(child).startswith(match[1] + "=")
        for node in clauses[0][1]
        for child in (node, *node.children)
    )
    return match[1] if sets else ""


def _replaceable(state: State, name: str) -> None:
    """Note that the environment or an argument may replace the value of `name`."""
    value = state.variables.get(name)
    if isinstance(value, Scalar):
        pieces = tuple(replace(piece, outside=True) if isinstance(piece, Text) else piece for piece in value.pieces)
        state.variables[name] = Scalar(pieces)


def _case(state: State, node: Node) -> None:
    value = node.child_by_field_name("value")
    text = known_text(expand_text(state, value)) if value is not None else None
    branches: list[State] = []
    for item in node.children:
        if item.type != "case_item":
            continue
        patterns = item.children_by_field_name("value")
        body = [child for child in item.named_children if child not in patterns]
        decided = _any_matches(state, text, patterns)
        if decided is False:
            continue
        branch = _branch(state, body)
        if decided and not branch.ended:
            branches.append(branch)
            break
        branches.append(branch)
    else:
        branches.append(state.fork())
    _join_branches(state, branches, node)


def _any_matches(state: State, text: str | None, patterns: Sequence[Node]) -> bool | None:
    results: list[bool | None] = []
    for node in patterns:
        pattern = known_text(expand_text(state, node))
        if pattern == "*":
            return True
        results.append(None if text is None or pattern is None else matches(text, pattern))
    if any(results):
        return True
    return None if None in results or not results else False


def _for(state: State, node: Node) -> None:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None:
        _loop(state, node)
        return
    items = [item for child in node.children_by_field_name("value") for item in expand_words(state, child)]
    span = state.span(node)
    name = state.text(variable)
    if len(items) == 1 and isinstance(items[0], Word):
        state.assign(name, Scalar(items[0].pieces), span)
        _statement(state, body)
        return
    words = [item.pieces for item in items if isinstance(item, Word)]
    reason = f"takes several values in the loop at line {line_of(span)}"
    if words and len(words) == len(items):
        looped = Scalar((Choice(tuple(words), reason, span, 1 + sum(map(weight, words))),))
    else:
        looped = Scalar((Hole(reason, span),))
    _loop_body(state, node, body, (name, looped))


def _loop(state: State, node: Node) -> None:
    body = node.child_by_field_name("body")
    if body is None:
        return
    conditions = node.children_by_field_name("condition")
    for child in conditions:
        _statement(state, child)
    before = dict(state.variables)
    _loop_body(state, node, body, None)
    if any(PARSES_ARGUMENTS.search(state.text(child)) for child in conditions) and state.arguments is None:
        _keep_defaults(state, before)


def _keep_defaults(state: State, before: dict[str, Value]) -> None:
    """After a loop over the script's arguments, variables hold what they held before, unless an argument replaces it."""
    for name, value in before.items():
        if state.variables.get(name) is value:
            continue
        if isinstance(value, Array) or known_text(value.pieces) is not None:
            state.variables[name] = value
            _replaceable(state, name)


def _loop_body(state: State, node: Node, body: Node, looped: tuple[str, Value] | None) -> None:
    """Follow a body once, with everything that it sets unknown, and then leave it open whether it ran."""
    inner = state.fork()
    for each in _all_nodes(body):
        state.spend()
        if each.type == "variable_assignment":
            name = each.child_by_field_name("name")
            adds = any(child.type == "+=" for child in each.children)
            if name is not None and (adds or _mentions(state, each, state.text(name))):
                inner.variables[state.text(name)] = Scalar((Hole("changes in a loop", state.span(each)),))
    if looped is not None:
        inner.assign(looped[0], looped[1], state.span(node))
    inner.arguments = None
    _statement(inner, body)
    inner.ended = False
    _join_branches(state, [state.fork(), inner], node)


def _mentions(state: State, assignment: Node, name: str) -> bool:
    value = assignment.child_by_field_name("value")
    return value is not None and name in state.text(value)


def _list(state: State, node: Node) -> None:
    """`a && b` and `a || b`: the right side runs only where the left side decides so, and leaving is never decided."""
    if len(node.children) != 3:
        _statements(state, node.children)
        return
    left, operator, right = node.children
    _statement(state, left)
    if state.ended:
        return
    decided = decide(state, left)
    runs = decided if operator.type == "&&" or decided is None else not decided
    if runs is False:
        return
    branch = _branch(state, [right])
    _join_branches(state, [branch] if runs and not branch.ended else [branch, state.fork()], node)


def _pipeline(state: State, node: Node) -> None:
    for child in node.named_children:
        _statement(state.fork(), child)


def _subshell(state: State, node: Node) -> None:
    inner = state.fork()
    _statements(inner, node.children)


def _redirected(state: State, node: Node) -> None:
    body = node.child_by_field_name("body")
    if body is not None:
        _statement(state, body)


HANDLERS: dict[str, Callable[[State, Node], None]] = {
    "variable_assignment": _assignment,
    "variable_assignments": _assignments,
    "declaration_command": _declaration,
    "unset_command": _unset,
    "command": _command,
    "redirected_statement": _redirected,
    "function_definition": _function,
    "if_statement": _if,
    "case_statement": _case,
    "for_statement": _for,
    "c_style_for_statement": _loop,
    "while_statement": _loop,
    "until_statement": _loop,
    "list": _list,
    "pipeline": _pipeline,
    "subshell": _subshell,
    "compound_statement": _block,
    "do_group": _block,
    "negated_command": _block,
    "program": _block,
    "ERROR": _block,
}
