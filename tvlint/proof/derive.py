"""Deriving the relation of every tensor of a plan, from its inputs and weights to its gradients.

One micro-batch is derived, the first, as any micro-batch (`tvlint.proof.wiring` checks that all are alike); one replica, as
any replica. Every rank of the replica runs its own program; communication happens when all its members have come to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from tvlint.ir.plan import (
    Await,
    Backward,
    Collective,
    Communicate,
    Compute,
    Literal,
    Operator,
    Phase,
    Plan,
    Receive,
    Record,
    ReduceGradients,
    Role,
    Segment,
    Send,
    Step,
    Update,
    Wait,
)
from tvlint.ops.spec import Call, Family, UnsupportedError
from tvlint.ops.table import spec_of
from tvlint.proof.apply import Mismatch, World, forward_use, gradient_use, run
from tvlint.proof.exchange import DECLARED_PIECE_ORDER, chunk, exchange
from tvlint.proof.groups import members_of, peer_of
from tvlint.proof.nearest import Nearest
from tvlint.proof.placed import Inputs, parameter, region
from tvlint.proof.relation import Value
from tvlint.proof.reshape import reshape, reshape_gradient
from tvlint.proof.trouble import Trouble, at

Slot: TypeAlias = "Value | None"
"""A derived relation; None is poison: something earlier went wrong and was told."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a forward operator keeps for its gradient."""

    op: str
    bound: Any
    family: Family
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]


@dataclass(slots=True)
class Derived:
    """What was derived. `finished` says that every rank ran to its end."""

    environments: dict[int, dict[str, Slot]] = field(default_factory=dict)
    gradients: dict[int, dict[str, Slot]] = field(default_factory=dict)
    used: set[tuple[int, str]] = field(default_factory=set)
    """Parameters that ranks use: (rank, tensor name)."""
    troubles: list[Trouble] = field(default_factory=list)
    fatal: bool = False
    """Whether a trouble makes the plan not run, whatever the values are."""
    finished: bool = False
    stages: int = 0
    classes: int = 0
    foreign: list[Foreign] = field(default_factory=list)
    assumptions: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Foreign:
    """An operator on values of the reference that the reference does not apply to them."""

    trouble: Trouble
    term: int
    nearest: int | None


class _Blocked(Exception):
    """The rank waits for others."""


@dataclass(slots=True)
class _Rank:
    number: int
    environment: dict[str, Slot] = field(default_factory=dict)
    gradients: dict[str, Slot] = field(default_factory=dict)
    saved: dict[int, Saved] = field(default_factory=dict)
    local: dict[str, Slot] = field(default_factory=dict)
    segment: Segment | None = None
    trail: list[Any] = field(default_factory=list)
    carriers: dict[int, str] = field(default_factory=dict)
    consumers: dict[str, str] = field(default_factory=dict)


class Derivation:
    """One run over one plan; `derive` is the way in."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        inputs: Inputs,
        slots: tuple[int, ...],
        total_slots: int,
        loss: int | None,
        dtypes: dict[int, str],
        nearest: Nearest | None,
        assume: frozenset[str],
    ) -> None:
        self.world = world
        self.plan = plan
        self.inputs = inputs
        self.slots = slots
        self.total_slots = total_slots
        self.loss = loss
        self.dtypes = dtypes
        self.nearest = nearest
        self.assume = assume
        self.derived = Derived()
        self.weight_of = {tensor.gradient: tensor.name for tensor in plan.tensors.values() if tensor.role is Role.WEIGHT}
        self.weight_of.pop("", None)
        self.parameters: dict[tuple[str, int], Value] = {}
        self.bounds: dict[Any, Any] = {}
        self.results: dict[Any, Any] = {}
        self.waiting: dict[Any, dict[int, tuple[Communicate, Slot]]] = {}
        self.arrived: dict[Any, dict[int, Slot] | None] = {}
        self.turns: dict[tuple[int, Any], int] = {}
        self.mail: dict[Any, deque[Slot]] = {}
        self.reducing: dict[Any, dict[int, tuple[Slot, ...]]] = {}
        self.ranks = {rank: _Rank(rank) for program in plan.programs for rank in program.ranks}
        self.outputs = {plan.loss} if plan.loss else set(plan.outputs)

    # running

    def run(self) -> Derived:
        """Run all ranks as far as they go."""
        active = {
            rank: self._run_rank(self.ranks[rank], program.steps) for program in self.plan.programs for rank in program.ranks
        }
        while active:
            moved = False
            for rank, steps in list(active.items()):
                outcome = next(steps, "end")
                while outcome == "moved":
                    moved = True
                    outcome = next(steps, "end")
                if outcome == "end":
                    del active[rank]
                    moved = True
            if not moved:
                break
        for rank in active:
            self._stuck(self.ranks[rank])
        derived = self.derived
        derived.finished = not active
        derived.environments = {state.number: state.environment for state in self.ranks.values()}
        derived.gradients = {state.number: state.gradients for state in self.ranks.values()}
        return derived

    def _stuck(self, rank: _Rank) -> None:
        name = rank.segment.name if rank.segment else ""
        self.derived.fatal = True
        self.derived.troubles.append(
            Trouble("never-completes", True, "{ranks} wait for a communication that never completes", rank.number, name)
        )

    def _run_rank(self, rank: _Rank, steps: Sequence[Step]) -> Iterator[str]:
        seen = set()
        classes = set()
        for step in steps:
            if step.segment in seen:
                continue
            seen.add(step.segment)
            segment = self.plan.segments[step.segment]
            rank.segment = segment
            outer_inputs = segment.inputs if step.inputs is None else step.inputs
            outer_outputs = segment.outputs if step.outputs is None else step.outputs
            rank.local = {
                inner: rank.environment[outer]
                for inner, outer in zip(segment.inputs, outer_inputs, strict=True)
                if outer in rank.environment
            }
            rank.trail = []
            for operator in segment.operators:
                while True:
                    try:
                        self._operate(rank, segment, operator)
                        break
                    except _Blocked:
                        yield "blocked"
                yield "moved"
            for inner, outer in zip(segment.outputs, outer_outputs, strict=True):
                if inner in rank.local:
                    self._export(rank, outer, rank.local[inner], outer in outer_inputs)
            self.derived.stages += 1
            classes.add((segment.phase, tuple(rank.trail)))
        self.derived.classes += len(classes)

    def _export(self, rank: _Rank, name: str, value: Slot, replaces: bool) -> None:
        rank.environment[name] = value if replaces else self._accumulated(rank, name, value, rank.environment)

    def _accumulated(self, rank: _Rank, name: str, value: Slot, held: Mapping[str, Slot]) -> Slot:
        tensor = self.plan.tensors.get(name)
        if name not in held or tensor is None or tensor.role is not Role.GRADIENT:
            return value
        before = held[name]
        if before is None or value is None:
            return None
        total = self.world.values.gradient_sum(self._forward_term(rank, tensor.gradient_of), (before, value))
        if total is None:
            self._tell(
                rank, None, Mismatch("mismatched-slices", f"adds gradients of different slices into `{name}`", refutes=True)
            )
        return total

    def _forward_term(self, rank: _Rank, name: str) -> int:
        value = rank.local.get(name) or rank.environment.get(name)
        if value is not None:
            return value.term
        if name in self.plan.tensors and self.plan.tensors[name].role is Role.WEIGHT:
            found = self._parameter(rank, name)
            return found.term if found is not None else -1
        return -1

    # troubles

    def _tell(
        self,
        rank: _Rank,
        operator: Operator | None,
        mismatch: Mismatch,
        fatal: bool = False,
        expected: str = "",
        actual: str = "",
    ) -> None:
        segment = rank.segment.name if rank.segment else ""
        subject = _name(operator) if operator is not None else ""
        message = f"{subject} on {{ranks}} {mismatch.message}".strip()
        trouble = Trouble(
            mismatch.name, mismatch.refutes, message, rank.number, segment, subject, expected=expected, actual=actual
        )
        self.derived.troubles.append(at(operator, segment, trouble) if operator is not None else trouble)
        self.derived.fatal = self.derived.fatal or fatal

    # values

    def _parameter(self, rank: _Rank, name: str) -> Slot:
        key = (name, rank.number)
        self.derived.used.add((rank.number, name))
        if key not in self.parameters:
            try:
                self.parameters[key] = parameter(self.world, self.plan, self.plan.tensors[name], rank.number)
            except Mismatch as mismatch:
                self._tell(rank, None, mismatch, fatal=True)
                return None
        return self.parameters[key]

    def _input(self, rank: _Rank, name: str) -> Slot:
        tensor = self.plan.tensors[name]
        number = self.inputs.number.get(name, self.inputs.number.get(tensor.logical))
        if number is None:
            self._tell(
                rank, None, Mismatch("unknown-input", f"reads the input `{name}`, which has no counterpart", refutes=False)
            )
            return None
        try:
            box = region(self.plan, tensor, rank.number)
        except Mismatch as mismatch:
            self._tell(rank, None, mismatch, fatal=True)
            return None
        shape = self.inputs.shapes[number]
        term = self.world.terms.term(("input", number, tensor.dtype), (), shape, self.slots[number])
        if self.world.slots > 1 and self.slots[number] >= 0:
            box = tuple((0, size) for size in shape)
        return self.world.values.clean(term, box)

    def _read(self, rank: _Rank, operator: Operator, name: str) -> Slot:
        """The relation of the tensor that the operator reads; raises Mismatch when nothing gives it a value."""
        if name in rank.local:
            return rank.local[name]
        tensor = self.plan.tensors.get(name)
        if tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER):
            return self._parameter(rank, name)
        if tensor is not None and tensor.role is Role.INPUT:
            return self._input(rank, name)
        raise Mismatch("missing-value", f"uses `{name}`, which nothing on {{ranks}} produces before", refutes=True)

    def _gradient(self, rank: _Rank, operator: Operator, name: str) -> Slot | str:
        """The gradient `name`; "absent" where nothing produces it; the seed where it is the gradient of the loss."""
        if name in rank.local:
            return rank.local[name]
        tensor = self.plan.tensors.get(name)
        of = tensor.gradient_of if tensor is not None else ""
        value = rank.environment.get(of) or rank.local.get(of)
        if value is None or tensor is None:
            return "absent"
        if value.term == self.loss or (self.loss is None and of in self.outputs):
            shape = self.world.terms.shape[value.term]
            seed = self.world.terms.term(("one", shape), (), shape, -1)
            return self.world.values.clean(seed, tuple((0, size) for size in shape))
        return "absent"

    def _assign(self, rank: _Rank, operator: Operator, name: str, value: Slot, inputs: Sequence[str]) -> None:
        rank.trail.append(id(value))
        tensor = self.plan.tensors.get(name)
        if value is not None and tensor is not None:
            shape = self.world.local_shape(value)
            if tensor.shape != shape:
                mismatch = Mismatch(
                    "wrong-shape", f"makes shape {shape} where `{name}` is declared {tensor.shape}", refutes=True
                )
                self._tell(rank, operator, mismatch, expected=str(tensor.shape), actual=str(shape))
                value = None
            elif self.dtypes.setdefault(value.term, tensor.dtype) != tensor.dtype:
                was = self.dtypes[value.term]
                mismatch = Mismatch(
                    "wrong-dtype", f"makes `{name}` as {tensor.dtype} where the reference has {was}", refutes=True
                )
                self._tell(rank, operator, mismatch, fatal=True, expected=was, actual=tensor.dtype)
        held = rank.gradients if name in self.weight_of else rank.local
        held[name] = value if name in inputs else self._accumulated(rank, name, value, held)
        if value is not None and value.leaves:
            for leaf in value.leaves:
                for pending in leaf.pending:
                    rank.carriers.setdefault(pending.origin, name)

    # operators

    def _operate(self, rank: _Rank, segment: Segment, operator: Operator) -> None:
        if isinstance(operator, Compute):
            self._compute(rank, segment, operator)
        elif isinstance(operator, Backward):
            self._backward(rank, operator)
        elif isinstance(operator, Communicate):
            self._communicate(rank, operator)
        elif isinstance(operator, Send):
            self._send(rank, operator)
        elif isinstance(operator, Receive):
            self._receive(rank, operator)
        elif isinstance(operator, ReduceGradients | Update | Wait | Record | Await):
            return  # order is judged by the order analysis, reduction by tvlint.proof.gradients
        else:
            raise AssertionError(operator)

    def _compute(self, rank: _Rank, segment: Segment, operator: Compute) -> None:
        if segment.phase is Phase.DATA:
            for name in operator.outputs:
                if name in self.plan.tensors and self.plan.tensors[name].role is Role.INPUT:
                    rank.local[name] = self._input(rank, name)
            return
        try:
            results = self._forward(rank, operator)
        except Mismatch as mismatch:
            self._blame(rank, operator, mismatch)
            results = (None,) * len(operator.outputs)
        except UnsupportedError as error:
            self._tell(rank, operator, Mismatch("unsupported-operator", f"is not understood: {error}", refutes=False))
            results = (None,) * len(operator.outputs)
        for name, value in zip(operator.outputs, results, strict=True):
            self._assign(rank, operator, name, value, ())

    def _forward(self, rank: _Rank, operator: Compute) -> tuple[Slot, ...]:
        if operator.in_place:
            raise UnsupportedError(f"`{operator.op}` overwrites its operand")
        spec = spec_of(operator.op)
        if spec is None:
            raise UnsupportedError(f"`{operator.op}` is not in the operator table")
        names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
        values = tuple(self._read(rank, operator, name) for name in names)
        for name, value in zip(names, values, strict=True):
            if value is not None and not value.clean:
                rank.consumers.setdefault(name, spec.name)
        if any(value is None for value in values):
            return (None,) * len(operator.outputs)
        known = tuple(value for value in values if value is not None)
        key = (
            operator.op,
            id(operator.attributes),
            _literals(operator),
            tuple(map(id, known)),
            self._output_shapes(operator),
        )
        found = self.results.get(key)
        if found is None:
            found = self.results[key] = self._evaluated(operator, spec, known)
        bound, results = found
        if spec.assumption:
            self.derived.assumptions.add(spec.assumption)
        results = self._checked(rank, operator, results, known)
        rank.saved[id(operator)] = Saved(spec.name, bound, spec.family, known, results)
        return results

    def _output_shapes(self, operator: Compute) -> tuple[tuple[int, ...], ...]:
        tensors = self.plan.tensors
        return tuple(tensors[name].shape if name in tensors else () for name in operator.outputs)

    def _evaluated(self, operator: Compute, spec: Any, values: tuple[Value, ...]) -> tuple[Any, tuple[Slot, ...]]:
        shapes = iter(values)
        inputs = tuple(
            operand if isinstance(operand, Literal) else self.world.local_shape(next(shapes)) for operand in operator.inputs
        )
        call = Call(operator.op, inputs, operator.attributes, self._output_shapes(operator))
        bound = spec.bind(call)
        if spec.family is Family.IDENTITY:
            return bound, (values[0],) * len(operator.outputs)
        if spec.family is Family.RESHAPE:
            return bound, (reshape(self.world, values[0], _view_size(call, self.world.local_shape(values[0]))),)
        if len(bound.outputs) != len(operator.outputs):
            raise UnsupportedError(f"`{operator.op}` with {len(operator.outputs)} outputs")
        return bound, tuple(
            run(
                self.world,
                forward_use(spec.name, bound, output, values, _free_sizes(bound, output, call)),
                self.total_slots,
                _ignore,
            )
            for output in range(len(operator.outputs))
        )

    def _checked(self, rank: _Rank, operator: Operator, results: tuple[Slot, ...], known: Sequence[Value]) -> tuple[Slot, ...]:
        """The results, with values that the reference never computes noted, and replaced if the derivation recovers."""
        terms = self.world.terms
        if terms.sealed < 0 or not any(value is not None and terms.foreign(value.term) for value in results):
            return results
        if any(terms.foreign(value.term) for value in known):
            return results
        replaced = []
        for value in results:
            if value is None or not terms.foreign(value.term) or terms.keys[value.term][0] == "gradient-sum":
                replaced.append(value)
                continue
            near = self.nearest.to(value.term) if self.nearest is not None else None
            subject = _name(operator)
            text = near.text if near is not None else "is applied to values that the reference does not apply it to"
            trouble = Trouble(
                "other-operator" if near is None or near.kind == "operator" else near.kind,
                False,
                f"{subject} on {{ranks}} {text}",
                rank.number,
                operator=subject,
                expected=near.expected if near is not None else "",
                actual=near.actual if near is not None else "",
            )
            segment = rank.segment.name if rank.segment else ""
            self.derived.foreign.append(Foreign(at(operator, segment, trouble), value.term, near.term if near else None))
            replaced.append(self.world.values.retermed(value, near.term) if near is not None else value)
        return tuple(replaced)

    def _backward(self, rank: _Rank, operator: Backward) -> None:
        saved = rank.saved.get(id(operator.forward))
        if saved is None:
            if self._forward_failed(rank, operator):
                for name in filter(None, operator.outputs):
                    self._assign(rank, operator, name, None, ())
                return
            mismatch = Mismatch("gradient-before-forward", "runs before its forward operator", refutes=True)
            self._tell(rank, operator, mismatch, fatal=True)
            return
        gradients: dict[int, Value] = {}
        for position, name in enumerate(operator.inputs):
            if not name:
                continue
            found = self._gradient(rank, operator, name)
            if found is None:
                for output in filter(None, operator.outputs):
                    self._assign(rank, operator, output, None, ())
                return
            if isinstance(found, Value):
                gradients[position] = found
                if not found.clean:
                    rank.consumers.setdefault(name, f"backward of {saved.op}")
        self._check_gradient_names(rank, operator)
        if not gradients:
            return
        if saved.family is Family.IDENTITY and len(set(operator.inputs)) < len([n for n in operator.inputs if n]):
            mismatch = Mismatch("gradient-added-twice", "adds one gradient twice and leaves another out", refutes=True)
            self._tell(rank, operator, mismatch)
        operands = [operand for operand in operator.forward.inputs if not isinstance(operand, Literal)]
        for position, name in enumerate(operator.outputs):
            if not name or position >= len(operands):
                continue
            try:
                value = self._vjp(rank, operator, saved, position, gradients)
            except Mismatch as mismatch:
                self._blame(rank, operator, mismatch)
                value = None
            except UnsupportedError as error:
                self._tell(rank, operator, Mismatch("unsupported-operator", f"is not understood: {error}", refutes=False))
                value = None
            if value != "absent":
                assert not isinstance(value, str)
                self._assign(rank, operator, name, value, ())

    def _forward_failed(self, rank: _Rank, operator: Backward) -> bool:
        return any(name in rank.local or name in rank.environment for name in operator.forward.outputs) or any(
            trouble.rank == rank.number for trouble in self.derived.troubles
        )

    def _check_gradient_names(self, rank: _Rank, operator: Backward) -> None:
        operands = [operand for operand in operator.forward.inputs if not isinstance(operand, Literal)]
        for position, name in enumerate(operator.outputs):
            tensor = self.plan.tensors.get(name)
            if tensor is None or not tensor.gradient_of or position >= len(operands):
                continue
            if tensor.gradient_of != operands[position] and tensor.gradient_of in operands:
                mismatch = Mismatch(
                    "swapped-gradients",
                    f"stores the gradient of `{operands[position]}` as `{name}`, the gradient of `{tensor.gradient_of}`",
                    refutes=True,
                )
                self._tell(rank, operator, mismatch, expected=tensor.gradient_of, actual=str(operands[position]))

    def _vjp(self, rank: _Rank, operator: Backward, saved: Saved, position: int, gradients: dict[int, Value]) -> Slot | str:
        if any(value is None for value in saved.inputs):
            return None
        inputs = tuple(value for value in saved.inputs if value is not None)
        key = ("vjp", id(saved.bound), position, tuple(map(id, inputs)), tuple((i, id(g)) for i, g in gradients.items()))
        found = self.results.get(key)
        if found is None:
            found = self.results[key] = self._evaluated_vjp(saved, inputs, position, gradients)
        if isinstance(found, str):
            return found
        (checked,) = self._checked(rank, operator, (found,), (*inputs, *gradients.values()))
        return checked

    def _evaluated_vjp(
        self, saved: Saved, inputs: tuple[Value, ...], position: int, gradients: dict[int, Value]
    ) -> Value | str:
        if saved.family is Family.IDENTITY:
            box = inputs[0].box
            if any(gradient.box != box for gradient in gradients.values()):
                raise Mismatch("mismatched-slices", "adds gradients of different slices", refutes=True)
            total = self.world.values.gradient_sum(inputs[0].term, tuple(gradients.values()))
            if total is None:
                raise Mismatch("mismatched-slices", "adds gradients of different slices", refutes=True)
            return total
        if saved.family is Family.RESHAPE:
            result = saved.outputs[0]
            if result is None:
                raise UnsupportedError("a view that failed")
            return reshape_gradient(self.world, inputs[0], result, gradients[0])
        use = gradient_use(saved.op, saved.bound, position, inputs, gradients)
        return "absent" if use is None else run(self.world, use, self.total_slots, _ignore)

    # communication

    def _communicate(self, rank: _Rank, operator: Communicate) -> None:
        members = members_of(self.plan, operator.group, rank.number)
        if rank.number not in members:
            mismatch = Mismatch("wrong-group", f"runs in the group {list(members)}, which it is not in", refutes=True)
            self._tell(rank, operator, mismatch, fatal=True)
            for name in operator.outputs:
                self._assign(rank, operator, name, None, operator.inputs)
            return
        if len(operator.inputs) != 1 or len(operator.outputs) != 1:
            self._tell(rank, operator, Mismatch("unsupported-collective", "moves several tensors", refutes=False))
            for name in operator.outputs:
                self._assign(rank, operator, name, None, operator.inputs)
            return
        if operator.kind is Collective.CHUNK:
            self._assign(rank, operator, operator.outputs[0], self._chunked(rank, operator, members), operator.inputs)
            return
        channel = (members, operator.group.name)
        turn = self.turns.get((rank.number, channel), 0)
        table = self.waiting.setdefault((channel, turn), {})
        if rank.number not in table:
            try:
                value = self._operand(rank, operator, operator.inputs[0])
            except Mismatch as mismatch:
                self._blame(rank, operator, mismatch)
                value = None
            table[rank.number] = (operator, value)
        if set(table) != set(members):
            raise _Blocked
        if (channel, turn) not in self.arrived:
            self.arrived[channel, turn] = self._together(rank, members, table)
        self.turns[rank.number, channel] = turn + 1
        results = self.arrived[channel, turn]
        self._assign(
            rank, operator, operator.outputs[0], results[rank.number] if results is not None else None, operator.inputs
        )

    def _operand(self, rank: _Rank, operator: Operator, name: str) -> Slot:
        tensor = self.plan.tensors.get(name)
        if tensor is not None and tensor.role is Role.GRADIENT:
            if name in rank.gradients:
                return rank.gradients[name]
            found = self._gradient(rank, operator, name)
            if isinstance(found, str):
                raise Mismatch("missing-value", f"uses `{name}`, which nothing on {{ranks}} produces before", refutes=True)
            return found
        return self._read(rank, operator, name)

    def _chunked(self, rank: _Rank, operator: Communicate, members: tuple[int, ...]) -> Slot:
        try:
            value = self._operand(rank, operator, operator.inputs[0])
            if value is None:
                return None
            if operator.dim is None or not -len(value.box) <= operator.dim < len(value.box):
                raise Mismatch("wrong-dimension", f"cuts along dimension {operator.dim}", refutes=True)
            dim = operator.dim % len(value.box)
            position = members.index(rank.number)
            if DECLARED_PIECE_ORDER in self.assume:
                position = self._declared_position(operator, value, dim, len(members), position)
            return chunk(self.world, value, dim, position, len(members))
        except Mismatch as mismatch:
            self._blame(rank, operator, mismatch)
            return None

    def _declared_position(self, operator: Communicate, value: Value, dim: int, count: int, position: int) -> int:
        tensor = self.plan.tensors.get(operator.outputs[0])
        if tensor is None or tensor.region is None or len(tensor.region) != len(value.box):
            return position
        low, high = value.box[dim]
        return next((i for i in range(count) if tensor.region[dim][0] * count == low * count + (high - low) * i), position)

    def _together(
        self, rank: _Rank, members: tuple[int, ...], table: Mapping[int, tuple[Communicate, Slot]]
    ) -> dict[int, Slot] | None:
        first = table[members[0]][0]
        for other in members:
            own = table[other][0]
            if (own.kind, own.dim, own.concat_dim, own.root, own.reduce) != (
                first.kind,
                first.dim,
                first.concat_dim,
                first.root,
                first.reduce,
            ):
                mismatch = Mismatch(
                    "members-disagree", f"meets {_name(own)} of rank {other} in one group {list(members)}", refutes=True
                )
                self._tell(rank, first, mismatch, fatal=True)
                return None
        if any(value is None for _, value in table.values()):
            return None
        given = {member: value for member, (_, value) in table.items() if value is not None}
        try:
            of = self._gradient_tag(rank, first)
            claimed: dict[int, Any] | None = {} if DECLARED_PIECE_ORDER in self.assume else None
            return dict(exchange(self.world, first, members, given, of, claimed))
        except Mismatch as mismatch:
            for member in members:
                self._blame(self.ranks[member], table[member][0], mismatch)
            return None

    def _gradient_tag(self, rank: _Rank, operator: Communicate) -> int:
        tensor = self.plan.tensors.get(operator.inputs[0])
        return -1 if tensor is None or tensor.role is not Role.GRADIENT else self._forward_term(rank, tensor.gradient_of)

    def _send(self, rank: _Rank, operator: Send) -> None:
        peer = peer_of(self.plan, operator.peer, rank.number)
        if peer is None:
            return
        try:
            value = self._operand(rank, operator, operator.tensor)
        except Mismatch as mismatch:
            self._blame(rank, operator, mismatch)
            value = None
        channel = (rank.number, peer, operator.communicator, operator.tag)
        self.mail.setdefault(channel, deque()).append(value)

    def _receive(self, rank: _Rank, operator: Receive) -> None:
        peer = peer_of(self.plan, operator.peer, rank.number)
        if peer is None:
            return
        box = self.mail.get((peer, rank.number, operator.communicator, operator.tag))
        if not box:
            raise _Blocked
        self._assign(rank, operator, operator.tensor, box.popleft(), (operator.tensor,))

    # blame

    def _blame(self, rank: _Rank, operator: Operator, mismatch: Mismatch) -> None:
        """Tell the mismatch; a partial sum is told at the operator that first takes it for complete."""
        value = self._at_fault(rank, operator, mismatch)
        if value is None or not value.leaves:
            self._tell(rank, operator, mismatch)
            return
        pending = next(iter(sorted(entry for leaf in value.leaves for entry in leaf.pending)), None)
        if pending is None:
            self._tell(rank, operator, mismatch)
            return
        origin = self.world.terms.keys[pending.origin][0]
        carrier = rank.carriers.get(pending.origin, "")
        consumer = rank.consumers.get(carrier, "")
        scope = scope_of(pending)
        told = Trouble(
            mismatch.name,
            mismatch.refutes,
            f"`{carrier}` on {{ranks}} is a partial sum of `{origin}`, over {scope}; it is used as complete by `{consumer}`",
            rank.number,
            operator=_name(operator),
            expected="a complete value",
            actual=f"a partial sum over {scope}",
        )
        segment = rank.segment.name if rank.segment else ""
        self.derived.troubles.append(at(operator, segment, told))

    def _at_fault(self, rank: _Rank, operator: Operator, mismatch: Mismatch) -> Slot:
        names: Sequence[str] = ()
        if isinstance(operator, Compute):
            names = [operand for operand in operator.inputs if not isinstance(operand, Literal)]
        elif isinstance(operator, Backward | Communicate):
            names = operator.inputs
        for name in names:
            value = rank.local.get(name) or rank.gradients.get(name)
            if value is not None and value.leaves:
                return value
        return None


def scope_of(pending: Any) -> str:
    """What a pending sum still ranges over."""
    parts = []
    if (pending.low, pending.high) != (0, pending.size):
        parts.append(f"indices {pending.low}:{pending.high} of {pending.size}")
    if pending.one_replica:
        parts.append("one data-parallel replica")
    if pending.one_micro_batch:
        parts.append("one micro-batch")
    return " and ".join(parts)


def _name(operator: Operator) -> str:
    if isinstance(operator, Compute):
        return f"`{operator.op.rsplit('.', 1)[-1]}`"
    if isinstance(operator, Backward):
        return f"backward of `{operator.forward.op.rsplit('.', 1)[-1]}`"
    if isinstance(operator, Communicate):
        return f"`{operator.kind.value}`"
    return f"`{type(operator).__name__.lower()}`"


def _literals(operator: Compute) -> tuple[Any, ...]:
    return tuple((i, o.value, type(o.value)) for i, o in enumerate(operator.inputs) if isinstance(o, Literal))


def _view_size(call: Call, before: tuple[int, ...]) -> tuple[int, ...]:
    size = call.attributes.get("size", call.attributes.get("shape"))
    if size is None:
        literals = [operand.value for operand in call.inputs[1:] if isinstance(operand, Literal)]
        size = literals[0] if len(literals) == 1 and isinstance(literals[0], tuple) else tuple(literals)
    if not isinstance(size, tuple) or not all(isinstance(n, int) and not isinstance(n, bool) for n in size):
        raise UnsupportedError(f"`{call.op}` to {size}")
    sizes = tuple(n for n in size if isinstance(n, int))
    known = prod(n for n in sizes if n != -1)
    total = prod(before)
    if sizes.count(-1) > 1 or known <= 0 or total % known:
        raise Mismatch("wrong-view-size", f"views shape {before} as {size}", refutes=True)
    return tuple(total // known if n == -1 else n for n in sizes)


def _free_sizes(bound: Any, output: int, call: Call) -> dict[str, int]:
    shape = call.outputs[output] if output < len(call.outputs) else ()
    return dict(zip(bound.outputs[output], shape, strict=False))


def _ignore(term: int, operands: tuple[int, ...]) -> None:
    return None
