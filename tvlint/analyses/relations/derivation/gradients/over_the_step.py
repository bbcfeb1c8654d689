"""Gradients over the step: summed over micro-batches, and reduced over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product

from tvlint.analyses.relations.defect import Defect, at
from tvlint.analyses.relations.derivation.given.trusted_inputs import pieces_held, whole_shape
from tvlint.analyses.relations.derivation.localisation.sure import as_sum_of_shards, note_summed
from tvlint.analyses.relations.derivation.operators.opaque_values import of_value, reduced
from tvlint.analyses.relations.derivation.state import Derived, Machine, Opaque, RankState, Reducing, Slot, Stepped
from tvlint.analyses.relations.terms.loss_identities import bare_term, is_gradient
from tvlint.analyses.relations.transfer.collectives import over_micro_batches, over_replicas
from tvlint.analyses.relations.transfer.context import Mismatch, World, of_one_plan
from tvlint.analyses.relations.transfer.groups import spans_replicas
from tvlint.analyses.relations.transfer.index_maps import Pieces
from tvlint.analyses.relations.transfer.pending_ranges import united
from tvlint.analyses.relations.transfer.relation import AmbiguousSumError, Value
from tvlint.ir.operators import Compute, ReduceGradients, Update
from tvlint.ir.plan import Plan, Role, Tensor
from tvlint.ir.reductions import ADDING
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait


def of_all_micro_batches(machine: Machine, rank: RankState, weight: str) -> Slot:
    """Return the gradient of a weight that the rank has, summed over all micro-batches from now on."""
    if weight not in rank.summed:
        rank.summed.add(weight)
        value = rank.gradients[weight]
        try:
            rank.gradients[weight] = None if value is None else over_micro_batches(machine.world, value, machine.micro_batches)
        except Mismatch as mismatch:
            tensor = machine.plan.tensors[weight]
            text = f"the gradient of `{tensor.logical or weight}` on {{ranks}} {mismatch.message}"
            machine.derived.reductions.append(Defect(mismatch.name, mismatch.refutes, text, rank.number))
            rank.gradients[weight] = None
    return rank.gradients[weight]


def weights_of(plan: Plan, derived: Derived) -> list[tuple[int, Tensor]]:
    """Every weight that a rank uses, also in what is not understood, or reduces."""
    role = Role.WEIGHT
    weights = {name: tensor for name, tensor in plan.tensors.items() if tensor.role is role}
    seen = {(rank, name) for rank, name in derived.used if name in weights}
    for program in plan.programs:
        named: set[str] = set()
        for _, _, operator in plan.run_by(program):
            if isinstance(operator, Compute):
                named.update(operator.tensor_operands)
            elif isinstance(operator, ReduceGradients):
                named.update(operator.weights)
        seen.update((rank, name) for name in named if name in weights for rank in program.ranks)
    return [(rank, weights[name]) for rank, name in sorted(seen)]


def held_by(derived: Derived, weights: Sequence[tuple[int, Tensor]]) -> dict[tuple[int, str], Slot]:
    """Each rank's gradient of each of its `weights` (by the weight's name) after accumulation and all reducers."""
    slots = ((rank, tensor.name) for rank, tensor in weights)
    return {(rank, name): derived.gradients[rank][name] for rank, name in slots if name in derived.gradients[rank]}


def update(machine: Machine, rank: RankState, operator: Update) -> None:
    """Note the gradients with which weights are updated."""
    rank.stepped.update(operator.weights)
    for weight in operator.weights:
        known = weight in rank.gradients
        rank.updated.setdefault(weight, of_all_micro_batches(machine, rank, weight) if known else "absent")
        if known:
            name = rank.named.get(weight, machine.plan.tensors[weight].gradient)
            made = rank.made_of.get(name, frozenset())
            gradient, opaque = rank.gradients[weight], rank.opaque.get(name)
            machine.derived.steps.append(Stepped(rank.number, operator, weight, name, gradient, made, opaque))
            if machine.alone:
                _check_gradient(machine, rank, operator, weight, name)


def _check_gradient(machine: Machine, rank: RankState, operator: Update, weight: str, name: str) -> None:
    """Tell a gradient that is neither of the pieces that the rank holds of its weight nor of some of them."""
    held, taken = _held_pieces(machine, rank, weight), _held_pieces(machine, rank, name, rank.gradients[weight])
    if held is None or taken is None or len(held) != len(taken) or _is_within(taken, held) or _is_within(held, taken):
        return
    text = f"updates `{weight}`, of which it holds {_in_words(held)}, with `{name}`, which holds {_in_words(taken)}"
    segment = rank.segment.name if rank.segment else ""
    rule = "gradient-sharded-unlike-weight"
    defect = Defect(rule, True, f"the optimizer on {{ranks}} {text}", rank.number, cause=(rule, id(operator), weight))
    machine.derived.defects.append(at(operator, segment, defect))


def check_states(machine: Machine, rank: RankState, operator: Compute) -> None:
    """Tell a state of another weight, or another piece than the weight, gradient or state that it is stepped with."""
    tensors = machine.plan.tensors
    names = [name for name in operator.tensor_operands if name in tensors]
    states = [name for name in names if tensors[name].role is Role.STATE]
    of_another = _state_of_another(machine.plan, names, states)
    if of_another:
        _tell_state(machine, rank, operator, of_another, "step each weight with its own states")
        return
    values = {name: _value_of_step(machine, rank, name) for name in names}
    held = {name: pieces for name in names if (pieces := _held_pieces(machine, rank, name, values[name])) is not None}
    factored = len(states) + 2 < len(names)
    for state, other in product(states, names):
        if state not in held or other not in held or len(held[state]) != len(held[other]) or held[state] == held[other]:
            continue
        one, two = tensors[state], tensors[other]
        plain = not factored and len(one.shape) > 1 and 1 not in (*one.shape, *two.shape)
        stray = plain and two.role is Role.WEIGHT and one.shape != two.shape
        if stray or values[other] is not None or whole_shape(one) == whole_shape(two):
            ways = [_in_words(held[name]) for name in (state, other)]
            text = f"takes `{state}`, which holds {ways[0]}, with `{other}`, which holds {ways[1]}"
            _tell_state(machine, rank, operator, text)
            return


def _state_of_another(plan: Plan, names: Sequence[str], states: Sequence[str]) -> str:
    """Return which state is declared to be of another weight of the plan than the one that it is stepped with."""
    weights = [name for name in names if plan.tensors[name].role is Role.WEIGHT]
    of = {each for name in weights for each in _names_of(plan.tensors[name])}
    for state in states if weights else ():
        other = plan.tensors[state].logical
        is_weight = plan.has_role(other, Role.WEIGHT)
        if is_weight and of.isdisjoint(_names_of(plan.tensors[other])):
            return f"takes `{state}`, which is of `{other}`, with `{weights[0]}`"
    return ""


def _names_of(tensor: Tensor) -> set[str]:
    """Return the names of a weight, one of which it shares with each that it is tied to."""
    return {tensor.name, tensor.logical or tensor.name, tensor.storage or tensor.name}


def _tell_state(machine: Machine, rank: RankState, operator: Compute, text: str, repair: str = "") -> None:
    rule = "state-of-another-shard"
    message = f"`{operator.op.rsplit('.', 1)[-1]}` on {{ranks}} {text}"
    defect = Defect(rule, True, message, rank.number, repair=repair, cause=(rule, id(operator)))
    machine.derived.defects.append(at(operator, rank.segment.name if rank.segment else "", defect))


def _value_of_step(machine: Machine, rank: RankState, name: str) -> Slot:
    weight = machine.weight_of.get(name, "")
    return of_all_micro_batches(machine, rank, weight) if weight in rank.gradients else rank.local.get(name)


def _held_pieces(machine: Machine, rank: RankState, name: str, value: Slot = None) -> tuple[Pieces, ...] | None:
    """Return the pieces of a value that a rank holds as `name`; None where that is not known."""
    if value is not None:
        return machine.world.values.pieces_of(value)
    tensor = machine.plan.tensors.get(name)
    given = tensor is not None and tensor.role in (Role.WEIGHT, Role.STATE) and (tensor.placements or tensor.region) is not None
    try:
        return pieces_held(machine.plan, tensor, rank.number) if tensor is not None and given else None
    except Mismatch:
        return None


def _is_within(some: Sequence[Pieces], all_: Sequence[Pieces]) -> bool:
    """Return whether the one pieces are some of the others, in each dimension."""
    return all(united(ranges, outer) == united(outer) for ranges, outer in zip(some, all_, strict=True))


def _in_words(pieces: Sequence[Pieces]) -> str:
    return "[" + ", ".join("+".join(f"{low}:{high}" for low, high in ranges) for ranges in pieces) + "]"


def note_step(machine: Machine, rank: RankState, operator: Compute) -> None:
    """Note the gradients that a written-out optimizer step takes, for the weight, or the copy of one, that it changes."""
    names = [name for name in operator.tensor_operands if name in machine.plan.tensors]
    of_role = {role: [name for name in names if machine.plan.tensors[name].role is role] for role in (Role.WEIGHT, Role.STATE)}
    piece = "" if of_role[Role.WEIGHT] or not names else _weight_of_piece(machine, rank, names[0])
    for held in (of_role[Role.WEIGHT], [piece] if piece else [], of_role[Role.STATE]):
        if held and rank.of_step:
            for name in (name for name in names if name not in held and not (piece and name == names[0])):
                weight = machine.weight_of.get(name, "")
                value = of_all_micro_batches(machine, rank, weight) if weight in rank.gradients else rank.local.get(name)
                made = frozenset({weight}) if weight else rank.made_of.get(name, frozenset())
                terms = machine.world.terms
                if made or (value is not None and is_gradient(terms, bare_term(terms, value.term))):
                    opaque = rank.opaque.get(name)
                    machine.derived.steps.append(Stepped(rank.number, operator, held[0], name, value, made, opaque))
            return


def _weight_of_piece(machine: Machine, rank: RankState, name: str) -> str:
    """Return the weight that a tensor is, or is a piece of, in whatever shape; empty where it is none."""
    value, terms = rank.local.get(name), machine.world.terms
    if value is None:
        return ""
    term = terms.whole(value.term)
    while len(terms.operands[term]) == 1 and has_trait(str(terms.keys[term][0]), Trait.VIEW):
        (term,) = terms.operands[term]
    head = terms.keys[term]
    if head[0] != "weight":
        return ""
    named = (tensor.name for tensor in machine.plan.tensors.values() if (tensor.logical or tensor.name) == head[1])
    return next((name for name in named if machine.plan.tensors[name].role is Role.WEIGHT), "")


def reduce_gradients(machine: Machine, rank: RankState, segment: str, operator: ReduceGradients) -> None:
    """Give what the rank has to a reducer; all of its members have the result once the last of them has come."""
    _leave_others_open(machine, rank, segment, operator)
    has = [weight for weight in operator.weights if weight in rank.gradients]
    given = Reducing(segment, operator, {weight: of_all_micro_batches(machine, rank, weight) for weight in has})
    meeting = (
        machine.groups.members(operator.group, rank.number),
        spans_replicas(machine.plan, operator.group),
        operator.group.name,
    )
    turn = machine.turns[rank.number, meeting] = machine.turns.get((rank.number, meeting), 0) + 1
    table = machine.reducers.setdefault((meeting, turn), {})
    table[rank.number] = given
    rank.reducing.update(operator.weights)
    if not meeting[0].have_come(table):
        return
    del machine.reducers[meeting, turn]
    for member, reducing in table.items():
        machine.ranks[member].reducing.difference_update(reducing.operator.weights)
    _scatter(machine, table)
    total = _reduced(machine.world, machine.plan, table, machine.derived.reductions)
    if machine.alone:
        for named in zip(*(reducing.operator.weights for reducing in table.values()), strict=False):
            held = [each.gradients.get(weight) for each, weight in zip(table.values(), named, strict=True)]
            note_summed(machine, held, [total.get(key) for key in zip(table, named, strict=True)])
        _note_reduced(machine, table)
    for (member, weight), value in total.items():
        machine.ranks[member].gradients[weight] = value
        machine.ranks[member].summed.add(weight)


def _note_reduced(machine: Machine, table: Mapping[int, Reducing]) -> None:
    """Note which values the members have after a reducer, in case their relations are not known."""
    members = sorted(table)
    for named in zip(*(table[member].operator.weights for member in members), strict=False):
        held = {member: _name_of(machine, member, weight) for member, weight in zip(members, named, strict=True)}
        given = (_which(machine, member, weight, held[member]) for member, weight in zip(members, named, strict=True))
        total = reduced(machine, table[members[0]].operator, given)
        for member, name in held.items():
            machine.ranks[member].opaque[name] = total


def _name_of(machine: Machine, member: int, weight: str) -> str:
    return machine.ranks[member].named.get(weight, machine.plan.tensors[weight].gradient)


def _which(machine: Machine, member: int, weight: str, name: str) -> Opaque | None:
    value = machine.ranks[member].gradients.get(weight)
    return machine.ranks[member].opaque.get(name) if value is None else of_value(machine, value)


def _leave_others_open(machine: Machine, rank: RankState, segment: str, operator: ReduceGradients) -> None:
    """Tell of gradients that the rank has under another name than the one that is reduced, and forget them.

    Where a weight has no gradient of any name by then, nothing is reduced.
    """
    for weight in operator.weights:
        for held in (rank.local, rank.environment) if weight not in rank.gradients else ():
            for name in [name for name in held if weight in machine.forward_of.get(name, ())]:
                held[name] = None
                rank.undefined[name] = "a reducer may have reduced it on {ranks}"
                text = f"the reducer of `{weight}` on {{ranks}} runs before its gradient is made, and after `{name}`"
                open_ = Defect("nothing-to-reduce", False, text, rank.number)
                machine.derived.reductions.append(at(operator, segment, open_))


def _scatter(machine: Machine, table: Mapping[int, Reducing]) -> None:
    """Note the shard that a reducer leaves each member, and tell where members hold different shards by then."""
    members = sorted(table)
    segment, first = table[members[0]].segment, table[members[0]].operator
    spans = first.replicated or spans_replicas(machine.plan, first.group)
    for named in zip(*(table[member].operator.weights for member in members), strict=False):
        held = [machine.ranks[member].scattered.get(weight, ()) for member, weight in zip(members, named, strict=True)]
        if any(shards != held[0] for shards in held) or (spans and any(over_all for *_, over_all in held[0])):
            text = f"the gradient of `{named[0]}` on {{ranks}} is reduced over ranks that hold other shards of it by then"
            for member in members:
                defect = at(first, segment, Defect("reduced-shards", False, text, member))
                machine.derived.reductions.append(defect)
        for position, (member, weight) in enumerate(zip(members, named, strict=True)) if first.scatter else ():
            machine.ranks[member].scattered[weight] = (*held[position], (position, len(members), spans))


def finish(machine: Machine) -> None:
    """Sum what no reducer has taken, and tell the reducers that have not met all of their members."""
    for (meeting, _), table in machine.reducers.items():
        for rank, reducing in table.items():
            members = list(meeting[0].ranks)
            text = f"the gradient reducer of {{ranks}} over the ranks {members} meets no such reducer on all of them"
            defect = Defect("reducers-disagree", True, text, rank)
            machine.derived.reductions.append(at(reducing.operator, reducing.segment, defect))
            machine.ranks[rank].gradients.update(dict.fromkeys(reducing.operator.weights))
    for state in machine.ranks.values():
        for weight in state.gradients:
            of_all_micro_batches(machine, state, weight)
        machine.derived.renewed[state.number], machine.derived.stepped[state.number] = state.renewed, state.stepped
        final = {**state.gradients, **state.updated}
        machine.derived.gradients[state.number] = {name: value for name, value in final.items() if not isinstance(value, str)}


def _reduced(world: World, plan: Plan, table: Mapping[int, Reducing], defects: list[Defect]) -> dict[tuple[int, str], Slot]:
    """Reduce what the members hold, by rank and weight; a gradient that a member never computes is zero there."""
    members = sorted(table)
    segment, first = table[members[0]].segment, table[members[0]].operator
    operators = {member: table[member].operator for member in members}
    tensors = plan.tensors
    full = {tuple(_known_as(tensors.get(name)) or name for name in reducer.weights) for reducer in operators.values()}
    kinds = {(reducer.reduce, reducer.divisor, reducer.scatter, reducer.replicated) for reducer in operators.values()}
    held: dict[tuple[int, str], Slot] = {}
    if len(full) > 1 or len(kinds) > 1:
        how = "reduce in different ways" if len(kinds) > 1 else "name different weights, or in another order"
        for member, operator in operators.items():
            text = f"the gradient reducers of the ranks {members} {how}"
            defects.append(at(first, segment, Defect("reducers-disagree", True, text, member)))
            held.update({(member, name): None for name in operator.weights})
        return held
    for named in zip(*(operators[member].weights for member in members), strict=True):
        slots = [*zip(members, named, strict=True)]
        values = [table[member].gradients[weight] for member, weight in slots if weight in table[member].gradients]
        if not values:
            continue
        name = named[0]
        known = [value for value in values if value is not None]
        total: Slot = None
        try:
            if world.alone:
                _check_held(plan, first, slots)
            total = _total(world, plan, first, name, known, len(members)) if len(known) == len(values) else None
        except Mismatch as mismatch:
            mismatch = as_sum_of_shards(mismatch, known) if world.alone else mismatch
            weight = tensors[name].logical or name
            text = f"the reducer of `{weight}` on {{ranks}} {mismatch.message}"
            is_split = mismatch.name == "allreduce-of-shards"
            repair = "leave out the weights of which each of these ranks has a slice of its own" if is_split else ""
            for member in members:
                defects.append(at(first, segment, Defect(mismatch.name, mismatch.refutes, text, member, repair=repair)))
        held.update(dict.fromkeys(slots, total))
    return held


def _check_held(plan: Plan, operator: ReduceGradients, slots: Sequence[tuple[int, str]]) -> None:
    """Raise Mismatch where members hold other pieces of the weight, whose gradients have its shape."""
    weights = [(plan.tensors[weight], rank) for rank, weight in slots]
    gradients = [plan.tensors.get(weight.gradient) for weight, _ in weights]
    fits = all(one is None or one.shape == weight.shape for one, (weight, _) in zip(gradients, weights, strict=True))
    try:
        ways = {pieces_held(plan, weight, rank) for weight, rank in weights} if fits and not operator.scatter else set()
    except Mismatch:
        return
    if len(ways) > 1:
        raise of_one_plan("allreduce-of-shards", "sums gradients of different slices")


def _known_as(tensor: Tensor | None) -> str:
    return tensor.logical if tensor is not None else ""


def _total(world: World, plan: Plan, operator: ReduceGradients, name: str, values: list[Value], count: int) -> Value:
    if operator.reduce not in ADDING:
        raise Mismatch("wrong-reduce-op", f"reduces with `{operator.reduce}`", refutes=False)
    if any(value.fold is not None for value in values):
        raise Mismatch("wrong-reduce-op", "adds results over parts, which have to be put together", refutes=False)
    weight = plan.tensors[name]
    whole = weight.whole or weight.shape
    of = world.terms.find(("weight", weight.logical or name, weight.dtype, whole), (), whole, -1)
    try:
        total = world.values.sum_over(-1 if of is None else of, values) if len(values) > 1 else values[0]
    except AmbiguousSumError:
        text = "adds contributions that are parts of the same value in different ways"
        raise Mismatch("ambiguous-sum", text, refutes=False) from None
    if total is None:
        raise Mismatch("mismatched-shards", "sums gradients of different slices", refutes=True)
    spans = operator.replicated or spans_replicas(plan, operator.group)
    copies = len(values) * (plan.replication.count if spans else 1)
    sums = operator.reduce == "sum" and operator.divisor == 1 < copies and world.terms.slot[total.term] < 0
    if world.alone and sums and total.coefficient == len(values) and all(value.clean for value in values):
        text = f"adds {copies} copies of a gradient that is complete before"
        raise of_one_plan("doubled-gradient-reduction", text)
    if spans:
        total = over_replicas(world, total, plan.replication.count)
        count *= plan.replication.count
    divisor = (operator.divisor or 1) * (count if operator.reduce == "avg" else 1)
    return world.values.scaled(total, Fraction(1, divisor))
