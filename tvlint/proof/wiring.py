"""Why one micro-batch stands for all: every rank does for each micro-batch what it does for the first, with its own values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.plan import (
    Await,
    Communicate,
    Compute,
    Phase,
    Plan,
    Program,
    Receive,
    Record,
    ReduceGradients,
    Role,
    Segment,
    Send,
    Step,
    Tensor,
    Update,
    Wait,
)
from tvlint.proof.finality import Finals
from tvlint.proof.groups import members_of, peer_of, spans_replicas
from tvlint.proof.placed import inputs_of
from tvlint.proof.trouble import Trouble

Entry: TypeAlias = tuple[object, int, int]
"""One communication of a rank: which operator, for which micro-batch, with which tag."""

_ONCE = (Phase.REDUCE, Phase.OPTIMIZER)

_GIVEN = (Role.INPUT, Role.WEIGHT, Role.BUFFER)
"""What lies where it is declared to lie."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The run that made a value: output `position` of `segment`, in its run number `turn` for `micro_batch`."""

    segment: str
    position: int
    micro_batch: int
    turn: int


def micro_batches_of(plan: Plan) -> int:
    """How many micro-batches the plan runs, counted from its steps."""
    found = {step.micro_batch for program in plan.programs for step in program.steps if step.micro_batch >= 0}
    return max(1, len(found))


def check_wiring(plan: Plan, micro_batches: int) -> Iterator[Trouble]:
    """What keeps the micro-batches from being alike on some rank."""
    found = False
    finals, inputs = Finals(plan), _inputs(plan)
    for program in plan.programs:
        for trouble in (
            *_counts(plan, program, micro_batches),
            *_values(plan, program, inputs),
            *finals.troubles(program),
        ):
            found = True
            yield from (_on(trouble, rank) for rank in program.ranks)
    if micro_batches > 1:
        yield from _mixed(plan)
    if not found:
        yield from _returned(plan)
        yield from _channels(plan)


def _on(trouble: Trouble, rank: int) -> Trouble:
    return Trouble(trouble.name, trouble.refutes, trouble.message, rank, trouble.segment, trouble.operator, trouble.source)


def _counts(plan: Plan, program: Program, micro_batches: int) -> Iterator[Trouble]:
    """Every segment runs as often for each micro-batch as for the first."""
    runs: dict[str, Counter[int]] = {}
    steps: dict[str, list[Step]] = {}
    for step in program.steps:
        runs.setdefault(step.segment, Counter())[step.micro_batch] += 1
        steps.setdefault(step.segment, []).append(step)
    for name, batches in runs.items():
        segment = plan.segments[name]
        if _once(plan, segment) or (micro_batches == 1 and set(batches) == {-1}):
            continue
        what = f"{segment.phase.value} of `{name}`"
        if set(batches) == {-1}:
            text = f"the {what} on {{ranks}} belongs to no micro-batch, and the plan runs {micro_batches}"
            yield Trouble("outside-micro-batches", False, text, -1, name)
            continue
        lacking = [batch for batch in range(micro_batches) if batch not in batches]
        if lacking:
            numbers = ", ".join(map(str, lacking))
            text = f"the {what} on {{ranks}} never runs for micro-batch {numbers} of {micro_batches}"
            nearest = min(steps[name], key=lambda step: abs(step.micro_batch - lacking[0]))
            yield Trouble("missing-micro-batch", True, text, -1, name, source=nearest.source)
        elif len(set(batches.values())) > 1 or len(batches) != micro_batches:
            text = f"the {what} on {{ranks}} does not run as often for every micro-batch"
            again = [step for step in steps[name] if batches[step.micro_batch] == max(batches.values())]
            yield Trouble("repeated-micro-batch", True, text, -1, name, source=again[-1].source)


def _once(plan: Plan, segment: Segment) -> bool:
    """Whether the segment makes nothing that belongs to a micro-batch, or only loads what another check sees missing."""
    if segment.phase is Phase.DATA:
        names = (name for own in segment.operators if isinstance(own, Compute) for name in own.outputs)
        loads = all(name in plan.tensors and plan.tensors[name].role is Role.INPUT for name in names)
        return loads and all(isinstance(own, Compute) for own in segment.operators)
    ends = ReduceGradients | Update | Wait | Record | Await
    return segment.phase in _ONCE and all(isinstance(own, ends) for own in segment.operators)


def _values(plan: Plan, program: Program, known: frozenset[str]) -> Iterator[Trouble]:
    """Every run reads what the runs of its own micro-batch made, in the pattern of the first micro-batch."""
    held: dict[object, list[_Source]] = {}
    owners: dict[object, int] = {}
    pattern: dict[tuple[str, int, int], frozenset[tuple[str, int, int]]] = {}
    forward: dict[tuple[str, int], list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    turns: Counter[tuple[str, int]] = Counter()
    told: set[object] = set()
    for step in program.steps:
        segment, turn = plan.segments[step.segment], turns[step.segment, step.micro_batch]
        turns[step.segment, step.micro_batch] += 1
        inputs = segment.inputs if step.inputs is None else step.inputs
        outputs = segment.outputs if step.outputs is None else step.outputs
        if len(inputs) != len(segment.inputs) or len(outputs) != len(segment.outputs):
            yield Trouble(
                "miswired-step",
                True,
                f"a run of `{segment.name}` on {{ranks}} names other values than it has",
                -1,
                segment.name,
                source=step.source,
            )
            continue
        pairs = (*zip(segment.inputs, inputs, strict=True), *zip(segment.outputs, outputs, strict=True))
        unlike = next(((inner, outer) for inner, outer in pairs if not _alike(plan, inner, outer, known)), None)
        if unlike is not None and unlike not in told:
            told.add(unlike)
            how = "is another weight or input, or declared with another shape, type or slice"
            text = f"`{unlike[1]}` on {{ranks}} stands for `{unlike[0]}` and {how}"
            yield Trouble("unlike-values", False, text, -1, segment.name, source=step.source)
        read = [_key(step, name, step.inputs) for name in inputs]
        made = [_key(step, name, step.outputs) for name in outputs]
        if segment.phase is Phase.DATA and any(key in held for key in made) and segment.name not in told:
            told.add(segment.name)
            text = f"`{segment.name}` on {{ranks}} loads what is loaded already for micro-batch {step.micro_batch}"
            yield Trouble("loaded-twice", False, text, -1, segment.name, source=step.source)
        if step.micro_batch >= 0:
            for position, name in enumerate(inputs):
                sources = held.get(read[position], [])
                trouble = _stale(segment, step.micro_batch, turn, position, name, sources, pattern)
                if trouble is not None and (segment.name, position) not in told:
                    told.add((segment.name, position))
                    yield replace(trouble, source=step.source)
            trouble = _of_other_forward(plan, segment, step.micro_batch, inputs, outputs, forward, held)
            if trouble is not None and segment.name not in told:
                told.add(segment.name)
                yield replace(trouble, source=step.source)
        if segment.phase is not Phase.BACKWARD:
            forward.setdefault((segment.name, step.micro_batch), []).append((tuple(outputs), tuple(inputs)))
        for position, name in enumerate(outputs):
            key = made[position]
            source = _Source(segment.name, position, step.micro_batch, turn)
            if key in read:
                held[key] = [source]
            else:
                held.setdefault(key, []).append(source)
            owner = owners.setdefault(key, step.micro_batch)
            if owner != step.micro_batch and ("owner", name) not in told:
                told.add(("owner", name))
                text = f"`{name}` on {{ranks}} is made for micro-batch {owner} and again for micro-batch {step.micro_batch}"
                yield Trouble("crossed-micro-batches", True, text, -1, segment.name, source=step.source)


def _alike(plan: Plan, inner: str, outer: str, inputs: frozenset[str]) -> bool:
    """Whether the name that a run gives a value declares what the segment's own name declares."""
    one, other = plan.tensors.get(inner), plan.tensors.get(outer)
    if inner == outer or one is None or other is None:
        return True
    if (one.shape, one.dtype, one.role) != (other.shape, other.dtype, other.role):
        return False
    if one.role in (Role.WEIGHT, Role.BUFFER) and _known_as(one) != _known_as(other):
        return False
    if one.role is Role.INPUT and _known_as(one) != _known_as(other) and _known_as(other) in inputs:
        return False
    return one.role not in _GIVEN or _place(one) == _place(other)


def _place(tensor: Tensor) -> tuple[object, ...]:
    """Which piece of a value the tensor is declared to hold."""
    return tensor.whole, tensor.region, tensor.part, dict(tensor.placements or {})


def _known_as(tensor: Tensor) -> str:
    return tensor.logical or tensor.name


def _inputs(plan: Plan) -> frozenset[str]:
    """The inputs that are told apart: those of the plan, and those that segments load and read.

    A micro-batch may have a name of its own for its share of one.
    """
    names = {name for segment in plan.segments.values() for name in (*segment.inputs, *segment.outputs)}
    tensors = (plan.tensors[name] for name in names if name in plan.tensors)
    return frozenset((*inputs_of(plan).names, *(_known_as(tensor) for tensor in tensors if tensor.role is Role.INPUT)))


def _key(step: Step, name: str, given: tuple[str, ...] | None) -> object:
    """What tells the value apart on its rank: a name that the step gives is one value, any other one a micro-batch."""
    return name if given is not None else (step.micro_batch, name)


def _mixed(plan: Plan) -> Iterator[Trouble]:
    """Plans that give some runs names of their own and others none, which leaves open what a name means."""
    for program in plan.programs:
        ways = {
            given is not None
            for step in program.steps
            if step.micro_batch >= 0
            for given, own in (
                (step.inputs, plan.segments[step.segment].inputs),
                (step.outputs, plan.segments[step.segment].outputs),
            )
            if own
        }
        if len(ways) > 1:
            text = "some runs of {ranks} name their values and others do not"
            yield from (Trouble("mixed-names", False, text, rank) for rank in program.ranks)


def _stale(
    segment: Segment,
    micro_batch: int,
    turn: int,
    position: int,
    name: str,
    sources: list[_Source],
    pattern: dict[tuple[str, int, int], frozenset[tuple[str, int, int]]],
) -> Trouble | None:
    crossed = [source for source in sources if source.micro_batch not in (-1, micro_batch)]
    if crossed:
        text = (
            f"`{segment.name}` on {{ranks}} reads for micro-batch {micro_batch} the value `{name}` that "
            f"`{crossed[0].segment}` made for micro-batch {crossed[0].micro_batch}"
        )
        return Trouble("crossed-micro-batches", True, text, -1, segment.name)
    made_by = frozenset((source.segment, source.position, source.turn) for source in sources)
    if len({(source.segment, source.position) for source in sources}) != len(sources):
        text = f"`{name}` on {{ranks}} is made twice by one segment for micro-batch {micro_batch}"
        return Trouble("repeated-micro-batch", False, text, -1, segment.name)
    if pattern.setdefault((segment.name, turn, position), made_by) != made_by:
        text = (
            f"`{segment.name}` on {{ranks}} reads `{name}` for micro-batch {micro_batch} from other segments than for the first"
        )
        return Trouble("crossed-micro-batches", True, text, -1, segment.name)
    return None


def _of_other_forward(
    plan: Plan,
    segment: Segment,
    micro_batch: int,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    forward: Mapping[tuple[str, int], list[tuple[tuple[str, ...], tuple[str, ...]]]],
    held: Mapping[object, list[_Source]],
) -> Trouble | None:
    """A backward run whose gradients belong to a forward run of another micro-batch."""
    if segment.phase is not Phase.BACKWARD or segment.mirror not in plan.segments:
        return None
    mirror = plan.segments[segment.mirror]
    runs = forward.get((mirror.name, micro_batch))
    if runs is None:
        text = f"`{segment.name}` on {{ranks}} runs for micro-batch {micro_batch} before its forward run"
        return Trouble("gradient-before-forward", True, text, -1, segment.name)
    given, taken = zip(segment.inputs, inputs, strict=True), zip(segment.outputs, outputs, strict=True)
    made = [(inner, outer) for inner, outer in given if outer in held or (micro_batch, outer) in held]
    for pairs, own, which in ((made, mirror.outputs, 0), (list(taken), mirror.inputs, 1)):
        for inner, outer in pairs:
            inner_of = plan.tensors[inner].gradient_of if inner in plan.tensors else ""
            outer_of = plan.tensors[outer].gradient_of if outer in plan.tensors else ""
            if inner_of in own and outer_of and runs[-1][which][own.index(inner_of)] != outer_of:
                several = len(set(runs)) > 1
                what = "an earlier run, or of none" if several else "another run"
                text = f"`{segment.name}` on {{ranks}} takes `{outer}` for micro-batch {micro_batch}, a gradient of {what}"
                return Trouble("crossed-micro-batches", not several, text, -1, segment.name)
    return None


def _returned(plan: Plan) -> Iterator[Trouble]:
    """What is returned of one micro-batch is returned of all."""
    returned = set(plan.outputs)
    for program in plan.programs:
        given: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for step in program.steps:
            for position, name in enumerate(step.outputs or ()):
                given.setdefault((step.segment, position), []).append((name, step.micro_batch))
        for names in given.values():
            missing = [(name, micro_batch) for name, micro_batch in names if name not in returned]
            if missing and len(missing) < len(names):
                text = f"`{missing[0][0]}` of micro-batch {missing[0][1]} on {{ranks}} is not returned, and those of others are"
                yield from (Trouble("missing-output", True, text, rank) for rank in program.ranks)


def _channels(plan: Plan) -> Iterator[Trouble]:
    """Messages and collectives meet their counterparts of the same micro-batch, in the pattern of the first."""
    sends: dict[object, list[Entry]] = {}
    receives: dict[object, list[Entry]] = {}
    collectives: dict[tuple[object, int], list[Entry]] = {}
    members: dict[object, tuple[int, ...]] = {}
    places: dict[object, Location | None] = {}
    talking = {
        name: [(i, own) for i, own in enumerate(segment.operators) if isinstance(own, Send | Receive | Communicate)]
        for name, segment in plan.segments.items()
    }
    for program in plan.programs:
        for rank in program.ranks:
            for step in program.steps:
                for index, operator in talking[step.segment]:
                    entry = ((rank, step.segment, index), step.micro_batch)
                    places[entry[0]] = operator.source
                    if isinstance(operator, Send | Receive):
                        peer = peer_of(plan, operator.peer, rank)
                        if peer is None:
                            continue
                        if isinstance(operator, Send):
                            sends.setdefault((rank, peer, operator.communicator), []).append((*entry, operator.tag))
                        else:
                            receives.setdefault((peer, rank, operator.communicator), []).append((*entry, operator.tag))
                    elif isinstance(operator, Communicate) and operator.kind.value != "chunk":
                        group = members_of(plan, operator.group, rank)
                        meeting = (group, operator.group.name, spans_replicas(plan, operator.group))
                        members[meeting] = group
                        collectives.setdefault((meeting, rank), []).append((*entry, 0))
    for channel in sorted({*sends, *receives}, key=str):
        certain = plan.replication.count == 1
        yield from _paired(sends.get(channel, []), receives.get(channel, []), "message", places, certain)
    for joined, group in members.items():
        first = collectives.get((joined, group[0]), [])
        for rank in group[1:]:
            yield from _paired(first, collectives.get((joined, rank), []), "collective", places)


def _paired(
    one: list[Entry], other: list[Entry], what: str, places: Mapping[object, Location | None], certain: bool = True
) -> Iterator[Trouble]:
    if not one and not other:
        return
    rank = _rank(one) if one else _rank(other)
    if len(one) != len(other):
        here, there = (_rank(one), _rank(other)) if one and other else (rank, -1)
        text = f"{{ranks}} has {len(one)} {what}s where the other end has {len(other)}"
        own = next(
            (entries[0] for entries in (one, other) if entries and _rank(entries) == (here if there < 0 else there)), None
        )
        source = places.get(own[0]) if own is not None else None
        yield Trouble(f"unmatched-{what}", certain, text, here if there < 0 else there, source=source)
        return
    meets: dict[object, object] = {}
    for (left, left_batch, left_tag), (right, right_batch, right_tag) in zip(one, other, strict=True):
        if left_tag != right_tag:
            text = f"a {what} of {{ranks}} with tag {left_tag} meets one with tag {right_tag}"
            yield Trouble(f"mispaired-{what}", False, text, rank, source=places.get(left))
            return
        if left_batch != right_batch:
            text = f"a {what} of {{ranks}} for micro-batch {left_batch} meets one for micro-batch {right_batch}"
            yield Trouble("crossed-micro-batches", True, text, rank, source=places.get(left))
            return
        if meets.setdefault(left, right) != right:
            text = f"a {what} of {{ranks}} meets another one than for the first micro-batch"
            yield Trouble(f"mispaired-{what}", True, text, rank, source=places.get(left))
            return


def _rank(entries: list[Entry]) -> int:
    first = entries[0][0]
    assert isinstance(first, tuple)
    return int(first[0])
