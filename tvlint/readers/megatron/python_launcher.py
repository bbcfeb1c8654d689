"""Launchers in Python: the lists and texts of Megatron's options that a function builds. Parsed, never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tvlint.findings import Finding
from tvlint.ir.configuration import Configuration
from tvlint.ir.location import Location
from tvlint.readers.document import Document, ReadError
from tvlint.readers.languages import is_prose, is_test
from tvlint.readers.megatron.invalid_options import option_mistakes
from tvlint.readers.megatron.launch_script import of_lists
from tvlint.readers.not_followed import PASSED
from tvlint.readers.shell.evaluate import Evaluation
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
    source_of,
)
from tvlint.readers.shell.words import merge, split_value

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
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(slots=True)
class Scope:
    """The variables of a module or function, by what the statements before leave in them."""

    source: Source
    outer: Mapping[str, Value] = field(default_factory=dict)
    variables: dict[str, Value] = field(default_factory=dict)


def recognise(path: str, data: bytes) -> bool:
    """Return whether `data` is Python that passes an option of Megatron with a value, and no test."""
    if is_prose(path) or IMPORTS.search(data) is None or is_test(path, data):
        return False
    return PASSED.search(data) is not None or LISTED.search(data) is not None


def read(path: str, data: bytes) -> Document | None:
    """Return the options that each function lists; None where none lists options that only Megatron has."""
    if len(data) > LARGEST:
        raise ReadError(f"the program is {len(data)} bytes long, more than the {LARGEST} that are read", Location(path))
    source = source_of(path, data)
    try:
        module = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = [node for node, _ in zip(ast.walk(module), range(MOST_NODES), strict=False)]
    top = Scope(source)
    _follow(top, module.body, is_sure=True)
    scopes = [top]
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
            own = Scope(source, {name: value for name, value in top.variables.items() if name not in stored})
            own.variables.update({each.arg: _hole(own, each) for each in ast.walk(node.args) if isinstance(each, ast.arg)})
            _follow(own, node.body, is_sure=True)
            scopes.append(own)
    configurations: list[Configuration] = []
    for scope in scopes:
        listed = of_lists(Evaluation(source, (), scope.variables, (), False, 0), "")
        named = ((each, each.location.line) for each in listed if each.location is not None)
        configurations += [replace(each, format=FORMAT, section=f"line {line}") for each, line in named]
    findings: dict[Finding, None] = dict.fromkeys(each for own in configurations for each in option_mistakes(own))
    return Document(path, FORMAT, configurations=tuple(configurations), findings=tuple(findings)) if configurations else None


def _follow(scope: Scope, body: Iterable[ast.stmt], is_sure: bool, depth: int = 0) -> None:
    """Follow the assignments of statements; one within another may not run, so that the value before stays possible."""
    for statement in body:
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) or depth > DEEPEST:
            continue
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                _assign(scope, target, _value(scope, statement.value), is_sure)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            _assign(scope, statement.target, _value(scope, statement.value), is_sure)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            added = _value(scope, statement.value) if isinstance(statement.op, ast.Add) else _hole(scope, statement)
            _assign(scope, statement.target, _sum(scope, _name(scope, statement.target), added, statement), is_sure)
        else:
            if isinstance(statement, LOOPS):
                stored = (
                    each for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                )
                scope.variables.update({each.id: _hole(scope, each) for each in stored if each.id in scope.variables})
            for each in ast.iter_child_nodes(statement):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    scope.variables[each.id] = _hole(scope, each)
                elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
                    _change(scope, each.func)
                elif isinstance(each, (ast.ExceptHandler, ast.match_case)):
                    _follow(scope, each.body, False, depth + 1)
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, None)
                if isinstance(inner, list):
                    _follow(scope, inner, is_sure and isinstance(statement, (ast.With, ast.AsyncWith)), depth + 1)


def _change(scope: Scope, method: ast.Attribute) -> None:
    """Note that a method of a list (`append`, `extend`) may add to it."""
    if isinstance(method.value, ast.Name) and isinstance(scope.variables.get(method.value.id), Array):
        old = scope.variables[method.value.id]
        gap = Gap(f"changed by `{method.attr}`", _span(scope, method))
        scope.variables[method.value.id] = Array((*split_value(old), gap))


def _assign(scope: Scope, target: ast.expr, value: Value, is_sure: bool) -> None:
    if not isinstance(target, ast.Name):
        for each in ast.walk(target):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                scope.variables[each.id] = _hole(scope, each)
        return
    if not is_sure:
        old = scope.variables.get(target.id, value)
        value = merge([old, value], f"set in an undecided branch at line {target.lineno}", _span(scope, target))
    scope.variables[target.id] = bounded(value, _span(scope, target))


def _value(scope: Scope, node: ast.expr, depth: int = 0) -> Value:
    """Return the text or the list that an expression gives, with holes for what is not known."""
    if depth > DEEPEST:
        return _hole(scope, node)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Scalar((Text(str(node.value), _span(scope, node), exact=False),))
    if isinstance(node, (ast.JoinedStr, ast.Constant)):
        return Scalar(tuple(_pieces(scope, node, depth)))
    if isinstance(node, ast.Name):
        return _name(scope, node)
    if isinstance(node, (ast.List, ast.Tuple)):
        return Array(tuple(item for each in node.elts for item in _items(scope, each, depth)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sum(scope, _value(scope, node.left, depth + 1), _value(scope, node.right, depth + 1), node)
    if isinstance(node, ast.IfExp):
        both = [_value(scope, each, depth + 1) for each in (node.body, node.orelse)]
        return merge(both, f"depends on a condition at line {node.lineno}", _span(scope, node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
        return _value(scope, node.args[0], depth + 1)
    return _hole(scope, node)


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
    return scope.variables.get(node.id) or scope.outer.get(node.id) or _hole(scope, node)


def _sum(scope: Scope, one: Value, other: Value, node: ast.expr | ast.stmt) -> Value:
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
    start = source.line_starts[min(line, source.lines) - 1]
    end = source.line_starts[line] if line < source.lines else len(source.text)
    return start + len(source.text[start:end].encode()[:column].decode(errors="ignore"))
