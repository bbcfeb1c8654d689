"""The operators of a generated method, and what autograd is to make of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvlint.ir.location import Location
from tvlint.ir.operators import Communicate, Compute, Operator

IDENTITY = "nnscaler.runtime.function.identity"


@dataclass(frozen=True, slots=True)
class Reverse:
    """A function with a backward of its own: it makes `outputs` of `inputs`, and `operators` make `given` of `taken`.

    `taken` are the gradients of the outputs and `given` those of the inputs, by position, under the names of `operators`.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    taken: tuple[str, ...]
    given: tuple[str, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Gradual:
    """A forward operator and, where autograd does not derive its gradient from the operator table, that of its result.

    `reverse` takes the gradient of the output to that of the input; its names are filled in when the backward is derived.
    `differentiable` is False for communication that autograd does not see.
    """

    operator: Operator
    reverse: Compute | Communicate | None = None
    differentiable: bool = True
    function: Reverse | None = None
    """What runs backward for all operators since the last function, of which this one is the last."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """A name that is used and that nothing gives a value there; `deleted` says that it had one before."""

    name: str
    source: Location
    deleted: bool = False


@dataclass(slots=True)
class Body:
    """One method's operators on one rank; `outputs` are what it returns, under the names they have in the body."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    operators: list[Gradual] = field(default_factory=list)
    stated: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    """Shape and dtype of what is received, as the code states them."""
    sent: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    """What senders of messages state, which the runtime does not read: it tells shapes where nothing else does."""
    undefined: list[Undefined] = field(default_factory=list)
    bystander: list[tuple[int, int, Location]] = field(default_factory=list)
    """Moves (source, destination) in which the rank has no part."""
