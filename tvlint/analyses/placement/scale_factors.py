"""Scale factors of losses and gradients relative to the sum over all elements.

A mean over a shard is the sum over all ranks divided by what one rank holds; an average over ranks divides by their number; a
gradient has the factor of the loss that its backward starts from. Every micro-batch adds to the gradient of a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import prod

from tvlint.analyses.placement.domain import is_whole
from tvlint.analyses.placement.state import Scale, Walk
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Literal, ReduceGradients
from tvlint.ir.placement import Partial, Shard
from tvlint.ops.spec import ONE, Bound, Trait
from tvlint.ops.table import canonical_name, has_trait

_KEEPS = (Trait.CONVERSION, Trait.VIEW, Trait.DETACHED, Trait.RANGES, Trait.APART, Trait.JOIN)


def of_compute(walk: Walk, operator: Compute, bound: Bound | None) -> None:
    """The factor of the result: a sum or mean has one, and a number of those keeps or changes it."""
    name = canonical_name(operator.op)
    if has_trait(operator.op, *_KEEPS) or name == "add":
        _of_parts(walk, operator, name)
    if len(operator.outputs) != 1:
        return
    output = operator.outputs[0]
    tensors = [name for name in operator.inputs if isinstance(name, str)]
    literals = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    scale = walk.scales.get(tensors[0]) if tensors else None
    if scale is not None and len(tensors) == 1:
        if has_trait(operator.op, Trait.SCALING) and len(literals) == 1 and isinstance(operator.inputs[0], str):
            number = _fraction(literals[0])
            if number is not None:
                walk.scales[output] = replace(scale, factor=scale.factor * (number if name == "mul" else 1 / number))
        return
    if scale is not None and len(tensors) == 2 and name == "div" and tensors[1] in walk.scales:
        count = walk.scales[tensors[1]]
        complete = all(is_whole(walk.value(tensors[1]).on.get(axis)) for axis in walk.axes)
        if complete and prod(count.sizes) == prod(scale.sizes):
            walk.scales[output] = replace(scale, factor=scale.factor / (count.factor * prod(count.sizes)))
        return
    shape = walk.shape(output)
    if scale is None and bound is not None and shape is not None and prod(shape) == 1:
        _of_reduction(walk, bound, tensors, output)


def _of_parts(walk: Walk, operator: Compute, name: str) -> None:
    """What is put together from gradients of one factor, or taken out of them, has that factor too."""
    scales = [walk.scales.get(name) for name in operator.inputs if isinstance(name, str)]
    if not scales or scales[0] is None or scales.count(scales[0]) < len(scales) or (name == "add" and len(scales) < 2):
        return
    for output in operator.outputs:
        walk.scales[output] = scales[0]
        if any(name in walk.averaging for name in operator.inputs if isinstance(name, str)):
            walk.averaging.add(output)


def _of_reduction(walk: Walk, bound: Bound, tensors: Sequence[str], output: str) -> None:
    gone = bound.averaged | bound.reduced
    if not tensors or not bound.operands or not gone <= set(bound.operands[0]) or len(bound.outputs) != 1:
        return
    local, whole = walk.shape(tensors[0]), walk.whole(tensors[0])
    if local is None or whole is None or any(name not in gone | bound.whole | {ONE} for name in bound.operands[0]):
        return
    at = [position for position, name in enumerate(bound.operands[0]) if name in gone]
    averaged = prod(local[position] for position in at if bound.operands[0][position] in bound.averaged)
    if averaged:
        walk.scales[output] = Scale(Fraction(1, averaged), tensors[0], tuple(whole[position] for position in at))


def of_backward(walk: Walk, operator: Backward) -> None:
    """Gradients have the factor of the gradients they come from, or of the loss where there are none yet."""
    given = [name for name in operator.inputs if name]
    found = [walk.scales.get(name) for name in given]
    if len(given) == 1 and given[0] not in walk.producer and len(operator.forward.outputs) == 1:
        shape = walk.shape(operator.forward.outputs[0])
        if shape is not None and prod(shape) == 1:
            found = [walk.scales.get(operator.forward.outputs[0])]
    for name in operator.outputs:
        if not name:
            continue
        scale = found[0] if len(set(found)) == 1 else None
        if name in walk.producer and walk.scales.get(name) != scale:
            scale = None
        if scale is None:
            walk.scales.pop(name, None)
        else:
            walk.scales[name] = scale


def of_communicate(walk: Walk, operator: Communicate, axes: Sequence[str] | None) -> None:
    """A sum over ranks keeps the factor, an average divides by their number where parts are averaged."""
    for source, output in zip(operator.inputs, operator.outputs, strict=False):
        scale = walk.scales.get(source)
        if scale is None or axes is None or operator.kind not in (
            Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE, Collective.ALL_GATHER, Collective.BROADCAST,
            Collective.CHUNK,
        ):  # fmt: skip
            continue
        factor = _over(walk, source, axes, operator.reduce) if operator.reduce or operator.kind in _REDUCING else Fraction(1)
        if factor is not None:
            walk.scales[output] = replace(scale, factor=scale.factor * factor)
            if factor != 1:
                walk.averaging.add(output)


_REDUCING = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)


def _over(walk: Walk, name: str, axes: Sequence[str], reduce: str) -> Fraction | None:
    on = walk.value(name).on
    if reduce not in ("", "sum", "avg", "mean") or any(on.get(axis) is None for axis in axes if axis in walk.axes):
        return None
    if reduce not in ("avg", "mean"):
        return Fraction(1)
    return Fraction(1, prod(walk.plan.mesh.axis_size(axis) for axis in axes if isinstance(on.get(axis), Partial)))


def of_reducer(walk: Walk, operator: ReduceGradients, gradient: str, axes: Sequence[str] | None) -> None:
    """A reducer sums or averages and divides; to be asked before the gradient counts as reduced."""
    scale = walk.scales.pop(gradient, None)
    factor = None if axes is None or scale is None else _over(walk, gradient, axes, operator.reduce)
    if scale is None or factor is None or not operator.divisor:
        return
    factor /= operator.divisor
    if factor != 1:
        walk.averaging.add(gradient)
    walk.scales[gradient] = replace(scale, factor=scale.factor * factor)


def judge_loss(walk: Walk, name: str) -> None:
    """Says where a loss that is complete is another multiple of the mean than 1."""
    scale = walk.scales.get(name)
    if scale is None or not all(is_whole(walk.value(name).on.get(axis)) for axis in walk.axes):
        return
    batches = walk.plan.micro_batches
    ratio = _odd(walk, scale, {Fraction(1), Fraction(1, batches)})
    if ratio is not None:
        walk.say("wrong-loss-scale", name, "", "", scale.terms, _times(ratio))


def judge_gradient(walk: Walk, gradient: str, weight: str) -> None:
    """Says where the gradient that a weight is updated with is another multiple of that of the mean loss than 1."""
    scale, batches = walk.scales.get(gradient), walk.plan.micro_batches
    on, scattered = walk.value(gradient).on, walk.scattered.get(gradient, frozenset())
    complete = all(is_whole(on.get(axis)) or isinstance(on.get(axis), Shard) or axis in scattered for axis in walk.axes)
    if scale is None or not complete:
        return
    walk.judged[weight] = gradient, scale, walk.where
    ratio = _odd(walk, scale, {Fraction(1), Fraction(1, batches)})
    total = scale.factor * prod(scale.sizes)
    if ratio is None and batches > 1 and total == 1 and scale.factor != 1 and gradient in walk.averaging:
        ratio = Fraction(batches)
    if ratio is not None:
        walk.say("wrong-gradient-scale", gradient, "", "", weight, _times(ratio))


def judge_together(walk: Walk) -> None:
    """Says which gradients have another factor than most of those that start from the same loss, where nothing was said yet."""
    said = {defect.other for defect in walk.found if defect.rule == "wrong-gradient-scale"}
    losses: dict[tuple[str, tuple[int, ...]], dict[Fraction, list[str]]] = {}
    for weight, (_, scale, _) in walk.judged.items():
        losses.setdefault((scale.terms, scale.sizes), {}).setdefault(scale.factor, []).append(weight)
    for factors in losses.values():
        if len(factors) < 2 or said.intersection(weight for weights in factors.values() for weight in weights):
            continue
        usual, held = max(factors.items(), key=lambda item: (len(item[1]), -item[0]))
        for factor, weights in factors.items():
            for weight in weights if factor != usual else ():
                gradient, _, walk.where = walk.judged[weight]
                walk.say("wrong-gradient-scale", gradient, "", "", weight, _times(factor / usual), held[0])


def _odd(walk: Walk, scale: Scale, right: set[Fraction]) -> Fraction | None:
    """The ratio to the mean, where it is one by sizes of axes and is no mean or sum over whole dimensions."""
    chosen = [prod(part) for count in range(len(scale.sizes) + 1) for part in combinations(scale.sizes, count)]
    if any(scale.factor * size in right for size in chosen):
        return None
    ratio = scale.factor * prod(scale.sizes)
    sizes = [axis.size for axis in walk.plan.mesh.axes if axis.size > 1]
    if len(sizes) > 6 or len(scale.sizes) > 8:
        return None
    batches = walk.plan.micro_batches
    likely = {Fraction(prod(part)) for count in range(1, len(sizes) + 1) for part in combinations(sizes, count)}
    likely |= {one / other for one in (Fraction(1), *likely) for other in likely if one != other} | {Fraction(batches)}
    likely |= {Fraction(1, batches), Fraction(1, batches * batches)}
    likely |= {one / batches for one in likely}
    return ratio if ratio in likely else None


def _times(ratio: Fraction) -> str:
    return f"{ratio.numerator} times" if ratio.denominator == 1 else f"{ratio} of"


def _fraction(value: object) -> Fraction | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-30 < abs(value) < 1e30:
        return None
    return Fraction(value).limit_denominator(1 << 40)
