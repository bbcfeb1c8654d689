"""nnScaler's plan pickle (`ModuleCodeGen`), as a `Plan`.

Names. `w<id>` is a parameter or buffer, `g<id>` a gradient (a parameter's too), `t<id>` any other tensor, `o<id>` a value that
is no tensor; ids are nnScaler's. A value that keeps the id of another one on the same device (an adapter's output with the id
of its input, a scratch value inside an adapter) is `<name>.<n>`, so that in a segment a forward name has one producer.
`Tensor.logical` is the full name of a parameter or buffer, and the id of the full tensor for everything else. `region` and
`part` are nnScaler's index and value maps. A buffer is an attribute that needs no gradient. What the data loader gives has the
role input.

Segments are cells on a device: `device 0/segment 217`, `device 0/adapter 397`, `device 0/data 107`, `device 0/reducer 1694`.
The k-th use of a cell on a device is micro-batch k, with the tensors of that use as the step's inputs and outputs. Every cell
is a segment even when it holds no operator: an adapter without primitives produces nothing. An output of an adapter that is
its input and is not made anew is left out.

Backward: `Backward.inputs` are aligned with the outputs of the forward operator, `Backward.outputs` with its tensor operands
(literals not counted), in the order in which the plan gives them; an empty name stands where an operand has no gradient.
Surplus gradients are appended. The same tensor can have another gradient on another device (another part of one sum):
`Tensor.gradient` is that of the first device, `Tensor.gradient_of` is set on all of them.

Fused primitives act on the adapter's tensors, in the direction of the adapter. A broadcast has an input only on the root, and
an output there only when it has another name. All-to-all splits `dim` and concatenates `concat_dim`. A reducer's divisor is
not in the file (0), and its group extends over the replicas (`replicated`).

Attributes are the keyword arguments. A keyword argument that is a tensor is appended to the inputs, and the attribute says
`operand <position>`. An unknown primitive is a `Compute` with its signature as `op`.

Mesh: `dp` (replicas), `pp` and `tp` when the devices form pipeline stages of equal size, by the forward segments,
collectives (not broadcasts) and reducers they share; otherwise `dp` and `device`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tvlint.findings import Finding
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Communicate, Group
from tvlint.ir.plan import Plan, Replication, Segment
from tvlint.readers.document import Document, ReadError
from tvlint.readers.nnscaler.named_tensors import with_named_tensors
from tvlint.readers.nnscaler.pickle.mesh import mesh_of
from tvlint.readers.nnscaler.pickle.records import (
    Malformed,
    Work,
    described,
    fields,
    integer,
    integers,
    kind,
    mapping,
    required,
    sequence,
    text,
)
from tvlint.readers.nnscaler.pickle.schedule import schedule
from tvlint.readers.sources.decompress import decompress
from tvlint.readers.sources.inert_pickle import Loaded, load, looks_like_pickle
from tvlint.readers.sources.resource_limits import without_collection
from tvlint.readers.sources.unsafe_pickle import names_of_the_system, unsafe_calls

FORMAT = "nnscaler-pickle"

EXCHANGED = "collectives between gradients run as the plan writes them, though autograd derives them from the forward ones"
"""What is assumed of the backward adapters inside a segment: the generated code has the forward ones only."""

_LEAST_WORK = 1_000_000
_FIRST_LINE = re.compile(
    r"|#.*|from (?:typing|pathlib) import [\w*, ]+|from numpy import inf|import torch\.utils\.checkpoint as ckpt|import [\w.]+"
    r"|runtime_version = '[\w.+-]*'",
    re.ASCII,
)
"""What nnScaler begins generated code with."""
_RULES = frozenset({"torch.slice", "setattr", "self_getattr", "nnscaler.runtime.function.ifexpr"})
"""The signatures for which nnScaler writes something else than a call."""


def is_nnscaler_plan(data: bytes) -> bool:
    """Return whether unpacked `data` look like a pickle of nnScaler's code generator."""
    return looks_like_pickle(data) and b"ModuleCodeGen" in data


def read(path: str, data: bytes) -> Document:
    """Return the plan in `data`, compressed or not. Raises `ReadError` when it is not one, or malformed."""
    with without_collection():
        unpacked = decompress(data, path)
        loaded = load(unpacked, path, ("nnscaler.",))
        findings = tuple(unsafe_calls(loaded, path))
        plan = with_named_tensors(_plan(path, loaded, Work(_LEAST_WORK + len(unpacked))))
        return Document(path, FORMAT, plan, findings=findings)


def findings_only(path: str, data: bytes) -> tuple[Finding, ...]:
    """Return what is unsafe about a pickle that is no plan."""
    return tuple(names_of_the_system(load(decompress(data, path), path), path))


def _plan(path: str, loaded: Loaded, work: Work) -> Plan:
    try:
        if kind(loaded.root) != "ModuleCodeGen":
            raise Malformed(f"the pickle holds {described(loaded.root)}, not nnScaler's `ModuleCodeGen`")
        root = fields(loaded.root, "the plan")
        devices = integers(required(root, "devices", "the plan"), "`devices`")
        ranks = integer(root.get("runtime_ndevs"), "`runtime_ndevs`", 1)
        if not devices or sorted(devices) != list(range(len(devices))):
            raise Malformed(f"the plan devices are {list(devices)[:16]}, not 0, 1, ...")
        if ranks % len(devices):
            raise Malformed(f"{ranks} ranks are no whole number of replicas of {len(devices)} plan devices")
        if ranks > 1 << 24:
            raise Malformed(f"{ranks} ranks are more than can be handled")
        _nothing_generated(root, ranks > len(devices))
        execution = fields(required(root, "execplan", "the plan"), "the execution plan")
        sequences = _sequences(execution, devices)
        groups = _communicators(root.get("comm_groups") or (), work)
    except Malformed as error:
        raise ReadError(str(error), Location(path)) from None
    replicas = ranks // len(devices)
    built = schedule(path, sequences, replicas, work)
    try:
        outputs = tuple(built.tensors.names(execution.get("_outputs") or (), "the outputs of the plan"))
    except Malformed as error:
        raise ReadError(str(error), Location(path)) from None
    mesh, stages = mesh_of(built.forward_cells, built.groups, replicas)
    return Plan(
        path,
        FORMAT,
        mesh,
        built.tensors.linked(),
        {name: _staged(segment, stages) for name, segment in built.segments.items()} if stages else built.segments,
        tuple(built.programs),
        Replication("dp", replicas, len(devices)),
        built.micro_batches,
        outputs,
        communicators=groups,
        assumed=(EXCHANGED,) if any(map(_exchanges_gradients, built.segments.values())) else (),
    )


def _exchanges_gradients(segment: Segment) -> bool:
    """Return whether the segment has collectives between gradient operators."""
    kinds = frozenset(map(type, segment.operators))
    return Backward in kinds and Communicate in kinds


def _nothing_generated(root: dict[str, Any], replicated: bool) -> None:
    """Raise `Malformed` where the code generator holds code already, or leaves replicas apart."""
    for name in ("model_init_statements", "model_methods_bodies"):
        if sequence(root.get(name) or (), f"`{name}`"):
            raise Malformed(f"the code generator holds code in `{name}`, before it has generated any")
    lines = "\n".join(text(line, "a line of code") for line in sequence(root.get("init_code") or (), "`init_code`")).split("\n")
    odd = next((line for line in lines if not _FIRST_LINE.fullmatch(line)), None)
    if odd is not None:
        raise Malformed(f"generated code would begin with {described(odd)}")
    rules = root.get("_emit_rules")
    known = mapping(fields(rules, "the rules").get("_sign2rule") or {}, "the rules") if rules is not None else {}
    added = next((signature for signature in known if signature not in _RULES), None)
    if added is not None:
        raise Malformed(f"the code generator writes {described(added)} in a way of its own")
    if replicated and root.get("enable_dp", True) is not True:
        raise Malformed("there are several replicas, and `enable_dp` is off: each would run as the first")


def _communicators(value: object, work: Work) -> tuple[Group, ...]:
    found = []
    for group in sequence(value, "the communication groups"):
        ranks = integers(group, "a communication group")
        work.spend(1 + len(ranks))
        found.append(Group(ranks=ranks))
    return tuple(found)


def _sequences(execution: dict[str, Any], devices: tuple[int, ...]) -> dict[int, list[Any]]:
    found = {}
    known = frozenset(devices)
    for device, cells in mapping(required(execution, "_seq", "the execution plan"), "the sequences").items():
        if integer(device, "a device") not in known:
            raise Malformed(f"device {device} has a sequence and is no plan device")
        found[device] = list(sequence(cells, f"the sequence of device {device}"))
    for device in devices:
        found.setdefault(device, [])
    return found


def _staged(segment: Segment, stages: dict[int, int]) -> Segment:
    device = int(segment.name.split("/", 1)[0].removeprefix("device "))
    return replace(segment, pipeline_stage=stages[device])
