"""Divisors of expert gradients, compared with those of weights that all ranks share.

An expert has seen the tokens of every rank that dispatches to it, so its gradient is a sum over those ranks before it is
reduced over its own copies. Where the gradients of shared weights are divided by the number of all ranks with tokens, those
of experts have to be divided by that number too, and not by that of the copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from tvlint.analyses.dataflow.def_use import collectives, reads, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.mesh_axes import group_size
from tvlint.analyses.gradients.final_gradients import axes_apart
from tvlint.analyses.gradients.lifecycle import owners_of_gradients
from tvlint.analyses.gradients.optimizer_updates import weights_updated
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Literal, ReduceGradients
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Program, Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_SUMS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)
_AVERAGES = ("avg", "mean")


@dataclass(frozen=True, slots=True)
class Share:
    """At (`segment`, `index`) the gradient of `weight` is divided by `divisor`, that of `other` by `right`, over `axis` too."""

    weight: str
    divisor: Fraction
    other: str
    right: Fraction
    axis: str
    segment: str
    index: int


@dataclass(slots=True)
class _Reduced:
    """The reduction of one gradient so far: the axes, and the divisor (None: unknown)."""

    axes: frozenset[str] = frozenset()
    divisor: Fraction | None = field(default_factory=lambda: Fraction(1))
    where: tuple[str, int] = ("", -1)


def expert_shares(facts: Facts) -> Iterator[Share]:
    """Experts whose gradients are divided by another number than those of the shared weights, once each."""
    trading = _trading(facts)
    found = (share for program in facts.plan.programs if trading for share in _in_program(facts, program, trading))
    yield from first_of_each(found, lambda share: share.weight)


def _trading(facts: Facts) -> frozenset[str]:
    """Return the axes over which ranks exchange rows of which each has its own."""
    plan = facts.plan
    groups = [operator.group for operator in collectives(plan) if operator.kind is Collective.ALL_TO_ALL]
    inputs = [tensor.placements or {} for tensor in plan.tensors.values() if tensor.role is Role.INPUT]
    apart = {axis for group in groups for axis in axes_apart(facts, group)}
    return frozenset(axis for axis in apart if any(isinstance(on.get(axis), Shard) for on in inputs))


def _in_program(facts: Facts, program: Program, trading: frozenset[str]) -> Iterator[Share]:
    plan = facts.plan
    reduced = _reduced(facts, program)
    split = {
        name: frozenset(axis for axis, on in (plan.tensors[name].placements or {}).items() if isinstance(on, Shard))
        for name in reduced
    }
    for weight, each_reduced in reduced.items():
        for axis in sorted(split[weight] & trading - each_reduced.axes):
            others = {
                other: there
                for other, there in reduced.items()
                if not split[other] and there.axes == each_reduced.axes | {axis} and there.divisor is not None
            }
            if (
                each_reduced.divisor is None
                or not others
                or any(there.divisor == each_reduced.divisor for there in others.values())
            ):
                continue
            other, there = next(iter(others.items()))
            if there.divisor is not None:
                yield Share(weight, each_reduced.divisor, other, there.divisor, axis, *each_reduced.where)


def _reduced(facts: Facts, program: Program) -> dict[str, _Reduced]:
    """Return how the gradients of the weights that the program reduces or steps are reduced in the end."""
    owners, updated = owners_of_gradients(facts), weights_updated(facts)
    chains: dict[str, _Reduced] = {}
    found: dict[str, _Reduced] = {}
    for name, index, operator in facts.plan.run_by(program):
        if isinstance(operator, ReduceGradients):
            for weight in operator.weights:
                found[weight] = _over(facts, operator, found.get(weight, _Reduced()), (name, index))
            continue
        if isinstance(operator, Backward):
            for gradient in owners.keys() & set(writes(operator)):
                chains[gradient] = found[owners[gradient]] = _Reduced(where=(name, index))
            continue
        source = next((read for read in reads(operator) if read in chains), "")
        if not source or not isinstance(operator, Communicate | Compute):
            continue
        after = _after(facts, operator, chains[source], (name, index))
        for output in writes(operator):
            chains[output] = after
            if output in owners:
                found[owners[output]] = after
    return {weight: each for weight, each in found.items() if weight in facts.plan.tensors and (each.axes or weight in updated)}


def _after(facts: Facts, operator: Communicate | Compute, before: _Reduced, where: tuple[str, int]) -> _Reduced:
    """Return what is known of a gradient after one operator."""
    if isinstance(operator, Communicate):
        if operator.kind not in _SUMS:
            return before
        divisor = group_size(facts.plan, operator.group) if operator.reduce in _AVERAGES else 1
        total = None if before.divisor is None else before.divisor * divisor
        return _Reduced(before.axes | axes_apart(facts, operator.group), total, where)
    constants = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    if has_trait(operator.op, Trait.CONVERSION, Trait.VIEW) and len(operator.inputs) - len(constants) == 1:
        return before
    factor = constants[0] if len(constants) == 1 and len(operator.inputs) == 2 else None
    if not has_trait(operator.op, Trait.SCALING) or isinstance(factor, bool) or not isinstance(factor, int | float):
        return _Reduced(before.axes, None, where)
    if not 1e-30 < abs(factor) < 1e30 or before.divisor is None or not isinstance(operator.inputs[0], str):
        return _Reduced(before.axes, None, where)
    number = Fraction(factor).limit_denominator(1 << 32)
    times = has_trait(operator.op, Trait.PRODUCT)
    return _Reduced(before.axes, before.divisor / number if times else before.divisor * number, where)


def _over(facts: Facts, operator: ReduceGradients, before: _Reduced, where: tuple[str, int]) -> _Reduced:
    replicas = facts.plan.replication
    axes, size = axes_apart(facts, operator.group), group_size(facts.plan, operator.group)
    if operator.replicated and replicas.count > 1:
        axes, size = axes | {replicas.axis}, size * replicas.count
    divisor = before.divisor * operator.divisor if before.divisor is not None and operator.divisor else None
    if divisor is not None and operator.reduce in _AVERAGES:
        divisor *= size
    return _Reduced(before.axes | axes, divisor, where)
