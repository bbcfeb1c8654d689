"""When gradients of weights are produced, reduced and used by the optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import overwritten, reads, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.ir.operators import Backward, Communicate, Compute, Group, Operator, ReduceGradients, Send, Update
from tvlint.ir.plan import Plan, Program, Role


@dataclass(frozen=True, slots=True)
class Early:
    """A reducer (or optimizer step) at (`segment`, `index`) that runs before `later` changes the gradient of `weight`."""

    kind: str
    segment: str
    index: int
    weight: str
    micro_batch: int
    ranks: tuple[int, ...]
    later: tuple[str, int]


def weight_gradients(plan: Plan) -> dict[str, str]:
    """Gradient name -> weight, for every gradient of a weight."""
    weights = {name: tensor for name, tensor in plan.tensors.items() if tensor.role is Role.WEIGHT}
    found = {tensor.gradient: name for name, tensor in weights.items() if tensor.gradient}
    return found | {name: tensor.gradient_of for name, tensor in plan.tensors.items() if tensor.gradient_of in weights}


@once_per_plan
def owners_of_gradients(facts: Facts) -> dict[str, str]:
    """Return what `weight_gradients` does of the plan."""
    return weight_gradients(facts.plan)


@once_per_plan
def early(facts: Facts) -> tuple[Early, ...]:
    """Return reducers before the last backward that adds to their gradients, and steps before gradients are final."""
    plan, owners = facts.plan, owners_of_gradients(facts)
    produced: dict[str, list[tuple[int, str, bool]]] = {}
    for name, segment in plan.segments.items():
        produced[name] = [
            (index, owners[gradient], not _is_of_its_own(operator, gradient, owners))
            for index, operator in enumerate(segment.operators)
            for gradient in writes(operator)
            if gradient in owners
        ]
    using: dict[str, list[tuple[int, ReduceGradients | Update]]] = {}
    for name, segment in plan.segments.items():
        found_here = [(at, each) for at, each in enumerate(segment.operators) if isinstance(each, (ReduceGradients, Update))]
        if found_here:
            using[name] = found_here
    merged: dict[tuple[str, str, int, str, tuple[str, int]], tuple[set[int], int]] = {}
    for program in plan.programs:
        for found in _early(program, produced, using):
            key = (found.kind, found.segment, found.index, found.weight, found.later)
            merged.setdefault(key, (set(), found.micro_batch))[0].update(found.ranks)
    return tuple(
        Early(kind, name, index, weight, run, tuple(sorted(ranks)), later)
        for (kind, name, index, weight, later), (ranks, run) in merged.items()
    )


def _is_of_its_own(operator: Operator, gradient: str, owners: dict[str, str]) -> bool:
    """Return whether an operator only puts a function of a gradient in its place, as a loss scale that is undone."""
    taken = [name for name in reads(operator) if owners.get(name) == owners[gradient]]
    return isinstance(operator, Compute) and taken == [gradient]


def _early(
    program: Program,
    produced: dict[str, list[tuple[int, str, bool]]],
    using: dict[str, list[tuple[int, ReduceGradients | Update]]],
) -> Iterator[Early]:
    last: dict[tuple[str, str], tuple[int, int, str, int]] = {}
    reduced: dict[str, tuple[int, int, str]] = {}
    uses: list[tuple[str, int, int, str, str]] = []
    final_runs = {step.segment: at for at, step in enumerate(program.steps)}
    for name, at in sorted(final_runs.items(), key=lambda item: item[1]):
        for index, weight, adds in produced.get(name, ()):
            for kind in ("reduce", "update") if adds else ("update",):
                last[kind, weight] = (at, index, name, program.steps[at].micro_batch)
    for at, step in enumerate(program.steps):
        for index, operator in using.get(step.segment, ()):
            kind = "reduce" if isinstance(operator, ReduceGradients) else "update"
            uses += [(kind, at, index, step.segment, weight) for weight in operator.weights]
            if kind == "reduce":
                reduced |= dict.fromkeys(operator.weights, (at, index, step.segment))
    for kind, at, index, name, weight in uses:
        final = last.get((kind, weight))
        if final is not None and (at, index) < final[:2]:
            yield Early(kind, name, index, weight, final[3], program.ranks, (final[2], final[1]))
        elif kind == "update" and weight in reduced and (at, index) < reduced[weight][:2]:
            yield Early("update-reduce", name, index, weight, -1, program.ranks, (reduced[weight][2], reduced[weight][1]))


@dataclass(frozen=True, slots=True)
class Tied:
    """`weight` gets gradients on the ranks `first` and `second`, in different segments, and nothing adds them up."""

    weight: str
    first: tuple[int, ...]
    second: tuple[int, ...]
    update: tuple[str, int]
    produced: tuple[str, int]


def _whole(plan: Plan, weight: str) -> str:
    """Return the weight that `weight` is a copy of, or the whole value of which it holds all, by its declaration; itself where
    it is none.
    """
    tensor = plan.tensors.get(weight)
    if tensor is None or tensor.role is not Role.WEIGHT or not tensor.logical or tensor.part[1] > 1:
        return weight
    other, everything = plan.tensors.get(tensor.logical), tuple((0, size) for size in tensor.whole or ())
    copied = other is not None and other.role is Role.WEIGHT and tensor.region is None
    return tensor.logical if copied or (tensor.shape == tensor.whole and tensor.region in (None, everything)) else weight


@once_per_plan
def tied(facts: Facts) -> tuple[Tied, ...]:
    """Return the weights whose gradient different operators of different programs produce, or the same ones for different
    micro-batches, and that both update unreduced.
    """
    return tuple(_tied(facts))


def _tied(facts: Facts) -> Iterator[Tied]:
    plan = facts.plan
    if not any(_changes_weights(operator) for operator in plan.operators()):
        return
    owners = {gradient: _whole(plan, weight) for gradient, weight in owners_of_gradients(facts).items()}
    made: dict[str, dict[int, tuple[str, int]]] = {}
    forwards: dict[tuple[str, int], tuple[str, str, str]] = {}
    made_in: dict[tuple[str, int], set[str]] = {}
    updates: dict[str, dict[int, tuple[str, int]]] = {}
    sent: set[str] = set()
    reduced: dict[tuple[str, int], list[Group]] = {}
    for number, program in enumerate(plan.programs):
        for name, index, operator in plan.run_by(program):
            if isinstance(operator, Backward):
                for gradient in operator.outputs:
                    if gradient in owners:
                        made.setdefault(owners[gradient], {})[number] = (name, index)
                        made_in.setdefault((owners[gradient], number), set()).add(name)
                        forwards[name, index] = gradient, ",".join(operator.forward.outputs), operator.forward.op
            elif isinstance(operator, Update):
                for weight in operator.weights:
                    updates.setdefault(_whole(plan, weight), {})[number] = (name, index)
            elif isinstance(operator, Compute) and operator.in_place:
                for weight in overwritten(operator):
                    updates.setdefault(_whole(plan, weight), {})[number] = (name, index)
            elif isinstance(operator, ReduceGradients):
                for weight in operator.weights:
                    reduced.setdefault((_whole(plan, weight), number), []).append(operator.group)
            elif isinstance(operator, Communicate):
                for weight in {owners[read] for read in reads(operator) if read in owners}:
                    reduced.setdefault((weight, number), []).append(operator.group)
            elif isinstance(operator, Send):
                sent.update(owners[read] for read in reads(operator) if read in owners)
    for weight, places in made.items():
        both = [number for number in places if number in updates.get(weight, {})]
        if weight in sent or len(both) < 2 or _across(facts, weight, both, reduced):
            continue
        first = both[0]
        one, batches = forwards[places[first]], {number: _batches(plan, number, made_in[weight, number]) for number in both}
        others = (each for each in both[1:] if _differ(one, forwards[places[each]]) or batches[each] != batches[first])
        other = next(others, None)
        if other is not None:
            ranks = plan.programs[first].ranks, plan.programs[other].ranks
            yield Tied(weight, *ranks, updates[weight][other], places[other])


def _batches(plan: Plan, number: int, segments: set[str]) -> set[int]:
    """Return the micro-batches that a program runs the segments for."""
    return {step.micro_batch for step in plan.programs[number].steps if step.segment in segments}


def _differ(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    """Return whether two uses of a weight, known by its gradient, by what it makes and by the operator, are different ones.

    What operators of one name make of copies may be the same by another name.
    """
    return one[2] != other[2] or (one[0] == other[0] and one[1] != other[1])


def _changes_weights(operator: Operator) -> bool:
    """Return whether the operator may be the update of a weight."""
    return isinstance(operator, Update) or (isinstance(operator, Compute) and bool(operator.in_place))


def _across(facts: Facts, weight: str, programs: list[int], reduced: dict[tuple[str, int], list[Group]]) -> bool:
    """Return whether the gradient of `weight` is reduced over a group with ranks of several of the `programs`."""
    of = {rank: number for number in programs for rank in facts.plan.programs[number].ranks}
    for number in programs:
        first = facts.plan.programs[number].ranks[:1]
        for group in reduced.get((weight, number), ()):
            if not group.ranks and not group.axes and not group.name:
                return True
            members = {member for rank in first for member in facts.fold.members(group, rank)}
            if len({of[member] for member in members if member in of}) > 1 or not members & of.keys():
                return True
    return False


def averaged(facts: Facts) -> Iterator[Tied]:
    """Weights of which ranks average the gradients that different functions of them give; `update` is where."""
    plan = facts.plan
    owned = {gradient: _whole(plan, weight) for gradient, weight in owners_of_gradients(facts).items()}
    uses: dict[tuple[int, str], set[str]] = {}
    averages: dict[tuple[int, str], tuple[str, int, Group]] = {}
    for number, program in enumerate(plan.programs):
        for name, index, operator in plan.run_by(program):
            if isinstance(operator, Backward):
                for gradient in operator.outputs:
                    if gradient in owned:
                        uses.setdefault((number, owned[gradient]), set()).add(operator.forward.op)
            elif isinstance(operator, Communicate) and operator.reduce == "avg":
                read = [owned[given] for given in operator.inputs if given in owned]
                averages |= {(number, weight): (name, index, operator.group) for weight in read}
    seen = set()
    for (number, weight), (name, index, group) in averages.items():
        ranks = plan.programs[number].ranks
        others = {facts.fold.program_of(rank) for rank in facts.fold.members(group, ranks[0])} if ranks else set()
        for other in sorted(each for each in others if each is not None and each != number):
            first, second = uses.get((number, weight), set()), uses.get((other, weight), set())
            if first and second and not first & second and weight not in seen:
                seen.add(weight)
                yield Tied(weight, ranks, plan.programs[other].ranks, (name, index), (name, index))


@dataclass(frozen=True, slots=True)
class Unreduced:
    """The gradients of `weights`, which `ranks` produce at `produced`, are not reduced over the replicas; others are."""

    weights: tuple[str, ...]
    ranks: tuple[int, ...]
    produced: tuple[str, int]


def unreduced(plan: Plan) -> Iterator[Unreduced]:
    """Programs of a replicated plan that leave out weights which the plan's way would be to reduce over the replicas."""
    if plan.replication.count < 2:
        return
    owners = weight_gradients(plan)
    reducers: dict[int, set[str]] = {}
    made: dict[int, dict[str, tuple[str, int]]] = {}
    for number, program in enumerate(plan.programs):
        for name, index, operator in plan.run_by(program):
            if isinstance(operator, ReduceGradients) and operator.replicated:
                reducers.setdefault(number, set()).update(operator.weights)
            elif isinstance(operator, Backward):
                for gradient in operator.outputs:
                    if gradient in owners:
                        made.setdefault(number, {}).setdefault(owners[gradient], (name, index))
    if not reducers:
        return
    for number, places in made.items():
        missing = tuple(weight for weight in places if weight not in reducers.get(number, set()))
        if missing:
            yield Unreduced(missing, plan.programs[number].ranks, places[missing[0]])
