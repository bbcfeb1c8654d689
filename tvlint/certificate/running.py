"""Checking the programs of a plan, rank by rank: each operator against the relations that the certificate gives its results.

Ranks are checked apart from each other. What a rank receives is taken as the certificate says, and held against what was sent
once all ranks are through; `tvlint.certificate.order` shows that no rank waits for itself, so that nothing holds by circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvlint.certificate.exchange import DECLARED_PIECE_ORDER, exchanged, piece
from tvlint.certificate.form import ABSENT, Derivation, Relation
from tvlint.certificate.multiples import agreed
from tvlint.certificate.operators import World
from tvlint.certificate.placed import Inputs, input_of, members_of, parameter, peer_of, spans_replicas
from tvlint.certificate.sums import added, fold_of
from tvlint.certificate.tables import Rejected
from tvlint.ir.plan import Collective, Communicate, Compute, Plan, Receive, Role, Segment, Send, Step
from tvlint.ops.elementwise import holds_whole_numbers
from tvlint.ops.table import spec_of

_FROM_ROOT = (Collective.BROADCAST, Collective.SCATTER)
_TO_ROOT = (Collective.GATHER, Collective.REDUCE)

Channel: TypeAlias = "tuple[int, int, str]"
Meeting: TypeAlias = "tuple[tuple[int, ...], str, bool]"


@dataclass(frozen=True, slots=True)
class Joining:
    """One member's part in a collective: what it puts in (None: nothing, or a gradient that is zero) and has afterwards."""

    operator: Communicate
    given: Relation | None
    had: Relation | None


@dataclass(slots=True)
class Running:
    """The check of one plan.

    `losses` are the terms from which gradients start; None while the reference itself is checked.
    """

    world: World
    plan: Plan
    derivation: Derivation
    trails: tuple[tuple[int, ...], ...]
    inputs: Inputs
    numbers: dict[str, int]
    losses: frozenset[int] | None
    dtypes: dict[int, str]
    assume: frozenset[str]
    seeded: set[int] = field(default_factory=set)
    used: set[tuple[int, str]] = field(default_factory=set)
    assumptions: set[str] = field(default_factory=set)
    environments: dict[int, dict[str, Relation]] = field(default_factory=dict)
    gradients: dict[int, dict[str, Relation]] = field(default_factory=dict)
    sent: dict[Channel, list[Relation | None]] = field(default_factory=dict)
    received: dict[Channel, list[Relation | None]] = field(default_factory=dict)
    meetings: dict[Meeting, dict[int, list[Joining]]] = field(default_factory=dict)
    of: dict[str, list[str]] = field(default_factory=dict)
    """The tensors that a name is the gradient of."""
    weight_of: dict[str, str] = field(default_factory=dict)
    gradient_names: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    memo: dict[Any, Any] = field(default_factory=dict)
    parameters: dict[tuple[str, int], Relation] = field(default_factory=dict)
    trails_used: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Rank:
    """One rank while it is checked: what is visible, what forward operators keep, and what is left of the step's trail."""

    number: int
    environment: dict[str, Relation] = field(default_factory=dict)
    gradients: dict[str, Relation] = field(default_factory=dict)
    kept: dict[tuple[str, ...], Any] = field(default_factory=dict)
    local: dict[str, Relation] = field(default_factory=dict)
    undefined: set[str] = field(default_factory=set)
    """Names that a collective may have written anything into; `lost` are those that are visible outside the step."""
    lost: set[str] = field(default_factory=set)
    trail: Iterator[int] = field(default_factory=lambda: iter(()))


def claim(run: Running, rank: Rank) -> Relation | None:
    """The next relation of the trail; None where it says that nothing was received."""
    number = next(rank.trail, None)
    if number is None:
        raise Rejected(f"the certificate has no relation for a result on rank {rank.number}")
    return None if number == ABSENT else run.world.tables.claimed(number)


def assign(run: Running, rank: Rank, name: str, value: Relation, replaces: bool, computed: bool) -> Relation:
    """Give `value` to `name` in the form that the certificate says, which must be the same; gradients add up."""
    said = claim(run, rank)
    if said is None or not agreed(run.world.tables, value, said):
        raise Rejected(f"`{name}` on rank {rank.number} is not what the certificate says it is")
    hold(run, rank, name, said, replaces, computed)
    return said


def hold(run: Running, rank: Rank, name: str, value: Relation, replaces: bool, computed: bool) -> None:
    """Give `value` to `name` when it was compared, or when it is a claim that is compared later."""
    tensor = run.plan.tensors.get(name)
    if tensor is not None:
        if tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE) or (tensor.role is Role.INPUT and computed):
            raise Rejected(f"the {tensor.role.value} `{name}` is overwritten")
        if tensor.shape != run.world.local_shape(value):
            raise Rejected(f"`{name}` is declared {tensor.shape} and gets {run.world.local_shape(value)}")
        if tensor.dtype and run.dtypes.setdefault(value.term, tensor.dtype) != tensor.dtype:
            raise Rejected(f"`{name}` is {tensor.dtype} where the same value is {run.dtypes[value.term]}")
    if name in rank.undefined and not replaces and (name in run.gradient_names or name in run.of):
        raise Rejected(f"`{name}` is added to on rank {rank.number}, where a collective with another root leaves it undefined")
    rank.undefined.discard(name)
    weight = run.weight_of.get(name)
    if weight is not None:
        if replaces and run.world.micro_batches:
            raise Rejected(f"the gradient `{name}` is replaced in every micro-batch, where it adds up")
        rank.gradients[weight] = value if replaces else accumulated(run, rank, name, value, rank.gradients.get(weight))
    else:
        rank.local[name] = value if replaces else accumulated(run, rank, name, value, rank.local.get(name))


def accumulated(run: Running, rank: Rank, name: str, value: Relation, before: Relation | None) -> Relation:
    tensor = run.plan.tensors.get(name)
    gradient = name in run.gradient_names if tensor is None else tensor.role is Role.GRADIENT
    if before is None or not gradient:
        return value
    total = added(run.world.tables, (before, value))
    said = claim(run, rank)
    if said is None or not agreed(run.world.tables, total, said):
        raise Rejected(f"what adds up in `{name}` on rank {rank.number} is not what the certificate says")
    return said


def read(run: Running, rank: Rank, name: str) -> Relation | None:
    """What `name` holds; None for a gradient that nothing makes, which is zero."""
    tensor = run.plan.tensors.get(name)
    weight = run.weight_of.get(name)
    if name in rank.undefined:
        raise Rejected(f"`{name}` is used on rank {rank.number}, where a collective with another root leaves it undefined")
    if tensor is not None and tensor.role is Role.GRADIENT:
        if weight is not None and run.world.micro_batches:
            raise Rejected(f"the gradient `{name}` is read in every micro-batch, before it is complete")
        if weight is not None and weight in rank.gradients:
            return rank.gradients[weight]
        return gradient(run, rank, name)
    if name in rank.local:
        return rank.local[name]
    if tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER):
        return held(run, rank, name)
    if tensor is not None and tensor.role is Role.INPUT and name not in run.loaded:
        return entered(run, rank, name)
    raise Rejected(f"`{name}` is used on rank {rank.number}, and nothing makes it before")


def held(run: Running, rank: Rank, name: str) -> Relation:
    """A weight or buffer of the rank."""
    run.used.add((rank.number, name))
    key = (name, rank.number)
    if key not in run.parameters:
        run.parameters[key] = parameter(run.world, run.plan, run.plan.tensors[name], rank.number)
    return run.parameters[key]


def entered(run: Running, rank: Rank, name: str) -> Relation:
    """An input of the plan."""
    tensor = run.plan.tensors[name]
    number = run.numbers.get(name, run.numbers.get(tensor.logical, -1))
    if number < 0:
        raise Rejected(f"the input `{name}` has no counterpart")
    return input_of(run.world, run.plan, tensor, rank.number, run.inputs, number)


def gradient(run: Running, rank: Rank, name: str) -> Relation | None:
    """The gradient `name`; ones where it is that of the loss; None where nothing makes it."""
    if name in rank.undefined:
        raise Rejected(f"`{name}` is used on rank {rank.number}, where a collective with another root leaves it undefined")
    if name in rank.local:
        return rank.local[name]
    returned = {run.plan.loss} if run.plan.loss else set(run.plan.outputs)
    for of in run.of.get(name, ()):
        value = rank.environment.get(of) or rank.local.get(of)
        if value is None:
            continue
        starts = of in returned if run.losses is None else value.term in run.losses
        if not starts and of in returned:
            raise Rejected(f"gradients start from `{of}`, which is not what the reference starts from")
        if not starts:
            continue
        if fold_of(value) is not None:
            raise Rejected(f"gradients start from `{of}`, which is no part of a sum")
        run.seeded.add(value.term)
        tables = run.world.tables
        own = tables.terms[value.term]
        seed = tables.relation(tables.term(("one", own.shape, own.slot), (), own.shape, own.slot), value.box)
        tensor = run.plan.tensors.get(name)
        if tensor is not None and tensor.shape != run.world.local_shape(seed):
            raise Rejected(f"gradients start from `{name}` of shape {tensor.shape}")
        return seed
    return None


def communicate(run: Running, rank: Rank, own: Communicate) -> None:
    """Take part in a collective; what comes out is a claim until all members are known."""
    members = members_of(run.plan, own.group, rank.number)
    gives = own.kind not in _FROM_ROOT or own.root == rank.number
    gets = own.kind not in _TO_ROOT or own.root == rank.number
    if rank.number not in members or len(own.inputs) > 1 or len(own.outputs) > 1 or (gives and not own.inputs):
        raise Rejected(f"rank {rank.number} takes part in a collective of others, or with several tensors")
    if holds_whole_numbers(own.dtype) and any(
        name in run.plan.tensors and run.plan.tensors[name].dtype != own.dtype for name in own.inputs
    ):
        raise Rejected(f"numbers are communicated as {own.dtype}")
    if run.world.micro_batches and any(name in run.weight_of for name in own.outputs):
        raise Rejected("the gradient of a weight is reduced in every micro-batch")
    given = read(run, rank, own.inputs[0]) if gives else None
    spans = spans_replicas(run.plan, own.group)
    declared = DECLARED_PIECE_ORDER in run.assume
    if own.kind is Collective.CHUNK:
        if given is None or not own.outputs or own.splits or spans:
            raise Rejected(f"a cut on rank {rank.number} is not of one tensor into equal pieces")
        if own.dim is None or not -len(given.box) <= own.dim < len(given.box):
            raise Rejected(f"a cut on rank {rank.number} is along a dimension that the tensor does not have")
        dim = own.dim % len(given.box)
        position = members.index(rank.number)
        if declared:
            position = _declared(run, own.outputs[0], given.box[dim], dim, len(given.box), len(members), position)
        made = piece(run.world, given, dim, position, len(members))
        assign(run, rank, own.outputs[0], made, own.outputs[0] in own.inputs, False)
        return
    nothing = (gives and given is None) or not gets or not own.outputs
    if not gets and any(name in run.weight_of for name in own.outputs):
        raise Rejected(f"rank {rank.number} is left with an undefined gradient of a weight")
    for name in own.outputs if not gets else ():
        rank.local.pop(name, None)
        rank.undefined.add(name)
    had = None if nothing else claim(run, rank)
    if had is None and not nothing:
        raise Rejected(f"a collective on rank {rank.number} is said to give nothing")
    if had is not None:
        hold(run, rank, own.outputs[0], had, own.outputs[0] in own.inputs, False)
    meeting = (members, own.group.name, spans)
    run.meetings.setdefault(meeting, {}).setdefault(rank.number, []).append(Joining(own, given, had))


def _declared(run: Running, name: str, bounds: tuple[int, int], dim: int, dims: int, count: int, position: int) -> int:
    """The piece that the plan declares, where that is assumed."""
    tensor, (low, high) = run.plan.tensors.get(name), bounds
    if tensor is None or tensor.region is None or len(tensor.region) != dims:
        return position
    start = tensor.region[dim][0] - low
    return next((i for i in range(count) if start * count == (high - low) * i), position)


def send(run: Running, rank: Rank, own: Send) -> None:
    peer = peer_of(run.plan, own.peer, rank.number)
    if peer is not None:
        run.sent.setdefault((rank.number, peer, own.communicator), []).append(read(run, rank, own.tensor))


def receive(run: Running, rank: Rank, own: Receive) -> None:
    """Take a message, as the certificate says it is."""
    peer = peer_of(run.plan, own.peer, rank.number)
    if peer is None:
        return
    if own.tensor in rank.local or run.weight_of.get(own.tensor, "") in rank.gradients:
        raise Rejected(f"`{own.tensor}` is received on rank {rank.number} and has a value already")
    value = claim(run, rank)
    run.received.setdefault((peer, rank.number, own.communicator), []).append(value)
    if value is not None:
        hold(run, rank, own.tensor, value, True, False)


def settle(run: Running) -> None:
    """What was received is what was sent, and what collectives gave follows from what was put in."""
    for channel in {*run.sent, *run.received}:
        sent, received = run.sent.get(channel, []), run.received.get(channel, [])
        if len(sent) != len(received) or any(one is not other for one, other in zip(sent, received, strict=True)):
            raise Rejected(f"what rank {channel[1]} receives is not what rank {channel[0]} sends")
    for (members, _, spans), joinings in run.meetings.items():
        if set(joinings) != set(members) or len({len(own) for own in joinings.values()}) != 1:
            raise Rejected(f"the members of the group {list(members)} take part in different numbers of collectives")
        for turn in zip(*(joinings[member] for member in members), strict=True):
            _meet(run, members, turn, spans)


def _meet(run: Running, members: tuple[int, ...], turn: Sequence[Joining], spans: bool) -> None:
    first = turn[0].operator
    if any(_manner(own.operator) != _manner(first) for own in turn):
        raise Rejected(f"the members of the group {list(members)} run different collectives together")
    rooted = first.kind in _FROM_ROOT or first.kind in _TO_ROOT
    if rooted and first.root not in members:
        raise Rejected(f"the root {first.root} of a collective is not in the group {list(members)}")
    root = members.index(first.root) if rooted and first.root is not None else 0
    given = [turn[root] if first.kind in _FROM_ROOT else own for own in turn]
    if all(own.given is None for own in given) and all(own.had is None for own in turn):
        return
    put = [own.given for own in given if own.given is not None]
    if len(put) != len(turn):
        raise Rejected(f"some members of the group {list(members)} have nothing to put in")
    declared = DECLARED_PIECE_ORDER in run.assume
    key = ("exchange", _manner(first), spans, root, tuple(map(id, put)))
    results = run.memo.get(key)
    if results is None:
        results = run.memo[key] = exchanged(run.world, run.plan, first, put, root, spans, declared)
    for own, result in zip(turn, results, strict=True):
        if own.had is not None and (result is None or not agreed(run.world.tables, result, own.had)):
            raise Rejected(f"what a collective of the group {list(members)} gives is not what the certificate says")


def _manner(own: Communicate) -> tuple[object, ...]:
    """What the members of a collective have to agree on."""
    return own.kind, own.dim, own.concat_dim, own.root, own.reduce or "sum", own.splits, own.receive_splits, own.dtype


def load(run: Running, rank: Rank, segment: Segment, own: Compute) -> None:
    """Bring inputs in."""
    if any(isinstance(operand, str) for operand in own.inputs) or spec_of(own.op) is not None:
        raise Rejected(f"`{segment.name}` computes with what it loads, which the checker does not follow")
    for name in own.outputs:
        if name in run.plan.tensors and run.plan.tensors[name].role is Role.INPUT:
            rank.local[name] = entered(run, rank, name)


def bound_names(segment: Segment, step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names by which a step's inputs and outputs are known outside."""
    inputs = segment.inputs if step.inputs is None else step.inputs
    return inputs, segment.outputs if step.outputs is None else step.outputs
