"""One training step of a plan, as numbers: its reduced gradients and its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oracle.functions import Array, FailureError, UndefinedError
from oracle.interpret import DeadlockError, Run
from oracle.pieces import box_of
from tvlint.ir.plan import Plan, Role

TOLERANCE = 1e-8


@dataclass(frozen=True, slots=True)
class Result:
    """What one training step computes."""

    gradients: dict[str, Array]
    losses: dict[str, float]
    left: dict[str, Array]
    """What weights and states become, by full name, where operators write them anew."""
    claims: tuple[str, ...] = ()
    """Statements of the plan that did not hold, though it ran."""


def run(
    plan: Plan,
    batch: dict[str, tuple[int, ...]],
    below: int = 4,
    seed: int = 0,
    buffered: bool = False,
    own_losses: bool = False,
) -> Result:
    """One training step of `plan`; `batch` gives the shapes of the whole data. Raises FailureError or DeadlockError.

    Integers in the data are under `below`. `buffered` lets sends complete without their receive. With `own_losses` each
    rank may return another loss, of which the mean is told.
    """
    state = Run(plan, batch, below, seed, buffered)
    ranks = {}
    for replica in range(plan.replication.count):
        for program in plan.programs:
            for rank in program.ranks:
                at = rank + replica * plan.replication.stride
                if at in ranks:
                    raise FailureError(f"rank {at} has two programs")
                ranks[at] = state.rank(at, replica, program.steps)
    with np.errstate(all="ignore"):
        _round_robin(state, ranks)
    for queues in state.channels.values():
        if any(queues.values()):
            raise FailureError("a communication is never completed")
    left = _left(state)
    return Result(_gradients(state, left), _losses(state, own_losses), left, tuple(sorted(state.claims)))


def _left(state: Run) -> dict[str, Array]:
    """What the ranks leave in weights and states, put together; elements that nothing writes are not numbers."""
    found: dict[str, Array] = {}
    for rank, names in state.held.items():
        for name in {*names, *state.left[rank]}:
            tensor = state.plan.tensors[name]
            anew = {state.plan.tensors[own].logical or own for held in state.left.values() for own in held}
            if tensor.role not in (Role.WEIGHT, Role.STATE) or (tensor.logical or name) not in anew:
                continue
            whole, box = box_of(tensor, state.plan, rank)
            target = found.setdefault(tensor.logical or name, np.full(whole, np.nan))
            place = tuple(slice(low, high) for low, high in box)
            own = state.left[rank].get(name)
            if own is None:
                raise FailureError(f"rank {rank} does not update `{name}`, and others do")
            known = target[place]
            if np.any(np.abs(known - own) > TOLERANCE * max(1.0, float(np.abs(own).max()))):
                raise FailureError(f"ranks leave different values in `{name}`")
            target[place] = own
    return found


def _round_robin(state: Run, ranks: dict[int, Iterator[None]]) -> None:
    waiting = dict(ranks)
    while waiting:
        before = (len(waiting), state.progress)
        for rank, execution in list(waiting.items()):
            if next(execution, "end") == "end":
                del waiting[rank]
        if waiting and before == (len(waiting), state.progress):
            raise DeadlockError(f"ranks {tuple(waiting)} wait forever")


def _losses(state: Run, own_losses: bool) -> dict[str, float]:
    total = 0.0
    for values in state.losses.values():
        if not all(np.all(np.isfinite(value)) for value in values):
            raise UndefinedError("the loss is not a number")
        if not own_losses and any(not np.allclose(value, values[0], rtol=TOLERANCE, atol=0) for value in values):
            raise FailureError("ranks disagree about the loss")
        total += float(np.sum(np.mean(values, axis=0)))
    return {"loss": total, "slots": len(state.losses)} if state.losses else {}


def _gradients(state: Run, left: dict[str, Array]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    covered: dict[str, Array] = {}
    for rank, names in state.held.items():
        for name in sorted(names):
            tensor = state.plan.tensors[name]
            if tensor.role is not Role.WEIGHT or (tensor.logical or name) in left:
                continue
            whole, box = box_of(tensor, state.plan, rank)
            logical, place = tensor.logical or name, tuple(slice(low, high) for low, high in box)
            known_gradient = {**state.accumulated[rank], **state.updated[rank]}.get(name)
            own = np.zeros(tensor.shape) if known_gradient is None else known_gradient
            target = found.setdefault(logical, np.zeros(whole))
            if target.shape != whole:
                raise FailureError(f"`{logical}` has two shapes")
            known = covered.setdefault(logical, np.zeros(whole, bool))
            scale = max(1e-30, float(np.abs(target).max()), float(np.abs(own).max()))
            if np.any(np.abs(target[place] - own)[known[place]] > TOLERANCE * scale):
                raise FailureError(f"ranks hold different gradients of `{logical}`")
            target[place], known[place] = own, True
    for logical, known in covered.items():
        if not known.all():
            raise FailureError(f"`{logical}` is not covered by the ranks")
    return found
