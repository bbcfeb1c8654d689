"""Launchers in Python: the commands that a function starts, and the lists and texts of Megatron's options that it builds.

Parsed, never run.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration
from tvlint.ir.location import Location
from tvlint.readers.document import Document, ReadError, refuse_larger
from tvlint.readers.languages import is_prose, is_test
from tvlint.readers.megatron.detect_framework import SWIFT
from tvlint.readers.megatron.invalid_options import listed_option_mistakes, option_mistakes
from tvlint.readers.megatron.launch_script import distinct_cases, is_launch, launched, of_lists
from tvlint.readers.megatron.launcher import split_launch
from tvlint.readers.megatron.python_names import Names, read_names
from tvlint.readers.not_followed import PASSED
from tvlint.readers.shell.evaluate import Evaluation
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
    source_of,
)
from tvlint.readers.shell.words import join, merge, split_value

FORMAT = "python-launcher"
LARGEST = 1 << 20
MOST_NODES = 100_000
DEEPEST = 40
IMPORTS = re.compile(rb"^(?:import \w|from [\w.]+ import )", re.MULTILINE)
LISTED = re.compile(rb"[\"']--(?:tensor|pipeline)-model-parallel-size[\"'],\s*(?:str\(|f?[\"'][^-\"'])")
"""An option that only Megatron has, in a list, with a value that is computed."""
CHUNK = re.compile(r"\s+|\S+")
QUOTED = re.compile(r"[\"'`$\\]")
"""What a shell that takes the text may read otherwise."""
MOST_BRANCHES = 16
LONGEST = 60
LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
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
HARMLESS = frozenset({"argparse", "json", "logging", "shlex", "textwrap", "typing", "warnings"})
"""Modules whose functions start nothing and leave lists as they are."""
CHANGES_NOTHING = frozenset({"copy", "count", "index"})
MOST_WITHIN = 8
"""So many functions are followed into one another."""
NOTHING: Mapping[str, Value] = MappingProxyType({})
WITHIN = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""Nodes of a statement that are no expressions of its own."""


@dataclass(slots=True)
class Scope:
    """The variables of a module or function, by what the statements before leave in them."""

    source: Source
    names: Names
    variables: dict[str, Value] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    """The names of lists that have more than one."""


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` is Python that passes an option of Megatron with a value, and no test."""
    if is_prose(path) or IMPORTS.search(data) is None or is_test(path, data):
        return False
    return PASSED.search(data) is not None or LISTED.search(data) is not None


def read(path: str, data: bytes) -> Document | None:
    """Return the options that each function lists; None where none lists options that only Megatron has."""
    refuse_larger(path, data, LARGEST, "program")
    source = source_of(path, data)
    try:
        module = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = [node for node, _ in zip(ast.walk(module), range(MOST_NODES), strict=False)]
    names = read_names(nodes)
    of_module = set(map(id, module.body))
    names.functions = {name: function for name, function in names.functions.items() if id(function) in of_module}
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    configurations, findings = _configurations(_evaluations(source, names, module, functions, functions))
    if not configurations:
        return None
    cases: dict[Location | None, list[Configuration]] = {configuration.location: [] for configuration in configurations}
    for branch, condition in _branches(nodes):
        names.supposed = branch
        try:
            evaluations = _evaluations(source, names, module, functions, _reaching(branch[0].lineno, functions, names))
        except ReadError:
            break
        for launch in _launches(evaluations) or _lists(evaluations):
            cases.get(launch.location, []).append(replace(launch, condition=condition))
    judged = tuple(replace(each, cases=tuple(distinct_cases(each, cases[each.location]))) for each in configurations)
    return Document(path, FORMAT, configurations=judged, findings=tuple(findings))


def _evaluations(
    source: Source, names: Names, module: ast.Module, functions: Sequence[Function], followed: Sequence[Function]
) -> list[Evaluation]:
    """Return what the module and each of the functions that are followed start and leave in variables."""
    names.variables = {}
    top = Scope(source, names, variables=names.variables)
    _follow(top, module.body, is_sure=True)
    shared = Scope(source, names, variables=dict(top.variables))
    for function in functions:
        for name in _changed(function):
            _change(shared, name, function)
    scopes = [top, *(_follow_function(shared, function) for function in followed)]
    return [Evaluation(source, tuple(scope.commands), scope.variables, (), False, 0) for scope in scopes]


def _configurations(evaluations: Sequence[Evaluation]) -> tuple[list[Configuration], dict[Finding, None]]:
    """Return the launches, or else the lists of options, with the mistakes in each."""
    findings: dict[Finding, None] = {}
    for configuration, _, launch, arguments in (each for evaluation in evaluations for each in launched(evaluation, "")):
        findings.update(dict.fromkeys(option_mistakes(configuration, arguments.surplus, launch.path or launch.program)))
    configurations = _launches(evaluations)
    if not configurations:
        configurations = _lists(evaluations)
        findings.update(dict.fromkeys(mistake for each in configurations for mistake in listed_option_mistakes(each)))
    return configurations, findings


def _launches(evaluations: Sequence[Evaluation]) -> list[Configuration]:
    return [
        replace(configuration, format=FORMAT) for evaluation in evaluations for configuration, *_ in launched(evaluation, "")
    ]


def _lists(evaluations: Sequence[Evaluation]) -> list[Configuration]:
    found = [of_list for evaluation in evaluations for of_list in of_lists(evaluation, "")]
    return [replace(each, format=FORMAT, section=f"line {each.location.line}") for each in found if each.location is not None]


def _reaching(line: int, functions: Sequence[Function], names: Names) -> Sequence[Function]:
    """Return the functions that hold the line, and those that call them; all where it is the module's."""
    within = [function for function in functions if function.lineno <= line <= (function.end_lineno or 0)]
    lines = [line, *(call.lineno for node in within for call in names.calls.get(node.name, ()))]
    nodes = [
        function for function in functions if any(function.lineno <= place <= (function.end_lineno or 0) for place in lines)
    ]
    return nodes if within else functions


def _branches(nodes: Iterable[ast.AST]) -> Iterable[tuple[list[ast.stmt], str]]:
    """Return the first branches that add to a list of options and go on after that, and the condition of each in words."""
    found = []
    for node in (node for node in nodes if isinstance(node, ast.If)):
        for branch, word in ((node.body, "where"), (node.orelse, "where not")):
            inner = [node for statement in branch for node in ast.walk(statement)]
            if any(map(_is_flag, inner)) and not any(isinstance(node, LEAVES) for node in inner):
                found.append((branch, f" {word} `{ast.unparse(node.test)[:LONGEST]}`"))
    return found[:MOST_BRANCHES]


def _is_flag(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--")


def _follow_function(
    outer: Scope,
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    call: ast.Call | None = None,
    given: Mapping[str, Value] = NOTHING,
) -> Scope:
    """Return what the body of a function leaves, which sees the variables of the module that it names.

    Of one `call`, with the arguments `given`, or of any.
    """
    used = [each_node for each_node in ast.walk(node) if isinstance(each_node, ast.Name)]
    _take_steps(outer, len(used), node)
    stored = {each_node.id for each_node in used if not isinstance(each_node.ctx, ast.Load)}
    seen = {each.id: outer.variables[each.id] for each in used if each.id in outer.variables and each.id not in stored}
    scope = Scope(outer.source, outer.names, seen)
    scope.variables.update(_parameters(scope, node.args, (call,) if call is not None else outer.names.calls.get(node.name, ())))
    scope.variables.update(given)
    _follow(scope, node.body, is_sure=True)
    return scope


def _follow(scope: Scope, body: Iterable[ast.stmt], is_sure: bool, depth: int = 0) -> None:
    """Follow the assignments of statements; one within another may not run, so that the value before stays possible."""
    for statement in body:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) or depth > DEEPEST:
            continue
        _follow_calls(scope, statement, is_sure)
        if isinstance(statement, ast.Assign):
            value = _value(scope, statement.value)
            for target in statement.targets:
                _assign(scope, target, value, is_sure)
            if isinstance(value, Array) and (len(statement.targets) > 1 or isinstance(statement.value, ast.Name)):
                scope.shared.update(node.id for node in (*statement.targets, statement.value) if isinstance(node, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            _assign(scope, statement.target, _value(scope, statement.value), is_sure)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            added = _value(scope, statement.value) if isinstance(statement.op, ast.Add) else _hole(scope, statement)
            old = _name(scope, statement.target)
            _assign(scope, statement.target, _sum(scope, old, added, statement), is_sure)
            if isinstance(old, Array):
                _forget_shared(scope, statement.target.id, statement)
        else:
            if isinstance(statement, LOOPS):
                stored = (
                    node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                )
                scope.variables.update({node.id: _hole(scope, node) for node in stored if node.id in scope.variables})
                for name in _changed(statement):
                    _change(scope, name, statement)
            for iter_child_node in ast.iter_child_nodes(statement):
                if isinstance(iter_child_node, ast.Name) and isinstance(iter_child_node.ctx, ast.Store):
                    scope.variables[iter_child_node.id] = _hole(scope, iter_child_node)
                elif isinstance(iter_child_node, (ast.ExceptHandler, ast.match_case)):
                    _follow(scope, iter_child_node.body, False, depth + 1)
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, None)
                is_supposed = bool(inner) and inner is scope.names.supposed
                if isinstance(inner, list) and (is_supposed or not _is_other(scope.names, statement)):
                    is_run = isinstance(statement, (ast.With, ast.AsyncWith)) or is_supposed
                    _follow(scope, inner, is_sure and is_run, depth + 1)


def _is_other(names: Names, statement: ast.stmt) -> bool:
    """Return whether one of the two branches of a condition is followed as the one that runs."""
    return isinstance(statement, ast.If) and any(each and each is names.supposed for each in (statement.body, statement.orelse))


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
    if isinstance(call.func, ast.Attribute) and isinstance(of, ast.Name) and isinstance(scope.variables.get(of.id), Array):
        if call.func.attr not in CHANGES_NOTHING:
            _change(scope, of.id, call, call if is_sure else None)
        return
    function = scope.names.dotted(call.func)
    if _is_harmless(call.func, function):
        return
    is_method = of is not None and not function and not (isinstance(of, ast.Name) and of.id == "self")
    for given in (*call.args, *(keyword.value for keyword in call.keywords)):
        value = _value(scope, given)
        for words in () if is_method and isinstance(value, Scalar) else _commands(value):
            launch = split_launch(words)
            if is_launch(words) and (launch.path or launch.program in SWIFT):
                more = () if function in RUNNERS else (Gap("another function may add words", _span(scope, call.func)),)
                scope.commands.append(Command((*words, *more), _span(scope, given), {}))
        if isinstance(given, ast.Name) and not is_method and function not in RUNNERS:
            _change(scope, given.id, call)


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


def _changed(node: ast.AST) -> set[str]:
    """Return the names of lists that something within may change where they are."""
    found = set[str]()
    for each_node in ast.walk(node):
        match each_node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method not in CHANGES_NOTHING:
                found.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.add(name)
            case ast.Call():
                found.update(given.id for given in each_node.args if isinstance(given, ast.Name))
    return found


def _change(scope: Scope, name: str, node: ast.expr | ast.stmt, call: ast.Call | None = None) -> None:
    """Note that a list changes, under every name that it has: by what `append` or `extend` adds, or in an unknown way."""
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


def _forget_shared(scope: Scope, name: str, node: ast.expr | ast.stmt) -> None:
    """Note that a list changed: where it has a second name, no list with two names is known further."""
    if name in scope.shared:
        scope.variables.update({each_name: _hole(scope, node) for each_name in scope.shared})
        scope.shared.clear()


def _assign(scope: Scope, target: ast.expr, value: Value, is_sure: bool) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, Array) and len(target.elts) == len(value.items):
        for element, item in zip(target.elts, value.items, strict=True):
            _assign(scope, element, Scalar(item.pieces) if isinstance(item, Word) else _hole(scope, target), is_sure)
        return
    if not isinstance(target, ast.Name):
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.variables[node.id] = _hole(scope, node)
        return
    if not is_sure:
        old = scope.variables.get(target.id, value)
        value = merge([old, value], f"set under a condition at line {target.lineno}", _span(scope, target))
    scope.variables[target.id] = bounded(value, _span(scope, target))


def _spend(scope: Scope, value: Value, node: ast.expr | ast.stmt) -> None:
    _take_steps(scope, len(value.items if isinstance(value, Array) else value.pieces), node)


def _take_steps(scope: Scope, count: int, node: ast.expr | ast.stmt) -> None:
    scope.names.steps -= count
    if scope.names.steps < 0:
        raise ReadError("the program is too complex to be followed statically", Location(scope.source.path, node.lineno))


def _value(scope: Scope, node: ast.expr, depth: int = 0) -> Value:
    """Return the text or the list that an expression gives, with holes for what is not known."""
    value = _evaluated(scope, node, depth)
    _spend(scope, value, node)
    return value


def _evaluated(scope: Scope, node: ast.expr, depth: int) -> Value:
    if depth > DEEPEST:
        return _hole(scope, node)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Scalar((Text(str(node.value), _span(scope, node), exact=False),))
    if isinstance(node, (ast.JoinedStr, ast.Constant)):
        return Scalar(tuple(_pieces(scope, node, depth)))
    if isinstance(node, ast.Name):
        return _name(scope, node)
    if isinstance(node, (ast.List, ast.Tuple)):
        return Array(tuple(item for element in node.elts for item in _items(scope, element, depth)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sum(scope, _value(scope, node.left, depth + 1), _value(scope, node.right, depth + 1), node)
    if isinstance(node, ast.IfExp):
        both = [_value(scope, each_node, depth + 1) for each_node in (node.body, node.orelse)]
        return merge(both, f"depends on a condition at line {node.lineno}", _span(scope, node))
    if isinstance(node, ast.Attribute):
        default = scope.names.default(node)
        return _from_outside(scope, default, depth + 1) if default is not None else _hole(scope, node)
    if not isinstance(node, ast.Call):
        return _hole(scope, node)
    function = scope.names.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is not None and function.name not in scope.variables:
        return _result(scope, node, function, depth + 1)
    return _hole(scope, node) if node.keywords else _called(scope, node, depth + 1)


def _result(scope: Scope, call: ast.Call, function: ast.FunctionDef, depth: int) -> Value:
    """Return what a call of a function of the program gives."""
    names, last = scope.names, function.body[-1]
    is_too_deep = len(names.following) >= MOST_WITHIN or function.name in names.following
    if not isinstance(last, ast.Return) or last.value is None or is_too_deep:
        return _hole(scope, call)
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    ):
        return _hole(scope, call)
    places = [*function.args.posonlyargs, *function.args.args]
    given = {place.arg: _value(scope, value, depth) for place, value in zip(places, call.args, strict=False)}
    given |= {keyword.arg: _value(scope, keyword.value, depth) for keyword in call.keywords if keyword.arg is not None}
    names.following.append(function.name)
    this_scope = _follow_function(Scope(scope.source, names, variables=names.variables), function, call, given)
    is_global = isinstance(last.value, ast.Name) and this_scope.variables.get(last.value.id) is names.variables.get(
        last.value.id
    )
    value = _hole(scope, call) if is_global else _value(this_scope, last.value)
    names.following.pop()
    return value


def _called(scope: Scope, node: ast.Call, depth: int) -> Value:
    """Return what a call gives of which it is known that it gives its argument, or joins or splits it."""
    given = [_value(scope, argument, depth) for argument in node.args]
    if isinstance(node.func, ast.Name) and node.func.id in SAME_TEXT and len(given) == 1:
        return given[0]
    name = scope.names.dotted(node.func)
    if name in FROM_OUTSIDE and len(given) == 2:
        return _from_outside(scope, node.args[1], depth)
    of = _value(scope, node.func.value, depth) if isinstance(node.func, ast.Attribute) and not name else None
    method = node.func.attr if isinstance(node.func, ast.Attribute) else name
    blank = name == "shlex.join" or (method == "join" and isinstance(of, Scalar) and known_text(of.pieces) == " ")
    if blank and len(given) == 1 and isinstance(given[0], Array):
        return bounded(Scalar(join(given[0].items)), _span(scope, node))
    text = given[0] if name == "shlex.split" and len(given) == 1 else of if method == "split" and not given else None
    return Array(split_value(text)) if isinstance(text, Scalar) else _hole(scope, node)


def _from_outside(scope: Scope, default: ast.expr, depth: int) -> Value:
    """Return what holds a default where whoever starts the program gives nothing else."""
    value = _value(scope, default, depth)
    if not isinstance(value, Scalar):
        return _hole(scope, default)
    return Scalar(tuple(replace(piece, outside=True) if isinstance(piece, Text) else piece for piece in value.pieces))


def _leaves_out(call: ast.Call, place: int, name: str) -> bool:
    """Return whether a call gives a parameter nothing."""
    is_listed = len(call.args) > place or any(isinstance(argument, ast.Starred) for argument in call.args)
    return not is_listed and all(keyword.arg not in (name, None) for keyword in call.keywords)


def _parameters(scope: Scope, arguments: ast.arguments, calls: Iterable[ast.Call]) -> Iterator[tuple[str, Value]]:
    """Yield what each parameter of a function holds: its default, where a call of this program gives nothing else."""
    names = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(names) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    for place, (node, default) in enumerate(zip([*names, *arguments.kwonlyargs], defaults, strict=True)):
        is_left_out = default is not None and any(_leaves_out(call, place, node.arg) for call in calls)
        yield node.arg, _from_outside(scope, default, 0) if default is not None and is_left_out else _hole(scope, node)
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
                yield Hole("not understood", place) if QUOTED.search(chunk) else Text(chunk, place, exact=found >= 0)
        elif isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion < 0:
            value = _value(scope, part.value, depth + 1)
            yield from value.pieces if isinstance(value, Scalar) else _hole(scope, node).pieces
        else:
            yield from _hole(scope, node).pieces


def _name(scope: Scope, node: ast.Name) -> Value:
    return scope.variables.get(node.id) or _hole(scope, node)


def _sum(scope: Scope, one: Value, other: Value, node: ast.expr | ast.stmt) -> Value:
    for each in (one, other):
        _spend(scope, each, node)
    if isinstance(one, Scalar) and isinstance(other, Scalar):
        return bounded(Scalar((*one.pieces, *other.pieces)), _span(scope, node))
    lists = [each.items if isinstance(each, Array) else (Gap("not understood", _span(scope, node)),) for each in (one, other)]
    return bounded(Array((*lists[0], *lists[1])), _span(scope, node))


def _hole(scope: Scope, node: ast.expr | ast.stmt | ast.arg) -> Scalar:
    return Scalar((Hole("depends on what the program computes", _span(scope, node)),))


def _span(scope: Scope, node: ast.expr | ast.stmt | ast.arg) -> Span:
    source = scope.source
    end = _offset(source, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
    return Span(source, _offset(source, node.lineno, node.col_offset), end)


def _offset(source: Source, line: int, column: int) -> int:
    """Return the offset in code points of a column in bytes."""
    start, end = source.lines.bounds(min(line, len(source.lines)))
    return start + len(source.text[start:end].encode()[:column].decode(errors="ignore"))
