"""Operators of plan JSON whose form is known to be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import (
    KINDS,
    SUMS,
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
    Operand,
    Operator,
    Peer,
    Value,
)
from tvlint.ir.reductions import reduction_named
from tvlint.ops.spelling import with_second_in_place
from tvlint.readers.plan_json.positions import pointer
from tvlint.readers.plan_json.schema_checker import At, FormError


class OperatorBuilder:
    """Builds the operators of one plan; what they refer to must be there."""

    def __init__(self, path: str, mesh: Mesh) -> None:
        self.path = path
        self.mesh = mesh
        self.axes = frozenset(axis.name for axis in mesh.axes)
        self.communicators: dict[str, Group] = {}

    def build(self, value: dict[str, Any], at: At, segment: str, index: int) -> Operator:
        """Return the operator that `value` states; a backward operator is left to `backward`."""
        kind = value["kind"]
        if kind == "compute":
            return self.compute(value, at, segment, index)
        members = self._members(value, at, segment, index)
        if kind in KINDS:
            return KINDS[kind](**members)
        collective = Collective(kind)
        members.setdefault("reduce", "sum" if collective in SUMS else "")
        return Communicate(collective, **members)

    def compute(self, value: dict[str, Any], at: At, segment: str, index: int) -> Compute:
        """Return a computation."""
        members = self._members(value, at, segment, index)
        given = {key: constant(item) for key, item in value.get("attributes", {}).items()}
        members["inputs"], members["attributes"] = with_second_in_place(value["op"], members["inputs"], given)
        members["in_place"] = _overwritten(value, members["inputs"], at)
        return Compute(**members)

    def backward(self, value: dict[str, Any], forward: Compute, at: At, segment: str, index: int) -> Backward:
        """Return a backward operator, once its forward operator is known."""
        return Backward(**{**self._members(value, at, segment, index), "forward": forward})

    def _members(self, value: dict[str, Any], at: At, segment: str, index: int) -> dict[str, Any]:
        """Return the members of an operator, which have the names of its fields; what it refers to has to be there."""
        members = {key: self._member(key, item, at) for key, item in value.items() if key != "kind"}
        return {**members, "source": self.source(value, segment, index)}

    def _member(self, key: str, item: Any, at: At) -> Any:
        match key:
            case "group":
                return self.group(item, (at, key))
            case "peer":
                return self.peer(item, (at, key))
            case "reduce":
                return reduction_named(item)
            case "draws_over":
                self.each_axis(item, (at, key))
        if isinstance(item, list):
            return tuple(map(_operand, item))
        return _whole(item)

    def source(self, value: dict[str, Any], segment: str, index: int) -> Location:
        """Return what the file says of the operator's source, else the operator's place in the file."""
        written = value.get("source")
        if written is None:
            return Location(self.path, pointer=pointer(("segments", segment, "operators", index)))
        return Location(**{key: _whole(item) for key, item in written.items()})

    def group(self, value: dict[str, Any], at: At) -> Group:
        """Return a group whose axes, ranks or communicator are there."""
        if "axes" not in value and "ranks" not in value:
            name = value["name"]
            if name not in self.communicators:
                raise FormError(f"`{name}` is no communicator of this plan", (at, "name"), _known(self.communicators))
            return self.communicators[name]
        self.each_axis(value.get("axes", ()), (at, "axes"))
        ranks = integers(value.get("ranks", ()))
        once = set[int]()
        for index, rank in enumerate(ranks):
            self.rank(rank, ((at, "ranks"), index))
            if rank in once:
                raise FormError(f"a group names rank {rank} twice", ((at, "ranks"), index), "name each rank once")
            once.add(rank)
        return Group(tuple(value.get("axes", ())), ranks, value.get("name", ""))

    def peer(self, value: dict[str, Any], at: At) -> Peer:
        """Return a peer whose rank or axis is there."""
        if "rank" in value:
            self.rank(value["rank"], (at, "rank"))
            return Peer(int(value["rank"]))
        self.axis(value["axis"], (at, "axis"))
        return Peer(None, value["axis"], int(value["offset"]), value.get("wrap", False))

    def each_axis(self, names: Sequence[str], at: At) -> None:
        """Each of `names` must be an axis of the mesh, and another one."""
        for index, name in enumerate(names):
            self.axis(name, (at, index))
            if name in names[:index]:
                raise FormError(f"axis `{name}` is named twice", (at, index), "name each axis once")

    def axis(self, name: str, at: At) -> None:
        """`name` must be an axis of the mesh."""
        if name not in self.axes:
            raise FormError(f"`{name}` is no axis of the mesh", at, _known(self.axes))

    def rank(self, rank: int, at: At) -> None:
        """`rank` must be a rank of the mesh."""
        if rank >= max(self.mesh.size, 1):
            raise FormError(f"rank {rank} of a mesh of {self.mesh.size} ranks", at)


def _known(names: Any) -> str:
    words = sorted(names)
    return f"one of {', '.join(f'`{name}`' for name in words)}" if 0 < len(words) <= 24 else ""


def _whole(value: Any) -> Any:
    """Return a number as the integer that it is; JSON may write some as `1.0`."""
    return int(value) if isinstance(value, float) else value


def integers(values: Any) -> tuple[int, ...]:
    """Return integers, of which JSON may write some as `1.0`."""
    return tuple(map(int, values))


def _operand(value: Any) -> Any:
    """Return one element of a list: a name, none of which is empty, an integer, or a constant operand."""
    if isinstance(value, dict):
        return Literal(constant(value["constant"]))
    return "" if value is None else _whole(value)


def constant(value: Any) -> Value:
    """Return a constant."""
    if isinstance(value, list):
        return tuple(map(constant, value))
    if isinstance(value, dict):
        return float(value["float"])
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    raise AssertionError(f"the form lets {value!r} pass as a constant")


def _overwritten(value: dict[str, Any], operands: Sequence[Operand], at: At) -> tuple[int, ...]:
    """Return which inputs a computation overwrites, in order, each once. Raises FormError where one is no tensor of it."""
    places = sorted(set(integers(value.get("in_place", ()))))
    for place in places:
        if place >= len(operands) or isinstance(operands[place], Literal):
            text = f"`{value['op']}` has no tensor as input {place}, which it says it overwrites"
            raise FormError(text, (at, "in_place"), "inputs are counted from 0")
    return tuple(places)
