"""Communication: what ranks give is collected, and held against what others are said to get when all are through."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.certificate.exchange import DECLARED_PIECE_ORDER, FROM_ROOT, SUMS, TO_ROOT, exchanged, piece
from tvlint.certificate.meetings import meeting_of, members_of, spans_replicas
from tvlint.certificate.multiples import agreed
from tvlint.certificate.running import Joining, Rank, Running, assign, claim, hold, read
from tvlint.certificate.tables import Rejected
from tvlint.ir.operators import Collective, Communicate, Receive, Send
from tvlint.ops.elementwise import holds_whole_numbers


def communicate(run: Running, rank: Rank, own: Communicate) -> None:
    """Take part in a collective; what comes out is a claim until all members are known."""
    members = members_of(run.plan, own.group, rank.number)
    gives = own.kind not in FROM_ROOT or own.root == rank.number
    gets = own.kind not in TO_ROOT or own.root == rank.number
    if rank.number not in members or len(own.inputs) > 1 or len(own.outputs) > 1 or (gives and not own.inputs):
        if own.kind is Collective.BARRIER and rank.number in members and not own.inputs and not own.outputs:
            return
        raise Rejected(f"rank {rank.number} takes part in a collective of others, or with several tensors")
    types = [run.plan.tensors[name].dtype for name in own.inputs if name in run.plan.tensors]
    if own.reduce == "avg" and any(map(holds_whole_numbers, types)):
        raise Rejected("whole numbers are averaged, which rounds them")
    if holds_whole_numbers(own.dtype) and any(dtype != own.dtype for dtype in types):
        raise Rejected(f"numbers are communicated as {own.dtype}")
    if run.world.micro_batches and any(name in run.weight_of for name in own.outputs):
        raise Rejected("the gradient of a weight is reduced in every micro-batch")
    given = read(run, rank, own.inputs[0]) if gives else None
    spans = spans_replicas(run.plan, own.group)
    declared = DECLARED_PIECE_ORDER in run.assume
    if own.kind is Collective.CHUNK:
        if given is None or not own.outputs or own.splits or spans:
            raise Rejected(f"a cut on rank {rank.number} is not of one tensor into equal pieces")
        if own.dim is None or not -len(given.box) <= own.dim < len(given.box):
            raise Rejected(f"a cut on rank {rank.number} is along a dimension that the tensor does not have")
        dim = own.dim % len(given.box)
        position = members.index(rank.number)
        if declared:
            position = _declared(run, own.outputs[0], given.box[dim], dim, len(given.box), len(members), position)
        made = piece(run.world, given, dim, position, len(members))
        assign(run, rank, own.outputs[0], made, own.outputs[0] in own.inputs, False)
        return
    nothing, zero = not gets or not own.outputs, gives and given is None
    if not gets and any(name in run.weight_of for name in own.outputs):
        raise Rejected(f"rank {rank.number} is left with an undefined gradient of a weight")
    for name in own.outputs if not gets else ():
        rank.local.pop(name, None)
        rank.undefined.add(name)
    had = None if nothing else claim(run, rank)
    if had is None and not nothing and not zero:
        raise Rejected(f"a collective on rank {rank.number} is said to give nothing")
    if had is not None:
        hold(run, rank, own.outputs[0], had, own.outputs[0] in own.inputs, False)
    run.meetings.setdefault((members, own.group.name, spans), {}).setdefault(rank.number, []).append(Joining(own, given, had))


def _declared(run: Running, name: str, bounds: tuple[int, int], dim: int, dims: int, count: int, position: int) -> int:
    """The piece that the plan declares, where that is assumed."""
    tensor, (low, high) = run.plan.tensors.get(name), bounds
    if tensor is None or tensor.region is None or len(tensor.region) != dims:
        return position
    start = tensor.region[dim][0] - low
    return next((i for i in range(count) if start * count == (high - low) * i), position)


def send(run: Running, rank: Rank, own: Send) -> None:
    meeting = meeting_of(run.plan, own, rank.number)
    if meeting is not None:
        run.messages.setdefault(meeting.key, {}).setdefault(True, []).append(read(run, rank, own.tensor))


def receive(run: Running, rank: Rank, own: Receive) -> None:
    """Take a message, as the certificate says it is."""
    meeting = meeting_of(run.plan, own, rank.number)
    if meeting is None:
        return
    if own.tensor in rank.local or run.weight_of.get(own.tensor, "") in rank.gradients:
        raise Rejected(f"`{own.tensor}` is received on rank {rank.number} and has a value already")
    value = claim(run, rank)
    run.messages.setdefault(meeting.key, {}).setdefault(False, []).append(value)
    if value is not None:
        hold(run, rank, own.tensor, value, True, False)


def settle(run: Running) -> None:
    """What was received is what was sent, and what collectives gave follows from what was put in."""
    for ends in run.messages.values():
        sent, received = ends.get(True, []), ends.get(False, [])
        if len(sent) != len(received) or any(one is not other for one, other in zip(sent, received, strict=True)):
            raise Rejected("what a rank receives is not what its peer sends")
    for (members, _, spans), joinings in run.meetings.items():
        if set(joinings) != set(members) or len({len(own) for own in joinings.values()}) != 1:
            raise Rejected(f"the members of the group {list(members)} take part in different numbers of collectives")
        for turn in zip(*(joinings[member] for member in members), strict=True):
            _meet(run, members, turn, spans)


def _meet(run: Running, members: tuple[int, ...], turn: Sequence[Joining], spans: bool) -> None:
    first = turn[0].operator
    if any(_manner(own.operator) != _manner(first) for own in turn):
        raise Rejected(f"the members of the group {list(members)} run different collectives together")
    rooted = first.kind in FROM_ROOT or first.kind in TO_ROOT
    if rooted and first.root not in members:
        raise Rejected(f"the root {first.root} of a collective is not in the group {list(members)}")
    root = members.index(first.root) if rooted and first.root is not None else 0
    given = [turn[root] if first.kind in FROM_ROOT else own for own in turn]
    if all(own.given is None for own in given) and all(own.had is None for own in turn):
        return
    put = [own.given for own in given if own.given is not None]
    if put and len(put) != len(turn) and first.kind in SUMS and first.reduce in ("", "sum"):
        shapes = {run.plan.tensors[name].shape for own in given for name in own.operator.inputs if name in run.plan.tensors}
        if len(shapes) > 1:
            raise Rejected(f"the group {list(members)} sums a gradient that nothing makes with one of another shape")
        zero = run.world.tables.relation(put[0].term, put[0].box, 0)
        put = [own.given or zero for own in given]
    if len(put) != len(turn):
        raise Rejected(f"some members of the group {list(members)} have nothing to put in")
    declared = DECLARED_PIECE_ORDER in run.assume
    key = ("exchange", _manner(first), spans, root, tuple(map(id, put)))
    results = run.memo.get(key)
    if results is None:
        replicas = run.plan.replication.count if spans else 1
        results = run.memo[key] = exchanged(run.world, first, put, root, replicas, declared)
    for own, result in zip(turn, results, strict=True):
        same = own.had is None if result is None else agreed(run.world.tables, result, own.had)
        if own.operator.outputs and not same:
            raise Rejected(f"what a collective of the group {list(members)} gives is not what the certificate says")


def _manner(own: Communicate) -> tuple[object, ...]:
    """What the members of a collective have to agree on."""
    return own.kind, own.dim, own.concat_dim, own.root, own.reduce or "sum", own.splits, own.receive_splits, own.dtype
