"""Python programs that build and start commands: statements followed, and expressions evaluated, never run.

Texts and lists are the values of the shell's reader; beside them stand tables: dictionaries, and objects with fields.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from tvlint.ir.location import Location
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.detect_framework import SWIFT
from tvlint.readers.megatron.launch_script import is_launch
from tvlint.readers.megatron.launcher import split_launch
from tvlint.readers.megatron.python_names import Names
from tvlint.readers.megatron.python_texts import (
    PLACEHOLDER,
    as_number,
    changed,
    computed,
    filled,
    may_be_added,
    number,
    substituted,
)
from tvlint.readers.shell.lexer import commands_in
from tvlint.readers.shell.state import Command
from tvlint.readers.shell.values import (
    Array,
    Gap,
    Hole,
    Item,
    Piece,
    Scalar,
    Source,
    Span,
    Text,
    Value,
    Word,
    bounded,
    known_text,
    slice_text,
)
from tvlint.readers.shell.words import join, merge, split_value

T = TypeVar("T")
DEEPEST = 40
_MOST_BITS = 64
"""Constants of more bits are not followed."""
LONGEST = 60
CHUNK = re.compile(r"\s+|\S+")
QUOTED = re.compile(r"[\"'`$\\]")
"""What a shell that takes the text may read otherwise."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
RUNNERS = frozenset(
    {
        *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
        *(f"os.{name}" for name in ("system", "popen", "execv", "execve", "execvp", "execvpe")),
    }
)
"""The functions that start a command as it is given; others may add words to it."""
FROM_OUTSIDE = frozenset({"os.getenv", "os.environ.get"})
SAME_TEXT = frozenset({"str", "int"})
SAME_TABLE = frozenset({"dataclasses.asdict", "copy.copy", "copy.deepcopy"})
HARMLESS = frozenset({"argparse", "copy", "dataclasses", "json", "logging", "shlex", "textwrap", "typing", "warnings"})
"""Modules whose functions start nothing and leave lists as they are."""
CHANGES_NOTHING = frozenset({"copy", "count", "get", "index", "items", "keys", "values"})
MOST_WITHIN = 8
"""So many functions are followed into one another."""
MOST_ROUNDS = 24
"""A loop over more values is followed once, with its variable open."""
MOST_REPEATED = 200
"""So many rounds of loops and calls of functions are followed in one program."""
NOTHING: Mapping[str, Thing] = MappingProxyType({})
WITHIN = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""Nodes of a statement that are no expressions of its own."""
LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
FALSE = frozenset({"False", "None", "0", "0.0", ""})


@dataclass(frozen=True, slots=True)
class Table:
    """A dictionary or an object with fields; or a list of other things than texts, by their numbers."""

    entries: Mapping[str, Thing]
    is_list: bool = False


Thing: TypeAlias = "Value | Table"


@dataclass(slots=True)
class Program:
    """A program as it is followed, and what may still be done to follow it."""

    source: Source
    names: Names
    launching: frozenset[str] = frozenset()
    """The functions that start a command, or call one that does."""
    changed: frozenset[str] = frozenset()
    """The lists and tables of the module that a function may change."""
    variables: dict[str, Value] = field(default_factory=dict)
    """What the variables of the module hold."""
    tables: dict[str, Table] = field(default_factory=dict)
    following: list[str] = field(default_factory=list)
    """The functions that are followed, each called by the one before."""
    called: set[str] = field(default_factory=set)
    """The functions that were followed with what a call gives them."""
    conditions: dict[int, str] = field(default_factory=dict)
    """By the identity of each command, the round or the call in which it is started, in words."""
    supposed: list[ast.stmt] = field(default_factory=list)
    """The branch of a condition that is followed as the one that runs; none where it is empty."""
    repeated: int = MOST_REPEATED


@dataclass(slots=True)
class Scope:
    """The variables of a module or function, by what the statements before leave in them."""

    program: Program
    variables: dict[str, Value] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """The names of lists that have more than one."""
    given: set[str] = field(default_factory=set)
    """The names that hold what a round or a call gives them."""
    condition: str = ""
    owner: ast.ClassDef | None = None
    """The class of which a method is followed."""

    @property
    def source(self) -> Source:
        return self.program.source

    @property
    def names(self) -> Names:
        return self.program.names


def of_module(program: Program) -> Scope:
    """Return the variables of the module as its functions find them."""
    scope = Scope(program, dict(program.variables), dict(program.tables))
    for name in program.changed:
        _change(scope, name, None)
    return scope


def follow_module(program: Program, module: ast.Module) -> Scope:
    """Return what the statements of the module leave."""
    program.variables, program.tables = {}, {}
    scope = Scope(program, program.variables, program.tables)
    _follow(scope, module.body, is_sure=True)
    return scope


def follow_function(
    outer: Scope, node: Function, call: ast.Call | None = None, given: Mapping[str, Thing] = NOTHING, condition: str = ""
) -> Scope:
    """Return what the body of a function leaves, which sees the variables of the module that it names.

    Of one `call`, with the arguments `given`, or of any.
    """
    used = [each_node for each_node in ast.walk(node) if isinstance(each_node, ast.Name)]
    _take_steps(outer, len(used), node)
    stored = {each_node.id for each_node in used if not isinstance(each_node.ctx, ast.Load)}
    seen = {each.id for each in used} - stored
    scope = Scope(
        outer.program,
        {name: outer.variables[name] for name in seen if name in outer.variables},
        {name: outer.tables[name] for name in seen if name in outer.tables},
        given=set(given),
        condition=condition,
        owner=outer.names.owners.get(id(node)),
    )
    calls = (call,) if call is not None else outer.names.calls.get(node.name, ())
    for name, value in _parameters(scope, node.args, calls, is_called=call is not None):
        _put(scope, name, value)
    for name, thing in given.items():
        _put(scope, name, thing)
    _follow(scope, node.body, is_sure=True)
    return scope


def _put(scope: Scope, name: str, thing: Thing) -> None:
    """Let a name hold a thing."""
    if isinstance(thing, Table):
        scope.tables[name] = thing
        scope.variables.pop(name, None)
    else:
        scope.variables[name] = thing
        scope.tables.pop(name, None)


def _follow(scope: Scope, body: Iterable[ast.stmt], is_sure: bool, depth: int = 0) -> None:
    """Follow the assignments of statements; one within another may not run, so that the value before stays possible."""
    for statement in body:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) or depth > DEEPEST:
            continue
        changed_table = _with_entry(scope, statement) if is_sure and isinstance(statement, ast.Assign) else None
        _follow_calls(scope, statement, is_sure)
        if isinstance(statement, ast.Assign):
            thing = _thing(scope, statement.value)
            for target in statement.targets:
                _assign(scope, target, thing, is_sure)
            if isinstance(thing, Array) and (len(statement.targets) > 1 or isinstance(statement.value, ast.Name)):
                scope.shared.update(node.id for node in (*statement.targets, statement.value) if isinstance(node, ast.Name))
            if changed_table is not None:
                _put(scope, *changed_table)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            _assign(scope, statement.target, _thing(scope, statement.value), is_sure)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            _add_to(scope, statement, statement.target, is_sure)
        elif (rounds := _rounds_of(scope, statement)) is not None and isinstance(statement, ast.For):
            _follow_rounds(scope, statement, rounds, is_sure, depth)
        else:
            _follow_within(scope, statement, is_sure, depth)


def _add_to(scope: Scope, statement: ast.AugAssign, target: ast.Name, is_sure: bool) -> None:
    old = _name(scope, target)
    added = _value(scope, statement.value)
    if isinstance(statement.op, ast.Add):
        _assign(scope, target, _sum(scope, old, added, statement), is_sure)
    else:
        pieces = _computed(scope, statement.op, old, added, statement)
        _assign(scope, target, Scalar(pieces) if pieces is not None else _hole(scope, statement), is_sure)
    if isinstance(old, Array):
        _forget_shared(scope, target.id, statement)


def _follow_within(scope: Scope, statement: ast.stmt, is_sure: bool, depth: int) -> None:
    """Follow the statements within one, of which it is not known whether they run, nor how often."""
    if isinstance(statement, LOOPS):
        stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        for node in stored:
            if node.id in scope.variables or node.id in scope.tables:
                _put(scope, node.id, _hole(scope, node))
        for name in changed_in(statement):
            _change(scope, name, statement)
    decided = _decide(scope, statement.test) if isinstance(statement, ast.If) and _is_given(scope, statement.test) else None
    for iter_child_node in ast.iter_child_nodes(statement):
        if isinstance(iter_child_node, ast.Name) and isinstance(iter_child_node.ctx, ast.Store):
            _put(scope, iter_child_node.id, _hole(scope, iter_child_node))
        elif isinstance(iter_child_node, (ast.ExceptHandler, ast.match_case)):
            _follow(scope, iter_child_node.body, False, depth + 1)
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(statement, name, None)
        is_supposed = bool(inner) and inner is scope.program.supposed
        if not isinstance(inner, list) or (not is_supposed and _is_other(scope.program, statement)):
            continue
        if not is_supposed and decided is not None and decided != (name == "body"):
            continue
        is_run = isinstance(statement, (ast.With, ast.AsyncWith)) or is_supposed or decided is not None
        _follow(scope, inner, is_sure and is_run, depth + 1)


def _is_other(program: Program, statement: ast.stmt) -> bool:
    """Return whether one of the two branches of a condition is followed as the one that runs."""
    return isinstance(statement, ast.If) and any(
        each and each is program.supposed for each in (statement.body, statement.orelse)
    )


def _is_given(scope: Scope, test: ast.expr) -> bool:
    """Return whether a condition asks for nothing but what a round or a call gives."""
    asked = {node.id for node in ast.walk(test) if isinstance(node, ast.Name) and not hasattr(builtins, node.id)}
    return bool(asked) and asked <= scope.given


def _rounds_of(scope: Scope, statement: ast.stmt) -> list[Thing] | None:
    """Return what a loop gives its variable, round by round; None where it is not known, or the loop may end before."""
    if not isinstance(statement, ast.For) or any(isinstance(node, LEAVES) for node in ast.walk(statement)):
        return None
    return _rounds(scope, statement.iter)


def _follow_rounds(scope: Scope, statement: ast.For, rounds: Sequence[Thing], is_sure: bool, depth: int) -> None:
    outer = scope.condition
    bound = {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
    scope.given |= bound
    for place, thing in enumerate(rounds, 1):
        _assign(scope, statement.target, thing, True)
        shown = f"`{_shown(scope, statement.target) or f'round={place}'}`"
        scope.condition = f"{outer}{' and' if outer else ' with'} {shown}"
        _follow(scope, statement.body, is_sure, depth + 1)
    scope.condition = outer
    scope.given -= bound
    _follow(scope, statement.orelse, is_sure, depth + 1)


def _shown(scope: Scope, target: ast.expr) -> str:
    """Return the first name of a target with the text that it or its first entry holds; empty where none is known."""
    names = [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]
    held: list[tuple[str, Thing | None]] = [(name, scope.variables.get(name)) for name in names]
    held += [
        (f"{name}.{key}", each) for name in names if name in scope.tables for key, each in scope.tables[name].entries.items()
    ]
    for name, thing in held:
        text = known_text(thing.pieces) if isinstance(thing, Scalar) else None
        if text is not None and len(text) <= LONGEST:
            return f"{name}={text}"
    return ""


def _rounds(scope: Scope, node: ast.expr, depth: int = 0) -> list[Thing] | None:
    """Return the things that a loop over an expression gives; None where they are not known, or too many."""
    found = _elements(scope, node, depth)
    if found is None or len(found) > min(MOST_ROUNDS, scope.program.repeated):
        return None
    scope.program.repeated -= len(found)
    return found


def _elements(scope: Scope, node: ast.expr, depth: int) -> list[Thing] | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        table = _table(scope, node.func.value, depth + 1)
        if table is not None and not table.is_list:
            keys = [_plain(scope, key, node) for key in table.entries]
            values = list(table.entries.values())
            pairs: list[Thing] = [Table({"0": key, "1": each}, True) for key, each in zip(keys, values, strict=True)]
            found: dict[str, list[Thing]] = {"items": pairs, "keys": [*keys], "values": values}
            return found.get(node.func.attr)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _built_in_elements(scope, node, node.func.id, depth)
    table = _table(scope, node, depth + 1)
    if table is not None:
        return list(table.entries.values()) if table.is_list else [_plain(scope, key, node) for key in table.entries]
    if not isinstance(node, (ast.List, ast.Tuple, ast.Name, ast.Attribute, ast.Subscript, ast.ListComp, ast.GeneratorExp)):
        return None
    value = _value(scope, node, depth + 1)
    words = [item for item in value.items if isinstance(item, Word)] if isinstance(value, Array) else None
    return (
        None
        if words is None or not isinstance(value, Array) or len(words) < len(value.items)
        else [Scalar(w.pieces) for w in words]
    )


def _built_in_elements(scope: Scope, call: ast.Call, name: str, depth: int) -> list[Thing] | None:
    if name == "range" and 1 <= len(call.args) <= 3:
        bounds = [
            number(value.pieces) if isinstance(value := _value(scope, each, depth), Scalar) else None for each in call.args
        ]
        known = [bound for bound in bounds if bound is not None]
        numbers = range(*known) if len(known) == len(bounds) and 0 not in known[2:] else range(MOST_ROUNDS + 1)
        return [_plain(scope, str(each), call) for each in numbers] if len(numbers) <= MOST_ROUNDS else None
    given = [_elements(scope, each, depth + 1) for each in call.args]
    lists = [each for each in given if each is not None]
    if len(lists) < len(given) or not lists:
        return None
    if name == "enumerate" and len(lists) == 1:
        return [Table({"0": _plain(scope, str(place), call), "1": each}, True) for place, each in enumerate(lists[0])]
    if name == "zip":
        return [Table({str(place): each for place, each in enumerate(row)}, True) for row in zip(*lists, strict=False)]
    return lists[0] if name in ("list", "tuple", "iter") and len(lists) == 1 else None


def _plain(scope: Scope, text: str, node: ast.expr) -> Scalar:
    return Scalar((Text(text, _span(scope, node), exact=False),))


def _decide(scope: Scope, test: ast.expr) -> bool | None:
    """Return whether a condition holds; None where that is not known."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            decided = _decide(scope, inner)
            return None if decided is None else not decided
        case ast.BoolOp(op=ast.And(), values=parts):
            all_decided = [_decide(scope, each) for each in parts]
            return False if False in all_decided else None if None in all_decided else True
        case ast.BoolOp(op=ast.Or(), values=parts):
            all_decided = [_decide(scope, each) for each in parts]
            return True if True in all_decided else None if None in all_decided else False
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            one, other = (_text(scope, each) for each in (left, right))
            if one is None or other is None:
                return None
            if isinstance(operator, (ast.Is, ast.Eq)):
                return one == other
            return one != other if isinstance(operator, (ast.IsNot, ast.NotEq)) else None
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, ast.Name(id="bool")]):
            text = _text(scope, asked)
            return None if text is None else text in ("True", "False")
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, ast.Name(id="list")]):
            return isinstance(_value(scope, asked), Array) or None
        case ast.Name() | ast.Subscript() | ast.Attribute():
            text = _text(scope, test)
            return None if text is None else text not in FALSE
    return None


def _text(scope: Scope, node: ast.expr) -> str | None:
    value = _value(scope, node)
    return known_text(value.pieces) if isinstance(value, Scalar) else None


def _follow_calls(scope: Scope, statement: ast.stmt, is_sure: bool) -> None:
    """Note the commands that a statement hands to functions, and what its calls do to lists; not those of statements within."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.List) and isinstance(node.ctx, ast.Load) and is_sure and not _is_assigned(statement):
            scope.variables[f"the list at {_span(scope, node).start}"] = _value(scope, node)
            continue
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
            _change(scope, node.value.id, node)
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
    if isinstance(call.func, ast.Attribute) and isinstance(of, ast.Name) and _is_known(scope, of.id):
        if call.func.attr not in CHANGES_NOTHING:
            _change(scope, of.id, call, call if is_sure else None)
        return
    function = scope.names.dotted(call.func)
    followed = _follow_into(scope, call)
    if _is_harmless(call.func, function):
        return
    is_method = of is not None and not function and not (isinstance(of, ast.Name) and of.id == "self")
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        value = _value(scope, given)
        for words in () if followed or (is_method and isinstance(value, Scalar)) else _commands(value):
            launch = split_launch(words)
            if is_launch(words) and (launch.path or launch.program in SWIFT):
                more = () if function in RUNNERS else (Gap("another function may add words", _span(scope, call.func)),)
                scope.commands.append(Command((*words, *more), _span(scope, given), {}))
                scope.program.conditions[id(scope.commands[-1])] = scope.condition
        if isinstance(given, ast.Name) and not is_method and function not in RUNNERS:
            _change(scope, given.id, call)


def _follow_into(scope: Scope, call: ast.Call) -> bool:
    """Follow a function of the program with what a call gives it, where it starts commands; return whether it did."""
    program = scope.program
    function = scope.names.bodies.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if function is None or function.name not in program.launching or function.name in {*program.following, *scope.variables}:
        return False
    if len(program.following) >= MOST_WITHIN or program.repeated <= 0:
        return False
    given = _arguments(scope, call, function)
    if given is None:
        return False
    several = len(scope.names.calls.get(function.name, ())) > 1
    condition = (
        f"{scope.condition}{' and' if scope.condition else ''} in the call at line {call.lineno}"
        if several
        else scope.condition
    )
    program.repeated -= 1
    program.following.append(function.name)
    inner = follow_function(of_module(program), function, call, given, condition)
    program.following.pop()
    if not inner.commands:
        return False
    program.called.add(function.name)
    scope.commands += inner.commands
    return True


def _arguments(scope: Scope, call: ast.Call, function: Function, first: int = 0, depth: int = 0) -> dict[str, Thing] | None:
    """Return what a call gives the parameters of a function, from number `first` on; None where words or keys are not known."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    places = [*function.args.posonlyargs, *function.args.args][first:]
    given: dict[str, Thing] = {place.arg: _thing(scope, value, depth) for place, value in zip(places, call.args, strict=False)}
    named: dict[str, Thing] = {}
    for keyword in call.keywords:
        table = _table(scope, keyword.value, depth) if keyword.arg is None else None
        if keyword.arg is not None:
            named[keyword.arg] = _thing(scope, keyword.value, depth)
        elif table is None:
            return None
        else:
            named |= table.entries
    parameters = {place.arg for place in (*places, *function.args.kwonlyargs)}
    given |= {name: thing for name, thing in named.items() if name in parameters}
    if function.args.kwarg is not None:
        given[function.args.kwarg.arg] = Table({name: thing for name, thing in named.items() if name not in parameters})
    return given


def _is_known(scope: Scope, name: str) -> bool:
    return name in scope.tables or isinstance(scope.variables.get(name), Array)


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


def changed_in(node: ast.AST) -> set[str]:
    """Return the names of lists and tables that something within may change where they are."""
    found = set[str]()
    for each_node in ast.walk(node):
        match each_node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method not in CHANGES_NOTHING:
                found.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Call(func=ast.Name(id=name)) if hasattr(builtins, name):
                continue
            case ast.Call():
                found.update(given.id for given in each_node.args if isinstance(given, ast.Name))
    return found


def _change(scope: Scope, name: str, node: ast.expr | ast.stmt | None, call: ast.Call | None = None) -> None:
    """Note that a list changes, under every name that it has: by what `append` or `extend` adds, or in an unknown way.

    A table that changes is not known further.
    """
    scope.tables.pop(name, None)
    old = scope.variables.get(name)
    if not isinstance(old, Array):
        return
    added: Value = Array((Gap("the list may be changed here", _span(scope, node)),))
    if call is not None and isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords:
        if call.func.attr == "extend":
            added = _value(scope, call.args[0])
        elif call.func.attr == "append":
            added = Array(tuple(_items(scope, call.args[0], 0)))
    scope.variables[name] = _sum(scope, old, added, node)
    _forget_shared(scope, name, node)


def _forget_shared(scope: Scope, name: str, node: ast.expr | ast.stmt | None) -> None:
    """Note that a list changed: where it has a second name, no list with two names is known further."""
    if name in scope.shared:
        scope.variables.update({each_name: _hole(scope, node) for each_name in scope.shared})
        scope.shared.clear()


def _with_entry(scope: Scope, statement: ast.Assign) -> tuple[str, Table] | None:
    """Return the name of a table to which a statement assigns one entry, and the table with it."""
    match statement.targets:
        case [ast.Subscript(value=ast.Name(id=name), slice=place)]:
            key = _text(scope, place)
        case [ast.Attribute(value=ast.Name(id=name), attr=key)]:
            pass
        case _:
            return None
    table = scope.tables.get(name)
    if table is None or table.is_list or key is None:
        return None
    return name, Table({**table.entries, key: _thing(scope, statement.value)})


def _assign(scope: Scope, target: ast.expr, thing: Thing, is_sure: bool) -> None:
    if isinstance(target, (ast.Tuple, ast.List)) and (parts := _parts(thing)) is not None and len(target.elts) == len(parts):
        for element, part in zip(target.elts, parts, strict=True):
            _assign(scope, element, _hole(scope, target) if part is None else part, is_sure)
        return
    if not isinstance(target, ast.Name):
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                _put(scope, node.id, _hole(scope, node))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                scope.tables.pop(node.value.id, None)
        return
    was_table = target.id in scope.tables
    if isinstance(thing, Table) and (is_sure or thing == scope.tables.get(target.id)):
        _put(scope, target.id, thing)
        return
    value = _hole(scope, target) if isinstance(thing, Table) or (was_table and not is_sure) else thing
    if not is_sure:
        old = scope.variables.get(target.id, _hole(scope, target) if target.id in scope.names.imported else value)
        value = merge([old, value], f"set under a condition at line {target.lineno}", _span(scope, target))
    _put(scope, target.id, bounded(value, _span(scope, target)))


def _parts(thing: Thing) -> list[Thing | None] | None:
    """Return the parts of a list, None for each that is not known; None of what is no list."""
    if isinstance(thing, Table):
        return list(thing.entries.values()) if thing.is_list else None
    return (
        [Scalar(item.pieces) if isinstance(item, Word) else None for item in thing.items] if isinstance(thing, Array) else None
    )


def _spend(scope: Scope, value: Value, node: ast.expr | ast.stmt | None) -> None:
    _take_steps(scope, len(value.items if isinstance(value, Array) else value.pieces), node)


def _take_steps(scope: Scope, count: int, node: ast.expr | ast.stmt | None) -> None:
    scope.names.steps -= count
    if scope.names.steps < 0:
        line = node.lineno if node is not None else 1
        raise ReadError("the program is too complex to be followed statically", Location(scope.source.path, line))


def _thing(scope: Scope, node: ast.expr, depth: int = 0) -> Thing:
    """Return what an expression gives: a table where it is one that is known, else a text or a list."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and depth <= DEEPEST and getattr(node, "attr", "") != "__dict__":
        found = _entry(scope, node, depth + 1)
        value = found if isinstance(found, Table) else bounded(_of_entry(scope, node, found, depth + 1), _span(scope, node))
        if not isinstance(value, Table):
            _spend(scope, value, node)
        return value
    table = _table(scope, node, depth)
    return table if table is not None else _value(scope, node, depth)


def _table(scope: Scope, node: ast.expr, depth: int) -> Table | None:
    """Return the table that an expression gives; None where it gives none, or one of which the keys are not known."""
    if depth > DEEPEST:
        return None
    match node:
        case ast.Name(id=name):
            return scope.tables.get(name)
        case ast.Dict(keys=keys, values=values):
            return _united(scope, [_row(scope, key, value, depth + 1) for key, value in zip(keys, values, strict=True)], node)
        case ast.DictComp(key=key, value=value, generators=generators):
            rounds = _comprehended(scope, generators, lambda inner: _row(inner, key, value, depth + 1), depth)
            return None if rounds is None else _united(scope, rounds, node)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _united(scope, [_table(scope, left, depth + 1), _table(scope, right, depth + 1)], node)
        case ast.Attribute(value=of, attr="__dict__"):
            return _table(scope, of, depth + 1)
        case ast.Attribute() | ast.Subscript():
            found = _entry(scope, node, depth + 1)
            return found if isinstance(found, Table) else None
        case ast.List(elts=elements) | ast.Tuple(elts=elements) if any(_is_compound(scope, each) for each in elements):
            things = [_thing(scope, each, depth + 1) for each in elements if not isinstance(each, ast.Starred)]
            return (
                Table({str(place): each for place, each in enumerate(things)}, True) if len(things) == len(elements) else None
            )
        case ast.Call():
            return _built(scope, node, depth + 1)
    return None


def _is_compound(scope: Scope, node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "dict" or bool(scope.names.places.get(node.func.id))
    return isinstance(node, (ast.Dict, ast.List, ast.Tuple)) or (isinstance(node, ast.Name) and _is_known(scope, node.id))


def _row(scope: Scope, key: ast.expr | None, value: ast.expr, depth: int) -> Table | None:
    """Return the entries that one place of a dictionary gives."""
    if key is None:
        return _table(scope, value, depth)
    text = _text(scope, key)
    return None if text is None else Table({text: _thing(scope, value, depth)})


def _united(scope: Scope, tables: Sequence[Table | None], node: ast.expr) -> Table | None:
    """Return the table of all entries, the last of a key; None where one table is not known."""
    known = [table for table in tables if table is not None and not table.is_list]
    _take_steps(scope, sum(len(table.entries) for table in known), node)
    if len(known) < len(tables):
        return None
    return Table({key: thing for table in known for key, thing in table.entries.items()})


def _built(scope: Scope, call: ast.Call, depth: int) -> Table | None:
    """Return the dictionary or the object that a call makes."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "copy" and not call.args:
        return _table(scope, call.func.value, depth)
    if (scope.names.dotted(call.func) in SAME_TABLE or name == "vars") and len(call.args) == 1:
        return _table(scope, call.args[0], depth)
    places = scope.names.places.get(name) or []
    if (name != "dict" and not places) or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    named = _united(
        scope,
        [
            _table(scope, each.value, depth) if each.arg is None else Table({each.arg: _thing(scope, each.value, depth)})
            for each in call.keywords
        ],
        call,
    )
    if named is None:
        return None
    if not places:
        return _united(scope, [*(_table(scope, each, depth) for each in call.args), named], call)
    empty = Scope(scope.program)
    fields = scope.names.fields.get(name, {})
    defaults: dict[str, Thing] = {key: _value(empty, each, depth) for key, each in fields.items()}
    listed: dict[str, Thing] = {key: _thing(scope, each, depth) for key, each in zip(places, call.args, strict=False)}
    held = {**dict.fromkeys(places), **defaults, **listed, **named.entries}
    if len(call.args) > len(places):
        return None
    return Table({key: thing for key, thing in held.items() if thing is not None})


def _entry(scope: Scope, node: ast.Attribute | ast.Subscript, depth: int) -> Thing | None:
    """Return the entry of a table, the field of an object or the word of a list that an expression names."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and scope.owner is not None
    ):
        return _attribute(scope, scope.owner, node.attr, depth)
    if isinstance(node, ast.Attribute):
        table = _table(scope, node.value, depth)
        return table.entries.get(node.attr) if table is not None and not table.is_list else None
    key = _text(scope, node.slice) if not isinstance(node.slice, ast.Slice) else None
    value = _thing(scope, node.value, depth) if key is not None else None
    if key is None or isinstance(value, Table):
        return value.entries.get(key) if isinstance(value, Table) and key is not None else None
    words = value.items[: int(key) + 1] if isinstance(value, Array) and key.isdecimal() and len(key) < 6 else ()
    if not words or len(words) <= int(key) or not all(isinstance(item, Word) for item in words):
        return None
    last = words[-1]
    return Scalar(last.pieces) if isinstance(last, Word) else None


def _attribute(scope: Scope, owner: ast.ClassDef, name: str, depth: int) -> Thing | None:
    """Return what an attribute of `self` holds that `__init__` sets, and nothing else; or the default of a field."""
    program = scope.program
    count = scope.names.stored[name]
    if owner.name in scope.names.bases or count > 1:
        return None
    if count == 0:
        default = scope.names.fields.get(owner.name, {}).get(name)
        return _from_outside(Scope(program), default, depth) if default is not None else None
    making = next((node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None)
    if making is None or f"{owner.name}.__init__" in program.following:
        return None
    for place, statement in enumerate(making.body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        is_of_self = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
        if isinstance(statement, ast.Assign) and is_of_self and isinstance(target, ast.Attribute) and target.attr == name:
            program.following.append(f"{owner.name}.__init__")
            before = ast.FunctionDef(**{**vars(making), "body": making.body[:place]})
            scope = follow_function(of_module(program), before)
            scope.owner = owner
            thing = _thing(scope, statement.value, depth)
            program.following.pop()
            return thing
    return None


def _comprehended(
    scope: Scope, generators: Sequence[ast.comprehension], made: Callable[[Scope], T], depth: int
) -> list[T] | None:
    """Return what each round of a comprehension makes; None where the rounds are not known."""
    if not generators:
        return [made(scope)]
    first = generators[0]
    rounds = None if first.is_async else _rounds(scope, first.iter, depth + 1)
    if rounds is None:
        return None
    found: list[T] = []
    for thing in rounds:
        inner = Scope(scope.program, dict(scope.variables), dict(scope.tables), owner=scope.owner)
        _assign(inner, first.target, thing, True)
        chosen = [_decide(inner, test) for test in first.ifs]
        if None in chosen:
            return None
        if all(chosen):
            more = _comprehended(inner, generators[1:], made, depth)
            if more is None:
                return None
            found += more
    return found


def _value(scope: Scope, node: ast.expr, depth: int = 0) -> Value:
    """Return the text or the list that an expression gives, with holes for what is not known."""
    value = bounded(_evaluated(scope, node, depth), _span(scope, node))
    _spend(scope, value, node)
    return value


def _evaluated(scope: Scope, node: ast.expr, depth: int) -> Value:
    if depth > DEEPEST:
        return _hole(scope, node)
    match node:
        case ast.Constant(value=int() as constant) if constant.bit_length() > _MOST_BITS:
            return _hole(scope, node)
        case ast.Constant(value=bool() | int() | float() | None as constant):
            return _plain(scope, str(constant), node)
        case ast.JoinedStr() | ast.Constant():
            return Scalar(tuple(_pieces(scope, node, depth)))
        case ast.Name():
            return _name(scope, node)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return Array(tuple(item for element in elements for item in _items(scope, element, depth)))
        case ast.BinOp(op=ast.Add()):
            return _sum(scope, _value(scope, node.left, depth + 1), _value(scope, node.right, depth + 1), node)
        case ast.BinOp(op=operator):
            pieces = _computed(scope, operator, _value(scope, node.left, depth + 1), _value(scope, node.right, depth + 1), node)
            return Scalar(pieces) if pieces is not None else _hole(scope, node)
        case ast.IfExp():
            both = [_value(scope, each_node, depth + 1) for each_node in (node.body, node.orelse)]
            return merge(both, f"depends on a condition at line {node.lineno}", _span(scope, node))
        case ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators):
            rounds = _comprehended(scope, generators, lambda inner: tuple(_items(inner, element, depth + 1)), depth)
            return _hole(scope, node) if rounds is None else Array(tuple(item for each in rounds for item in each))
        case ast.Attribute() | ast.Subscript():
            return _of_entry(scope, node, _entry(scope, node, depth + 1), depth + 1)
        case ast.Call():
            return _called_value(scope, node, depth + 1)
    return _hole(scope, node)


def _computed(
    scope: Scope, operator: ast.operator, one: Value, other: Value, node: ast.expr | ast.stmt
) -> tuple[Piece, ...] | None:
    """Return what an operator other than `+` makes of two values; None where that is not known."""
    if not isinstance(one, Scalar):
        return None
    if isinstance(other, Scalar) and (found := computed(operator, one.pieces, other.pieces, _span(scope, node))) is not None:
        return found
    if not isinstance(operator, ast.Mod):
        return None
    parts = [other] if isinstance(other, Scalar) else _parts(other) or []
    texts = [part.pieces for part in parts if isinstance(part, Scalar)]
    pieces = substituted(one.pieces, texts) if len(texts) == len(parts) else None
    return tuple(pieces) if pieces is not None else None


def _of_entry(scope: Scope, node: ast.Attribute | ast.Subscript, found: Thing | None, depth: int) -> Value:
    """Return the text or the list that is `found` at an expression; else the default of the option that it names."""
    if found is not None:
        return _hole(scope, node) if isinstance(found, Table) else found
    default = scope.names.default(node) if isinstance(node, ast.Attribute) else None
    return _from_outside(scope, default, depth) if default is not None else _hole(scope, node)


def _called_value(scope: Scope, node: ast.Call, depth: int) -> Value:
    function = scope.names.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is not None and function.name not in scope.variables:
        return _result(scope, node, function, depth)
    match node.func:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if scope.owner is not None:
            if scope.owner.name in scope.names.bases:
                return _hole(scope, node)
            method = scope.names.methods.get((scope.owner.name, name))
            return _hole(scope, node) if method is None else _result(scope, node, method, depth, first=1)
        case ast.Attribute(value=template, attr="format"):
            return _formatted(scope, node, _value(scope, template, depth), depth)
    return _hole(scope, node) if node.keywords else _called(scope, node, depth)


def _formatted(scope: Scope, call: ast.Call, template: Value, depth: int) -> Value:
    """Return what `format` makes of a text; what it is not known to fill in stays open."""
    named: dict[str, Thing] = {}
    for keyword in call.keywords:
        table = _table(scope, keyword.value, depth) if keyword.arg is None else None
        named |= (
            table.entries if table is not None else {keyword.arg: _value(scope, keyword.value, depth)} if keyword.arg else {}
        )
    if not isinstance(template, Scalar) or any(isinstance(each, ast.Starred) for each in call.args):
        return _hole(scope, call)
    listed = [_text_of(scope, _value(scope, each, depth), each) for each in call.args]
    texts = {name: _text_of(scope, thing, call) for name, thing in named.items()}
    return bounded(Scalar(tuple(filled(template.pieces, listed, texts))), _span(scope, call))


def _text_of(scope: Scope, thing: Thing, node: ast.expr) -> tuple[Piece, ...]:
    return thing.pieces if isinstance(thing, Scalar) else _hole(scope, node).pieces


def _result(scope: Scope, call: ast.Call, function: ast.FunctionDef, depth: int, first: int = 0) -> Value:
    """Return what a call of a function of the program gives; the first parameter of a method is its object."""
    program, last = scope.program, function.body[-1]
    is_too_deep = len(program.following) >= MOST_WITHIN or function.name in program.following
    if not isinstance(last, ast.Return) or last.value is None or is_too_deep:
        return _hole(scope, call)
    given = _arguments(scope, call, function, first, depth)
    if given is None:
        return _hole(scope, call)
    program.following.append(function.name)
    this_scope = follow_function(Scope(program, program.variables, program.tables), function, call, given)
    held = this_scope.variables.get(last.value.id) if isinstance(last.value, ast.Name) else None
    is_global = isinstance(last.value, ast.Name) and held is program.variables.get(last.value.id)
    value = _hole(scope, call) if is_global else _value(this_scope, last.value)
    program.following.pop()
    return value


def _called(scope: Scope, node: ast.Call, depth: int) -> Value:
    """Return what a call gives of which it is known that it gives its argument, or joins or splits it."""
    given = [_value(scope, argument, depth) for argument in node.args]
    first = given[0] if len(given) == 1 else None
    if isinstance(node.func, ast.Name) and node.func.id in SAME_TEXT and first is not None:
        return Scalar(as_number(first.pieces)) if node.func.id == "int" and isinstance(first, Scalar) else first
    if isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple") and isinstance(first, Array):
        return first
    name = scope.names.dotted(node.func)
    if name in FROM_OUTSIDE and len(given) == 2:
        return _from_outside(scope, node.args[1], depth)
    of = _value(scope, node.func.value, depth) if isinstance(node.func, ast.Attribute) and not name else None
    method = node.func.attr if isinstance(node.func, ast.Attribute) else name
    blank = name == "shlex.join" or (method == "join" and isinstance(of, Scalar) and known_text(of.pieces) == " ")
    if blank and len(given) == 1 and isinstance(given[0], Array):
        return bounded(Scalar(join(given[0].items)), _span(scope, node))
    if name == "textwrap.dedent" and first is not None:
        return first
    if (
        method == "get"
        and isinstance(node.func, ast.Attribute)
        and (entry := _got(scope, node, node.func.value, depth)) is not None
    ):
        return entry
    if isinstance(of, Scalar) and method != "split":
        texts = [each.pieces for each in given if isinstance(each, Scalar)]
        pieces = changed(method, of.pieces, texts, _span(scope, node)) if len(texts) == len(given) else None
        return Scalar(pieces) if pieces is not None else _hole(scope, node)
    text = given[0] if name == "shlex.split" and len(given) == 1 else of if method == "split" and not given else None
    return Array(split_value(text)) if isinstance(text, Scalar) else _hole(scope, node)


def _got(scope: Scope, call: ast.Call, of: ast.expr, depth: int) -> Value | None:
    """Return what `get` takes out of a table; None where that is no text or list that is known."""
    table = _table(scope, of, depth)
    key = _text(scope, call.args[0]) if call.args else None
    if table is None or key is None:
        return None
    found = table.entries.get(key)
    if found is None:
        found = _value(scope, call.args[1], depth) if len(call.args) > 1 else _plain(scope, "None", call)
    return None if isinstance(found, Table) else found


def _from_outside(scope: Scope, default: ast.expr, depth: int) -> Value:
    """Return what holds a default where whoever starts the program gives nothing else."""
    value = _value(scope, default, depth)
    if not isinstance(value, Scalar) or known_text(value.pieces) == "None":
        return _hole(scope, default)
    return Scalar(tuple(replace(piece, outside=True) if isinstance(piece, Text) else piece for piece in value.pieces))


def _leaves_out(call: ast.Call, place: int, name: str) -> bool:
    """Return whether a call gives a parameter nothing."""
    is_listed = len(call.args) > place or any(isinstance(argument, ast.Starred) for argument in call.args)
    return not is_listed and all(keyword.arg not in (name, None) for keyword in call.keywords)


def _parameters(
    scope: Scope, arguments: ast.arguments, calls: Iterable[ast.Call], *, is_called: bool
) -> Iterator[tuple[str, Value]]:
    """Yield what each parameter of a function holds: its default, where a call gives nothing else.

    The function is called by the one call, or by whoever may call it beside them.
    """
    names = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(names) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    of_default = _value if is_called else _from_outside
    for place, (node, default) in enumerate(zip([*names, *arguments.kwonlyargs], defaults, strict=True)):
        is_left_out = default is not None and any(_leaves_out(call, place, node.arg) for call in calls)
        yield node.arg, of_default(scope, default, 0) if default is not None and is_left_out else _hole(scope, node)
    yield from ((each.arg, _hole(scope, each)) for each in (arguments.vararg, arguments.kwarg) if each is not None)


def _items(scope: Scope, node: ast.expr, depth: int) -> Iterator[Item]:
    if isinstance(node, ast.Starred):
        inner = _value(scope, node.value, depth + 1)
        yield from inner.items if isinstance(inner, Array) else [Gap("not understood", _span(scope, node))]
        return
    value = _value(scope, node, depth + 1)
    if isinstance(value, Scalar):
        yield Word(value.pieces or (Text("", _span(scope, node), exact=False),))
    else:
        yield Gap("a list within a list", _span(scope, node))


def _pieces(scope: Scope, node: ast.JoinedStr | ast.Constant, depth: int) -> Iterator[Piece]:
    whole = _span(scope, node)
    at = whole.start
    for part in node.values if isinstance(node, ast.JoinedStr) else [node]:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            for chunk in CHUNK.findall(part.value):
                found = scope.source.text.find(chunk, at, whole.end) if not chunk.isspace() else -1
                at = found + len(chunk) if found >= 0 else at
                place = Span(scope.source, found, at) if found >= 0 else whole
                if QUOTED.search(chunk):
                    yield Hole("not understood", place)
                else:
                    yield from _with_placeholders(Text(chunk, place, exact=found >= 0))
        elif isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion < 0:
            value = _value(scope, part.value, depth + 1)
            yield from value.pieces if isinstance(value, Scalar) else _hole(scope, node).pieces
        else:
            yield from _hole(scope, node).pieces


def _with_placeholders(text: Text) -> Iterator[Piece]:
    """Yield the parts of a text; what `format` may fill in is open."""
    start = 0
    for match in PLACEHOLDER.finditer(text.text):
        if match.start() > start:
            yield slice_text(text, start, match.start())
        yield Hole("filled in by `format`", slice_text(text, match.start(), match.end()).span)
        start = match.end()
    if start < len(text.text):
        yield slice_text(text, start, len(text.text))


def _name(scope: Scope, node: ast.Name) -> Value:
    return scope.variables.get(node.id) or _hole(scope, node)


def _sum(scope: Scope, one: Value, other: Value, node: ast.expr | ast.stmt | None) -> Value:
    for each in (one, other):
        _spend(scope, each, node)
    if isinstance(one, Scalar) and isinstance(other, Scalar):
        pieces = computed(ast.Add(), one.pieces, other.pieces, _span(scope, node))
        if pieces is not None:
            return Scalar(pieces)
        if may_be_added(one.pieces, other.pieces):
            return _hole(scope, node)
        return bounded(Scalar((*one.pieces, *other.pieces)), _span(scope, node))
    lists = [each.items if isinstance(each, Array) else (Gap("not understood", _span(scope, node)),) for each in (one, other)]
    return bounded(Array((*lists[0], *lists[1])), _span(scope, node))


def _hole(scope: Scope, node: ast.expr | ast.stmt | ast.arg | None) -> Scalar:
    return Scalar((Hole("depends on what the program computes", _span(scope, node)),))


def _span(scope: Scope, node: ast.expr | ast.stmt | ast.arg | None) -> Span:
    source = scope.source
    if node is None:
        return Span(source, 0, 0)
    end = _offset(source, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return Span(source, _offset(source, node.lineno, node.col_offset), end)


def _offset(source: Source, line: int, column: int) -> int:
    """Return the offset in code points of a column in bytes."""
    start, end = source.lines.bounds(min(line, len(source.lines)))
    return start + len(source.text[start:end].encode()[:column].decode(errors="ignore"))
