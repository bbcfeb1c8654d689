"""Model the training loop around generated code: it divides summed gradients where the loss is a mean."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from tvlint.ir.operators import Compute, Literal, ReduceGradients
from tvlint.ir.plan import Phase, Plan, Role
from tvlint.ops.spec import ONE, Bound, OpSpec, Trait
from tvlint.ops.table import call_in, spec_of

_PLAIN = frozenset({Trait.CONVERSION, Trait.VIEW})
_DEEPEST = 64


def with_loop(reference: Plan, parallel: Plan) -> Plan:
    """Return the reference as it is asked of generated code: nnScaler adds up what replicas and micro-batches have of a
    gradient.

    Where the loss is a mean, the loop divides by their number, or by that of micro-batches where reducers average.
    """
    ways = {operator.reduce for operator in parallel.operators_of(ReduceGradients)}
    count = parallel.micro_batches * (1 if ways == {"avg"} else parallel.replication.count)
    if count < 2 or (len(ways) > 1 and "avg" in ways):
        return reference
    return replace(reference, undivided=count) if loss_is_mean(reference) else reference


def loss_is_mean(reference: Plan) -> bool:
    """Return whether the loss is a sum of multiples of means over the batch, of zeros and of what no input reaches, by the
    operators that make it. What a mean over the batch, the first dimension, adds over others is no part of it.

    Such a sum of weights alone is the same in every part of the batch, and so is the mean of it over the parts.
    """
    losses = reference.losses or reference.outputs
    loss = losses[0] if len(losses) == 1 else ""
    forward = [part for part in reference.segments.values() if part.phase is Phase.FORWARD]
    makers = {
        name: operator
        for part in forward
        for operator in part.operators
        if isinstance(operator, Compute)
        for name in operator.outputs
    }
    reached = {name for name, tensor in reference.tensors.items() if tensor.role is Role.INPUT}
    before = -1
    while before < len(reached):
        before = len(reached)
        for maker in makers.values():
            if not reached.isdisjoint(maker.tensor_operands):
                reached.update(maker.outputs)
    return loss in reached and _is_mean(reference, makers, reached, loss, _DEEPEST)


def _is_mean(plan: Plan, makers: Mapping[str, Compute], reached: Set[str], name: str, depth: int) -> bool:
    if name not in reached:
        return True
    maker = makers.get(name)
    spec = spec_of(maker.op) if maker is not None else None
    if maker is None or spec is None or not depth:
        return False
    tensors = maker.tensor_operands
    multiplies = {Trait.SCALING, Trait.PRODUCT} <= spec.traits
    scaled = multiplies or (Trait.SCALING in spec.traits and isinstance(maker.inputs[0], str))
    if multiplies and any(isinstance(one, Literal) and one.value == 0 for one in maker.inputs):
        return True  # zero is any multiple of itself
    if spec.traits & _PLAIN or (scaled and len(tensors) == 1):
        return _is_mean(plan, makers, reached, tensors[0], depth - 1)
    if Trait.SUM in spec.traits and len(tensors) == 2:
        return all(_is_mean(plan, makers, reached, tensor, depth - 1) for tensor in tensors)
    bound = _bound(plan, maker, spec)
    if bound is None or not bound.operands:
        return False
    rows = [row for row in bound.operands[0] if row != ONE and row not in bound.whole]
    return rows[:1] != [] and rows[0] in bound.averaged and bound.averaged | bound.reduced == set(rows)


def _bound(plan: Plan, operator: Compute, spec: OpSpec) -> Bound | None:
    call = call_in(operator, plan.tensors)
    if call is None or any(name not in plan.tensors for name in operator.outputs):
        return None
    return spec.bound(replace(call, outputs=tuple(plan.tensors[name].shape for name in operator.outputs)))
