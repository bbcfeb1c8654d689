"""Lower the execution plan of every device: its cells to segments, their uses to steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Group, Operator, Receive, ReduceGradients
from tvlint.ir.plan import Phase, Program, Role, Segment, Step
from tvlint.plurals import counted
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.pickle.adapters import Scope, cuts_gradients, lower_adapter
from tvlint.readers.nnscaler.pickle.operators import Operators
from tvlint.readers.nnscaler.pickle.records import (
    Malformed,
    Sources,
    Work,
    described,
    fields,
    integer,
    integers,
    kind,
    required,
    sequence,
)
from tvlint.readers.nnscaler.pickle.tensors import Tensors

DATA_LOADER = "dataloader"

_CONTAINERS = ("IRSegment", "IRGraph")


@dataclass(slots=True)
class Schedule:
    """The segments and programs of all plan devices."""

    path: str
    replicas: int
    tensors: Tensors
    segments: dict[str, Segment] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    forward_cells: dict[int, list[int]] = field(default_factory=dict)
    """The ids of the forward segments that each device runs, in order of first use."""
    groups: dict[int, set[tuple[int, ...]]] = field(default_factory=dict)
    """The ranks of the collectives (broadcasts left out) and reducers that each device runs."""
    micro_batches: int = 1


def schedule(path: str, sequences: dict[int, list[Any]], replicas: int, work: Work) -> Schedule:
    """Return the programs of the devices, given what each runs. Raises `ReadError` at a malformed place of the plan."""
    built = Schedule(path, replicas, Tensors(work))
    operators = Operators(built.tensors, Sources(path))
    for device in sorted(sequences):
        operators.begin_device()
        _Device(built, device, operators).run(sequences[device])
    return built


class _Device:
    def __init__(self, built: Schedule, device: int, operators: Operators) -> None:
        self.built = built
        self.tensors = built.tensors
        self.device = device
        self.operators = operators
        self.counts: dict[str, int] = {}
        self.uses: dict[str, int] = {}
        self.cells: dict[str, Any] = {}
        self.kept: dict[str, list[bool]] = {}
        self.place = f"device {device}"

    def run(self, cells: list[Any]) -> None:
        """Lower the device's sequence of cells."""
        self.built.forward_cells[self.device] = []
        self.groups: set[tuple[int, ...]] = set()
        self.built.groups[self.device] = self.groups
        steps = []
        for index, cell in enumerate(cells):
            self.place = f"device {self.device}/step {index}"
            try:
                steps.append(self._step(cell))
            except Malformed as error:
                raise ReadError(str(error), Location(self.built.path, pointer=self.place)) from None
        self.built.programs.append(Program((self.device,), tuple(steps)))

    def _step(self, use: Any) -> Step:
        self.tensors.work.spend(1)
        cell = required(fields(use, "a step"), "_cell", "a step") if kind(use) == "ExeReuseCell" else use
        attributes = fields(cell, "a cell")
        number = integer(attributes.get("_id"), "the id of a cell")
        word = _word(cell)
        name = f"device {self.device}/{word} {number}"
        if name not in self.cells:
            self.place = name
            self.cells[name] = cell
            self.built.segments[name] = self._segment(name, cell, attributes)
        elif self.cells[name] is not cell:
            raise Malformed(f"two cells have the id {number}")
        segment = self.built.segments[name]
        if segment.phase is Phase.REDUCE:
            return Step(name, outputs=(), inputs=None)
        micro_batch = self.uses.get(name, 0)
        self.uses[name] = micro_batch + 1
        self.built.micro_batches = max(self.built.micro_batches, micro_batch + 1)
        if use is cell:
            return Step(name, micro_batch)
        record = fields(use, "a step")
        if kind(cell) in _CONTAINERS and segment.phase is Phase.FORWARD and attributes.get("_mirror") is not None:
            _is_recorded(record)
        role = Role.INPUT if segment.phase is Phase.DATA else Role.ACTIVATION
        inputs = () if segment.phase is Phase.DATA else self._names(record, "_inputs", role)
        outputs = self._names(record, "_outputs", role)
        kept = self.kept[name]
        if len(inputs) != len(segment.inputs) or len(outputs) != len(kept):
            used = f"{counted(len(inputs), 'input')} and {counted(len(outputs), 'output')}"
            raise Malformed(f"a use of `{name}` has {used}, the cell another number")
        return Step(name, micro_batch, inputs, tuple([out for out, keep in zip(outputs, kept, strict=True) if keep]))

    def _names(self, record: dict[str, Any], which: str, role: Role = Role.ACTIVATION) -> tuple[str, ...]:
        return tuple(self.tensors.names(required(record, which, "a cell"), f"the {which[1:]} of a cell", role))

    def _segment(self, name: str, cell: Any, attributes: dict[str, Any]) -> Segment:
        which = kind(cell)
        if which in _CONTAINERS:
            return self._body(name, attributes)
        if which == "IRDataOperation":
            outputs = self._names(attributes, "_outputs", Role.INPUT)
            self.kept[name] = [True] * len(outputs)
            source = Location(self.built.path, pointer=name)
            loader = Compute(DATA_LOADER, (), outputs, source=source, label=f"cell {attributes['_id']}")
            return Segment(name, Phase.DATA, (), outputs, (loader,))
        if which == "IRWeightReducer":
            return self._reducer(name, attributes)
        if which == "IRAdapter":
            return self._adapter(name, cell, attributes)
        return self._alone(name, cell, attributes)

    def _reducer(self, name: str, attributes: dict[str, Any]) -> Segment:
        weights = self._names(attributes, "_inputs")
        ranks = integers(attributes.get("_device"), "the ranks of a reducer")
        self.groups.add(ranks)
        reducer = ReduceGradients(
            weights,
            Group(ranks=ranks),
            divisor=0,
            replicated=self.built.replicas > 1,
            source=Location(self.built.path, pointer=name),
            label=f"cell {attributes['_id']}",
        )
        return Segment(name, Phase.REDUCE, (), (), (reducer,))

    def _adapter(self, name: str, cell: Any, attributes: dict[str, Any]) -> Segment:
        scope = Scope(self.tensors, self.counts)
        inputs = self._names(attributes, "_inputs")
        operators = lower_adapter(cell, self.device, scope, Location(self.built.path, pointer=name))
        phase = Phase.BACKWARD if attributes.get("_forward") is False else Phase.FORWARD
        return self._finished(name, phase, inputs, attributes, operators, scope)

    def _alone(self, name: str, cell: Any, attributes: dict[str, Any]) -> Segment:
        """Return an operator that is scheduled by itself."""
        scope = Scope(self.tensors, self.counts)
        inputs = self._names(attributes, "_inputs")
        backward = kind(cell) == "IRBpOperation"
        operators = self._operators(cell, scope, lambda: name)
        phase = Phase.BACKWARD if backward else Phase.FORWARD
        return self._finished(name, phase, inputs, attributes, operators, scope)

    def _body(self, name: str, attributes: dict[str, Any]) -> Segment:
        scope = Scope(self.tensors, self.counts)
        inputs = self._names(attributes, "_inputs")
        operators: list[Operator] = []
        backward = checkpointed = False
        for index, node in enumerate(sequence(attributes.get("_nodes"), "the operators of a segment")):
            try:
                operators.extend(self._operators(node, scope, lambda index=index: f"{name}/operator {index}"))  # type: ignore[misc]
            except Malformed as error:
                place = Location(self.built.path, pointer=f"{name}/operator {index}")
                raise ReadError(str(error), place) from None
            backward = backward or kind(node) == "IRBpOperation"
            checkpointed = checkpointed or node.__dict__.get("_recompute") is not None
        phase = Phase.BACKWARD if backward else Phase.FORWARD
        if backward:
            _runs_back_what_it_mirrors(attributes, self.tensors)
        elif attributes.get("_mirror") is not None:
            _is_recorded(attributes)
        if not backward:
            self.built.forward_cells[self.device].append(attributes["_id"])
        return replace(self._finished(name, phase, inputs, attributes, operators, scope), checkpointed=checkpointed)

    def _operators(self, node: Any, scope: Scope, pointer: Callable[[], str]) -> list[Operator]:
        which = kind(node)
        if which == "IRBpOperation":
            return [self.operators.backward(node, scope, pointer)]
        if which == "IRAdapter":
            return lower_adapter(node, self.device, scope, Location(self.built.path, pointer=pointer()))
        if "signature" in fields(node, "an operator") and which not in (*_CONTAINERS, "IRDataOperation", "IRWeightReducer"):
            return [self.operators.forward(node, scope, pointer)]
        raise Malformed(f"an operator is {described(node)}")

    def _finished(
        self,
        name: str,
        phase: Phase,
        inputs: tuple[str, ...],
        attributes: dict[str, Any],
        operators: list[Operator],
        scope: Scope,
    ) -> Segment:
        outputs = self._names(attributes, "_outputs")
        for operator in operators:
            if isinstance(operator, Communicate) and operator.kind is not Collective.BROADCAST:
                self.groups.add(operator.group.ranks)
        made = {made for operator in operators for made in _made(operator)}
        kept = [scope.of(out) in made or out not in inputs for out in outputs]
        self.kept[name] = kept
        leaving = tuple([scope.of(out) for out, keep in zip(outputs, kept, strict=True) if keep])
        return Segment(name, phase, inputs, leaving, tuple(operators), mirror=self._mirror(attributes))

    def _mirror(self, attributes: dict[str, Any]) -> str:
        mirror = attributes.get("_mirror")
        if mirror is None:
            return ""
        number = integer(fields(mirror, "the mirror of a cell").get("_id"), "the id of a cell")
        return f"device {self.device}/{_word(mirror)} {number}"


def _made(operator: Operator) -> tuple[str, ...]:
    if isinstance(operator, Receive):
        return (operator.tensor,)
    if isinstance(operator, (Compute, Backward, Communicate)):
        return operator.outputs
    return ()


def _word(cell: object) -> str:
    words = {
        "IRSegment": "segment",
        "IRGraph": "segment",
        "IRAdapter": "adapter",
        "IRDataOperation": "data",
        "IRWeightReducer": "reducer",
    }
    return words.get(kind(cell), "operator")


def _is_recorded(attributes: dict[str, Any]) -> None:
    """Raise `Malformed` where no result of a segment needs a gradient: generated code runs it without autograd then."""
    outputs = sequence(attributes.get("_outputs"), "the outputs of a segment")
    given = [one.__dict__ for one in outputs if kind(one) == "IRSubTensor"]
    if given and not any(one.get("_requires_grad") is True for one in given):
        raise Malformed("no result of a segment that runs backward requires a gradient")


def _runs_back_what_it_mirrors(attributes: dict[str, Any], tensors: Tensors) -> None:
    """Raise `Malformed` where autograd does not make the gradients that a segment is to make.

    Autograd runs the mirrored segment backward: its operators and adapters, and nothing past an adapter that it does not
    record, so that no gradient of what goes into such an adapter may be used.
    """
    mirror = attributes.get("_mirror")
    if not kind(mirror):
        raise Malformed("a segment runs backward and mirrors no segment")
    nodes = sequence(attributes.get("_nodes"), "the operators of a segment")
    forward = sequence(mirror.__dict__.get("_nodes"), "the operators of a segment")
    known = {id(node) for node in forward}
    for node in nodes:
        if kind(node) == "IRBpOperation" and id(node.__dict__.get("_mirror")) not in known:
            raise Malformed("a segment runs an operator backward that is not in the segment that it mirrors")
        if kind(node) == "IRAdapter" and id(node.__dict__.get("_mirror")) not in known:
            raise Malformed("a segment exchanges gradients as no adapter does that is in the segment that it mirrors")
    cut = [node for node in forward if kind(node) == "IRAdapter" and cuts_gradients(node)]
    if not cut:
        return
    read = set(tensors.names(attributes.get("_outputs") or (), "the outputs of a segment"))
    for node in nodes:
        read.update(tensors.names(node.__dict__.get("_inputs") or (), "the inputs of an operator"))
    for node in cut:
        inputs = sequence(node.__dict__.get("_inputs"), "the inputs of an adapter")
        for name, gradient in tensors.gradients(inputs).items():
            if gradient in read:
                raise Malformed(f"the gradient `{gradient}` of `{name}` is used, and an adapter of it is not differentiable")
