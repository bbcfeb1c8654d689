"""An execution plan: what every rank runs, in order, folded.

A plan is a set of *segments* (straight-line operators) and of *programs* (the order in which a rank runs segments, and for
which micro-batch). Ranks that run the same program share one `Program`; replicas along one axis that differ only by a rank
shift are folded into a `Replication`, which readers check exactly and never assume.

Names. A `Tensor` is declared once per plan, by name; every rank that uses the name holds its own local tensor of that shape.
Names are visible on one rank for one micro-batch, except weights, buffers and handles, which are visible on the rank for good.
A segment's body sees what reached it through its inputs, weights and what the body produced; only its `outputs` leave it.
Readers give a name that has another type on the ranks of one program a name of its own there (`NAME@RANKS`).
A gradient name that one rank produces more than once in a micro-batch is summed; a gradient that is read but never produced
is zero. A forward name is produced once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.placement import Placement

Box: TypeAlias = tuple[tuple[int, int], ...]
"""A half-open interval per dimension."""

Value: TypeAlias = "int | float | str | bool | None | tuple[Value, ...]"
"""An attribute of an operator: a number, a string, a flag, nothing, or a tuple of those."""


class Role(Enum):
    """What a tensor is to training."""

    WEIGHT = "weight"
    BUFFER = "buffer"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    STATE = "state"


class Phase(Enum):
    """Which part of the training step a segment belongs to."""

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    REDUCE = "reduce"
    OPTIMIZER = "optimizer"


class Collective(Enum):
    """The collectives, by their field names."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SCATTER = "scatter"
    GATHER = "gather"
    CHUNK = "chunk"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A local tensor and what the plan claims about it.

    `shape` is the local shape. `logical` names the whole value that this is a piece of (a weight's full name), `whole` its
    shape, `region` which box of it a rank claims to hold, `part` = (i, n) that it is the i-th of n addends. For weights,
    buffers and inputs that claim is the declared placement, which is trusted; for everything else it is checked. Plans that
    speak in mesh axes give `placements` instead (an axis left out is `Replicate`), and `shape` is then local too.
    `storage` names the buffer a tensor lives in, for aliasing; empty means its own.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    logical: str = ""
    whole: tuple[int, ...] | None = None
    region: Box | None = None
    part: tuple[int, int] = (0, 1)
    placements: Mapping[str, Placement] | None = None
    gradient_of: str = ""
    gradient: str = ""
    requires_grad: bool = False
    storage: str = ""
    source: Location | None = field(default=None, compare=False)
    """Where the plan declares it, on the first rank that has it; None where the format has no such place."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant operand."""

    value: Value


Operand: TypeAlias = str | Literal
"""The name of a tensor, or a constant."""


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that take part in a communication, as seen from any one of them.

    Either `axes` of the mesh (the group that a rank has along them) or `ranks`, absolute and as written in the plan (their
    order means nothing: a rank's position is its position in the sorted ranks, as torch does). In a folded replica `ranks`
    are those of replica 0. `name` is the communicator when the plan names it.
    """

    axes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a send or receive: an absolute `rank`, or `offset` steps along `axis` from the own rank.

    `wrap` makes the axis a ring. Without it a rank whose peer would fall off the axis skips the operation.
    """

    rank: int | None = None
    axis: str = ""
    offset: int = 0
    wrap: bool = False


@dataclass(frozen=True, slots=True)
class Compute:
    """One forward operator, or any computation that is written out; `op` is what is emitted (`torch.nn.functional.linear`).

    `annotation` is what the model's author or exporter claims of an operator (nnScaler's `* k+, n k+ -> * n`).
    `in_place` lists inputs, by position, that the operator overwrites.
    """

    op: str
    inputs: tuple[Operand, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Value] = field(default_factory=dict)
    annotation: str = ""
    in_place: tuple[int, ...] = ()
    stream: str = ""
    source: Location | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Backward:
    """The vector-Jacobian product of `forward`.

    `inputs` are the gradients of the outputs of `forward`, position by position (empty string: that output has none),
    `outputs` the gradients of its operands that are tensors, literals not counted (empty string: not asked for). Names beyond
    those positions are gradients that the plan gives too many. A gradient at the position of another tensor than the one in
    its `gradient_of` is what the plan says, not what it should be.
    """

    forward: Compute
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stream: str = ""
    source: Location | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Communicate:
    """One collective, as one member runs it.

    `dim` is the dimension that is gathered, scattered or chunked; all-to-all splits `dim` and concatenates `concat_dim`.
    `splits` gives unequal sizes per member (all-to-all: the sizes sent; `receive_splits`: the sizes received). `root` is an
    absolute rank. `handle` names the completion of an asynchronous issue; empty means that it completes here. CHUNK is
    local: the rank keeps the piece of its position in the group.
    """

    kind: Collective
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    group: Group
    reduce: str = ""
    dim: int | None = None
    concat_dim: int | None = None
    root: int | None = None
    splits: tuple[int, ...] = ()
    receive_splits: tuple[int, ...] = ()
    dtype: str = ""
    handle: str = ""
    stream: str = ""
    source: Location | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """Send one tensor to a peer."""

    tensor: str
    peer: Peer
    tag: int = 0
    communicator: str = ""
    handle: str = ""
    stream: str = ""
    source: Location | None = None
    label: str = ""
    batch: str = ""
    """Operations with the same non-empty name are issued together (`batch_isend_irecv`)."""


@dataclass(frozen=True, slots=True)
class Receive:
    """Receive one tensor from a peer."""

    tensor: str
    peer: Peer
    tag: int = 0
    communicator: str = ""
    handle: str = ""
    stream: str = ""
    source: Location | None = None
    label: str = ""
    batch: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until `handle` has completed."""

    handle: str
    stream: str = ""
    source: Location | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """Record `event` on a stream."""

    event: str
    stream: str = ""
    source: Location | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Await:
    """Make a stream wait for `event`."""

    event: str
    stream: str = ""
    source: Location | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class ReduceGradients:
    """Reduce the accumulated gradients of `weights` over `group`, then divide by `divisor`.

    `group.ranks` of a replicated plan name replica 0 only when `replicated` is set: the group then extends over all
    replicas at the same offsets. `scatter` keeps one shard a rank (ZeRO); `divisor` 0 means that the plan does not say.
    """

    weights: tuple[str, ...]
    group: Group
    reduce: str = "sum"
    divisor: int = 1
    replicated: bool = False
    scatter: bool = False
    handle: str = ""
    stream: str = ""
    source: Location | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """The optimizer step on `weights`."""

    weights: tuple[str, ...]
    stream: str = ""
    source: Location | None = None
    label: str = ""


Operator: TypeAlias = Compute | Backward | Communicate | Send | Receive | Wait | Record | Await | ReduceGradients | Update


@dataclass(frozen=True, slots=True)
class Segment:
    """Straight-line operators that one rank runs as a unit, once per micro-batch.

    `pipeline_stage` is the pipeline stage it belongs to (-1: none). `mirror` names the forward segment of a backward one.
    `checkpointed` says that its activations are recomputed.
    """

    name: str
    phase: Phase
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[Operator, ...]
    pipeline_stage: int = -1
    mirror: str = ""
    checkpointed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a segment.

    `inputs` and `outputs` are the names by which this run's values are known outside, position by position with those of the
    segment; None means the segment's own names. Plans that name each micro-batch's tensors (nnScaler) give them, which
    makes the wiring between micro-batches a checked claim. `micro_batch` -1 means the step belongs to no micro-batch.
    """

    segment: str
    micro_batch: int = -1
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    source: Location | None = field(default=None, compare=False)
    """Where the plan says that the segment is run, in plans that a person can open."""


@dataclass(frozen=True, slots=True)
class Program:
    """What each of `ranks` runs, in order."""

    ranks: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Replication:
    """The programs repeat `count` times along `axis`, replica r with every rank shifted by r x `stride`."""

    axis: str = "dp"
    count: int = 1
    stride: int = 0


UNDIVIDED = "the training loop divides gradients by {0}: the loss is a mean, and those of {0} parts of the batch are added up"
"""What is assumed of the loop around a plan whose reference is `undivided`."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One exported plan.

    `mesh` covers all ranks, replicas too. `programs` are those of replica 0. `micro_batches` is how many a rank runs per
    optimizer step. `outputs` are the names (as the steps know them) of the values the plan returns, the loss among them:
    `loss` when the plan says which. `format` is `nnscaler-pickle`, `plan-json` or `plan-text`.
    """

    path: str
    format: str
    mesh: Mesh
    tensors: Mapping[str, Tensor]
    segments: Mapping[str, Segment]
    programs: tuple[Program, ...]
    replication: Replication = field(default_factory=Replication)
    micro_batches: int = 1
    outputs: tuple[str, ...] = ()
    loss: str = ""
    communicators: tuple[Group, ...] = ()
    name: str = ""
    undivided: int = 1
    """Of a reference: its loss is a mean over that many parts of the batch, whose gradients the parallel plan adds up and a
    training loop outside of it divides by their number."""
    assumed: tuple[str, ...] = ()
    """What the file leaves to code around it, in words that verdicts list among their assumptions."""
