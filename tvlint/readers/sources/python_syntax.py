"""Generated Python, parsed and never run: the syntax tree of one file, and the constants in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tvlint.checkout.following import content_listed
from tvlint.ir.location import Location
from tvlint.ir.operators import Value
from tvlint.plurals import counted
from tvlint.readers.document import ReadError, refuse_larger
from tvlint.readers.sources.resource_limits import bounded_memory, without_collection

LARGEST = 16 << 20
"""Bytes of the largest file that is parsed."""
_MEMORY = 2 << 30
_DEEPEST = 16
_MOST_PARTS = 1 << 16
_LONGEST_INTEGER = 128
_MOST_KEPT = 4 << 20
"""Bytes of all files together whose trees are kept in a block of `parsing_once`."""
_KEPT: ContextVar[dict[tuple[str, bytes], Source] | None] = ContextVar("kept", default=None)

NUMPY_SCALARS = frozenset(
    f"{module}.{name}" for module in ("np", "numpy") for name in ("int32", "int64", "float32", "float64", "bool_")
)
"""Calls that only wrap a number; one branch of nnScaler writes them."""


class NotConstant(Exception):
    """The expression is no constant that generated code holds."""


@dataclass(frozen=True)
class Source:
    """One generated file: its tree, its lines, and the path to report."""

    path: str
    tree: ast.Module
    lines: tuple[str, ...]
    made: dict[object, Any] | None = None
    """What was read from the tree, by what else it depends on; None where the tree is read once."""

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree: to list them takes longer than to parse."""
        return tuple(ast.walk(self.tree))

    def at(self, node: ast.AST) -> Location:
        """Return the place of `node`, with the line that stands there, and the model's line from the comment above."""
        line = int(getattr(node, "lineno", 0)) or None
        if line is None or line > len(self.lines):
            return Location(self.path)
        text = self.lines[line - 1]
        end = getattr(node, "end_lineno", None)
        end_text = self.lines[end - 1] if end is not None and end <= len(self.lines) else text
        return Location(
            self.path,
            line,
            _column(text, getattr(node, "col_offset", 0)),
            end,
            _column(end_text, getattr(node, "end_col_offset", None) or 0),
            text=text,
        )


def _column(line: str, offset: int) -> int:
    return (offset if line.isascii() else len(line.encode()[:offset].decode(errors="ignore"))) + 1


@contextmanager
def parsing_once() -> Iterator[None]:
    """Let `parse` give one tree for all readings of the same file in the block: for a folder that is read again and again."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def parse(path: str, data: bytes) -> Source:
    """Return the tree of the file, never to be changed. Raises ReadError for what is no Python, too large or too deep."""
    kept = _KEPT.get()
    if kept is None:
        return _parsed(path, data)
    found = kept.get((path, data))
    if found is None:
        found = _parsed(path, data)
        if sum(len(text) for _, text in kept) + len(data) <= _MOST_KEPT:
            kept[path, data] = found = replace(found, made={})
    return found


def _parsed(path: str, data: bytes) -> Source:
    refuse_larger(path, data, LARGEST)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ReadError("the code is not valid UTF-8", Location(path, pointer=f"byte {error.start}")) from None
    if "\0" in text:
        raise ReadError("the code holds a NUL character", Location(path))
    try:
        with without_collection(), bounded_memory(_MEMORY):
            tree = ast.parse(text)
    except SyntaxError as error:
        line = error.lineno if isinstance(error.lineno, int) and error.lineno > 0 else None
        column = error.offset if line is not None and isinstance(error.offset, int) and error.offset > 0 else None
        said = " ".join(str(error.msg).split())[:200]
        raise ReadError(f"not Python: {said}", Location(path, line, column)) from None
    except (RecursionError, MemoryError):
        raise ReadError("the file is nested too deeply or too large to be read", Location(path)) from None
    except ValueError as error:
        raise ReadError(f"not Python: {' '.join(str(error).split())[:200]}", Location(path)) from None
    lines = tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return Source(path, tree, lines)


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a file of the folder. Raises ReadError."""
    try:
        return content_listed(path, most)
    except OSError as error:
        raise ReadError(f"the file cannot be opened: {error.strerror or 'unknown error'}", Location(str(path))) from None


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of attributes of a name; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def constant(node: ast.AST, depth: int = 0) -> Value:
    """Return the constant that an expression is: a number, a string, a name of a torch object, tuples and lists of those.

    A slice is `("slice", start, stop, step)`. Raises NotConstant for everything else.
    """
    if depth > _DEEPEST:
        raise NotConstant("a constant with too many levels")
    match node:
        case ast.Constant(value=value):
            if value is None or isinstance(value, (bool, float, str)):
                return value
            if isinstance(value, int) and value.bit_length() < _LONGEST_INTEGER:
                return value
            if value is Ellipsis:
                return "..."
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = constant(operand, depth + 1)
            if isinstance(inner, (int, float)) and not isinstance(inner, bool):
                return -inner
        case ast.Tuple(elts=items) | ast.List(elts=items):
            if len(items) > _MOST_PARTS:
                raise NotConstant(f"a constant of {counted(len(items), 'part')}")
            return tuple(constant(item, depth + 1) for item in items)
        case ast.Call(func=func, args=args, keywords=[]):
            name = dotted(func)
            if name in NUMPY_SCALARS and len(args) == 1:
                inner = constant(args[0], depth + 1)
                if inner is None or isinstance(inner, (int, float)):
                    return inner
            if name == "slice" and 1 <= len(args) <= 3:
                return ("slice", *(constant(arg, depth + 1) for arg in args))
            if name in ("float", "torch.device", "torch.dtype") and len(args) == 1:
                inner = constant(args[0], depth + 1)
                if isinstance(inner, str):
                    return inner if name != "float" else _float(inner)
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.Attribute():
            name = dotted(node)
            if name and not name.startswith(("self.", "model.")):
                return name
        case _:
            pass
    raise NotConstant(f"`{ast.unparse(node)[:60]}`" if depth < 4 and _small(node) else "an expression")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise NotConstant(f"`float({text[:20]!r})`") from None


def _small(node: ast.AST) -> bool:
    return sum(1 for _, _ in zip(ast.walk(node), range(50), strict=False)) < 50


def integer(node: ast.AST) -> int:
    """Return a whole number; raises NotConstant."""
    value = constant(node)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62:
        return value
    raise NotConstant("no whole number")


def integers(node: ast.AST) -> tuple[int, ...]:
    """Return a tuple or list of whole numbers; raises NotConstant."""
    value = constant(node)
    if isinstance(value, tuple):
        found = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool) and abs(item) < 1 << 62)
        if len(found) == len(value):
            return found
    raise NotConstant("no list of whole numbers")


def text_of(node: ast.expr) -> str:
    """Return the text that an expression is; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
