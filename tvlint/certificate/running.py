"""Checking the programs of a plan, rank by rank: each operator against the relations that the certificate gives its results.

Ranks are checked apart from each other. What a rank receives is taken as the certificate says, and held against what was sent
once all ranks are through; `tvlint.certificate.order` shows that no rank waits for itself, so that nothing holds by circle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvlint.certificate.form import ABSENT, Derivation, Relation
from tvlint.certificate.multiples import agreed, plain
from tvlint.certificate.operators import World
from tvlint.certificate.placed import Inputs, input_of, parameter
from tvlint.certificate.sums import added, fold_of
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Communicate, Compute
from tvlint.ir.plan import Box, Plan, Role, Segment
from tvlint.ops.table import spec_of

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
    messages: dict[Hashable, dict[Hashable, list[Relation | None]]] = field(default_factory=dict)
    """By channel and end, what was sent (True) and what is said to be received (False)."""
    meetings: dict[Meeting, dict[int, list[Joining]]] = field(default_factory=dict)
    of: dict[str, list[str]] = field(default_factory=dict)
    """The tensors that a name is the gradient of."""
    weight_of: dict[str, str] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)
    """What the plan returns, by the names that it has inside segments."""
    gradient_names: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    memo: dict[Any, Any] = field(default_factory=dict)
    trails_used: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Rank:
    """One rank while it is checked: what is visible, what forward operators keep, and what is left of the step's trail."""

    number: int
    environment: dict[str, Relation] = field(default_factory=dict)
    gradients: dict[str, Relation] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    """The one name that the gradient of a weight has on this rank."""
    kept: dict[tuple[str, ...], Any] = field(default_factory=dict)
    replaced: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    """By the outputs of a forward operator, its operands that communication has changed since."""
    local: dict[str, Relation] = field(default_factory=dict)
    undefined: set[str] = field(default_factory=set)
    """Names that a collective may have written anything into; `lost` are those that are visible outside the step."""
    lost: set[str] = field(default_factory=set)
    missed: set[str] = field(default_factory=set)
    """Gradients that were read before anything made them; `lacking` are those that are visible outside the step."""
    lacking: set[str] = field(default_factory=set)
    draws: dict[tuple[str, tuple[int, ...]], list[Box]] = field(default_factory=dict)
    """For which elements random numbers were drawn, in order, by operator and operands."""
    trail: Iterator[int] = field(default_factory=lambda: iter(()))


def claim(run: Running, rank: Rank) -> Relation | None:
    """The next relation of the trail; None where it says that nothing was received."""
    number = next(rank.trail, None)
    if number is None:
        raise Rejected(f"the certificate has no relation for a result on rank {rank.number}")
    return None if number == ABSENT else run.world.tables.claimed(number)


def assign(run: Running, rank: Rank, name: str, value: Relation, replaces: bool, computed: bool) -> Relation:
    """Give `value` to `name` in the form that the certificate says, which must be the same; gradients add up."""
    said = _said(run, rank, name, value)
    hold(run, rank, name, said, replaces, computed)
    return said


def _said(run: Running, rank: Rank, name: str, value: Relation) -> Relation:
    said = claim(run, rank)
    if said is None or not agreed(run.world.tables, value, said):
        raise Rejected(f"`{name}` on rank {rank.number} is not what the certificate says it is")
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
    if not replaces and (name in rank.missed or (name in rank.lacking and name in run.weight_of)):
        raise Rejected(f"`{name}` is read on rank {rank.number} before it is made")
    if replaces and not computed and name not in run.of:
        for outputs, (own, _) in rank.kept.items():
            if name in own.inputs:
                rank.replaced.setdefault(outputs, set()).add(name)
    weight = run.weight_of.get(name)
    if weight is not None:
        if replaces and run.world.micro_batches:
            raise Rejected(f"the gradient `{name}` is replaced in every micro-batch, where it adds up")
        if rank.named.setdefault(weight, name) != name:
            raise Rejected(f"the gradient of `{weight}` has two names on rank {rank.number}: `{rank.named[weight]}`, `{name}`")
        rank.gradients[weight] = value if replaces else accumulated(run, rank, name, value, rank.gradients.get(weight))
    else:
        rank.local[name] = value if replaces else accumulated(run, rank, name, value, rank.local.get(name))


def accumulated(run: Running, rank: Rank, name: str, value: Relation, before: Relation | None) -> Relation:
    tensor = run.plan.tensors.get(name)
    gradient = name in run.gradient_names if tensor is None else tensor.role is Role.GRADIENT
    if before is not None and not gradient and name in run.weight_of:
        raise Rejected(f"the gradient `{name}` of a weight is made again, and is declared to be none")
    if before is None or not gradient:
        return value
    return _said(run, rank, name, added(run.world.tables, (before, value)))


def read(run: Running, rank: Rank, name: str) -> Relation | None:
    """What `name` holds; None for a gradient that nothing makes, which is zero."""
    tensor = run.plan.tensors.get(name)
    weight = run.weight_of.get(name)
    if name in rank.undefined:
        raise Rejected(f"`{name}` is used on rank {rank.number}, where a collective with another root leaves it undefined")
    if tensor is not None and tensor.role is Role.GRADIENT:
        if weight is not None and run.world.micro_batches:
            raise Rejected(f"the gradient `{name}` is read in every micro-batch, before it is complete")
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
    key = ("parameter", name, rank.number)
    if key not in run.memo:
        run.memo[key] = parameter(run.world, run.plan, run.plan.tensors[name], rank.number)
    found: Relation = run.memo[key]
    return found


def entered(run: Running, rank: Rank, name: str) -> Relation:
    """An input of the plan."""
    tensor = run.plan.tensors[name]
    number = run.numbers.get(tensor.logical or name, -1)
    if number < 0:
        raise Rejected(f"the input `{name}` has no counterpart")
    return input_of(run.world, run.plan, tensor, rank.number, run.inputs, number)


def incoming(run: Running, rank: Rank, name: str) -> Relation | None:
    """What a gradient operator is given as `name`: a gradient, or any other value; None for a gradient that nothing makes."""
    tensor = run.plan.tensors.get(name)
    given = tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER, Role.INPUT)
    other = tensor is not None and tensor.role is not Role.GRADIENT and name not in run.of
    return read(run, rank, name) if given or other else gradient(run, rank, name)


def gradient(run: Running, rank: Rank, name: str) -> Relation | None:
    """The gradient `name`; ones where it is that of the loss; None where nothing makes it."""
    if name in rank.undefined:
        raise Rejected(f"`{name}` is used on rank {rank.number}, where a collective with another root leaves it undefined")
    if name in rank.local:
        return rank.local[name]
    weight = run.weight_of.get(name, "")
    if weight in rank.gradients:
        if run.world.micro_batches:
            raise Rejected(f"the gradient `{name}` is read in every micro-batch, before it is complete")
        return rank.gradients[weight]
    rank.missed.add(name)
    returned = {run.plan.loss} if run.plan.loss else set(run.plan.outputs)
    for of in run.of.get(name, ()):
        result = rank.environment.get(run.shown.get(of, ""))
        value = rank.environment.get(of) or rank.local.get(of) or result
        if value is None:
            continue
        is_returned = of in returned or value is result
        if is_returned and value.parts and run.losses is not None and value.term not in run.losses:
            value = plain(run.world.tables, value)
        starts = is_returned if run.losses is None else value.term in run.losses
        if not starts and is_returned:
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


def load(run: Running, rank: Rank, segment: Segment, own: Compute) -> None:
    """Bring inputs in."""
    if any(isinstance(operand, str) for operand in own.inputs) or spec_of(own.op) is not None:
        raise Rejected(f"`{segment.name}` computes with what it loads, which the checker does not follow")
    for name in own.outputs:
        if name in run.plan.tensors and run.plan.tensors[name].role is Role.INPUT:
            rank.local[name] = entered(run, rank, name)
