"""The statements of one function of a Python recipe, followed in order; what happens on some paths only is unknown."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from tvlint.ir.configuration import Setting, SettingValue, Unknown
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.readers.recipe.objects import HARMLESS, Attributes, Objects, Path, builds, chain
from tvlint.readers.recipe.values import value
from tvlint.readers.sources.python_syntax import Source

NODES = frozenset({"num_nodes", "devices"})
"""Attributes whose value as a parameter's default says nothing: every user of a recipe gives them."""
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SIMPLE = (ast.Constant, ast.Name, ast.Attribute)
"""What is assigned without anything being called."""
BRANCHED = "set on some paths only"
SOMEWHERE = "a function within may change it"


def bindings_of(body: Iterable[ast.stmt]) -> Counter[str]:
    """Return how often the statements, and those within them, bind each name; twice or more for what is no plain assignment."""
    bound: Counter[str] = Counter()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    bound[node.id] += 1
            elif isinstance(node, ast.Global | ast.Nonlocal):
                bound.update(dict.fromkeys(node.names, 2))
            elif isinstance(node, ast.alias):
                bound[(node.asname or node.name).partition(".")[0]] += 2
            elif isinstance(node, ast.arg):
                bound[node.arg] += 2
            elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                bound[node.name] += 2
    return bound


def constants_of(body: Iterable[ast.stmt], bound: Mapping[str, int]) -> dict[str, SettingValue]:
    """Return names that the statements bind exactly once, at their top level, to a value that is certain."""
    found: dict[str, SettingValue] = {}
    for statement in body:
        for target, assigned in _assignments(statement):
            if isinstance(target, ast.Name) and bound.get(target.id) == 1:
                known = value(assigned, found)
                if not isinstance(known, Unknown):
                    found[target.id] = known
    return found


class Visible(Mapping[str, SettingValue]):
    """The constants visible in a function: its own, and those of the module that it does not shadow."""

    def __init__(self, inner: Mapping[str, SettingValue], outer: Mapping[str, SettingValue], hidden: Collection[str]) -> None:
        self._own, self._outer, self._hidden = inner, outer, hidden

    def __getitem__(self, name: str) -> SettingValue:
        return self._own[name] if name in self._hidden else self._outer[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._outer if name not in self._hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef, bound: Mapping[str, int]) -> dict[str, SettingValue]:
    """Parameters of a public function that takes no others, whose default is a plain value other than none."""
    given = function.args
    if function.name.startswith("_") or given.vararg is not None or given.kwarg is not None:
        return {}
    positional = [*given.posonlyargs, *given.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = list(
        zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)
    )
    pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    found: dict[str, SettingValue] = {}
    for parameter, default in pairs:
        known = value(default, {}) if default is not None else None
        if known is not None and not isinstance(known, Unknown) and not bound.get(parameter.arg):
            found[parameter.arg] = known
    return found


def _assignments(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(statement, ast.Assign):
        yield from ((target, statement.value) for target in statement.targets)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield statement.target, statement.value


def follow(
    source: Source, body: list[ast.stmt], constants: Mapping[str, SettingValue], parameters: Mapping[str, SettingValue]
) -> Mapping[str, Attributes]:
    """Return the objects that exist after the statements have run, each with the attributes it was surely given."""
    both = Visible(parameters, constants, parameters)

    def setting(name: str, place: ast.expr | ast.keyword, node: ast.expr) -> Setting:
        found = value(node, constants if name in NODES else both)
        return Setting(name, found, name, source.at(node), _name_place(source, place, name))

    scope = _Scope(Objects(setting))
    for statement in body:
        scope.run(statement, certain=True)
    for name in scope.shared:
        if (found := scope.objects.find((name,))) is not None:
            scope.objects.doubt(*found, SOMEWHERE)
    return scope.objects.roots


def _name_place(source: Source, place: ast.expr | ast.keyword, name: str) -> Location:
    at = source.at(place)
    if at.column is None or at.end_column is None:
        return at
    if isinstance(place, ast.keyword):
        return replace(at, end_line=at.line, end_column=at.column + len(place.arg or name))
    if isinstance(place, ast.Attribute):
        return replace(at, line=at.end_line, column=at.end_column - len(place.attr))
    return at


class _Scope:
    """One function's statements."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.shared: set[str] = set()
        """Names that a function within the function uses too."""

    def run(self, statement: ast.stmt, certain: bool) -> None:
        """Follow one statement; `certain` says that it always runs."""
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            self.shared |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            return
        if isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                self._calls(item.context_expr)
            self._each(statement.body, certain)
            return
        if isinstance(statement, BRANCHES):
            self._branches(statement)
            return
        assigned = list(_assignments(statement))
        if not assigned or not all(isinstance(node, SIMPLE) and chain(target) for target, node in assigned):
            self._calls(statement)
        for target, node in assigned:
            self._assign(target, node, certain)
        if isinstance(statement, ast.AugAssign | ast.Delete):
            for target in statement.targets if isinstance(statement, ast.Delete) else [statement.target]:
                self._lose(target)
        if not assigned:
            self._unnamed(statement)

    def _each(self, statements: Iterable[ast.stmt], certain: bool) -> None:
        for statement in statements:
            self.run(statement, certain)

    def _branches(self, statement: ast.stmt) -> None:
        for field in ("test", "iter", "subject"):
            node = getattr(statement, field, None)
            if isinstance(node, ast.expr):
                self._calls(node)
        if isinstance(statement, ast.For | ast.AsyncFor):
            self._lose(statement.target)
        for field in ("body", "handlers", "cases", "orelse", "finalbody"):
            for part in getattr(statement, field, ()):
                self._each([part] if isinstance(part, ast.stmt) else part.body, certain=False)

    def _calls(self, statement: ast.AST) -> None:
        """Return what the calls in a statement may change: the objects they are given, and the one whose method they are."""
        for node in ast.walk(statement):
            if isinstance(node, ast.NamedExpr):
                self._lose(node.target)
            if isinstance(node, ast.Lambda):
                self.shared |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            if not isinstance(node, ast.Call):
                continue
            path = chain(node.func)
            if path is not None and len(path) > 1 and (found := self.objects.find(path[:-1])) is not None:
                self.objects.doubt(*found, f"`{path[-1][:80]}` may change it")
            if builds(node) or (path is not None and path[-1] in HARMLESS):
                continue
            name = path[-1] if path is not None else "a call"
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                self._doubt_within(argument, f"`{name[:80]}` may change it")

    def _doubt_within(self, argument: ast.expr, reason: str) -> None:
        if isinstance(argument, ast.Starred):
            argument = argument.value
        path = chain(argument)
        if path is not None:
            if (found := self.objects.find(path)) is not None:
                self.objects.doubt(*found, reason)
        elif isinstance(argument, ast.List | ast.Tuple | ast.Set | ast.Dict):
            for part in argument.values if isinstance(argument, ast.Dict) else argument.elts:
                if (names := chain(part)) is not None and (found := self.objects.find(names)) is not None:
                    self.objects.doubt(*found, reason)

    def _assign(self, target: ast.expr, node: ast.expr, certain: bool) -> None:
        if isinstance(target, ast.Name):
            self._name(target.id, node, certain)
            return
        path = chain(target) if isinstance(target, ast.Attribute) else None
        if path is None:
            self._lose(target)
            return
        if (found := self.objects.find(path)) is None:
            if self.objects.find(path[:1]) is not None:
                return
            self.objects.begin(path[0], {})
            found = path[0], path[1:]
        root, within = found
        if builds(node):
            assert isinstance(node, ast.Call)
            attributes, parts = self.objects.build(node)
            self.objects.clear(root, within)
            for below, setting in attributes.items():
                self.objects.assign(root, (*within, *below), _sure(setting, certain))
            for part, below in parts:
                self._embed(part, root, (*within, *below), certain)
            return
        if isinstance(node, ast.Name) and node.id in self.objects.roots:
            self.objects.clear(root, within)
            self._embed(node.id, root, within, certain)
            return
        self.objects.assign(root, within, _sure(self.objects.setting(path[-1], target, node), certain))

    def _name(self, name: str, node: ast.expr, certain: bool) -> None:
        path = chain(node)
        if not certain and (other := self.objects.find((name,))) is not None:
            self.objects.doubt(*other, "its name stands for another object on some paths")
        if path is not None:
            found = self.objects.find(path)
            alias = found is not None and certain and found[0] != name
            if found is not None and not alias:
                self.objects.doubt(found[0], (), "it has another name on some paths")
            self.objects.forget(name)
            if found is not None and alias:
                self.objects.aliases[name] = found
            return
        if not builds(node):
            self.objects.begin(name, {})
            return
        assert isinstance(node, ast.Call)
        attributes, parts = self.objects.build(node)
        self.objects.begin(name, {path: _sure(setting, certain) for path, setting in attributes.items()})
        for part, below in parts:
            if part != name:
                self._embed(part, name, below, certain)

    def _embed(self, part: str, root: str, path: Path, certain: bool) -> None:
        if certain and part != root and part in self.objects.roots:
            self.objects.embed(part, root, path)
        elif (found := self.objects.find((part,))) is not None:
            self.objects.doubt(*found, "it is part of another object on some paths")

    def _unnamed(self, statement: ast.stmt) -> None:
        """Objects that a statement builds without giving them a name."""
        pending: list[ast.AST] = [statement]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Call) and builds(node):
                attributes, _ = self.objects.build(node)
                if attributes:
                    self.objects.unnamed += 1
                    self.objects.roots[f"line {node.lineno} ({self.objects.unnamed})"] = attributes
                pending += [argument for argument in node.args if not isinstance(argument, ast.Name)]
                continue
            pending += ast.iter_child_nodes(node)

    def _lose(self, target: ast.expr) -> None:
        """The target gets a value that is not followed."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                if (other := self.objects.find((node.id,))) is not None:
                    self.objects.doubt(*other, "its name stands for another object on some paths")
                self.objects.forget(node.id)
        path = chain(target)
        if path is not None and len(path) > 1 and (found := self.objects.find(path)) is not None:
            self.objects.doubt(*found, "depends on a computation")
        elif isinstance(target, ast.Subscript):
            inner = chain(target.value)
            if inner is not None and (found := self.objects.find(inner)) is not None:
                self.objects.doubt(*found, "an item of it is set")
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._lose(part)


def _sure(setting: Setting, certain: bool) -> Setting:
    return setting if certain else replace(setting, value=Unknown(BRANCHED))
