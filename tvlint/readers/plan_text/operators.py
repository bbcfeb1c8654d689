"""Operators of plan text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import (
    Await,
    Backward,
    Compute,
    Literal,
    Operand,
    Operator,
    Peer,
    Receive,
    Record,
    ReduceGradients,
    Send,
    Update,
    Value,
    Wait,
)
from tvlint.ir.plan import Role
from tvlint.ops.spelling import OPERAND_NAMES, with_second_in_place
from tvlint.readers.plan_text.clauses import Scope, parse_clauses
from tvlint.readers.plan_text.collectives import ALSO_COMPUTATIONS, KINDS, parse_collective
from tvlint.readers.plan_text.lexer import Line, begins_word
from tvlint.readers.plan_text.types import DTYPES, parse_tensor

KEYWORDS = ["send", "recv", "wait", "record", "await", "reduce-gradients", "update"]
ROLES = {
    "weight": Role.WEIGHT, "buffer": Role.BUFFER, "input": Role.INPUT, "tensor": Role.ACTIVATION,
    "gradient": Role.GRADIENT, "state": Role.STATE,
}  # fmt: skip
_LAST = ("on", "label", "at")
"""The first words of the clauses that every operator may have."""

_EVERY_KEY = frozenset(key for keys in OPERAND_NAMES.values() for key in keys)
_DTYPE_WORDS = frozenset({*DTYPES, *DTYPES.values()})


@dataclass(frozen=True, slots=True)
class PendingBackward:
    """A backward operator whose forward operator is still to be found by name."""

    of: str
    found: Compute | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    line: Line
    index: int
    source: Location
    stream: str = ""
    label: str = ""


Parsed: TypeAlias = Operator | PendingBackward


def parse_operators(line: Line, scope: Scope) -> list[Parsed]:
    """Return the operators that the line states."""
    after = line.after()
    if after in ("=", ",", ":"):
        return [_assignment(line, scope)]
    word = line.peek()
    if after == "(" and word != "backward":
        return [_right_side(line, scope, ())]
    if word == "backward" or (word in KINDS and "over" in line.tokens):
        return [_right_side(line, scope, ())]
    if word not in KEYWORDS:
        line.fail_unknown("a statement", word, [*KEYWORDS, "program", "segment", "run", "output", "input", "weight"])
    line.index += 1
    match word:
        case "send" | "recv":
            return [_point_to_point(line, scope, word)]
        case "wait":
            handles = _names(line, "a handle")
            clauses = parse_clauses(line, scope, _LAST)
            return [Wait(handle, **clauses) for handle in handles]
        case "record" | "await":
            kind, event = (Record if word == "record" else Await), line.name("an event")
            return [kind(event, **parse_clauses(line, scope, _LAST))]
        case "update":
            weights = _names(line, "a weight")
            return [Update(weights, **parse_clauses(line, scope, _LAST))]
        case _:
            return [_reduce_gradients(line, scope)]


def _names(line: Line, what: str) -> tuple[str, ...]:
    found = [line.name(what)]
    while line.accept(","):
        found.append(line.name(what))
    return tuple(found)


def _reduce_gradients(line: Line, scope: Scope) -> ReduceGradients:
    weights = _names(line, "a weight")
    if line.peek() != "over":
        line.fail(f"expected `over` and the ranks that reduce, found {line.found()}", "for example `over dp`")
    allowed = ("over", "by", "divide", "scatter", "replicated", "async", *_LAST)
    return ReduceGradients(weights, **parse_clauses(line, scope, allowed))


def _point_to_point(line: Line, scope: Scope, word: str) -> Operator:
    tensor = _annotated(line, scope, word == "recv", False)
    line.expect("to" if word == "send" else "from", "and the other rank")
    peer, kind = _peer(line, scope.mesh), Send if word == "send" else Receive
    return kind(tensor, peer, **parse_clauses(line, scope, ("tag", "via", "async", "batch", *_LAST)))


def _peer(line: Line, mesh: Mesh) -> Peer:
    if not line.is_name():
        return Peer(line.integer("rank", 0, max(mesh.size - 1, 0)))
    axis = line.name()
    if all(axis != known.name for known in mesh.axes):
        line.fail_unknown("an axis of the mesh", axis, [known.name for known in mesh.axes], line.index - 1)
    if line.peek()[:1] not in ("+", "-"):
        line.fail(f"expected steps along `{axis}`, found {line.found()}", f"for example `{axis}+1`")
    offset = line.integer("offset", -(2**31), 2**31)
    return Peer(None, axis, offset, line.accept("ring"))


def _annotated(line: Line, scope: Scope, typed: bool, gradient: bool) -> str:
    """Return a name that is produced, with its type where that is given."""
    index = line.index
    name = line.name("the name of a result")
    if typed and line.accept(":"):
        role = ROLES.get(line.peek()) if line.after() != "[" else None
        if role is not None:
            line.index += 1
        default = Role.GRADIENT if gradient or name.startswith("grad(") else Role.ACTIVATION
        tensor = parse_tensor(line, scope.mesh, name, role or default, role is None)
        scope.declare(line, index, tensor, role is None)
    return name


def _assignment(line: Line, scope: Scope) -> Parsed:
    backward = "backward" in line.tokens and line.tokens[line.tokens.index("backward") - 1] == "="
    outputs: list[str] = []
    while True:
        if backward and line.accept("_"):
            outputs.append("")
        else:
            outputs.append(_annotated(line, scope, True, backward))
        if not line.accept(","):
            break
    line.expect("=", "and an operator")
    return _right_side(line, scope, tuple(outputs))


def _right_side(line: Line, scope: Scope, outputs: tuple[str, ...]) -> Parsed:
    start = line.index
    word = line.peek()
    if word == "backward" and (begins_word(line.after()) or line.after()[:1] in ("(", "`")):
        return _backward(line, scope, outputs)
    if word in KINDS and (word not in ALSO_COMPUTATIONS or "over" in line.tokens):
        return parse_collective(line, scope, outputs, KINDS[word])
    op = line.name("an operator")
    if line.peek() != "(":
        known = [*KINDS, "backward"]
        line.fail_unknown("a collective, and an operator is followed by `(`", op, known, start)
    operands, attributes, in_place = _arguments(line, OPERAND_NAMES.get(op.rsplit(".", 1)[-1], ()))
    operands, attributes = with_second_in_place(op, operands, attributes)
    if line.peek() == "over":
        line.fail_unknown("a collective", op, list(KINDS), start)
    clauses = parse_clauses(line, scope, ("as", "draws", *_LAST))
    compute = Compute(op, operands, outputs, attributes, in_place=in_place, **clauses)
    for name in (*outputs, compute.label):
        if name:
            scope.computes[name] = compute
    return compute


def _is_list_of_names(line: Line) -> bool:
    """Return whether the bracket at the present word opens a list of tensors (`cat([a, b])`)."""
    line.index += 1
    named = line.is_name()
    line.index -= 1
    return named


def _arguments(line: Line, keys: tuple[str, ...]) -> tuple[tuple[Operand, ...], dict[str, Value], tuple[int, ...]]:
    """Operands, attributes and what is overwritten; `keys` are the operands after the first that may be given by name.

    A tensor that is given by name and is not the next operand in that order is appended, and the attribute says which it is.
    """
    line.expect("(")
    operands: list[Operand] = []
    attributes: dict[str, Value] = {}
    in_place: list[int] = []
    while not line.accept(")"):
        if line.after() == "=":
            key = line.name("an attribute")
            if key in attributes:
                line.fail(f"attribute `{key}` is given twice", index=line.index - 1)
            line.expect("=")
            if line.is_name() and key in _EVERY_KEY:
                tensors = sum(not isinstance(operand, Literal) for operand in operands)
                if key not in keys or keys.index(key) + 1 != tensors:
                    attributes[key] = f"operand {len(operands)}"
                operands.append(line.name())
            elif line.is_name():
                line.fail(f"attribute `{key}` takes a constant, found {line.found()}", "tensors go by position")
            else:
                attributes[key] = _written_out(line.value())
        elif attributes:
            line.fail("an operand after an attribute", "operands come first")
        elif operands and line.peek().removeprefix("torch.") in _DTYPE_WORDS:
            operands.append(Literal(_written_out(line.name())))
        elif line.is_name():
            operands.append(line.name())
            if line.accept("!"):
                in_place.append(len(operands) - 1)
        elif line.peek() == "[" and line.after() not in ("[", "]") and _is_list_of_names(line):
            line.expect("[")
            operands.append(line.name("a tensor"))
            while line.accept(","):
                operands.append(line.name("a tensor"))
            line.expect("]")
        else:
            operands.append(Literal(_written_out(line.value())))
        if line.peek() != ")":
            line.expect(",", "or `)`")
    return tuple(operands), attributes, tuple(in_place)


def _written_out(value: Value) -> Value:
    """Return a constant; the name of a type that is shortened (`f32`) as torch has it."""
    return DTYPES.get(value, value) if isinstance(value, str) else value


def _backward(line: Line, scope: Scope, outputs: tuple[str, ...]) -> Parsed:
    line.index += 1
    index = line.index
    of = "" if line.peek() == "(" else line.name("the forward operator's result")
    line.expect("(", "and the gradients of its results")
    inputs: list[str] = []
    while not line.accept(")"):
        inputs.append(line.optional_name("a gradient"))
        if line.peek() != ")":
            line.expect(",", "or `)`")
    clauses = parse_clauses(line, scope, _LAST)
    if of:
        return PendingBackward(of, scope.computes.get(of), tuple(inputs), outputs, line, index, **clauses)
    if not line.accept("of"):
        line.fail(f"expected `of` and the forward operator, found {line.found()}", "or name its result: `backward y (dy)`")
    inner = Scope(scope.mesh, scope.communicators, scope.declare, scope.rank_lists)
    forward = _assignment(line, inner) if line.after() in ("=", ",", ":") else _right_side(line, inner, ())
    if not isinstance(forward, Compute):
        line.fail("`backward` is of a computation", "the backward of a collective is written as a collective", index)
    return Backward(forward, tuple(inputs), outputs, **clauses)
