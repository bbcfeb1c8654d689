"""Equal parts of a dimension of a view as the places of a dimension of their own.

With `v` of shape `[.., k * d, ..]`, `split(v, d)` gives what `unbind` gives of `v` as `[.., k, d, ..]`, part by part. So
plans that view queries, keys and values of a head as `[h, 3 * d]` and split them are like those that view them as `[h, 3, d]`
and take each by its place. The view takes that shape where nothing else reads it, and so does its gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tvlint.analyses.dataflow.def_use import names_of
from tvlint.equivalence.verdict.declared_results import has_declared_shapes
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Family, Trait
from tvlint.ops.table import bound_in, has_trait, spec_of


@dataclass(frozen=True, slots=True)
class _Parted:
    """A view of the name `of`, `split` into parts, and its gradient where it has one; `shape` has a dimension for parts.

    `back` are the gradients of both operators, which may not be all that make values of their names.
    """

    of: str
    view: Compute
    split: Compute
    gradient: str
    shape: tuple[int, ...]
    dim: int
    back: tuple[Backward, ...] = ()

    def instead(self, forward: Compute) -> Compute:
        """Return what takes the place of the view or of the split."""
        if forward == self.view:
            view = replace(forward, op="torch.Tensor.view", inputs=self.view.inputs[:1], attributes={"size": self.shape})
            return replace(view, annotation="")
        return replace(forward, op="torch.unbind", inputs=(self.of,), attributes={"dim": self.dim}, annotation="")


def with_parts_as_places(plan: Plan) -> Plan:
    """Return the plan in which parts of views are places; the plan itself where it has none."""
    found = list(_parted(plan))
    if not found:
        return plan
    parted = {id(operator): each for each in found for operator in (each.view, each.split, *each.back)}
    segments = plan.with_operators(lambda operator: _instead(operator, parted))
    names = {name: each.shape for each in found for name in (each.of, each.gradient) if name in plan.tensors}
    tensors = {name: replace(plan.tensors[name], shape=shape) for name, shape in names.items()}
    return replace(plan, segments=segments, tensors={**plan.tensors, **tensors})


def _instead(operator: Operator, parted: Mapping[int, _Parted]) -> Operator:
    found = parted.get(id(operator))
    if found is not None and isinstance(operator, Compute):
        return found.instead(operator)
    if found is not None and isinstance(operator, Backward):
        return replace(operator, forward=found.instead(operator.forward))
    return operator


def _parted(plan: Plan) -> Iterator[_Parted]:
    users: dict[str, list[Operator]] = {}
    for operator in plan.operators():
        taken = operator.forward.inputs if isinstance(operator, Backward) else ()
        for name in dict.fromkeys((*names_of(operator), *(each for each in taken if isinstance(each, str)))):
            users.setdefault(name, []).append(operator)
    steps = list(plan.steps())
    shared = {*plan.outputs, *(name for step in steps for name in (*(step.inputs or ()), *(step.outputs or ())))}
    renamed = {step.segment for step in steps if step.inputs is not None or step.outputs is not None}
    shared.update(name for each in renamed for name in (*plan.segments[each].inputs, *plan.segments[each].outputs))
    for name, operators in users.items():
        view = next((each for each in operators if isinstance(each, Compute) and each.outputs == (name,)), None)
        if name in shared or view is None or not _lies_as_it_is(plan, name) or not _is_view(plan, view):
            continue
        splits = [each for each in operators if isinstance(each, Compute) and each is not view]
        if len(splits) != 1 or view.in_place or splits[0].in_place:
            continue
        found = _parts(plan, name, view, splits[0])
        back = [each for each in operators if isinstance(each, Backward)]
        if found is None or len(operators) != len(back) + 2 or not all(each.forward in (view, splits[0]) for each in back):
            continue
        of_split = [each for each in back if each.forward == splits[0]]
        of_view = [each for each in back if each.forward == view]
        gradients = {each.outputs for each in of_split} | {each.inputs for each in of_view}
        if not back:
            yield found
        elif len(of_split) == len(of_view) == 1 and len(gradients) == 1:
            (named,) = gradients
            alone = len(named) == 1 and named[0] not in shared and users.get(named[0]) == [*of_split, *of_view]
            if alone and _lies_as_it_is(plan, named[0]):
                yield replace(found, gradient=named[0], back=tuple(back))


def _lies_as_it_is(plan: Plan, name: str) -> bool:
    """Return whether the plan declares nothing of a tensor but its shape and type."""
    tensor = plan.tensors.get(name)
    return tensor is not None and (tensor.placements, tensor.region, tensor.whole, tensor.part) == (None, None, None, (0, 1))


def _is_view(plan: Plan, operator: Compute) -> bool:
    """Return whether an operator views a tensor as one of the shape that the plan declares of its result."""
    spec, operand = spec_of(operator.op), operator.inputs[0] if operator.inputs else None
    is_view = spec is not None and spec.family is Family.RESHAPE and isinstance(operand, str)
    return is_view and has_declared_shapes(plan, operator)


def _parts(plan: Plan, name: str, view: Compute, split: Compute) -> _Parted | None:
    """Return the view with its parts, where these are equal and all of the dimension."""
    shape, bound = plan.tensors[name].shape, bound_in(split, plan.tensors)
    takes_apart = has_trait(split.op, Trait.APART) and not has_trait(split.op, Trait.SELECTION)
    if bound is None or split.inputs[:1] != (name,) or not takes_apart:
        return None
    results = [plan.tensors[each].shape if each in plan.tensors else () for each in split.outputs]
    dims = [dim for dim, word in enumerate(bound.operands[0]) if word not in bound.outputs[0]]
    if len(set(results)) != 1 or len(dims) != 1 or len(results[0]) != len(shape) or len(bound.operands) != 1:
        return None
    (dim,), count = dims, len(results)
    if results[0][dim] * count != shape[dim] or len(bound.outputs) != count:
        return None
    if not has_declared_shapes(plan, split):
        return None
    return _Parted(name, view, split, "", (*shape[:dim], count, results[0][dim], *shape[dim + 1 :]), dim)
