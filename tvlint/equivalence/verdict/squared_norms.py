"""Norms as roots of sums of squares, of which every rank can add up its part.

A rank that holds a part of a gradient takes its norm, squares it, adds the squares of all ranks and takes the root. The norm of
a part is no part of the norm of the whole, but its square is a part of the sum of squares. With `s(x)` for the sum of the
squares of all elements of a real `x`

    norm(x) = sqrt(s(x));    norm(x)^2 = s(x);    norm(stack([norm(x), norm(y), ..])) = sqrt(s(x) + s(y) + ..),

and so for norms that are viewed in another shape, or gathered from all ranks of a group that run the same segment.

Sums take the place of norms through which no gradient goes, where a segment runs in order and changes nothing in place: plans
write so what they do with gradients. Norms and stacks of them that nothing reads then are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvlint.analyses.dataflow.def_use import are_new, stream_of
from tvlint.equivalence.verdict.declared_results import has_declared_shapes
from tvlint.equivalence.verdict.gathered_reductions import is_alike_on_all, is_plain_gather
from tvlint.equivalence.verdict.unread import times_used, without_unread
from tvlint.ir.operators import Communicate, Compute, Literal, Operator
from tvlint.ir.plan import Plan, Role, Segment, Tensor
from tvlint.ops.spec import Trait
from tvlint.ops.table import bound_in, has_trait, spec_of


def with_sums_of_squares(plan: Plan) -> Plan:
    """Return the plan with sums of squares in the place of norms; the plan itself where it has none."""
    segments, tensors, added = dict(plan.segments), dict(plan.tensors), set[str]()
    times = times_used(plan)
    for name, segment in plan.segments.items():
        if _has_norms(segment):
            rewriting = _Rewriting(plan, segment, times)
            instead = [each for operator in segment.operators for each in rewriting.instead(operator)]
            segments[name], gone = without_unread(plan, segment, instead, {*rewriting.squares, *rewriting.stacks})
            tensors = {known: tensor for known, tensor in (tensors | rewriting.tensors).items() if known not in gone}
            added |= rewriting.tensors.keys()
    is_same = segments == dict(plan.segments) or not are_new(plan, added)
    return plan if is_same else replace(plan, segments=segments, tensors=tensors)


def _has_norms(segment: Segment) -> bool:
    """Return whether the segment takes norms, and runs in order and without changes in place."""
    computed = [operator for operator in segment.operators if isinstance(operator, Compute)]
    return any(has_trait(operator.op, Trait.NORM) for operator in computed) and not any(
        stream_of(operator) or (isinstance(operator, Compute) and operator.in_place) for operator in segment.operators
    )


def _spelled(operator: Compute) -> str:
    spec = spec_of(operator.op)
    return spec.name if spec is not None else ""


def _joins(operator: Compute) -> bool:
    """Return whether an operator puts tensors beside each other, and nothing else."""
    numbers = [operand.value for operand in operator.inputs if isinstance(operand, Literal)]
    return has_trait(operator.op, Trait.JOIN) and operator.attributes.keys() <= {"dim"} and numbers in ([], [0])


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """A plan, how often names are made or differentiated, and which are norms, with their squares, or stacks of norms."""

    plan: Plan
    segment: Segment
    times: Mapping[str, int]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    squares: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, Sequence[str]] = field(default_factory=dict)

    def instead(self, operator: Operator) -> Iterator[Operator]:
        """Yield what takes the place of an operator."""
        if isinstance(operator, Communicate) and len(operator.outputs) == 1 and self._gathers_norms(operator):
            yield from self._moved(operator)
            return
        if not isinstance(operator, Compute) or len(operator.outputs) != 1 or self.times[operator.outputs[0]] != 1:
            yield operator
            return
        (made,) = operator.outputs
        names = operator.tensor_operands
        if self._is_whole_norm(operator, names):
            yield from self._root(operator, names[0])
        elif names and self.squares.keys() >= {*names} and _joins(operator):
            if any(self.plan.tensors[name].shape for name in names):
                yield from self._moved(operator)
            else:
                self.stacks[made] = names
                yield operator
        elif names and names[0] == operator.inputs[0] and names[0] in self.squares and has_trait(operator.op, Trait.VIEW):
            yield from self._moved(operator)
        elif names and names[0] in self.squares and self._is_square(operator):
            yield replace(operator, op="torch.clone", inputs=(self.squares[names[0]],), attributes={})
        else:
            yield operator

    def _gathers_norms(self, operator: Communicate) -> bool:
        """Return whether a communication puts the norms of all ranks beside each other."""
        is_gather = is_plain_gather(operator) and operator.inputs[0] in self.squares and self.times[operator.outputs[0]] == 1
        return is_gather and is_alike_on_all(self.plan, self.segment, operator)

    def _moved(self, operator: Compute | Communicate) -> Iterator[Operator]:
        """Yield what moves norms, and the same for their squares where the shape is the one that the plan declares."""
        (made,) = operator.outputs
        yield operator
        if made not in self.plan.tensors or not (isinstance(operator, Communicate) or has_declared_shapes(self.plan, operator)):
            return
        square = self._named(f"{made}: squares", self.plan.tensors[made])
        if isinstance(operator, Communicate):
            yield replace(operator, inputs=(self.squares[operator.inputs[0]],), outputs=(square,))
        else:
            inputs = tuple(self.squares.get(each, each) if isinstance(each, str) else each for each in operator.inputs)
            yield replace(operator, inputs=inputs, outputs=(square,))
        self.squares[made] = square

    def _is_whole_norm(self, operator: Compute, names: Sequence[str]) -> bool:
        """Return whether an operator is the root of the sum of all squares of a tensor."""
        bound = bound_in(operator, self.plan.tensors) if has_trait(operator.op, Trait.NORM) else None
        made = self.plan.tensors.get(operator.outputs[0])
        is_whole = len(names) == 1 and bound is not None and bound.attributes == (2,) and made is not None and made.shape == ()
        return is_whole and has_declared_shapes(self.plan, operator)

    def _is_square(self, operator: Compute) -> bool:
        """Return whether an operator is the square of its first operand."""
        first, *others = operator.inputs
        if operator.attributes or bound_in(operator, self.plan.tensors) is None:
            return False
        spelled = _spelled(operator)
        return (spelled == "pow" and others in ([], [Literal(2)])) or (spelled == "mul" and others == [first])

    def _root(self, operator: Compute, name: str) -> Iterator[Operator]:
        """Yield what adds the squares of a tensor up, and takes the root of the sum."""
        (made,) = operator.outputs
        terms = [self.squares[norm] for norm in self.stacks.get(name, ())]
        if not terms:
            elements = self.squares.get(name) or self._named(f"{made}: squares", self.plan.tensors[name])
            if name not in self.squares:
                yield replace(operator, op="torch.pow", inputs=(name, Literal(2)), outputs=(elements,), attributes={})
            terms = [self._named(f"{made}: sum", self.plan.tensors[made])]
            yield replace(operator, op="torch.sum", inputs=(elements,), outputs=(terms[0],), attributes={})
        while len(terms) > 1:
            total = self._named(f"{made}: sum of {len(terms)}", self.plan.tensors[made])
            yield replace(operator, op="torch.add", inputs=(*terms[-2:],), outputs=(total,), attributes={})
            terms[-2:] = [total]
        (self.squares[made],) = terms
        yield replace(operator, op="torch.sqrt", inputs=(terms[0],), attributes={})

    def _named(self, name: str, like: Tensor) -> str:
        """Return a new name for a value of the shape and type of a tensor."""
        self.tensors[name] = Tensor(name, like.shape, like.dtype, Role.ACTIVATION)
        return name
