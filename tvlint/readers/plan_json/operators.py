"""Operators of plan JSON whose form is known to be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import (
    SUMS,
    Await,
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
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
        common = (value.get("stream", ""), self.source(value, segment, index), value.get("label", ""))
        match kind:
            case "compute":
                return self.compute(value, at, segment, index)
            case "send" | "receive":
                peer = self.peer(value["peer"], (at, "peer"))
                kind_of_end = Send if kind == "send" else Receive
                return kind_of_end(
                    value["tensor"], peer, int(value.get("tag", 0)), value.get("communicator", ""), value.get("handle", ""),
                    *common, value.get("batch", ""),
                )  # fmt: skip
            case "wait":
                return Wait(value["handle"], *common)
            case "record":
                return Record(value["event"], *common)
            case "await":
                return Await(value["event"], *common)
            case "update":
                return Update(tuple(value["weights"]), *common)
            case "reduce-gradients":
                return ReduceGradients(
                    tuple(value["weights"]), self.group(value["group"], (at, "group")),
                    reduction_named(value.get("reduce", "sum")), int(value.get("divisor", 1)),
                    value.get("replicated", False), value.get("scatter", False), value.get("handle", ""), *common,
                )  # fmt: skip
        collective = Collective(kind)
        return Communicate(
            collective, tuple(value["inputs"]), tuple(value["outputs"]), self.group(value["group"], (at, "group")),
            reduction_named(value.get("reduce", "sum" if collective in SUMS else "")), _optional(value.get("dim")),
            _optional(value.get("concat_dim")), _optional(value.get("root")), integers(value.get("splits", ())),
            integers(value.get("receive_splits", ())), value.get("dtype", ""), value.get("handle", ""), *common,
        )  # fmt: skip

    def compute(self, value: dict[str, Any], at: At, segment: str, index: int) -> Compute:
        """Return a computation."""
        given = {key: constant(item) for key, item in value.get("attributes", {}).items()}
        operands, attributes = with_second_in_place(value["op"], tuple(map(_operand, value["inputs"])), given)
        return Compute(
            value["op"], operands, tuple(value["outputs"]), attributes, value.get("annotation", ""),
            _overwritten(value, operands, at), value.get("stream", ""), self.source(value, segment, index),
            value.get("label", ""), self.draws_over(value, at),
        )  # fmt: skip

    def backward(self, value: dict[str, Any], forward: Compute, segment: str, index: int) -> Backward:
        """Return a backward operator, once its forward operator is known."""
        return Backward(
            forward, tuple(name or "" for name in value["inputs"]), tuple(name or "" for name in value["outputs"]),
            value.get("stream", ""), self.source(value, segment, index), value.get("label", ""),
        )  # fmt: skip

    def source(self, value: dict[str, Any], segment: str, index: int) -> Location:
        """Return what the file says of the operator's source, else the operator's place in the file."""
        written = value.get("source")
        if written is None:
            return Location(self.path, pointer=pointer(("segments", segment, "operators", index)))
        return Location(
            written["path"], _optional(written.get("line")), _optional(written.get("column")),
            _optional(written.get("end_line")), _optional(written.get("end_column")),
            written.get("pointer", ""), written.get("text", ""),
        )  # fmt: skip

    def group(self, value: dict[str, Any], at: At) -> Group:
        """Return a group whose axes, ranks or communicator are there."""
        if "axes" not in value and "ranks" not in value:
            name = value["name"]
            if name not in self.communicators:
                raise FormError(f"`{name}` is no communicator of this plan", (at, "name"), _known(self.communicators))
            return self.communicators[name]
        self.each_axis(value.get("axes", ()), (at, "axes"))
        for index, rank in enumerate(value.get("ranks", ())):
            self.rank(rank, ((at, "ranks"), index))
        return Group(tuple(value.get("axes", ())), integers(value.get("ranks", ())), value.get("name", ""))

    def peer(self, value: dict[str, Any], at: At) -> Peer:
        """Return a peer whose rank or axis is there."""
        if "rank" in value:
            self.rank(value["rank"], (at, "rank"))
            return Peer(int(value["rank"]))
        self.axis(value["axis"], (at, "axis"))
        return Peer(None, value["axis"], int(value["offset"]), value.get("wrap", False))

    def draws_over(self, value: dict[str, Any], at: At) -> tuple[str, ...] | None:
        """Return the axes along which the numbers differ that a computation draws; None where nothing says."""
        if "draws_over" not in value:
            return None
        self.each_axis(value["draws_over"], (at, "draws_over"))
        return tuple(value["draws_over"])

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


def _optional(value: Any) -> int | None:
    return None if value is None else int(value)


def integers(values: Any) -> tuple[int, ...]:
    """Integers, of which JSON may write some as `1.0`."""
    return tuple(map(int, values))


def _operand(value: Any) -> Operand:
    return value if isinstance(value, str) else Literal(constant(value["constant"]))


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
