"""What calls give: of functions of the program, and of those that join, split or pass on what they are given."""

from __future__ import annotations

import ast

from tvlint.readers.megatron.python.scope import MOST_WITHIN, Function, Scope, Table, Thing
from tvlint.readers.megatron.python.texts import as_number, changed
from tvlint.readers.megatron.python.texts_and_lists import formatted, from_outside
from tvlint.readers.shell.values import Array, Scalar, Value, Word, bounded, known_text
from tvlint.readers.shell.words import join, split_value

FROM_OUTSIDE = frozenset({"os.getenv", "os.environ.get"})
SAME_TEXT = frozenset({"str", "int"})


def called_value(scope: Scope, node: ast.Call, depth: int) -> Value:
    """Return the text or the list that a call gives."""
    function = scope.names.functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is not None and function.name not in scope.variables:
        return _result(scope, node, function, depth)
    match node.func:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if scope.owner is not None:
            if scope.owner.name in scope.names.bases:
                return scope.hole(node)
            method = scope.names.methods.get((scope.owner.name, name))
            return scope.hole(node) if method is None else _result(scope, node, method, depth, first=1)
        case ast.Attribute(value=template, attr="format"):
            return formatted(scope, node, scope.value(template, depth), depth)
    return scope.hole(node) if node.keywords else _called(scope, node, depth)


def _result(scope: Scope, call: ast.Call, function: ast.FunctionDef, depth: int, first: int = 0) -> Value:
    """Return what a call of a function of the program gives; the first parameter of a method is its object."""
    program, last = scope.program, function.body[-1]
    is_too_deep = len(program.following) >= MOST_WITHIN or function.name in program.following
    if not isinstance(last, ast.Return) or last.value is None or is_too_deep:
        return scope.hole(call)
    given = arguments_of(scope, call, function, first, depth)
    if given is None:
        return scope.hole(call)
    program.following.append(function.name)
    this_scope = program.meaning.follow(Scope(program, program.variables, program.tables), function, call, given)
    held = this_scope.variables.get(last.value.id) if isinstance(last.value, ast.Name) else None
    is_global = isinstance(last.value, ast.Name) and held is program.variables.get(last.value.id)
    value = scope.hole(call) if is_global else this_scope.value(last.value)
    program.following.pop()
    return value


def _called(scope: Scope, node: ast.Call, depth: int) -> Value:
    """Return what a call gives of which it is known that it gives its argument, or joins or splits it."""
    given = [scope.value(argument, depth) for argument in node.args]
    first = given[0] if len(given) == 1 else None
    if isinstance(node.func, ast.Name) and node.func.id in SAME_TEXT and first is not None:
        return Scalar(as_number(first.pieces)) if node.func.id == "int" and isinstance(first, Scalar) else first
    if isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple") and isinstance(first, Array):
        return first
    if isinstance(node.func, ast.Name) and node.func.id == "len" and isinstance(first, Array):
        return (
            scope.plain(str(len(first.items)), node)
            if all(isinstance(each, Word) for each in first.items)
            else scope.hole(node)
        )
    name = scope.names.dotted(node.func)
    if name in FROM_OUTSIDE and len(given) == 2:
        return from_outside(scope, node.args[1], depth)
    of = scope.value(node.func.value, depth) if isinstance(node.func, ast.Attribute) and not name else None
    method = node.func.attr if isinstance(node.func, ast.Attribute) else name
    blank = name == "shlex.join" or (method == "join" and isinstance(of, Scalar) and known_text(of.pieces) == " ")
    if blank and len(given) == 1 and isinstance(given[0], Array):
        return bounded(Scalar(join(given[0].items)), scope.span(node))
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
        pieces = changed(method, of.pieces, texts, scope.span(node)) if len(texts) == len(given) else None
        return Scalar(pieces) if pieces is not None else scope.hole(node)
    text = given[0] if name == "shlex.split" and len(given) == 1 else of if method == "split" and not given else None
    return Array(split_value(text)) if isinstance(text, Scalar) else scope.hole(node)


def _got(scope: Scope, call: ast.Call, of: ast.expr, depth: int) -> Value | None:
    """Return what `get` takes out of a table; None where that is no text or list that is known."""
    table = scope.table(of, depth)
    key = scope.text(call.args[0]) if call.args else None
    if table is None or key is None:
        return None
    found = table.entries.get(key)
    if found is None:
        found = scope.value(call.args[1], depth) if len(call.args) > 1 else scope.plain("None", call)
    return None if isinstance(found, Table) else found


def arguments_of(scope: Scope, call: ast.Call, function: Function, first: int = 0, depth: int = 0) -> dict[str, Thing] | None:
    """Return what a call gives the parameters of a function, from number `first` on; None where words or keys are not known."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    places = [*function.args.posonlyargs, *function.args.args][first:]
    given: dict[str, Thing] = {place.arg: scope.thing(value, depth) for place, value in zip(places, call.args, strict=False)}
    named: dict[str, Thing] = {}
    for keyword in call.keywords:
        table = scope.table(keyword.value, depth) if keyword.arg is None else None
        if keyword.arg is not None:
            named[keyword.arg] = scope.thing(keyword.value, depth)
        elif table is None:
            return None
        else:
            named |= table.entries
    parameters = {place.arg for place in (*places, *function.args.kwonlyargs)}
    given |= {name: thing for name, thing in named.items() if name in parameters}
    if function.args.kwarg is not None:
        given[function.args.kwarg.arg] = Table({name: thing for name, thing in named.items() if name not in parameters})
    return given
