"""`if`, `case`, `&&` and `||`: one path where the condition is decided, all paths where it is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.shell.bindings import Bindings
from tvlint.readers.shell.conditions import decide, matches
from tvlint.readers.shell.expand import expand_text
from tvlint.readers.shell.state import Moment, State
from tvlint.readers.shell.values import (
    Hole,
    Scalar,
    Text,
    known_text,
    line_of,
    weight,
)
from tvlint.readers.shell.words import merge

if TYPE_CHECKING:
    from tree_sitter import Node

T = TypeVar("T")
UNSET_TEST = Pattern(r"\[\[?\s+-z\s+\"?\$\{?([A-Za-z_]\w*)(?::?-)?\}?\"?\s+\]\]?")


def join_branches(state: State, branches: list[State], node: Node, since: Moment) -> None:
    """Leave in `state` what holds after one of `branches` ran; a branch that leaves the script does not count.

    `since` is when the first branch was forked: only names that `state` or a branch has set from then on can differ.
    """
    going_on = [branch for branch in branches if not branch.ended]
    if not going_on:
        state.ended = True
        return
    span = state.span(node)
    reason = f"set under a condition at line {line_of(span)}"
    for name, places in _set_since(since.variables, state.variables, [branch.variables for branch in going_on]).items():
        values = [going_on[place].variables.get(name) for place in places]
        if any(value is not values[0] for value in values[1:]):
            hole = Scalar((Hole(f"`{name}` is not set in the file on every path", span),))
            present = [value if value is not None else hole for value in values]
            state.assign(name, merge(present, reason, span), span)
            state.spend(sum(weight(value.pieces) if isinstance(value, Scalar) else len(value.items) for value in present))
        elif values[0] is not None:
            state.variables[name] = values[0]
    for name, places in _set_since(since.exported, state.exported, [branch.exported for branch in going_on]).items():
        if any(name in going_on[place].exported for place in places):
            state.exported[name] = True
        else:
            state.exported.pop(name, None)
    for branch in going_on:
        for name in branch.functions.set_since():
            state.functions[name] = branch.functions[name]
    if any(branch.arguments is not going_on[0].arguments for branch in going_on):
        state.arguments = None
    else:
        state.arguments = going_on[0].arguments


def _set_since(moment: int, bindings: Bindings[T], branches: list[Bindings[T]]) -> dict[str, Iterable[int]]:
    """Return the names that were set since `moment` or in a branch, with the branches that show each value there is.

    Branches that do not set a name all hold what it was before, so the first of them stands for them.
    """
    setting: dict[str, dict[int, None]] = {}
    for place, branch in enumerate(branches):
        for name in branch.set_since():
            setting.setdefault(name, {})[place] = None
    found: dict[str, Iterable[int]] = dict.fromkeys(bindings.set_since(moment), range(len(branches)))
    for name, places in setting.items():
        other = next((place for place in range(len(branches)) if place not in places), None)
        found.setdefault(name, sorted(places) if other is None else sorted([*places, other]))
    return found


def mark_replaceable(state: State, name: str) -> None:
    """Note that the environment or an argument may replace the value of `name`."""
    value = state.variables.get(name)
    if isinstance(value, Scalar):
        pieces = tuple(replace(piece, outside=True) if isinstance(piece, Text) else piece for piece in value.pieces)
        state.variables[name] = Scalar(pieces)
        if name in state.supposed and pieces:
            state.assign(name, Scalar(pieces), pieces[0].span)


def follow_if(state: State, node: Node) -> None:
    """A branch that is decided and leaves the script counts as undecided: a script that always leaves there is of no use."""
    clauses = _clauses(node)
    defaulted = _default_for(state, clauses)
    if defaulted:
        state.follow_all(clauses[0][1])
        mark_replaceable(state, defaulted)
        return
    _follow_first(state, node, ((_condition(state, condition), body) for condition, body in clauses))


def _follow_first(state: State, node: Node, clauses: Iterable[tuple[bool | None, Sequence[Node]]]) -> None:
    """Follow each clause that may be the one that runs, up to the first that surely is: whether it runs, and its body."""
    since = state.now()
    branches: list[State] = []
    for decided, body in clauses:
        if decided is False:
            continue
        branch = _branch(state, body)
        branches.append(branch)
        if decided and _goes_on(state, branch):
            break
    else:
        branches.append(state.fork())
    join_branches(state, branches, node, since)


def _goes_on(state: State, branch: State) -> bool:
    """Return whether a decided branch counts as decided: one that leaves does where it is supposed what the script is given."""
    return not branch.ended or bool(state.supposed)


def _branch(state: State, body: Sequence[Node]) -> State:
    branch = state.fork()
    branch.follow_all(body)
    return branch


def _condition(state: State, condition: list[Node]) -> bool | None:
    if not condition:
        return True
    for node in condition:
        if node.type not in ("test_command", "compound_statement"):
            state.follow(node)
    return decide(state, condition[0]) if len(condition) == 1 else None


def _clauses(node: Node) -> list[tuple[list[Node], list[Node]]]:
    """Return the (condition, body) pairs of an `if`; the condition of `else` is empty."""
    clauses = [_clause(node.children)]
    for child in node.children:
        if child.type == "elif_clause":
            clauses.append(_clause(child.children))
        elif child.type == "else_clause":
            clauses.append(([], list(child.named_children)))
    return clauses


def _clause(children: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    then = next((place for place, child in enumerate(children) if child.type == "then"), len(children))
    condition = [child for child in children[:then] if child.is_named and child.type != "comment"]
    body = [child for child in children[then:] if child.is_named and child.type not in ("elif_clause", "else_clause")]
    return condition, body


def _default_for(state: State, clauses: list[tuple[list[Node], list[Node]]]) -> str:
    """Return the variable that `if [ -z "$X" ]; then X=...; fi` gives a default, where the file does not set it before."""
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


def follow_case(state: State, node: Node) -> None:
    value = node.child_by_field_name("value")
    text = known_text(expand_text(state, value)) if value is not None else None
    _follow_first(state, node, _cases(state, node, text))


def _cases(state: State, node: Node, text: str | None) -> Iterator[tuple[bool | None, Sequence[Node]]]:
    """Yield for each item of a `case` whether it is the one for the text, and its body."""
    for item in node.children:
        if item.type == "case_item":
            patterns = item.children_by_field_name("value")
            yield _any_matches(state, text, patterns), [child for child in item.named_children if child not in patterns]


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


def follow_list(state: State, node: Node) -> None:
    """`a && b` and `a || b`: the right side runs only where the left side decides so, and leaving is never decided."""
    if len(node.children) != 3:
        state.follow_all(node.children)
        return
    left, operator, right = node.children
    state.follow(left)
    if state.ended:
        return
    decided = decide(state, left)
    runs = decided if operator.type == "&&" or decided is None else not decided
    if runs is False:
        return
    since = state.now()
    branch = _branch(state, [right])
    join_branches(state, [branch] if runs and _goes_on(state, branch) else [branch, state.fork()], node, since)
