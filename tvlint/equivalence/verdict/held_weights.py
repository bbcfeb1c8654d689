"""Weights that the plan holds flat, or with padding: the reference as if it held them so.

A plan may hold all elements of a weight in one dimension (partitions of ZeRO-3), or more elements along a dimension than the
reference has (a vocabulary that is padded to a multiple of the ranks). Let `h` be such a tensor, and `w` the weight of the
reference. That `h` holds the elements of `w` in their order, and then others, is assumed and printed: it is where a plan
starts, as declared placements are. The reference computes the same from

    w = view(narrow(h, 0, 0, n), shape of w);    w = narrow(h, d, 0, n);    grad(h) = grad(w) among zeros,

so that this is written in its place, in every segment that reads `w`. What depends on padding then differs, and is not proved.
A lookup of rows may take `h` itself: the reference's lookup fails for an index that is none of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from tvlint.analyses.dataflow.def_use import are_new, names_of
from tvlint.analyses.relations.derivation.given.trusted_inputs import whole_shape
from tvlint.ir.operators import Backward, Compute, Literal, Operator, ReduceGradients, Update, Value
from tvlint.ir.plan import Plan, Role, Segment, Tensor
from tvlint.ops.table import LOOKUP, spec_of

_Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _View:
    """A step from what is held to the weight: an operator, its constants, and the shape of its result."""

    op: str
    attributes: dict[str, Value]
    shape: _Shape


def as_held(parallel: Plan, reference: Plan) -> tuple[Plan, Plan]:
    """Return the plans, the reference with weights in the shapes in which the parallel plan holds them, where it can be so."""
    held: dict[str, set[_Shape]] = {}
    for tensor in parallel.tensors.values():
        if tensor.role is Role.WEIGHT:
            held.setdefault(tensor.logical or tensor.name, set()).add(whole_shape(tensor))
    for name, tensor in list(reference.tensors.items()):
        full = tensor.logical or name
        if tensor.role is not Role.WEIGHT or len(held.get(full, ())) != 1 or held[full] == {tensor.shape}:
            continue
        (shape,) = held[full]
        views = _views(tensor.shape, shape)
        changed = _with_weight(reference, tensor, shape, views) if views else None
        if changed is not None:
            padding = "" if prod(shape) == prod(tensor.shape) else ", and padding after them"
            text = f"`{full}`, held as {list(shape)}, has the elements of the reference's {list(tensor.shape)} in their order"
            reference, parallel = changed, replace(parallel, assumed=(*parallel.assumed, text + padding))
    return parallel, reference


def _views(shape: _Shape, held: _Shape) -> list[_View]:
    """Return what gives a weight of a shape out of what holds it; nothing where it is held in no way that is known."""
    if len(held) == 1 and len(shape) > 1 and held[0] >= prod(shape):
        cut = [] if held[0] == prod(shape) else [_first_of((prod(shape),), 0)]
        return [*cut, _View("torch.Tensor.view", {"size": shape}, shape)]
    longer = [dim for dim, (size, given) in enumerate(zip(shape, held, strict=False)) if size != given]
    if len(shape) != len(held) or len(longer) != 1 or held[longer[0]] < shape[longer[0]]:
        return []
    return [_first_of(shape, longer[0])]


def _first_of(shape: _Shape, dim: int) -> _View:
    return _View("torch.narrow", {"dim": dim, "start": 0, "length": shape[dim]}, shape)


def _with_weight(reference: Plan, weight: Tensor, held: _Shape, views: Sequence[_View]) -> Plan | None:
    """Return the reference with a weight in another shape; None where more than computations and updates name it."""
    name = weight.name
    gradients = [each for each, tensor in reference.tensors.items() if tensor.gradient_of == name]
    known = {name, *gradients}
    operators = list(reference.operators())
    strange = any(_is_strange(operator, name, known) for operator in operators)
    if strange or weight.storage or weight.region is not None or len(gradients) > 1 or known.intersection(reference.outputs):
        return None
    rewriting = _Rewriting(weight, gradients[0] if gradients else "", views)
    segments = {key: rewriting.segment(segment) for key, segment in reference.segments.items()}
    if not are_new(reference, rewriting.tensors):
        return None
    shapes = {each: replace(reference.tensors[each], shape=held, whole=None, placements=None) for each in known}
    return replace(reference, segments=segments, tensors={**reference.tensors, **shapes, **rewriting.tensors})


def _is_strange(operator: Operator, name: str, known: set[str]) -> bool:
    """Return whether an operator names the weight, or its gradient, otherwise than as an operand or as what is made for it."""
    if isinstance(operator, Update | ReduceGradients):
        return False
    if isinstance(operator, Backward):
        given = (*operator.inputs, *operator.forward.outputs)
        return bool(known.intersection(given)) or _is_strange(operator.forward, name, known)
    if isinstance(operator, Compute):
        changed = [operator.inputs[place] for place in operator.in_place]
        return not known.isdisjoint((*operator.outputs, *changed)) or not (known - {name}).isdisjoint(operator.inputs)
    return bool(known.intersection(names_of(operator)))


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """A weight that is held otherwise, its gradient, and the steps from what is held to it."""

    weight: Tensor
    gradient: str
    views: Sequence[_View]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def segment(self, segment: Segment) -> Segment:
        """Return the segment, in which the weight is made of what is held before all else, and its gradient taken back."""
        if not any(self._reads(operator) for operator in segment.operators):
            return segment
        steps = list(self._steps())
        last, instead = steps[-1].outputs[0], list[Operator]()
        back = -1
        for operator in segment.operators:
            instead.append(self._instead(operator, last))
            if isinstance(operator, Backward) and instead[-1] is not operator and self.gradient in operator.outputs:
                back = len(instead)
        instead[back:back] = self._taken_back(steps) if back >= 0 else ()
        return replace(segment, operators=(*steps, *instead))

    def _reads(self, operator: Operator) -> bool:
        """Return whether an operator takes the weight in its own shape."""
        forward = operator.forward if isinstance(operator, Backward) else operator
        if not isinstance(forward, Compute) or self.weight.name not in forward.inputs:
            return False
        spec = spec_of(forward.op)
        rows = len(self.views) == 1 and self.views[0].attributes.get("dim") == 0
        return not (rows and spec is not None and spec.name == LOOKUP and forward.inputs.index(self.weight.name) == 1)

    def _steps(self) -> Iterator[Compute]:
        """Yield what makes the weight of what is held."""
        made = self.weight.name
        for view in self.views:
            before, made = made, f"{made}: {view.op.rsplit('.', 1)[-1]}"
            self.tensors[made] = Tensor(made, view.shape, self.weight.dtype, Role.ACTIVATION)
            yield Compute(view.op, (before,), (made,), view.attributes)

    def _instead(self, operator: Operator, made: str) -> Operator:
        """Return the operator on the weight that is made."""
        if not self._reads(operator):
            return operator
        if isinstance(operator, Backward):
            forward = self._instead(operator.forward, made)
            assert isinstance(forward, Compute)
            outputs = tuple(self._gradient_of(made) if name == self.gradient else name for name in operator.outputs)
            return replace(operator, forward=forward, outputs=outputs)
        assert isinstance(operator, Compute)
        return replace(operator, inputs=tuple(made if each == self.weight.name else each for each in operator.inputs))

    def _taken_back(self, steps: Sequence[Compute]) -> Iterator[Backward]:
        """Yield what makes the gradient of what is held of that of the weight."""
        for step in reversed(steps):
            (before,) = step.inputs
            assert not isinstance(before, Literal)
            yield Backward(step, (self._gradient_of(step.outputs[0]),), (self._gradient_of(before),))

    def _gradient_of(self, name: str) -> str:
        """Return the name of the gradient of a value, which is new but for the weight's."""
        if name == self.weight.name:
            return self.gradient
        made = f"gradient of {name}"
        self.tensors[made] = Tensor(made, self.tensors[name].shape, self.weight.dtype, Role.GRADIENT, gradient_of=name)
        return made
