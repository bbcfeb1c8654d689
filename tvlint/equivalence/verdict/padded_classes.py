"""Losses of scores of which the last classes are minus infinity: those of the other classes alone.

Let the scores of classes from `n` on be minus infinity. A power of e is zero there, so that log-softmax over all classes is
that over the first `n`, and the loss of a row whose target is one of these, or ignored, is the loss of its first `n` scores. A
target that is none of them has an infinite loss in the one, and fails in the other: there is none where the reference has a
value. The gradient of a score that was replaced is zero, as is that of one that a slice leaves out. A smoothed loss has the
mean of all scores, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tvlint.analyses.dataflow.def_use import reads, stream_of, uses, writes
from tvlint.ir.operators import Backward, Compute, Literal, Operator
from tvlint.ir.plan import Plan, Segment, Tensor
from tvlint.ops.field import Array
from tvlint.ops.spec import Trait, UnsupportedError
from tvlint.ops.table import has_trait
from tvlint.replay.operators import NotReplayedError, forward

_MOST = 1 << 20
"""Constants of more numbers are not computed."""

_DIM = 1
"""The dimension of the classes, behind that of the rows."""


@dataclass(frozen=True, slots=True)
class _Padded:
    """What replaces scores, of which the first `count` classes are kept."""

    operator: Compute
    scores: str
    count: int


def without_padded_classes(plan: Plan) -> Plan:
    """Return the plan with slices in the place of what sets the last classes to minus infinity; itself where it has none."""
    operators = list(plan.operators())
    computed = [operator for operator in operators if isinstance(operator, Compute)]
    losses = [each for each in computed if has_trait(each.op, Trait.CLASS_LOSS)]
    made = {name for each in computed if has_trait(each.op, Trait.MASKING) for name in each.outputs}
    if made.isdisjoint(operand for loss in losses for operand in loss.inputs[:1] if isinstance(operand, str)):
        return plan
    if any(step.inputs is not None or step.outputs is not None for step in plan.steps()):
        return plan
    padded = [found for segment in plan.segments.values() for found in _found(plan, segment)]
    for found in padded[:1] if len({each.count for each in padded}) == 1 else ():
        alike = [each for each in padded if _is_the(found, each.operator)]
        everywhere = len(alike) == sum(_is_the(found, each) for each in computed)
        if everywhere and _is_read_by_losses_alone(plan, found, operators):
            plan = _with_slice(plan, found)
    return plan


def _found(plan: Plan, segment: Segment) -> Iterator[_Padded]:
    """Yield what sets the last classes of scores to minus infinity."""
    import numpy as np

    constant: dict[str, Array] = {}
    for operator in segment.operators:
        names = operator.tensor_operands if isinstance(operator, Compute) else []
        before = {name: constant[name] for name in names if name in constant}
        for name in writes(operator):
            constant.pop(name, None)
        if not isinstance(operator, Compute) or operator.in_place or len(operator.outputs) != 1 or stream_of(operator):
            continue
        (made,) = operator.outputs
        open_ = [name for name in names if name not in before]
        shape = plan.tensors[made].shape if made in plan.tensors else ()
        if not open_ and 0 < len(shape) <= _DIM + 1 and prod(shape) <= _MOST:
            found = _run(operator, [before[name] for name in names], shape)
            if found is not None:
                constant[made] = found
        if len(open_) != 1 or len(shape) != _DIM + 1 or not has_trait(operator.op, Trait.MASKING):
            continue
        others = [before[name] for name in names if name in before]
        rows = [array.shape[:-1] for array in others if array.shape[-1:] == (shape[_DIM],) and array.size == shape[_DIM]]
        if open_[0] not in plan.tensors or plan.tensors[open_[0]].shape != shape or len(rows) != len(others):
            continue
        given = [{**before, open_[0]: np.full((1, shape[_DIM]), number)} for number in (0.0, 1.0)]
        ways = [_run(operator, [arrays[name] for name in names], (1, shape[_DIM])) for arrays in given]
        count = 0 if ways[0] is None else int(np.isfinite(ways[0]).sum())
        right = [np.r_[np.full(count, number), np.full(shape[_DIM] - count, -np.inf)] for number in (0.0, 1.0)]
        kept = all(way is not None and np.array_equal(way[0], other) for way, other in zip(ways, right, strict=True))
        if 0 < count < shape[_DIM] and kept:
            yield _Padded(operator, open_[0], count)


def _run(operator: Compute, operands: list[Array], shape: tuple[int, ...]) -> Array | None:
    """Return what an operator makes of numbers; None where it has none."""
    try:
        return forward(operator, operands, [shape])[0]
    except (NotReplayedError, UnsupportedError, ValueError):
        return None


def _is_read_by_losses_alone(plan: Plan, found: _Padded, operators: list[Operator]) -> bool:
    """Return whether nothing reads the result but losses of classes, and nothing its gradient but that of the operator."""
    (name,) = found.operator.outputs
    gradients = {
        operator.outputs[0] for operator in operators if isinstance(operator, Backward) and _is_loss(operator.forward, name)
    }
    for operator in operators:
        ran = operator.forward if isinstance(operator, Backward) else operator
        if isinstance(ran, Compute) and _is_the(found, ran):
            if isinstance(operator, Backward) and not gradients.issuperset(operator.inputs):
                return False
            continue
        if isinstance(ran, Compute) and _is_loss(ran, name):
            if isinstance(operator, Backward) and not gradients.isdisjoint((*operator.inputs, *operator.outputs[1:])):
                return False
            continue
        if {name, *gradients}.intersection((*uses(operator), *writes(operator), *reads(operator))):
            return False
    return {name, *gradients}.isdisjoint(plan.outputs)


def _is_loss(operator: Compute, name: str) -> bool:
    smoothed = operator.attributes.get("label_smoothing")
    plain = len(operator.inputs) == 2 and all(isinstance(operand, str) for operand in operator.inputs) and not smoothed
    return plain and operator.inputs[0] == name != operator.inputs[1] and has_trait(operator.op, Trait.CLASS_LOSS)


def _is_the(found: _Padded, operator: Compute) -> bool:
    here = found.operator
    same = (operator.op, operator.inputs, operator.outputs) == (here.op, here.inputs, here.outputs)
    return same and operator.attributes == here.attributes


def _with_slice(plan: Plan, found: _Padded) -> Plan:
    """Return the plan with a slice of the scores in the place of the operator."""
    (name,) = found.operator.outputs
    cut = (found.scores, Literal(_DIM), Literal(0), Literal(found.count))
    names = found.operator.tensor_operands
    changed: dict[str, tuple[int, ...]] = {}

    def instead(operator: Operator) -> Operator:
        if isinstance(operator, Compute) and _is_the(found, operator):
            return replace(operator, op="torch.narrow", inputs=cut, attributes={}, annotation="")
        if isinstance(operator, Backward) and _is_the(found, operator.forward):
            given = operator.outputs[names.index(found.scores)] if operator.outputs else ""
            changed.update(dict.fromkeys(operator.inputs, ()))
            slice_ = replace(operator.forward, op="torch.narrow", inputs=cut, attributes={}, annotation="")
            return replace(operator, forward=slice_, outputs=(given,))
        return operator

    segments = plan.with_operators(instead)
    return replace(plan, segments=segments, tensors=_shortened(plan, {name, *changed}, found.count))


def _shortened(plan: Plan, names: set[str], count: int) -> Mapping[str, Tensor]:
    shapes = {name: plan.tensors[name].shape for name in names if name in plan.tensors}
    made = {
        name: replace(plan.tensors[name], shape=(*shape[:_DIM], count, *shape[_DIM + 1 :]), whole=None)
        for name, shape in shapes.items()
    }
    return {**plan.tensors, **made}
