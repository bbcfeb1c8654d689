"""Optimizer steps that are written out as an operator: weight, gradient and state have to be of one shard."""

from __future__ import annotations

from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.analyses.placement.domain import words
from tvlint.analyses.placement.state import Walk
from tvlint.ir.operators import Compute
from tvlint.ir.placement import Shard
from tvlint.ir.plan import Role


def states(walk: Walk, operator: Compute) -> None:
    """Says where operands of one optimizer step, or a state and what it is combined with, are pieces of different shards."""
    names = [name for name in operator.inputs if isinstance(name, str)]
    tensors = [walk.plan.tensors[name] for name in names if name in walk.plan.tensors]
    held = [tensor for tensor in tensors if tensor.role is Role.STATE]
    if not is_step(operator):
        return
    others = [tensor for tensor in tensors if tensor.role in (Role.WEIGHT, Role.GRADIENT, Role.STATE)]
    for state in held:
        for other in others:
            if other.name == state.name or len(other.shape) != len(state.shape):
                continue
            if state.region is not None and other.region is not None and state.whole == other.whole:
                if state.region != other.region:
                    lies = _box(state.region), _box(other.region)
                    walk.say("state-of-another-shard", state.name, "", operator.op, other.name, *lies)
                    return
                continue
            factored = 1 in (*state.shape, *other.shape) or len(state.shape) < 2 or len(held) + 2 < len(names)
            if other.role is Role.WEIGHT and not factored and state.shape != other.shape:
                lies = f"of {list(state.shape)}", f"of {list(other.shape)}"
                walk.say("state-of-another-shard", state.name, "", operator.op, other.name, *lies)
                return
            for axis in walk.axes:
                placement, against = walk.value(state.name).on.get(axis), walk.value(other.name).on.get(axis)
                if isinstance(placement, Shard) and isinstance(against, Shard) and placement != against:
                    walk.say(
                        "state-of-another-shard", state.name, axis, operator.op, other.name, words(placement), words(against)
                    )
                    return


def _box(region: tuple[tuple[int, int], ...]) -> str:
    return "[" + ",".join(f"{low}:{high}" for low, high in region) + "]"
