"""What the names of a Python program mean wherever they stand: imports, the fields of classes, the options of parsers."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvlint.readers.megatron.python.parsed import parsed_names
from tvlint.readers.sources.python_syntax import text_of

STEPS = 300_000
CHANGES_NOTHING = frozenset({"copy", "count", "get", "index", "items", "keys", "values"})
"""Methods that leave a list or a table as it is."""
MOST_CALLS = 100
ANY = "*"
"""Stands for every attribute, where the program computes which one it sets."""


@dataclass(slots=True)
class Names:
    """The names of one program. A field and an option have their default, which whoever starts the program may replace."""

    imported: dict[str, str] = field(default_factory=dict)
    fields: dict[str, Mapping[str, ast.expr]] = field(default_factory=dict)
    """By class; those of a class that the program writes twice are not known."""
    places: dict[str, list[str]] = field(default_factory=dict)
    """The fields of each class in their order, those without a default too."""
    options: dict[str, ast.expr | None] = field(default_factory=dict)
    parsed: set[str] = field(default_factory=set)
    """The variables and parameters that hold what a parser read."""
    classes: dict[str, str] = field(default_factory=dict)
    """The class that every function says of a parameter of this name; empty where they say different ones."""
    calls: dict[str, list[ast.Call]] = field(default_factory=dict)
    """The first calls of each function by its bare name; none of one that the program writes twice."""
    functions: dict[str, ast.FunctionDef | None] = field(default_factory=dict)
    """The functions of the module that end with their only result, by name; None of a name that may be another function."""
    bodies: dict[str, ast.FunctionDef] = field(default_factory=dict)
    """The functions of the module that each name stands for and nothing else, undecorated."""
    owners: dict[int, ast.ClassDef] = field(default_factory=dict)
    """The class of each method, by the identity of its node."""
    methods: dict[tuple[str, str], ast.FunctionDef] = field(default_factory=dict)
    """The methods that end with their only result, by class and name."""
    stored: Counter[str] = field(default_factory=Counter)
    """How often the program assigns to an attribute of a name, whatever the object is."""
    bases: set[str] = field(default_factory=set)
    """The classes of which the program derives others."""
    read: dict[str, frozenset[str]] = field(default_factory=dict)
    """By function, the parameters of which it does nothing but read the entries."""
    steps: int = STEPS
    """What may still be done to follow the program: words that are added to others."""

    def only_reads(self, call: ast.Call, place: int) -> bool:
        """Return whether a call is one of a function of the program that only reads the list or table at a place."""
        function = self.bodies.get(call.func.id) if isinstance(call.func, ast.Name) else None
        places = [*function.args.posonlyargs, *function.args.args] if function is not None else []
        if (
            function is None
            or place >= min(len(places), len(call.args))
            or any(isinstance(each, ast.Starred) for each in call.args)
        ):
            return False
        if function.name not in self.read:
            self.read[function.name] = _only_read(function)
        return places[place].arg in self.read[function.name]

    def dotted(self, node: ast.expr) -> str:
        """Return the full name of a function, as `subprocess.run` of an imported `run`; empty of what has none."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, "")
        if isinstance(node, ast.Attribute):
            outer = self.dotted(node.value)
            return f"{outer}.{node.attr}" if outer else ""
        return ""

    def default(self, node: ast.Attribute) -> ast.expr | None:
        """Return the default of `args.NAME`, where `args` is what a parser read or of a class with such a field."""
        if not isinstance(node.value, ast.Name) or node.attr in self.stored or ANY in self.stored:
            return None
        fields = self.fields.get(self.classes.get(node.value.id, ""), {})
        return fields.get(node.attr) or (self.options.get(node.attr) if node.value.id in self.parsed else None)


def read_names(nodes: Sequence[ast.AST]) -> Names:
    """Return what the nodes of a program say of its names."""
    found, functions = Names(), Counter[str]()
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls = found.calls.setdefault(node.func.id, [])
            calls += [node] if len(calls) < MOST_CALLS else []
        match node:
            case ast.Import():
                found.imported.update({name.asname or name.name: name.name for name in node.names})
            case ast.ImportFrom(level=0):
                found.imported.update({name.asname or name.name: f"{node.module}.{name.name}" for name in node.names})
            case ast.ClassDef():
                found.fields[node.name] = {} if node.name in found.fields else _fields(node)
                found.places[node.name] = [
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                ]
                found.bases.update(base.id for base in node.bases if isinstance(base, ast.Name))
                _methods(found, node)
            case ast.arg(annotation=ast.Name(id=name)):
                found.classes[node.arg] = name if found.classes.get(node.arg, name) == name else ""
            case ast.arg():
                found.classes[node.arg] = ""
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                found.stored[name] += 1
            case ast.Call(func=ast.Attribute(attr="add_argument" | "option")):
                _option(found.options, node)
            case ast.Call(func=ast.Attribute(attr="set_defaults")):
                found.stored.update(keyword.arg or ANY for keyword in node.keywords)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, named, _]):
                found.stored[text_of(named) or ANY] += 1
            case ast.Attribute(value=ast.Call(func=ast.Name(id="vars")) | ast.Attribute(attr="__dict__"), attr=name):
                found.stored.update([] if name in CHANGES_NOTHING else [ANY])
            case ast.Subscript(value=ast.Call(func=ast.Name(id="vars")) | ast.Attribute(attr="__dict__"), ctx=ast.Store()):
                found.stored[ANY] += 1
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions[node.name] += 1
                found.functions[node.name] = node if isinstance(node, ast.FunctionDef) and _gives_one_result(node) else None
                if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                    found.bodies[node.name] = node
    for name in [name for name, count in functions.items() if count > 1]:
        found.calls.pop(name, None)
        found.bodies.pop(name, None)
        found.functions[name] = None
    for name in found.functions.keys() & found.imported.keys():
        found.functions[name] = None
        found.bodies.pop(name, None)
    found.parsed = parsed_names(nodes, found.bodies, found.calls)
    return found


def _methods(names: Names, node: ast.ClassDef) -> None:
    for method in node.body:
        if isinstance(method, ast.FunctionDef):
            names.owners[id(method)] = node
            if _gives_one_result(method):
                names.methods[node.name, method.name] = method


def _gives_one_result(node: ast.FunctionDef) -> bool:
    ends = [each_node for each_node in ast.walk(node) if isinstance(each_node, (ast.Return, ast.Yield, ast.YieldFrom))]
    return len(ends) == 1 and ends[0] is node.body[-1] and not node.decorator_list


def _only_read(function: ast.FunctionDef) -> frozenset[str]:
    """Return the parameters that a function names only where it reads entries or runs through them."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    reads = set[int]()
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name() as of, attr=name, ctx=ast.Load()) if name in CHANGES_NOTHING - {"copy"}:
                reads.add(id(of))
            case ast.Subscript(value=ast.Name() as of, ctx=ast.Load()):
                reads.add(id(of))
            case ast.For(iter=ast.Name() as of) | ast.comprehension(iter=ast.Name() as of):
                reads.add(id(of))
    others = {node.id for node in names if id(node) not in reads}
    return frozenset(place.arg for place in (*function.args.posonlyargs, *function.args.args) if place.arg not in others)


def _fields(node: ast.ClassDef) -> dict[str, ast.expr]:
    return {
        each_node.target.id: each_node.value
        for each_node in node.body
        if isinstance(each_node, ast.AnnAssign) and isinstance(each_node.target, ast.Name) and each_node.value is not None
    }


def _option(options: dict[str, ast.expr | None], call: ast.Call) -> None:
    """Put in the default of an option; one of two options of a name that have different ones is not known."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    named = given.get("dest") or next((argument for argument in call.args if text_of(argument).startswith("--")), None)
    if named is None or not text_of(named):
        return
    name, default = text_of(named).lstrip("-").replace("-", "_"), given.get("default")
    if "required" in given:
        default = None
    known = options.setdefault(name, default)
    if known is not default and (known is None or default is None or ast.dump(known) != ast.dump(default)):
        options[name] = None
