"""Communication: a rank puts in, and takes out when all members have come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.relations.assumable import DECLARED_PIECE_ORDER
from tvlint.analyses.relations.derivation.environment import (
    assign,
    forward_term,
    gradient_value,
    is_absent,
    is_gradient,
    made_of,
    operand_value,
    which,
)
from tvlint.analyses.relations.derivation.given.nested_shards import is_cut_twice
from tvlint.analyses.relations.derivation.localisation.localise import blame, name_of, tell, tell_joined, tell_scaling
from tvlint.analyses.relations.derivation.localisation.runnable import may_exchange
from tvlint.analyses.relations.derivation.localisation.sure import (
    as_sum_of_shards,
    check_parts,
    counts_copies,
    is_other_part,
    joined_before,
    note_cut,
    note_left,
    note_scaling,
    note_summed,
)
from tvlint.analyses.relations.derivation.operators.opaque_values import exchanged
from tvlint.analyses.relations.derivation.operators.order_insensitive import (
    Readers,
    is_added_up,
    order_may_not_matter,
    readers_of,
)
from tvlint.analyses.relations.derivation.operators.put_in_order import (
    MOST_ELEMENTS,
    Part,
    UndecidedError,
    are_moved,
    numbered,
    put_in_order,
)
from tvlint.analyses.relations.derivation.own_values import with_values_of_their_own
from tvlint.analyses.relations.derivation.state import Machine, Need, RankState, Slot, leave_open
from tvlint.analyses.relations.derivation.sums_of_different import added_up, extreme_of
from tvlint.analyses.relations.transfer.boxes import are_disjoint
from tvlint.analyses.relations.transfer.collectives import chunk, exchange, over_replicas
from tvlint.analyses.relations.transfer.context import Mismatch, of_one_plan
from tvlint.analyses.relations.transfer.groups import Members, spans_replicas
from tvlint.analyses.relations.transfer.index_maps import joined
from tvlint.analyses.relations.transfer.relation import Value
from tvlint.analyses.relations.transfer.rounding import adds_otherwise, sent_as_other_numbers
from tvlint.ir.operators import GATHERS, SUMS, Collective, Communicate, Group, Operator, Receive, Send
from tvlint.ir.plan import Plan, Role, Segment
from tvlint.ir.reductions import ADDING
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_FROM_ROOT = (Collective.BROADCAST, Collective.SCATTER)
"""The collectives into which only the root puts something."""

END: Need = ("end", "")
"""The end of the segment, and operators that may touch anything, need all that is under way."""

NEXT: Need = ("next", "")
"""The next operator needs what has neither a handle nor a batch."""

BATCH: Need = ("batch", "")
"""An operator that is not in the batch under way needs all of it."""

_GIVEN = ("weight", "buffer", "state", "input")
"""The kinds of terms that a plan starts from."""

_ROOTED = (*_FROM_ROOT, Collective.REDUCE, Collective.GATHER)


def communicate(machine: Machine, rank: RankState, operator: Communicate) -> None:
    """Put in what the rank gives; what it gets is under way from then on."""
    members = machine.groups.members(operator.group, rank.number)
    if rounded := sent_as_other_numbers(machine.plan, operator):
        tell(machine, rank, operator, rounded, fatal=True)
    if machine.world.many_micro_batches and _takes_what_adds_up(machine, rank, operator):
        text = "reduces the gradient of a weight in every micro-batch"
        tell(machine, rank, operator, Mismatch("reduced-per-micro-batch", text, refutes=False), fatal=True)
    if rank.number not in members:
        text = f"runs in the group {list(members.ranks)}, which it is not in"
        mismatch = Mismatch("wrong-collective-group", text, refutes=True)
        tell(machine, rank, operator, mismatch, fatal=True)
        for name in operator.outputs:
            assign(machine, rank, operator, name, None, operator.inputs)
        return
    if operator.kind is Collective.BARRIER and not operator.inputs and not operator.outputs:
        return  # moves nothing; who waits for whom is judged by the order analysis
    giving = operator.kind not in _FROM_ROOT or operator.root == rank.number
    if _gets(operator, rank.number) and not operator.outputs:
        text = "gives its result no name, and may overwrite what it reads"
        tell(machine, rank, operator, Mismatch("unsupported-collective", text, refutes=False), fatal=True)
    if len(operator.inputs) > 1 or len(operator.outputs) > 1 or (giving and not operator.inputs):
        _several(machine, rank, operator, members, giving)
        return
    if operator.kind is Collective.CHUNK:
        for name in operator.outputs:
            assign(machine, rank, operator, name, chunked(machine, rank, operator, members), operator.inputs)
        return
    channel = (members, operator.group.name, spans_replicas(machine.plan, operator.group))
    turn = machine.turns.get((rank.number, channel), 0)
    machine.turns[rank.number, channel] = turn + 1
    table = machine.waiting.setdefault((channel, turn), {})
    if giving and operator.kind in GATHERS:
        with_values_of_their_own(machine, rank, operator.inputs)
    table[rank.number] = (operator, _given(machine, rank, operator, operator.inputs[0]) if giving else None)
    if giving and machine.alone:
        machine.given.setdefault((channel, turn), {})[rank.number] = which(machine, rank, operator.inputs[0])
    _put_under_way(rank, operator, (channel, turn))
    if members.have_come(table):
        _check_absent(machine, rank, operator, table)
        results = machine.arrived[channel, turn] = together(machine, rank, members, table)
        if results is None and machine.alone:
            machine.moved[channel, turn] = exchanged(machine, operator, machine.given.pop((channel, turn), {}))


def _takes_what_adds_up(machine: Machine, rank: RankState, operator: Communicate) -> bool:
    """Return whether the gradient of a weight is communicated with what earlier micro-batches have added to it.

    What communication makes of a gradient of one micro-batch adds up like any other.
    """
    return any(name in machine.weight_of for name in operator.outputs) and bool(made_of(machine, rank, operator.inputs))


def _put_under_way(rank: RankState, operator: Communicate | Receive, key: tuple[Any, int]) -> None:
    number = next(reversed(rank.under_way), -1) + 1
    rank.under_way[number] = operator, key
    for need in _needs(operator):
        rank.awaited.setdefault(need, set()).add(number)


def _needs(operator: Communicate | Receive) -> list[Need]:
    """Return what needs the results of a collective or message."""
    waited = [("wait", operator.handle)] if operator.handle else []
    batched = [BATCH] if isinstance(operator, Receive) and operator.batch else []
    return [END, *((waited + batched) or [NEXT]), *(("touch", name) for name in writes(operator))]


def is_in_batch_under_way(rank: RankState, operator: Operator) -> bool:
    """Return whether the operator belongs to the one batch that may be under way."""
    first = next(iter(rank.awaited.get(BATCH, ())), None)
    batch = None if first is None else rank.under_way[first][0]
    return isinstance(batch, Receive) and isinstance(operator, Send | Receive) and operator.batch == batch.batch


def complete(machine: Machine, rank: RankState, needs: Iterable[Need]) -> bool:
    """Give the rank what it needs of what is under way, in order; return whether all of it has come."""
    needed = sorted({number for need in needs for number in rank.awaited.get(need, ())})
    for number in needed:
        operator, key = rank.under_way[number]
        if _take_results(machine, rank, operator, key):
            del rank.under_way[number]
            for need in _needs(operator):
                rank.awaited[need].discard(number)
    return rank.under_way.keys().isdisjoint(needed)


def _take_results(machine: Machine, rank: RankState, operator: Communicate | Receive, key: tuple[Any, int]) -> bool:
    """Give the rank what it gets of what is under way; return whether that has come."""
    if isinstance(operator, Receive):
        channel, number = key
        box = machine.mail.get(channel, ())
        if number >= len(box):
            return False
        _take(machine, rank, operator, box[number])
        if box[number] is None:
            rank.opaque[operator.tensor] = machine.posted[channel][number]
        return True
    if key not in machine.arrived:
        return False
    results = machine.arrived[key]
    for name in operator.outputs:
        if results != {} and _is_for_another(rank, operator, name, key[0][0]):
            rank.at_root[name] = operator.root
        elif results is None:
            assign(machine, rank, operator, name, None, operator.inputs)
            rank.opaque[name] = machine.moved.get(key, {}).get(rank.number)
        elif rank.number in results:
            assign(machine, rank, operator, name, results[rank.number], operator.inputs)
        elif not results:
            rank.trail.append("absent")
            rank.zero.add(name)
        elif name in operator.inputs:
            leave_open(machine, rank, name)
    return True


def _is_for_another(rank: RankState, operator: Communicate, name: str, members: Members) -> bool:
    """Return whether a collective gives another rank, its root, its result, and this one keeps nothing as `name`."""
    elsewhere = operator.root in members and operator.root != rank.number
    return operator.kind in (Collective.REDUCE, Collective.GATHER) and elsewhere and name not in operator.inputs


def _check_absent(
    machine: Machine, rank: RankState, operator: Communicate, table: dict[int, tuple[Communicate, Slot | str]]
) -> None:
    """A gradient that nothing makes is zero of its declared shape, which must be that of what it is summed with."""
    names = [each_operator.inputs[0] for each_operator, _ in table.values() if each_operator.inputs]
    shapes = {machine.plan.tensors[name].shape for name in names if name in machine.plan.tensors}
    sums = operator.kind in SUMS
    if sums and len(shapes) > 1 and any(given == "absent" for _, given in table.values()):
        text = f"sums values of the shapes {', '.join(map(str, sorted(shapes)))}, one of which nothing makes"
        tell(machine, rank, operator, Mismatch("wrong-shape-claim", text, refutes=False), fatal=True)


def _gets(operator: Communicate, rank: int) -> bool:
    """Return whether the rank gets something that it has not given."""
    if operator.kind in (Collective.REDUCE, Collective.GATHER):
        return operator.root == rank
    return operator.kind is not Collective.BARRIER and (operator.kind is not Collective.BROADCAST or operator.root != rank)


def _several(machine: Machine, rank: RankState, operator: Communicate, members: Members, giving: bool) -> None:
    """A collective of several tensors, or of none, is not followed; one that no framework runs is distinguished."""
    _check_root(machine, rank, operator, members)
    if giving and not operator.inputs:
        tell(machine, rank, operator, Mismatch("use-before-definition", "puts nothing in", refutes=False))
    for name in operator.inputs:
        _given(machine, rank, operator, name)
    tell(machine, rank, operator, Mismatch("unsupported-collective", "moves several tensors", refutes=False))
    for name in operator.outputs:
        assign(machine, rank, operator, name, None, operator.inputs)


def _check_root(machine: Machine, rank: RankState, operator: Communicate, members: Members) -> None:
    if operator.kind in _ROOTED and operator.root not in members:
        text = f"names the root {operator.root}, which is not in the group {list(members.ranks)}"
        tell(machine, rank, operator, Mismatch("wrong-root", text, refutes=False))


def _given(machine: Machine, rank: RankState, operator: Communicate, name: str) -> Slot | str:
    """Return what the rank puts in as `name`; "absent" for a gradient that nothing produces."""
    try:
        if is_gradient(machine, name) and machine.weight_of.get(name, "") not in rank.gradients:
            return gradient_value(machine, rank, operator, name)
        return operand_value(machine, rank, operator, name)
    except Mismatch as mismatch:
        blame(machine, rank, operator, mismatch)
        return None


def chunked(machine: Machine, rank: RankState, operator: Communicate, members: Members) -> Slot:
    try:
        value = operand_value(machine, rank, operator, operator.inputs[0])
        if value is None:
            return None
        if operator.dim is None or not -len(value.box) <= operator.dim < len(value.box):
            raise Mismatch("wrong-dimension", f"cuts along dimension {operator.dim}", refutes=True)
        if operator.splits and machine.alone:
            raise Mismatch("unequal-splits", "cuts unequally", refutes=False)
        if spans_replicas(machine.plan, operator.group):
            raise Mismatch("across-replicas", "cuts a value between folded replicas", refutes=False)
        dim = operator.dim % len(value.box)
        position = members.place(rank.number)
        if DECLARED_PIECE_ORDER in machine.assume:
            position = declared_position(machine, operator, value, dim, len(members), position)
        if not machine.alone:
            _check_length(machine, operator, value, dim, position, len(members))
        piece = chunk(machine.world, value, dim, position, len(members), operator.splits)
        if machine.alone:
            note_cut(machine, rank, operator, (value,), piece)
        return piece
    except Mismatch as mismatch:
        blame(machine, rank, operator, mismatch)
        return None


def _check_length(machine: Machine, operator: Communicate, value: Value, dim: int, position: int, count: int) -> None:
    """Raise Mismatch where a piece has not its declared length, whether pieces are near equal or the last one is smaller."""
    size, tensor = machine.world.local_shape(value)[dim], machine.plan.tensors.get(operator.outputs[0])
    splits = operator.splits if len(operator.splits) == count else ()
    if (size % count == 0 and not splits) or tensor is None or len(tensor.shape) <= dim:
        return
    step, declared = -(-size // count), tensor.shape[dim]
    near_equal = (max(0, min(step, size - position * step)), size // count + (position < size % count))
    if declared not in (splits[position : position + 1] or near_equal):
        text = f"cuts {size} elements into {count} pieces, and `{operator.outputs[0]}` is declared {declared} long"
        raise Mismatch("wrong-shape-claim", text, refutes=True)


def declared_position(machine: Machine, operator: Communicate, value: Value, dim: int, count: int, position: int) -> int:
    tensor = machine.plan.tensors.get(operator.outputs[0])
    if tensor is None or tensor.region is None or len(tensor.region) != len(value.box):
        return position
    low, high = value.box[dim]
    return next((i for i in range(count) if tensor.region[dim][0] * count == low * count + (high - low) * i), position)


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A collective to which all members have come: what each of them runs, and what it gives."""

    machine: Machine
    members: Members
    table: Mapping[int, tuple[Communicate, Slot | str]]

    @property
    def first(self) -> Communicate:
        """Return what the first member runs."""
        return self.table[self.members.ranks[0]][0]

    @property
    def operators(self) -> Iterator[Communicate]:
        """Yield what the members run."""
        return (operator for operator, _ in self.table.values())

    @property
    def spans_replicas(self) -> bool:
        """Return whether members of other replicas than the one that is derived are among them."""
        return spans_replicas(self.machine.plan, self.first.group)


def together(
    machine: Machine, rank: RankState, members: Members, table: Mapping[int, tuple[Communicate, Slot | str]]
) -> dict[int, Slot] | None:
    """Return what the members of a collective get, of which `rank` came last; None where that is not known, and reported."""
    meeting = _Meeting(machine, members, table)
    if not _agree(meeting, rank):
        return None
    if all(value == "absent" for _, value in table.values()):
        return {}
    if not _give(meeting, rank):
        return None
    given = {member: value for member, (_, value) in table.items() if isinstance(value, Value)}
    if machine.alone and meeting.first.kind is Collective.BROADCAST and _is_partial(machine, table, given):
        text = "sends the root's part of a sum to all, of which they hold the other parts"
        tell(machine, rank, meeting.first, of_one_plan("broadcast-of-partial", text))
        given = {member: machine.world.values.clean(value.term, value.box) for member, value in given.items()}
    try:
        return _results(meeting, given)
    except Mismatch as mismatch:
        return _gone_on(meeting, given, mismatch)


def _agree(meeting: _Meeting, rank: RankState) -> bool:
    """Return whether the members run the same collective on the same dtype, or tell how they first differ.

    Behind that they meet in others than their own.
    """
    machine, members, first = meeting.machine, meeting.members, meeting.first
    alike = _agreed(machine, first, len(members))
    for other in members.ranks:
        this_operator = meeting.table[other][0]
        if this_operator is first or (this := _agreed(machine, this_operator, len(members))) == alike:
            continue
        splits = replace(this, splits=alike.splits, receive_splits=alike.receive_splits)
        fits = splits == alike and (machine.alone or _splits_fit(members, meeting.table))
        mismatch = Mismatch(
            "mismatched-collective",
            f"meets {name_of(this_operator)} of rank {other} in one group {list(members.ranks)}" + _disagreement(alike, this),
            refutes=not fits,
        )
        if members.ranks not in machine.parted:
            machine.parted.add(members.ranks)
            tell(machine, machine.ranks[members.ranks[0]], first, mismatch, fatal=True)
        return False
    dtypes = _dtypes(machine, meeting.operators)
    if len(dtypes) > 1 and not machine.alone:
        text = f"is given {' and '.join(sorted(dtypes))} by the members of one group {list(members.ranks)}"
        tell(machine, rank, first, Mismatch("mismatched-collective", text, refutes=False), fatal=True)
        return False
    return True


def _give(meeting: _Meeting, rank: RankState) -> bool:
    """Return whether all members give something that can be followed, or tell what is in the way."""
    machine, members, first = meeting.machine, meeting.members, meeting.first
    adds = first.kind in SUMS and first.reduce in ("", "sum")
    for member in members.ranks:
        if meeting.table[member][1] == "absent" and not adds:
            text = "uses a gradient that {ranks} never compute, and other members of the group do"
            mismatch = Mismatch("absent-gradient", text, refutes=False)
            tell(machine, machine.ranks[member], meeting.table[member][0], mismatch)
            return False
    if meeting.spans_replicas and (first.kind is not Collective.ALL_REDUCE or first.reduce not in ADDING):
        mismatch = Mismatch("across-replicas", "exchanges values between folded replicas", refutes=False)
        tell(machine, rank, first, mismatch, fatal=True)
        return False
    givers = [member for member in members.ranks if first.kind not in _FROM_ROOT or member == first.root]
    if any(meeting.table[giver][1] is None for giver in givers):
        _check_root(machine, rank, first, members)
        return False
    return True


def _results(meeting: _Meeting, given: Mapping[int, Value]) -> dict[int, Slot]:
    """Return what each member gets. Raises Mismatch where what they give does not fit together."""
    machine, members, first = meeting.machine, meeting.members, meeting.first
    count = machine.plan.replication.count if meeting.spans_replicas else 1
    if machine.alone and first.kind in SUMS:
        check_parts(first, [*given.values()], count)
    if why := adds_otherwise(machine.plan, first, given.values()):
        raise Mismatch("whole-numbers", why, refutes=False)
    of = gradient_tag(machine, machine.ranks[members.ranks[0]], first)
    claimed: dict[int, Any] | None = {} if DECLARED_PIECE_ORDER in machine.assume else None
    results = exchange(machine.world, first, members.ranks, given, of, claimed)
    share = Fraction(1, count if first.reduce == "avg" else 1)
    scaled = machine.world.values.scaled
    totals = {member: scaled(over_replicas(machine.world, value, count), share) for member, value in results.items()}
    if machine.alone:
        note_left(machine, first, given, totals)
        if first.kind in SUMS:
            note_summed(machine, [*given.values()], totals.values())
        scaling = note_scaling(machine, first, given, totals)
        if scaling is not None:
            for member in members.ranks:
                tell_scaling(machine, machine.ranks[member], scaling)
            totals = {member: machine.world.values.clean(total.term, total.box) for member, total in totals.items()}
        totals = _without_copies(machine, members, first, totals)
    return dict(totals)


def _gone_on(meeting: _Meeting, given: Mapping[int, Value], mismatch: Mismatch) -> dict[int, Slot] | None:
    """Tell why what the members give does not fit together, and return what the derivation goes on with."""
    machine, members, first = meeting.machine, meeting.members, meeting.first
    if machine.alone and first.kind in SUMS:
        note_summed(machine, [*given.values()], ())
        mismatch = as_sum_of_shards(mismatch, given.values())
    pieces = [given[member] for member in members.ranks if member in given]
    if not machine.alone and machine.world.terms.arithmetic and not meeting.spans_replicas:
        found = extreme_of(machine, first, members, pieces)
        if found is not None:
            return found
    mismatch = _weighed(meeting, given, mismatch)
    gathers = first.kind in GATHERS
    if machine.alone and mismatch.name in ("wrong-gather-dim", "wrong-all-to-all-dim"):
        ordered = _put_in_order(machine, members, {member: operator for member, (operator, _) in meeting.table.items()}, given)
        if ordered is not None:
            machine.in_order |= ordered
            return None
    runs = may_exchange(first, [machine.world.local_shape(given[member]) for member in sorted(given)], len(members))
    for member in members.ranks:
        operator, cause = meeting.table[member][0], (mismatch.name, id(meeting.table))
        blame(machine, machine.ranks[member], operator, mismatch, cause=cause, runs=runs)
    if machine.alone and gathers and mismatch.name == "pieces-not-in-rank-order":
        return {**exchange(machine.world, first, members.ranks, given, -1, claimed={})}
    if machine.alone and mismatch.name == "gathers-wrong-pieces" and not mismatch.refutes:
        return _with_gaps(machine, first, members, pieces)
    if machine.alone and mismatch.name == "sum-of-different-values" and not meeting.spans_replicas:
        return added_up(machine, first, members, pieces)
    return None


def _weighed(meeting: _Meeting, given: Mapping[int, Value], mismatch: Mismatch) -> Mismatch:
    """Return the mismatch, which refutes nothing where what is done with the results may make up for it."""
    machine, name, message = meeting.machine, mismatch.name, mismatch.message
    if name == "pieces-not-in-rank-order" and all(_blind(machine, operator, given) for operator in meeting.operators):
        return Mismatch(name, f"{message}, in an order that may not matter", refutes=False)
    if name == "wrong-all-to-all-dim" and all(_counts_for_all(machine, meeting.first, value) for value in given.values()):
        return Mismatch(name, f"{message}, which each rank may count for all", refutes=False)
    added = machine.alone and name == "gather-of-partial"
    if added and all(_of_results(machine, operator, given, is_added_up) for operator in meeting.operators):
        return Mismatch(name, f"{message}, which is done afterwards", refutes=False)
    if machine.alone and name == "gathers-wrong-pieces" and are_disjoint([value.box for value in given.values()]):
        return Mismatch(name, message, refutes=False)
    return mismatch


def _counts_for_all(machine: Machine, operator: Communicate, value: Value) -> bool:
    """Return whether an exchange splits and joins the two dimensions into which a view takes one of which ranks have pieces.

    Each rank may count what it has for every expert, and not go on where the rank before it ends.
    """
    terms, split = machine.world.terms, (operator.dim or 0) % len(value.box)
    shape, of = terms.shape[value.term], terms.operands[value.term]
    merged = (*shape[:split], prod(shape[split : split + 2]), *shape[split + 2 :])
    is_view = has_trait(str(terms.keys[value.term][0]), Trait.VIEW) and len(of) == 1 and terms.shape[of[0]] == merged
    return is_view and operator.joined_dim is not None and operator.joined_dim % len(value.box) == split + 1


def _with_gaps(machine: Machine, operator: Communicate, members: Members, pieces: Sequence[Value]) -> dict[int, Slot] | None:
    """Return what a gather or exchange over the outer one of two axes makes of the pieces of a value that both split.

    None for what is given where its axes may split it in turns of their own.
    """
    terms, values, exchanges = machine.world.terms, machine.world.values, operator.kind is Collective.ALL_TO_ALL
    if not exchanges and operator.kind is not Collective.ALL_GATHER:
        return None
    rank = len(pieces[0].box)
    term, dim = terms.whole(pieces[0].term), ((operator.joined_dim if exchanges else operator.dim) or 0) % rank
    bounds = [piece.box[dim] for piece in pieces]
    if terms.slot[term] == dim or term != pieces[0].term or bounds != sorted(bounds) or _is_open(machine, term):
        return None
    joint = [joined(bounds) if at == dim else (bound,) for at, bound in enumerate(pieces[0].box)]
    split = (operator.dim or 0) % rank
    if not exchanges or split == dim:
        return None if exchanges else dict.fromkeys(members.ranks, values.with_pieces(pieces[0], joint))
    cuts = (chunk(machine.world, pieces[0], split, place, len(members)).box[split] for place in range(len(members)))
    each = ([(cut,) if at == split else held for at, held in enumerate(joint)] for cut in cuts)
    return {member: values.with_pieces(pieces[0], held) for member, held in zip(members.ranks, each, strict=True)}


def _is_open(machine: Machine, term: int) -> bool:
    """Return whether two axes cut a given value in an order that nothing says."""
    kind, name, *_ = (*machine.world.terms.keys[term], "")
    name = machine.inputs.names[name] if kind == "input" else name
    return kind in _GIVEN and any(
        name in (tensor.name, tensor.logical) and is_cut_twice(machine.plan, tensor) for tensor in machine.plan.tensors.values()
    )


def _put_in_order(
    machine: Machine, members: Members, operators: Mapping[int, Communicate], given: Mapping[int, Value]
) -> dict[tuple[int, int, str], Value] | None:
    """Return what operators after a gather along another dimension make of its pieces, where each member puts them into order.

    Nothing is known, but nothing wrong either, where a value is too large to follow its elements.
    """
    terms, values, pieces = machine.world.terms, machine.world.values, [given[member] for member in members.ranks]
    found: dict[tuple[int, int, str], Value] = {}
    if any(terms.whole(piece.term) != piece.term or piece.term != pieces[0].term for piece in pieces):
        return None
    made = dict[tuple[int, int], Mapping[tuple[int, str], Part] | None]()
    for place, rank in enumerate(members.ranks):
        operator, segment = operators[rank], machine.ranks[rank].segment
        exchanges = operator.kind is Collective.ALL_TO_ALL
        if segment is None or not any(each is operator for each in segment.operators) or not are_moved(segment, operator):
            return None
        try:
            key = (id(operator), place if exchanges else -1)
            if key not in made:
                made[key] = _moved(machine, segment, operator, pieces, place)
        except UndecidedError:
            continue
        boxes = made[key]
        if boxes is None:
            return None
        for (identity, name), (term, box) in boxes.items():
            value = values.with_box(pieces[0], box) if term == pieces[0].term else values.clean(term, box)
            found[rank, identity, name] = value
    return found


def _moved(
    machine: Machine, segment: Segment, operator: Communicate, pieces: Sequence[Value], place: int
) -> Mapping[tuple[int, str], Part] | None:
    """Return what operators after a gather or an exchange give at a member, as `put_in_order` does. Raises UndecidedError."""
    import numpy as np

    forms = numbered(machine.world.terms, pieces[0].term)
    of_piece = forms[pieces[0].term]
    held = [of_piece[tuple(slice(low, high) for low, high in piece.box)] for piece in pieces]
    cut, joined_dim = operator.way(of_piece.ndim)
    if operator.kind is Collective.ALL_TO_ALL:
        if cut is None or operator.splits or operator.receive_splits or any(each.shape[cut] % len(pieces) for each in held):
            return None
        if of_piece.size * len(pieces) > MOST_ELEMENTS:
            raise UndecidedError
        held = [np.split(each, len(pieces), axis=cut)[place] for each in held]
    if not all(piece.clean for piece in pieces):
        forms = {pieces[0].term: of_piece}
    return put_in_order(machine.plan, segment, operator, forms, np.concatenate(held, axis=joined_dim or 0))


def _is_partial(machine: Machine, table: Mapping[int, tuple[Communicate, Slot | str]], given: Mapping[int, Value]) -> bool:
    """Return whether the root of a broadcast gives a part of a sum, and the other members hold the other parts of it."""
    others = [(member, (*operator.inputs, "")[0]) for member, (operator, _) in table.items() if member not in given]
    held = [machine.ranks[member].local.get(name) for member, name in others]
    return all(each is not None and is_other_part(each, value) for each in held for value in given.values())


def _without_copies(machine: Machine, members: Members, operator: Communicate, totals: dict[int, Value]) -> dict[int, Value]:
    """Return what the members hold after a sum, as if what was added to each of its parts were in it once; say by whom."""
    value = next(iter(totals.values()), None)
    counted = value is not None and operator.kind in SUMS and operator.reduce in ("", "sum") and counts_copies(value)
    found = joined_before(machine.derived, machine.world.terms, value) if value is not None and counted else None
    shares = machine.world.values.shares_in(value) if value is not None and counted and found is None else ""
    for member in members.ranks if shares else ():
        tell(machine, machine.ranks[member], operator, of_one_plan("bias-added-to-partial", f"gives a sum, and {shares}"))
    if found is None:
        return totals
    for member in members.ranks:
        tell_joined(machine, machine.ranks[member], found[1])
    return {member: machine.world.values.clean(total.term, total.box) for member, total in totals.items()}


def _dtypes(machine: Machine, operators: Iterable[Communicate]) -> set[str]:
    """Return the dtypes, as far as they are declared, of what the members of a collective give."""
    tensors = (machine.plan.tensors.get(name) for operator in operators for name in operator.inputs[:1])
    return {tensor.dtype for tensor in tensors if tensor is not None and tensor.dtype}


def _blind(machine: Machine, operator: Communicate, given: Mapping[int, Value]) -> bool:
    """Return whether what is made of the result may be blind to the order along the dimension that is gathered."""
    if machine.alone and any(_is_placed(machine, name) for name in operator.outputs):
        return False
    return _of_results(machine, operator, given, order_may_not_matter)


def _of_results(
    machine: Machine, operator: Communicate, given: Mapping[int, Value], holds: Callable[[Plan, Readers, str, int], bool]
) -> bool:
    """Return whether something holds of all results of an operator and of the dimension that it gathers along."""
    rank = len(next(iter(given.values())).box)
    dim = operator.dim if operator.dim is not None else 0
    readers = machine.results.get("readers")
    if readers is None:
        readers = machine.results["readers"] = readers_of(machine.plan)
    return all(holds(machine.plan, readers, name, dim % rank) for name in operator.outputs)


def _is_placed(machine: Machine, name: str) -> bool:
    """Return whether the plan says which indices of a value the tensor holds."""
    tensor = machine.plan.tensors.get(name)
    return tensor is not None and (tensor.region is not None or tensor.placements is not None)


def _splits_fit(members: Members, table: Mapping[int, tuple[Communicate, Slot | str]]) -> bool:
    """Return whether each member of an all-to-all receives from each other what that one sends to it, by the stated sizes."""
    operators = [table[rank][0] for rank in members.ranks]
    every = range(len(operators))
    if any(len(each.splits) != len(operators) or len(each.receive_splits) != len(operators) for each in operators):
        return False
    return all(operators[one].splits[other] == operators[other].receive_splits[one] for one in every for other in every)


def _agreed(machine: Machine, operator: Communicate, members: int) -> Communicate:
    """Return what the members of a collective must agree on.

    Dimensions are counted from the first one, and what holds of the operand anyway is left out: its type, and sizes of pieces
    that all are equal.
    """
    tensor = machine.plan.tensors.get(next(iter(operator.inputs), ""))
    shape, dtype = ((), "") if tensor is None else (tensor.shape, tensor.dtype)
    cut, joined = operator.way(len(shape))
    splits, received = operator.splits, operator.receive_splits
    if cut is not None and joined is not None and 0 <= min(cut, joined) <= max(cut, joined) < len(shape):
        equal = (shape[cut] if operator.kind in GATHERS else shape[cut] // members,) * members
        splits = () if splits == equal else splits
        received = () if received == (equal if joined == cut else (shape[joined],) * members) else received
    return Communicate(
        operator.kind, (), (), Group(), operator.reduce or "sum", cut, joined, operator.root, splits, received,
        "" if operator.dtype == dtype else operator.dtype,
    )  # fmt: skip


def _disagreement(one: Communicate, other: Communicate) -> str:
    """Return in what two collectives of one kind differ that have to agree, in words after a comma; empty for two kinds."""
    names = ("dim", "concat_dim", "root", "reduce", "splits", "receive_splits", "dtype")
    each = ((name, getattr(one, name), getattr(other, name)) for name in names)
    name, here, there = next((differs for differs in each if differs[1] != differs[2]), ("", None, None))
    said = "reduction" if name == "reduce" else name.replace("_", "-")
    here, there = ("that of its operand" if each == "" else "equal" if each == () else each for each in (here, there))
    return f", with {said} {here} and {there}" if name and one.kind is other.kind else ""


def gradient_tag(machine: Machine, rank: RankState, operator: Communicate) -> int:
    name = next(iter((*operator.inputs, *operator.outputs)), "")
    tensor = machine.plan.tensors.get(name)
    return -1 if tensor is None or tensor.role is not Role.GRADIENT else forward_term(machine, rank, name)


def send(machine: Machine, rank: RankState, operator: Send) -> None:
    peer = _peer(machine, rank, operator)
    value: Slot | str
    try:
        absent = is_absent(machine, rank, operator, operator.tensor)
        value = "absent" if absent else operand_value(machine, rank, operator, operator.tensor)
    except Mismatch as mismatch:
        blame(machine, rank, operator, mismatch)
        value = None
    if peer is not None:
        channel = (rank.number, peer, operator.communicator)
        machine.mail.setdefault(channel, []).append(value)
        machine.posted.setdefault(channel, []).append(which(machine, rank, operator.tensor) if machine.alone else None)


def receive(machine: Machine, rank: RankState, operator: Receive) -> None:
    """Ask for the next message of the peer, which is under way from then on."""
    peer = _peer(machine, rank, operator)
    if peer is None:
        assign(machine, rank, operator, operator.tensor, None, (operator.tensor,))
        return
    channel = (peer, rank.number, operator.communicator)
    number = machine.turns.get((rank.number, channel), 0)
    machine.turns[rank.number, channel] = number + 1
    _put_under_way(rank, operator, (channel, number))


def _take(machine: Machine, rank: RankState, operator: Receive, value: Slot | str) -> None:
    if operator.tensor in rank.local or machine.weight_of.get(operator.tensor, "") in rank.gradients:
        text = f"receives into `{operator.tensor}`, which has a value already"
        tell(machine, rank, operator, Mismatch("receives-twice", text, refutes=False), fatal=True)
    if isinstance(value, str):
        rank.trail.append(value)
        rank.zero.add(operator.tensor)
        return
    if machine.world.many_micro_batches and operator.tensor in machine.weight_of:
        text = f"receives into `{operator.tensor}` in every micro-batch, where it adds up"
        tell(machine, rank, operator, Mismatch("received-per-micro-batch", text, refutes=False), fatal=True)
    assign(machine, rank, operator, operator.tensor, value, (operator.tensor,))


def _peer(machine: Machine, rank: RankState, operator: Send | Receive) -> int | None:
    """Return the rank of the replica at the other end; None, which is reported, where there is none.

    Along the axis of folded replicas the first or the last of them has no peer, and the others do.
    """
    peer, axis = machine.plan.peer(operator.peer, rank.number), operator.peer.axis
    if operator.peer.rank is None and spans_replicas(machine.plan, Group(axes=(axis,))):
        text = f"names a peer along `{axis}`, on which replicas are folded: write the replicas out"
        tell(machine, rank, operator, Mismatch("across-replicas", text, refutes=False), fatal=True)
    elif peer is None:
        text = f"names a peer beyond the end of `{axis}`, where {{ranks}} has none"
        tell(machine, rank, operator, Mismatch("unknown-peer", text, refutes=True), fatal=True)
    elif peer not in machine.ranks:
        certain = machine.plan.replication.count <= 1
        mismatch = Mismatch("unknown-peer", f"names rank {peer}, which is not a rank of this replica", refutes=certain)
        tell(machine, rank, operator, mismatch, fatal=True)
    return peer if peer in machine.ranks else None
