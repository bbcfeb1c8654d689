"""The topology of a plan, and of a configuration from which nnScaler makes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.ir.configuration import Configuration, SettingValue, Unknown
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Group, Operator, ReduceGradients
from tvlint.ir.plan import Phase, Plan, Program, Segment
from tvlint.topology.grid import GroupKind
from tvlint.topology.quantity import Lookup, Settings, attempt, divide, need
from tvlint.topology.schedule import bubble

MOST_RANKS = 2**18


@dataclass(frozen=True, slots=True)
class UsedGroups:
    """The process groups along some axes of the mesh that communicate, and in how many operators of each kind.

    Operators are counted once for each kind of rank, not for each micro-batch.
    """

    axes: tuple[str, ...]
    size: int
    groups: tuple[tuple[int, ...], ...]
    operations: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StageSegments:
    """The segments of one pipeline stage by phase, and the ranks that run them; number -1 belongs to no stage."""

    number: int
    ranks: tuple[int, ...]
    forward: tuple[str, ...]
    backward: tuple[str, ...]
    operators: int


@dataclass(frozen=True, slots=True)
class LaneSteps:
    """The steps that some ranks run in order: `F0` is the forward of micro-batch 0, `B0` its backward, and a letter tells
    apart the segments of a rank that runs several; other work is left out.
    """

    ranks: tuple[int, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanTopology:
    """The mesh of a plan, the groups that it uses, its pipeline stages and their schedule."""

    path: str
    section: str
    format: str
    mesh: Mesh | Unknown
    facts: tuple[tuple[str, SettingValue | Unknown], ...]
    groups: tuple[GroupKind, ...] = ()
    used: tuple[UsedGroups, ...] = ()
    stages: tuple[StageSegments, ...] = ()
    lanes: tuple[LaneSteps, ...] = ()


def topology_of_plan(plan: Plan) -> PlanTopology:
    """Return what a plan says of ranks, groups, pipeline stages and schedule."""
    facts: list[tuple[str, SettingValue | Unknown]] = [("ranks", plan.mesh.size)]
    if plan.replication.count > 1:
        facts.append(("replicas", plan.replication.count))
        facts.append(("ranks of a replica", plan.mesh.size // plan.replication.count))
    facts.append(("micro-batches", plan.micro_batches))
    return PlanTopology(
        path=plan.path,
        section="",
        format=plan.format,
        mesh=plan.mesh,
        facts=tuple(facts),
        used=tuple(_used(plan)),
        stages=tuple(_stages(plan)),
        lanes=tuple(_lane(plan, program) for program in plan.programs),
    )


def _used(plan: Plan) -> Iterator[UsedGroups]:
    """The groups of every collective, by size; those of a folded replica stand for all replicas."""
    members: dict[tuple[tuple[str, ...], int], dict[tuple[int, ...], None]] = {}
    counts: dict[tuple[tuple[str, ...], int], Counter[str]] = {}
    for program in plan.programs:
        ran: Counter[tuple[str, Group, bool]] = Counter()
        for name in dict.fromkeys(step.segment for step in program.steps):
            segment = plan.segments.get(name)
            ran.update(filter(None, map(_communicates, segment.operators if segment is not None else ())))
        for (kind, group, everywhere), times in ran.items():
            found = _groups(plan, program, group, everywhere)
            if not found or len(found[0]) < 2:
                continue
            key = (_along(plan.mesh, found[0]), len(found[0]))
            members.setdefault(key, {}).update(dict.fromkeys(found))
            counts.setdefault(key, Counter())[kind] += times
    for axes, size in sorted(members, key=lambda key: (len(key[0]), key)):
        groups = tuple(sorted(members[axes, size]))
        yield UsedGroups(axes, size, groups, tuple(sorted(counts[axes, size].items())))


def _along(mesh: Mesh, ranks: tuple[int, ...]) -> tuple[str, ...]:
    """Return the axes on which the ranks differ, fastest first; none where a rank is outside of the mesh."""
    if ranks[0] < 0 or ranks[-1] >= mesh.size:
        return ()
    places = [mesh.coordinates(rank) for rank in ranks]
    return tuple(axis.name for axis in reversed(mesh.axes) if len({place[axis.name] for place in places}) > 1)


def _communicates(operator: Operator) -> tuple[str, Group, bool] | None:
    """Return what an operator does with which group, and whether that group extends over all replicas."""
    if isinstance(operator, Communicate) and operator.kind is not Collective.CHUNK:
        return operator.kind.value, operator.group, False
    if isinstance(operator, ReduceGradients):
        return "reduce-gradients", operator.group, operator.replicated
    return None


def _groups(plan: Plan, program: Program, group: Group, everywhere: bool) -> list[tuple[int, ...]]:
    count, stride = plan.replication.count, plan.replication.stride
    if group.axes:
        first = program.ranks if count == 1 else tuple(rank + copy * stride for copy in range(count) for rank in program.ranks)
        firsts = dict.fromkeys(plan.mesh.first(rank, group.axes) for rank in first if rank < plan.mesh.size)
        return [plan.mesh.along(rank, group.axes) for rank in firsts]
    if everywhere:
        return [tuple(sorted(rank + copy * stride for copy in range(count) for rank in group.ranks))]
    return [tuple(sorted(rank + copy * stride for rank in group.ranks)) for copy in range(count)]


def _stages(plan: Plan) -> Iterator[StageSegments]:
    ranks: dict[int, set[int]] = {}
    segments: dict[int, dict[str, Segment]] = {}
    for program in plan.programs:
        for step in program.steps:
            segment = plan.segments.get(step.segment)
            if segment is not None and _computes(segment):
                ranks.setdefault(segment.pipeline_stage, set()).update(program.ranks)
                segments.setdefault(segment.pipeline_stage, {})[segment.name] = segment
    for number in sorted(segments):
        held = segments[number].values()
        yield StageSegments(
            number,
            tuple(sorted(ranks[number])),
            tuple(segment.name for segment in held if segment.phase is Phase.FORWARD),
            tuple(segment.name for segment in held if segment.phase is Phase.BACKWARD),
            sum(isinstance(operator, Compute) for segment in held for operator in segment.operators),
        )


def _computes(segment: Segment) -> bool:
    return any(isinstance(operator, Compute | Backward) for operator in segment.operators)


def _lane(plan: Plan, program: Program) -> LaneSteps:
    letters = {Phase.FORWARD: "F", Phase.BACKWARD: "B"}
    ran = [(step.micro_batch, segment) for step in program.steps if (segment := plan.segments.get(step.segment)) is not None]
    chunks: dict[str, int] = {}
    for _, segment in ran:
        if segment.phase is Phase.FORWARD and _computes(segment):
            chunks.setdefault(segment.name, len(chunks))
    steps = []
    for micro_batch, segment in ran:
        if segment.phase in letters and micro_batch >= 0 and _computes(segment):
            chunk = chunks.get(segment.name if segment.phase is Phase.FORWARD else segment.mirror)
            part = chr(ord("a") + chunk) if chunk is not None and 1 < len(chunks) <= 26 else ""
            steps.append(f"{letters[segment.phase]}{micro_batch}{part}")
    return LaneSteps(program.ranks, tuple(steps))


def topology_of_nnscaler(configuration: Configuration, lookup: Lookup) -> PlanTopology:
    """Return what an nnScaler configuration says before there is a plan: its copies, groups over them, micro-batches."""
    settings = Settings(lookup)
    plan = attempt(lambda: settings.count("plan_ngpus", 1))
    run = attempt(lambda: settings.count("runtime_ngpus", 1))
    units = attempt(lambda: need(plan) and need(run) and settings.count("scale_units", 1))
    mesh = attempt(lambda: _units(need(plan), need(units)))
    steps = attempt(lambda: settings.count("pipeline_nmicros", 1))
    stages = attempt(lambda: _plan_stages(settings))
    facts: list[tuple[str, SettingValue | Unknown]] = [
        ("ranks of a plan", plan),
        ("ranks", run),
        ("scale units", units),
        ("pipeline stages", stages),
        ("plan micro-batches", steps),
        ("steps per update", attempt(lambda: settings.count("update_frequency", 1))),
        ("bubble of a step", attempt(lambda: round(bubble(need(stages), 1, need(steps)).of_step, 4))),
    ]
    groups = () if isinstance(mesh, Unknown) else tuple(_unit_groups(settings, mesh))
    return PlanTopology(configuration.path, configuration.section, configuration.format, mesh, tuple(facts), groups)


def _plan_stages(settings: Settings) -> int:
    """The pipeline stages of a plan: as given, else what the shipped policies take (nnscaler/policies.py:176)."""
    given = settings.text("pipeline_nstages", "auto")
    policy = settings.text("pas_policy")
    if given != "auto" or policy in ("pp", "hybrid"):
        return settings.count("plan_stages", 1)
    if policy in ("dp", "tp", "data"):
        return 1
    raise ValueError(f"the policy `{policy[:40]}` decides" if policy else "the policy decides, and none is given")


def _units(plan: int, units: int) -> Mesh:
    if plan * units > MOST_RANKS:
        raise ValueError(f"{plan * units:,} ranks are more than any cluster has")
    return Mesh((Axis("scale unit", units), Axis("plan rank", plan)))


def _unit_groups(settings: Settings, mesh: Mesh) -> Iterator[GroupKind]:
    """Scale units are blocks of consecutive ranks; a weight's copies are the same place in each of them."""
    yield GroupKind("scale unit", mesh, ("plan rank",))
    yield GroupKind("copies", mesh, ("scale unit",))
    ways = attempt(lambda: settings.count("zero_ngroups", 1))
    if isinstance(ways, Unknown) or not attempt(lambda: settings.flag("use_zero")) or ways == 1:
        return
    units = mesh.axis_size("scale unit")
    each = attempt(lambda: divide(units, ways, "the number of scale units:"))
    if not isinstance(each, Unknown):
        split = Mesh((Axis("zero group", ways), Axis("scale unit", each), Axis("plan rank", mesh.axis_size("plan rank"))))
        yield GroupKind("zero", split, ("scale unit",))
