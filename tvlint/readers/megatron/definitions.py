"""Where a name of a Python file is defined: a function or class of the checkout, or what it imports from elsewhere."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping

from tvlint.ir.values import dataclass
from tvlint.readers.document import ReadError
from tvlint.readers.megatron.parser_source import LARGEST, files_of_module
from tvlint.readers.sources.python_syntax import Source, parse
from tvlint.readers.sources.sibling_files import content_within

MOST_IMPORTS = 6
"""A name is followed through so many files that only hand it on."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or a class, and the file that defines it."""

    path: str
    node: ast.FunctionDef | ast.ClassDef


def source_at(path: str, checkout: str) -> Source | None:
    """Return the syntax of a file of the checkout; None where there is none, or it is no Python."""
    content = content_within(checkout, path, path, LARGEST)
    try:
        return parse(path, content[1]) if content is not None else None
    except ReadError:
        return None


def definition(name: str, path: str, checkout: str, depth: int = 0) -> Definition | str:
    """Return what a dotted name of the file at `path` stands for: its definition, or its full name where that is elsewhere.

    Empty where several things may be meant.
    """
    source = source_at(path, checkout) if name and depth < MOST_IMPORTS else None
    if source is None:
        return ""
    head, _, rest = name.partition(".")
    here = [node for node in source.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == head]
    origins = imported(source).get(head, frozenset())
    if here and not rest and not origins:
        return Definition(path, here[0]) if len(here) == 1 else ""
    if not origins and not rest:
        found = (definition(head, file, checkout, depth + 1) for file in _handed_on(source, path))
        return next((each for each in found if isinstance(each, Definition)), "")
    if here or len(origins) != 1:
        return ""
    full = ".".join(filter(None, (*origins, rest)))
    file = _file_of(full.rpartition(".")[0], path)
    return definition(full.rpartition(".")[2], file, checkout, depth + 1) if file else full.lstrip(".")


def imported(source: Source) -> Mapping[str, frozenset[str]]:
    """Return the full names of what a file imports, by the names that it has there."""
    known = source.made.get("imported") if source.made is not None else None
    if known is not None:
        return known  # type: ignore[no-any-return]
    found: dict[str, set[str]] = {}
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            joined = module if module.endswith(".") else f"{module}."
            for each in node.names:
                found.setdefault(each.asname or each.name, set()).add(joined + each.name)
        elif isinstance(node, ast.Import):
            for each in node.names:
                full = each.name if each.asname else each.name.partition(".")[0]
                found.setdefault(each.asname or full, set()).add(full)
    listed = {name: frozenset(full) for name, full in found.items()}
    if source.made is not None:
        source.made["imported"] = listed
    return listed


def _handed_on(source: Source, path: str) -> Iterator[str]:
    """Yield the files of the modules of which everything is imported."""
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names):
            file = _file_of("." * node.level + (node.module or ""), path)
            if file:
                yield file


def _file_of(module: str, importer: str) -> str:
    """Return the file of a module around the importer; empty where it is not there."""
    path = os.sep + module.lstrip(".").replace(".", os.sep)
    found = files_of_module(module, importer) if len(path) > 1 else ()
    return found[-1] if found and found[-1].endswith((f"{path}.py", os.path.join(path, "__init__.py"))) else ""
