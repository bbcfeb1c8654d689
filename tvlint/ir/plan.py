"""An execution plan: what every rank runs, in order, folded.

A plan is a set of *segments* (straight-line operators) and of *programs* (the order in which a rank runs segments, and for
which micro-batch). Ranks that run the same program share one `Program`; replicas along one axis that differ only by a rank
shift are folded into a `Replication`, which readers check exactly and never assume.

Names. A `Tensor` is declared once per plan, by name; every rank that uses the name holds its own local tensor of that shape.
Names are visible on one rank for one micro-batch, except weights, buffers, states and handles, which are visible on the rank
for good; what a run of no micro-batch makes is visible to the other runs of none.
A segment's body sees what reached it through its inputs, weights and what the body produced; only its `outputs` leave it.
Readers give a name that has another type on the ranks of one program a name of its own there (`NAME@RANKS`).
A gradient name that one rank produces more than once in a micro-batch is summed, unless what is produced is made out of that
gradient, which it then replaces. Gradients start where one is read that is never produced and whose name says at which value
(`grad(VALUE)`), or that is the gradient of the loss. A forward name is produced once.
The gradient of a weight adds up over the micro-batches under one name: the one that the weight names, where something makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias, TypeVar

from tvlint.ir.location import Location
from tvlint.ir.mesh import Mesh
from tvlint.ir.operators import Group, Operator, Peer
from tvlint.ir.placement import Placement

_Kind = TypeVar("_Kind")
Box: TypeAlias = tuple[tuple[int, int], ...]
"""A half-open interval per dimension."""


class Role(Enum):
    """The role of a tensor in training."""

    WEIGHT = "weight"
    BUFFER = "buffer"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    STATE = "state"


GIVEN = (Role.WEIGHT, Role.BUFFER, Role.INPUT, Role.STATE)
"""The roles of what is there before a plan runs."""


class Phase(Enum):
    """The part of the training step that a segment belongs to."""

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    REDUCE = "reduce"
    OPTIMIZER = "optimizer"


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
    makes what micro-batches pass to each other a checked claim. `micro_batch` -1 means the step belongs to no micro-batch.
    """

    segment: str
    micro_batch: int = -1
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    source: Location | None = field(default=None, compare=False)
    """Where the plan says that the segment is run, in plans that a person can open."""

    def outside(self, segment: Segment) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names outside of the segment that is run for its inputs, and for its outputs."""
        return (
            segment.inputs if self.inputs is None else self.inputs,
            segment.outputs if self.outputs is None else self.outputs,
        )

    def misfit(self, segment: Segment) -> str:
        """Return in words where the step gives or takes another number of values than the segment; empty where it does not."""
        for (given, taken), verb in zip(
            zip(self.outside(segment), (segment.inputs, segment.outputs), strict=True), ("takes", "gives"), strict=True
        ):
            if len(given) != len(taken):
                values = ", ".join(f"`{name}`" for name in taken) or "nothing"
                return f"`{segment.name}` {verb} {values}, and the step names {len(given)}"
        return ""


@dataclass(frozen=True, slots=True)
class Program:
    """The steps that each of `ranks` runs, in order."""

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
    optimizer step. `outputs` are the names (as the steps know them) of the values the plan returns, those among them that
    are `losses` when the plan says which. `format` is `nnscaler-pickle`, `plan-json` or `plan-text`.
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
    losses: tuple[str, ...] = ()
    communicators: tuple[Group, ...] = ()
    name: str = ""
    undivided: int = 1
    """Of a reference: its loss is a mean over that many parts of the batch, whose gradients the parallel plan adds up and a
    training loop outside of it divides by their number."""
    returned_at: Mapping[str, Location] = field(default_factory=dict)
    """Where the file says that the plan returns a value, in formats that have such a place."""
    assumed: tuple[str, ...] = ()
    """What the file leaves to code around it, in words that verdicts list among their assumptions."""

    def operators(self) -> Iterator[Operator]:
        """Yield the operators of all segments."""
        return (operator for segment in self.segments.values() for operator in segment.operators)

    def operators_of(self, kind: type[_Kind]) -> Iterator[_Kind]:
        """Yield the operators of a kind that stand in segments."""
        return (operator for operator in self.operators() if isinstance(operator, kind))

    def with_operators(self, change: Callable[[Operator], Operator]) -> dict[str, Segment]:
        """Return the segments, with what `change` makes of each operator in its place."""
        return {
            name: replace(segment, operators=tuple(map(change, segment.operators))) for name, segment in self.segments.items()
        }

    def has_role(self, name: str, *roles: Role) -> bool:
        """Return whether the tensor of that name is declared with one of the roles."""
        return name in self.tensors and self.tensors[name].role in roles

    def steps(self) -> Iterator[Step]:
        """Yield the steps of all programs."""
        return (step for program in self.programs for step in program.steps)

    def declared(self, group: Group) -> Group:
        """Return the communicator that a group names without saying its ranks, or the group itself."""
        if group.ranks or group.axes or not group.name:
            return group
        return next((communicator for communicator in self.communicators if communicator.name == group.name), group)

    def peer(self, peer: Peer, rank: int) -> int | None:
        """Return the rank at the other end of a message of `rank`; None where the axis ends before it."""
        if peer.rank is not None:
            return peer.rank
        coordinates, size = self.mesh.coordinates(rank), self.mesh.axis_size(peer.axis)
        at = coordinates.get(peer.axis, 0) + peer.offset
        if not peer.wrap and not 0 <= at < size:
            return None
        return self.mesh.rank({**coordinates, peer.axis: at % size})

    def count_run(self) -> int:
        """Return how many operators the ranks run, those of a segment once."""
        sizes = {name: len(segment.operators) for name, segment in self.segments.items()}
        run = ((program, {step.segment for step in program.steps}) for program in self.programs)
        return sum(len(program.ranks) * sum(sizes.get(name, 0) for name in names) for program, names in run)

    def run_on(self, rank: int) -> Iterator[Operator]:
        """Yield the operators that a rank runs, each once."""
        yield from (operator for each in self.programs if rank in each.ranks for _, _, operator in self.run_by(each))

    def run_by(self, program: Program) -> Iterator[tuple[str, int, Operator]]:
        """Yield the operators of the segments that a program runs, each once, with their segment and their place in it."""
        for name in dict.fromkeys(step.segment for step in program.steps if step.segment in self.segments):
            for index, operator in enumerate(self.segments[name].operators):
                yield name, index, operator
