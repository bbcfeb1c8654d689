"""Placements of gradients where weights are updated, and of all that a program gives at its end."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tvlint.analyses.placement.axes import DATA_AXES, batch_axes
from tvlint.analyses.placement.domain import On, Placed, Shuffled, is_whole, words
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import ReduceGradients, Update
from tvlint.ir.placement import Invariant, Partial, Replicate, Shard
from tvlint.ir.plan import Plan, Role


def reduce(walk: Walk, operator: ReduceGradients) -> None:
    """Completes gradients over the axes of a reducer."""
    axes = walk.axes_of(operator.group)
    if axes is not None and operator.replicated and walk.plan.replication.count > 1:
        axes = (*axes, walk.plan.replication.axis)
    for weight in operator.weights:
        for gradient in _gradients_of(walk, weight):
            walk.values[gradient] = Placed(_reduced(walk, operator, gradient, weight, axes), walk.value(gradient).origin)
            if operator.scatter:
                walk.scattered[gradient] = frozenset(axes or ())


def _reduced(walk: Walk, operator: ReduceGradients, gradient: str, weight: str, axes: tuple[str, ...] | None) -> dict[str, On]:
    value = walk.value(gradient)
    on = dict(value.on) if axes is not None else {}
    for axis in axes or ():
        if axis not in walk.axes:
            continue
        placement = value.on.get(axis)
        scale = operator.divisor in (0, walk.plan.mesh.axis_size(axis)) or operator.divisor > 1
        if is_whole(placement) and operator.reduce == "sum" and not scale:
            walk.say("doubled-gradient-reduction", gradient, axis, other=weight)
        elif isinstance(placement, Shard) or (placement is None and not operator.scatter and _is_split(walk, weight, axis)):
            walk.say("allreduce-of-shards", gradient, axis, "reduce-gradients", "sum")
        elif isinstance(placement, Partial) and operator.reduce not in ("sum", "avg", "mean"):
            walk.say("wrong-reduce-op", gradient, axis, "reduce-gradients", operator.reduce)
        on[axis] = None if operator.scatter else Replicate()
    return on


def _is_split(walk: Walk, weight: str, axis: str) -> bool:
    """Return whether every rank of the axis has another piece of the weight, so that its gradient is none to be added up."""
    placement = walk.value(weight).on.get(axis)
    gradient, tensor = walk.plan.tensors.get(walk.plan.tensors[weight].gradient), walk.plan.tensors[weight]
    return isinstance(placement, Shard) and (gradient is None or gradient.shape == tensor.shape)


def update(walk: Walk, operator: Update) -> None:
    """Says which weights are updated with gradients that are pieces of another shard."""
    for weight in operator.weights:
        placed = walk.value(weight)
        for gradient in _final(walk, weight):
            value = walk.value(gradient)
            for axis in walk.axes:
                has, against = value.on.get(axis), placed.on.get(axis)
                if isinstance(has, Shard) and (
                    (isinstance(against, Shard) and has.dim != against.dim)
                    or (is_whole(against) and _swapped(walk, value.on, placed.on))
                ):
                    walk.say("gradient-sharded-unlike-weight", gradient, axis, words(against), weight)


def _swapped(walk: Walk, gradient: Mapping[str, On], weight: Mapping[str, On]) -> bool:
    """Return whether the weight is split over an axis on which its gradient is whole."""
    return any(isinstance(weight.get(axis), Shard) and is_whole(gradient.get(axis)) for axis in walk.axes)


def ends(walk: Walk) -> None:
    """Says what is wrong with the outputs, the loss and the gradients of values that are declared invariant."""
    names = walk.facts.derived("batch axes", lambda: batch_axes(walk.plan))
    for name in walk.plan.outputs:
        value, tensor = walk.values.get(name), walk.plan.tensors.get(name)
        if value is None or name not in walk.producer:
            continue
        walk.where = walk.producer[name]
        if tensor is not None and tensor.placements is not None:
            continue
        for axis in walk.axes:
            if isinstance(value.on.get(axis), Shuffled):
                walk.say("pieces-not-in-rank-order", name, axis, "output", "in order")
            if not isinstance(value.on.get(axis), Partial):
                continue
            if not _is_of_weight(walk, name) and axis not in (names if _is_number(walk, name) else DATA_AXES):
                walk.say("missing-allreduce", name, axis, other="output")
    _invariants(walk)


def _is_number(walk: Walk, name: str) -> bool:
    shape = walk.shape(name)
    return shape is not None and prod(shape) == 1


def _is_of_weight(walk: Walk, name: str) -> bool:
    tensor = walk.plan.tensors.get(walk.gradients.get(name, ""))
    return tensor is not None and tensor.role is Role.WEIGHT


def invariant_tensors(plan: Plan) -> tuple[str, ...]:
    """The tensors that are declared invariant over some axis."""
    return tuple(
        name
        for name, tensor in plan.tensors.items()
        if any(isinstance(placement, Invariant) for placement in (tensor.placements or {}).values())
    )


def _invariants(walk: Walk) -> None:
    """An invariant value has the same gradient on every rank: its partial gradients have to be summed."""
    for name in walk.facts.derived("invariant tensors", lambda: invariant_tensors(walk.plan)):
        tensor = walk.plan.tensors[name]
        if tensor.role is Role.WEIGHT:
            continue
        gradients = _gradients_of(walk, name)
        for axis, placement in (tensor.placements or {}).items():
            if not isinstance(placement, Invariant) or axis not in walk.axes:
                continue
            lies = {gradient: walk.value(gradient).on.get(axis) for gradient in gradients}
            if any(is_whole(on) for on in lies.values()):
                continue
            left = [gradient for gradient, on in lies.items() if isinstance(on, Partial) and gradient not in walk.used]
            if left:
                walk.where = walk.producer[left[0]]
                walk.say("missing-gradient-reduction", left[0], axis, "invariant", name)


def _gradients_of(walk: Walk, weight: str) -> list[str]:
    known = walk.facts.derived("gradients by tensor", lambda: _by_owner(walk.gradients))
    return [name for name in known.get(weight, ()) if name in walk.producer]


def _by_owner(gradients: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, owner in gradients.items():
        found.setdefault(owner, []).append(name)
    return found


def _final(walk: Walk, weight: str) -> list[str]:
    """The gradients that a weight is updated with: the one it names, else those that no other operator takes further."""
    named = walk.plan.tensors[weight].gradient if weight in walk.plan.tensors else ""
    if named in walk.producer and named not in walk.used:
        return [named]
    return [name for name in _gradients_of(walk, weight) if name not in walk.used]
