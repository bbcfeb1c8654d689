"""Check that a plan says what runs: whether it can be derived at all."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tvlint.analyses.dataflow.def_use import of_kinds
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.given.trusted_inputs import declared_in_two_ways
from tvlint.analyses.relations.transfer.groups import not_of_communicator
from tvlint.ir.operators import ARGUMENTS, Await, Communicate, Receive, Record, ReduceGradients, Send, Update
from tvlint.ir.placement import Invariant, Replicate
from tvlint.ir.plan import GIVEN, Plan, Role

_TALKING = frozenset({Communicate, ReduceGradients, Send, Receive})
_TRAINING = frozenset({ReduceGradients, Update})
_CALLS = frozenset({Communicate, Record, Await})
_SAID = frozenset().union(*ARGUMENTS.values())


def underivable(plan: Plan) -> Defect | None:
    """Return what keeps the plan from being derived at all; None where nothing does."""
    rank, named = first_rank(plan), f"`{plan.path}`"
    if not any(program.ranks for program in plan.programs):
        return Defect("empty-plan", False, f"{named} has no programs", rank)
    if not is_well_formed(plan):
        text = "has a rank in two programs or none of the mesh, a program of no rank, or a step that does not fit its segment"
        return Defect("malformed-plan", False, f"{named} {text}", rank)
    text, name = unclear(plan), declared_in_two_ways(plan)
    if text:
        return Defect("malformed-plan", False, f"{named} {text}", rank)
    if name:
        text = f"declares slices of the input `{name}` with wholes of different shapes or types"
        return Defect("other-inputs", False, f"{named} {text}", rank)
    if not do_replicas_fit(plan):
        return Defect("odd-replicas", False, f"{named} folds replicas that are not those of one axis of the mesh", rank)
    return None


def odd_replicas(plan: Plan) -> Defect | None:
    """Return what is odd about folded replicas that hold different pieces of what is given; None where they do not."""
    name = cut_by_replicas(plan)
    if not name:
        return None
    along = f"in each replica along `{plan.replication.axis}`"
    text = f"`{name}` has another placement {along}; one stands for all: write out all ranks"
    return Defect("odd-replicas", False, text, first_rank(plan))


def first_rank(plan: Plan) -> int:
    """Return a rank of the plan, for what is wrong with all of it."""
    return plan.programs[0].ranks[0] if plan.programs and plan.programs[0].ranks else 0


def is_well_formed(plan: Plan) -> bool:
    """Return whether every rank has one program, every program a rank, and every step as many values as its segment."""
    ranks = [rank for program in plan.programs for rank in program.ranks]
    if len(set(ranks)) != len(ranks) or any(not 0 <= rank < plan.mesh.size for rank in ranks):
        return False
    if not all(program.ranks for program in plan.programs):
        return False
    for step in plan.steps():
        segment = plan.segments.get(step.segment)
        if segment is None or step.misfit(segment):
            return False
    return True


def unclear(plan: Plan) -> str:
    """Return what the plan says that leaves open what it means; empty where nothing is."""
    owners: dict[str, str] = {}
    for tensor in plan.tensors.values():
        for name, of in ((tensor.gradient, tensor.name), (tensor.name, tensor.gradient_of)):
            weight, gradient = plan.tensors.get(of), plan.tensors.get(name)
            if not name or weight is None or weight.role is not Role.WEIGHT:
                continue
            if gradient is not None and gradient.role is not Role.GRADIENT:
                return f"declares `{name}` as the gradient of `{of}` and as {gradient.role.value}"
            if owners.setdefault(name, of) != of:
                return f"declares `{name}` as the gradient of `{owners[name]}` and of `{of}`"
    given = {name for step in plan.steps() for name in step.outputs or ()}
    given.update(name for segment in plan.segments.values() for name in segment.outputs)
    for name in plan.outputs:
        declared = plan.tensors.get(name)
        if name not in given and (declared is None or declared.role is Role.ACTIVATION):
            return f"returns `{name}`, which no run gives"
    axes = {axis.name for axis in plan.mesh.axes}
    for name in _axes_named(plan):
        if name not in axes:
            return f"communicates along `{name}`, which is neither an axis of its mesh nor one of its communicators"
    name = not_of_communicator(plan)
    if name:
        return f"communicates by `{name}` with other ranks than that communicator has"
    return _without_meaning(plan) or _not_trained(plan)


def _without_meaning(plan: Plan) -> str:
    """Return an argument that a collective does not take, or an event that nothing records; empty where there is none."""
    recorded: set[str] = set()
    awaited: dict[str, None] = {}
    for segment in plan.segments.values():
        for _, operator in of_kinds(segment.operators, _CALLS):
            if isinstance(operator, Record):
                recorded.add(operator.event)
            elif isinstance(operator, Await):
                awaited[operator.event] = None
            elif isinstance(operator, Communicate):
                for name in _SAID - ARGUMENTS[operator.kind]:
                    if getattr(operator, name) not in (None, ()):
                        return f"passes `{name}` to {operator.kind.value}, which does not take it"
    unknown = next((event for event in awaited if event not in recorded), None)
    return "" if unknown is None else f"waits for the event `{unknown}`, which nothing records"


def _not_trained(plan: Plan) -> str:
    """Return what is reduced or updated and is no weight, or is reduced twice at once; empty where nothing is."""
    for segment in plan.segments.values():
        for _, operator in of_kinds(segment.operators, _TRAINING):
            for name in operator.weights if isinstance(operator, ReduceGradients | Update) else ():
                if name not in plan.tensors or plan.tensors[name].role is not Role.WEIGHT:
                    return f"reduces or updates `{name}`, which is no weight"
                if isinstance(operator, ReduceGradients) and operator.weights.count(name) > 1:
                    return f"names `{name}` twice in one gradient reducer"
    return ""


def _axes_named(plan: Plan) -> Iterator[str]:
    """Yield the axes along which the plan communicates, and the names of groups that say nothing but their name."""
    for segment in plan.segments.values():
        for _, operator in of_kinds(segment.operators, _TALKING):
            if isinstance(operator, Communicate | ReduceGradients):
                group = plan.declared(operator.group)
                yield from group.axes or ((group.name,) if group.name and not group.ranks else ())
            elif isinstance(operator, Send | Receive) and operator.peer.rank is None:
                yield operator.peer.axis


def do_replicas_fit(plan: Plan) -> bool:
    """Return whether the programs are those of the first coordinate of the axis that is folded, and the replicas all the
    others.
    """
    replication = plan.replication
    if replication.count <= 1:
        return True
    names = [axis.name for axis in plan.mesh.axes]
    if replication.axis not in names or plan.mesh.axis_size(replication.axis) != replication.count:
        return False
    inner = plan.mesh.axes[names.index(replication.axis) + 1 :]
    ranks = [rank for program in plan.programs for rank in program.ranks]
    first = all(0 <= rank < plan.mesh.size and plan.mesh.coordinates(rank)[replication.axis] == 0 for rank in ranks)
    return first and replication.stride == prod(axis.size for axis in inner)


def cut_by_replicas(plan: Plan) -> str:
    """Return a weight, buffer or input of which folded replicas hold different pieces by its type; empty where none is."""
    replication = plan.replication
    for tensor in plan.tensors.values() if replication.count > 1 else ():
        placement = (tensor.placements or {}).get(replication.axis, Replicate())
        if tensor.role in GIVEN and not isinstance(placement, Replicate | Invariant):
            return tensor.name
    return ""
