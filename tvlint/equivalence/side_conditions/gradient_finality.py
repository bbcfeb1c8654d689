"""Gradients are final when they are reduced, and weights are no longer needed when they are updated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tvlint.analyses.dataflow.def_use import has, overwritten, uses, writes
from tvlint.analyses.dataflow.step_scope import only_ends
from tvlint.analyses.gradients.accumulators import accumulators
from tvlint.analyses.relations.defect import Defect, at
from tvlint.ir.operators import Operator, ReduceGradients, Update
from tvlint.ir.plan import Plan, Program, Role, Step

_ENDS = frozenset({ReduceGradients, Update})


@dataclass(frozen=True, slots=True)
class _Touches:
    """Accesses of one operator to weights: reductions, updates, accumulation, and reads of weights or gradients."""

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
        return accumulators(self._plan)

    def _touches_of(self, segment: str) -> tuple[_Touches, ...]:
        if segment not in self._known:
            touches = (self._touches(operator) for operator in self._plan.segments[segment].operators)
            self._known[segment] = tuple(touch for touch in touches if touch is not None)
        return self._known[segment]

    def _touches(self, operator: Operator) -> _Touches | None:
        if isinstance(operator, ReduceGradients):
            return _Touches(operator, reduces=operator.weights)
        if isinstance(operator, Update):
            return _Touches(operator, updates=operator.weights)
        inputs, outputs = uses(operator), writes(operator)
        adds = tuple(self._owner[name] for name in outputs if name in self._owner)
        takes = tuple(self._owner[name] for name in inputs if name in self._owner)
        reads = tuple(name for name in inputs if name in self._weights)
        updates = tuple(name for name in (*outputs, *overwritten(operator)) if name in self._weights)
        found = _Touches(operator, adds=adds, reads=reads, takes=takes, updates=updates)
        return found if adds or takes or reads or updates else None

    def defects(self, program: Program, micro_batches: int) -> Iterator[Defect]:
        """Weights whose gradients are taken for complete, or that are updated, before the last micro-batch is done with them.

        With one micro-batch a derivation sees that in the values. What runs before the first of these is too early for none.
        """
        if micro_batches == 1:
            return
        final: dict[str, tuple[str, Operator]] = {}
        updated: dict[str, tuple[str, Operator]] = {}
        reported = set()
        whole = [step.micro_batch < 0 or only_ends(self._plan.segments[step.segment]) for step in program.steps]
        first = next((i for i, names in enumerate(whole) if names or program.steps[i].segment in self._ending), len(whole))
        steps = program.steps[first:]
        means = self._means(steps)
        for step, of_step in zip(steps, whole[first:], strict=True):
            for touch in self._touches_of(step.segment):
                for name in touch.adds if not of_step else ():
                    if name in final and name not in reported:
                        reported.add(name)
                        where, taker = final[name]
                        how = "reduced" if isinstance(taker, ReduceGradients) else "read"
                        text = (
                            f"the gradients of `{where}` on {{ranks}} are {how} before the backward of micro-batch "
                            f"{step.micro_batch} adds to them"
                        )
                        yield at(
                            taker,
                            where,
                            Defect("reducer-before-last-backward", how == "reduced" and name not in means, text, -1),
                        )
                for name in (*touch.adds, *touch.reads) if not of_step else ():
                    if name in updated and name not in reported:
                        reported.add(name)
                        where, update = updated[name]
                        text = f"`{name}` on {{ranks}} is updated while it or its gradient is still in use"
                        yield at(update, where, Defect("update-before-final-gradient", name in touch.adds, text, -1))
                taken = (*touch.reduces, *(touch.takes if of_step else ()))
                final.update(dict.fromkeys(taken, (step.segment, touch.operator)))
                updated.update(dict.fromkeys(touch.updates, (step.segment, touch.operator)))

    def _means(self, steps: tuple[Step, ...]) -> set[str]:
        """Return the weights whose gradients are averaged more than once, in one way: the mean of a mean is that mean."""
        reducers: dict[str, list[ReduceGradients]] = {}
        for step in steps:
            for touch in self._touches_of(step.segment):
                for name in touch.reduces:
                    assert isinstance(touch.operator, ReduceGradients)
                    reducers.setdefault(name, []).append(touch.operator)
        return {
            name
            for name, reducers_of_name in reducers.items()
            if len(reducers_of_name) > 1
            and len({(reducer.reduce, reducer.divisor, reducer.group) for reducer in reducers_of_name}) == 1
            if reducers_of_name[0].reduce == "avg" and reducers_of_name[0].divisor == 1
        }
