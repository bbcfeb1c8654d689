"""Deriving the relation of every tensor of a plan, from its inputs and weights to its gradients.

One micro-batch is derived, the first, as any micro-batch (`tvlint.equivalence.side_conditions.micro_batch_symmetry` checks
that all are alike); one replica, as any replica. Every rank of the replica runs its own program; communication happens when
all its members have come to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tvlint.analyses.dataflow.def_use import reads, uses, writes
from tvlint.analyses.dataflow.step_scope import micro_batches_of, only_ends
from tvlint.analyses.gradients.accumulators import accumulators, addends
from tvlint.analyses.gradients.roots import made
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.backward import backward
from tvlint.analyses.relations.derivation.communicate import (
    BATCH,
    END,
    NEXT,
    communicate,
    complete,
    is_in_batch_under_way,
    receive,
    send,
)
from tvlint.analyses.relations.derivation.environment import accumulated, input_value
from tvlint.analyses.relations.derivation.forward import compute
from tvlint.analyses.relations.derivation.gradients.ledger import contradicted
from tvlint.analyses.relations.derivation.gradients.over_the_step import finish, reduce_gradients, update
from tvlint.analyses.relations.derivation.gradients.starts import returned
from tvlint.analyses.relations.derivation.localisation.localise import tell
from tvlint.analyses.relations.derivation.operators.overwriting import name_shared
from tvlint.analyses.relations.derivation.operators.random_draws import wrong_draws
from tvlint.analyses.relations.derivation.state import Derived, Machine, Need, RankState, Slot
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.ir.operators import (
    Await,
    Backward,
    Collective,
    Communicate,
    Compute,
    Operator,
    Receive,
    Record,
    ReduceGradients,
    Send,
    Update,
    Wait,
)
from tvlint.ir.plan import Phase, Role, Segment, Step
from tvlint.ops.table import spec_of


def derive(machine: Machine) -> Derived:
    """Run all ranks of the machine's plan as far as they go."""
    plan = machine.plan
    machine.micro_batches = micro_batches_of(plan)
    for tensor in plan.tensors.values():
        if tensor.gradient:
            machine.forward_of.setdefault(tensor.gradient, []).append(tensor.name)
        if tensor.gradient_of and tensor.gradient_of not in machine.forward_of.get(tensor.name, ()):
            machine.forward_of.setdefault(tensor.name, []).append(tensor.gradient_of)
    results = returned(machine)
    for step in (step for step in plan.steps() if step.outputs is not None):
        segment = plan.segments[step.segment]
        if segment.phase is Phase.DATA:
            machine.loaded.update(step.outputs or ())
        if step.micro_batch <= 0:
            pairs = zip(segment.outputs, step.outputs or (), strict=True)
            machine.shown.update((inner, outer) for inner, outer in pairs if outer in results and inner != outer)
    for segment in plan.segments.values():
        if segment.phase is Phase.DATA:
            machine.loaded.update(segment.outputs)
        for operator in segment.operators:
            if isinstance(operator, Backward):
                machine.gradient_names.update(operator.outputs)
    machine.names_made = made(plan)
    machine.addends = addends(plan) if machine.alone else {}
    machine.weight_of = {name: weight for name, weight in accumulators(plan).items() if name not in machine.addends}
    machine.of_runs = frozenset(_named_by_runs(machine))
    return _run(machine)


def _named_by_runs(machine: Machine) -> Iterator[str]:
    """Yield the names by which one run alone gives a gradient that adds up, or what it makes for a later micro-batch."""
    for step in (step for step in machine.plan.steps() if step.outputs is not None):
        for inner, outer in zip(machine.plan.segments[step.segment].outputs, step.outputs or (), strict=True):
            if inner != outer and (step.micro_batch > 0 or inner in machine.weight_of):
                yield outer


def _run(machine: Machine) -> Derived:
    """Run all ranks as far as they go: in turn, and then in turn from the last one, since gradients come from there."""
    active = {rank: _run_rank(machine, machine.ranks[rank], program.steps) for rank, program in machine.programs.items()}
    turn = list(active)
    while active:
        moved = False
        for rank in turn:
            steps = active[rank]
            went_on = next(steps, None)
            if went_on is None:
                del active[rank]
            moved = moved or went_on is not False
        if not moved:
            break
        turn = [rank for rank in reversed(turn) if rank in active]
    for rank in active:
        _stuck(machine, machine.ranks[rank])
    finish(machine)
    derived = machine.derived
    derived.finished = not active
    derived.incomplete = {one_sum for state in machine.ranks.values() for one_sum in state.incomplete}
    derived.opaque = {state.number: state.opaque for state in machine.ranks.values()}
    derived.environments = {state.number: state.environment for state in machine.ranks.values()}
    derived.carriers = {state.number: state.carriers for state in machine.ranks.values()}
    derived.contradicted.extend(wrong_draws(machine))
    if not machine.alone:
        derived.contradicted.extend(contradicted(machine))
    return derived


def _stuck(machine: Machine, rank: RankState) -> None:
    name = rank.segment.name if rank.segment else ""
    machine.derived.fatal = True
    if rank.reducing:
        return
    machine.derived.defects.append(
        Defect("never-completes", False, "a communication on {ranks} never completes", rank.number, name)
    )


def _run_rank(machine: Machine, rank: RankState, steps: Sequence[Step]) -> Iterator[bool]:
    """Run the steps; where the rank must wait for others, this says whether it has run an operator since it last waited."""
    classes = set()
    for index, step in enumerate(steps):
        segment = machine.plan.segments[step.segment]
        ends = only_ends(segment)
        if step.micro_batch > 0 and not ends:
            continue
        rank.segment = segment
        rank.of_step = ends or machine.micro_batches == 1 or step.micro_batch < 0
        outer_inputs, outer_outputs = step.outside(segment)
        rank.local = {
            inner: rank.environment[outer]
            for inner, outer in zip(segment.inputs, outer_inputs, strict=True)
            if outer in rank.environment
        }
        rank.inward = dict(zip(segment.inputs, outer_inputs, strict=True))
        for inner, outer in rank.inward.items() if machine.alone else ():
            if inner not in rank.local and _is_given(machine, outer):
                rank.local[inner] = input_value(machine, rank, outer)
        for inner, outer in rank.inward.items():
            if inner != outer:
                rank.made_of[inner] = rank.made_of.get(outer, frozenset())
                rank.opaque[inner] = rank.opaque.get(outer)
                name_shared(rank, inner, outer)
        rank.unbound = dict.fromkeys((name for name in segment.inputs if name not in rank.local), step.source)
        rank.zero = {inner for inner, outer in rank.inward.items() if outer in rank.zero_outside}
        if machine.nearest is not None or machine.alone:
            machine.derived.locals[rank.number, segment.name] = rank.local
        rank.trail = machine.derived.trails[rank.number, index] = []
        for operator in segment.operators:
            while not _may_run(machine, rank, operator):
                yield from _waiting(rank)
            _operate(machine, rank, segment, operator)
            rank.moved = True
            while not complete(machine, rank, (NEXT,)):
                yield from _waiting(rank)
        while not complete(machine, rank, (END,)):
            yield from _waiting(rank)
        for inner, outer in zip(segment.outputs, outer_outputs, strict=True):
            if inner != outer:
                rank.made_of[outer] = rank.made_of.get(inner, frozenset())
                rank.opaque[outer] = rank.opaque.get(inner)
                name_shared(rank, outer, inner)
            if inner in rank.local:
                _export(machine, rank, outer, rank.local[inner], outer in outer_inputs)
            elif inner in rank.zero:
                rank.zero_outside.add(outer)
            elif inner not in machine.weight_of and inner not in rank.renewed and not _at_a_root(segment, inner, rank.number):
                text = f"gives `{inner}`, which nothing in it makes"
                text, source = f"`{segment.name}` {text}", step.source
                missing = Mismatch("use-before-definition", text, refutes=False, source=source)
                tell(machine, rank, None, missing, fatal=True)
        machine.derived.stages += 1
        classes.add((segment.phase, tuple(map(id, rank.trail))))
    machine.derived.classes += len(classes)


def _is_given(machine: Machine, name: str) -> bool:
    """Return whether the name is that of an input that is there from the start."""
    tensor = machine.plan.tensors.get(name)
    return tensor is not None and tensor.role is Role.INPUT and name not in machine.loaded


def _waiting(rank: RankState) -> Iterator[bool]:
    moved, rank.moved = rank.moved, False
    yield moved


def _may_run(machine: Machine, rank: RankState, operator: Operator) -> bool:
    """Complete what the operator waits for, touches or may touch of what is under way; return whether that has come.

    When a rank may go on is not judged here but by the order analysis: values do not depend on it.
    """
    if rank.reducing and not rank.reducing.isdisjoint(_gradients_touched(machine, rank, operator)):
        return False
    if not rank.under_way:
        return True
    if isinstance(operator, ReduceGradients | Update) or _may_change_anything(operator):
        return complete(machine, rank, (END,))
    needs: set[Need] = {("touch", name) for name in (*uses(operator), *writes(operator))}
    if isinstance(operator, Wait):
        needs.add(("wait", operator.handle))
    if not is_in_batch_under_way(rank, operator):
        needs.add(BATCH)
    return complete(machine, rank, needs)


def _may_change_anything(operator: Operator) -> bool:
    """Return whether it is a call that may change more than what it gives."""
    return isinstance(operator, Compute) and (bool(operator.in_place) or not operator.outputs or spec_of(operator.op) is None)


def _at_a_root(segment: Segment, name: str, rank: int) -> bool:
    """Return whether `name` is the result of a collective that gives it to a root, which `rank` is not."""
    return any(
        isinstance(operator, Communicate)
        and operator.kind in (Collective.REDUCE, Collective.GATHER)
        and name in operator.outputs
        and operator.root != rank
        for operator in segment.operators
    )


def _export(machine: Machine, rank: RankState, name: str, value: Slot, replaces: bool) -> None:
    rank.environment[name] = value if replaces else accumulated(machine, rank, name, value, rank.environment.get(name, ""))


def _operate(machine: Machine, rank: RankState, segment: Segment, operator: Operator) -> None:
    if segment.phase is Phase.DATA and isinstance(operator, Backward | ReduceGradients | Update):
        wrong = Mismatch("computes-while-loading", "trains in a segment that loads data", refutes=False)
        tell(machine, rank, operator, wrong, fatal=True)
    if isinstance(operator, Compute):
        compute(machine, rank, segment, operator)
    elif isinstance(operator, Backward):
        backward(machine, rank, operator)
    elif isinstance(operator, Communicate):
        communicate(machine, rank, operator)
    elif isinstance(operator, Send):
        send(machine, rank, operator)
    elif isinstance(operator, Receive):
        receive(machine, rank, operator)
    elif isinstance(operator, ReduceGradients):
        reduce_gradients(machine, rank, segment.name, operator)
    elif isinstance(operator, Update):
        update(machine, rank, operator)
    elif isinstance(operator, Wait | Record | Await):
        return  # order is judged by the order analysis
    else:
        raise AssertionError(operator)


def _gradients_touched(machine: Machine, rank: RankState, operator: Operator) -> Iterable[str]:
    """Return the weights whose gradients the operator reads, adds to, reduces or updates with; all where it may change
    anything.
    """
    if isinstance(operator, ReduceGradients | Update):
        yield from operator.weights
    elif _may_change_anything(operator):
        yield from rank.reducing
    else:
        yield from (machine.weight_of[name] for name in (*reads(operator), *writes(operator)) if name in machine.weight_of)
