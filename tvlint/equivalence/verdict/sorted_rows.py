"""Rows that are sorted, computed with one by one, and put back: what is computed is that of the rows as they were.

With a permutation `p` of the rows of `x`, and `f` a function of every row, `f(x[p])[argsort(p)]` is `f(x)`, and a sum over the
rows of `f(x[p])` is that of `f(x)`; so gradients of what all rows share are. `argsort` of a tensor of one dimension gives a
permutation, whatever the tensor holds, and a rising one of that its inverse. Ranks that sort the rows that they hold are read
as if they did not, where all that is made of sorted rows is followed: row by row, with nothing beside it that has rows in
another order, until it is put back or summed over its rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tvlint.analyses.dataflow.def_use import uses, writes
from tvlint.equivalence.verdict.declared_results import has_declared_shapes
from tvlint.equivalence.verdict.unread import times_written
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import GIVEN, Plan
from tvlint.ops.families.slicing import looked_up_at
from tvlint.ops.spec import Bound, Family, Trait
from tvlint.ops.table import bound_in, has_trait, spec_of

_Order: TypeAlias = tuple[int, str] | None
"""The dimension along which rows are sorted, and by which permutation; None for rows as they were."""


OF_PLACES = (Trait.TRIANGLE, Trait.POSITIONS, Trait.POSITIONAL, Trait.SCAN, Trait.RECURRENCE)
"""What operators do by the places of elements."""


class _OtherwiseUsedError(Exception):
    """What does not go row by row reads sorted rows, or what gives their order."""


def without_sorted_rows(plan: Plan) -> Plan:
    """Return the plan that computes with rows as they were; the plan itself where it sorts none, or they are used otherwise."""
    operators = list(plan.operators())
    sorts = any(isinstance(operator, Compute) and has_trait(operator.op, Trait.ORDER) for operator in operators)
    renames = any(step.inputs is not None or step.outputs is not None for step in plan.steps())
    if not sorts or renames:
        return plan
    others = (each for each in operators if not (isinstance(each, Compute) and has_trait(each.op, Trait.ORDER)))
    read = Counter(name for operator in others if not isinstance(operator, Backward) for name in uses(operator))
    rows, segments = _Rows(plan, times_written(plan), read), dict(plan.segments)
    try:
        for name in dict.fromkeys(step.segment for step in plan.steps()):
            segment = plan.segments[name]
            instead = [rows.instead(operator) for operator in segment.operators]
            inputs, outputs = (
                tuple(each for each in names if each not in rows.permutations and each not in rows.left_out)
                for names in (segment.inputs, segment.outputs)
            )
            kept = tuple(operator for operator in instead if operator is not None)
            segments[name] = replace(segment, inputs=inputs, outputs=outputs, operators=kept)
    except _OtherwiseUsedError:
        return plan
    if not rows.permutations or any(rows.orders.get(name) or name in rows.permutations for name in _kept(plan)):
        return plan
    tensors = {name: tensor for name, tensor in plan.tensors.items() if name not in rows.permutations}
    return replace(plan, segments=segments, tensors=tensors)


def _kept(plan: Plan) -> Iterator[str]:
    """Yield what is seen after the step: results, and what is there before it, with their gradients."""
    yield from plan.outputs
    for tensor in plan.tensors.values():
        if tensor.role in GIVEN:
            yield from (tensor.name, tensor.gradient)


@dataclass(slots=True)
class _Rows:
    """A plan, how often its names are made, and read by others than sorts and gradients; its permutations, with those that
    they are the inverse of, what they are made of, what is sorted, and gradients of permutations.
    """

    plan: Plan
    times: Mapping[str, int]
    read: Mapping[str, int]
    permutations: dict[str, str] = field(default_factory=dict)
    orders: dict[str, _Order] = field(default_factory=dict)
    compared: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)

    def instead(self, operator: Operator) -> Operator | None:
        """Return what takes the place of an operator; None for one that gives a permutation.

        Raises _OtherwiseUsedError.
        """
        if isinstance(operator, Compute):
            if self._is_permutation(operator):
                of = str(operator.inputs[0])
                is_rising = operator.attributes.keys() <= {"dim", "stable"}
                self.permutations[operator.outputs[0]] = of if of in self.permutations and is_rising else ""
                self.compared.add(of)
                return None
            return self._instead(operator)
        if isinstance(operator, Backward):
            forward = self._instead(operator.forward)
            given = tuple(
                "" if self._has_none(name, of) else name for name, of in zip(operator.inputs, forward.outputs, strict=False)
            )
            self.left_out.update(set(operator.inputs).difference(given, operator.inputs[len(given) :]))
            operator = replace(operator, inputs=(*given, *operator.inputs[len(given) :]))
            self._follow_back(operator, forward)
            return operator if forward is operator.forward else replace(operator, forward=forward, outputs=operator.outputs[:1])
        if any(self.orders.get(name) or name in self.permutations for name in (*uses(operator), *writes(operator))):
            raise _OtherwiseUsedError
        return operator

    def _has_none(self, gradient: str, of: str) -> bool:
        """Return whether a gradient is that of what permutations alone are made of, and nothing makes it: they have none."""
        return of in self.compared and not self.read[of] and not self.times[gradient]

    def _is_permutation(self, operator: Compute) -> bool:
        if not has_trait(operator.op, Trait.ORDER) or len(operator.inputs) != 1 or len(operator.outputs) != 1:
            return False
        tensor = self.plan.tensors.get(str(operator.inputs[0]))
        alone = tensor is not None and len(tensor.shape) == 1 and self.times[operator.outputs[0]] == 1
        return alone and not self.orders.get(str(operator.inputs[0])) and has_declared_shapes(self.plan, operator)

    def _instead(self, operator: Compute) -> Compute:
        """Return an operator, or a copy in the place of what sorts rows or puts them back; note how its results are sorted."""
        tensors = operator.tensor_operands
        for name in tensors:
            self.orders.setdefault(name, None)
        if not any(self.orders.get(name) or name in self.permutations for name in tensors):
            self._note(operator.outputs, [None] * len(operator.outputs))
            return operator
        bound = None if operator.in_place else bound_in(operator, self.plan.tensors)
        if not has_declared_shapes(self.plan, operator):
            raise _OtherwiseUsedError
        if any(name in self.permutations for name in tensors):
            return self._sorted(operator, tensors, bound)
        self._note(operator.outputs, self._orders_of(operator, tensors, bound))
        return operator

    def _sorted(self, operator: Compute, tensors: Sequence[str], bound: Bound | None) -> Compute:
        """Return a copy in the place of what takes rows by a permutation."""
        at = looked_up_at(bound) if bound is not None else -1
        if bound is None or at != 1 or tensors[0] in self.permutations or tensors[1] not in self.permutations:
            raise _OtherwiseUsedError
        dim, by = bound.operands[0].index(bound.indices[at]), tensors[1]
        length, before = self.plan.tensors[tensors[0]].shape[dim], self.orders.get(tensors[0])
        if self.plan.tensors[by].shape != (length,):
            raise _OtherwiseUsedError
        if before is None:
            self._note(operator.outputs, [(dim, by)])
        elif before == (dim, self.permutations[by]):
            self._note(operator.outputs, [None])
        else:
            raise _OtherwiseUsedError
        return replace(operator, op="torch.clone", inputs=operator.inputs[:1], attributes={}, annotation="")

    def _orders_of(self, operator: Compute, tensors: Sequence[str], bound: Bound | None) -> list[_Order]:
        """Return how the results of an operator that goes row by row are sorted."""
        spec, orders = spec_of(operator.op), [self.orders.get(name) for name in tensors]
        if spec is not None and spec.family is Family.IDENTITY:
            return [orders[0]] * len(operator.outputs)
        if bound is None or spec is None or spec.family is not Family.INDEXED or len(bound.operands) != len(tensors):
            raise _OtherwiseUsedError
        found = {(names[order[0]], order[1]) for names, order in zip(bound.operands, orders, strict=True) if order is not None}
        if len(found) != 1 or bound.draws is not None or bound.masked is not None:
            raise _OtherwiseUsedError
        ((row, by),) = found
        placed = {*bound.ranges, *bound.splits, *bound.runs, *bound.counts, *bound.indices.values()}
        if row in bound.whole or row in placed or has_trait(operator.op, *OF_PLACES):
            raise _OtherwiseUsedError
        for names, order in zip(bound.operands, orders, strict=True):
            if names.count(row) > 1 or (row in names) is not (order is not None):
                raise _OtherwiseUsedError
        made: list[_Order] = [(names.index(row), by) if row in names else None for names in bound.outputs]
        if None in made and row not in bound.reduced | bound.averaged:
            raise _OtherwiseUsedError
        return made[: len(operator.outputs)]

    def _follow_back(self, operator: Backward, forward: Compute) -> None:
        """Note how gradients are sorted: as what they are the gradients of."""
        results = [self.orders.get(name) for name in forward.outputs]
        for name, order in zip(operator.inputs, results, strict=False):
            if name and self.orders.get(name) != order:
                raise _OtherwiseUsedError
        operands = [self.orders.get(name) for name in forward.tensor_operands]
        self._note(operator.outputs, operands, again=True)

    def _note(self, names: Sequence[str], orders: Iterable[_Order], again: bool = False) -> None:
        for name, order in zip(names, orders, strict=False):
            if not name:
                continue
            known = self.orders.setdefault(name, order)
            if known != order or (order is not None and not again and self.times[name] > 1):
                raise _OtherwiseUsedError
