"""The fields of torchtitan's job configuration, as the dataclasses of the tree around a file declare them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping

from tvlint.checkout.opening import is_file, kept, real_path
from tvlint.checkout.top import folder_around, is_within
from tvlint.ir.values import dataclass
from tvlint.readers.document import ReadError
from tvlint.readers.sources.python_syntax import parse, text_of
from tvlint.readers.sources.sibling_files import content_within

LARGEST = 1 << 20
FILES = (os.path.join("torchtitan", "config", "job_config.py"), os.path.join("torchtitan", "config_manager.py"))
WHOLE = "JobConfig"
"""The class whose fields are the tables."""
DEEPEST = 4
MOST_TABLES = 200
KINDS = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True, slots=True)
class Field:
    """A field with the type of its values, by name, and the words that it takes; both empty where that is not written out."""

    type: str = ""
    choices: tuple[str, ...] = ()


@kept
def declared_tables(path: str) -> Mapping[str, Mapping[str, Field]]:
    """Return the tables that a job configuration at `path` may have, each with its fields; none where no tree is around it."""
    checkout = folder_around(path)
    folder = real_path(os.path.dirname(path) or os.curdir)
    while is_within(folder, checkout):
        for name in FILES:
            file = os.path.join(folder, name)
            if is_file(file):
                return _tables(checkout, file)
        if folder == checkout:
            break
        folder = os.path.dirname(folder)
    return {}


def _tables(checkout: str, file: str) -> Mapping[str, Mapping[str, Field]]:
    content = content_within(checkout, file, file, LARGEST)
    try:
        nodes = parse(file, content[1]).nodes if content is not None else ()
    except ReadError:
        return {}
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    found: dict[str, Mapping[str, Field]] = {}
    waiting = [("", WHOLE)] if WHOLE in classes else []
    for table, name in waiting:
        fields = dict(_annotated(classes, name))
        inner = {field: note.id for field, note in fields.items() if isinstance(note, ast.Name) and note.id in classes}
        found[table] = {field: Field() if field in inner else _field(note) for field, note in fields.items()}
        if len(waiting) < MOST_TABLES:
            waiting += [(f"{table}.{field}" if table else field, of) for field, of in inner.items()]
    return found if len(found) > 1 else _of_options(nodes)


def _of_options(nodes: Iterable[ast.AST]) -> Mapping[str, Mapping[str, Field]]:
    """Return the tables that a parser of 2024 declares, each field by an option `--table.field`.

    It looks at the words of the command line alone, so that a file may give others than its choices.
    """
    found: dict[str, dict[str, Field]] = {}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            table, _, name = (text_of(node.args[0]) if node.args else "").removeprefix("--").rpartition(".")
            stated = {keyword.arg: keyword.value for keyword in node.keywords}
            kind = stated.get("type")
            kinds = KINDS if "nargs" not in stated and "action" not in stated else ()
            known = kind.id if isinstance(kind, ast.Name) and kind.id in kinds else ""
            found.setdefault(table, {})[name] = Field(known)
    return found


def _annotated(classes: Mapping[str, ast.ClassDef], name: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield the fields of a class behind those that it inherits."""
    for each in _lineage(classes, name, DEEPEST, set()):
        for statement in each.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                yield statement.target.id, statement.annotation


def _lineage(classes: Mapping[str, ast.ClassDef], name: str, depth: int, seen: set[str]) -> Iterator[ast.ClassDef]:
    """Yield a class behind those that it is made of, each once; what the first of them declares comes last."""
    seen.add(name)
    for base in reversed(classes[name].bases if depth else ()):
        if isinstance(base, ast.Name) and base.id in classes and base.id not in seen:
            yield from _lineage(classes, base.id, depth - 1, seen)
    yield classes[name]


def _field(annotation: ast.expr) -> Field:
    if isinstance(annotation, ast.Name) and annotation.id in KINDS:
        return Field(annotation.id)
    match annotation:
        case ast.Subscript(ast.Name("Literal"), ast.Tuple(words)) if all(isinstance(word, ast.Constant) for word in words):
            return Field("", tuple(str(word.value) for word in words if isinstance(word, ast.Constant)))
        case _:
            return Field()
