"""Looking for one change that makes a refuted plan prove."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Group, Literal, Operator, Value
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Plan, Segment
from tvlint.ir.ranks import describe
from tvlint.proof.blame import name_of
from tvlint.proof.trouble import Constant, Declare, Exchange, Substitute, Sum, Trouble

_LARGEST = 20_000
"""Plans with more operators are not derived again and again."""


def repair(plan: Plan, troubles: Sequence[Trouble], proves: Callable[[Plan], bool]) -> str:
    """A change in words that makes the plan prove, verified by proving it; empty where none of those tried does."""
    if sum(len(segment.operators) for segment in plan.segments.values()) > _LARGEST:
        return ""
    for words, changed in _candidates(plan, troubles):
        if proves(changed):
            return words
    return ""


def _candidates(plan: Plan, troubles: Sequence[Trouble]) -> Iterator[tuple[str, Plan]]:
    constants = [trouble for trouble in troubles if isinstance(trouble.fix, Constant)]
    if constants:
        yield from _constant(plan, [trouble.fix for trouble in constants if isinstance(trouble.fix, Constant)])
    other = [trouble.fix for trouble in troubles if isinstance(trouble.fix, Substitute)]
    if other:
        edits: dict[int, Sequence[Operator]] = {id(fix.operator): [replace(fix.operator, op=fix.op)] for fix in other}
        yield f"use `{other[0].op}` instead of {name_of(other[0].operator)}", _edited(plan, edits)
    exchange = next((trouble.fix for trouble in troubles if isinstance(trouble.fix, Exchange)), None)
    if exchange is not None:
        yield _exchanged(plan, exchange)
    sums = {trouble.rank: trouble.fix for trouble in troubles if isinstance(trouble.fix, Sum)}
    if sums:
        yield from _summed(plan, sums)
    declared = {trouble.fix.tensor for trouble in troubles if isinstance(trouble.fix, Declare)}
    if len(declared) == 1:
        yield from _declared(plan, *declared)


def _summed(plan: Plan, sums: Mapping[int, Sum]) -> Iterator[tuple[str, Plan]]:
    """The tensors all-reduced over each set of mesh axes that splits the ranks into groups."""
    names = [axis.name for axis in plan.mesh.axes if axis.size > 1 and axis.name != _folded(plan)]
    for count in range(1, len(names) + 1):
        for axes in combinations(names, count):
            groups = _groups(plan, sums, axes)
            if any(len(group) < 2 for group in groups):
                continue
            group_of = {rank: Group(ranks=group) for group in groups for rank in group}
            shared = len({id(each.producer) for each in sums.values()}) < len(sums)
            edits: dict[int, list[Operator]] = {}
            tensors = []
            for rank, each in sums.items():
                group, tensor = Group(axes=axes) if shared else group_of[rank], (each.tensor,)
                reduce = Communicate(Collective.ALL_REDUCE, tensor, tensor, group, source=each.producer.source)
                edits[id(each.producer)] = [each.producer, reduce]
                tensors.append(f"`{each.tensor}`")
            over = "`" + ", ".join(axes) + "`" if shared else " and over ".join(describe(group) for group in sorted(groups))
            what = ", ".join(dict.fromkeys(tensors))
            producer = name_of(next(iter(sums.values())).producer)
            yield f"all-reduce {what} over {over} after {producer}", _edited(plan, edits)


def _declared(plan: Plan, name: str) -> Iterator[tuple[str, Plan]]:
    """The returned tensor declared a mean, or a sum, over each set of mesh axes."""
    tensor = plan.tensors.get(name)
    axes = [axis.name for axis in plan.mesh.axes if axis.size > 1]
    if tensor is None or tensor.placements:
        return
    for count, how in product(range(1, len(axes) + 1), ("avg", "sum")):
        for chosen in combinations(axes, count):
            written = " ".join(f"{axis}:{'P' if how == 'sum' else 'P(avg)'}" for axis in chosen)
            changed = replace(tensor, placements=dict.fromkeys(chosen, Partial(how)), whole=tensor.whole or tensor.shape)
            tensors = {**plan.tensors, name: changed}
            yield f"declare that the ranks return parts of `{name}`: `{written}`", replace(plan, tensors=tensors)


def _groups(plan: Plan, ranks: Iterable[int], axes: tuple[str, ...]) -> set[tuple[int, ...]]:
    """The ranks in groups that differ only on the axes."""
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank in sorted(ranks):
        outside = tuple((name, at) for name, at in plan.mesh.coordinates(rank).items() if name not in axes)
        groups.setdefault(outside, []).append(rank)
    return {tuple(group) for group in groups.values()}


def _folded(plan: Plan) -> str:
    return plan.replication.axis if plan.replication.count > 1 else ""


def _constant(plan: Plan, fixes: Sequence[Constant]) -> Iterator[tuple[str, Plan]]:
    edits: dict[int, list[Operator]] = {}
    for fix in fixes:
        own = fix.operator
        inputs = tuple(
            Literal(fix.expected) if isinstance(operand, Literal) and operand.value == fix.actual else operand
            for operand in own.inputs
        )
        attributes: dict[str, Value] = {
            name: fix.expected if value == fix.actual else value for name, value in own.attributes.items()
        }
        edits[id(own)] = [replace(own, inputs=inputs, attributes=attributes)]
    first = fixes[0]
    yield f"use {first.expected} instead of {first.actual} in {name_of(first.operator)}", _edited(plan, edits)


def _exchanged(plan: Plan, fix: Exchange) -> tuple[str, Plan]:
    one, other = fix.names
    swap = {one: other, other: one}
    own = fix.operator
    changed = replace(
        own,
        inputs=tuple(swap.get(name, name) for name in own.inputs),
        outputs=tuple(swap.get(name, name) for name in own.outputs),
    )
    return f"exchange `{one}` and `{other}` in {name_of(own)}", _edited(plan, {id(own): [changed]})


def _edited(plan: Plan, edits: Mapping[int, Sequence[Operator]]) -> Plan:
    """The plan with operators (by identity) replaced; gradient operators follow their forward operators."""
    return replace(plan, segments={name: _edited_segment(segment, edits) for name, segment in plan.segments.items()})


def _edited_segment(segment: Segment, edits: Mapping[int, Sequence[Operator]]) -> Segment:
    operators: list[Operator] = []
    changed = False
    for own in segment.operators:
        found = list(edits.get(id(own), (own,)))
        if isinstance(own, Backward) and id(own.forward) in edits and id(own) not in edits:
            forward = edits[id(own.forward)][0]
            found = [replace(own, forward=forward)] if isinstance(forward, Compute) else found
        changed = changed or found != [own]
        operators.extend(found)
    return replace(segment, operators=tuple(operators)) if changed else segment
