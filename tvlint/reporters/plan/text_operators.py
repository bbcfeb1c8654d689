"""Operators as plan text writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import (
    SUMS,
    Await,
    Backward,
    Communicate,
    Compute,
    Group,
    Literal,
    Operator,
    Receive,
    Record,
    ReduceGradients,
    Send,
    Update,
    Wait,
)
from tvlint.reporters.plan import text_words as words


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The context in which the operators of one plan are written.

    `annotate` gives the type that follows a produced name (`: f32[4,8]`, or nothing).
    """

    path: str
    mesh: Mesh
    communicators: Mapping[str, Group]
    annotate: Callable[[str], str]


def operator(item: Operator, around: Surroundings, forward_name: str) -> str:
    """One operator, on one line; `forward_name` is how a backward operator refers to its forward operator, if it can."""
    if isinstance(item, Compute):
        return _compute(item, around, around.annotate)
    if isinstance(item, Communicate):
        return _communicate(item, around)
    if isinstance(item, Backward):
        return _backward(item, around, forward_name)
    end = _end(item, around)
    if isinstance(item, Send | Receive):
        verb = f"send {words.name(item.tensor)} to" if isinstance(item, Send) else (
            f"recv {words.name(item.tensor)}{around.annotate(item.tensor)} from"
        )  # fmt: skip
        clauses = f" tag {item.tag}" if item.tag else ""
        clauses += f" via {words.name(item.communicator)}" if item.communicator else ""
        clauses += _async(item.handle)
        clauses += f" batch {words.name(item.batch)}" if item.batch else ""
        return f"{verb} {words.peer(item.peer)}{clauses}{end}"
    if isinstance(item, Wait):
        return f"wait {words.name(item.handle)}{end}"
    if isinstance(item, Record):
        return f"record {words.name(item.event)}{end}"
    if isinstance(item, Await):
        return f"await {words.name(item.event)}{end}"
    if isinstance(item, Update):
        return f"update {words.names(item.weights)}{end}"
    return _reduce_gradients(item, around, end)


def _end(item: Operator, around: Surroundings) -> str:
    stream = f" on {words.name(item.stream)}" if item.stream else ""
    label = f" label {words.name(item.label)}" if item.label else ""
    return f"{stream}{label}{words.place(item.source, around.path)}"


def _async(handle: str) -> str:
    return f" async {words.name(handle)}" if handle else ""


def _reduce_gradients(item: ReduceGradients, around: Surroundings, end: str) -> str:
    clauses = f" by {words.word_or_string(item.reduce)}" if item.reduce != "sum" else ""
    clauses += f" divide {item.divisor or 'unknown'}" if item.divisor != 1 else ""
    clauses += " scatter" if item.scatter else ""
    clauses += " replicated" if item.replicated else ""
    group = words.group(item.group, around.mesh, around.communicators)
    return f"reduce-gradients {words.names(item.weights)} over {group}{clauses}{_async(item.handle)}{end}"


def _compute(item: Compute, around: Surroundings, annotate: Callable[[str], str]) -> str:
    arguments = []
    for position, operand in enumerate(item.inputs):
        if isinstance(operand, Literal):
            arguments.append(words.value(operand.value))
        else:
            arguments.append(words.name(operand) + ("!" if position in item.in_place else ""))
    arguments += [f"{words.name(key)}={words.value(constant)}" for key, constant in item.attributes.items()]
    annotation = f" as {words.string(item.annotation)}" if item.annotation else ""
    if item.draws_over is not None:
        over = ", ".join(map(words.name, item.draws_over))
        annotation += f" draws over {over}" if over else " draws alike"
    outputs = _outputs(item.outputs, annotate)
    return f"{outputs}{words.operator_name(item.op)}({', '.join(arguments)}){annotation}{_end(item, around)}"


def _outputs(outputs: tuple[str, ...], annotate: Callable[[str], str]) -> str:
    if not outputs:
        return ""
    return ", ".join(words.optional_name(output) + (annotate(output) if output else "") for output in outputs) + " = "


def _backward(item: Backward, around: Surroundings, forward_name: str) -> str:
    outputs = _outputs(item.outputs, around.annotate)
    inputs = ", ".join(map(words.optional_name, item.inputs))
    if forward_name:
        return f"{outputs}backward {words.name(forward_name)} ({inputs}){_end(item, around)}"
    forward = _compute(item.forward, around, lambda _: "")
    return f"{outputs}backward ({inputs}){_end(item, around)} of {forward}"


def _communicate(item: Communicate, around: Surroundings) -> str:
    default = "sum" if item.kind in SUMS else ""
    reduce = f" {words.word_or_string(item.reduce)}" if item.reduce != default else ""
    arguments = list(map(words.name, item.inputs))
    arguments += [f"dim={item.dim}"] if item.dim is not None else []
    arguments += [f"concat-dim={item.concat_dim}"] if item.concat_dim is not None else []
    arguments += [f"root={item.root}"] if item.root is not None else []
    arguments += [f"splits={words.integers(item.splits)}"] if item.splits else []
    arguments += [f"receive-splits={words.integers(item.receive_splits)}"] if item.receive_splits else []
    arguments += [f"dtype={words.dtype(item.dtype)}"] if item.dtype else []
    group = words.group(item.group, around.mesh, around.communicators)
    call = f"{item.kind.value}{reduce}({', '.join(arguments)}) over {group}"
    return f"{_outputs(item.outputs, around.annotate)}{call}{_async(item.handle)}{_end(item, around)}"
