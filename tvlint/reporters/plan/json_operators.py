"""Operators as plan JSON writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.operators import (
    Await,
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
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

_REDUCING = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)


def operator(
    item: Operator, own_path: str, computes: Mapping[int, tuple[str, int]], communicators: Mapping[str, Group]
) -> dict[str, Any]:
    """One operator; `computes` says where computations stand, by identity."""
    written = _backward(item, own_path, computes) if isinstance(item, Backward) else _operator(item, communicators)
    for key, text in (("handle", getattr(item, "handle", "")), ("stream", item.stream), ("label", item.label)):
        if text:
            written[key] = text
    source = _source(item.source, own_path)
    if source is not None:
        written["source"] = source
    return written


def _operator(
    item: Compute | Communicate | Send | Receive | Wait | Record | Await | ReduceGradients | Update,
    communicators: Mapping[str, Group],
) -> dict[str, Any]:
    match item:
        case Compute():
            return _compute(item)
        case Communicate():
            return _communicate(item, communicators)
        case Send() | Receive():
            kind = "send" if isinstance(item, Send) else "receive"
            written: dict[str, Any] = {"kind": kind, "tensor": item.tensor, "peer": _peer(item.peer)}
            _add(written, tag=item.tag, communicator=item.communicator, batch=item.batch)
            return written
        case Wait():
            return {"kind": "wait"}
        case Record() | Await():
            return {"kind": "record" if isinstance(item, Record) else "await", "event": item.event}
        case Update():
            return {"kind": "update", "weights": item.weights}
        case ReduceGradients():
            written = {"kind": "reduce-gradients", "weights": item.weights, "group": _group(item.group, communicators)}
            _add(written, replicated=item.replicated, scatter=item.scatter)
            if item.reduce != "sum":
                written["reduce"] = item.reduce
            if item.divisor != 1:
                written["divisor"] = item.divisor
            return written


def _add(written: dict[str, Any], **members: Any) -> None:
    written.update((key, value) for key, value in members.items() if value)


def _compute(item: Compute) -> dict[str, Any]:
    inputs = [{"constant": _value(operand.value)} if isinstance(operand, Literal) else operand for operand in item.inputs]
    written: dict[str, Any] = {"kind": "compute", "op": item.op, "inputs": inputs, "outputs": item.outputs}
    attributes = {key: _value(attribute) for key, attribute in item.attributes.items()}
    _add(written, attributes=attributes, annotation=item.annotation, in_place=item.in_place)
    if item.draws_over is not None:
        written["draws_over"] = item.draws_over
    return written


def _backward(item: Backward, own_path: str, computes: Mapping[int, tuple[str, int]]) -> dict[str, Any]:
    place = computes.get(id(item.forward))
    if place is not None:
        forward: dict[str, Any] = {"segment": place[0], "operator": place[1]}
    else:
        forward = operator(item.forward, own_path, computes, {})
    inputs = [name or None for name in item.inputs]
    return {"kind": "backward", "forward": forward, "inputs": inputs, "outputs": [name or None for name in item.outputs]}


def _communicate(item: Communicate, communicators: Mapping[str, Group]) -> dict[str, Any]:
    written: dict[str, Any] = {"kind": item.kind.value, "inputs": item.inputs, "outputs": item.outputs}
    written["group"] = _group(item.group, communicators)
    if item.reduce != ("sum" if item.kind in _REDUCING else ""):
        written["reduce"] = item.reduce
    for key, number in (("dim", item.dim), ("concat_dim", item.concat_dim), ("root", item.root)):
        if number is not None:
            written[key] = number
    _add(written, splits=item.splits, receive_splits=item.receive_splits, dtype=item.dtype)
    return written


def _group(group: Group, communicators: Mapping[str, Group]) -> dict[str, Any]:
    if group.name and communicators.get(group.name) == group:
        return {"name": group.name}
    named = {"name": group.name} if group.name else {}
    return {"ranks": group.ranks, **named} if group.ranks else {"axes": group.axes, **named}


def _peer(peer: Peer) -> dict[str, Any]:
    if peer.rank is not None:
        return {"rank": peer.rank}
    return {"axis": peer.axis, "offset": peer.offset, **({"wrap": True} if peer.wrap else {})}


def _value(value: Value) -> Any:
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _source(source: Location | None, own_path: str) -> dict[str, Any] | None:
    """Nothing for a place in the plan's own file, since what is written has places of its own."""
    if source is None or source.path == own_path:
        return None
    written: dict[str, Any] = {"path": source.path}
    for key, number in (
        ("line", source.line), ("column", source.column), ("end_line", source.end_line), ("end_column", source.end_column),
    ):  # fmt: skip
        if number is not None:
            written[key] = number
    _add(written, pointer=source.pointer, text=source.text)
    return written
