"""Records of one `gencode{rank}.py`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.operators import Value
from tvlint.ops.annotations.declared import Declared
from tvlint.readers.sources.python_syntax import Source


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer of one rank, and which slice of which whole it is."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_weight: bool
    source: Location
    full_name: str = ""
    whole: tuple[int, ...] = ()
    region: tuple[tuple[int, int], ...] = ()
    parts: int = 1
    number: int = -1
    """The id of the whole, by which its values are found in the files that fill parameters."""
    map_source: Location | None = None


@dataclass(frozen=True, slots=True)
class Reducer:
    """One gradient reducer and the parameters that were added to it."""

    name: str
    ranks: tuple[int, ...]
    reduce: str
    asynchronous: bool
    zero: bool
    source: Location
    weights: tuple[str, ...] = ()
    added_at: tuple[Location, ...] = ()
    registered: bool = False
    settings: Mapping[str, Value] = field(default_factory=dict)
    """What it was given beside its ranks, as the members of its group must agree on."""


@dataclass(frozen=True, slots=True)
class Statement:
    """`outputs = call`, one line of a method."""

    outputs: tuple[str, ...]
    call: ast.Call
    source: Location
    tracked: bool = True
    """Whether autograd records it; False below `torch.no_grad()`."""


@dataclass(frozen=True, slots=True)
class Delete:
    """`del names`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """A statement that is not understood: what it gives the names `outputs` is unknown, and so is what else it does."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op: str
    """What it is, as an operator that no table has."""
    why: str
    source: Location
    acts: bool
    """Whether it may do something else than give those names values."""


@dataclass(frozen=True, slots=True)
class Method:
    """A segment, an adapter or a reducer's call; `reduces` names the reducer attribute of the last kind.

    `constants` are the returned names that stand for constants, and what they stand for.
    """

    name: str
    arguments: tuple[str, ...]
    body: tuple[Statement | Delete | Opaque, ...]
    returns: tuple[str, ...]
    source: Location
    returned_at: Location
    reduces: str = ""
    checkpointed: bool = False
    constants: Mapping[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Autograd:
    """A `torch.autograd.Function` of communications: an adapter whose backward is written out."""

    name: str
    forward: Method
    backward: Method


@dataclass(frozen=True, slots=True)
class Load:
    """The data loader gives one micro-batch."""

    loader: str
    outputs: tuple[str, ...]
    source: Location
    fields: tuple[tuple[int, tuple[Value, ...]], ...] = ()
    """What each output is of what the loader gives: its position there and the keys that lead to it; empty: the things."""


@dataclass(frozen=True, slots=True)
class Execute:
    """A method is run; `tracked` says that autograd records it (`requires_grad=True`)."""

    method: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    forward: bool
    tracked: bool
    source: Location
    skipped_at: Location | None = None
    """Where gradient reduction was switched off, where it still is when the method runs."""


@dataclass(frozen=True, slots=True)
class RunBackward:
    """Autograd is run from a segment's outputs to its inputs; an empty gradient stands for `None`."""

    segment: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    gradients: tuple[str, ...]
    results: tuple[str, ...]
    skips_reducer: bool
    source: Location


@dataclass(frozen=True, slots=True)
class Rename:
    """`new = old.detach()`."""

    new: str
    old: str


@dataclass(frozen=True, slots=True)
class ClearGradients:
    """`model.zero_grad()`; `skipped` when the flag before it says so."""

    skipped: bool
    source: Location


Action: TypeAlias = "Load | Execute | RunBackward | Rename | Delete | ClearGradients | Opaque"


@dataclass(slots=True)
class RankFile:
    """All that one generated file says."""

    source: Source
    operators: tuple[Declared, ...] = ()
    """The operators that the project declares."""
    rank: int = -1
    rank_source: Location | None = None
    version: str = ""
    prepared: bool = False
    """Whether `__init__` calls `_post_init`, which fills parameters."""
    micro_batches: int | None = None
    micro_batches_source: Location | None = None
    scheduled: bool | None = None
    """Whether the runtime gives a step all its micro-batches at once (`use_scheduler`)."""
    scheduled_source: Location | None = None
    groups: list[tuple[tuple[int, ...], Location]] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    reducers: dict[str, Reducer] = field(default_factory=dict)
    methods: dict[str, Method] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    """The code of each method."""
    autograd: dict[str, Autograd] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    opaque: list[Opaque] = field(default_factory=list)
    """Statements outside of methods that are not understood; the step begins with them."""
    unclear: bool = False
    """Whether anything in the file is not understood."""
    returned: tuple[str, ...] = ()
    returned_at: Location | None = None
    train_source: Location | None = None
    switches_reducers: bool = False
    """Whether the step sets `skip_reducer`; versions before 0.7 do not."""
    modules: set[str] = field(default_factory=set)
    modules_before_class: set[str] = field(default_factory=set)
    base_module: str = ""
    class_source: Location | None = None
    names: set[str] = field(default_factory=set)
    """Names that are assigned or are arguments somewhere."""

    @property
    def path(self) -> str:
        """Return the path of the file."""
        return self.source.path


def copied(file: RankFile) -> RankFile:
    """Return the records with lists, dictionaries and sets of their own; what they hold never changes."""
    found = copy(file)
    for each in fields(file):
        value = getattr(file, each.name)
        if isinstance(value, list | dict | set):
            setattr(found, each.name, value.copy())
    return found
