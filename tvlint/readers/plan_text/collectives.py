"""Collectives of plan text."""

from __future__ import annotations

from tvlint.ir.operators import Collective, Communicate, Group, Operand
from tvlint.readers.plan_text.clauses import Scope, parse_clauses
from tvlint.readers.plan_text.lexer import Line
from tvlint.readers.plan_text.types import DTYPES, parse_dtype

KINDS = {kind.value: kind for kind in Collective}
REDUCING = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)
ALSO_COMPUTATIONS = tuple(
    kind.value for kind in (Collective.BROADCAST, Collective.REDUCE, Collective.SCATTER, Collective.GATHER, Collective.CHUNK)
)
"""Collectives whose names are those of computations too; they are collectives where `over` follows."""


def parse_collective(line: Line, scope: Scope, outputs: tuple[str, ...], kind: Collective) -> Communicate:
    """Return the collective whose name the line is at."""
    line.index += 1
    reduce = "sum" if kind in REDUCING else ""
    if line.peek()[:1] == '"' or (line.is_name() and line.peek() != "over"):
        reduce = line.reduction()
    operands: tuple[Operand, ...] = ()
    found: dict[str, int | str | tuple[int, ...]] = {}
    if kind is not Collective.BARRIER or line.peek() == "(":
        operands = _arguments(line, found)
    if line.peek() != "over":
        line.fail(f"expected `over` and the ranks of the {kind.value}, found {line.found()}", "for example `over tp`")
    clauses = parse_clauses(line, scope, ("over", "async", "on", "label", "at"))
    return Communicate(
        kind, tuple(name for name in operands if isinstance(name, str)), outputs, clauses.group or Group(), reduce,
        _int(found, "dim"), _int(found, "concat-dim"), _int(found, "root"), _ints(found, "splits"),
        _ints(found, "receive-splits"), str(found.get("dtype", "")), clauses.handle, clauses.stream, clauses.source,
        clauses.label,
    )  # fmt: skip


def _int(found: dict[str, int | str | tuple[int, ...]], key: str) -> int | None:
    value = found.get(key)
    return value if isinstance(value, int) else None


def _ints(found: dict[str, int | str | tuple[int, ...]], key: str) -> tuple[int, ...]:
    value = found.get(key, ())
    return value if isinstance(value, tuple) else ()


def _dtype(line: Line) -> str:
    """Return a dtype, bare or as a string."""
    if not line.peek().startswith('"'):
        return parse_dtype(line)
    text = line.string("a dtype such as `f32`")
    return DTYPES.get(text, text)


def _arguments(line: Line, found: dict[str, int | str | tuple[int, ...]]) -> tuple[str, ...]:
    line.expect("(")
    operands: list[str] = []
    while not line.accept(")"):
        if line.after() == "=":
            key = line.word("an attribute")
            line.index += 1
            if key in found:
                line.fail(f"`{key}` is given twice", index=line.index - 2)
            if key in ("dim", "concat-dim"):
                found[key] = line.integer(key, -64, 64)
            elif key == "root":
                found[key] = line.integer("root", 0, 2**62)
            elif key in ("splits", "receive-splits"):
                found[key] = line.integers("size")
            elif key == "dtype":
                found[key] = _dtype(line)
            else:
                known = ["dim", "concat-dim", "root", "splits", "receive-splits", "dtype"]
                line.fail_unknown("an attribute of collectives", key, known, line.index - 2)
        else:
            operands.append(line.name("a tensor"))
        if line.peek() != ")":
            line.expect(",", "or `)`")
    return tuple(operands)
