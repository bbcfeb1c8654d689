"""Why one micro-batch stands for all: what a rank runs for each is what it runs for the first, under names of its own."""

from __future__ import annotations

from typing import TypeAlias

from tvlint.certificate.buffers import check_buffers, check_inputs
from tvlint.certificate.meetings import meeting_of, touched, weights_of_gradients
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Await, Record, ReduceGradients, Update, Wait
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step, Tensor

Key: TypeAlias = "tuple[str, int]"
"""A value on a rank: its name, and the micro-batch where the step gives it no name of its own."""

Touch: TypeAlias = "tuple[str, set[str], set[str]]"
"""How an operator touches weights (`use`, `reduce`, `update`): the weights whose gradients it touches, and those themselves."""

_ANY = -2


def micro_batches_of(plan: Plan) -> int:
    """How many micro-batches the programs run."""
    found = {step.micro_batch for program in plan.programs for step in program.steps if step.micro_batch >= 0}
    if found and found != set(range(len(found))):
        raise Rejected("the micro-batches that the programs run are not numbered from 0")
    return max(1, len(found))


def check_batch(plan: Plan, micro_batches: int) -> None:
    """Rejects a plan in which micro-batches are not alike, or meet, or gradients or weights are touched when they are final."""
    touches = _touches(plan)
    for program in plan.programs:
        _check_names(plan, program)
        check_buffers(plan, program)
        check_inputs(plan, program)
        _check_alike(plan, program, micro_batches)
        _check_mirrors(plan, program)
        _check_final(program, touches)
    _check_returned(plan)
    _check_channels(plan)


def _key(step: Step, name: str, given: tuple[str, ...] | None) -> Key:
    return (name, _ANY if given is not None else step.micro_batch)


def _keys(plan: Plan, step: Step) -> tuple[list[Key], list[Key]]:
    inputs, outputs = step.outside(plan.segments[step.segment])
    return [_key(step, name, step.inputs) for name in inputs], [_key(step, name, step.outputs) for name in outputs]


def _check_names(plan: Plan, program: Program) -> None:
    """What a run calls a value is declared as the segment's own name for it is; weights and buffers have no other names."""
    made = {name for step in program.steps for name in step.outside(plan.segments[step.segment])[1]}
    for step in program.steps:
        segment = plan.segments[step.segment]
        for inside, outside in zip((segment.inputs, segment.outputs), step.outside(segment), strict=True):
            for inner, name in zip(inside, outside, strict=True):
                if inner != name and not _stands_for(plan.tensors.get(name), plan.tensors.get(inner), name in made):
                    raise Rejected(f"`{name}` stands for `{inner}` of `{segment.name}`, and is not declared like it")


def _stands_for(one: Tensor | None, other: Tensor | None, made: bool) -> bool:
    if one is None or other is None or (one.shape, one.dtype, one.role) != (other.shape, other.dtype, other.role):
        return False
    if one.role is Role.INPUT and not made and (one.logical or one.name) != (other.logical or other.name):
        return False
    return one.role not in (Role.WEIGHT, Role.BUFFER) and (one.role is not Role.INPUT or _slice(one) == _slice(other))


def _check_alike(plan: Plan, program: Program, micro_batches: int) -> None:
    by_batch: dict[int, list[Step]] = {}
    for step in program.steps:
        by_batch.setdefault(step.micro_batch, []).append(step)
    outside = by_batch.pop(-1, [])
    if micro_batches > 1 and not all(_belongs_to_none(plan.segments[step.segment]) for step in outside):
        raise Rejected("a step that makes values belongs to no micro-batch")
    made = {key[0] for steps in by_batch.values() for step in steps for key in _keys(plan, step)[1]}
    owner: dict[Key, int] = {}
    for number, steps in by_batch.items():
        for key in (key for step in steps for keys in _keys(plan, step) for key in keys):
            if owner.setdefault(key, number) != number and (key[0] in made or not _shared(plan, key[0])):
                raise Rejected(f"`{key[0]}` is used for the micro-batches {owner[key]} and {number}")
    if by_batch and set(by_batch) != set(range(micro_batches)):
        raise Rejected("a rank does not run every micro-batch")
    if micro_batches > 1:
        _check_apart(plan, outside, [step for steps in by_batch.values() for step in steps], {name for name, _ in owner})
    for number in range(1, micro_batches if by_batch else 0):
        _check_like_first(plan, by_batch[0], by_batch[number])


def _check_apart(plan: Plan, outside: list[Step], inside: list[Step], names: set[str]) -> None:
    """Steps of no micro-batch touch nothing of one, and either all steps name their values or none does."""
    for step in outside:
        touched = {name for own in step.outside(plan.segments[step.segment]) for name in own}
        if any(not _shared(plan, name) for name in touched & names):
            raise Rejected(f"`{step.segment}` belongs to no micro-batch and touches a value of one")
    segments = plan.segments
    ways = {step.inputs is None for step in inside if segments[step.segment].inputs}
    if len(ways | {step.outputs is None for step in inside if segments[step.segment].outputs}) > 1:
        raise Rejected("some steps name their values and others do not")


def _shared(plan: Plan, name: str) -> bool:
    """Whether a name that no step makes means the same for every micro-batch; inputs are each one's own slice of the batch."""
    tensor = plan.tensors.get(name)
    return tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER, Role.INPUT)


def _belongs_to_none(segment: Segment) -> bool:
    """Whether a segment only reduces, updates and waits."""
    return all(isinstance(own, ReduceGradients | Update | Wait | Record | Await) for own in segment.operators)


def _check_like_first(plan: Plan, first: list[Step], other: list[Step]) -> None:
    """The same segments in the same order, and one-to-one names."""
    number = other[0].micro_batch
    if [step.segment for step in first] != [step.segment for step in other]:
        raise Rejected(f"a rank runs other segments for micro-batch {number} than for the first")
    there: dict[Key, Key] = {}
    back: dict[Key, Key] = {}
    for one, two in zip(first, other, strict=True):
        for ours, theirs in zip(_keys(plan, one), _keys(plan, two), strict=True):
            for a, b in zip(ours, theirs, strict=True):
                if there.setdefault(a, b) != b or back.setdefault(b, a) != a:
                    raise Rejected(f"`{b[0]}` of micro-batch {number} is used where another value is used of the first")


def _slice(tensor: Tensor) -> tuple[object, ...]:
    """The piece of an input that the tensor is declared to hold."""
    return tensor.whole, tensor.region, tensor.part, dict(tensor.placements or {})


def _check_mirrors(plan: Plan, program: Program) -> None:
    """What a backward step takes and gives are gradients of what its forward step, of its own micro-batch, gave and took."""
    forward: dict[tuple[str, int], Step] = {}
    written: set[Key] = set()
    for step in program.steps:
        segment = plan.segments[step.segment]
        if segment.phase is not Phase.BACKWARD:
            forward[step.segment, step.micro_batch] = step
        elif segment.mirror in plan.segments:
            ran = forward.get((segment.mirror, step.micro_batch))
            if ran is None:
                raise Rejected(f"`{step.segment}` runs for micro-batch {step.micro_batch} before its forward run")
            _check_mirror(plan, step, ran, written)
        written.update(_keys(plan, step)[1])


def _check_mirror(plan: Plan, step: Step, ran: Step, written: set[Key]) -> None:
    segment, mirror = plan.segments[step.segment], plan.segments[ran.segment]
    known = {**dict(zip(mirror.inputs, ran.outside(mirror)[0], strict=True))}
    known.update(zip(mirror.outputs, ran.outside(mirror)[1], strict=True))
    inputs, outputs = step.outside(segment)
    made = _keys(plan, step)[0]
    pairs = [(inner, outer) for inner, outer, key in zip(segment.inputs, inputs, made, strict=True) if key in written]
    for inner, outer in (*pairs, *zip(segment.outputs, outputs, strict=True)):
        one, other = plan.tensors.get(inner), plan.tensors.get(outer)
        if one is None or other is None or one.gradient_of not in known or not other.gradient_of:
            continue
        if known[one.gradient_of] != other.gradient_of:
            raise Rejected(f"`{outer}` is not the gradient of what the forward run of micro-batch {step.micro_batch} has")


def _check_final(program: Program, touches: dict[str, list[Touch]]) -> None:
    """Nothing adds to a gradient, or reads it, once it is reduced; nothing needs a weight once it is updated."""
    reduced: set[str] = set()
    updated: set[str] = set()
    for step in program.steps:
        for kind, gradients, weights in touches[step.segment]:
            if kind != "update" and (gradients | weights) & updated:
                raise Rejected("a weight is updated while it or its gradient is still in use")
            if kind == "use" and gradients & reduced:
                raise Rejected("a gradient is reduced while it is still added to, or read")
            reduced |= gradients if kind == "reduce" else set()
            updated |= weights if kind == "update" else set()


def _touches(plan: Plan) -> dict[str, list[Touch]]:
    """For every segment, how its operators touch weights."""
    weights = {name for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    owner = weights_of_gradients(plan)
    trained = weights | owner.keys()
    found: dict[str, list[Touch]] = {}
    for name, segment in plan.segments.items():
        touches = found.setdefault(name, [])
        for own in segment.operators:
            if isinstance(own, ReduceGradients):
                touches.append(("reduce", set(own.weights), set(own.weights)))
            elif isinstance(own, Update):
                touches.append(("update", set(), set(own.weights)))
            else:
                names = set[str]().union(*touched(own))
                if not names.isdisjoint(trained):
                    touches.append(("use", {owner[one] for one in names if one in owner}, names & weights))
    return found


def _check_returned(plan: Plan) -> None:
    """What is returned of one micro-batch is returned of all, in the same order, and no rank means another one by its name."""
    owner: dict[str, int] = {}
    for program in plan.programs:
        given: dict[tuple[str, int], set[bool]] = {}
        orders: dict[int, dict[int, tuple[str, int]]] = {}
        for step in program.steps:
            for position, name in enumerate(step.outputs or ()):
                given.setdefault((step.segment, position), set()).add(name in plan.outputs)
                if name in plan.outputs:
                    orders.setdefault(step.micro_batch, {})[plan.outputs.index(name)] = (step.segment, position)
                    if owner.setdefault(name, step.micro_batch) != step.micro_batch:
                        raise Rejected(f"`{name}` is returned of micro-batch {step.micro_batch} and elsewhere of another")
        if any(len(found) > 1 for found in given.values()):
            raise Rejected("a value is returned of some micro-batches and not of others")
        if len({tuple(places for _, places in sorted(found.items())) for found in orders.values()}) > 1:
            raise Rejected("values are returned of some micro-batches in another order than of others")


def _check_channels(plan: Plan) -> None:
    """Messages and collectives meet their counterparts of the same micro-batch, always the same ones as for the first."""
    ends: dict[object, dict[object, list[tuple[object, int, int]]]] = {}
    for program in plan.programs:
        for rank in program.ranks:
            for step in program.steps:
                for index, own in enumerate(plan.segments[step.segment].operators):
                    meeting = meeting_of(plan, own, rank)
                    if meeting is not None:
                        entry = ((rank, step.segment, index), step.micro_batch, getattr(own, "tag", 0))
                        ends.setdefault(meeting.key, {}).setdefault(meeting.end, []).append(entry)
    for sides in ends.values():
        first, *others = sides.values()
        for side in others:
            meets: dict[object, object] = {}
            if len(side) != len(first):
                raise Rejected("the ends of a channel have different numbers of messages")
            for (left, one, tag), (right, other, label) in zip(first, side, strict=True):
                if one != other or tag != label or meets.setdefault(left, right) != right:
                    raise Rejected("a communication meets one of another micro-batch, or another one than for the first")
