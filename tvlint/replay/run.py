"""Run a plan on numbers: all ranks, all micro-batches, communication, backward passes and gradient reducers.

What a communication gives is there when all members have come to it; whoever reads it waits. Whether a plan waits where it must
is not asked here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from tvlint.analyses.gradients.accumulators import accumulators
from tvlint.analyses.gradients.roots import made, named_after
from tvlint.ir.location import Location
from tvlint.ir.operators import (
    Await,
    Backward,
    Communicate,
    Compute,
    Group,
    Operator,
    Receive,
    Record,
    ReduceGradients,
    Send,
    Update,
    Wait,
)
from tvlint.ir.plan import Phase, Plan, Role, Segment, Step
from tvlint.ops.field import Array
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.ops.usual_calls import as_new, as_of_flags
from tvlint.replay.collectives import combine, exchange
from tvlint.replay.memory import Memory
from tvlint.replay.operators import BeyondTableError, NotReplayedError, forward, gradients, in_shape
from tvlint.replay.stand_ins import StandIns

Given: TypeAlias = Callable[[int, str, int], "Array | None"]
"""The numbers that a rank is given for a tensor in a micro-batch; None where there are none."""

_LASTING = (Role.WEIGHT, Role.STATE)

_MASK = 3
"""The operand of attention that is its mask, where it has one."""

T = TypeVar("T")
Turns: TypeAlias = Generator[None, None, T]
"""What a rank does, which gives way to the others while it waits, and what comes of it."""


@dataclass(slots=True)
class Post:
    """One member's side of a communication."""

    operator: Any
    values: list[Array | None]
    results: list[Array | None] | None = None


@dataclass(slots=True)
class Result:
    """The results of one training step: gradients by rank and weight, returned values by rank, micro-batch and name.

    `left` is what weights and states become, by rank and name, where operators write them anew.
    """

    gradients: dict[tuple[int, str], Array] = field(default_factory=dict)
    returned: dict[tuple[int, int, str], Array] = field(default_factory=dict)
    left: dict[tuple[int, str], Array] = field(default_factory=dict)


class UnreplayableError(Exception):
    """The plan cannot be run on numbers; `location` is the operator that stands in the way.

    `fails` is the rank on which that operator fails in every framework, and -1 where it may not.
    """

    def __init__(self, message: str, location: Location | None, fails: int = -1) -> None:
        super().__init__(message)
        self.location, self.fails = location, fails


Watch: TypeAlias = Callable[[int, Operator, str, Array], None]
"""What is called with what each computation and gradient gives: the rank, the operator, the name and the value."""


def _unwatched(rank: int, operator: Operator, name: str, value: Array) -> None:
    """Take no notice."""


def replay(
    plan: Plan,
    given: Given,
    watch: Watch = _unwatched,
    stand_ins: StandIns | None = None,
    memory: Memory | None = None,
) -> Result:
    """Return what a step of the plan computes, where `stand_ins` are given also of what has no numbers.

    What `memory` knows of another run is not computed again. Raises UnreplayableError.
    """
    world = _World(plan, given, watch, stand_ins, memory)
    shifts = [replica * plan.replication.stride for replica in range(plan.replication.count)]
    programs = [(rank, program.steps) for program in plan.programs for rank in program.ranks]
    ranks = {rank + shift: world.run(rank, shift, steps) for shift in shifts for rank, steps in programs}
    while ranks:
        before = world.progress
        for rank in list(ranks):
            if next(ranks[rank], "end") == "end":
                del ranks[rank]
                world.progress += 1
        if ranks and world.progress == before:
            raise UnreplayableError(f"ranks {', '.join(map(str, ranks))} wait for each other", None)
    return world.result


class _World:
    """The ranks of a plan while they run."""

    def __init__(self, plan: Plan, given: Given, watch: Watch, stand_ins: StandIns | None, memory: Memory | None) -> None:
        self.plan, self.given, self.watch, self.stand_ins, self.memory = plan, given, watch, stand_ins, memory
        self.result = Result()
        self.progress = 0
        self.queues: dict[object, dict[int, deque[Post]]] = {}
        self.weight_of = accumulators(plan)
        self.seeds = _roots(plan)
        self.zeros = _without_use(plan) - self.seeds

    def run(self, rank: int, shift: int, steps: tuple[Step, ...]) -> Iterator[None]:
        """Run the steps of the rank of one replica, whose ranks are those of the first with `shift`; yields while it waits."""
        state = _Rank(self, rank, shift)
        runs = {step.segment: self.plan.segments[step.segment] for step in steps}.values()
        state.loads.update(name for segment in runs if segment.phase is Phase.DATA for name in segment.outputs)
        for step in steps:
            segment = self.plan.segments[step.segment]
            yield from state.segment(segment, step)
        for weight, value in {**state.accumulated, **state.updated}.items():
            found = None if value is None else (yield from state.arrived(value))
            if found is not None:
                self.result.gradients[state.rank, weight] = found
        for name, value in state.renewed.items():
            found = yield from state.arrived(value)
            if found is not None:
                self.result.left[state.rank, name] = found

    def post(self, channel: object, rank: int, post: Post, members: tuple[int, ...]) -> None:
        """Add one side of a communication; complete it where all sides are there."""
        self.progress += 1
        queues = self.queues.setdefault(channel, {})
        queues.setdefault(rank, deque()).append(post)
        while all(queues.get(member) for member in members):
            posts = [queues[member].popleft() for member in members]
            _complete(posts, members)
            self.progress += 1


def _without_use(plan: Plan) -> set[str]:
    """Return the gradients that nothing makes of values of which nothing is differentiated: they are zero."""
    operators = list(plan.operators())
    differentiated = {name for operator in operators if isinstance(operator, Backward) for name in operator.forward.inputs}
    declared = {name: tensor.gradient_of for name, tensor in plan.tensors.items() if tensor.gradient_of}
    ends = {*differentiated, *plan.outputs, *plan.losses}
    return {name for name in declared.keys() - made(plan) if declared[name] not in ends}


def _roots(plan: Plan) -> set[str]:
    """Return the gradients that start: those of what is returned, and those that nothing makes and that are only taken where
    they start, at the value that they are named after, or at what a collective puts that together from.
    """
    operators = list(plan.operators())
    made_of: dict[str, set[str]] = {}
    for operator in operators:
        if isinstance(operator, Communicate):
            for name in operator.outputs:
                made_of.setdefault(name, {name}).update(operator.inputs)
    places: dict[str, set[str]] = {}
    for operator in operators:
        if isinstance(operator, Backward):
            for name, of in zip(operator.inputs, operator.forward.outputs, strict=False):
                places.setdefault(name, set()).add(of)
    unmade = {name: tensor.gradient_of for name, tensor in plan.tensors.items() if tensor.gradient_of} | {
        name: named_after(name) for name in places if named_after(name)
    }
    parts = {part for output in plan.losses or plan.outputs for part in made_of.get(output, ())}
    returned = {name for name, tensor in plan.tensors.items() if tensor.gradient_of in (*plan.outputs, *plan.losses)}
    started = {name for name in unmade.keys() - made(plan) if unmade[name] in parts and places.get(name, parts) <= parts}
    found = {name for name in places.keys() - made(plan) if named_after(name)}
    named = {name for name in found if places[name] <= made_of.get(named_after(name), {named_after(name)})}
    return returned | started | named


def _complete(posts: list[Post], members: tuple[int, ...]) -> None:
    first = posts[0].operator
    if isinstance(first, Send | Receive):
        send = next(post for post in posts if isinstance(post.operator, Send))
        for each_post in posts:
            each_post.results = list(send.values)
    elif isinstance(first, Communicate):
        operators = [post.operator for post in posts]
        columns = list(zip(*[post.values for post in posts], strict=True)) or [(None,) * len(posts)]
        rows = [exchange(operators, column, members) for column in columns]
        for at, each_post in enumerate(posts):
            each_post.results = [row[at] for row in rows]
    else:
        if len({(post.operator.reduce, post.operator.divisor, len(post.values)) for post in posts}) > 1:
            raise UnreplayableError("reducers of different kinds meet", getattr(first, "source", None))
        held = [_there(column) for column in zip(*[post.values for post in posts], strict=True)]
        summed = [combine(values, first.reduce, len(posts)) if values else None for values in held]
        for each_post in posts:
            each_post.results = [None if value is None else value / (first.divisor or 1) for value in summed]


def _there(values: Iterable[Array | None]) -> list[Array]:
    return [value for value in values if value is not None]


@dataclass(slots=True)
class _Pending:
    """A value that a communication will give."""

    post: Post
    index: int


class _Rank:
    """The state of one rank while it runs."""

    def __init__(self, world: _World, first: int, shift: int) -> None:
        self.world, self.rank, self.shift = world, first + shift, shift
        self.plan = world.plan
        self.outside: dict[object, Array | _Pending] = {}
        self.saved: dict[int, dict[str, Array | _Pending]] = {}
        self.kept: dict[str, Array] = {}
        self.accumulated: dict[str, Array | _Pending] = {}
        self.updated: dict[str, Array | _Pending | None] = {}
        self.made_of: dict[str, frozenset[str]] = {}
        self.body: dict[str, Array | _Pending] = {}
        self.micro_batch = 0
        self.renewed: dict[str, Array | _Pending] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.loads: set[str] = set()
        self.unbound: set[str] = set()
        self.is_named = False

    def segment(self, segment: Segment, step: Step) -> Turns[None]:
        """Run one segment."""
        self.micro_batch = max(step.micro_batch, 0) if self.plan.micro_batches == 1 else step.micro_batch
        names_in = segment.inputs if step.inputs is None else step.inputs
        names_out = segment.outputs if step.outputs is None else step.outputs
        keys_in = [name if step.inputs is not None else (self.micro_batch, name) for name in names_in]
        keys_out = [name if step.outputs is not None else (self.micro_batch, name) for name in names_out]
        self.body = {name: self.outside[key] for name, key in zip(segment.inputs, keys_in, strict=True) if key in self.outside}
        self.unbound = {name for name, key in zip(segment.inputs, keys_in, strict=True) if key not in self.outside}
        self.is_named = step.inputs is not None and segment.phase is not Phase.BACKWARD
        for each_name, name in zip(segment.inputs, names_in, strict=True):
            self.made_of[each_name] = self.made_of.get(name, frozenset())
        entered = dict(self.body)
        if segment.phase is Phase.DATA:
            self.body.update({name: self._given(name) for name in segment.outputs})
        for operator in segment.operators if segment.phase is not Phase.DATA else ():
            try:
                yield from self.operate(operator)
            except NotReplayedError as error:
                fails = self.rank if isinstance(error, BeyondTableError) else -1
                raise UnreplayableError(str(error), getattr(operator, "source", None), fails) from None
        self.saved.setdefault(self.micro_batch, {}).update(self.body)
        for each_name, key in zip(segment.outputs, keys_out, strict=True):
            if each_name in self.body and self.body[each_name] is not entered.get(each_name):
                yield from self._leave(each_name, key)
        for each_name, name in zip(segment.outputs, names_out, strict=True):
            self.made_of[name] = self.made_of.get(each_name, frozenset())

    def _leave(self, word: str, key: object) -> Turns[None]:
        """Let a value be there for later segments; one that is still to come is waited for by whoever reads it."""
        value = self.body[word]
        if key in self.outside and self.plan.has_role(word, Role.GRADIENT):
            before = yield from self.settled(self.outside[key])
            after = yield from self.settled(value)
            value = before + after
        self.outside[key] = value
        name = key if isinstance(key, str) else word
        if name in self.plan.outputs:
            self.world.result.returned[self.rank, max(self.micro_batch, 0), name] = yield from self.settled(value)

    def arrived(self, value: Array | _Pending) -> Turns[Array | None]:
        """Wait until a value is there, and return it; None where the communication gives this rank nothing."""
        while isinstance(value, _Pending):
            if value.post.results is not None:
                return value.post.results[value.index]
            yield
        return value

    def settled(self, value: Array | _Pending) -> Turns[Array]:
        """Wait until a value is there, and return it."""
        found = yield from self.arrived(value)
        if found is None:
            raise NotReplayedError("a collective gives this rank nothing that is read")
        return found

    def read(self, name: str) -> Turns[Array]:
        """Return the value of a name once it is there."""
        weight = self.world.weight_of.get(name, "")
        if weight in self.accumulated:
            return (yield from self.settled(self.accumulated[weight]))
        if name in self.body:
            found = yield from self.settled(self.body[name])
            return found
        if name in self.renewed:
            return (yield from self.settled(self.renewed[name]))
        tensor = self.plan.tensors.get(name)
        if self.is_named and name in self.unbound and tensor is not None and tensor.role is Role.ACTIVATION:
            raise NotReplayedError(f"`{name}` is read under a name that nothing has made")
        saved = self.saved.get(self.micro_batch, {})
        if name in saved and name not in self.world.seeds:
            found = yield from self.settled(saved[name])
            return found
        if name in self.loads and name in self.unbound:
            raise NotReplayedError(f"`{name}` is read before it is loaded")
        return self._given(name)

    def _given(self, name: str) -> Array:
        import numpy as np

        tensor = self.plan.tensors.get(name)
        if tensor is not None and name in self.world.seeds:
            return np.ones(tensor.shape)
        if tensor is not None and tensor.role in (*_LASTING, Role.BUFFER, Role.INPUT):
            key = f"{name} {self.micro_batch if tensor.role is Role.INPUT else -1}"
            if key not in self.kept:
                value = self.world.given(self.rank, name, max(self.micro_batch, 0))
                if value is None:
                    raise NotReplayedError(f"the numbers of `{name}` are not recorded")
                self.kept[key] = np.asarray(value).astype(float)
            return self.kept[key]
        raise NotReplayedError(f"`{name}` is read and not there")

    def write(self, name: str, value: Array | _Pending, inputs: Iterable[object]) -> Turns[None]:
        """Put a value under a name; gradients of one name are summed, but for what is made out of the one that it replaces."""
        names = [each_input for each_input in inputs if isinstance(each_input, str)]
        weights = frozenset(self.world.weight_of[each_name] for each_name in names if each_name in self.world.weight_of)
        self.made_of[name] = made_of = weights.union(*(self.made_of.get(each_name, frozenset()) for each_name in names))
        weight = self.world.weight_of.get(name)
        if weight is not None:
            known = self.accumulated.get(weight)
            if known is None or weight in made_of:
                self.accumulated[weight] = value
            else:
                before = yield from self.settled(known)
                after = yield from self.settled(value)
                self.accumulated[weight] = before + after
            return
        if name in self.body and self.plan.has_role(name, Role.GRADIENT) and name not in names:
            before = yield from self.settled(self.body[name])
            after = yield from self.settled(value)
            value = before + after
        self.body[name] = value
        tensor = self.plan.tensors.get(name)
        if tensor is not None and tensor.role in _LASTING:
            self.renewed[name] = value

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a name, declared or as it was made."""
        if name not in self.plan.tensors and name not in self.shapes:
            raise NotReplayedError(f"the shape of `{name}` is not declared")
        return self.plan.tensors[name].shape if name in self.plan.tensors else self.shapes[name]

    # ---- operators ----

    def operate(self, operator: Operator) -> Turns[None]:
        """Run one operator."""
        if isinstance(operator, Compute):
            yield from self._compute(operator)
        elif isinstance(operator, Backward):
            yield from self._backward(operator)
        elif isinstance(operator, Communicate):
            yield from self._communicate(operator)
        elif isinstance(operator, Send | Receive):
            yield from self._message(operator)
        elif isinstance(operator, ReduceGradients):
            yield from self._reduce(operator)
        elif isinstance(operator, Update):
            for weight in operator.weights:
                self.updated.setdefault(weight, self.accumulated.get(weight))
        elif isinstance(operator, Wait | Record | Await):
            return
        else:
            raise AssertionError(f"an operator of a kind that is not run: {operator}")

    def _operands(self, compute: Compute) -> Turns[list[Array]]:
        found: list[Array] = []
        for operand in compute.inputs:
            if isinstance(operand, str):
                value = yield from self.read(operand)
                is_mask = len(found) == _MASK and has_trait(compute.op, Trait.ATTENTION)
                found.append(self._as_addend(operand, value) if is_mask else value)
        return found

    def _as_addend(self, name: str, mask: Array) -> Array:
        """Return a mask of attention as numbers to add to scores."""
        import numpy as np

        tensor = self.plan.tensors.get(name)
        dtype = tensor.dtype.rsplit(".", 1)[-1] if tensor is not None else ""
        if not dtype:
            raise NotReplayedError(f"`{name}` may hold flags or numbers")
        return np.where(mask != 0, 0.0, -np.inf) if dtype == "bool" else mask

    def _compute(self, operator: Compute) -> Turns[None]:
        operator = as_new(as_of_flags(operator, self.plan.tensors), self.plan.tensors)
        operands = yield from self._operands(operator)
        if operator.in_place and not operator.outputs:
            overwritten = tuple(str(operator.inputs[place]) for place in operator.in_place)
            operator = replace(operator, outputs=overwritten, in_place=())
        declared = [self.plan.tensors[name].shape if name in self.plan.tensors else None for name in operator.outputs]
        results = self._forward(operator, operands, declared)
        for name, value in zip(operator.outputs, results, strict=True):
            self.shapes[name] = value.shape
            self.world.watch(self.rank, operator, name, value)
            yield from self.write(name, value, operator.inputs)

    def _forward(self, compute: Compute, operands: list[Array], declared: list[tuple[int, ...] | None]) -> tuple[Array, ...]:
        memory, stand_ins = self.world.memory, self.world.stand_ins
        make = partial(forward, compute, operands, declared, stand_ins)
        return make() if memory is None else memory.recall(compute, ("forward", *declared), operands, make, stand_ins)

    def _gradients(
        self,
        compute: Compute,
        operands: list[Array],
        shapes: list[tuple[int, ...]],
        incoming: dict[int, Array],
        wanted: list[int],
    ) -> dict[int, Array]:
        memory, stand_ins = self.world.memory, self.world.stand_ins
        make = partial(gradients, compute, operands, shapes, incoming, wanted, stand_ins)
        asked = ("gradients", tuple(shapes), tuple(incoming), tuple(wanted))
        return make() if memory is None else memory.recall(compute, asked, [*operands, *incoming.values()], make, stand_ins)

    def _backward(self, operator: Backward) -> Turns[None]:
        operands = yield from self._operands(operator.forward)
        incoming: dict[int, Array] = {}
        for at, name in enumerate(operator.inputs):
            if name and name not in self.world.zeros:
                value = yield from self.read(name)
                incoming[at] = in_shape(value, self.shape(operator.forward.outputs[at]))
        wanted = [at for at, name in enumerate(operator.outputs) if name]
        shapes = [self.shape(name) for name in operator.forward.outputs]
        found = self._gradients(operator.forward, operands, shapes, incoming, wanted)
        for at in wanted:
            self.world.watch(self.rank, operator, operator.outputs[at], found[at])
            name = operator.outputs[at]
            value = in_shape(found[at], self.plan.tensors[name].shape) if name in self.plan.tensors else found[at]
            yield from self.write(name, value, ())

    def _members(self, group: Group, everywhere: bool = False) -> tuple[int, ...]:
        group = self.plan.declared(group)
        if not group.ranks:
            return self.plan.mesh.along(self.rank, group.axes)
        stride = self.plan.replication.stride
        shifts = [replica * stride for replica in range(self.plan.replication.count)] if everywhere else [self.shift]
        return tuple(sorted({rank + shift for rank in group.ranks for shift in shifts}))

    def _communicate(self, operator: Communicate) -> Turns[None]:
        values: list[Array | None] = []
        for name in operator.inputs:
            value = yield from self.read(name)
            values.append(value)
        members = self._members(operator.group)
        post = Post(operator, values)
        self.world.post(("collective", members, operator.group.name), self.rank, post, members)
        for at, name in enumerate(operator.outputs):
            yield from self.write(name, _Pending(post, at), operator.inputs)

    def _message(self, operator: Send | Receive) -> Turns[None]:
        other = self.plan.peer(operator.peer, self.rank)
        if other is None:
            return
        other += self.shift if operator.peer.rank is not None else 0
        sends = isinstance(operator, Send)
        value = (yield from self.read(operator.tensor)) if sends else None
        post = Post(operator, [value])
        ends = (self.rank, other) if sends else (other, self.rank)
        side = 0 if sends else 1
        self.world.post(("message", ends, operator.tag), side, post, (0, 1))
        if not sends:
            yield from self.write(operator.tensor, _Pending(post, 0), (operator.tensor,))

    def _reduce(self, operator: ReduceGradients) -> Turns[None]:
        members = self._members(operator.group, operator.replicated)
        values: list[Array | None] = []
        for weight in operator.weights:
            held = self.accumulated.get(weight)
            values.append(None if held is None else (yield from self.arrived(held)))
        post = Post(operator, values)
        self.world.post(("reducer", members, operator.group.name), self.rank, post, members)
        for at, weight in enumerate(operator.weights):
            self.accumulated[weight] = _Pending(post, at)
