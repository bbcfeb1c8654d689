"""Def-use of operators: the tensors that each reads, writes and overwrites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from operator import attrgetter

from tvlint.ir.operators import Backward, Communicate, Compute, Literal, Operator, Receive, ReduceGradients, Send, Update
from tvlint.ir.plan import Plan, Segment

_STREAM = attrgetter("stream")


def has(operators: tuple[Operator, ...], kinds: AbstractSet[type]) -> bool:
    """Return whether one of the operators is of one of the kinds."""
    return not kinds.isdisjoint(map(type, operators))


def of_kinds(operators: tuple[Operator, ...], kinds: AbstractSet[type]) -> list[tuple[int, Operator]]:
    """Return the operators of the kinds, with their positions."""
    if not has(operators, kinds):
        return []
    return [(index, operator) for index, operator in enumerate(operators) if type(operator) in kinds]


def reads(operator: Operator) -> tuple[str, ...]:
    """Return the tensors whose values the operator reads, weights of reducers and optimizer steps left out."""
    if isinstance(operator, Compute):
        return operator.tensor_operands
    if isinstance(operator, Communicate | Backward):
        return tuple(name for name in operator.inputs if name)
    if isinstance(operator, Send):
        return (operator.tensor,)
    return ()


def uses(operator: Operator) -> tuple[str, ...]:
    """Return what the operator reads, and the operands of the forward operator that it is the gradient of, which must be
    there.
    """
    if not isinstance(operator, Backward):
        return reads(operator)
    return (*reads(operator), *operator.forward.tensor_operands)


def needs(operator: Operator) -> tuple[str, ...]:
    """Return what the operator uses, and the results of the forward operator that it is the gradient of."""
    return (*uses(operator), *operator.forward.outputs) if isinstance(operator, Backward) else uses(operator)


def writes(operator: Operator) -> tuple[str, ...]:
    """Return the tensors that the operator produces."""
    if isinstance(operator, (Compute, Communicate, Backward)):
        outputs = operator.outputs
        return outputs if "" not in outputs else tuple(name for name in outputs if name)
    if isinstance(operator, Receive):
        return (operator.tensor,)
    return ()


def with_sources(operators: Iterable[Operator], wanted: AbstractSet[str]) -> set[str]:
    """Return the names and all that they are made of by the operators, in whatever order these run."""
    makers: dict[str, list[Operator]] = {}
    for operator in operators:
        for name in writes(operator):
            makers.setdefault(name, []).append(operator)
    found, waiting = set(wanted), list(wanted)
    while waiting:
        for operator in makers.get(waiting.pop(), ()):
            new = set(uses(operator)) - found
            found |= new
            waiting += new
    return found


def makers_behind(operators: Iterable[Operator], is_wanted: Callable[[Operator], bool]) -> dict[str, tuple[Operator, ...]]:
    """Return by name which of the operators that are wanted it is made by, or of what these make: two of them at most."""
    found: dict[str, tuple[Operator, ...]] = {}
    every = [*operators]
    for operator in (*every, *every):  # what one micro-batch leaves, the next one takes
        makers = {id(each): each for name in uses(operator) for each in found.get(name, ())}
        makers |= {id(operator): operator} if is_wanted(operator) else {}
        for name in writes(operator) if makers else ():
            both = makers | {id(each): each for each in found.get(name, ())}
            found[name] = tuple(both.values())[:2]
    return found


def names_of(operator: Operator) -> Iterator[str]:
    """Yield all names of tensors in the operator, those of its forward operator among them."""
    yield from uses(operator)
    yield from writes(operator)
    if isinstance(operator, ReduceGradients | Update):
        yield from operator.weights
    if isinstance(operator, Backward):
        yield from operator.forward.outputs


def names_inside(segment: Segment) -> set[str]:
    """Return all names of tensors in the operators of a segment."""
    return {name for operator in segment.operators for name in names_of(operator)}


def names_in(plan: Plan) -> set[str]:
    """Return all names of tensors in operators, and those outside of segments for what operators take in or give."""
    inside = {name: names_inside(segment) for name, segment in plan.segments.items()}
    found = set().union(*inside.values())
    for step in plan.steps():
        segment = plan.segments[step.segment]
        for names, outside in zip((segment.inputs, segment.outputs), step.outside(segment), strict=True):
            found.update(outer for name, outer in zip(names, outside, strict=True) if name in inside[step.segment])
    return found


def are_new(plan: Plan, names: Iterable[str]) -> bool:
    """Return whether a plan says none of the names, so that a rewriting may give them to values that it adds."""
    added = set(names)
    return not added or added.isdisjoint(plan.tensors.keys() | names_in(plan))


def overwritten(operator: Operator) -> tuple[str, ...]:
    """Return the inputs that the operator changes in place."""
    if not isinstance(operator, Compute):
        return ()
    inputs = operator.inputs
    chosen = [inputs[position] for position in operator.in_place if 0 <= position < len(inputs)]
    return tuple(name for name in chosen if not isinstance(name, Literal))


def collectives(plan: Plan) -> Iterator[Communicate]:
    """Yield the collectives that stand in the segments of the plan."""
    for segment in plan.segments.values():
        for _, operator in of_kinds(segment.operators, {Communicate}):
            assert isinstance(operator, Communicate)
            yield operator


def streams_named(operators: tuple[Operator, ...]) -> set[str]:
    """Return the streams that the operators name, `main` among them where it is named."""
    named = set(map(_STREAM, operators))
    named.discard("")
    return named


def stream_of(operator: Operator) -> str:
    """Return the stream the operator runs on; the default stream has the names `` and `main`."""
    return "" if operator.stream == "main" else operator.stream


def handle_of(operator: Operator) -> str:
    """Return the handle that the operator completes through; empty when it completes in place."""
    if isinstance(operator, (Communicate, Send, Receive, ReduceGradients)):
        return operator.handle
    return ""
