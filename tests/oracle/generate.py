"""Correct parallel plans beside their reference plan, composed at random out of legal rewrites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from oracle.models import Layer, embedding, head, llama_layer, mlp_layer, moe_layer
from oracle.trace import Trace
from tvlint.ir.mesh import Axis, Mesh
from tvlint.ir.operators import Collective, Communicate, Compute, Group, Operator, Peer, Receive, ReduceGradients, Send
from tvlint.ir.plan import Phase, Plan, Program, Replication, Role, Segment, Step, Tensor

WORDS, LENGTH = 8, 4


@dataclass(frozen=True, slots=True)
class Model:
    """A stack of layers with what stands before and after it."""

    kind: str
    layers: tuple[Layer, ...]
    tail: str
    split_embedding: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """How a model is run in parallel; `rows` is the size of one micro-batch of one replica."""

    dp: int = 1
    pp: int = 1
    tp: int = 1
    nm: int = 1
    rows: int = 2
    pieces: bool = False
    interleaved: bool = True
    loss_home: bool = True

    @property
    def ranks(self) -> int:
        return self.dp * self.pp * self.tp

    def rank(self, stage: int, index: int) -> int:
        return stage * self.tp + index


@dataclass(frozen=True, slots=True)
class Pair:
    """A reference plan and a plan that trains the same model."""

    name: str
    reference: Plan
    parallel: Plan
    way: Way


class _Export:
    """Collects the tensors, segments and steps of one plan."""

    def __init__(self, model: Model, way: Way) -> None:
        self.model, self.way = model, way
        self.tensors: dict[str, Tensor] = {}
        self.segments: dict[str, Segment] = {}
        self.made: dict[tuple[int, int], Trace] = {}

    def segment(
        self,
        rank: int,
        what: str,
        phase: Phase,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        operators: list[Operator],
        stage: int = -1,
    ) -> str:
        name = f"device {rank}/{what}"
        mirror = f"device {rank}/forward" if what == "backward" else ""
        self.segments[name] = Segment(name, phase, inputs, outputs, tuple(operators), stage, mirror)
        return name

    def data(self) -> str:
        sequences = self.model.kind == "llama"
        shape = (self.way.rows, LENGTH) if sequences else (self.way.rows, 4)
        region = tuple((0, size) for size in shape)
        dtype = "int64" if sequences else "float32"
        gradient = "" if sequences else "g.data"
        self.tensors["data"] = Tensor("data", shape, dtype, Role.INPUT, "data", shape, region, gradient=gradient)
        if gradient:
            self.tensors[gradient] = Tensor(gradient, shape, dtype, Role.GRADIENT, gradient_of="data")
        return "data"

    def stage(self, stage: int, index: int, layers: tuple[Layer, ...]) -> None:
        """The forward and backward segments of one pipeline stage on one of its ranks."""
        way, rank = self.way, self.way.rank(stage, index)
        ranks = tuple(way.rank(stage, i) for i in range(way.tp))
        trace = Trace(self.tensors, f"s{stage}r{index}", ranks, index)
        self.made[stage, index] = trace
        tokens = self.data()
        inputs = [tokens] if stage == 0 or self.model.kind == "llama" else []
        x = tokens
        if stage > 0:
            before = self.made[stage - 1, index]
            x = trace.declare(before.shape(self.leaving(stage - 1, index)))
            self.entering[stage, index] = x
            inputs.append(x)
        elif self.model.kind == "llama":
            x = embedding(trace, tokens, WORDS, 4, self.model.split_embedding)
        for layer in layers:
            x = layer.build(trace, x, tokens)
        if stage == way.pp - 1:
            x = self.loss(trace, head(trace, x, WORDS, self.model.tail))
        self.left[stage, index] = x
        gradient = self.tensors[x].gradient
        own = self.tensors[self.entering[stage, index]].gradient if stage > 0 else ""
        self.segment(rank, "forward", Phase.FORWARD, tuple(inputs), (x,), trace.forward, stage)
        back = trace.backward()
        self.segment(rank, "backward", Phase.BACKWARD, (gradient,), (own,) if own else (), back, stage)
        self.segment(rank, "data", Phase.DATA, (), (tokens,), [Compute("dataloader", (), (tokens,))], stage)

    def loss(self, trace: Trace, made: str) -> str:
        """The loss under one name on all ranks."""
        shape = trace.shape(made)
        self.tensors["loss"] = Tensor("loss", shape, "float32", Role.ACTIVATION, gradient="g.loss", requires_grad=True)
        self.tensors["g.loss"] = Tensor("g.loss", shape, "float32", Role.GRADIENT, gradient_of="loss")
        trace.rename(made, "loss")
        return "loss"

    entering: dict[tuple[int, int], str]
    left: dict[tuple[int, int], str]

    def leaving(self, stage: int, index: int) -> str:
        return self.left[stage, index]

    def boundary(self, stage: int, index: int) -> None:
        """The adapters that carry the activation from `stage` to the next one, and its gradient back."""
        out, into = self.left[stage, index], self.entering[stage + 1, index]
        self.carry(stage, stage + 1, index, out, into, Phase.FORWARD, "send", "receive")
        out, into = self.tensors[into].gradient, self.tensors[out].gradient
        self.carry(stage + 1, stage, index, out, into, Phase.BACKWARD, "send gradient", "receive gradient")

    def carry(self, source: int, target: int, index: int, x: str, y: str, phase: Phase, send: str, receive: str) -> None:
        way = self.way
        one, two = way.rank(source, index), way.rank(target, index)
        shape = self.tensors[x].shape
        if not (way.pieces and way.tp > 1 and shape[-1] % way.tp == 0):
            self.segment(one, send, phase, (x,), (), [Send(x, Peer(two))])
            self.segment(two, receive, phase, (), (y,), [Receive(y, Peer(one))])
            return
        dim, size = len(shape) - 1, shape[-1] // way.tp
        piece, other = f"{x}.piece", f"{y}.piece"
        for name, whole in ((piece, x), (other, y)):
            self.tensors[name] = Tensor(name, (*shape[:-1], size), "float32", self.tensors[whole].role)
        from_group = Group(ranks=tuple(way.rank(source, i) for i in range(way.tp)))
        to_group = Group(ranks=tuple(way.rank(target, i) for i in range(way.tp)))
        cut = Communicate(Collective.CHUNK, (x,), (piece,), from_group, dim=dim)
        self.segment(one, send, phase, (x,), (), [cut, Send(piece, Peer(two))])
        join = Communicate(Collective.ALL_GATHER, (other,), (y,), to_group, dim=dim)
        self.segment(two, receive, phase, (), (y,), [Receive(other, Peer(one)), join])

    def reducers(self, stage: int, index: int) -> None:
        """Reduction over the replicas, and over the tensor-parallel group where gradients stay partial."""
        way, rank = self.way, self.way.rank(stage, index)
        partial = {name for layer in self.model.layers for name in layer.partial} if way.tp > 1 else set()
        own = sorted({w for t in [self.made[stage, index]] for w in _weights(t)})
        alone = tuple(w for w in own if self.tensors[w].logical not in partial)
        shared = tuple(w for w in own if self.tensors[w].logical in partial)
        group = Group(ranks=tuple(way.rank(stage, i) for i in range(way.tp)))
        operators: list[Operator] = []
        if alone and way.dp > 1:
            operators.append(ReduceGradients(alone, Group(ranks=(rank,)), divisor=1, replicated=True))
        if shared:
            operators.append(ReduceGradients(shared, group, divisor=1, replicated=way.dp > 1))
        for number, operator in enumerate(operators):
            self.segment(rank, f"reducer {number}", Phase.REDUCE, (), (), [operator])

    def steps(self, stage: int, index: int) -> tuple[Step, ...]:
        """The schedule of one rank: all forwards first, or one forward and one backward in turn."""
        way, rank = self.way, self.way.rank(stage, index)
        order = _order(stage, way)
        runs: list[tuple[str, int]] = []
        for kind, batch in order:
            if kind == "forward":
                runs += [("data", batch), ("receive", batch), ("forward", batch), ("send", batch)]
            else:
                runs += [("receive gradient", batch), ("backward", batch), ("send gradient", batch)]
        if way.interleaved:
            _receive_early(runs)
        if way.loss_home and way.pp > 1:
            runs += [("loss", batch) for batch in range(way.nm)]
        found = [self.step(f"device {rank}/{what}", batch) for what, batch in runs if f"device {rank}/{what}" in self.segments]
        found += [Step(name, -1, (), ()) for name in self.segments if name.startswith(f"device {rank}/reducer")]
        return tuple(found)

    def step(self, name: str, batch: int) -> Step:
        segment = self.segments[name]
        return Step(name, batch, *(tuple(self.outside(n, batch) for n in names) for names in (segment.inputs, segment.outputs)))

    def outside(self, name: str, batch: int) -> str:
        """The name of a micro-batch's value; the first micro-batch has the segment's own names."""
        if batch == 0 or not name:
            return name
        tensor, other = self.tensors[name], f"{name}@{batch}"
        if other not in self.tensors:
            gradient, of = (f"{link}@{batch}" if link else "" for link in (tensor.gradient, tensor.gradient_of))
            self.tensors[other] = replace(tensor, name=other, gradient=gradient, gradient_of=of)
        return other

    def losses(self, index: int) -> None:
        """The loss goes home to the first stage."""
        way = self.way
        loss = self.left[way.pp - 1, index]
        if way.pp > 1 and way.loss_home:
            one, two = way.rank(way.pp - 1, index), way.rank(0, index)
            self.segment(one, "loss", Phase.FORWARD, (loss,), (), [Send(loss, Peer(two))])
            self.segment(two, "loss", Phase.FORWARD, (), (loss,), [Receive(loss, Peer(one))])


def _weights(trace: Trace) -> list[str]:
    names = [o for operator in trace.forward for o in getattr(operator, "inputs", ()) if isinstance(o, str)]
    return [name for name in names if trace.tensors[name].role is Role.WEIGHT]


def _order(stage: int, way: Way) -> list[tuple[str, int]]:
    if not way.interleaved:
        return [("forward", m) for m in range(way.nm)] + [("backward", m) for m in range(way.nm)]
    warm = min(way.pp - 1 - stage, way.nm)
    found = [("forward", m) for m in range(warm)]
    for m in range(way.nm - warm):
        found += [("forward", warm + m), ("backward", m)]
    return found + [("backward", m) for m in range(way.nm - warm, way.nm)]


def _receive_early(runs: list[tuple[str, int]]) -> None:
    """Puts each receive that follows a gradient's departure in front of it, so that sends may wait for their receive."""
    for i, (kind, _) in enumerate(runs):
        if kind == "send gradient" and i + 2 < len(runs) and runs[i + 2][0] == "receive":
            runs[i : i + 3] = [runs[i + 1], runs[i + 2], runs[i]]


def export(model: Model, way: Way) -> Plan:
    """The plan that runs `model` in the given way."""
    to = _Export(model, way)
    to.entering, to.left = {}, {}
    share = -(-len(model.layers) // way.pp)
    for stage in range(way.pp):
        for index in range(way.tp):
            to.stage(stage, index, model.layers[stage * share : (stage + 1) * share])
    for stage in range(way.pp):
        for index in range(way.tp):
            if stage + 1 < way.pp:
                to.boundary(stage, index)
            to.reducers(stage, index)
    for index in range(way.tp):
        to.losses(index)
    programs = tuple(
        Program((way.rank(stage, index),), to.steps(stage, index)) for stage in range(way.pp) for index in range(way.tp)
    )
    losses = tuple(to.outside("loss", batch) for batch in range(way.nm))
    axes = (Axis("dp", way.dp), Axis("pp", way.pp), Axis("tp", way.tp))
    replication = Replication("dp", way.dp, way.pp * way.tp if way.dp > 1 else 0)
    name = f"{model.kind} dp{way.dp} pp{way.pp} tp{way.tp} nm{way.nm}"
    return Plan(name, "plan-json", Mesh(axes), to.tensors, to.segments, programs, replication, way.nm, losses, name=name)


KINDS: dict[str, Callable[[int, Random, int], Layer]] = {"mlp": mlp_layer, "llama": llama_layer, "moe": moe_layer}


def pair(kind: str, way: Way, seed: int = 0, layers: int | None = None) -> Pair:
    """The model of this kind and seed, run in the given way, beside its reference."""
    random = Random(f"{kind} {seed}")
    count = layers if layers is not None else max(way.pp, 2 if kind == "mlp" else 1)
    made = tuple(KINDS[kind](number, random, way.tp) for number in range(count))
    tail = random.choice(("partial", "gathered", "whole"))
    model = Model(kind, made, tail, random.random() < 0.7)
    reference = export(model, Way(rows=way.rows * way.dp * way.nm))
    return Pair(f"{kind} seed {seed} {way}", reference, export(model, way), way)


def random_pair(seed: int) -> Pair:
    """A random small model in a random correct parallelisation."""
    random = Random(seed)
    kind = random.choices(("mlp", "llama", "moe"), (4, 3, 2))[0]
    dp, pp, tp, nm = (random.choices((1, 2, 3), (4, 5, 1))[0] for _ in range(4))
    tp = random.choice((1, 2, 2, 4) if kind != "llama" else (1, 2, 2))
    if dp * pp * tp > 12:
        dp = 1
    rows = 4 if tp == 4 and kind == "mlp" else 2
    flags = [random.random() < 0.5 for _ in range(3)]
    way = Way(dp, pp, tp, nm, rows, *flags)
    return pair(kind, way, seed)
