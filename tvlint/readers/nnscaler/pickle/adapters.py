"""nnScaler's adapters and their primitives, as collectives, sends and receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.operators import Collective, Communicate, Compute, Group, Operator, Peer, Receive, Send, Value
from tvlint.plurals import counted
from tvlint.readers.nnscaler.pickle.records import (
    Malformed,
    Work,
    constant,
    described,
    dtype,
    fields,
    integer,
    integers,
    kind,
    mapping,
    printable,
    required,
    sequence,
)
from tvlint.readers.nnscaler.pickle.tensors import Tensors

IDENTITY = "nnscaler.runtime.function.identity"

_Meaning: TypeAlias = "Collective | None"

_PLAIN: Mapping[str, _Meaning] = {
    "AllReducePrim": Collective.ALL_REDUCE,
    "AllGatherPrim": Collective.ALL_GATHER,
    "ReduceScatterPrim": Collective.REDUCE_SCATTER,
    "AllToAllPrim": Collective.ALL_TO_ALL,
    "ChunkPrim": Collective.CHUNK,
    "IdentityPrim": None,
}

_FUSED: Mapping[str, tuple[_Meaning, _Meaning]] = {
    "AllReduceIdentityPrim": (Collective.ALL_REDUCE, None),
    "IdentityAllreducePrim": (None, Collective.ALL_REDUCE),
    "AllReduceAllReducePrim": (Collective.ALL_REDUCE, Collective.ALL_REDUCE),
    "AllGatherSplitPrim": (Collective.ALL_GATHER, Collective.CHUNK),
    "SplitAllGatherPrim": (Collective.CHUNK, Collective.ALL_GATHER),
    "AllGatherReduceScatterPrim": (Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
    "ReduceScatterAllGatherPrim": (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
    "AllToAllAllToAllPrim": (Collective.ALL_TO_ALL, Collective.ALL_TO_ALL),
}
"""What a fused primitive does forward and backward."""

_RUNTIME = "nnscaler.runtime.adapter."
_TAKES: Mapping[str, tuple[str, frozenset[str]]] = {
    "AllReducePrim": ("all_reduce", frozenset({"ranks"})),
    "AllGatherPrim": ("all_gather", frozenset({"dim", "ranks"})),
    "ReduceScatterPrim": ("reduce_scatter", frozenset({"dim", "ranks"})),
    "AllToAllPrim": ("all_to_all", frozenset({"idim", "odim", "ranks"})),
    "ChunkPrim": ("chunk", frozenset({"dim", "ranks"})),
    "IdentityPrim": ("identity", frozenset()),
    "AllReduceIdentityPrim": ("nn.allreduce_identity", frozenset({"ranks"})),
    "IdentityAllreducePrim": ("nn.identity_allreduce", frozenset({"ranks"})),
    "AllReduceAllReducePrim": ("nn.allreduce_allreduce", frozenset({"ranks"})),
    "AllGatherSplitPrim": ("nn.allgather_split", frozenset({"dim", "ranks"})),
    "SplitAllGatherPrim": ("nn.split_allgather", frozenset({"dim", "ranks"})),
    "AllGatherReduceScatterPrim": ("nn.allgather_reducescatter", frozenset({"dim", "ranks"})),
    "ReduceScatterAllGatherPrim": ("nn.reducescatter_allgather", frozenset({"dim", "ranks"})),
    "AllToAllAllToAllPrim": ("nn.alltoall_alltoall", frozenset({"idim", "odim", "ranks"})),
    "MovePrim": ("move", frozenset({"shape", "dtype", "src", "dst"})),
    "BroadcastPrim": ("broadcast", frozenset({"shape", "dtype", "src", "ranks"})),
}
"""The function that nnScaler generates a call of for a primitive, and the keywords that this takes."""

_SUMMED = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


class Scope:
    """The names that are current in one segment, where nnScaler gives several values one id."""

    def __init__(self, tensors: Tensors, counts: dict[str, int]) -> None:
        self.tensors = tensors
        self.counts = counts
        self.current: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the current name for `name`."""
        return self.current.get(name, name) if self.current else name

    def fresh(self, name: str, gradient: str = "") -> str:
        """Return a new name for a value that nnScaler calls `name` too; numbered per device, so that equal devices agree."""
        self.counts[name] = count = self.counts.get(name, 0) + 1
        return self.tensors.version(name, count, gradient)


def lower_adapter(adapter: Any, device: int, scope: Scope, source: Location) -> list[Operator]:
    """Return the operators of one adapter on one device.

    A backward adapter shares its primitives with the forward one; a fused primitive, or one that names none of the adapter's
    tensors, acts on the adapter's own. Only the adapter's outputs leave it. An output that keeps the id of an input, and every
    scratch value whose id another value may have, gets a new name.
    """
    attributes = fields(adapter, "an adapter")
    tensors = scope.tensors
    tensors.work.spend(1)
    inputs = tensors.names(required(attributes, "_inputs", "an adapter"), "the inputs of an adapter")
    outputs = tensors.names(required(attributes, "_outputs", "an adapter"), "the outputs of an adapter")
    gradients = tensors.gradients(attributes["_outputs"])
    prims = [(prim, fields(prim, "a primitive")) for prim in sequence(attributes.get("_prims"), "the primitives of an adapter")]
    forward = attributes.get("_forward", True) is not False
    recorded = attributes.get("_differentiable", True) is True
    if recorded and attributes.get("custom") is True and any(kind(prim) in _FUSED for prim, _ in prims):
        raise Malformed("an adapter has a backward of its own, and primitives that have one as well")
    label = f"cell {integer(attributes.get('_id'), 'the id of an adapter')}"
    common = _Adapter(device, forward, source, label, tensors.work)
    wired = []
    for prim, record in prims:
        consumed = tensors.names(required(record, "_inputs", "a primitive"), "the inputs of a primitive")
        produced = tensors.names(required(record, "_outputs", "a primitive"), "the outputs of a primitive")
        if not forward and (kind(prim) in _FUSED or (len(prims) == 1 and not {*consumed, *produced} & {*inputs, *outputs})):
            if len(prims) != 1:
                raise Malformed(f"a backward adapter holds `{kind(prim)}` among {counted(len(prims), 'primitive')}")
            consumed, produced = inputs, outputs
        wired.append((prim, record, consumed, produced))
    last = {name: index for index, (*_, produced) in enumerate(wired) for name in produced}
    local = {name: scope.of(name) for name in inputs}
    leaving: dict[str, str] = {}
    operators: list[Operator] = []
    for index, (prim, record, consumed, produced) in enumerate(wired):
        operands = tuple([local.get(name) or scope.of(name) for name in consumed])
        results = []
        for name in produced:
            if name in outputs and last[name] == index:
                fresh = scope.fresh(name, gradients.get(name, "")) if name in inputs else scope.of(name)
                leaving[name] = fresh
            else:
                fresh = scope.fresh(name)
            results.append(fresh)
        meaning = _Primitive(kind(prim), record, common)
        operator = meaning.lower(operands, tuple(results), tuple(consumed) == tuple(produced))
        operators.append(operator)
        local.update(zip(produced, results, strict=True))
        if isinstance(operator, Communicate) and not operator.outputs:
            local.update(zip(produced, operands, strict=False))
            for name in produced:
                leaving.pop(name, None)
    for name, fresh in leaving.items():
        if fresh != name:
            scope.current[name] = fresh
    return operators


def cuts_gradients(adapter: Any) -> bool:
    """Return whether autograd passes nothing through an adapter: what it communicates, the runtime detaches."""
    attributes = fields(adapter, "an adapter")
    kinds = [kind(prim) for prim in sequence(attributes.get("_prims"), "the primitives of an adapter")]
    return attributes.get("_differentiable", True) is not True and any(one in _PLAIN and one != "IdentityPrim" for one in kinds)


@dataclass(frozen=True, slots=True)
class _Adapter:
    """One adapter on one device: what all its primitives have in common."""

    device: int
    forward: bool
    source: Location
    label: str
    work: Work


class _Primitive:
    def __init__(self, kind_: str, record: dict[str, Any], adapter: _Adapter) -> None:
        self.adapter = adapter
        self.kind = kind_
        signature = record.get("signature")
        self.signature = printable(signature) if isinstance(signature, str) else ""
        self.arguments = mapping(required(record, "kwargs", "a primitive"), f"the arguments of `{kind_}`")
        _runs_what_it_is(kind_, self.signature, record, self.arguments)

    def lower(self, inputs: tuple[str, ...], outputs: tuple[str, ...], in_place: bool) -> Operator:
        """Return the operator that the primitive stands for on this device."""
        if self.kind in _PLAIN:
            return self._collective(_PLAIN[self.kind], inputs, outputs)
        if self.kind in _FUSED:
            return self._collective(_FUSED[self.kind][0 if self.adapter.forward else 1], inputs, outputs)
        if self.kind == "MovePrim":
            return self._move(inputs, outputs)
        if self.kind == "BroadcastPrim":
            root = integer(self.arguments.get("src"), "the root of a broadcast")
            kept = outputs if not in_place or root != self.adapter.device else ()
            taken = inputs if root == self.adapter.device else ()
            return Communicate(
                Collective.BROADCAST,
                taken,
                kept,
                self._group(),
                root=root,
                source=self.adapter.source,
                label=self.adapter.label,
            )
        return self._other(inputs, outputs)

    def _group(self) -> Group:
        ranks = integers(self.arguments.get("ranks"), f"the ranks of `{self.kind}`")
        self.adapter.work.spend(len(ranks))
        if not ranks or len(set(ranks)) != len(ranks):
            raise Malformed(f"the ranks of `{self.kind}` are {ranks}")
        return Group(ranks=ranks)

    def _dim(self, name: str) -> int:
        return integer(self.arguments.get(name), f"`{name}` of `{self.kind}`")

    def _collective(self, meaning: _Meaning, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Operator:
        if meaning is None:
            return Compute(IDENTITY, inputs, outputs, source=self.adapter.source, label=self.adapter.label)
        dim = concat = None
        if meaning is Collective.ALL_TO_ALL:
            concat, dim = self._dim("idim"), self._dim("odim")
            if self.kind in _FUSED and not self.adapter.forward:
                concat, dim = dim, concat
        elif meaning is not Collective.ALL_REDUCE:
            dim = self._dim("dim")
        return Communicate(
            meaning,
            inputs,
            outputs,
            self._group(),
            reduce="sum" if meaning in _SUMMED else "",
            dim=dim,
            concat_dim=concat,
            source=self.adapter.source,
            label=self.adapter.label,
        )

    def _move(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Operator:
        source = integer(self.arguments.get("src"), "the source of a move")
        target = integer(self.arguments.get("dst"), "the destination of a move")
        if source == self.adapter.device and target != self.adapter.device and len(inputs) == 1 and not outputs:
            return Send(inputs[0], Peer(rank=target), source=self.adapter.source, label=self.adapter.label)
        if target == self.adapter.device and source != self.adapter.device and len(outputs) == 1 and not inputs:
            return Receive(outputs[0], Peer(rank=source), source=self.adapter.source, label=self.adapter.label)
        return self._other(inputs, outputs)

    def _other(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Operator:
        attributes: dict[str, Value] = {
            printable(name): constant(value, self.adapter.work)
            for name, value in self.arguments.items()
            if isinstance(name, str)
        }
        op = self.signature or f"nnscaler.ir.adapter.prim.{self.kind or 'unknown'}"
        return Compute(op, inputs, outputs, attributes, source=self.adapter.source, label=self.adapter.label)


def _runs_what_it_is(kind_: str, signature: str, record: dict[str, Any], arguments: Mapping[Any, Any]) -> None:
    """Raise `Malformed` where the call that is generated for a primitive does something else than the primitive."""
    if kind_ not in _TAKES:
        return
    function, words = _TAKES[kind_]
    if signature != _RUNTIME + function:
        raise Malformed(f"a `{kind_}` runs `{signature}`")
    unknown = next((word for word in arguments if word not in words), None)
    if unknown is not None:
        raise Malformed(f"a `{kind_}` is given {described(unknown)}, which it does not take")
    for tensor in (*record["_inputs"], *record["_outputs"]) if "shape" in arguments else ():
        attributes = fields(tensor, "a tensor of a message")
        sizes = integers(arguments["shape"], "the shape of a message")
        if sizes != integers(attributes.get("_shape"), "the shape of a tensor"):
            raise Malformed(f"a message of the shape {sizes} holds a tensor of the shape {attributes.get('_shape')}")
        if "dtype" in arguments and dtype(arguments["dtype"]) != dtype(attributes.get("_dtype")):
            raise Malformed(f"a message of {dtype(arguments['dtype'])} holds a tensor of {dtype(attributes.get('_dtype'))}")
