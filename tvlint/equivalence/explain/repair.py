"""Looking for the changes that make a refuted plan prove: one, or several that are each for a cause of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Generic, TypeVar

from tvlint.analyses.relations.defect import Constant, Declare, Defect, Exchange, Substitute, Sum
from tvlint.analyses.relations.derivation.given.trusted_inputs import region
from tvlint.analyses.relations.derivation.localisation.localise import name_of
from tvlint.analyses.relations.grounds import REFUTING
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.findings import Reason, Related, Verdict
from tvlint.ir.location import Location
from tvlint.ir.operators import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
    Operator,
    Peer,
    Receive,
    ReduceGradients,
    Send,
    Value,
)
from tvlint.ir.placement import Partial
from tvlint.ir.plan import Box, Phase, Plan, Role, Segment, Step
from tvlint.ir.ranks import describe

SHOWS = "where it shows"
"""What is said of the place where a mistake shows, in a reason that stands where it is made."""

_ALSO = "and here"
_MOST_PLACES = 4
"""So many places of one change are named."""

_LARGEST = 20_000
"""Plans with more operators are not derived again and again."""
_LARGEST_OF_SEVERAL = 5_000
"""Plans of which the ranks run more operators, each counted once, are not searched for several causes."""

_JUDGED = 4
"""So many changes are judged with what else is wrong."""

_MISFITS = ("mismatched-shards", "wrong-shape-claim", "missing-allreduce")
"""What is wrong at a collective that should be another one."""

_CROSSED = ("pieces-not-in-rank-order",)
"""What is wrong at a collective that gets pieces from other ranks than those that have them."""

_UNMET = ("unmatched-receive", "unmatched-send")
"""What is wrong where a message goes to another rank than the one that waits for it."""

_UNREDUCED = (
    "gradient-added-twice",
    "mismatched-shards",
    "missing-gradient-reduction",
    "reducers-disagree",
    "unequal-addends",
    "wrong-gradient-scale",
    "wrong-reduce-op",
)
"""What is wrong where gradients are reduced in another way, or not at all."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A change in words, and what is wrong besides it: with the repairs of that as well, the plan proves."""

    words: str
    besides: tuple[Reason, ...] = ()
    places: tuple[Location, ...] = ()
    """Where the change is made, if that is where the mistake is."""


Changed = TypeVar("Changed")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Changed]):
    """A change to try, in words, with what is there after it: a plan, or the files that a plan is read from."""

    words: str
    changed: Changed
    places: tuple[Location, ...] = ()


def first_proved(candidates: Iterable[Candidate[Changed]], proves: Callable[[Changed], bool]) -> Repair | None:
    """Return the first of the changes that makes the plan prove; None where none does."""
    found = next((candidate for candidate in candidates if proves(candidate.changed)), None)
    return None if found is None else Repair(found.words, places=found.places)


def repair(
    plan: Plan,
    defects: Sequence[Defect],
    proves: Callable[[Plan], bool],
    judged: Callable[[Plan], Verdict | None] | None = None,
) -> Repair | None:
    """Return a change that makes the plan prove, verified by proving it; None where none of those tried does.

    With `judged` also a change after which the plan is refuted for other causes that all have a repair: the fewest such
    causes, so that none is one that the change itself has made.
    """
    if sum(len(segment.operators) for segment in plan.segments.values()) > _LARGEST:
        return None
    candidates = [Candidate(words, changed, _places(plan, changed)) for words, changed in _candidates(plan, defects)]
    best = first_proved(candidates, proves)
    if best is not None or judged is None or plan.count_run() > _LARGEST_OF_SEVERAL:
        return best
    for candidate in candidates[:_JUDGED]:
        verdict = judged(candidate.changed)
        besides = tuple(reason for reason in verdict.reasons if reason.refutes) if verdict is not None else ()
        if besides and besides[0].repair and (best is None or len(besides) < len(best.besides)):
            best = Repair(candidate.words, besides)
    return best


def with_repair(reasons: Sequence[Reason], found: Repair) -> tuple[Reason, ...]:
    """Return the reasons of a verdict with the repair that was found, and with what is wrong besides.

    What was left open follows from what the repairs mend, and where there are several, each reason that has one is a cause.
    """
    if not found.besides:
        rest = [reason for reason in reasons[1:] if reason.refutes or not reasons[0].refutes]
        return (
            _at(replace(reasons[0], repair=found.words), found.places),
            *(replace(reason, repair="") for reason in rest),
        )
    others = [reason for reason in reasons if not any(_same(reason, other) for other in found.besides)]
    repaired = next((reason for reason in others if reason.refutes), others[0] if others else None)
    if repaired is None:
        return found.besides
    rest = [reason for reason in others if reason.refutes and reason is not repaired]
    return (replace(repaired, refutes=repaired.name in REFUTING, repair=found.words), *rest, *found.besides)


def _at(reason: Reason, places: Sequence[Location]) -> Reason:
    """Return the reason at the place of the mistake, related to where it shows."""
    if not places:
        return reason
    shown = [] if places[0] == reason.location else [Related(SHOWS, reason.location)]
    also = [Related(_ALSO, place) for place in places[1:_MOST_PLACES]]
    return replace(reason, location=places[0], related=(*shown, *also, *reason.related))


def _places(plan: Plan, changed: Plan) -> tuple[Location, ...]:
    """Return the place of the first message or reducer that a change alters; nothing else is wrong where it shows."""
    for name, segment in plan.segments.items():
        for before, after in zip(segment.operators, changed.segments[name].operators, strict=False):
            if before is not after and isinstance(before, Send | Receive | ReduceGradients):
                return () if before.source is None else (before.source,)
    return ()


def _same(one: Reason, other: Reason) -> bool:
    return one.name == other.name and (one.message == other.message or one.location == other.location)


def _candidates(plan: Plan, defects: Sequence[Defect]) -> Iterator[tuple[str, Plan]]:
    constants = [defect for defect in defects if isinstance(defect.fix, Constant)]
    if constants:
        yield from _constant(plan, [defect.fix for defect in constants if isinstance(defect.fix, Constant)])
    other = [defect.fix for defect in defects if isinstance(defect.fix, Substitute)]
    if other:
        edits: dict[int, Sequence[Operator]] = {id(fix.operator): [replace(fix.operator, op=fix.op)] for fix in other}
        yield f"use `{other[0].op}` instead of {name_of(other[0].operator)}", edited(plan, edits)
    exchange = next((defect.fix for defect in defects if isinstance(defect.fix, Exchange)), None)
    if exchange is not None:
        yield _exchanged(plan, exchange)
    sums = {defect.rank: defect.fix for defect in defects if isinstance(defect.fix, Sum)}
    if sums:
        yield from _summed(plan, sums)
    yield from _collected(plan, defects)
    yield from _redirected(plan, defects)
    yield from _met(plan, defects)
    yield from _reduced(plan, defects)
    declared = {defect.fix.tensor for defect in defects if isinstance(defect.fix, Declare)}
    if len(declared) == 1:
        yield from declared_as_part(plan, *declared)


def _summed(plan: Plan, sums: Mapping[int, Sum]) -> Iterator[tuple[str, Plan]]:
    """Yield the tensors all-reduced over each set of mesh axes that splits the ranks into groups."""
    for over, group_of in _groupings(plan, {rank: each_sum.producer for rank, each_sum in sums.items()}):
        edits: dict[int, list[Operator]] = {}
        for rank, each in sums.items():
            tensor = (each.tensor,)
            reduce = Communicate(Collective.ALL_REDUCE, tensor, tensor, group_of[rank], source=each.producer.source)
            edits[id(each.producer)] = [each.producer, reduce]
        what = ", ".join(dict.fromkeys(f"`{each_sum.tensor}`" for each_sum in sums.values()))
        producer = name_of(next(iter(sums.values())).producer)
        yield f"all-reduce {what} over {over} after {producer}", edited(plan, edits)


def _collected(plan: Plan, defects: Sequence[Defect]) -> Iterator[tuple[str, Plan]]:
    """Another collective, which makes the declared shape, in the place of one that does not fit what its ranks hold."""
    misfits = [
        (defect, defect.place) for defect in defects if defect.name in _MISFITS and isinstance(defect.place, Communicate)
    ]
    if not misfits:
        return
    (first, wrong), *_ = misfits
    reported = (first.name, first.label, first.message)
    places = {defect.rank: place for defect, place in misfits if (defect.name, defect.label, defect.message) == reported}
    for kind, dim in _kinds(plan, wrong):
        what = f"use `{kind.value}`" + ("" if dim is None else f" along dimension {dim}")
        own_groups = (
            [("", {rank: place.group for rank, place in places.items()})] if (kind, dim) != (wrong.kind, wrong.dim) else []
        )
        for over, group_of in (*own_groups, *_groupings(plan, places)):
            edits = {
                id(place): [replace(place, kind=kind, dim=dim, reduce="", splits=(), group=group_of[rank])]
                for rank, place in places.items()
            }
            yield f"{what}{f' over {over}' if over else ''} instead of {name_of(wrong)}", edited(plan, edits)


def _redirected(plan: Plan, defects: Sequence[Defect]) -> Iterator[tuple[str, Plan]]:
    """Yield the messages whose pieces a collective puts together, from senders in the order of its ranks, and those back to
    these.
    """
    gather = {
        defect.rank: defect.place for defect in defects if defect.name in _CROSSED and isinstance(defect.place, Communicate)
    }
    messages = [(rank, operator, peer) for rank, operator, peer, _ in _messages(plan)] if gather else []
    if not messages:
        return
    wanted = {rank: set(place.inputs) for rank, place in gather.items()}
    given = {
        rank: peer
        for rank, operator, peer in messages
        if isinstance(operator, Receive) and operator.tensor in wanted.get(rank, ())
    }
    if given.keys() != gather.keys() or len(set(given.values())) < len(given) or set(given) & set(given.values()):
        return
    right = dict(zip(sorted(given), sorted(given.values()), strict=True))
    moved = {(rank, peer): right[rank] for rank, peer in given.items() if right[rank] != peer}
    moved.update({(peer, rank): next(to for to, by in right.items() if by == peer) for rank, peer in moved})
    edits = {
        id(operator): [replace(operator, peer=Peer(rank=moved[rank, peer]))]
        for rank, operator, peer in messages
        if (rank, peer) in moved
    }
    changed = [f"{sender} -> {receiver}" for receiver, sender in right.items() if given[receiver] != sender]
    if changed:
        yield f"send {' and '.join(changed)}", edited(plan, edits)


def _messages(plan: Plan) -> Iterator[tuple[int, Send | Receive, int, int]]:
    """Yield the messages of a plan of which each rank has its own program: rank, operator, other end and number of runs."""
    if any(len(program.ranks) > 1 for program in plan.programs):
        return
    for program in plan.programs:
        for segment, runs in Counter(step.segment for step in program.steps).items():
            for operator in plan.segments[segment].operators:
                if isinstance(operator, Send | Receive) and operator.peer.rank is not None:
                    yield program.ranks[0], operator, operator.peer.rank, runs


def _met(plan: Plan, defects: Sequence[Defect]) -> Iterator[tuple[str, Plan]]:
    """The messages whose other end is not there, to the rank that has that end: those sent, those received, and each alone."""
    if not any(defect.name in _UNMET for defect in defects):
        return
    surplus: Counter[tuple[int, int, tuple[int, ...]]] = Counter()
    ends = []
    for rank, each_operator, peer, runs in _messages(plan):
        shape = plan.tensors[each_operator.tensor].shape if each_operator.tensor in plan.tensors else ()
        sends = isinstance(each_operator, Send)
        surplus[(rank, peer, shape) if sends else (peer, rank, shape)] += runs if sends else -runs
        ends.append((rank, each_operator, peer, shape, sends))
    found: dict[bool, list[tuple[str, Send | Receive, int]]] = {True: [], False: []}
    for rank, each_operator, peer, shape, sends in ends:
        others = [
            receiver if sends else sender
            for (sender, receiver, size), count in surplus.items()
            if size == shape and (sender if sends else receiver) == rank and (count < 0 if sends else count > 0)
        ]
        count = surplus[(rank, peer, shape) if sends else (peer, rank, shape)]
        if len(others) == 1 and (count > 0 if sends else count < 0):
            what = f"send `{each_operator.tensor}` to" if sends else f"receive `{each_operator.tensor}` from"
            found[sends].append((f"{what} rank {others[0]} instead of rank {peer}", each_operator, others[0]))
    for moved in found.values():
        for chosen in (moved, *([each] for each in moved if len(moved) > 1)):
            if chosen:
                words = " and ".join(dict.fromkeys(words for words, _, _ in chosen))
                yield (
                    words,
                    edited(plan, {id(operator): [replace(operator, peer=Peer(rank=peer))] for _, operator, peer in chosen}),
                )


def _reduced(plan: Plan, defects: Sequence[Defect]) -> Iterator[tuple[str, Plan]]:
    """Yield the reducers of gradients among all ranks that hold one piece, by a sum or a mean, and those that are missing."""
    if not any(defect.name in _UNREDUCED for defect in defects):
        return
    holders = _holders(plan)
    reducers = [
        (rank, operator)
        for program in plan.programs
        for segment in {step.segment: None for step in program.steps}
        for operator in plan.segments[segment].operators
        if isinstance(operator, ReduceGradients)
        for rank in program.ranks
    ]
    edits: dict[int, list[Operator]] = {}
    for rank, reducer in reducers:
        together = {holders.get((rank, weight), ()) for weight in reducer.weights}
        if len(together) == 1 and reducer.group.ranks and (right := next(iter(together))) != tuple(sorted(reducer.group.ranks)):
            edits[id(reducer)] = [replace(reducer, group=Group(ranks=right))] if len(right) > 1 else []
    if edits:
        yield _regrouped(plan, reducers, edits), edited(plan, edits)
    for how in ("sum", "avg"):
        other = {
            id(each_reducer): [replace(each_reducer, reduce=how)] for _, each_reducer in reducers if each_reducer.reduce != how
        }
        if other:
            yield f"reduce gradients by `{how}`", edited(plan, other)
    yield from _with_reducers(plan, reducers, holders)


def _regrouped(plan: Plan, reducers: Sequence[tuple[int, ReduceGradients]], edits: Mapping[int, Sequence[Operator]]) -> str:
    """Return in words what becomes of the first reducer that stays, or else of the first that goes."""
    changed = [reducer for _, reducer in reducers if id(reducer) in edits]
    first = next((reducer for reducer in changed if edits[id(reducer)]), changed[0])
    what = _first_of(first.weights)
    for right in edits[id(first)]:
        if isinstance(right, ReduceGradients):
            return f"reduce the gradients of {what} over {_on_all_replicas(plan, right.group.ranks)}"
    return f"do not reduce the gradients of {what}, of which each rank holds another piece"


def _with_reducers(
    plan: Plan, reducers: Sequence[tuple[int, ReduceGradients]], holders: Mapping[tuple[int, str], tuple[int, ...]]
) -> Iterator[tuple[str, Plan]]:
    """The plan with reducers for gradients that several ranks have and none reduces, before what ends the step."""
    known = {(rank, weight) for rank, reducer in reducers for weight in reducer.weights}
    how, divisor = next(((reducer.reduce, reducer.divisor) for _, reducer in reducers), ("sum", 1))
    replicated = plan.replication.count > 1
    missing: dict[int, list[ReduceGradients]] = {}
    added: list[tuple[str, tuple[int, ...]]] = []
    for place, program in enumerate(plan.programs):
        lacking = [
            (weight, ranks)
            for (rank, weight), ranks in holders.items()
            if rank == program.ranks[0] and (len(ranks) > 1 or replicated) and (rank, weight) not in known
        ]
        if lacking and len(program.ranks) == 1:
            groups = ((weight, Group(ranks=ranks)) for weight, ranks in lacking)
            missing[place] = [ReduceGradients((weight,), group, how, divisor, replicated) for weight, group in groups]
            added += lacking
    if added:
        weights = dict.fromkeys(weight for weight, _ in added)
        words = f"reduce the gradients of {_first_of(weights)} over {_on_all_replicas(plan, added[0][1])}"
        yield words, with_reducers(plan, missing)


def with_reducers(plan: Plan, missing: Mapping[int, Sequence[ReduceGradients]]) -> Plan:
    """Return the plan with reducers in programs, by their places, before what ends the step."""
    segments, programs = dict(plan.segments), [*plan.programs]
    for place, reducers in missing.items():
        steps, name = programs[place].steps, f"missing reducers of {programs[place].ranks[0]}"
        segments[name] = Segment(name, Phase.REDUCE, (), (), tuple(reducers))
        ends = (at for at, step in enumerate(steps) if plan.segments[step.segment].phase is Phase.OPTIMIZER)
        end = next(ends, len(steps))
        programs[place] = replace(programs[place], steps=(*steps[:end], Step(name, -1), *steps[end:]))
    return replace(plan, segments=segments, programs=tuple(programs))


def _first_of(weights: Collection[str]) -> str:
    """Return the first of some weights in words, and how many more there are."""
    more = f" and {len(weights) - 1} more" if len(weights) > 1 else ""
    return f"`{next(iter(weights))}`{more}"


def _on_all_replicas(plan: Plan, ranks: Sequence[int]) -> str:
    """Return the ranks, those of all replicas, in words."""
    repeats = plan.replication
    return describe(tuple(sorted(rank + at * repeats.stride for rank in ranks for at in range(repeats.count))))


def _holders(plan: Plan) -> dict[tuple[int, str], tuple[int, ...]]:
    """Return, for each rank and weight that it uses, the ranks that hold the same piece."""
    pieces: dict[tuple[int, str], tuple[str, Box]] = {}
    for program in plan.programs:
        computed = (operator for _, _, operator in plan.run_by(program) if isinstance(operator, Compute))
        named = {name for operator in computed for name in operator.tensor_operands}
        for name in sorted(named):
            tensor = plan.tensors.get(name)
            if tensor is None or tensor.role is not Role.WEIGHT or tensor.gradient == "":
                continue
            for rank in program.ranks:
                try:
                    pieces[rank, name] = (tensor.logical or name, region(plan, tensor, rank))
                except Mismatch:
                    continue
    ranks: dict[tuple[str, Box], set[int]] = {}
    for (rank, _), piece in pieces.items():
        ranks.setdefault(piece, set()).add(rank)
    return {value: tuple(sorted(ranks[piece])) for value, piece in pieces.items()}


def _groupings(plan: Plan, places: Mapping[int, Operator]) -> Iterator[tuple[str, dict[int, Group]]]:
    """Yield the ranks that run these operators in groups along each set of mesh axes, in words and by rank.

    An operator that several ranks share, as they run one program, has its group named by axes.
    """
    names = [axis.name for axis in plan.mesh.axes if axis.size > 1 and axis.name != _folded(plan)]
    shared = len({id(place) for place in places.values()}) < len(places)
    for count in range(1, len(names) + 1):
        for axes in combinations(names, count):
            groups = _groups(plan, places, axes)
            if any(len(group) < 2 for group in groups):
                continue
            if shared:
                yield "`" + ", ".join(axes) + "`", dict.fromkeys(places, Group(axes=axes))
            else:
                over = " and over ".join(describe(group) for group in sorted(groups))
                yield over, {rank: Group(ranks=group) for group in groups for rank in group}


def _kinds(plan: Plan, wrong: Communicate) -> Iterator[tuple[Collective, int | None]]:
    """Collectives, and their dimensions, that make what is declared of what is given."""
    given, made = (plan.tensors.get(name) for name in (*wrong.inputs[:1], *wrong.outputs[:1]) or ("", ""))
    if given is None or made is None or len(given.shape) != len(made.shape):
        return
    if given.shape == made.shape:
        yield Collective.ALL_REDUCE, None
    other = [dim for dim, (before, after) in enumerate(zip(given.shape, made.shape, strict=True)) if before != after]
    if len(other) == 1:
        (dim,) = other
        kind = Collective.ALL_GATHER if made.shape[dim] > given.shape[dim] else Collective.REDUCE_SCATTER
        yield kind, dim


def declared_as_part(plan: Plan, name: str) -> Iterator[tuple[str, Plan]]:
    """Yield the returned tensor declared a mean, or a sum, over each set of mesh axes."""
    tensor = plan.tensors.get(name)
    axes = [axis.name for axis in plan.mesh.axes if axis.size > 1]
    if tensor is None or tensor.placements:
        return
    for count, how in product(range(1, len(axes) + 1), ("avg", "sum")):
        for chosen in combinations(axes, count):
            written = " ".join(f"{axis}:{'P' if how == 'sum' else 'P(avg)'}" for axis in chosen)
            changed = replace(tensor, placements=dict.fromkeys(chosen, Partial(how)), whole=tensor.whole or tensor.shape)
            tensors = {**plan.tensors, name: changed}
            yield f"if the ranks are to return parts of `{name}`, declare it `{written}`", replace(plan, tensors=tensors)


def _groups(plan: Plan, ranks: Iterable[int], axes: tuple[str, ...]) -> set[tuple[int, ...]]:
    """Return the ranks in groups that differ only on the axes."""
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
        operator = fix.operator
        inputs = tuple(
            Literal(fix.expected) if isinstance(operand, Literal) and operand.value == fix.actual else operand
            for operand in operator.inputs
        )
        attributes: dict[str, Value] = {
            name: fix.expected if value == fix.actual else value for name, value in operator.attributes.items()
        }
        edits[id(operator)] = [replace(operator, inputs=inputs, attributes=attributes)]
    reported = (f"{fix.expected} instead of {fix.actual} in {name_of(fix.operator)}" for fix in fixes)
    yield f"use {', and '.join(dict.fromkeys(reported))}", edited(plan, edits)


def _exchanged(plan: Plan, fix: Exchange) -> tuple[str, Plan]:
    one, other = fix.names
    swap = {one: other, other: one}
    operator = fix.operator
    changed = replace(
        operator,
        inputs=tuple(swap.get(name, name) for name in operator.inputs),
        outputs=tuple(swap.get(name, name) for name in operator.outputs),
    )
    return f"exchange `{one}` and `{other}` in {name_of(operator)}", edited(plan, {id(operator): [changed]})


def edited(plan: Plan, edits: Mapping[int, Sequence[Operator]]) -> Plan:
    """Return the plan with operators (by identity) replaced; gradient operators follow their forward operators."""
    return replace(plan, segments={name: _edited_segment(segment, edits) for name, segment in plan.segments.items()})


def _edited_segment(segment: Segment, edits: Mapping[int, Sequence[Operator]]) -> Segment:
    operators: list[Operator] = []
    changed = False
    for operator in segment.operators:
        found = list(edits.get(id(operator), (operator,)))
        if isinstance(operator, Backward) and id(operator.forward) in edits and id(operator) not in edits:
            forward = edits[id(operator.forward)][0]
            found = [replace(operator, forward=forward)] if isinstance(forward, Compute) else found
        changed = changed or found != [operator]
        operators.extend(found)
    return replace(segment, operators=tuple(operators)) if changed else segment
