"""The content of a capture: for each rank the windows on storages, and the events in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tvlint.findings import Related
from tvlint.ir.location import Location
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.placement import Placement
from tvlint.readers.document import ReadError


@dataclass(frozen=True, slots=True)
class Window:
    """A tensor: the elements of a storage at `offset` plus multiples of `stride`, all counted in elements."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor argument, by the number of its window."""

    window: int


@dataclass(frozen=True, slots=True)
class Other:
    """An argument of a type that a plan does not have, by the name of the type."""

    type: str


Argument: TypeAlias = "int | float | str | bool | None | Tensor | Other | tuple[Argument, ...]"


@dataclass(frozen=True, slots=True)
class Mark:
    """The origin of an event: the phase, the micro-batch (-1: none), the line, the module, the node of autograd.

    `of` is the number of the operation whose gradient that node computes (-1: none that was recorded).
    """

    phase: str = "forward"
    micro_batch: int = -1
    place: Location | None = None
    module: str = ""
    node: str = ""
    of: int = -1


@dataclass(frozen=True, slots=True)
class Given:
    """A storage that existed before the step; `values` are its bytes where they were recorded."""

    storage: int
    dtype: str
    values: bytes | None


@dataclass(frozen=True, slots=True)
class Laid:
    """A weight that lies in a flat one, from the place `at` on."""

    name: str
    shape: tuple[int, ...]
    at: int
    trained: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A weight, buffer or input; `whole`, `placements` and `start` (of the piece) are what its framework says of it.

    `flat` are the weights that lie in a flat one, of which the ranks of a `group` hold ranges of equal size, in order.
    """

    name: str
    role: str
    window: int
    trained: bool = False
    whole: tuple[int, ...] | None = None
    placements: Mapping[str, Placement] | None = None
    start: tuple[int, ...] | None = None
    flat: tuple[Laid, ...] = ()
    group: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator that computes, by its name with the overload."""

    op: str
    arguments: Mapping[str, Argument]
    outputs: tuple[int, ...]
    writes: tuple[int, ...]
    result: Argument
    mark: Mark

    def argument(self, name: str) -> Argument:
        """Return an argument that the operator needs. Raises ReadError where it is recorded without it."""
        if name not in self.arguments:
            raise ReadError(f"`{self.op}` is recorded without `{name}`", self.mark.place or Location(""), "capture it again")
        return self.arguments[name]

    def tensor(self, name: str) -> Tensor:
        """Return an argument that is a tensor. Raises ReadError where it is none."""
        found = self.argument(name)
        if not isinstance(found, Tensor):
            raise ReadError(f"`{name}` of `{self.op}` is no tensor", self.mark.place or Location(""), "capture it again")
        return found


@dataclass(frozen=True, slots=True)
class Communication:
    """A collective, or one end of a message; `completes` says that no wait in the program will show its end."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    group: tuple[int, ...]
    work: int
    mark: Mark
    reduce: str = ""
    root: int | None = None
    peer: int | None = None
    tag: int = 0
    splits: tuple[int, ...] = ()
    receive_splits: tuple[int, ...] = ()
    batch: int = 0
    completes: bool = False
    communicator: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """The program waits for a communication."""

    work: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class Root:
    """A backward pass begins at `window`, with the gradient `start` (None: one)."""

    window: int
    start: int | None
    values: bytes | None
    mark: Mark


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of a weight as the optimizer finds it."""

    name: str
    window: int
    values: bytes | None
    placements: Mapping[str, Placement] | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """An optimizer has stepped.

    `values` are the numbers of the weights then, where they were recorded; `clipped` the gradients that it found,
    where the program had clipped any. Weights `elsewhere` are held by no optimizer of the rank: others may have stepped them.
    """

    weights: tuple[str, ...]
    optimizer: str
    values: Mapping[str, bytes] = field(default_factory=dict)
    clipped: tuple[Gradient, ...] = ()
    elsewhere: bool = False


Event: TypeAlias = Given | Named | Operation | Communication | Wait | Root | Gradient | Update


@dataclass(frozen=True, slots=True)
class TapeDefect:
    """A mistake that tapes show by themselves: its rule, where it is, the ranks that make it, and where it begins."""

    rule: str
    message: str
    location: Location
    ranks: tuple[int, ...]
    related: tuple[Related, ...] = ()


@dataclass(frozen=True, slots=True)
class Tape:
    """The record of one rank; `pairs` are the windows of complex numbers, which are pairs of real ones in a last dimension."""

    rank: int
    windows: Mapping[int, Window]
    events: tuple[Event, ...]
    meshes: tuple[tuple[tuple[Axis, ...], tuple[int, ...]], ...] = ()
    pairs: frozenset[int] = frozenset()

    def place_on(self, axis: str) -> tuple[int, int]:
        """Return the rank's place on an axis that the program names, and the size of that."""
        for axes, ranks in self.meshes:
            mesh = Mesh(axes)
            if axis in {each_axis.name for each_axis in axes} and self.rank in ranks:
                return mesh.coordinates(ranks.index(self.rank))[axis], mesh.axis_size(axis)
        return 0, 1

    @property
    def changed_buffers(self) -> frozenset[str]:
        """Return the buffers that the step overwrites with other numbers than those that a rank sends to all."""
        written = {self.windows[number].storage for event in self.events for number in _overwritten(event)}
        named = (event for event in self.events if isinstance(event, Named) and event.role == "buffer")
        return frozenset(event.name for event in named if self.windows[event.window].storage in written)


def _overwritten(event: Event) -> tuple[int, ...]:
    if isinstance(event, Operation):
        return event.writes
    return event.outputs if isinstance(event, Communication) and event.kind != "broadcast" else ()


@dataclass(frozen=True, slots=True)
class Capture:
    """One training step of one program."""

    path: str
    launch: tuple[str, ...]
    ranks: int
    tapes: tuple[Tape, ...]
    torch: str = ""
    replaced: tuple[str, ...] = ()
    sized_down: tuple[str, ...] = field(default=())


def tensors_in(arguments: tuple[Argument, ...]) -> list[int]:
    """Return the windows of the tensors among arguments, in order."""
    found, pending = list[int](), [*reversed(arguments)]
    while pending:
        argument = pending.pop()
        found += [argument.window] if isinstance(argument, Tensor) else []
        pending += argument[::-1] if isinstance(argument, tuple) else ()
    return found
