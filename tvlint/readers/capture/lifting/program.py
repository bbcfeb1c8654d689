"""The program of one rank as values: no storages, no aliases, nothing that is overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tvlint.ir.operators import NOT_UNDERSTOOD
from tvlint.readers.capture.tapes.tape import Mark, Named, Other

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]
else:
    Array: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Ref:
    """A value, by its name."""

    name: str


Argument: TypeAlias = "int | float | str | bool | None | Ref | Other | tuple[Argument, ...]"


@dataclass(frozen=True, slots=True)
class Type:
    """The local shape and the dtype of a value."""

    shape: tuple[int, ...]
    dtype: str

    def of_shape(self, shape: tuple[int, ...]) -> Type:
        """Return the same type with another shape."""
        return Type(shape, self.dtype)


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator on values: of `aten`, or one of the moves `permute`, `view`, `narrow`, `expand`, `cat`."""

    op: str
    arguments: Mapping[str, Argument]
    outputs: tuple[str, ...]
    mark: Mark


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective on values; `handle` names its end where the program waits for it later.

    An all-to-all splits `dim` and joins what it is sent along `joined`, or along the same one.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    group: tuple[int, ...]
    mark: Mark
    reduce: str = ""
    dim: int | None = None
    root: int | None = None
    splits: tuple[int, ...] = ()
    receive_splits: tuple[int, ...] = ()
    handle: str = ""
    joined: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One end of a message."""

    value: str
    sends: bool
    peer: int
    group: tuple[int, ...]
    mark: Mark
    tag: int = 0
    batch: int = 0
    handle: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """A wait for what has the handle."""

    handle: str
    mark: Mark


Node: TypeAlias = Apply | Exchange | Message | End


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value that the step does not make: what the program calls it (None: nothing), and its numbers where recorded."""

    named: Named | None
    numbers: Array | None
    mark: Mark = field(default_factory=Mark)


@dataclass(frozen=True, slots=True)
class RootValue:
    """A value that a backward pass begins at; `start` is the gradient that it begins with (empty: one)."""

    value: str
    start: str
    mark: Mark
    number: Array | None = None


@dataclass(slots=True)
class Program:
    """The computation of one rank in one training step.

    `constants` are the numbers that given values are throughout, with where each is read.
    `chosen` are the marks of choices of places by numbers that the program makes.
    `negative` are the negative ones of the whole numbers that any rank is given, as marks of targets that do not count.
    `unwaited` are the marks of messages that are sent and never waited for.
    `elsewhere` are the results of reductions that are left to other ranks.
    `partial` are the axes over which gradients are left as partial sums, by weight, as their framework says.
    `whole` are the weights in shards whose gradients their framework leaves whole.
    `gradients` are the gradients of weights by their names, as the optimizer finds them, with their recorded numbers;
    `updated` are the optimizers of weights by name, `kept` weights that no optimizer of the rank holds, and `after` the
    recorded numbers of all of these behind the step;
    `clipped` are those of gradients that the optimizer finds after any were clipped, and the axes over which they are partial;
    `operations` are the first results of the recorded operations by their numbers, to which `Mark.of` refers.
    """

    rank: int
    nodes: list[Node] = field(default_factory=list)
    types: dict[str, Type] = field(default_factory=dict)
    given: dict[str, GivenValue] = field(default_factory=dict)
    constants: list[tuple[float, Mark]] = field(default_factory=list)
    chosen: list[Mark] = field(default_factory=list)
    negative: frozenset[float] = frozenset()
    unwaited: list[Mark] = field(default_factory=list)
    elsewhere: set[str] = field(default_factory=set)
    partial: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    roots: list[RootValue] = field(default_factory=list)
    gradients: dict[str, tuple[str, Array | None]] = field(default_factory=dict)
    updated: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    after: dict[str, Array | None] = field(default_factory=dict)
    clipped: dict[str, tuple[Array | None, tuple[str, ...]]] = field(default_factory=dict)
    operations: dict[int, str] = field(default_factory=dict)

    def fresh(self, type: Type) -> str:
        """Return a new name for a value."""
        name = f"v{len(self.types)}"
        self.types[name] = type
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the local shape of a value."""
        return self.types[name].shape


def references(argument: Argument) -> tuple[str, ...]:
    """Return the names of the values in an argument."""
    if isinstance(argument, Ref):
        return (argument.name,)
    if isinstance(argument, tuple):
        return tuple(name for each in argument for name in references(each))
    return ()


def reads(node: Node) -> tuple[str, ...]:
    """Return the names of the values that a node reads."""
    if isinstance(node, Apply):
        return tuple(name for argument in node.arguments.values() for name in references(argument))
    if isinstance(node, Exchange):
        return node.inputs
    if isinstance(node, Message):
        return (node.value,) if node.sends else ()
    return ()


def makes(node: Node) -> tuple[str, ...]:
    """Return the names of the values that a node makes."""
    if isinstance(node, Apply | Exchange):
        return node.outputs
    if isinstance(node, Message):
        return () if node.sends else (node.value,)
    return ()


UNFOLLOWED = (
    "is not followed for these tensors; use one of a tensor that each rank gives and gets, in a group of ascending ranks"
)
"""Of a collective: what to do."""


def unfollowed(text: str, read: tuple[Ref, ...], made: str, mark: Mark, op: str = "unfollowed") -> Apply:
    """Return an operator of which nothing is known but what it reads, and why."""
    return Apply(op, {"tensors": read, NOT_UNDERSTOOD: text}, (made,), mark)
