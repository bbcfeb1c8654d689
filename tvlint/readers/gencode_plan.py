"""The plan that the generated files of one replica make together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from tvlint.ir.location import Location
from tvlint.ir.plan import (
    Collective,
    Communicate,
    Compute,
    Group,
    Operator,
    Phase,
    Plan,
    Program,
    Receive,
    ReduceGradients,
    Replication,
    Role,
    Segment,
    Send,
    Step,
    Tensor,
)
from tvlint.readers.document import ReadError
from tvlint.readers.gencode_autograd import differentiated, gradient
from tvlint.readers.gencode_methods import IDENTITY, Body, Gradual, lower
from tvlint.readers.gencode_names import cell_name, number_of
from tvlint.readers.gencode_records import ClearGradients, Delete, Execute, Load, Method, RankFile, Reducer, Rename, RunBackward
from tvlint.readers.gencode_shapes import Contradiction, Kind, bound_of, results
from tvlint.readers.nnscaler_mesh import mesh_of

FORMAT = "nnscaler-gencode"
DATA_LOADER = "dataloader"


@dataclass(frozen=True, slots=True)
class Replica:
    """The files of one replica, and how the others relate to it.

    Rank r of replica k is `files[r - low]` shifted by k x `stride`; `low` is the first rank of this one.
    """

    files: tuple[RankFile, ...]
    count: int
    stride: int
    low: int = 0

    def base(self, ranks: Sequence[int]) -> tuple[tuple[int, ...], bool, bool]:
        """The ranks of a reducer that lie in this replica, whether it extends over all replicas, and whether it fits."""
        size = len(self.files)
        own = tuple(rank for rank in ranks if self.low <= rank < self.low + size)
        offsets = {rank - self.low for rank in own}
        everywhere = {offset + replica * size for offset in offsets for replica in range(self.count)}
        if set(ranks) == everywhere and len(set(ranks)) == len(ranks):
            return own, self.count > 1, True
        return own, False, set(own) == set(ranks) and self.count == 1


@dataclass(slots=True)
class Built:
    """The plan as it is built."""

    replica: Replica
    inputs: Mapping[tuple[str, int], Kind]
    scalar: tuple[int, ...]
    kinds: dict[str, Kind] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    disputed: set[str] = field(default_factory=set)
    stated: dict[str, Kind] = field(default_factory=dict)
    misstated: set[str] = field(default_factory=set)
    """What a message is stated to be and is not."""
    links: dict[str, str] = field(default_factory=dict)
    """Gradient -> what it is the gradient of."""
    own_gradient: dict[str, str] = field(default_factory=dict)
    logical: dict[str, str] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    forward_cells: dict[int, list[str]] = field(default_factory=dict)
    groups: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    bodies: dict[tuple[int, str], Body] = field(default_factory=dict)
    contradictions: list[tuple[str, Location, int]] = field(default_factory=list)
    """What cannot fit, where, on which rank."""
    unbound: list[tuple[str, Location, int]] = field(default_factory=list)
    """Names of the schedule that nothing made before, where, on which rank."""
    objects: set[str] = field(default_factory=set)
    """What loaders give that is no tensor, under all its names in schedules."""
    returned_batches: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The micro-batches of the values that each rank returns."""
    micro_batches: int = 1

    def declare(self, name: str, kind: Kind, role: Role = Role.ACTIVATION) -> None:
        """Note shape and dtype of a tensor; what ranks disagree about stays undeclared, unless a message states it."""
        if role is not Role.ACTIVATION or name not in self.roles:
            self.roles[name] = role
        known = self.kinds.setdefault(name, self.stated.get(name, kind))
        if known[0] != kind[0] and name not in self.stated:
            self.disputed.add(name)


def build(path: str, replica: Replica, inputs: Mapping[tuple[str, int], Kind], scalar: tuple[int, ...]) -> tuple[Plan, Built]:
    """The plan. `inputs` is the kind of what data loaders give, by loader and position."""
    built = Built(replica, inputs, scalar)
    for file in replica.files:
        for method in file.methods.values():
            if not method.reduces:
                built.bodies[file.rank, method.name] = lower(method, file)
    _collect_stated(built)
    for file in replica.files:
        for name, parameter in file.parameters.items():
            _parameter(built, name, parameter)
    bases = _loader_names(replica.files)
    for file in replica.files:
        _Rank(built, file, bases).run()
    _judge_stated(built)
    mesh, stages = mesh_of(
        {rank - replica.low: cells for rank, cells in built.forward_cells.items()},
        {rank - replica.low: {tuple(r - replica.low for r in group) for group in own} for rank, own in built.groups.items()},
        replica.count,
    )
    segments = {
        name: replace(segment, pipeline_stage=stages.get(int(name.split("/", 1)[0].removeprefix("device ")) - replica.low, -1))
        for name, segment in built.segments.items()
    }
    first = replica.files[0]
    plan = Plan(
        path,
        FORMAT,
        mesh,
        _tensors(built),
        segments,
        tuple(built.programs),
        Replication("dp", replica.count, replica.stride),
        built.micro_batches,
        tuple(name for name in first.returned if name not in built.objects),
        communicators=tuple(Group(ranks=ranks) for ranks, _ in first.groups),
    )
    return plan, built


def _collect_stated(built: Built) -> None:
    """Shapes that messages state; where the two ends do not agree, the derived one decides."""
    said: dict[str, set[tuple[int, ...]]] = {}
    for body in built.bodies.values():
        for name, kind in body.stated.items():
            said.setdefault(name, set()).add(kind[0])
            built.stated[name] = kind
    for name, shapes in said.items():
        if len(shapes) > 1:
            del built.stated[name]


def _judge_stated(built: Built) -> None:
    """Messages that are stated to be of another shape or dtype than what is sent: neither end then has a known one."""
    for (rank, _), body in built.bodies.items():
        for name, (shape, dtype) in body.stated.items():
            own = built.kinds.get(built.links.get(name, "")) or built.kinds.get(name)
            if own is None or ((own[0] == shape and dtype in ("", own[1])) or own == (shape, "")):
                continue
            place = next(
                (source for source in (_source_at_end(entry.operator, name) for entry in body.operators) if source), None
            )
            if place is not None:
                text = f"`{name}` of shape {own[0]} and type {own[1]} as a message of shape {shape} and type {dtype}"
                built.contradictions.append((text, place, rank))
                built.misstated.add(name)


def _source_at_end(operator: Operator, name: str) -> Location | None:
    """Where a message of this tensor is sent or received."""
    if isinstance(operator, (Send, Receive)):
        return operator.source if operator.tensor == name else None
    return operator.source if isinstance(operator, Communicate) and name in (*operator.inputs, *operator.outputs) else None


def _parameter(built: Built, name: str, parameter: object) -> None:
    from tvlint.readers.gencode_records import Parameter

    assert isinstance(parameter, Parameter)
    role = Role.WEIGHT if parameter.is_weight else Role.BUFFER
    part = (0, parameter.parts) if parameter.parts != 1 else (0, 1)
    declared = Tensor(
        name,
        parameter.shape,
        parameter.dtype,
        role,
        parameter.full_name,
        parameter.whole,
        parameter.region or None,
        part,
        gradient=gradient(name) if parameter.is_weight else "",
        requires_grad=parameter.is_weight,
    )
    known = built.weights.setdefault(name, declared)
    if known != declared:
        place = parameter.map_source or parameter.source
        raise ReadError(f"`{name}` is not the same slice on all ranks that have it", place)
    if parameter.is_weight:
        built.links[gradient(name)] = name


def _loader_names(files: Sequence[RankFile]) -> dict[tuple[str, int], str]:
    """The name under which all ranks know what a loader gives: that of the lowest id."""
    found: dict[tuple[str, int], str] = {}
    for file in files:
        for action in file.actions:
            if isinstance(action, Load):
                for position, name in enumerate(action.outputs):
                    known = found.setdefault((action.loader, position), name)
                    if (number_of(name), name) < (number_of(known), known):
                        found[action.loader, position] = name
    return found


def _tensors(built: Built) -> dict[str, Tensor]:
    found = dict(built.weights)
    for name, (shape, dtype) in built.kinds.items():
        if name in built.disputed or name in found or name in built.misstated:
            continue
        role = built.roles.get(name, Role.ACTIVATION)
        found[name] = Tensor(
            name,
            shape,
            dtype,
            role,
            built.logical.get(name, ""),
            gradient_of=built.links.get(name, ""),
            gradient=built.own_gradient.get(name, ""),
        )
    for name, of in built.links.items():
        if name not in found and of in found and name not in built.misstated:
            found[name] = Tensor(name, found[of].shape, found[of].dtype, Role.GRADIENT, gradient_of=of)
    return found


class _Rank:
    """One rank's schedule, step by step."""

    def __init__(self, built: Built, file: RankFile, bases: Mapping[tuple[str, int], str]) -> None:
        self.built = built
        self.file = file
        self.rank = file.rank
        self.bases = bases
        self.steps: list[Step] = []
        self.alias: dict[str, str] = {}
        self.batch_of: dict[str, int] = {}
        self.uses: dict[str, int] = {}
        self.live: set[str] = set()
        self.first_use: dict[str, Execute] = {}
        self.runs: list[tuple[Execute, int]] = []
        self.gradients = _gradient_names(file)
        self.ready: dict[str, set[str]] = {}

    def run(self) -> None:
        built = self.built
        built.forward_cells[self.rank] = []
        built.groups[self.rank] = set()
        for action in self.file.actions:
            if isinstance(action, Load):
                self._load(action)
            elif isinstance(action, Execute):
                self._execute(action)
            elif isinstance(action, RunBackward):
                self._backward(action)
            elif isinstance(action, Rename):
                self._read((action.old,), self.file.train_source or Location(self.file.path))
                self.alias[action.new] = self._known(action.old)
                self.live.add(action.new)
            elif isinstance(action, Delete):
                self.live.difference_update(action.names)
            else:
                assert isinstance(action, ClearGradients)
        self._read(self.file.returned, self.file.returned_at or Location(self.file.path))
        built.returned_batches[self.rank] = tuple(self.batch_of.get(name, -1) for name in self.file.returned)
        built.programs.append(Program((self.rank,), tuple(self.steps)))

    def _known(self, name: str) -> str:
        return self.alias.get(name, name)

    def _read(self, names: Sequence[str], source: Location) -> tuple[str, ...]:
        for name in names:
            if name and name not in self.live:
                self.built.unbound.append((name, source, self.rank))
        return tuple(self._known(name) for name in names)

    def _write(self, names: Sequence[str], batch: int) -> None:
        for name in names:
            self.alias.pop(name, None)
            self.live.add(name)
            self.batch_of[name] = batch

    def _count(self, segment: str) -> int:
        use = self.uses.get(segment, 0)
        self.uses[segment] = use + 1
        return use

    def _step(self, step: Step) -> None:
        self.steps.append(step)
        self.built.micro_batches = max(self.built.micro_batches, step.micro_batch + 1)

    def _load(self, action: Load) -> None:
        name = f"device {self.rank}/data {action.loader}"
        inner = tuple(self.bases[action.loader, position] for position in range(len(action.outputs)))
        for position, (base, own) in enumerate(zip(inner, action.outputs, strict=True)):
            kind = self.built.inputs.get((action.loader, position))
            if kind is None and action.fields and action.fields[position][1]:
                self.built.objects.add(own)
            for one in (base, own):
                self.built.logical[one] = base
                if kind is not None:
                    self.built.declare(one, kind, Role.INPUT)
        tensors = [own not in self.built.objects for own in action.outputs]
        given = tuple(compress(inner, tensors))
        if name not in self.built.segments:
            loader = Compute(DATA_LOADER, (), given, source=action.source)
            self.built.segments[name] = Segment(name, Phase.DATA, (), given, (loader,))
        batch = self._count(name)
        self._write(action.outputs, batch)
        self._step(Step(name, batch, (), tuple(compress(action.outputs, tensors)), action.source))

    def _execute(self, action: Execute) -> None:
        method = self.file.methods[action.method]
        if method.reduces:
            self._reduce(method, action.source)
            return
        name = cell_name(self.rank, action.method)
        inputs = self._read(action.inputs, action.source)
        use = self._count(name)
        batches = {self.batch_of[one] for one in inputs if one in self.batch_of}
        batch = batches.pop() if len(batches) == 1 else use
        body = self.built.bodies[self.rank, action.method]
        if len(action.outputs) not in (len(body.outputs), 0) or (body.outputs and not action.outputs):
            raise ReadError(
                f"`{action.method}` returns {len(body.outputs)} values and {len(action.outputs)} are taken", action.source
            )
        if name not in self.built.segments:
            self._segment(name, action, method, body, inputs)
        kept = self._kept(action, body)
        outputs = tuple(one for one, keep in zip(action.outputs, kept, strict=False) if keep)
        for inner, outer in zip(body.outputs, action.outputs, strict=False):
            if inner in self.built.kinds and inner not in self.built.disputed:
                self.built.declare(outer, self.built.kinds[inner], self._role(outer))
        self._write(action.outputs, batch)
        handed = dict(zip(body.inputs, inputs, strict=True))
        self.built.objects.update(
            outer for inner, outer in zip(body.outputs, action.outputs, strict=False) if handed.get(inner) in self.built.objects
        )
        if action.forward:
            self.runs.append((action, batch))
        self._step(Step(name, batch, self._tensors(inputs), outputs, action.source))

    def _tensors(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.built.objects)

    def _role(self, name: str) -> Role:
        return Role.GRADIENT if name in self.gradients else Role.ACTIVATION

    def _kept(self, action: Execute, body: Body) -> list[bool]:
        """Which returned values are made by the body; the others are its inputs, handed through."""
        made = {name for entry in body.operators for name in _made(entry.operator)}
        return [name in made or name not in body.inputs for name in body.outputs]

    def _segment(self, name: str, action: Execute, method: Method, body: Body, outer: tuple[str, ...]) -> None:
        built = self.built
        for position, inner in enumerate(body.outputs):
            if inner in body.inputs and inner not in {one for entry in body.operators for one in _made(entry.operator)}:
                given = outer[body.inputs.index(inner)]
                if given not in built.objects and position < len(action.outputs) and action.outputs[position] != given:
                    fresh = f"{inner}.out"
                    identity = Compute(IDENTITY, (inner,), (fresh,), source=method.returned_at)
                    body.operators.append(Gradual(identity))
                    body.outputs = (*body.outputs[:position], fresh, *body.outputs[position + 1 :])
        role = Role.GRADIENT if {*action.inputs, *action.outputs} & self.gradients else Role.ACTIVATION
        known: dict[str, Kind] = {name: (tensor.shape, tensor.dtype) for name, tensor in built.weights.items()}
        for inner, given in zip(body.inputs, outer, strict=True):
            if given in built.kinds:
                known[inner] = built.kinds[given]
                built.declare(inner, known[inner], built.roles.get(given, role))
        for entry in body.operators:
            self._derive(entry.operator, known, body, role)
            if isinstance(entry.operator, Communicate) and entry.operator.kind is not Collective.BROADCAST:
                built.groups[self.rank].add(entry.operator.group.ranks)
            if isinstance(entry.reverse, Communicate):
                built.groups[self.rank].add(entry.reverse.group.ranks)
        if action.forward:
            built.forward_cells[self.rank].append(action.method)
        phase = Phase.BACKWARD if role is Role.GRADIENT else Phase.FORWARD
        kept = self._kept(action, body)
        leaving = tuple(one for one, keep in zip(body.outputs, kept, strict=True) if keep)
        operators = tuple(entry.operator for entry in body.operators)
        taken = tuple(compress(body.inputs, (given not in built.objects for given in outer)))
        built.segments[name] = Segment(name, phase, taken, leaving, operators, checkpointed=method.checkpointed)
        self.first_use[name] = action

    def _derive(self, operator: Operator, known: dict[str, Kind], body: Body, role: Role) -> None:
        try:
            found = results(operator, known, self.built.scalar)
        except Contradiction as error:
            if error.certain and operator.source is not None:
                self.built.contradictions.append((str(error), operator.source, self.rank))
            return
        for name in _made(operator):
            kind = found.get(name, body.stated.get(name))
            if kind is not None:
                known[name] = kind
                self.built.declare(name, kind, role)

    def _backward(self, action: RunBackward) -> None:
        built = self.built
        made = self._read(action.outputs, action.source)
        given = self._read(action.inputs, action.source)
        gradients = self._read(action.gradients, action.source)
        run = next(((run, batch) for run, batch in reversed(self.runs) if self._fits(run, action.segment, made)), None)
        if run is None:
            raise ReadError(f"`backward` of `{action.segment}` names results that no run of it made", action.source)
        forward, batch = run
        body = built.bodies[self.rank, action.segment]
        mirror = cell_name(self.rank, action.segment)
        outer_inputs = tuple(self._known(one) for one in forward.inputs)
        if any(one not in outer_inputs for one in given):
            raise ReadError(f"`backward` of `{action.segment}` names inputs that its run did not have", action.source)
        leaves = tuple(body.inputs[outer_inputs.index(one)] for one in given)
        results = tuple(body.outputs[forward.outputs.index(one)] for one in made)
        taken = tuple(gradient(one) for one, outer in zip(results, gradients, strict=True) if outer)
        if len(action.results) not in (len(leaves), 0):
            raise ReadError(f"`backward` of {len(leaves)} inputs gives {len(action.results)} gradients", action.source)
        leaving = tuple(gradient(one) for one in leaves) if action.results else ()
        name = self._backward_segment(mirror, body, leaves, results, taken, leaving)
        outer_taken = tuple(outer for outer in gradients if outer)
        for one, outer in zip(made, gradients, strict=True):
            if outer:
                self._link(outer, one)
        for one, outer in zip(given, action.results, strict=False):
            self._link(outer, one)
            if one in built.kinds:
                built.declare(outer, built.kinds[one], Role.GRADIENT)
        self._write(action.results, batch)
        self._step(Step(name, batch, outer_taken, action.results if leaving else (), action.source))
        self._fire(action, name)

    def _fits(self, run: Execute, segment: str, made: tuple[str, ...]) -> bool:
        return run.method == segment and set(made) <= set(run.outputs)

    def _link(self, outer: str, of: str) -> None:
        self.built.links.setdefault(outer, of)

    def _backward_segment(
        self,
        mirror: str,
        body: Body,
        leaves: tuple[str, ...],
        results: tuple[str, ...],
        taken: tuple[str, ...],
        leaving: tuple[str, ...],
    ) -> str:
        """The backward of a segment; uses that ask for other gradients are segments of their own."""
        built = self.built
        name, count = f"{mirror} backward", 1
        while name in built.segments:
            known = built.segments[name]
            if (known.inputs, known.outputs) == (taken, leaving):
                return name
            count += 1
            name = f"{mirror} backward {count}"
        weights = [one for one, tensor in built.weights.items() if tensor.role is Role.WEIGHT and one in self.file.parameters]
        known_kinds: dict[str, Kind] = {one: (tensor.shape, tensor.dtype) for one, tensor in built.weights.items()}
        known_kinds.update(built.kinds)

        def constant(operator: Compute) -> frozenset[int]:
            bound = bound_of(operator, known_kinds, built.scalar)
            return bound.zero_gradient | bound.shape_only if bound is not None else frozenset()

        operators = differentiated(body.operators, (*leaves, *weights), results, constant)
        for entry in body.operators:
            for one in (*_made(entry.operator), *body.inputs):
                if one not in built.own_gradient and one in built.kinds:
                    built.own_gradient[one] = gradient(one)
                    built.links[gradient(one)] = one
        built.segments[name] = Segment(name, Phase.BACKWARD, taken, leaving, operators, mirror=mirror)
        return name

    def _reduce(self, method: Method, source: Location) -> None:
        reducer = self.file.reducers.get(method.reduces)
        if reducer is None:
            raise ReadError(f"`{method.name}` runs `{method.reduces}`, which is no reducer", method.source)
        if not reducer.asynchronous:
            self._reduced(reducer, cell_name(self.rank, method.name), source)

    def _reduced(self, reducer: Reducer, name: str, source: Location) -> None:
        if not reducer.registered:
            return
        base, replicated, _ = self.built.replica.base(reducer.ranks)
        if name not in self.built.segments:
            operator = ReduceGradients(
                reducer.weights,
                Group(ranks=base or reducer.ranks),
                {"mean": "avg"}.get(reducer.reduce, reducer.reduce),
                divisor=0,
                replicated=replicated,
                scatter=reducer.zero,
                source=reducer.source,
            )
            self.built.segments[name] = Segment(name, Phase.REDUCE, (), (), (operator,))
            self.built.groups[self.rank].add(base)
        self._step(Step(name, inputs=None, outputs=(), source=source))

    def _fire(self, action: RunBackward, segment: str) -> None:
        """An asynchronous reducer starts when the gradients of all its weights came with reduction switched on."""
        if action.skips_reducer:
            return
        made = {
            name.removeprefix("g.")
            for operator in self.built.segments[segment].operators
            for name in _made(operator)
            if name.removeprefix("g.") in self.file.parameters
        }
        for reducer in self.file.reducers.values():
            if not reducer.asynchronous:
                continue
            ready = self.ready.setdefault(reducer.name, set())
            ready |= made & set(reducer.weights)
            if reducer.weights and ready == set(reducer.weights):
                ready.clear()
                self._reduced(reducer, cell_name(self.rank, reducer.name), action.source)


def _gradient_names(file: RankFile) -> set[str]:
    """The names in the schedule that are gradients: those that `backward` takes or gives, and what adapters make of them."""
    found: set[str] = set()
    for action in file.actions:
        if isinstance(action, RunBackward):
            found.update(name for name in (*action.gradients, *action.results) if name)
    for action in (*file.actions, *reversed(file.actions)):
        if isinstance(action, Execute) and not action.forward and found & {*action.inputs, *action.outputs}:
            found.update(action.inputs)
            found.update(action.outputs)
    return found


def _made(operator: Operator) -> tuple[str, ...]:
    if isinstance(operator, Receive):
        return (operator.tensor,)
    if isinstance(operator, (Send, ReduceGradients)):
        return ()
    return tuple(name for name in getattr(operator, "outputs", ()) if name)
