"""Options that the parser of Hugging Face's transformers makes of the fields of data classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tvlint.frameworks.megatron import Option
from tvlint.frameworks.packaged import options
from tvlint.frameworks.transformers import CHOICES, CLASSES, FIELDS, field_option
from tvlint.ir.patterns import Pattern
from tvlint.ir.values import replace
from tvlint.readers.megatron.declared_options import number_of
from tvlint.readers.megatron.definitions import Definition, definition
from tvlint.readers.sources.python_syntax import dotted, text_of

DEEPEST = 12
"""So many classes are derived from one another."""
TYPES = {"int": "int", "float": "float", "str": "str", "bool": "truth"}
OPTIONAL = frozenset({"Optional", "Union", "typing.Optional", "typing.Union"})
LISTS = frozenset({"List", "list", "typing.List"})
LITERAL = frozenset({"Literal", "typing.Literal"})
NO_FIELDS = frozenset({"object", "abc.ABC", "ABC", "typing.Generic"})
PLAIN = frozenset({"help", "choices", "metavar"})
"""What metadata of a field say that changes neither how many words its option takes nor of which type."""
OF_ITS_OWN = "HfArg"
"""The function of transformers that makes a field with other names for its option."""
OF_TRL = Pattern(r"trl(?:\.[a-z]\w*)*\.[A-Z]\w+(?:Config|Arguments)")
"""Classes of trl, each of which has the options of some of its trainers and scripts."""
NOT_OPTIONS = frozenset({"ClassVar", "InitVar"})
OF_OTHER_VERSIONS: Final = Option("", ())
"""What stands for the fields that training arguments have in versions of transformers that are not known."""


def options_of_class(name: str, path: str, checkout: str, depth: int = 0) -> Iterator[Option | None]:
    """Yield the options of a class that a file names, those that it inherits first; None for what is not there, or is other."""
    found = definition(name, path, checkout)
    if found in CLASSES or (isinstance(found, str) and OF_TRL.fullmatch(found)):
        yield from (_of_table(each) for each in FIELDS)
        if found not in CLASSES:
            yield from (field_option(each.dest, each.type, "*", each.choices) for each in options("trl").values())
        yield OF_OTHER_VERSIONS
    elif isinstance(found, str) or isinstance(found.node, ast.FunctionDef) or depth > DEEPEST:
        if found not in NO_FIELDS and name not in NO_FIELDS:
            yield None
    else:
        for base in found.node.bases:
            yield from options_of_class(dotted(base), found.path, checkout, depth + 1)
        yield from _fields(found)


def _fields(found: Definition) -> Iterator[Option | None]:
    for node in found.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            called = node.value if isinstance(node.value, ast.Call) else None
            keywords = {each.arg: each.value for each in called.keywords} if called is not None else {}
            is_left_out = "init" in keywords or any(word in ast.unparse(node.annotation) for word in NOT_OPTIONS)
            if called is not None and dotted(called.func).rpartition(".")[2] == OF_ITS_OWN:
                yield None
            elif not is_left_out:
                default = number_of(node.value if called is None else keywords.get("default"))
                yield option_of_field(node.target.id, node.annotation, keywords.get("metadata"), default)


def option_of_field(name: str, annotation: ast.expr, metadata: ast.expr | None, default: int | float | None) -> Option | None:
    """Return the option of a field; None where it is another one with what its metadata say."""
    is_written = isinstance(metadata, ast.Dict) and None not in metadata.keys
    pairs = zip(metadata.keys, metadata.values, strict=True) if isinstance(metadata, ast.Dict) else ()
    stated = {text_of(key): value for key, value in pairs if key is not None}
    if metadata is not None and (not is_written or "aliases" in stated):
        return None
    kind, arity, choices = _type_of(annotation)
    if not stated.keys() <= PLAIN:
        return replace(field_option(name, "other", "*", ()), default=default)
    if "choices" in stated:
        kind, choices = ("other", ()) if kind != "str" else (kind, _constants(stated["choices"]))
    return replace(field_option(name, kind, arity, choices), default=default)


def _of_table(name: str) -> Option:
    kind = FIELDS[name]
    option = field_option(name, kind, "*" if kind == "other" else None, CHOICES.get(name, ()))
    return replace(option, default=1) if kind in ("int", "float") else option


def _type_of(annotation: ast.expr) -> tuple[str, str | None, tuple[str | int | float, ...]]:
    """Return the type of the values of a field, how many there are, and the choices."""
    if text_of(annotation):
        try:
            annotation = ast.parse(text_of(annotation), mode="eval").body
        except (SyntaxError, ValueError):
            return "other", "*", ()
    inner = [each for each in _alternatives(annotation) if not (isinstance(each, ast.Constant) and each.value is None)]
    only = inner[0] if len(inner) == 1 else None
    if only is None:
        return "other", "*", ()
    if isinstance(only, ast.Subscript) and dotted(only.value) in LISTS:
        kind, arity, choices = _type_of(only.slice)
        return (kind, "+", choices) if arity is None and kind != "truth" else ("other", "*", ())
    if isinstance(only, ast.Subscript) and dotted(only.value) in LITERAL:
        items = only.slice.elts if isinstance(only.slice, ast.Tuple) else [only.slice]
        choices = _constants(ast.Tuple(items, ast.Load()))
        return ("str", None, choices) if choices and all(isinstance(each, str) for each in choices) else ("other", "*", ())
    kind = TYPES.get(dotted(only), "other")
    return kind, None if kind != "other" else "*", ()


def _alternatives(annotation: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a union."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        yield from _alternatives(annotation.left)
        yield from _alternatives(annotation.right)
    elif isinstance(annotation, ast.Subscript) and dotted(annotation.value) in OPTIONAL:
        for each in annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]:
            yield from _alternatives(each)
    else:
        yield annotation


def _constants(node: ast.expr) -> tuple[str | int | float, ...]:
    """Return the constants of a list, None as the word for it; empty where one is no constant."""
    items = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []
    values = ["None" if each.value is None else each.value for each in items if isinstance(each, ast.Constant)]
    found = [each for each in values if isinstance(each, str | int | float)]
    return tuple(found) if len(found) == len(items) else ()
