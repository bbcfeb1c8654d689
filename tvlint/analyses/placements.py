"""Abstract interpretation of a plan that speaks in mesh axes: how every local tensor lies on every axis.

Trusted are the declared placements of weights, buffers, inputs and states. Everything else is derived by the operators'
annotations; an operator that the table does not know gives an unknown placement, on which no rule speaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tvlint.analyses.calls import Call as CommunicationCall
from tvlint.analyses.facts import Facts
from tvlint.analyses.local_shapes import whole_shape
from tvlint.analyses.placed import AtRoot, Defect, On, Placed, Where, is_whole, same, words
from tvlint.analyses.placed_communicate import after, faulty_splits
from tvlint.analyses.placed_compute import Form, Wrong, forms, gradient_form, on_axis
from tvlint.analyses.placed_opaque import over_shards
from tvlint.analyses.placed_reshape import reshaped
from tvlint.ir.placement import Partial, Replicate, Shard
from tvlint.ir.plan import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
    Program,
    Receive,
    ReduceGradients,
    Role,
    Segment,
    Send,
    Step,
    Update,
)
from tvlint.ops.nonlinear import never_linear
from tvlint.ops.spec import Bound, Call, Family, OpSpec, UnsupportedError
from tvlint.ops.table import spec_of

_TRUSTED = (Role.WEIGHT, Role.BUFFER, Role.INPUT, Role.STATE)
_DATA_AXES = frozenset({"dp", "cp", "fsdp", "ddp", "data", "dp_replicate", "dp_shard"})
_REDUCES = frozenset({"allreduce-of-shards", "doubled-allreduce", "reduce-scatter-of-replicated"})
_UNKNOWN = Placed({})


def defects(facts: Facts) -> tuple[Defect, ...]:
    """What is wrong with the placements of the plan; computed once."""
    return facts.derived("placement defects", lambda: _defects(facts))


def _defects(facts: Facts) -> tuple[Defect, ...]:
    if not any(tensor.placements is not None for tensor in facts.plan.tensors.values()):
        return ()
    sent: dict[tuple[str, int], Placed] = {}
    found: dict[tuple[str, Where, str], Defect] = {}
    for _ in range(min(len(facts.plan.programs), 64) + 1):
        before = len(sent)
        found = {}
        for program in facts.plan.programs:
            walk = _Walk(facts, program, sent)
            walk.run()
            for defect in walk.found:
                found.setdefault((defect.rule, defect.where, defect.axis), defect)
        if len(sent) == before:
            break
    return tuple(found.values())


class _Walk:
    """One program, its first run of every segment."""

    def __init__(self, facts: Facts, program: Program, sent: dict[tuple[str, int], Placed]) -> None:
        self.facts = facts
        self.plan = facts.plan
        self.program = program
        self.rank = min(program.ranks, default=0)
        self.axes = _common_axes(facts, program)
        self.sent = sent
        self.found: list[Defect] = []
        self.values: dict[str, Placed] = {}
        self.producer: dict[str, Where] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.where: Where = ("", 0)
        self.gradients = {tensor.gradient: name for name, tensor in self.plan.tensors.items() if tensor.gradient}
        self.gradients |= {name: tensor.gradient_of for name, tensor in self.plan.tensors.items() if tensor.gradient_of}
        self.communicated: set[str] = set()
        self.reduced = self._reduced_weights()

    def run(self) -> None:
        done: set[str] = set()
        for step in self.program.steps:
            segment = self.plan.segments.get(step.segment)
            if segment is None or step.segment in done:
                continue
            done.add(step.segment)
            self._segment(step, segment)
        self._outputs()

    def _reduced_weights(self) -> set[tuple[str, str]]:
        """The weights that the program reduces somewhere, with the axes; their order is for other rules."""
        found: set[tuple[str, str]] = set()
        for name in {step.segment for step in self.program.steps if step.segment in self.plan.segments}:
            for operator in self.plan.segments[name].operators:
                if isinstance(operator, ReduceGradients):
                    axes = self._axes_of(operator.group) or self.axes
                    found.update((weight, axis) for weight in operator.weights for axis in axes)
        return found

    def _segment(self, step: Step, segment: Segment) -> None:
        for inner, outer in zip(segment.inputs, step.inputs or segment.inputs, strict=False):
            if inner != outer and outer in self.values:
                self.values[inner] = self.values[outer]
        for index, operator in enumerate(segment.operators):
            self.where = (segment.name, index)
            if isinstance(operator, Compute):
                self._compute(operator)
            elif isinstance(operator, Backward):
                self._backward(operator)
            elif isinstance(operator, Communicate):
                self._communicate(operator)
            elif isinstance(operator, Send):
                self._send(operator)
            elif isinstance(operator, Receive):
                self._receive(operator)
            elif isinstance(operator, ReduceGradients):
                self._reduce(operator)
            elif isinstance(operator, Update):
                self._update(operator)
        for inner, outer in zip(segment.outputs, step.outputs or segment.outputs, strict=False):
            if inner != outer and inner in self.values:
                self.values[outer] = self.values[inner]

    def _value(self, name: str) -> Placed:
        if name in self.values:
            return self.values[name]
        tensor = self.plan.tensors.get(name)
        if tensor is None or tensor.placements is None or tensor.role not in _TRUSTED:
            return _UNKNOWN
        given = tensor.placements
        self.values[name] = Placed({axis: given.get(axis, Replicate()) for axis in self.axes})
        return self.values[name]

    def _shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self.plan.tensors.get(name)
        return None if tensor is None else tensor.shape

    def _whole(self, name: str) -> tuple[int, ...] | None:
        shape, value = self._shape(name), self._value(name)
        if shape is None or any(value.on.get(axis) is None for axis in self.axes):
            return None
        placements = {axis: on for axis, on in value.on.items() if isinstance(on, Shard)}
        tensor = self.plan.tensors[name]
        if tensor.whole is not None and len(tensor.whole) == len(shape) and tensor.role in _TRUSTED:
            return tensor.whole
        return whole_shape(self.plan.mesh, shape, placements)

    def _say(self, rule: str, name: str, axis: str, operator: str = "", other: str = "") -> None:
        value = self._value(name)
        made = value.origin.get(axis) or self.producer.get(name)
        self.found.append(Defect(rule, self.where, name, axis, words(value.on.get(axis)), operator, other, made))

    def _store(self, name: str, on: dict[str, On], origin: dict[str, Where], accumulate: bool = False) -> None:
        value = Placed(on, origin)
        if accumulate and name in self.producer and name in self.values:
            value = _joined(self.values[name], value)
        self.values[name] = value
        self.producer[name] = self.where
        self._against_claim(name, value)

    def _against_claim(self, name: str, value: Placed) -> None:
        """Compares what the plan claims of a result with what was derived; where they differ, nothing is known from here on."""
        tensor = self.plan.tensors.get(name)
        if tensor is None or tensor.placements is None or tensor.role in _TRUSTED:
            return
        refuted = set()
        for axis in self.axes:
            claim, own = tensor.placements.get(axis, Replicate()), value.on.get(axis)
            if own is None or same(own, claim) or isinstance(own, AtRoot):
                continue
            if isinstance(own, Partial) and isinstance(claim, Partial):
                continue
            if isinstance(claim, Shard) and isinstance(own, Shard) and (claim.order or claim.parts or own.order or own.parts):
                continue
            if isinstance(own, Partial):
                self._say("missing-allreduce", name, axis, other="claim")
            else:
                self._say("wrong-placement-claim", name, axis, other=words(claim))
            refuted.add(axis)
        if refuted:
            self.values[name] = Placed({axis: on for axis, on in value.on.items() if axis not in refuted}, value.origin)

    def _bind(self, operator: Compute) -> tuple[OpSpec, Bound, list[str]] | None:
        spec = spec_of(operator.op)
        if spec is None:
            return None
        names = [name for name in operator.inputs if not isinstance(name, Literal)]
        for shape_of in (self._whole, self._shape):
            shapes = [operand if isinstance(operand, Literal) else shape_of(operand) for operand in operator.inputs]
            outputs = [self._shape(name) for name in operator.outputs]
            known = [shape for shape in shapes if shape is not None]
            if len(known) < len(shapes):
                continue
            try:
                bound = spec.bind(Call(operator.op, tuple(known), operator.attributes, tuple(o or () for o in outputs)))
            except (UnsupportedError, IndexError, ValueError, TypeError):
                continue
            if len(bound.operands) <= len(names):
                return spec, bound, names
        return None

    def _compute(self, operator: Compute) -> None:
        if operator.in_place or not operator.outputs:
            for position in operator.in_place:
                if 0 <= position < len(operator.inputs) and not isinstance(operator.inputs[position], Literal):
                    self.values[str(operator.inputs[position])] = _UNKNOWN
        if len(operator.inputs) == 3 and isinstance(operator.inputs[2], str) and _is_linear(operator):
            self._biased(operator, operator.inputs[2])
            return
        bound = self._bind(operator)
        if bound is None or self._over_shards(operator):
            self._unbound(operator)
            return
        spec, annotation, names = bound
        if spec.family is Family.RESHAPE:
            self._reshape(operator, names[0])
            return
        constant = any(isinstance(operand, Literal) for operand in operator.inputs)
        results = list(forms(annotation, constant))
        for position, name in enumerate(operator.outputs):
            if position < len(results):
                self._apply(results[position], names, name, spec.name)
            else:
                self._store(name, {}, {})

    def _biased(self, operator: Compute, bias: str) -> None:
        """A linear with a bias: the product, to which the bias is added on every rank."""
        self._compute(replace(operator, inputs=operator.inputs[:2]))
        for name in operator.outputs:
            value = self._value(name)
            on = dict(value.on)
            for axis in self.axes:
                if isinstance(on.get(axis), Partial) and is_whole(self._value(bias).on.get(axis)):
                    self._say("bias-added-to-partial", name, axis, "linear", bias)
                    on[axis] = None
            self.values[name] = Placed(on, value.origin)

    def _unbound(self, operator: Compute) -> None:
        """An operator without annotation: its results are unknown; it may still be known not to take partial values."""
        first = operator.inputs[0] if operator.inputs else None
        if never_linear(operator.op) and isinstance(first, str):
            for axis in self.axes:
                if isinstance(self._value(first).on.get(axis), Partial):
                    self._say("partial-through-nonlinear", first, axis, operator.op.rsplit(".", 1)[-1])
        for rule, name, axis in self._over_shards(operator):
            self._say(rule, name, axis, operator.op.rsplit(".", 1)[-1])
        for name in operator.outputs:
            self._store(name, {}, {})

    def _over_shards(self, operator: Compute) -> list[tuple[str, str, str]]:
        names = [name for name in operator.inputs if not isinstance(name, Literal)]
        ranks = [len(self._shape(name) or ()) for name in names]
        found = []
        for axis in self.axes:
            rule, at = over_shards(operator, [self._value(name).on.get(axis) for name in names], ranks)
            if rule:
                found.append((rule, names[at], axis))
        return found

    def _reshape(self, operator: Compute, source: str) -> None:
        value, before = self._value(source), self._shape(source)
        for name in operator.outputs:
            shape = self._shape(name)
            on = {axis: reshaped(value.on.get(axis), before, shape, self.plan.mesh.axis_size(axis)) for axis in self.axes}
            self._store(name, on, dict(value.origin))

    def _apply(self, form: Form, names: Sequence[str], output: str, operator: str, accumulate: bool = False) -> None:
        values = [self._value(name) if name else _UNKNOWN for name in names[: len(form.operands)]]
        on: dict[str, On] = {}
        origin: dict[str, Where] = {}
        for axis in self.axes:
            result = on_axis(form, [value.on.get(axis) for value in values])
            if isinstance(result, Wrong):
                self._wrong(result, names, axis, operator)
                continue
            on[axis] = result
            if isinstance(result, Partial):
                partial = [value for value in values if isinstance(value.on.get(axis), Partial)]
                known = [value.origin[axis] for value in partial if axis in value.origin]
                origin[axis] = known[0] if known else self.where
        self._store(output, on, origin, accumulate)

    def _wrong(self, wrong: Wrong, names: Sequence[str], axis: str, operator: str) -> None:
        name = names[wrong.operand]
        other = names[wrong.other] if wrong.other >= 0 else ""
        rule = wrong.rule
        if rule == "sum":
            tensor = self.plan.tensors.get(other)
            rule = "bias-added-to-partial" if tensor is not None and tensor.role is Role.WEIGHT else "missing-allreduce"
        if rule == "whole":
            families = {"softmax": "softmax-over-shards", "norm": "norm-over-shards", "entropy": "loss-over-shards"}
            rule = next((named for part, named in families.items() if part in operator), "")
            if not rule:
                return
        renamed = {
            "constant": "bias-added-to-partial",
            "nonlinear": "partial-through-nonlinear",
            "product": "partial-times-partial",
            "split": "missing-allreduce",
            "contraction": "contraction-of-mismatched-shards",
            "mismatched": "mismatched-shards",
        }
        self._say(renamed.get(rule, rule), name, axis, operator, other)

    def _backward(self, operator: Backward) -> None:
        found = self._bind(operator.forward)
        present = [at for at, name in enumerate(operator.inputs) if name]
        tensors = [name for name in operator.forward.inputs if not isinstance(name, Literal)]
        for position, gradient in enumerate(operator.outputs):
            if not gradient:
                continue
            if found is None or not present or position >= len(tensors):
                self._store(gradient, {}, {}, True)
                continue
            spec, bound, names = found
            given = [operator.inputs[at] for at in present]
            if spec.family is Family.RESHAPE:
                value = self._value(given[0])
                before, shape = self._shape(given[0]), self._shape(gradient) or self._shape(tensors[position])
                on = {axis: reshaped(value.on.get(axis), before, shape, self.plan.mesh.axis_size(axis)) for axis in self.axes}
                self._store(gradient, on, dict(value.origin), True)
                continue
            if position >= len(bound.operands) or max(present) >= len(bound.outputs):
                self._store(gradient, {}, {}, True)
                continue
            form = gradient_form(bound, position, present)
            self._apply(form, [*given, *names], gradient, f"backward {spec.name}", True)

    def _axes_of(self, group: Group) -> tuple[str, ...] | None:
        """The mesh axes that the group runs along; None when it is no product of axes."""
        group = self.facts.fold.declared(group)
        if group.axes or not group.ranks:
            return group.axes or self.axes
        ranks, mesh = tuple(sorted(set(group.ranks))), self.plan.mesh
        if self.rank not in ranks or ranks[-1] >= mesh.size:
            return None
        own = [mesh.coordinates(rank) for rank in ranks]
        axes = tuple(axis for axis in self.axes if len({each[axis] for each in own}) > 1)
        size = 1
        for axis in axes:
            size *= mesh.axis_size(axis)
        return axes if size == len(ranks) and mesh.along(self.rank, axes) == ranks else None

    def _communicate(self, operator: Communicate) -> None:
        axes = self._axes_of(operator.group)
        for source, name in zip(operator.inputs, operator.outputs, strict=False):
            self.communicated.add(source)
            if operator.kind is Collective.BARRIER:
                continue
            value = self._value(source)
            tensor = self.plan.tensors.get(source)
            rank = len(tensor.shape) if tensor is not None else 0
            gradient = tensor is not None and tensor.role is Role.GRADIENT
            on: dict[str, On] = {} if axes is None else dict(value.on)
            if operator.kind is Collective.ALL_TO_ALL and axes is not None and tensor is not None:
                members = prod(self.plan.mesh.axis_size(axis) for axis in axes)
                fault = faulty_splits(operator, tensor.shape, members) if members > 1 else ""
                if fault:
                    self._say("wrong-all-to-all-splits", source, axes[0] if axes else "", operator.kind.value, fault)
            for axis in axes or ():
                if axis not in self.axes:
                    continue
                on[axis], rule = after(operator, value.on.get(axis), rank, gradient)
                others = [other for other in self.axes if other not in (axes or ())]
                elsewhere = [other for other in others if isinstance(value.on.get(other), Partial)]
                if rule in _REDUCES and elsewhere:
                    self._say("wrong-collective-group", source, elsewhere[0], operator.kind.value, axis)
                    on = {}
                    break
                if rule:
                    self._say(rule, source, axis, operator.kind.value, operator.reduce or "sum")
            origin = {axis: place for axis, place in value.origin.items() if isinstance(on.get(axis), Partial)}
            self._store(name, on, origin)
        for name in operator.outputs[len(operator.inputs) :]:
            self._store(name, {axis: Replicate() for axis in axes or ()} if operator.kind is Collective.BROADCAST else {}, {})

    def _send(self, operator: Send) -> None:
        value = self._value(operator.tensor)
        on = dict(value.on)
        if operator.peer.axis and isinstance(on.get(operator.peer.axis), Shard):
            on[operator.peer.axis] = None
        if operator.peer.rank is not None:
            on = {axis: placement if not isinstance(placement, Shard) else None for axis, placement in on.items()}
        if self.where not in self.sent or self.sent[self.where].on != on:
            self.sent[self.where] = Placed(on, value.origin)

    def _receive(self, operator: Receive) -> None:
        call = self._received_from()
        value = _UNKNOWN
        if call is not None:
            value = self.sent.get((call.site.segment, call.site.index), _UNKNOWN)
        tensor = self.plan.tensors.get(operator.tensor)
        if not value.on and tensor is not None and tensor.placements is not None:
            value = Placed({axis: tensor.placements.get(axis, Replicate()) for axis in self.axes})
        self._store(operator.tensor, dict(value.on), dict(value.origin))

    def _received_from(self) -> CommunicationCall | None:
        partners = self.facts.derived("senders", lambda: _senders(self.facts))
        return partners.get(self.where)

    def _reduce(self, operator: ReduceGradients) -> None:
        axes = self._axes_of(operator.group)
        if axes is not None and operator.replicated and self.plan.replication.count > 1:
            axes = (*axes, self.plan.replication.axis)
        for weight in operator.weights:
            for gradient in self._gradients_of(weight):
                value = self._value(gradient)
                on = dict(value.on) if axes is not None else {}
                for axis in axes or ():
                    if axis not in self.axes:
                        continue
                    own = value.on.get(axis)
                    scale = operator.divisor in (0, self.plan.mesh.axis_size(axis)) or operator.divisor > 1
                    if is_whole(own) and operator.reduce == "sum" and not scale:
                        self._say("doubled-gradient-reduction", gradient, axis, other=weight)
                    elif isinstance(own, Shard):
                        self._say("allreduce-of-shards", gradient, axis, "reduce-gradients", "sum")
                    elif isinstance(own, Partial) and operator.reduce not in ("sum", "avg", "mean"):
                        self._say("wrong-reduce-op", gradient, axis, "reduce-gradients", operator.reduce)
                    on[axis] = None if operator.scatter else Replicate()
                self.values[gradient] = Placed(on, value.origin)

    def _gradients_of(self, weight: str) -> list[str]:
        return [name for name, owner in self.gradients.items() if owner == weight and name in self.producer]

    def _update(self, operator: Update) -> None:
        for weight in operator.weights:
            own = self._value(weight)
            for gradient in self._gradients_of(weight):
                value = self._value(gradient)
                for axis in self.axes:
                    partial = isinstance(value.on.get(axis), Partial) and own.on.get(axis) is not None
                    if partial and gradient not in self.communicated and (weight, axis) not in self.reduced:
                        self._say("missing-gradient-reduction", gradient, axis, other=weight)

    def _outputs(self) -> None:
        for name in self.plan.outputs:
            value = self.values.get(name)
            tensor = self.plan.tensors.get(name)
            if value is None or name not in self.producer or (tensor is not None and tensor.placements is not None):
                continue
            self.where = self.producer[name]
            for axis in self.axes:
                if isinstance(value.on.get(axis), Partial) and axis not in _DATA_AXES:
                    self._say("missing-allreduce", name, axis, other="output")


def _is_linear(operator: Compute) -> bool:
    spec = spec_of(operator.op)
    return spec is not None and spec.name == "linear"


def _common_axes(facts: Facts, program: Program) -> tuple[str, ...]:
    """The axes along which ranks compute the same values, so that a placement means something there.

    Along a pipeline axis ranks run different layers; there nothing is replicated, sharded or partial.
    """
    names = facts.derived("computed names", lambda: [_computed(facts, each) for each in facts.plan.programs])
    mesh, fold = facts.plan.mesh, facts.fold
    own = names[facts.plan.programs.index(program)]
    rank = min(program.ranks, default=0)
    found = []
    for axis in mesh.axes:
        if axis.size == 1 or rank >= mesh.size:
            continue
        others = {fold.program_of(other) for other in mesh.along(rank, (axis.name,))} - {None}
        if all(2 * len(own & names[other]) >= len(own | names[other]) for other in others if other is not None):
            found.append(axis.name)
    return tuple(found)


def _computed(facts: Facts, program: Program) -> frozenset[str]:
    segments = {step.segment for step in program.steps if step.segment in facts.plan.segments}
    return frozenset(
        name
        for segment in segments
        for operator in facts.plan.segments[segment].operators
        if isinstance(operator, Compute | Backward | Communicate)
        for name in operator.outputs
        if name
    )


def _joined(left: Placed, right: Placed) -> Placed:
    """The sum of two gradients: known where both lie alike."""
    on = {axis: left.on.get(axis) if same(left.on.get(axis), right.on.get(axis)) else None for axis in {*left.on, *right.on}}
    return Placed(on, {**right.origin, **left.origin})


def _senders(facts: Facts) -> dict[Where, CommunicationCall]:
    found: dict[Where, CommunicationCall] = {}
    for _, receives in facts.traffic.channels.values():
        for call in receives:
            if call.partner is not None:
                found.setdefault((call.site.segment, call.site.index), call.partner)
    return found
