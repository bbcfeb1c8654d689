"""Norms as roots of sums of squares, of which every rank can add up its part.

A rank that holds a part of a gradient takes its norm, squares it, adds the squares of all ranks and takes the root. The norm of
a part is no part of the norm of the whole, but its square is a part of the sum of squares. With `s(x)` for the sum of the
squares of all elements of a real `x`

    norm(x) = sqrt(s(x));    norm(x)^2 = s(x);    norm(stack([norm(x), norm(y), ..])) = sqrt(s(x) + s(y) + ..).

Sums take the place of norms through which no gradient goes, where a segment runs in order and changes nothing in place: plans
write so what they do with gradients. Norms and stacks of them that nothing reads then are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tvlint.analyses.dataflow.def_use import reads, stream_of, writes
from tvlint.equivalence.verdict.declared_results import has_declared_shapes
from tvlint.ir.operators import Backward, Compute, Literal, Operator
from tvlint.ir.plan import Plan, Role, Segment, Tensor
from tvlint.ops.spec import Trait
from tvlint.ops.table import bound_in, has_trait, spec_of


def with_sums_of_squares(plan: Plan) -> Plan:
    """Return the plan with sums of squares in the place of norms; the plan itself where it has none."""
    segments, tensors = dict(plan.segments), dict(plan.tensors)
    operators = [operator for segment in plan.segments.values() for operator in segment.operators]
    times = Counter(name for operator in operators for name in writes(operator))
    for operator in operators:
        if isinstance(operator, Backward):
            times.update(operator.forward.outputs)
    for name, segment in plan.segments.items():
        if _has_norms(segment):
            rewriting = _Rewriting(plan, times)
            instead = [each for operator in segment.operators for each in rewriting.instead(operator)]
            segments[name], gone = rewriting.without_unread(segment, instead)
            tensors = {known: tensor for known, tensor in tensors.items() if known not in gone} | rewriting.tensors
    return plan if segments == dict(plan.segments) else replace(plan, segments=segments, tensors=tensors)


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
    times: Mapping[str, int]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    squares: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, list[str]] = field(default_factory=dict)

    def instead(self, operator: Operator) -> Iterator[Operator]:
        """Yield what takes the place of an operator."""
        if not isinstance(operator, Compute) or len(operator.outputs) != 1 or self.times[operator.outputs[0]] != 1:
            yield operator
            return
        (made,) = operator.outputs
        names = [operand for operand in operator.inputs if isinstance(operand, str)]
        if self._is_whole_norm(operator, names):
            yield from self._root(operator, names[0])
        elif names and self.squares.keys() >= {*names} and _joins(operator):
            self.stacks[made] = names
            yield operator
        elif names and names[0] in self.squares and self._is_square(operator):
            yield replace(operator, op="torch.clone", inputs=(self.squares[names[0]],), attributes={})
        else:
            yield operator

    def _is_whole_norm(self, operator: Compute, names: list[str]) -> bool:
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
            elements = self._named(f"{made}: squares", self.plan.tensors[name])
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

    def without_unread(self, segment: Segment, operators: list[Operator]) -> tuple[Segment, set[str]]:
        """Return the segment with these operators, without norms and stacks of them that nothing reads, and these names."""
        others = (each for other in self.plan.segments.values() if other is not segment for each in other.operators)
        read = Counter(self.plan.outputs)
        read.update(name for operator in (*operators, *others) for name in reads(operator))
        if any(step.outputs is not None for program in self.plan.programs for step in program.steps):
            read.update(segment.outputs)
        norms, kept, gone = {*self.squares, *self.stacks}, list[Operator](), set[str]()
        for operator in reversed(operators):
            made = writes(operator) if isinstance(operator, Compute) else ()
            if made and norms.issuperset(made) and not any(map(read.get, made)):
                read.subtract(reads(operator))
                gone.update(made)
            else:
                kept.append(operator)
        outputs = tuple(name for name in segment.outputs if name not in gone)
        return replace(segment, outputs=outputs, operators=tuple(reversed(kept))), gone
