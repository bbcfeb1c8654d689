"""Pickles with the global names of nnScaler, written opcode by opcode: small plans, and whatever else a file may hold."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

PRIMS = "nnscaler.ir.adapter.prim"
_TAKES = {
    "AllReducePrim": ("all_reduce", "ranks"),
    "AllGatherPrim": ("all_gather", "dim ranks"),
    "ReduceScatterPrim": ("reduce_scatter", "dim ranks"),
    "AllToAllPrim": ("all_to_all", "idim odim ranks"),
    "ChunkPrim": ("chunk", "dim ranks"),
    "IdentityPrim": ("identity", ""),
    "AllReduceIdentityPrim": ("nn.allreduce_identity", "ranks"),
    "IdentityAllreducePrim": ("nn.identity_allreduce", "ranks"),
    "AllGatherSplitPrim": ("nn.allgather_split", "dim ranks"),
    "SplitAllGatherPrim": ("nn.split_allgather", "dim ranks"),
    "AllGatherReduceScatterPrim": ("nn.allgather_reducescatter", "dim ranks"),
    "ReduceScatterAllGatherPrim": ("nn.reducescatter_allgather", "dim ranks"),
    "AllToAllAllToAllPrim": ("nn.alltoall_alltoall", "idim odim ranks"),
    "MovePrim": ("move", "shape dtype src dst"),
    "BroadcastPrim": ("broadcast", "shape dtype src ranks"),
}
"""The function that runs a primitive, and its keywords."""


@dataclass(eq=False)
class Global:
    """A name that the pickle refers to."""

    name: str


@dataclass(eq=False)
class Object:
    """An object built without calling its class, and its state."""

    name: str
    state: Any = None


@dataclass(eq=False)
class Called:
    """What calling a name gives."""

    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None


def dumps(value: object) -> bytes:
    """A protocol 4 pickle of `value`."""
    writer = _Writer()
    writer.write(value)
    return b"\x80\x04" + bytes(writer.out) + b"."


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()
        self.memo: dict[int, int] = {}
        self.held: list[object] = []

    def write(self, value: object) -> None:
        if id(value) in self.memo:
            self.out += b"j" + struct.pack("<I", self.memo[id(value)])
        elif value is None or isinstance(value, bool):
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.out += b"\x8b" + struct.pack("<i", len(raw)) + raw
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            raw = value.encode("utf-8", "surrogatepass")
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
        elif isinstance(value, bytes):
            self.out += b"B" + struct.pack("<I", len(value)) + value
        elif isinstance(value, tuple):
            self.out += b"("
            for item in value:
                self.write(item)
            self.out += b"t"
        elif isinstance(value, list):
            self.out += b"]"
            self.remember(value)
            self.out += b"("
            for item in value:
                self.write(item)
            self.out += b"e"
        elif isinstance(value, dict):
            self.out += b"}"
            self.remember(value)
            self.state(value)
        elif isinstance(value, Global):
            self.name(value.name)
        elif isinstance(value, Object):
            self.name(value.name)
            self.out += b")\x81"
            self.remember(value)
            self.build(value.state)
        elif isinstance(value, Called):
            self.name(value.name)
            self.write(value.arguments)
            self.out += b"R"
            self.remember(value)
            self.build(value.state)
        else:
            raise TypeError(value)

    def remember(self, value: object) -> None:
        self.memo[id(value)] = len(self.held)
        self.held.append(value)
        self.out += b"\x94"

    def name(self, name: str) -> None:
        module, _, own = name.rpartition(".")
        self.write(module)
        self.write(own)
        self.out += b"\x93"

    def state(self, value: dict[Any, Any]) -> None:
        self.out += b"("
        for key, item in value.items():
            self.write(key)
            self.write(item)
        self.out += b"u"

    def build(self, state: object) -> None:
        if state is not None:
            self.write(state)
            self.out += b"b"


def tensor(
    number: int,
    shape: tuple[Any, ...],
    *,
    gradient: Object | None = None,
    weight: str = "",
    is_gradient: bool = False,
    box: tuple[tuple[int, int], ...] | None = None,
    part: tuple[int, int] = (0, 1),
    full: int = 0,
    whole: tuple[int, ...] | None = None,
) -> Object:
    """One `IRSubTensor`."""
    parent = Object(
        "nnscaler.ir.tensor.IRFullTensor",
        {"_id": full or number, "name": weight or "x", "_shape": whole or shape, "_subtensors": []},
    )
    return Object(
        "nnscaler.ir.tensor.IRSubTensor",
        {
            "_id": number,
            "_shape": shape,
            "_dtype": Global("torch.float32"),
            "_is_attr": bool(weight),
            "_is_grad": is_gradient,
            "_requires_grad": gradient is not None,
            "_grad": gradient,
            "_full_tensor": parent,
            "_indmap": Object("nnscaler.ir.tensor.IndexMap", {"_indices": box or tuple((0, size) for size in shape)}),
            "_valmap": Object("nnscaler.ir.tensor.ValueMap", {"_weight": part}),
        },
    )


def operator(number: int, signature: str, inputs: list[Any], outputs: list[Any], **arguments: Any) -> Object:
    """One forward operator."""
    line = f'File "model.py", line {number}, in forward, y = {signature}(...)'
    return Object(
        "nnscaler.graph.function.dimops.IRDimops",
        {
            "_id": number,
            "signature": signature,
            "_inputs": inputs,
            "_outputs": outputs,
            "_kwargs": arguments,
            "_mirror": None,
            "_comment": line,
            "_annos_candidates": ("* -> 1" if signature == "torch.sum" and not arguments else "* -> *",),
        },
    )


def backward(number: int, forward: Object, inputs: list[Any], outputs: list[Any]) -> Object:
    """The backward operator of `forward`."""
    return Object(
        "nnscaler.ir.operator.IRBpOperation",
        {"_id": number, "_inputs": inputs, "_outputs": outputs, "_mirror": forward, "_comment": None, "_kwargs": {}},
    )


def prim(name: str, inputs: list[Any], outputs: list[Any], **arguments: Any) -> Object:
    """One primitive of an adapter; what it does not take is left out."""
    function, words = _TAKES.get(name, (name, " ".join(arguments)))
    given = {word: value for word, value in arguments.items() if word in words.split()}
    return Object(
        f"{PRIMS}.{name}",
        {"_inputs": inputs, "_outputs": outputs, "kwargs": given, "signature": f"nnscaler.runtime.adapter.{function}"},
    )


def adapter(number: int, prims: list[Object], inputs: list[Any], outputs: list[Any], *, forward: bool = True) -> Object:
    """One adapter."""
    return Object(
        "nnscaler.ir.adapter.adapter.IRAdapter",
        {"_id": number, "_prims": prims, "_inputs": inputs, "_outputs": outputs, "_forward": forward, "_mirror": None},
    )


def segment(number: int, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Object:
    """One segment."""
    return Object(
        "nnscaler.graph.segment.IRSegment",
        {"_id": number, "_nodes": nodes, "_inputs": inputs, "_outputs": outputs, "_mirror": None},
    )


def reuse(cell: Object, inputs: list[Any], outputs: list[Any]) -> Object:
    """A further use of a cell."""
    return Object("nnscaler.execplan.execplan.ExeReuseCell", {"_cell": cell, "_inputs": inputs, "_outputs": outputs})


def module(sequences: dict[int, list[Any]], ranks: int, outputs: list[Any] | None = None, **more: Any) -> Object:
    """The root of a plan."""
    execution = Object("nnscaler.execplan.execplan.ExecutionPlan", {"_seq": sequences, "_outputs": outputs or []})
    state = {"devices": tuple(sequences), "runtime_ndevs": ranks, "execplan": execution, "comm_groups": [(0, 1)], **more}
    return Object("nnscaler.codegen.module.module.ModuleCodeGen", state)


@dataclass
class Small:
    """The parts of a plan that computes the sum of a linear layer on one device and two replicas."""

    root: Object
    linear: Object
    linear_backward: Object
    forward: Object
    sequence: list[Any]
    tensors: dict[str, Object] = field(default_factory=dict)


def small(**more: Any) -> Small:
    """A plan of one linear layer: data, forward, backward, reducer; two replicas."""
    loss_gradient = tensor(12, (1,), is_gradient=True, full=112)
    y_gradient = tensor(13, (4, 6), is_gradient=True, full=113)
    w_gradient = tensor(14, (6, 8), is_gradient=True, full=114)
    x = tensor(1, (4, 8), full=101)
    w = tensor(2, (6, 8), gradient=w_gradient, weight="layer.weight", full=102)
    y = tensor(3, (4, 6), gradient=y_gradient, full=103)
    loss = tensor(4, (1,), gradient=loss_gradient, full=104)
    linear = operator(20, "torch.nn.functional.linear", [x, w], [y], bias=None)
    total = operator(21, "torch.sum", [y], [loss])
    linear_backward = backward(30, linear, [y_gradient], [w_gradient])
    data = Object("nnscaler.ir.operator.IRDataOperation", {"_id": 10, "_inputs": [], "_outputs": [x]})
    forward = segment(40, [linear, total], [x], [loss])
    back = segment(41, [backward(31, total, [loss_gradient], [y_gradient]), linear_backward], [loss_gradient], [])
    back.state["_mirror"] = forward
    reducer = Object(
        "nnscaler.ir.adapter.adapter.IRWeightReducer", {"_id": 50, "_inputs": [w], "_outputs": [], "_device": (0,)}
    )
    sequence = [data, forward, back, reducer]
    root = module({0: sequence}, 2, [loss], **more)
    return Small(root, linear, linear_backward, forward, sequence, {"x": x, "w": w, "y": y, "loss": loss})
