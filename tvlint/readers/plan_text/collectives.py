"""Collectives of plan text."""

from __future__ import annotations

from typing import Any

from tvlint.ir.operators import SUMS, Collective, Communicate
from tvlint.readers.plan_text.clauses import Scope, parse_clauses
from tvlint.readers.plan_text.lexer import Line
from tvlint.readers.plan_text.types import DTYPES, parse_dtype

KINDS = {kind.value: kind for kind in Collective}
ALSO_COMPUTATIONS = tuple(
    kind.value for kind in (Collective.BROADCAST, Collective.REDUCE, Collective.SCATTER, Collective.GATHER, Collective.CHUNK)
)
"""Collectives whose names are those of computations too; they are collectives where `over` follows."""


def parse_collective(line: Line, scope: Scope, outputs: tuple[str, ...], kind: Collective) -> Communicate:
    """Return the collective whose name the line is at."""
    line.index += 1
    reduce = "sum" if kind in SUMS else ""
    if line.peek()[:1] == '"' or (line.is_name() and line.peek() != "over"):
        reduce = line.reduction()
    operands: tuple[str, ...] = ()
    found: dict[str, Any] = {}
    if kind is not Collective.BARRIER or line.peek() == "(":
        operands = _arguments(line, found)
    if line.peek() != "over":
        line.fail(f"expected `over` and the ranks of the {kind.value}, found {line.found()}", "for example `over tp`")
    clauses = parse_clauses(line, scope, ("over", "async", "on", "label", "at"))
    return Communicate(kind, operands, outputs, reduce=reduce, **found, **clauses)


def _dtype(line: Line) -> str:
    """Return a dtype, bare or as a string."""
    if not line.peek().startswith('"'):
        return parse_dtype(line)
    text = line.string("a dtype such as `f32`")
    return DTYPES.get(text, text)


_ARGUMENTS = ["dim", "concat-dim", "root", "splits", "receive-splits", "dtype"]


def _arguments(line: Line, found: dict[str, Any]) -> tuple[str, ...]:
    """Return the operands, and put what is given by name into `found`."""
    line.expect("(")
    operands: list[str] = []
    while not line.accept(")"):
        if line.after() == "=":
            key = line.word("an attribute")
            field = key.replace("-", "_")
            line.index += 1
            if field in found:
                line.fail(f"`{key}` is given twice", index=line.index - 2)
            match key:
                case "dim" | "concat-dim":
                    found[field] = line.integer(key, -64, 64)
                case "root":
                    found[field] = line.integer("root", 0, 2**62)
                case "splits" | "receive-splits":
                    found[field] = line.integers("size")
                case "dtype":
                    found[field] = _dtype(line)
                case _:
                    line.fail_unknown("an attribute of collectives", key, _ARGUMENTS, line.index - 2)
        else:
            operands.append(line.name("a tensor"))
        if line.peek() != ")":
            line.expect(",", "or `)`")
    return tuple(operands)
