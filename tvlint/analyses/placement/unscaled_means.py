"""Averages over shards that are added up over ranks, and never divided by their number.

The mean over a shard is to be averaged over the ranks. Their sum does as well once it is divided by how many there are, before
or after; what takes it as it is, takes a multiple.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Collective, Communicate, Compute, Literal
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Role
from tvlint.ops.spec import Trait
from tvlint.ops.table import canonical_name, has_trait, is_nonlinear

_SUMS = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


def summed(walk: Walk, operator: Communicate, source: str, result: str, axes: Sequence[str]) -> None:
    """Notes that averages are added up over `axes`, unless they were divided before or are numbers of a loss."""
    averaged = [axis for axis in axes if walk.value(source).on.get(axis) == Partial("avg")]
    if operator.kind not in _SUMS or operator.reduce not in ("", "sum") or not averaged or prod(walk.shape(source) or ()) == 1:
        return
    times = walk.shares.get(source, Fraction(1)) * prod(walk.plan.mesh.axis_size(axis) for axis in averaged)
    if times != 1:
        made, kind = walk.producer.get(source), operator.kind.value
        walk.multiples[result] = times, Defect("wrong-reduce-op", walk.where, source, averaged[0], "P(avg)", kind, "sum", made)


def multiplied(walk: Walk, operator: Compute) -> None:
    """Follows such sums through divisions and shapes, and says where another function or a weight takes them as they are."""
    names = [name for name in operator.inputs if isinstance(name, str)]
    held = next((name for name in names if name in walk.multiples), "")
    if not held:
        return
    times, defect = walk.multiples[held]
    factors = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    if len(names) == 1 and has_trait(operator.op, Trait.VIEW, Trait.CONVERSION) and operator.outputs:
        walk.multiples[operator.outputs[0]] = times, defect
    elif len(names) == 1 and has_trait(operator.op, Trait.SCALING) and len(factors) == 1 and operator.inputs[0] == held:
        _scaled(walk, operator, factors[0], times, defect)
    elif _takes_as_is(walk, operator, names):
        walk.found.append(defect)


def _takes_as_is(walk: Walk, operator: Compute, names: Sequence[str]) -> bool:
    if len(names) == 1:
        return is_nonlinear(operator.op) or has_trait(operator.op, Trait.SUM)
    weights = [name for name in names if name in walk.plan.tensors and walk.plan.tensors[name].role is Role.WEIGHT]
    return has_trait(operator.op, Trait.CONTRACTION) and bool(weights)


def _scaled(walk: Walk, operator: Compute, factor: object, times: Fraction, defect: Defect) -> None:
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1e-30 < abs(factor) < 1e30:
        return
    number = Fraction(factor).limit_denominator(1 << 32)
    times = times * number if canonical_name(operator.op) == "mul" else times / number
    if times != 1:
        walk.multiples[operator.outputs[0]] = times, defect
