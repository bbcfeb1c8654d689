"""Operators as plan JSON writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_args

from tvlint.ir.location import Location
from tvlint.ir.operators import KINDS, SUMS, Backward, Communicate, Group, Literal, Operator, Peer, Value

_LAST = ("handle", "stream", "label")
"""Members that stand behind all others but the source."""


def operator(
    item: Operator, own_path: str, computes: Mapping[int, tuple[str, int]], communicators: Mapping[str, Group]
) -> dict[str, Any]:
    """One operator; `computes` says where computations stand, by identity. Members have the names of fields, and none is
    written that has its default.
    """
    written: dict[str, Any] = {"kind": _kind(item)} if not isinstance(item, Backward) else _backward(item, own_path, computes)
    for name, usual in _MEMBERS[type(item)]:
        value = getattr(item, name)
        if name == "reduce" and isinstance(item, Communicate):
            usual = "sum" if item.kind in SUMS else ""
        if name not in written and value != usual:
            written[name] = _member(value, communicators)
    source = _source(item.source, own_path)
    if source is not None:
        written["source"] = source
    return written


_NAMES = {kind: name for name, kind in KINDS.items()}


def _kind(item: Operator) -> str:
    return item.kind.value if isinstance(item, Communicate) else _NAMES[type(item)]


def _members(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names of the members of a kind of operator, each with its default."""
    known = {each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in fields(kind)}
    names = [name for name in known if name not in (*_LAST, "source")]
    return tuple((name, known[name]) for name in (*names, *_LAST) if name in known)


_MEMBERS: Mapping[type, tuple[tuple[str, Any], ...]] = {kind: _members(kind) for kind in get_args(Operator)}


def _member(value: object, communicators: Mapping[str, Group]) -> object:
    match value:
        case Group():
            return _group(value, communicators)
        case Peer():
            return _peer(value)
        case Mapping():
            return {key: _value(constant) for key, constant in value.items()}
        case tuple():
            return [{"constant": _value(each.value)} if isinstance(each, Literal) else each for each in value]
    return value


def _backward(item: Backward, own_path: str, computes: Mapping[int, tuple[str, int]]) -> dict[str, Any]:
    place = computes.get(id(item.forward))
    if place is not None:
        forward: dict[str, Any] = {"segment": place[0], "operator": place[1]}
    else:
        forward = operator(item.forward, own_path, computes, {})
    inputs = [name or None for name in item.inputs]
    return {"kind": "backward", "forward": forward, "inputs": inputs, "outputs": [name or None for name in item.outputs]}


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
    given = {each.name: getattr(source, each.name) for each in fields(source) if each.name != "origin"}
    return {key: value for key, value in given.items() if value not in (None, "") or key == "path"}
