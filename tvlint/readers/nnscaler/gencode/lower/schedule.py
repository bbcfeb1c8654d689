"""One rank's schedule, step by step: what it loads, which segments it runs on what, and which reducers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

from tvlint.ir.location import Location
from tvlint.ir.operators import NOT_UNDERSTOOD, Collective, Communicate, Compute, Group, Operator, ReduceGradients
from tvlint.ir.plan import Phase, Role, Segment, Step
from tvlint.ir.reductions import reduction_named
from tvlint.plurals import counted
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.lower.batch_dependent_sizes import as_expansion, makers, widened, widened_in_place
from tvlint.readers.nnscaler.gencode.lower.operators import IDENTITY, Body, Gradual
from tvlint.readers.nnscaler.gencode.lower.parts import Parts
from tvlint.readers.nnscaler.gencode.lower.replica import Built, made_by
from tvlint.readers.nnscaler.gencode.lower.shapes import Contradiction, Kind, in_its_dimensions, results
from tvlint.readers.nnscaler.gencode.syntax.names import cell_name
from tvlint.readers.nnscaler.gencode.syntax.records import Execute, Load, Method, Opaque, RankFile, Reducer, RunBackward

DATA_LOADER = "dataloader"


class Steps:
    """The steps of one rank, in order; what runs backward is added by the class below."""

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
        self.backwards: dict[str, list[tuple[int, RunBackward]]] = {}
        self.gradients = _gradient_names(file)
        self.started: set[str] = set()
        self.early: dict[str, Location] = {}
        self.untracked: dict[str, Location] = {}
        self.ready: dict[str, set[str]] = {}
        self.loaded: set[str] = set()

    def known(self, name: str) -> str:
        return self.alias.get(name, name)

    def read(self, names: Sequence[str], source: Location) -> tuple[str, ...]:
        for name in names:
            if name and name not in self.live:
                self.built.unbound.append((name, source, self.rank))
        return tuple(self.known(name) for name in names)

    def write(self, names: Sequence[str], batch: int) -> None:
        for name in names:
            self.alias.pop(name, None)
            self.untracked.pop(name, None)
            self.loaded.discard(name)
            self.live.add(name)
            self.batch_of[name] = batch

    def count(self, segment: str) -> int:
        use = self.uses.get(segment, 0)
        self.uses[segment] = use + 1
        return use

    def step(self, step: Step) -> None:
        self.steps.append(step)
        self.built.micro_batches = max(self.built.micro_batches, step.micro_batch + 1)

    def load(self, action: Load) -> None:
        name = f"device {self.rank}/data {action.loader}"
        inner = tuple(self.bases[action.loader, position] for position in range(len(action.outputs)))
        for position, (base, each_name) in enumerate(zip(inner, action.outputs, strict=True)):
            kind = self.built.inputs.get((action.loader, position))
            if kind is None and action.fields and action.fields[position][1]:
                self.built.objects.add(each_name)
            for one in (base, each_name):
                self.built.logical[one] = base
                if kind is not None:
                    self.built.declare(one, kind, Role.INPUT)
        tensors = [name not in self.built.objects for name in action.outputs]
        given = tuple(compress(inner, tensors))
        if name not in self.built.segments:
            loader = Compute(DATA_LOADER, (), given, source=action.source)
            self.built.segments[name] = Segment(name, Phase.DATA, (), given, (loader,))
        batch = self.count(name)
        self.write(action.outputs, batch)
        self.loaded.update(action.outputs)
        self.step(Step(name, batch, (), tuple(compress(action.outputs, tensors)), action.source))

    def execute(self, action: Execute) -> None:
        method = self.file.methods[action.method]
        if method.reduces:
            if action.skipped_at is None:
                self._reduce(method, action.source)
            return
        name = cell_name(self.rank, action.method)
        inputs = self.read(action.inputs, action.source)
        use = self.count(name)
        batches = {self.batch_of[one] for one in inputs if one in self.batch_of}
        batch = batches.pop() if len(batches) == 1 else use
        body = self.built.bodies[self.rank, action.method]
        if len(action.outputs) not in (len(body.outputs), 0) or (body.outputs and not action.outputs):
            raise ReadError(
                f"`{action.method}` returns {counted(len(body.outputs), 'value')} and {len(action.outputs)} are taken",
                action.source,
            )
        if name not in self.built.segments:
            self._segment(name, action, method, body, inputs)
        kept = self._kept(body)
        outputs = tuple(one for one, keep in zip(action.outputs, kept, strict=False) if keep)
        for inner, outer in zip(body.outputs, action.outputs, strict=False):
            if inner in self.built.kinds and inner not in self.built.disputed:
                self.built.declare(outer, self.built.kinds[inner], self._role(outer))
        self.write(action.outputs, batch)
        self.untracked.update(dict.fromkeys(action.outputs, action.source) if not action.tracked else {})
        handed = dict(zip(body.inputs, inputs, strict=True))
        self.built.objects.update(
            outer for inner, outer in zip(body.outputs, action.outputs, strict=False) if handed.get(inner) in self.built.objects
        )
        if action.forward:
            self.runs.append((action, batch))
        self.step(Step(name, batch, self._tensors(inputs), outputs, action.source))

    def opaque(self, action: Opaque) -> None:
        """Add a step of its own for a statement that is not understood."""
        name = f"device {self.rank}/statement {action.source.line}"
        taken = tuple(dict.fromkeys(self.known(one) for one in action.inputs if one in self.live))
        why = {NOT_UNDERSTOOD: action.why}
        operators = [Compute(action.op, (), (), why, source=action.source)]
        if action.outputs:
            operators.append(Compute(action.op, taken, action.outputs, why, source=action.source))
        self.built.segments[name] = Segment(name, Phase.FORWARD, taken, action.outputs, tuple(operators))
        self.write(action.outputs, 0)
        self.step(Step(name, source=action.source))

    def _tensors(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.built.objects)

    def _role(self, name: str) -> Role:
        return Role.GRADIENT if name in self.gradients else Role.ACTIVATION

    def _kept(self, body: Body) -> list[bool]:
        """Return which returned values are made by the body; the others are its inputs, handed through."""
        made = {name for entry in body.operators for name in made_by(entry.operator)}
        return [name in made or name not in body.inputs for name in body.outputs]

    def _segment(self, name: str, action: Execute, method: Method, body: Body, outer: tuple[str, ...]) -> None:
        built = self.built
        for position, inner in enumerate(body.outputs):
            if inner in body.inputs and inner not in {one for entry in body.operators for one in made_by(entry.operator)}:
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
                if built.roles.get(given) is Role.INPUT and inner != given:
                    built.logical.setdefault(inner, built.logical.get(given, given))
        plain, body.operators = body.operators, []
        parts = Parts(built.scalar)
        for given_entry in plain:
            for operator in in_its_dimensions(as_expansion(parts.named(given_entry.operator, known), known), known):
                entry = replace(given_entry, operator=operator)
                body.operators.append(entry)
                self._derive(operator, known, body, role)
                if isinstance(operator, Communicate) and operator.kind is not Collective.BROADCAST:
                    built.groups[self.rank].add(operator.group.ranks)
                if isinstance(entry.reverse, Communicate):
                    built.groups[self.rank].add(entry.reverse.group.ranks)
        self._widen(body, known, role)
        if action.forward:
            built.forward_cells[self.rank].append(action.method)
        phase = Phase.BACKWARD if role is Role.GRADIENT else Phase.FORWARD
        kept = self._kept(body)
        leaving = tuple(one for one, keep in zip(body.outputs, kept, strict=True) if keep)
        operators = tuple(entry.operator for entry in body.operators)
        taken = tuple(compress(body.inputs, (given not in built.objects for given in outer)))
        built.segments[name] = Segment(name, phase, taken, leaving, operators, checkpointed=method.checkpointed)
        self.first_use[name] = action

    def _widen(self, body: Body, known: dict[str, Kind], role: Role) -> None:
        """Let expansions take their sizes from what their results are combined with."""
        for position, wide_one in list(
            widened_in_place([entry.operator for entry in body.operators], known, self.built.scalar)
        ):
            body.operators[position] = replace(body.operators[position], operator=wide_one)
        made = makers(
            (entry.operator, entry.differentiable and entry.reverse is None and entry.function is None)
            for entry in body.operators
            if isinstance(entry.operator, Compute)
        )
        for position, entry in reversed(list(enumerate(body.operators)) if made else []):
            if isinstance(entry.operator, Compute):
                *wide, this_operator = widened(entry.operator, made, known, self.built.scalar)
                for operator in wide:
                    self._derive(operator, known, body, role)
                body.operators[position : position + 1] = [*map(Gradual, wide), replace(entry, operator=this_operator)]

    def _derive(self, operator: Operator, known: dict[str, Kind], body: Body, role: Role) -> None:
        try:
            found = results(operator, known, self.built.scalar)
        except Contradiction as error:
            if error.certain and operator.source is not None:
                self.built.contradictions.append((str(error), operator.source, self.rank, _makers(operator, body)))
            return
        for name in made_by(operator):
            kind = found.get(name, body.stated.get(name))
            if kind is not None:
                known[name] = kind
                self.built.declare(name, kind, role)

    def _reduce(self, method: Method, source: Location) -> None:
        reducer = self.file.reducers.get(method.reduces)
        if reducer is None:
            raise ReadError(f"`{method.name}` runs `{method.reduces}`, which is no reducer", method.source)
        if not reducer.asynchronous:
            self.reduced(reducer, cell_name(self.rank, method.name), source)
        elif reducer.name not in self.started:
            self.early[reducer.name] = source

    def reduced(self, reducer: Reducer, name: str, source: Location) -> None:
        if not reducer.registered:
            return
        base, replicated, _ = self.built.replica.base(reducer.ranks)
        if name not in self.built.segments:
            operator = ReduceGradients(
                reducer.weights,
                Group(ranks=base or reducer.ranks),
                reduction_named(reducer.reduce),
                divisor=0,
                replicated=replicated,
                scatter=reducer.zero,
                source=reducer.source,
            )
            self.built.segments[name] = Segment(name, Phase.REDUCE, (), (), (operator,))
            self.built.groups[self.rank].add(base)
        self.step(Step(name, inputs=None, outputs=(), source=source))


def _makers(operator: Operator, body: Body) -> tuple[tuple[str, Location], ...]:
    """Return where the operands of an operator were made in its body."""
    operands = {name for name in getattr(operator, "inputs", ()) if isinstance(name, str)}
    return tuple(
        (name, entry.operator.source)
        for entry in body.operators
        for name in made_by(entry.operator)
        if name in operands and entry.operator.source is not None
    )


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
