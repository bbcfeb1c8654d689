"""Following a shell script statement by statement, without running anything: which commands it runs, with which words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tvlint.ir.values import dataclass, field
from tvlint.readers.shell.branches import follow_case, follow_if, follow_list
from tvlint.readers.shell.commands import assign, assign_all, compute, declare, define_function, run_command, unset
from tvlint.readers.shell.expand import expand_text
from tvlint.readers.shell.loops import follow_for, follow_while
from tvlint.readers.shell.sources import sbatch_variables
from tvlint.readers.shell.state import DEEPEST, Command, State, TooMuchWork, Trace
from tvlint.readers.shell.syntax import Syntax, errors_in
from tvlint.readers.shell.values import Scalar, Source, Span, Text, Value, Word

if TYPE_CHECKING:
    from tree_sitter import Node

STEPS = 400_000
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of evaluating a script: its commands in order, its final variables, and what was not followed."""

    source: Source
    commands: tuple[Command, ...]
    variables: dict[str, Value]
    unresolved_sources: tuple[Span, ...]
    gave_up: bool
    steps: int
    """The steps that were left."""
    errors: tuple[tuple[int, int], ...] = ()
    """The ranges of bytes of the source that are no syntax of a shell; what was understood of them was followed."""
    syntax: Syntax = field(default_factory=Syntax)


def evaluate(
    source: Source,
    environment: Mapping[str, str] = NOTHING,
    arguments: Sequence[str] | None = None,
    supposed: Mapping[str, str] = NOTHING,
    steps: int = STEPS,
    syntax: Syntax | None = None,
) -> Evaluation:
    """Follow `source` from top to bottom; functions that nothing calls are followed last, as if called once.

    `environment` and `arguments` are what is known of those that the script is started with. `supposed` are variables, and
    arguments by their numbers, that hold a text where the file leaves open what they hold. `steps` and `syntax` are what an
    evaluation before left of both.
    """
    syntax = syntax or Syntax()
    tree = syntax.tree(source)
    state = State(source, Trace(steps, _statement, syntax), supposed=supposed)
    state.variables.update(sbatch_variables(source))
    start = Span(source, 0, 0)
    state.variables.update({name: Scalar((Text(text, start, exact=False),)) for name, text in environment.items()})
    if arguments is not None:
        state.arguments = tuple(Word((Text(text, start, exact=False),)) for text in arguments)
    gave_up = False
    try:
        state.follow_all(tree.root_node.children)
        _uncalled(state)
    except TooMuchWork:
        gave_up = True
    trace = state.trace
    return Evaluation(
        source,
        tuple(trace.commands),
        dict(state.variables),
        tuple(trace.unresolved_sources),
        gave_up,
        trace.steps,
        tuple((node.start_byte, node.end_byte) for node in errors_in(tree.root_node)),
        syntax,
    )


def _uncalled(state: State) -> None:
    for name, (source, body) in list(state.functions.items()):
        if name not in state.trace.called:
            inner = state.fork()
            inner.source, inner.ended, inner.calls = source, False, 1
            inner.follow(body)


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
        compute(state, node)
        return
    state.follow_all(node.children)


def _pipeline(state: State, node: Node) -> None:
    for child in node.named_children:
        state.fork().follow(child)


def _subshell(state: State, node: Node) -> None:
    inner = state.fork()
    inner.follow_all(node.children)


def _redirected(state: State, node: Node) -> None:
    body = node.child_by_field_name("body")
    if body is not None:
        state.follow(body)
    if not state.ended and any(child.type == "heredoc_redirect" for child in node.children):
        from tvlint.readers.shell.heredocs import follow_heredoc

        follow_heredoc(state, node, expand_text)


HANDLERS: dict[str, Callable[[State, Node], None]] = {
    "variable_assignment": assign,
    "variable_assignments": assign_all,
    "declaration_command": declare,
    "unset_command": unset,
    "command": run_command,
    "redirected_statement": _redirected,
    "function_definition": define_function,
    "if_statement": follow_if,
    "case_statement": follow_case,
    "for_statement": follow_for,
    "c_style_for_statement": follow_while,
    "while_statement": follow_while,
    "until_statement": follow_while,
    "list": follow_list,
    "pipeline": _pipeline,
    "subshell": _subshell,
    "compound_statement": _block,
    "do_group": _block,
    "negated_command": _block,
    "program": _block,
    "ERROR": _block,
}
