"""The operators of one rank as a plan writes them, in runs of one phase and micro-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from tvlint.ir.location import Location
from tvlint.ir.operators import (
    Backward,
    Collective,
    Communicate,
    Compute,
    Group,
    Literal,
    Operand,
    Operator,
    Peer,
    Receive,
    Send,
    Value,
    Wait,
)
from tvlint.ops.families.shaping import AS_WIDE
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.readers.capture.lifting.factors import Factors, is_elementwise, is_of_the_table
from tvlint.readers.capture.lifting.lift import Call, GradientOf, Lifted, LiftedNode, inputs_of
from tvlint.readers.capture.lifting.program import End, Exchange, Message, Ref
from tvlint.readers.capture.tapes.tape import Mark

Shape = tuple[int, ...]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(slots=True)
class Run:
    """Operators that a rank runs in one go: all of one phase and micro-batch (-1: none), or one end of a message, or its wait.

    Schedules put the messages of a micro-batch between the computations of others, each in its own way at the beginning and at
    the end: apart from them all micro-batches compute the same.
    """

    phase: str
    micro_batch: int
    message: str = ""
    operators: list[Operator] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Written:
    """A call as it was written: the names and shapes of its tensor operands and of its results."""

    compute: Compute
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]


class Emitter:
    """Writes the operators of one rank.

    `named` are the names of values that are declared: weights, buffers, inputs, seeds, of which `data` differ between
    micro-batches; `pieces` are the shapes that they are declared with, where the rank reads them in another one. Every
    other value is named by its phase and its place among those of the phase in its micro-batch, so that
    micro-batches that do the same are written the same. What no data enters is written where a micro-batch reads it first,
    and so are gathered weights that several micro-batches read: programs make it once, and keep it.
    """

    def __init__(
        self, lifted: Lifted, factors: Factors, named: Mapping[str, str], pieces: Mapping[str, Shape], data: frozenset[str]
    ) -> None:
        self.lifted = lifted
        self.factors = factors
        self.types = lifted.program.types
        self.runs: list[Run] = []
        self.declared: dict[str, tuple[Shape, str]] = {}
        self.names: dict[tuple[str, int], str] = {}
        self.held: dict[tuple[str, int], Shape] = {}
        self.aliases: dict[str, str] = {}
        self.counts: dict[tuple[str, int], int] = {}
        self.views: dict[tuple[str, Shape, str, int], str] = {}
        self.turned: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.calls: dict[tuple[str, int], Written] = {}
        self.makers: dict[str, Call | Exchange] = {}
        self.kept: set[str] = set()
        self.fixed = dict(named)
        self.pieces = pieces
        self.data = data
        self.free: dict[str, bool] = {}
        self.titles: dict[str, str] = {}
        self.prefix = ""
        self.inside: Run | None = None
        self.handles: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.message = ""
        self.current = Mark()

    def emit(self, nodes: Sequence[LiftedNode]) -> None:
        """Write the nodes in order."""
        self.kept = self._kept(nodes)
        for node in nodes:
            self.current = node.mark
            self.message = ""
            if isinstance(node, Message):
                self.message = self.messages[node.handle] = f"{'send' if node.sends else 'receive'} {node.value}"
            elif isinstance(node, End) and node.handle in self.messages:
                self.message = f"wait for {self.messages[node.handle]}"
            self._emit(node)
        self.message = ""

    def _emit(self, node: LiftedNode) -> None:
        if isinstance(node, Call):
            self.makers.update(dict.fromkeys(node.outputs, node))
            if not self._is_free(node):
                self._call(node)
        elif isinstance(node, GradientOf):
            self._gradient(node)
        elif isinstance(node, Exchange):
            if not self.kept.issuperset(node.outputs):
                self._exchange(node)
        elif isinstance(node, Message):
            self._message(node)
        elif isinstance(node, End) and not self._is_of_kept(node):
            self._add(Wait(self._handle(node.handle), source=self._place()))

    def _kept(self, nodes: Sequence[LiftedNode]) -> set[str]:
        """Return what is gathered of weights in one micro-batch, and read in other ones as well."""
        gathered: dict[str, Exchange] = {}
        made_of: dict[str, set[str]] = {}
        kept: set[str] = set()
        for node in nodes:
            sources = set().union(*(made_of.get(self._root(name), ()) for name in inputs_of(node)))
            if isinstance(node, Exchange) and node.kind == Collective.ALL_GATHER.value:
                self.makers.update(dict.fromkeys(node.outputs, node))
                if self._is_free(node):
                    gathered.update(dict.fromkeys(node.outputs, node))
                    made_of.update((name, {name}) for name in node.outputs)
            elif isinstance(node, Call):
                self.makers.update(dict.fromkeys(node.outputs, node))
                made_of.update(dict.fromkeys(node.outputs, sources if self._is_free(node) else set()))
            kept.update(name for name in sources if gathered[name].mark.micro_batch != node.mark.micro_batch >= 0)
        return kept

    def _is_of_kept(self, end: End) -> bool:
        makers = (self.makers[name] for name in self.kept)
        return any(isinstance(maker, Exchange) and maker.handle == end.handle for maker in makers)

    # ---- runs and names ----

    def finish_run(self, value: str, name: str, shape: Shape, mark: Mark) -> None:
        """Give a value another name at the end of what its micro-batch runs in its phase."""
        self.current = mark
        key = mark.phase, mark.micro_batch, ""
        runs = [run for run in self.runs if (run.phase, run.micro_batch, run.message) == key]
        self.inside = runs[-1] if runs else None
        word = self.as_shape(value, shape)
        self._add(Compute("torch.clone", (word,), (name,), source=self._place()))
        self.inside = None

    def _run(self) -> Run:
        if self.inside is not None:
            return self.inside
        key = self.current.phase, self.current.micro_batch, self.message
        if not self.runs or (self.runs[-1].phase, self.runs[-1].micro_batch, self.runs[-1].message) != key:
            self.runs.append(Run(*key))
        return self.runs[-1]

    def _add(self, operator: Operator) -> None:
        self._run().operators.append(operator)

    def _place(self) -> Location | None:
        place = self.current.place
        if place is None:
            return None
        return replace(place, pointer=self.current.module) if self.current.module else place

    def _fresh(self, shape: Shape, dtype: str) -> str:
        key = self.current.phase[:1], self.current.micro_batch
        self.counts[key] = self.counts.get(key, -1) + 1
        name = f"{self.prefix}{key[0]}{self.counts[key]}"
        while name in self.pieces or self.declared.setdefault(name, (shape, dtype)) != (shape, dtype):
            name += "'"
        return name

    def _handle(self, handle: str) -> str:
        """Return the name of a handle, by its place among those of its micro-batch."""
        if not handle:
            return ""
        if handle not in self.handles:
            key = "h", self.current.micro_batch
            self.counts[key] = self.counts.get(key, -1) + 1
            self.handles[handle] = f"{self.prefix}h{self.counts[key]}"
        return self.handles[handle]

    def _name_handle(self, handle: str, name: str) -> None:
        """Name the handle of a message by its tensor, so that it is the same in whatever order messages are issued."""
        if handle:
            self.handles[handle] = f"{self.prefix}h.{name.removeprefix(self.prefix)}"

    def _root(self, value: str) -> str:
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def put(self, value: str, name: str, shape: Shape) -> None:
        """Say under which name and shape a value is held in the current micro-batch."""
        self.names[value, self.current.micro_batch] = name
        self.held[value, self.current.micro_batch] = shape

    def name_of(self, value: str) -> tuple[str, Shape]:
        """Return the name and the shape under which a value is held; what no data enters is made anew in each micro-batch."""
        value = self._root(value)
        if value in self.fixed:
            return self.fixed[value], self.pieces.get(self.fixed[value], self.types[value].shape)
        key = value, self.current.micro_batch
        if key not in self.names:
            maker = self.makers.get(value)
            if maker is None or not self._is_free(maker):
                raise CrossingError(value, self.current)
            here = self.current
            self.current = replace(maker.mark, phase=here.phase, micro_batch=here.micro_batch)
            if isinstance(maker, Call):
                self._call(maker)
            else:
                self._exchange(replace(maker, handle=""))
            self.current = here
            return self.name_of(value)
        return self.names[key], self.held[key]

    def _is_free(self, maker: Call | Exchange) -> bool:
        """Return whether no data enters a call, or what is gathered."""
        known = self.free.get(maker.outputs[0])
        if known is None:
            inputs = [each.name if isinstance(each, Ref) else each for each in maker.inputs if isinstance(each, Ref | str)]
            free = isinstance(maker, Exchange) or not any(name in self.titles for name in maker.outputs)
            known = free and all(map(self._is_constant, map(self._root, inputs)))
            self.free[maker.outputs[0]] = known
        return known

    def is_weight(self, value: str) -> bool:
        """Return whether a value is declared and the same in all micro-batches."""
        root = self._root(value)
        return root in self.fixed and self._is_constant(root)

    def _is_constant(self, value: str) -> bool:
        if value in self.fixed:
            return self.fixed[value] not in self.data
        maker = self.makers.get(value)
        return maker is not None and self._is_free(maker)

    def as_shape(self, value: str, shape: Shape) -> str:
        """Return the name of a value in a shape of as many elements."""
        name, held = self.name_of(value)
        if held == shape:
            return name
        key = name, shape, self.current.phase, self.current.micro_batch
        if key not in self.views:
            self.views[key] = self._fresh(shape, self.types[self._root(value)].dtype)
            view = Compute("torch.Tensor.view", (name, Literal(shape)), (self.views[key],), source=self._place())
            self._add(view)
        return self.views[key]

    def _result(self, value: str, shape: Shape) -> str:
        name = self.titles.get(value) or self._fresh(shape, self.types[value].dtype)
        self.declared.setdefault(name, (shape, self.types[value].dtype))
        self.put(value, name, shape)
        return name

    # ---- calls ----

    def _call(self, call: Call) -> None:
        function = _SPECIAL.get(call.op)
        tensors = sum(isinstance(argument, Ref) for argument in call.inputs)
        if function is not None and (tensors < _TENSORS.get(call.op, 0) or not is_of_the_table(call, self.types)):
            function = _Emit.as_called
        elif function is None and has_trait(call.op, Trait.NORMALISATION):
            function = _Emit.norm
        elif function is None:
            function = _Emit.elementwise if is_elementwise(call, self.types) else _Emit.as_called
        function(_Emit(self, call))
        for value in self.aliases.keys() & set(call.outputs) & self.titles.keys():
            self._title(call, value)

    def _title(self, call: Call, value: str) -> None:
        """Write a value that is returned, and is another one of which nothing was left to write."""
        name, shape = self.name_of(value)
        del self.aliases[value]
        self.finish(
            call, Compute("torch.clone", (name,), (self._result(value, shape),), source=self._place()), [shape], [shape]
        )

    def write(self, call: Call, operands: Sequence[Shape], results: Sequence[Shape], **changed: Value) -> None:
        """Write a call on operands of these shapes, with results of these, and with attributes changed."""
        shapes, inputs = iter(operands), list[Operand]()
        for argument in call.inputs:
            inputs.append(self.as_shape(argument.name, next(shapes)) if isinstance(argument, Ref) else Literal(argument.value))
        outputs = tuple(self._result(value, shape) for value, shape in zip(call.outputs, results, strict=True))
        attributes = {key: value for key, value in {**call.attributes, **changed}.items() if value is not None}
        compute = Compute(call.op, tuple(inputs), outputs, attributes, source=self._place())
        self.finish(call, compute, operands, results)

    def finish(self, call: Call, compute: Compute, operands: Sequence[Shape], results: Sequence[Shape]) -> None:
        """Add what was written for a call."""
        self._add(compute)
        self.calls[call.outputs[0], self.current.micro_batch] = Written(compute, tuple(operands), tuple(results))

    def _gradient(self, node: GradientOf) -> None:
        written = self.calls.get((node.forward.outputs[0], node.mark.micro_batch))
        if written is None and node.forward.outputs[0] in self.aliases and all((*node.inputs, *node.outputs)):
            self.aliases.update(zip(node.outputs, node.inputs, strict=True))
            return
        if written is None:
            raise CrossingError(node.forward.outputs[0], node.mark)
        inputs = tuple(
            self._gradient_given(value, shape, written.compute) if value else ""
            for value, shape in zip(node.inputs, written.results, strict=False)
        )
        outputs = tuple(
            self._result(value, shape) if value else "" for value, shape in zip(node.outputs, written.operands, strict=False)
        )
        self._add(Backward(written.compute, inputs, outputs, source=self._place()))

    def _gradient_given(self, value: str, shape: Shape, forward: Compute) -> str:
        """Return the gradient that goes back through an operator, as a value of its own where a pass starts with it at another.

        A sum of losses gives what a pass starts with to each of them as it is.
        """
        given = self.as_shape(value, shape)
        if self._root(value) not in self.lifted.seeds or not self._roots.isdisjoint(forward.outputs):
            return given
        name = self._fresh(shape, self.types[self._root(value)].dtype)
        self._add(Compute("torch.clone", (given,), (name,), source=self._place()))
        return name

    @property
    def _roots(self) -> frozenset[str]:
        """The names of what backward passes start at."""
        return frozenset(self.titles.values())

    # ---- communication ----

    def _exchange(self, node: Exchange) -> None:
        group, kind = Group(ranks=tuple(sorted(node.group))), Collective(node.kind)
        if kind is Collective.BARRIER:
            return self._add(Communicate(kind, (), (), group, source=self._place()))
        if node.dim is None:
            shape = self.factors.shape(self.factors.of(node.inputs[0]))
            inputs, dim = (self.as_shape(node.inputs[0], shape),), None
            outputs = (self._result(node.outputs[0], shape),)
        elif node.joined is not None and node.joined != node.dim:
            return self._exchange_across(node, node.dim, node.joined)
        else:
            dims = self.factors.of(node.inputs[0])
            before, after = self.factors.shape(dims[: node.dim]), self.factors.shape(dims[node.dim + 1 :])
            sizes = [self.types[value].shape[node.dim] for value in (node.inputs[0], node.outputs[0])]
            inputs = (self.as_shape(node.inputs[0], (*before, sizes[0], *after)),)
            outputs, dim = (self._result(node.outputs[0], (*before, sizes[1], *after)),), len(before)
        concatenated = dim if kind is Collective.ALL_TO_ALL else None
        reduce = node.reduce if kind in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE) else ""
        return self._add(
            Communicate(
                kind, inputs, outputs, group, reduce, dim, concatenated, node.root, node.splits, node.receive_splits,
                handle=self._handle(node.handle), source=self._place(),
            )
        )  # fmt: skip

    def _exchange_across(self, node: Exchange, split: int, joined: int) -> None:
        """Write an all-to-all that splits one dimension and joins another one, which are no products of others there."""
        shapes = [self.types[value].shape for value in (node.inputs[0], node.outputs[0])]
        dims = self.factors.of(node.inputs[0])
        rows: list[Shape] = [(), ()]
        places: dict[int, int] = {}
        for place, dim in enumerate(dims):
            places[place] = len(rows[0])
            factors = self.factors.shape([dim])
            for number, shape in enumerate(shapes):
                rows[number] += (shape[place],) if place in (split, joined) else factors
        inputs, outputs = (self.as_shape(node.inputs[0], rows[0]),), (self._result(node.outputs[0], rows[1]),)
        group = Group(ranks=tuple(sorted(node.group)))
        self._add(
            Communicate(
                Collective.ALL_TO_ALL, inputs, outputs, group, "", places[split], places[joined],
                handle=self._handle(node.handle), source=self._place(),
            )
        )  # fmt: skip

    def _around(self, value: str, dim: int) -> tuple[Shape, Shape]:
        """Return the factors of the dimensions before and after one; before it are also the units that it begins with."""
        dims = self.factors.of(value)
        before = (*self.factors.shape(dims[:dim]), *(1 for _ in self.factors.outermost_units(dims[dim])))
        return before, self.factors.shape(dims[dim + 1 :])

    def _message(self, node: Message) -> None:
        shape, peer = self.types[node.value].shape, Peer(node.peer)
        batch = f"batch{node.batch}" if node.batch else ""
        if node.sends:
            name = self.as_shape(node.value, shape)
            self._name_handle(node.handle, name)
            self._add(Send(name, peer, node.tag, handle=self._handle(node.handle), source=self._place(), batch=batch))
        else:
            name = self._result(node.value, shape)
            self._name_handle(node.handle, name)
            self._add(Receive(name, peer, node.tag, handle=self._handle(node.handle), source=self._place(), batch=batch))


class CrossingError(Exception):
    """A value of one micro-batch is read in another one."""

    def __init__(self, value: str, mark: Mark) -> None:
        super().__init__(value)
        self.value, self.mark = value, mark


class _Emit:
    """The form in which one call is written."""

    def __init__(self, emitter: Emitter, call: Call) -> None:
        self.emitter = emitter
        self.call = call
        self.factors = emitter.factors
        self.values = [argument.name for argument in call.inputs if isinstance(argument, Ref)]

    def shape(self, value: str) -> Shape:
        """Return the local shape of a value."""
        return self.emitter.types[value].shape

    def flat(self, value: str) -> Shape:
        """Return the factors of a value's dimensions."""
        return self.factors.shape(self.factors.of(value))

    def as_called(self) -> None:
        """Write the call with the shapes that it was made with."""
        self.emitter.write(
            self.call, [self.shape(name) for name in self.values], [self.shape(name) for name in self.call.outputs]
        )

    def norm(self) -> None:
        """Write a norm, whose second operand is the shape of the dimensions that it is taken over."""
        shapes = (argument.value for argument in self.call.inputs if isinstance(argument, Literal))
        self.leading(next((len(shape) for shape in shapes if isinstance(shape, tuple)), 1))

    def triangle(self) -> None:
        """Write a part of matrices on one side of a diagonal."""
        self.leading(2)

    def leading(self, last: int) -> None:
        """Write the call, which does the same for each place of the leading dimensions, with those as factors."""
        value = self.values[0]
        rank = len(self.shape(value))
        shape = (*self.factors.shape(self.factors.of(value)[: rank - last]), *self.shape(value)[rank - last :])
        self.emitter.write(self.call, [shape, *(self.shape(other) for other in self.values[1:])], [shape])

    def elementwise(self) -> None:
        """Write the call with all dimensions as factors; a dimension of size 1 is one for each factor of the result's.

        A weight alone keeps the shape that it is declared with: ranks may hold shards that end inside of a factor.
        """
        (result,) = self.call.outputs
        if len(self.values) == 1:
            _, declared = self.emitter.name_of(self.values[0])
            if self.emitter.is_weight(self.values[0]):
                self.emitter.write(self.call, [declared], [declared])
                return
        wide = self.factors.of(result)
        self.emitter.write(self.call, [self.spread(name, wide) for name in self.values], [self.flat(result)])

    def spread(self, value: str, wide: list[int]) -> Shape:
        """Return the shape of an operand that is broadcast to the dimensions `wide`."""
        dims, sizes = self.factors.of(value), self.shape(value)
        if prod(sizes) == 1:
            return ()
        shape: list[int] = []
        for at in range(len(dims)):
            other = wide[len(wide) - len(dims) + at]
            shape += self.factors.shape([dims[at]]) if sizes[at] != 1 else [1] * len(self.factors.flat([other]))
        return tuple(shape)

    def permute(self) -> None:
        """Write a permutation of factors; nothing where the order stays."""
        (value,), (result,) = self.values, self.call.outputs
        dims = self.call.attributes["dims"]
        assert isinstance(dims, tuple)
        factors = self.factors.of(value)
        order, at = list[list[int]](), 0
        for dim in factors:
            count = len(self.factors.flat([dim]))
            order.append(list(range(at, at + count)))
            at += count
        wanted = [place for dim in dims if isinstance(dim, int) for place in order[dim]]
        if wanted == sorted(wanted):
            self.emitter.aliases[result] = value
            return
        self.turn(value, self.flat(value), tuple(wanted))

    def turn(self, value: str, shape: Shape, dims: tuple[int, ...]) -> None:
        """Write a permutation of dimensions; one of a permutation as one of what that is of."""
        made, emitter, (result,) = tuple(shape[place] for place in dims), self.emitter, self.call.outputs
        name = emitter.as_shape(value, shape)
        source, before = emitter.turned.get(name, (name, tuple(range(len(shape)))))
        order = tuple(before[place] for place in dims)
        if order == tuple(range(len(shape))):
            emitter.put(result, source, made)
            return
        output = emitter._result(result, made)
        emitter.turned[output] = source, order
        compute = Compute("torch.permute", (source,), (output,), {"dims": order}, source=emitter._place())
        emitter.finish(self.call, compute, [shape], [made])

    def view(self) -> None:
        """Write nothing where the factors are the same, and a permutation where units alone are in another place."""
        (value,), (result,) = self.values, self.call.outputs
        here, there = (self.factors.flat(self.factors.of(name)) for name in (value, result))
        if here == there:
            self.emitter.aliases[result] = value
            return
        rest, units = [factor for factor in here if factor not in self.factors.units], self.factors.units
        if rest != [factor for factor in there if factor not in units] or set(here) != set(there):
            self.as_called()
            return
        others = iter(place for place, factor in enumerate(here) if factor not in units)
        wanted = tuple(here.index(factor) if factor in units else next(others) for factor in there)
        self.turn(value, self.factors.shape(self.factors.of(value)), wanted)

    def narrow(self) -> None:
        """Write a range of one dimension, of its outermost factor where it consists of whole ones."""
        (value,), (result,) = self.values, self.call.outputs
        dim, start, length = (argument.value for argument in self.call.inputs if isinstance(argument, Literal))
        assert isinstance(dim, int)
        assert isinstance(start, int)
        assert isinstance(length, int)
        before, after = self.emitter._around(value, dim)
        inner = self.inner(value, dim, [start, length])
        step = prod(inner)
        shape = (*before, self.shape(value)[dim] // step, *inner, *after)
        made = (*before, length // step, *inner, *after)
        name = self.emitter.as_shape(value, shape)
        output = self.emitter._result(result, made)
        inputs: tuple[Operand, ...] = (name, Literal(len(before)), Literal(start // step), Literal(length // step))
        compute = Compute(self.call.op, inputs, (output,), source=self.emitter._place())
        self.emitter.finish(self.call, compute, [shape], [made])

    def inner(self, value: str, dim: int, sizes: Sequence[int]) -> Shape:
        """Return the factors of a dimension but the outermost, where all sizes are whole numbers of them; none else."""
        whole = self.factors.of(value)[dim]
        inner_sizes = self.factors.shape([whole])[len(self.factors.outermost_units(whole)) + 1 :]
        return inner_sizes if all(size % prod(inner_sizes) == 0 for size in sizes) else ()

    def cat(self) -> None:
        """Write a join along one dimension, of its outermost factor where it consists of whole ones, the others as factors."""
        (result,) = self.call.outputs
        dim = self.call.attributes["dim"]
        assert isinstance(dim, int)
        before, after = self.emitter._around(result, dim)
        sizes = [self.shape(name)[dim] for name in self.values]
        if set(sizes) == {1} and len(sizes) > 1:
            stack, shapes = replace(self.call, op="torch.stack"), [(*before, *after) for _ in sizes]
            self.emitter.write(stack, shapes, [(*before, len(sizes), *after)], dim=len(before))
            return
        inner = self.inner(result, dim, sizes)
        shapes = [(*before, size // prod(inner), *inner, *after) for size in sizes]
        whole = (*before, sum(sizes) // prod(inner), *inner, *after)
        self.emitter.write(self.call, shapes, [whole], dim=len(before))

    def expand(self) -> None:
        """Write the repetition of dimensions of size 1."""
        (value,), (result,) = self.values, self.call.outputs
        shape, wide = self.spread(value, self.factors.of(result)), self.flat(result)
        if shape == wide:
            self.emitter.aliases[result] = value
            return
        data, places = self._data_as_wide(shape, result)
        if not data:
            self.emitter.write(self.call, [shape], [wide], size=wide)
            return
        call = replace(self.call, op=AS_WIDE, inputs=(*self.call.inputs, Ref(data)))
        size = tuple(whole if before == 1 else -1 for before, whole in zip(shape, wide, strict=True))
        of = tuple(places.values())
        self.emitter.write(call, [shape, self.emitter.name_of(data)[1]], [wide], size=size, dims=tuple(places), of=of)

    def _data_as_wide(self, shape: Shape, result: str) -> tuple[str, dict[int, int]]:
        """Return data of this micro-batch that is as long as what is repeated, and its dimension for each of the result.

        The empty name where none is.
        """
        leaves, given = self.factors.flat(self.factors.of(result)), self.emitter.lifted.program.given
        for value, name in self.emitter.fixed.items():
            read = given.get(value)
            if name not in self.emitter.data or read is None or read.mark.micro_batch != self.emitter.current.micro_batch:
                continue
            dims = [self.factors.flat([dim]) for dim in self.factors.of(value)]
            known = {factors[0]: at for at, factors in enumerate(dims) if len(factors) == 1}
            pairs = zip(leaves, shape, strict=False) if len(leaves) == len(shape) else ()
            places = {at: known[leaf] for at, (leaf, size) in enumerate(pairs) if size == 1 and leaf in known}
            if places:
                return value, places
        return "", {}

    def product(self) -> None:
        """Write a product of matrices as a sum over the factors of the inner dimension."""
        left, right = self.values
        letters: dict[object, str] = {}

        def term(value: str, names: str) -> str:
            text = ""
            for name, dim in zip(names, self.factors.of(value), strict=True):
                place = 0
                for leaf in self.factors.flat([dim]):
                    is_unit = leaf in self.factors.units
                    text += letters.setdefault(leaf if is_unit else (name, place), _LETTERS[len(letters)])
                    place += not is_unit
            return text

        batch = "B" if self.call.op == "torch.bmm" else ""
        one, other = term(left, batch + "MK"), term(right, batch + "KN")
        kept = term(self.call.outputs[0], batch + "MN")
        shapes = [self.flat(left), self.flat(right)]
        shape = self.flat(self.call.outputs[0])
        operands = (self.emitter.as_shape(left, shapes[0]), self.emitter.as_shape(right, shapes[1]))
        output = self.emitter._result(self.call.outputs[0], shape)
        equation = Literal(f"{one},{other}->{kept}")
        compute = Compute("torch.einsum", (equation, *operands), (output,), source=self.emitter._place())
        self.emitter.finish(self.call, compute, shapes, [shape])

    def reduction(self) -> None:
        """Write a reduction over the factors of its dimensions, which does not keep them."""
        (value,), (result,) = self.values, self.call.outputs
        dims = self.call.attributes["dim"]
        assert isinstance(dims, tuple)
        places, rest, at = list[int](), list[int](), 0
        kept = self.factors.units.intersection(self.factors.flat(self.factors.of(result)))
        for number, dim in enumerate(self.factors.of(value)):
            for leaf in self.factors.flat([dim]):
                if number in dims and leaf not in kept:
                    places.append(at)
                else:
                    rest.append(self.factors.sizes[leaf])
                at += 1
        if not places:
            self.emitter.aliases[result] = value
            return
        self.emitter.write(self.call, [self.flat(value)], [tuple(rest)], dim=tuple(places) if rest else None, keepdim=None)

    def along(self) -> None:
        """Write an operator along one dimension, the others as factors."""
        value, dim = self.values[0], self.call.attributes["dim"]
        assert isinstance(dim, int)
        names = (*self.values, *self.call.outputs)
        others = {(*self.shape(name)[:dim], *self.shape(name)[dim + 1 :]) for name in names}
        if len(others) > 1:
            return self.as_called()
        before, after = self.emitter._around(value, dim)
        operands, results = (
            [(*before, self.shape(name)[dim], *after) for name in each] for each in (self.values, self.call.outputs)
        )
        return self.emitter.write(self.call, operands, results, dim=len(before))

    def pad(self) -> None:
        """Write a padding of dimensions, of the outermost factor where it consists of whole ones, the others as factors."""
        value, pad = self.values[0], self.call.attributes.get("pad")
        amounts = [number for number in pad if isinstance(number, int)] if isinstance(pad, tuple) else []
        inner = list(zip(amounts[::2], amounts[1::2], strict=False))[::-1]
        shape = self.shape(value)
        before, after, around = list[int](), list[int](), list[tuple[int, int]]()
        every = [(0, 0)] * (len(shape) - len(inner)) + inner
        for at, (dim, size, ends) in enumerate(zip(self.factors.of(value), shape, every, strict=True)):
            if not any(ends):
                sizes = self.factors.shape([dim])
                before += sizes
                after += sizes
                around += [ends] * len(sizes)
                continue
            factors = self.inner(self.call.outputs[0], at, [size, *ends])
            step = prod(factors)
            before += [size // step, *factors]
            after += [(size + sum(ends)) // step, *factors]
            around += [(ends[0] // step, ends[1] // step), *((0, 0) for _ in factors)]
        self.emitter.write(self.call, [tuple(before)], [tuple(after)], pad=tuple(n for ends in around[::-1] for n in ends))

    def one_hot(self) -> None:
        """Write flags of classes behind the dimensions of what says the class, those as factors."""
        ((value,), (result,)) = self.values, self.call.outputs
        shape = self.flat(value)
        self.emitter.write(self.call, [shape], [(*shape, self.shape(result)[-1])])

    def made(self) -> None:
        """Write a tensor of one number, with its dimensions as factors."""
        (result,) = self.call.outputs
        shape = self.flat(result)
        inputs = (Literal(shape), *self.call.inputs[1:])
        self.emitter.write(replace(self.call, inputs=inputs), [], [shape])

    def lookup(self) -> None:
        """Write a lookup, with the dimensions of the indices as factors."""
        indices, table = self.values
        shape = self.flat(indices)
        self.emitter.write(self.call, [shape, self.shape(table)], [(*shape, self.shape(table)[1])])

    def pick(self) -> None:
        """Write a pick of scores by targets, with the dimensions of the targets as factors."""
        scores, targets = self.values
        rows = self.flat(targets)
        shape = (*rows, self.shape(scores)[-1])
        self.emitter.write(self.call, [shape, rows], [rows], dim=len(rows))

    def loss(self) -> None:
        """Write a loss over all elements, or one for each, with all dimensions as factors."""
        shape = self.flat(self.values[0])
        each = self.call.attributes.get("reduction") == "none"
        self.emitter.write(self.call, [shape for _ in self.values], [shape if each else ()])


_SPECIAL = {
    "torch.permute": _Emit.permute,
    "torch.Tensor.view": _Emit.view,
    "torch.narrow": _Emit.narrow,
    "torch.cat": _Emit.cat,
    "torch.Tensor.expand": _Emit.expand,
    "torch.mm": _Emit.product,
    "torch.bmm": _Emit.product,
    "torch.sum": _Emit.reduction,
    "torch.mean": _Emit.reduction,
    "torch.amax": _Emit.reduction,
    "torch.amin": _Emit.reduction,
    "torch.logsumexp": _Emit.reduction,
    "torch.triu": _Emit.triangle,
    "torch.tril": _Emit.triangle,
    "torch.softmax": _Emit.along,
    "torch.log_softmax": _Emit.along,
    "torch.cumsum": _Emit.along,
    "torch.topk": _Emit.along,
    "torch.gather": _Emit.along,
    "torch.nn.functional.pad": _Emit.pad,
    "torch.nn.functional.one_hot": _Emit.one_hot,
    "torch.ones": _Emit.made,
    "torch.zeros": _Emit.made,
    "torch.full": _Emit.made,
    "torch.nn.functional.embedding": _Emit.lookup,
    "nnscaler.runtime.function.embedding": _Emit.lookup,
    "masked_gather": _Emit.pick,
    "torch.nn.functional.mse_loss": _Emit.loss,
}
"""How calls are written whose dimensions stand in their arguments."""

_TENSORS = {
    op: 2 if way in (_Emit.product, _Emit.lookup, _Emit.pick) else 1 for op, way in _SPECIAL.items() if way is not _Emit.made
}
"""How many tensors each of these needs; tapes that were changed may give fewer."""
