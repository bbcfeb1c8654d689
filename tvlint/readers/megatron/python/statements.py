"""Statements of a Python program, followed in order: the module, its functions, branches and rounds of loops."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tvlint.readers.megatron.python.assignments import assign, change, changed_in, forget_shared, with_entry
from tvlint.readers.megatron.python.commands import follow_calls
from tvlint.readers.megatron.python.conditions import also, decide, is_given
from tvlint.readers.megatron.python.expressions import thing_of, value_of
from tvlint.readers.megatron.python.rounds import rounds_of, shown
from tvlint.readers.megatron.python.scope import DEEPEST, FUNCTIONS, LOOPS, NOTHING, Function, Meaning, Program, Scope, Thing
from tvlint.readers.megatron.python.tables import table_of
from tvlint.readers.megatron.python.texts_and_lists import computed_of, from_outside, sum_of
from tvlint.readers.shell.values import Array, Scalar, Value


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
    outer.take_steps(len(used), node)
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
        default = outer.names.options.get(name) if node.decorator_list else None
        scope.put(name, value if default is None else from_outside(scope, default, 0))
    for name, thing in given.items():
        scope.put(name, thing)
    _follow(scope, node.body, is_sure=True)
    return scope


def _parameters(
    scope: Scope, arguments: ast.arguments, calls: Iterable[ast.Call], *, is_called: bool
) -> Iterator[tuple[str, Value]]:
    """Yield what each parameter of a function holds: its default, where a call gives nothing else.

    The function is called by the one call, or by whoever may call it beside them.
    """
    names = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(names) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
    of_default = value_of if is_called else from_outside
    for place, (node, default) in enumerate(zip([*names, *arguments.kwonlyargs], defaults, strict=True)):
        is_left_out = default is not None and any(_leaves_out(call, place, node.arg) for call in calls)
        yield node.arg, of_default(scope, default, 0) if default is not None and is_left_out else scope.hole(node)
    yield from ((each.arg, scope.hole(each)) for each in (arguments.vararg, arguments.kwarg) if each is not None)


def _leaves_out(call: ast.Call, place: int, name: str) -> bool:
    """Return whether a call gives a parameter nothing."""
    is_listed = len(call.args) > place or any(isinstance(argument, ast.Starred) for argument in call.args)
    return not is_listed and all(keyword.arg not in (name, None) for keyword in call.keywords)


def _follow(scope: Scope, body: Iterable[ast.stmt], is_sure: bool, depth: int = 0) -> None:
    """Follow the assignments of statements; one within another may not run, so that the value before stays possible."""
    for statement in body:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) or depth > DEEPEST:
            continue
        changed_table = with_entry(scope, statement) if is_sure and isinstance(statement, ast.Assign) else None
        follow_calls(scope, statement, is_sure)
        if isinstance(statement, ast.Assign):
            thing = scope.thing(statement.value)
            for target in statement.targets:
                assign(scope, target, thing, is_sure)
            if isinstance(thing, Array) and (len(statement.targets) > 1 or isinstance(statement.value, ast.Name)):
                scope.shared.update(node.id for node in (*statement.targets, statement.value) if isinstance(node, ast.Name))
            if changed_table is not None:
                scope.put(*changed_table)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            assign(scope, statement.target, scope.thing(statement.value), is_sure)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            _add_to(scope, statement, statement.target, is_sure)
        elif (rounds := rounds_of(scope, statement)) is not None and isinstance(statement, ast.For):
            _follow_rounds(scope, statement, rounds, is_sure, depth)
        else:
            _follow_within(scope, statement, is_sure, depth)


def _add_to(scope: Scope, statement: ast.AugAssign, target: ast.Name, is_sure: bool) -> None:
    old = scope.named(target)
    added = scope.value(statement.value)
    if isinstance(statement.op, ast.Add):
        assign(scope, target, sum_of(scope, old, added, statement), is_sure)
    else:
        pieces = computed_of(scope, statement.op, old, added, statement)
        assign(scope, target, Scalar(pieces) if pieces is not None else scope.hole(statement), is_sure)
    if isinstance(old, Array):
        forget_shared(scope, target.id, statement)


def _follow_within(scope: Scope, statement: ast.stmt, is_sure: bool, depth: int) -> None:
    """Follow the statements within one, of which it is not known whether they run, nor how often."""
    if isinstance(statement, LOOPS):
        stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        for node in stored:
            if node.id in scope.variables or node.id in scope.tables:
                scope.put(node.id, scope.hole(node))
        for name in changed_in(statement, scope.names):
            change(scope, name, statement)
    decided = decide(scope, statement.test) if isinstance(statement, ast.If) and is_given(scope, statement.test) else None
    for iter_child_node in ast.iter_child_nodes(statement):
        if isinstance(iter_child_node, ast.Name) and isinstance(iter_child_node.ctx, ast.Store):
            scope.put(iter_child_node.id, scope.hole(iter_child_node))
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


def _follow_rounds(scope: Scope, statement: ast.For, rounds: Sequence[Thing], is_sure: bool, depth: int) -> None:
    outer = scope.condition
    bound = {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
    scope.given |= bound
    for place, thing in enumerate(rounds, 1):
        assign(scope, statement.target, thing, True)
        scope.condition = also(outer, " with", f"`{shown(scope, statement.target) or f'round={place}'}`")
        _follow(scope, statement.body, is_sure, depth + 1)
    scope.condition = outer
    scope.given -= bound
    _follow(scope, statement.orelse, is_sure, depth + 1)


MEANING = Meaning(value_of, table_of, thing_of, follow_function)
