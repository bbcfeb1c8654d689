"""Gradients are final when they are reduced, and weights are no longer needed when they are updated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tvlint.analyses.dataflow.def_use import has
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.analyses.relations.defect import Trouble, at
from tvlint.ir.operators import Backward, Communicate, Compute, Operator, Receive, ReduceGradients, Send, Update
from tvlint.ir.plan import Plan, Program, Role, Step

_ENDS = frozenset({ReduceGradients, Update})


@dataclass(frozen=True, slots=True)
class _Touches:
    """What one operator does to weights: reduces, updates, adds to their gradients, or reads them or their gradients."""

    operator: Operator
    reduces: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    """The weights whose gradients it reads."""


class Finals:
    """The touches of the segments that run after a reducer or an update, each found once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ending = frozenset(name for name, segment in plan.segments.items() if has(segment.operators, _ENDS))
        self._known: dict[str, tuple[_Touches, ...]] = {}

    @cached_property
    def _weights(self) -> set[str]:
        return {name for name, tensor in self._plan.tensors.items() if tensor.role is Role.WEIGHT}

    @cached_property
    def _owner(self) -> dict[str, str]:
        return weight_gradients(self._plan)

    def _touches_of(self, segment: str) -> tuple[_Touches, ...]:
        if segment not in self._known:
            touches = (self._touches(own) for own in self._plan.segments[segment].operators)
            self._known[segment] = tuple(touch for touch in touches if touch is not None)
        return self._known[segment]

    def _touches(self, operator: Operator) -> _Touches | None:
        if isinstance(operator, ReduceGradients):
            return _Touches(operator, reduces=operator.weights)
        if isinstance(operator, Update):
            return _Touches(operator, updates=operator.weights)
        inputs, outputs = _names(operator)
        adds = tuple(self._owner[name] for name in outputs if name in self._owner)
        takes = tuple(self._owner[name] for name in inputs if name in self._owner)
        reads = tuple(name for name in inputs if name in self._weights)
        return _Touches(operator, adds=adds, reads=reads, takes=takes) if adds or takes or reads else None

    def troubles(self, program: Program) -> Iterator[Trouble]:
        """Weights that are reduced before their gradients are complete, or updated before their last use.

        What runs before the first reducer or update is too early for neither.
        """
        reduced: dict[str, tuple[str, Operator]] = {}
        updated: dict[str, tuple[str, Operator]] = {}
        told = set()
        first = next((i for i, step in enumerate(program.steps) if step.segment in self._ending), len(program.steps))
        steps = program.steps[first:]
        means = self._means(steps)
        for step in steps:
            for touch in self._touches_of(step.segment):
                for name in touch.adds:
                    if name in reduced and name not in told:
                        told.add(name)
                        where, reducer = reduced[name]
                        text = (
                            f"the gradients of `{where}` on {{ranks}} are reduced before the backward of micro-batch "
                            f"{step.micro_batch} adds to them"
                        )
                        yield at(reducer, where, Trouble("reduced-too-early", name not in means, text, -1))
                for name in touch.takes:
                    if name in reduced and name not in told:
                        told.add(name)
                        text = f"the gradient of `{name}` on {{ranks}} is read after it was reduced"
                        yield at(touch.operator, step.segment, Trouble("read-after-reduction", False, text, -1))
                for name in (*touch.adds, *touch.takes, *touch.reads, *touch.reduces):
                    if name in updated and name not in told:
                        told.add(name)
                        where, update = updated[name]
                        text = f"`{name}` on {{ranks}} is updated while it or its gradient is still in use"
                        yield at(update, where, Trouble("updated-too-early", True, text, -1))
                reduced.update(dict.fromkeys(touch.reduces, (step.segment, touch.operator)))
                updated.update(dict.fromkeys(touch.updates, (step.segment, touch.operator)))

    def _means(self, steps: tuple[Step, ...]) -> set[str]:
        """The weights whose gradients are averaged more than once, in one way: the mean of a mean is that mean."""
        reducers: dict[str, list[ReduceGradients]] = {}
        for step in steps:
            for touch in self._touches_of(step.segment):
                for name in touch.reduces:
                    assert isinstance(touch.operator, ReduceGradients)
                    reducers.setdefault(name, []).append(touch.operator)
        return {
            name
            for name, own in reducers.items()
            if len(own) > 1 and len({(each.reduce, each.divisor, each.group) for each in own}) == 1
            if own[0].reduce == "avg" and own[0].divisor == 1
        }


def _names(operator: Operator) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tensors that an operator reads and makes."""
    if isinstance(operator, Compute):
        return tuple(name for name in operator.inputs if isinstance(name, str)), operator.outputs
    if isinstance(operator, Backward):
        forward = tuple(name for name in operator.forward.inputs if isinstance(name, str))
        return (*operator.inputs, *forward), operator.outputs
    if isinstance(operator, Communicate):
        return operator.inputs, operator.outputs
    if isinstance(operator, Send):
        return (operator.tensor,), ()
    return ((), (operator.tensor,)) if isinstance(operator, Receive) else ((), ())
