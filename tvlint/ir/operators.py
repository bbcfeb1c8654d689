"""Operators: a computation, its gradient, a communication, a wait, an update.

Operators name the tensors that they read and write; a `Plan` declares these and says who runs which operators when.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.values import dataclass, field

Value: TypeAlias = "int | float | str | bool | None | tuple[Value, ...]"
"""An attribute of an operator: a number, a string, a flag, nothing, or a tuple of those."""


NOT_UNDERSTOOD = "not understood"
"""The attribute of a computation that stands for code which its reader gives no meaning: why."""


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


SUMS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)
"""The collectives that reduce what their members hold."""

GATHERS = (Collective.ALL_GATHER, Collective.GATHER)
"""The collectives that put what their members hold side by side."""

_IN_PARTS = frozenset({"dim", "splits", "receive_splits"})
ARGUMENTS: Mapping[Collective, frozenset[str]] = {
    Collective.ALL_REDUCE: frozenset(),
    Collective.REDUCE_SCATTER: _IN_PARTS,
    Collective.ALL_GATHER: _IN_PARTS,
    Collective.ALL_TO_ALL: _IN_PARTS | {"concat_dim"},
    Collective.BROADCAST: frozenset({"root"}),
    Collective.REDUCE: frozenset({"root"}),
    Collective.SCATTER: _IN_PARTS | {"root"},
    Collective.GATHER: _IN_PARTS | {"root"},
    Collective.CHUNK: _IN_PARTS,
    Collective.BARRIER: frozenset(),
}
"""What each collective takes beside tensors and a group, by the fields of `Communicate`."""


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

    `wrap` makes the axis a ring. Without it a rank at the end of the axis has no peer beyond it, and may not name one.
    """

    rank: int | None = None
    axis: str = ""
    offset: int = 0
    wrap: bool = False


@dataclass(frozen=True, slots=True)
class Compute:
    """One forward operator, or any computation that is written out; `op` is what is emitted (`torch.nn.functional.linear`).

    `annotation` is what the model's author or exporter claims of an operator (nnScaler's `* k+, n k+ -> * n`).
    `in_place` lists inputs, by position, that the operator overwrites. `draws_over` names the axes of the mesh along which its
    random numbers differ for the same place in the local tensor; along all others they are the same. None says nothing.
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
    draws_over: tuple[str, ...] | None = None

    @property
    def tensor_operands(self) -> tuple[str, ...]:
        """Return the inputs that are tensors, in order."""
        return tuple([operand for operand in self.inputs if isinstance(operand, str)])


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

    `dim` is the dimension that is gathered, scattered or chunked; all-to-all splits `dim` and concatenates `joined_dim`.
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

    @property
    def joined_dim(self) -> int | None:
        """Return the dimension that an all-to-all concatenates: the one that it splits, where no other is named."""
        return self.dim if self.concat_dim is None else self.concat_dim

    def way(self, rank: int) -> tuple[int | None, int | None]:
        """Return the dimensions that are cut and joined, of a tensor of `rank` dimensions, counted from the first one."""
        cut, joined = (dim + rank if dim is not None and -rank <= dim < 0 else dim for dim in (self.dim, self.joined_dim))
        return cut, joined


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

KINDS: Mapping[str, type[Operator]] = {
    "compute": Compute, "backward": Backward, "send": Send, "receive": Receive, "wait": Wait, "record": Record, "await": Await,
    "reduce-gradients": ReduceGradients, "update": Update,
}  # fmt: skip
"""The operators that are no collectives, by the names that plans have for them."""
