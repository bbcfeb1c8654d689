"""Reductions of what is gathered, as reductions over the ranks that it is gathered from.

A rank that gathers a number of every rank and adds them up has what an `all-reduce` gives. For pieces `e_r` of one shape, put
together along a dimension over which `R` reduces,

    R(gather(e_r)) = all-reduce(R(e_r))    where R is a sum, a mean or a greatest element,

since sums, means of as many elements and greatest elements of parts are those of the whole. What is applied to every element
in between is applied to those of each piece. One takes the place of the other where a segment runs in order, all ranks of the
group run that segment, and no gradient goes through; gathers that nothing reads then are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from tvlint.analyses.dataflow.def_use import are_new, stream_of, writes
from tvlint.analyses.relations.transfer.groups import Groups, spans_replicas
from tvlint.equivalence.verdict.declared_results import has_declared_shapes
from tvlint.equivalence.verdict.sorted_rows import OF_PLACES
from tvlint.equivalence.verdict.unread import times_used, without_unread
from tvlint.ir.operators import Collective, Communicate, Compute, Literal, Operand, Operator, ReduceGradients, Update
from tvlint.ir.plan import Plan, Role, Segment, Tensor
from tvlint.ops.spec import Bound
from tvlint.ops.table import bound_in, has_trait


def with_reductions_over_ranks(plan: Plan) -> Plan:
    """Return the plan with reductions over ranks in the place of those of what is gathered; itself where it has none."""
    if not any(map(_gathers, plan.segments.values())):
        return plan
    segments, tensors, times, added = dict(plan.segments), dict(plan.tensors), times_used(plan), set[str]()
    for name, segment in plan.segments.items():
        if not _gathers(segment) or not _is_in_order(segment):
            continue
        rewriting = _Rewriting(plan, segment, times)
        instead = [each for operator in segment.operators for each in rewriting.instead(operator)]
        if rewriting.replaced:
            segments[name], gone = without_unread(plan, segment, instead, rewriting.pieces.keys())
            tensors = {known: tensor for known, tensor in (tensors | rewriting.tensors).items() if known not in gone}
            added |= rewriting.tensors.keys()
    is_same = segments == dict(plan.segments) or not are_new(plan, added)
    return plan if is_same else replace(plan, segments=segments, tensors=tensors)


def _gathers(segment: Segment) -> bool:
    return any(isinstance(operator, Communicate) and is_plain_gather(operator) for operator in segment.operators)


def _is_in_order(segment: Segment) -> bool:
    """Return whether a segment runs in order and without changes in place."""
    return not any(stream_of(each) or (isinstance(each, Compute) and each.in_place) for each in segment.operators)


def is_plain_gather(operator: Communicate) -> bool:
    """Return whether an operator puts pieces of one size side by side, and has done so when the next one runs."""
    is_gather = operator.kind is Collective.ALL_GATHER and operator.dim is not None
    is_one = len(operator.inputs) == len(operator.outputs) == 1
    return is_gather and is_one and not (operator.splits or operator.dtype or operator.handle or operator.stream)


def is_alike_on_all(plan: Plan, segment: Segment, operator: Communicate) -> bool:
    """Return whether all ranks of the group of a gather run the segment that it stands in, with as many pieces as there are."""
    if spans_replicas(plan, operator.group):
        return False
    programs = [program for program in plan.programs if any(step.segment == segment.name for step in program.steps)]
    running = {rank for program in programs for rank in program.ranks}
    groups = Groups(plan)
    met = [groups.members(operator.group, rank) for rank in running]
    count, (piece,), (made,) = len(met[0]) if met else 0, operator.inputs, operator.outputs
    if not all(len(each) == count and running.issuperset(each.ranks) for each in met):
        return False
    before, after = (plan.tensors[name].shape if name in plan.tensors else () for name in (piece, made))
    dim = operator.dim if operator.dim is None or operator.dim >= 0 else operator.dim + len(before)
    if dim is None or not 0 <= dim < len(before) or len(before) != len(after):
        return False
    return after == (*before[:dim], before[dim] * count, *before[dim + 1 :])


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """A plan, how often names are made or differentiated, and of which pieces gathered tensors consist.

    `pieces` has by name the piece of the rank and the gather, `gathered` what consists of a piece, as long as the piece has the
    value that was gathered; `replaced` what is now reduced over ranks.
    """

    plan: Plan
    segment: Segment
    times: Mapping[str, int]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    pieces: dict[str, tuple[str, Communicate]] = field(default_factory=dict)
    gathered: dict[str, list[str]] = field(default_factory=dict)
    replaced: list[str] = field(default_factory=list)

    def instead(self, operator: Operator) -> Iterator[Operator]:
        """Yield what takes the place of an operator."""
        self._forget(operator)
        if isinstance(operator, Communicate) and is_plain_gather(operator) and self.times[operator.outputs[0]] == 1:
            if operator.inputs[0] in self.plan.tensors:
                self.pieces[operator.outputs[0]] = operator.inputs[0], operator
                self.gathered.setdefault(operator.inputs[0], []).append(operator.outputs[0])
        elif isinstance(operator, Compute) and len(operator.outputs) == 1 and self.times[operator.outputs[0]] == 1:
            names = operator.tensor_operands
            bound = bound_in(operator, self.plan.tensors) if len(names) == 1 and names[0] in self.pieces else None
            if bound is not None and not operator.in_place and has_declared_shapes(self.plan, operator):
                yield from self._of_pieces(operator, names[0], bound)
                return
        yield operator

    def _forget(self, operator: Operator) -> None:
        """Forget of which pieces what was gathered consists where these have other values behind an operator."""
        if isinstance(operator, ReduceGradients | Update):
            self.pieces.clear()
        for name in writes(operator):
            for made in self.gathered.pop(name, ()):
                self.pieces.pop(made, None)

    def _of_pieces(self, operator: Compute, name: str, bound: Bound) -> Iterator[Operator]:
        """Yield an operator on what is gathered and the same on the piece of the rank, or the reduction over ranks."""
        piece, gather = self.pieces[name]
        (made,), (before,), dim = operator.outputs, bound.operands, gather.dim
        placed = bound.draws is not None or bound.masked is not None or has_trait(operator.op, *OF_PLACES)
        if dim is None or not -len(before) <= dim < len(before) or len(bound.outputs) != 1 or placed:
            yield operator
        elif bound.outputs[0] == before and not (bound.whole or bound.reduced or bound.averaged):
            alike = self._named(f"{made}: piece", made, self._shape(piece))
            yield operator
            yield replace(operator, inputs=self._with(operator, name, piece), outputs=(alike,))
            self.pieces[made] = alike, gather
        elif (reduce := _reduces(bound, before[dim])) and is_alike_on_all(self.plan, self.segment, gather):
            part = self._named(f"{made}: part", made, self.plan.tensors[made].shape)
            shape = self._shape(part)
            kept = [each for each in before if each in bound.outputs[0]]
            if prod(shape) == prod(self._shape(piece)) and kept == [each for each in bound.outputs[0] if each in before]:
                again = (piece, Literal(shape))
                yield replace(operator, op="torch.reshape", inputs=again, outputs=(part,), attributes={}, annotation="")
            else:
                yield replace(operator, inputs=self._with(operator, name, piece), outputs=(part,))
            yield replace(gather, kind=Collective.ALL_REDUCE, inputs=(part,), outputs=(made,), dim=None, reduce=reduce)
            self.replaced.append(made)
        else:
            yield operator

    def _shape(self, name: str) -> tuple[int, ...]:
        return (self.tensors.get(name) or self.plan.tensors[name]).shape

    def _with(self, operator: Compute, name: str, piece: str) -> tuple[Operand, ...]:
        return tuple(piece if operand == name else operand for operand in operator.inputs)

    def _named(self, name: str, like: str, shape: tuple[int, ...]) -> str:
        """Return a new name for a value of a shape, of the type of a tensor."""
        self.tensors[name] = Tensor(name, shape, self.plan.tensors[like].dtype, Role.ACTIVATION)
        return name


def _reduces(bound: Bound, along: str) -> str:
    """Return how ranks reduce what an operator makes of their pieces of a dimension; empty where they cannot."""
    if bound.splits.get(along) == "max":
        return "max"
    if bound.linear != (frozenset({0}),):
        return ""
    if along in bound.averaged:
        return "avg"
    return "sum" if along in bound.reduced else ""
