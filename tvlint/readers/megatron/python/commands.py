"""The commands that a statement of a Python program hands to functions which may start them."""

from __future__ import annotations

import ast
import builtins

from tvlint.readers.megatron.detect_framework import SWIFT
from tvlint.readers.megatron.launch_script import is_launch
from tvlint.readers.megatron.launcher import split_launch
from tvlint.readers.megatron.python.assignments import change, of_module
from tvlint.readers.megatron.python.called_values import arguments_of
from tvlint.readers.megatron.python.conditions import also
from tvlint.readers.megatron.python.names import CHANGES_NOTHING
from tvlint.readers.megatron.python.scope import MOST_WITHIN, Scope
from tvlint.readers.shell.lexer import commands_in
from tvlint.readers.shell.state import Command
from tvlint.readers.shell.values import Array, Gap, Item, Scalar, Text, Value, Word

RUNNERS = frozenset(
    {
        *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
        *(f"asyncio.create_subprocess_{name}" for name in ("exec", "shell")),
        *(f"os.{name}" for name in ("system", "popen", "execv", "execve", "execvp", "execvpe")),
    }
)
"""The functions that start a command as it is given; others may add words to it."""
WRITES = frozenset({"write", "write_text"})
"""The methods that write a text to a file, which a shell may run."""
WORD_BY_WORD = "asyncio.create_subprocess_exec"
"""The function that starts a command of which each argument is a word."""
HARMLESS = frozenset({"argparse", "copy", "dataclasses", "json", "logging", "shlex", "textwrap", "typing", "warnings"})
"""Modules whose functions start nothing and leave lists as they are."""
WITHIN = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""Nodes of a statement that are no expressions of its own."""


def is_write(function: ast.expr) -> bool:
    """Return whether a function is one that writes a text to a file."""
    return isinstance(function, ast.Attribute) and function.attr in WRITES


def follow_calls(scope: Scope, statement: ast.stmt, is_sure: bool) -> None:
    """Note the commands that a statement hands to functions, and what its calls do to lists; not those of statements within."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.List) and isinstance(node.ctx, ast.Load) and is_sure and not _is_assigned(statement):
            scope.variables[f"the list at {scope.span(node).start}"] = scope.value(node)
            continue
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            change(scope, node.value.id, node)
        if isinstance(node, ast.Call):
            _follow_call(scope, node, is_sure and isinstance(statement, ast.Expr) and statement.value is node)
        pending += [each_node for each_node in ast.iter_child_nodes(node) if not isinstance(each_node, WITHIN)]


def _is_assigned(statement: ast.stmt) -> bool:
    """Return whether the lists of a statement become variables."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return isinstance(statement, (ast.AugAssign, ast.AnnAssign)) or any(isinstance(target, ast.Name) for target in targets)


def _follow_call(scope: Scope, call: ast.Call, is_sure: bool) -> None:
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(call.func, ast.Attribute) and isinstance(of, ast.Name) and scope.has_parts(of.id):
        if call.func.attr not in CHANGES_NOTHING:
            change(scope, of.id, call, call if is_sure else None)
        return
    function = scope.names.dotted(call.func)
    followed = _follow_into(scope, call)
    if _is_harmless(call.func, function):
        return
    is_method = of is not None and not function and not (isinstance(of, ast.Name) and of.id == "self")
    is_written = is_method and is_write(call.func)
    listed = [ast.copy_location(ast.List(call.args, ast.Load()), call)] if function == WORD_BY_WORD else call.args
    for place, given in enumerate((*listed, *(keyword.value for keyword in call.keywords))):
        value = scope.value(given)
        is_text_of_method = is_method and isinstance(value, Scalar)
        for words in _written(value) if is_written else () if followed or is_text_of_method else _commands(value):
            launch = split_launch(words)
            if is_launch(words) and (launch.path or launch.program in SWIFT):
                more = (
                    () if function in RUNNERS or is_written else (Gap("another function may add words", scope.span(call.func)),)
                )
                scope.commands.append(Command((*words, *more), scope.span(given), {}))
                scope.program.conditions[id(scope.commands[-1])] = scope.condition
        if (
            isinstance(given, ast.Name)
            and not is_method
            and function not in RUNNERS
            and not scope.names.only_reads(call, place)
        ):
            change(scope, given.id, call)


def _follow_into(scope: Scope, call: ast.Call) -> bool:
    """Follow a function of the program with what a call gives it, where it starts commands; return whether it did."""
    program = scope.program
    function = scope.names.bodies.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if function is None or function.name not in program.launching or function.name in {*program.following, *scope.variables}:
        return False
    if len(program.following) >= MOST_WITHIN or program.repeated <= 0:
        return False
    given = arguments_of(scope, call, function)
    if given is None:
        return False
    several = len(scope.names.calls.get(function.name, ())) > 1
    condition = also(scope.condition, "", f"in the call at line {call.lineno}") if several else scope.condition
    program.repeated -= 1
    program.following.append(function.name)
    inner = program.meaning.follow(of_module(program), function, call, given, condition)
    program.following.pop()
    if not inner.commands:
        return False
    program.called.add(function.name)
    scope.commands += inner.commands
    return True


def _is_harmless(function: ast.expr, name: str) -> bool:
    """Return whether a function starts nothing and leaves lists as they are: one of Python's own, or a method of a text."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, (ast.Constant, ast.JoinedStr)):
        return True
    if isinstance(function, ast.Name) and not name:
        return hasattr(builtins, function.id)
    return name.partition(".")[0] in HARMLESS


def _commands(value: Value) -> list[tuple[Item, ...]]:
    """Return the command that a list is, or those in a text or in the texts that a list hands to a shell."""
    if isinstance(value, Array) and is_launch(value.items):
        return [value.items]
    texts = [item.pieces for item in value.items if isinstance(item, Word)] if isinstance(value, Array) else [value.pieces]
    return [words for pieces in texts for words in commands_in(pieces, lambda _: None)]


def _written(value: Value) -> list[tuple[Item, ...]]:
    """Return the commands of a text that is written to a file; only those of which each word is known in part, as lines that
    are written later, or variables of the script, may hold the others.
    """
    if not isinstance(value, Scalar) or not value.pieces:
        return []
    last = value.pieces[-1]
    is_ended = isinstance(last, Text) and last.text.endswith("\n") and not last.text.endswith("\\\n")
    return [words for words in _commands(value) if is_ended and all(map(_is_known_in_part, words))]


def _is_known_in_part(item: Item) -> bool:
    return isinstance(item, Word) and any(isinstance(piece, Text) for piece in item.pieces)
