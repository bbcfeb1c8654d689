"""Runs a plan, every rank of every replica, on small real numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from oracle.functions import Array, FailureError, forward, rounded
from oracle.gradients import backward
from oracle.pieces import box_of, combine, cut, exchange, logical_array, start_value
from tvlint.ir.operators import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
    Operator,
    Peer,
    Receive,
    ReduceGradients,
    Send,
    Update,
    Wait,
)
from tvlint.ir.plan import Phase, Plan, Role, Segment, Step

FROM_ROOT = (Collective.BROADCAST, Collective.SCATTER)
TO_ROOT = (Collective.REDUCE, Collective.GATHER)
"""Collectives that give nothing to ranks other than their root."""


class DeadlockError(Exception):
    """No rank can go on."""


@dataclass(slots=True)
class Post:
    """One side of a communication: complete once all sides are there."""

    operator: Any
    values: list[Array | None]
    done: bool = False
    results: list[Array | None] = field(default_factory=list)


Handles: TypeAlias = "dict[tuple[str, int], list[tuple[Post, tuple[str, ...]]]]"
"""What is under way on one rank, by its handle and its micro-batch."""


def _ended(handles: Handles, handle: str, micro_batch: int) -> list[tuple[Post, tuple[str, ...]]]:
    """What a wait completes: what has the handle in its own micro-batch, else in the one that started it first."""
    key = next((own for own in ((handle, micro_batch), *handles) if own in handles and own[0] == handle), None)
    if key is None:
        raise FailureError(f"nothing to wait for: `{handle}`")
    return handles.pop(key)


def _accumulators(plan: Plan) -> dict[str, str]:
    """The weight of each name under which gradients add up: the name that the weight gives, where anything makes it."""
    made = {name for part in plan.segments.values() for own in part.operators for name in getattr(own, "outputs", ())}
    made |= {own.tensor for part in plan.segments.values() for own in part.operators if isinstance(own, Receive)}
    found = {}
    for name, tensor in plan.tensors.items():
        if tensor.role is Role.WEIGHT and tensor.gradient:
            found[tensor.gradient] = name
        weight = plan.tensors.get(tensor.gradient_of)
        if weight is not None and weight.role is Role.WEIGHT and (weight.gradient in ("", name) or weight.gradient not in made):
            found[name] = weight.name
    return found


class Run:
    def __init__(self, plan: Plan, batch: dict[str, tuple[int, ...]], below: int, seed: int, buffered: bool) -> None:
        self.plan, self.batch, self.below, self.seed, self.buffered = plan, batch, below, seed, buffered
        self.channels: dict[object, dict[int, deque[Post]]] = {}
        self.accumulated: dict[int, dict[str, Array]] = {}
        self.held: dict[int, set[str]] = {}
        self.losses: dict[tuple[int, object], list[Array]] = {}
        self.claims: set[str] = set()
        self.progress = 0
        self.updated: dict[int, dict[str, Array | None]] = {}
        self.left: dict[int, dict[str, Array]] = {}
        self.made_of: dict[int, dict[str, frozenset[str]]] = {}
        self.weight_of = _accumulators(plan)
        self.loss_gradients = self._loss_gradients()
        self.loaded = self._loaded()

    def _loaded(self) -> set[str]:
        """The inputs that are loaded; the others are there from the start, where they are placed."""
        loaded = {name for own in self.plan.segments.values() if own.phase is Phase.DATA for name in own.outputs}
        return set(self.plan.tensors) if loaded else set()

    def _loss_gradients(self) -> set[str]:
        losses = {*self.plan.outputs}
        for program in self.plan.programs:
            for step in program.steps:
                segment = self.plan.segments[step.segment]
                for own, outside in zip(segment.outputs, step.outputs or segment.outputs, strict=False):
                    if outside in losses:
                        losses.add(own)
        named = {name for name, tensor in self.plan.tensors.items() if tensor.gradient_of in losses}
        return named | {self.plan.tensors[name].gradient for name in losses if name in self.plan.tensors} - {""}

    def members(self, group: Group, rank: int, replica: int, everywhere: bool = False) -> tuple[int, ...]:
        if group.name and not group.ranks and not group.axes:
            group = next((each for each in self.plan.communicators if each.name == group.name), group)
        if not group.ranks:
            return self.plan.mesh.along(rank, group.axes)
        replication = self.plan.replication
        shifts = range(replication.count) if everywhere else (replica,)
        return tuple(sorted({r + shift * replication.stride for r in group.ranks for shift in shifts}))

    def peer(self, peer: Peer, rank: int, replica: int) -> int | None:
        if peer.rank is not None:
            return peer.rank + replica * self.plan.replication.stride
        own = self.plan.mesh.coordinates(rank)
        at, size = own[peer.axis] + peer.offset, self.plan.mesh.axis_size(peer.axis)
        return self.plan.mesh.rank({**own, peer.axis: at % size}) if peer.wrap or 0 <= at < size else None

    def post(self, channel: object, rank: int, post: Post, parties: tuple[int, ...]) -> Post:
        self.progress += 1
        queues = self.channels.setdefault(channel, {})
        queues.setdefault(rank, deque()).append(post)
        while all(queues.get(party) for party in parties):
            posts = [queues[party].popleft() for party in parties]
            self._complete(posts, parties)
        return post

    def _complete(self, posts: list[Post], parties: tuple[int, ...]) -> None:
        first = posts[0].operator
        if isinstance(first, Send | Receive):
            send, receive = posts if isinstance(first, Send) else posts[::-1]
            if not isinstance(send.operator, Send) or not isinstance(receive.operator, Receive):
                raise FailureError("two sends or two receives meet")
            if send.operator.tag != receive.operator.tag:
                raise FailureError("a send and a receive of different tags meet")
            receive.results = send.values
        elif any(type(each.operator) is not type(first) for each in posts):
            raise FailureError("a collective meets a reducer")
        elif isinstance(first, Communicate):
            columns = zip(*[each.values for each in posts], strict=True) if len({len(p.values) for p in posts}) == 1 else None
            if columns is None:
                raise FailureError("members give different numbers of tensors")
            rows = [exchange([each.operator for each in posts], list(column), parties) for column in columns]
            for index, each in enumerate(posts):
                each.results = [row[index] for row in rows]
        else:
            if len({len(each.values) for each in posts}) > 1:
                raise FailureError("reducers over different numbers of weights meet")
            if len({(each.operator.reduce, each.operator.divisor) for each in posts}) > 1:
                raise FailureError("reducers of different kinds meet")
            for each in posts:
                summed = [
                    combine([v for v in column if v is not None], first.reduce)
                    for column in zip(*[p.values for p in posts], strict=True)
                ]
                each.results = [value / (first.divisor or 1) for value in summed]
        for each in posts:
            each.done = True

    def rank(self, rank: int, replica: int, steps: tuple[Step, ...]) -> Iterator[None]:
        outside: dict[object, Array] = {}
        saved: dict[int, dict[str, Array]] = {}
        handles: Handles = {}
        weights: dict[str, Array] = {}
        self.accumulated[rank], self.held[rank] = {}, set()
        self.updated[rank], self.made_of[rank], self.left[rank] = {}, {}, {}
        for step in steps:
            segment = self.plan.segments[step.segment]
            names_in = segment.inputs if step.inputs is None else step.inputs
            names_out = segment.outputs if step.outputs is None else step.outputs
            if len(names_in) != len(segment.inputs) or len(names_out) != len(segment.outputs):
                raise FailureError(f"a step of `{segment.name}` names other values than it has")
            batch = max(step.micro_batch, 0) if self.plan.micro_batches == 1 else step.micro_batch
            before = [name if step.inputs is not None else (batch, name) for name in names_in]
            after = [name if step.outputs is not None else (batch, name) for name in names_out]
            body = {own: outside[key] for own, key in zip(segment.inputs, before, strict=True) if key in outside}
            for own, outer in zip(segment.inputs, names_in, strict=True):
                self.made_of[rank][own] = self.made_of[rank].get(outer, frozenset())
            if segment.phase is Phase.DATA:
                for own in segment.outputs:
                    body[own] = self._data(own, rank, replica, max(step.micro_batch, 0))
            memory = saved.setdefault(batch, {})
            turn = (replica, max(step.micro_batch, 0))
            yield from self._body(segment, rank, turn, body, memory, weights, handles)
            if segment.phase is not Phase.BACKWARD:
                memory.update(body)
            made = {name for operator in segment.operators for name in getattr(operator, "outputs", ())}
            at_root = {name for own in segment.operators if getattr(own, "kind", None) in TO_ROOT for name in own.outputs}
            made |= {operator.tensor for operator in segment.operators if isinstance(operator, Receive)}
            for own, outer in zip(segment.outputs, names_out, strict=True):
                self.made_of[rank][outer] = self.made_of[rank].get(own, frozenset())
            for own, key in zip(segment.outputs, after, strict=True):
                if own in self.left[rank]:
                    continue
                if own not in body:
                    if own in self.weight_of and self.weight_of[own] in self.accumulated[rank]:
                        continue
                    if not self._is_gradient(own) and own not in at_root:
                        raise FailureError(f"`{own}` leaves `{segment.name}` and is never made")
                    continue
                if key in outside and key not in before:
                    self.claims.add("a value is made twice") if not self._is_gradient(own) else None
                    outside[key] = outside[key] + body[own] if self._is_gradient(own) else body[own]
                else:
                    outside[key] = body[own]
                name = key if isinstance(key, str) else key[1]
                if name in self.plan.outputs:
                    self.losses.setdefault((replica, key), []).append(body[own])

    def _accumulate(self, rank: int, weight: str, value: Array, replaces: bool) -> None:
        if value.shape != self.plan.tensors[weight].shape:
            raise FailureError(f"a gradient of shape {value.shape} for `{weight}`")
        known = self.accumulated[rank].get(weight)
        self.accumulated[rank][weight] = value if known is None or replaces else known + value

    def _made_of(self, rank: int, inputs: tuple[Any, ...]) -> frozenset[str]:
        """The weights out of whose gradients the operands are made."""
        names = [name for name in inputs if isinstance(name, str)]
        own = frozenset(self.weight_of[name] for name in names if name in self.weight_of)
        return own.union(*(self.made_of[rank].get(name, frozenset()) for name in names))

    def _is_gradient(self, name: str) -> bool:
        tensor = self.plan.tensors.get(name)
        return tensor is not None and tensor.role is Role.GRADIENT

    def _data(self, name: str, rank: int, replica: int, micro_batch: int) -> Array:
        """The rank's piece of what its replica has of the batch for the micro-batch."""
        tensor = self.plan.tensors[name]
        logical = tensor.logical or tensor.name
        whole = self.batch.get(logical)
        part, box = box_of(tensor, self.plan, rank)
        if whole is None or len(whole) != len(part):
            raise FailureError(f"the reference has no data `{logical}`")
        value = logical_array(logical, whole, tensor.dtype, self.below, self.seed)
        slot = replica * self.plan.micro_batches + micro_batch
        for dim, (size, local) in enumerate(zip(whole, part, strict=True)):
            if (slot + 1) * local > size and local != size:
                raise FailureError(f"slot {slot} of `{logical}` lies outside the batch")
            if local != size:
                value = np.take(value, range(slot * local, (slot + 1) * local), axis=dim)
        return rounded(value[tuple(slice(low, high) for low, high in box)], tensor.dtype)

    def _body(
        self,
        segment: Segment,
        rank: int,
        turn: tuple[int, int],
        body: dict[str, Array],
        memory: dict[str, Array],
        weights: dict[str, Array],
        handles: Handles,
    ) -> Iterator[None]:
        replica, micro_batch = turn

        def read(name: str, saved: bool = False) -> Array:
            tensor = self.plan.tensors.get(name)
            if tensor is not None and tensor.role in (Role.WEIGHT, Role.BUFFER, Role.STATE):
                self.held[rank].add(name)
                if name not in weights:
                    value = start_value(tensor, self.plan, rank, self.below, self.seed)
                    moment = tensor.role is Role.STATE and tensor.logical not in self.plan.tensors
                    weights[name] = np.abs(value) if moment else value
                return weights[name]
            if self.weight_of.get(name) in self.accumulated[rank]:
                return self.accumulated[rank][self.weight_of[name]]
            if name in body:
                return body[name]
            if saved and name in memory:
                return memory[name]
            if tensor is not None and tensor.role is Role.INPUT and name not in self.loaded:
                return self._data(name, rank, replica, micro_batch)
            if name in self.loss_gradients and tensor is not None:
                return np.ones(tensor.shape)
            if self._is_gradient(name) and tensor is not None:
                return np.zeros(tensor.shape)
            raise FailureError(f"`{name}` is read in `{segment.name}` and not there")

        def write(name: str, value: Array, inputs: tuple[Any, ...]) -> None:
            in_place = name in inputs
            self.made_of[rank][name] = own = self._made_of(rank, inputs)
            tensor = self.plan.tensors.get(name)
            if tensor is not None and {tensor.shape, value.shape} <= {(), (1,)}:
                value = value.reshape(tensor.shape)
            if tensor is not None and tensor.shape != value.shape:
                self.claims.add(f"`{name}` has shape {value.shape}, declared {tensor.shape}")
            if tensor is not None and tensor.role in (Role.WEIGHT, Role.STATE):
                if tensor.shape != value.shape:
                    raise FailureError(f"`{name}` of shape {tensor.shape} is given {value.shape}")
                weights[name] = self.left[rank][name] = value
                return
            if name in self.weight_of:
                self._accumulate(rank, self.weight_of[name], value, in_place or self.weight_of[name] in own)
                return
            if name in body and self._is_gradient(name) and not in_place:
                if body[name].shape != value.shape:
                    raise FailureError(f"`{name}` sums shapes {body[name].shape} and {value.shape}")
                value = body[name] + value
            elif name in body:
                self.claims.add(f"`{name}` is made twice")
            body[name] = value

        def operands(operator: Compute, saved: bool) -> list[Any]:
            return [o.value if isinstance(o, Literal) else read(o, saved) for o in operator.inputs]

        def issue(operator: Operator) -> tuple[Post, tuple[str, ...]] | None:
            return self._issue(operator, rank, replica, read)

        for batch, run in groupby(segment.operators, key=lambda each: getattr(each, "batch", "")):
            group = list(run)
            if batch:
                together = [found for each in group if (found := issue(each)) is not None]
                for post, outputs in together:
                    yield from self._await(post)
                    self._deliver(post, outputs, write)
                continue
            for operator in group:
                if isinstance(operator, Compute) and segment.phase is Phase.DATA:
                    continue
                if isinstance(operator, Compute):
                    given = operator.outputs or tuple(str(operator.inputs[at]) for at in operator.in_place)
                    found = self._forward(operator, operands(operator, False), len(given))
                    for name, value in zip(given, found, strict=True):
                        write(name, value, operator.inputs)
                elif isinstance(operator, Backward):
                    for name, value in self._backward(operator, operands(operator.forward, True), read):
                        write(name, value, ())
                elif isinstance(operator, Wait):
                    for post, outputs in _ended(handles, operator.handle, micro_batch):
                        yield from self._await(post)
                        self._deliver(post, outputs, write)
                elif isinstance(operator, ReduceGradients):
                    yield from self._reduce(operator, rank, replica)
                    if operator.handle:
                        handles.setdefault((operator.handle, micro_batch), []).append((Post(operator, [], True), ()))
                elif isinstance(operator, Update):
                    for weight in operator.weights:
                        self.updated[rank].setdefault(weight, self.accumulated[rank].get(weight))
                elif isinstance(operator, Communicate | Send | Receive):
                    if isinstance(operator, Communicate) and operator.kind is Collective.CHUNK:
                        members = self.members(operator.group, rank, replica)
                        if rank not in members:
                            raise FailureError(f"rank {rank} cuts for {members}")
                        pieces = cut(read(operator.inputs[0]), operator.dim, len(members), operator.splits)
                        write(operator.outputs[0], pieces[members.index(rank)], operator.inputs)
                        continue
                    issued = issue(operator)
                    if issued is None:
                        continue
                    if operator.handle:
                        handles.setdefault((operator.handle, micro_batch), []).append(issued)
                        continue
                    yield from self._await(issued[0])
                    self._deliver(*issued, write)

    def _forward(self, operator: Compute, values: list[Any], count: int) -> tuple[Array, ...]:
        found = forward(operator.op, values, operator.attributes)
        if len(found) != count:
            raise FailureError(f"`{operator.op}` gives {len(found)} values, not {len(operator.outputs)}")
        return found

    def _backward(self, operator: Backward, values: list[Any], read: Any) -> Iterator[tuple[str, Array]]:
        outputs = self._forward(operator.forward, values, len(operator.forward.outputs))
        if len(operator.inputs) != len(outputs):
            raise FailureError("a backward operator with another number of gradients")
        incoming = [read(name) if name else np.zeros(y.shape) for name, y in zip(operator.inputs, outputs, strict=True)]
        found = backward(operator.forward.op, values, outputs, incoming, operator.forward.attributes)
        to_tensors = [g for g, o in zip(found, operator.forward.inputs, strict=True) if isinstance(o, str)]
        if len(operator.outputs) > len(to_tensors):
            raise FailureError("a backward operator with surplus gradients")
        for name, gradient in zip(operator.outputs, to_tensors, strict=False):
            if not name:
                continue
            if gradient is None:
                raise FailureError(f"`{name}` does not exist")
            yield name, gradient

    def _issue(self, operator: Operator, rank: int, replica: int, read: Any) -> tuple[Post, tuple[str, ...]] | None:
        if isinstance(operator, Send | Receive):
            other = self.peer(operator.peer, rank, replica)
            if other is None:
                return None
            sending = isinstance(operator, Send)
            parties = (rank, other) if sending else (other, rank)
            channel = ("p2p", parties, operator.communicator)
            if sending and self.buffered:
                post = Post(operator, [read(operator.tensor)])
                self.post(channel, rank, post, parties)
                return None
            values = [read(operator.tensor)] if sending else []
            if rank == other:
                raise FailureError(f"rank {rank} sends to itself")
            post = self.post(channel, rank, Post(operator, values), parties)
            return post, () if sending else (operator.tensor,)
        if isinstance(operator, Communicate):
            members = self.members(operator.group, rank, replica)
            if operator.root is not None:
                operator = replace(operator, root=operator.root + replica * self.plan.replication.stride)
            if rank not in members:
                raise FailureError(f"rank {rank} takes part in a collective of {members}")
            receives = operator.kind in FROM_ROOT and operator.root in members and operator.root != rank
            values = [None] if receives else [read(name) for name in operator.inputs] or [None]
            post = self.post((members, operator.group.name), rank, Post(operator, list(values)), members)
            return post, operator.outputs
        raise FailureError("an operator that cannot be issued")

    def _deliver(self, post: Post, outputs: tuple[str, ...], write: Any) -> None:
        if isinstance(post.operator, Send):
            return
        for name, value in zip(outputs, post.results, strict=False):
            if value is None and getattr(post.operator, "kind", None) in TO_ROOT:
                continue
            if value is None:
                raise FailureError(f"`{name}` receives nothing")
            tensor = self.plan.tensors.get(name)
            if isinstance(post.operator, Receive) and tensor is not None:
                if tensor.shape != value.shape:
                    raise FailureError(f"`{name}` of shape {tensor.shape} receives {value.shape}")
                value = rounded(value, tensor.dtype)
            write(name, value, getattr(post.operator, "inputs", ()))

    def _reduce(self, operator: ReduceGradients, rank: int, replica: int) -> Iterator[None]:
        members = self.members(operator.group, rank, replica, operator.replicated)
        if rank not in members:
            raise FailureError(f"rank {rank} reduces over {members}")
        for name in operator.weights:
            self.held[rank].add(name)
        own = self.accumulated[rank]
        values: list[Array | None] = [own.get(name, np.zeros(self.plan.tensors[name].shape)) for name in operator.weights]
        post = self.post((members, operator.group.name), rank, Post(operator, values), members)
        yield from self._await(post)
        own.update({name: value for name, value in zip(operator.weights, post.results, strict=True) if value is not None})

    def _await(self, post: Post) -> Iterator[None]:
        while not post.done:
            yield
        self.progress += 1
