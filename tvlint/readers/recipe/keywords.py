"""Keywords that a recipe passes to functions of its own file, or to data classes of its tree, which do not take them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping

from tvlint.checkout.opening import is_file, kept
from tvlint.checkout.top import folder_around
from tvlint.findings import Edit, Finding, Fix, Severity
from tvlint.ir.location import Location
from tvlint.ir.values import replace
from tvlint.near_names import by_slips, is_a_slip, near
from tvlint.readers.document import ReadError
from tvlint.readers.recipe.scopes import FUNCTIONS, bindings_of
from tvlint.readers.sources.python_syntax import Source, dotted, parse
from tvlint.readers.sources.sibling_files import content_within

LARGEST = 1 << 20
LONGEST = 80
DEEPEST = 16
BOUND_ONCE = 2
"""How often a definition or an import counts among what binds its name."""
PLAIN_BASES = frozenset({"ABC", "object"})
DATA_CLASS = frozenset({"dataclass", "dataclasses.dataclass"})


def misspelled_keywords(source: Source) -> Iterator[Finding]:
    """Yield a finding for each keyword that what is called does not take, where one that it takes is a slip away."""
    known = dict(_taken(source))
    slips: dict[str, Mapping[tuple[int, str], list[str]]] = {}
    for call in ast.walk(source.tree) if known else ():
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in known:
            continue
        name, given = call.func.id, {each.arg for each in call.keywords}
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in known[name]:
                continue
            if name not in slips:
                slips[name] = by_slips(known[name])
            meant = [each for each in near(keyword.arg, slips[name]) if each not in given and _is_slip(keyword.arg, each)]
            if len(meant) == 1:
                yield _finding(source, name, keyword, meant[0])


def _taken(source: Source) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the functions of the file and the data classes that it imports from its tree, with all keywords that they take."""
    bound = bindings_of(source.tree.body)
    checkout = folder_around(source.path)
    for each in source.tree.body:
        if isinstance(each, FUNCTIONS) and bound[each.name] == BOUND_ONCE and each.args.kwarg is None:
            if each.decorator_list:
                continue  # what is called may take more
            yield each.name, frozenset(one.arg for one in (*each.args.args, *each.args.kwonlyargs))
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            module = _file_of(each.module, os.path.dirname(os.path.abspath(source.path)))
            for alias in each.names if module else ():
                name = alias.asname or alias.name
                fields = _fields(module, alias.name, checkout) if bound[name] == BOUND_ONCE else None
                if fields is not None:
                    yield name, fields


def _file_of(module: str, folder: str) -> str:
    """Return the file of a module in the folder or one above it, up to the top of the repository; empty where there is none."""
    name = os.path.join(*module.split(".")) + ".py"
    for _ in range(DEEPEST):
        if is_file(path := os.path.join(folder, name)):
            return path
        above = os.path.dirname(folder)
        if above == folder or folder == folder_around(folder):
            return ""
        folder = above
    return ""


@kept
def _fields(path: str, name: str, checkout: str) -> frozenset[str] | None:
    """Return the fields of a data class of the file, with those that it inherits; None where not all are known."""
    found = content_within(checkout, path, path, LARGEST)
    try:
        tree = parse(path, found[1]).tree if found is not None else None
    except ReadError:
        return None
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)} if tree is not None else {}
    return _fields_of(classes, name, DEEPEST)


def _fields_of(classes: Mapping[str, ast.ClassDef], name: str, depth: int) -> frozenset[str] | None:
    this = classes.get(name)
    if this is None or not depth or this.keywords or not any(_is_data_class(each) for each in this.decorator_list):
        return None
    if any(isinstance(each, FUNCTIONS) and each.name in ("__init__", "__new__") for each in this.body):
        return None
    found = {each.target.id for each in this.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
    for base in this.bases:
        inherited = frozenset[str]() if dotted(base) in PLAIN_BASES else _fields_of(classes, dotted(base), depth - 1)
        if inherited is None:
            return None
        found |= inherited
    return frozenset(found)


def _is_data_class(decorator: ast.expr) -> bool:
    return dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) in DATA_CLASS


def _is_slip(name: str, meant: str) -> bool:
    return is_a_slip(name, meant) or name.replace("_", "") == meant.replace("_", "")


def _finding(source: Source, function: str, keyword: ast.keyword, meant: str) -> Finding:
    place = _name_of(source, keyword)
    message = f"`{function[:LONGEST]}` takes no `{str(keyword.arg)[:LONGEST]}`"
    fix = Fix(f"write `{meant}`", (Edit(place, meant),), is_safe=True)
    return Finding("misspelled-option", Severity.ERROR, message, place, f"did you mean `{meant}`?", fixes=(fix,))


def _name_of(source: Source, keyword: ast.keyword) -> Location:
    place = source.at(keyword)
    return replace(place, end_line=place.line, end_column=(place.column or 1) + len(str(keyword.arg)))
