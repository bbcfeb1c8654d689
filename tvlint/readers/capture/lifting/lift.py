"""Operators of `aten` become operators of the operator table, each by an equation (`equations/`).

What no equation lifts stays what it is: an operator that the table does not know, at its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeAlias

from tvlint.ir.operators import Literal, Value
from tvlint.ir.reductions import ADDING, EXTREMES
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.readers.capture.lifting.program import (
    Apply,
    Argument,
    Array,
    End,
    Exchange,
    Message,
    Node,
    Program,
    Ref,
    RootValue,
    Type,
    references,
)
from tvlint.readers.capture.tapes.tape import Mark, Other

Operand: TypeAlias = Ref | Literal


@dataclass(frozen=True, slots=True)
class Call:
    """An operator of the operator table on values."""

    op: str
    inputs: tuple[Operand, ...]
    attributes: Mapping[str, Value]
    outputs: tuple[str, ...]
    mark: Mark


@dataclass(frozen=True, slots=True)
class GradientOf:
    """The gradient of a call: `inputs` are the gradients of its results, `outputs` those of its tensor operands.

    The empty name stands for none.
    """

    forward: Call
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    mark: Mark


LiftedNode: TypeAlias = Call | GradientOf | Exchange | Message | End


@dataclass(slots=True)
class Lifted:
    """The program of one rank in operators of the operator table.

    `seeds` are the values that stand for the gradient of a root, by their names; `unlifted` the operators that no equation
    lifts; `unread` says of which arguments no equation speaks, and where; `absent` are the numbers that nothing recorded is,
    with where it is compared with them; `counted` is where sums of whole numbers are counts; `numbers` are those that values
    are throughout; `tokens` the dimensions along which the tokens of experts are counted; `multiplied` is where sums that
    one rank is given are multiplied, and `cancelled` where a mean is multiplied by the number of what it is over.
    """

    program: Program
    nodes: list[LiftedNode] = field(default_factory=list)
    gradients: dict[str, tuple[str, Array | None]] = field(default_factory=dict)
    roots: list[RootValue] = field(default_factory=list)
    seeds: dict[str, str] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    unlifted: list[Call] = field(default_factory=list)
    unread: list[tuple[str, Mark]] = field(default_factory=list)
    absent: list[tuple[float, Mark]] = field(default_factory=list)
    counted: list[Mark] = field(default_factory=list)
    cancelled: list[Mark] = field(default_factory=list)
    multiplied: tuple[Mark, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    tokens: tuple[tuple[int, int], ...] = ()

    @property
    def losses(self) -> tuple[RootValue, ...]:
        """The loss of each micro-batch, at which the last of its backward passes starts."""
        last = {root.mark.micro_batch: root for root in self.roots if not root.start}
        return tuple(last[micro_batch] for micro_batch in sorted(last))


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation for an operator of `aten`: its statement, and the function that lifts a use of it.

    The function returns whether it has lifted the use.
    """

    op: str
    statement: str
    lift: Callable[[Lifting, Apply], bool]


_OF_STORAGE = frozenset({"memory_format", "layout", "device", "pin_memory", "non_blocking", "copy"})
"""Arguments that say how a result is stored, and not what it is."""

_OF_TYPE = frozenset({"size", "num_weights", "half_to_float", "input_dtype", "grad_output"})
"""Arguments that the result's shape and dtype say too, to which tapes are held, and a gradient that is cut again where it is
read."""


def is_move(op: str) -> bool:
    """Return whether an operator moves elements: two of the same value that move them alike are one."""
    return has_trait(op, Trait.VIEW, Trait.RANGES, Trait.BROADCAST)


class _Arguments(Mapping[str, Argument]):
    """The arguments of an operator, and which of them were asked for."""

    def __init__(self, known: Mapping[str, Argument]) -> None:
        self.known = known
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Argument:
        self.asked.add(name)
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)


class NotLiftedError(Exception):
    """An operator has other arguments than an equation speaks of."""


def given(node: Apply, name: str) -> Argument:
    """Return an argument that an equation needs."""
    if name not in node.arguments:
        raise NotLiftedError(f"`{node.op}` without `{name}`")
    return node.arguments[name]


def whole(argument: Argument) -> int:
    """Return an argument that is a whole number."""
    if not isinstance(argument, int) or isinstance(argument, bool):
        raise NotLiftedError(f"{argument} is no whole number")
    return argument


def sizes(argument: Argument) -> tuple[int, ...]:
    """Return an argument that is a list of whole numbers, or one of them."""
    return tuple(whole(each) for each in argument) if isinstance(argument, tuple) else (whole(argument),)


class Lifting:
    """A program while it is lifted."""

    def __init__(
        self,
        program: Program,
        equations: Mapping[str, tuple[Equation, ...]],
        received: Mapping[str, float | None],
        roots: Sequence[RootValue],
    ) -> None:
        self.program = program
        self.equations = equations
        self.result = Lifted(program)
        self.same: dict[str, str] = {}
        self.made: dict[str, LiftedNode] = {}
        self.lifted_from: dict[str, Apply] = {}
        self.numbers: dict[str, float] = {}
        self.received = received
        self.undefined: set[str] = set()
        self.uses: dict[str, list[Call]] = {}
        self.moved: dict[object, str] = {}
        self.means: dict[str, Call] = {}
        self.roots = {root.value for root in roots if not root.start}
        self.started: set[str] = set()

    # ---- what is known of a value ----

    def name(self, name: str) -> str:
        """Return the value that `name` is the same as."""
        while name in self.same:
            name = self.same[name]
        return name

    def value(self, argument: Argument) -> str | None:
        """Return the value of a tensor argument; None for any other."""
        return self.name(argument.name) if isinstance(argument, Ref) else None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the local shape of a value. Raises NotLiftedError where an argument is none."""
        if name not in self.program.types:
            raise NotLiftedError(f"no tensor `{name}`")
        return self.program.shape(name)

    def dtype(self, name: str) -> str:
        """Return the dtype of a value."""
        return self.program.types[name].dtype

    def number(self, argument: Argument) -> float | None:
        """Return the number that an argument is, or that a tensor is throughout; None for any other."""
        if isinstance(argument, Ref):
            return self.numbers.get(self.name(argument.name))
        return argument if isinstance(argument, int | float) and not isinstance(argument, bool) else None

    def maker(self, argument: Argument) -> Apply | None:
        """Return the operator of `aten` that made a value."""
        name = self.value(argument)
        return self.lifted_from.get(name) if name is not None else None

    def is_result(self, argument: Argument, source: Apply, place: int) -> bool:
        """Return whether a value is the result at a place of an operator of `aten`."""
        return place < len(source.outputs) and self.value(argument) == self.name(source.outputs[place])

    def call_of(self, name: str) -> Call | None:
        """Return the call that made a value."""
        found = self.made.get(self.name(name))
        return found if isinstance(found, Call) else None

    def moved_from(self, argument: Argument) -> str | None:
        """Return the value that moves and casts make an argument of; None where it is no tensor."""
        name = self.value(argument)
        call = self.call_of(name) if name is not None else None
        while call is not None and (is_move(call.op) or call.op == "torch.Tensor.to") and isinstance(call.inputs[0], Ref):
            name = self.name(call.inputs[0].name)
            call = self.call_of(name)
        return name

    def forward_of(self, mark: Mark, *ops: str) -> Call | None:
        """Return the call whose gradient a node of autograd computes, where it is one of `ops`."""
        name = self.program.operations.get(mark.of)
        call = self.call_of(name) if name is not None else None
        return call if call is not None and call.op in ops else None

    # ---- what is made ----

    def call(self, node: Apply, op: str, inputs: tuple[Argument, ...], **attributes: Value) -> bool:
        """Let a call stand for the node, with the same results."""
        if is_move(op) or has_trait(op, Trait.JOIN, Trait.PADDING):
            key = (op, tuple(map(self.operand, inputs)), tuple(sorted(attributes.items())), node.mark.micro_batch)
            known = self.moved.setdefault(key, node.outputs[0])
            if known != node.outputs[0]:
                self.same[node.outputs[0]] = known
                return True
        self.emit(op, inputs, node.outputs, node.mark, attributes, node)
        return True

    def emit(
        self,
        op: str,
        inputs: tuple[Argument, ...],
        outputs: tuple[str, ...],
        mark: Mark,
        attributes: Mapping[str, Value],
        source: Apply | None = None,
    ) -> Call:
        """Add a call; one that gives nothing, as of a tape that was changed, is no use that a gradient can be of."""
        operands = tuple(self.operand(each_input) for each_input in inputs)
        call = Call(
            op, operands, {key: attribute for key, attribute in attributes.items() if attribute is not None}, outputs, mark
        )
        self.add(call)
        if source is not None:
            self.lifted_from.update(dict.fromkeys(outputs, source))
        for operand in operands if outputs else ():
            if isinstance(operand, Ref):
                self.uses.setdefault(operand.name, []).append(call)
        return call

    def temporary(self, node: Apply, op: str, inputs: tuple[Argument, ...], shape: tuple[int, ...], **attributes: Value) -> Ref:
        """Add a call with a result that the program has no name for; it has the dtype of the node's first result."""
        name = self.program.fresh(Type(shape, self.dtype(node.outputs[0])))
        self.emit(op, inputs, (name,), node.mark, attributes, node)
        return Ref(name)

    def add(self, node: LiftedNode) -> None:
        """Add a node."""
        self.result.nodes.append(node)
        for name in outputs_of(node):
            self.made[name] = node
        if not self.started.isdisjoint(inputs_of(node)):
            self.started.update(outputs_of(node))

    def start(self, name: str, root: str) -> None:
        """Let a value be what a backward pass from `root` starts with, which is one."""
        self.result.seeds[name] = root
        self.started.add(name)

    def exchange(self, call: Call, other: Call) -> None:
        """Put a call with the same results in the place of another."""
        nodes = self.result.nodes
        nodes[next(place for place, node in enumerate(nodes) if node is call)] = other
        self.made.update(dict.fromkeys(other.outputs, other))
        for operand in call.inputs:
            if isinstance(operand, Ref):
                self.uses[operand.name] = [other if each is call else each for each in self.uses[operand.name]]

    def equate(self, name: str, other: Argument) -> bool:
        """Let a value be the same as another."""
        found = self.value(other)
        if found is None:
            return False
        if self.shape(found) != self.shape(name):
            raise NotLiftedError(f"a tensor of shape {self.shape(found)} is none of shape {self.shape(name)}")
        self.same[name] = found
        return True

    def gradient(self, forward: Call, inputs: tuple[Argument, ...], outputs: tuple[str, ...], mark: Mark) -> bool:
        """Add the gradient of a call, of which each gradient has the shape of what it is the gradient of."""
        given = tuple(self.value(each_input) or "" for each_input in inputs)
        tensors = tuple(operand.name for operand in forward.inputs if isinstance(operand, Ref))
        for name, value in (*zip(given, forward.outputs, strict=False), *zip(outputs, tensors, strict=False)):
            if name and self.shape(name) != self.shape(value):
                raise NotLiftedError(f"a gradient of shape {self.shape(name)} is none of shape {self.shape(value)}")
        self.add(GradientOf(forward, given, outputs, mark))
        return True

    def operand(self, argument: Argument) -> Operand:
        """Return an argument as an operand of a call."""
        if isinstance(argument, Ref):
            return Ref(self.name(argument.name))
        if isinstance(argument, Other):
            return Literal(f"a {argument.type}")
        if isinstance(argument, tuple):
            return Literal(tuple(_constant(each) for each in argument))
        return Literal(argument)


def _constant(argument: Argument) -> Value:
    if isinstance(argument, tuple):
        return tuple(_constant(each) for each in argument)
    return argument if not isinstance(argument, Ref | Other) else "a tensor" if isinstance(argument, Ref) else argument.type


_NONE: Mapping[str, float] = {}


def lift(
    program: Program, equations: Mapping[str, tuple[Equation, ...]], received: Mapping[str, float | None] = _NONE
) -> Lifted:
    """Return the program in operators of the operator table; `received` are numbers that other ranks give."""
    roots = _roots(program)
    lifting = Lifting(program, equations, received, roots)
    for node in program.nodes:
        _lift(lifting, node)
    result = replace(lifting.result, numbers=lifting.numbers)
    result.gradients = {name: (lifting.name(value), array) for name, (value, array) in program.gradients.items()}
    for root in roots:
        value = _scalar(lifting, root.value) if not root.start else lifting.name(root.value)
        result.roots.append(replace(root, value=value, start=lifting.name(root.start)))
    for seed, root_value in result.seeds.items():
        result.seeds[seed] = _scalar(lifting, root_value)
        program.types[seed] = program.types[result.seeds[seed]]
    return result


def _roots(program: Program) -> list[RootValue]:
    """Return the values that backward passes begin at; a number that begins with `ones_like` of itself begins with one."""
    like = (node for node in program.nodes if isinstance(node, Apply) and node.op == "aten.ones_like.default")
    ones = {node.outputs[0]: node for node in like if node.outputs}
    found = []
    for root in program.roots:
        made = ones.get(root.start)
        is_one = made is not None and made.arguments.get("self") == Ref(root.value) and prod(program.shape(root.value)) == 1
        found.append(replace(root, start="") if is_one else root)
    return found


def _scalar(lifting: Lifting, name: str) -> str:
    """Return the number that a tensor of one element holds in another shape; the tensor itself where it is no such view."""
    name = lifting.name(name)
    call = lifting.call_of(name)
    if call is None or call.op != "torch.Tensor.view" or not isinstance(call.inputs[0], Ref) or prod(lifting.shape(name)) != 1:
        return name
    return _scalar(lifting, call.inputs[0].name)


def _lift(lifting: Lifting, node: Node) -> None:
    if isinstance(node, Exchange):
        _exchange(lifting, replace(node, inputs=tuple(map(lifting.name, node.inputs))))
    elif isinstance(node, Message):
        lifting.add(replace(node, value=lifting.name(node.value)) if node.sends else node)
    elif isinstance(node, End):
        lifting.add(node)
    else:
        read = _Arguments(node.arguments)
        node = replace(node, arguments=read)
        for equation in lifting.equations.get(function_of(node.op), ()):
            if _lifts(equation, lifting, node):
                lifting.result.unread += _unread(lifting, node, read)
                lifting.result.used[equation.statement] = lifting.result.used.get(equation.statement, 0) + 1
                return
        _keep(lifting, node)


def _exchange(lifting: Lifting, node: Exchange) -> None:
    """Add a collective; what ranks add up of the same number is a number, unless it is known what others hold."""
    number = lifting.numbers.get(node.inputs[0]) if node.kind == "all-reduce" and len(node.inputs) == 1 else None
    known = {name: lifting.received[name] for name in node.outputs if name in lifting.received}
    lifting.numbers.update({name: given for name, given in known.items() if given is not None})
    if number is not None and node.reduce in ADDING | EXTREMES and not known:
        lifting.numbers[node.outputs[0]] = number * (len(node.group) if node.reduce == "sum" else 1)
    lifting.add(node)


def _unread(lifting: Lifting, node: Apply, read: _Arguments) -> Iterator[tuple[str, Mark]]:
    """Yield the arguments that an equation did not ask for: with them the operator may compute something else."""
    for name in sorted(read.keys() - read.asked - _OF_STORAGE - _OF_TYPE):
        call = read.known[name]
        if call is not None and not (name == "dtype" and call == lifting.dtype(node.outputs[0])):
            yield f"no equation says what `{node.op}` does with `{name}`", node.mark


def _lifts(equation: Equation, lifting: Lifting, node: Apply) -> bool:
    of_number = node.op.rpartition(".")[2].startswith("Scalar")
    if not node.outputs or ("self" in node.arguments and not isinstance(node.arguments["self"], Ref) and not of_number):
        return False
    try:
        return equation.lift(lifting, node)
    except NotLiftedError:
        return False


def function_of(op: str) -> str:
    """Return the function that an operator of `aten` is, without module and overload; other operators in full."""
    parts = op.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) > 1 else op


def _keep(lifting: Lifting, node: Apply) -> None:
    """Leave an operator as it is: its tensors are its operands, the rest its attributes.

    Where the tensors of a list have others between them, the attribute is the places of these.
    """
    tensors = tuple(Ref(name) for argument in node.arguments.values() for name in references(argument))
    for tensor in tensors:
        _make(lifting, lifting.name(tensor.name))
    attributes = {key: _constant(argument) for key, argument in node.arguments.items() if not references(argument)}
    for key, argument in node.arguments.items():
        if isinstance(argument, tuple) and references(argument) and not all(isinstance(each, Ref) for each in argument):
            attributes[key] = tuple(place for place, each in enumerate(argument) if not isinstance(each, Ref))
    call = lifting.emit(node.op, tensors, node.outputs, node.mark, attributes, node)
    lifting.result.unlifted.append(call)


def _make(lifting: Lifting, name: str) -> None:
    """Let a result that no equation speaks of, because gradients alone read it, be made by an operator that is not known."""
    source = lifting.lifted_from.get(name)
    if source is None or name in lifting.made:
        return
    tensors = tuple(Ref(each_name) for argument in source.arguments.values() for each_name in references(argument))
    call = lifting.emit(f"{source.op} (its other results)", tensors, (name,), source.mark, {}, source)
    lifting.result.unlifted.append(call)


def nearest(lifting: Lifting, node: Apply, calls: list[Call]) -> Call | None:
    """Return the one call that autograd names as the forward operator, else the last of them."""
    named = lifting.program.operations.get(node.mark.of)
    call = lifting.call_of(named) if named is not None else None
    if call is not None and call in calls:
        return call
    return calls[-1] if calls else None


def outputs_of(node: LiftedNode) -> tuple[str, ...]:
    """Return the names of the values that a node makes."""
    if isinstance(node, Message):
        return () if node.sends else (node.value,)
    return () if isinstance(node, End) else tuple(name for name in node.outputs if name)


def inputs_of(node: LiftedNode) -> tuple[str, ...]:
    """Return the names of the values that a node reads; those that a gradient needs of its call are not among them."""
    if isinstance(node, Call):
        return tuple(argument.name for argument in node.inputs if isinstance(argument, Ref))
    if isinstance(node, Message):
        return (node.value,) if node.sends else ()
    return () if isinstance(node, End) else tuple(name for name in node.inputs if name)


def makers_of(lifted: Lifted) -> dict[str, LiftedNode]:
    """Return the node that makes each value."""
    return {name: node for node in lifted.nodes for name in outputs_of(node)}


def readers_of(lifted: Lifted) -> dict[str, list[LiftedNode]]:
    """Return the nodes that read each value, in order; one that reads it twice counts twice."""
    found: dict[str, list[LiftedNode]] = {}
    for node in lifted.nodes:
        for name in inputs_of(node):
            found.setdefault(name, []).append(node)
    return found


def read_in(lifted: Lifted) -> set[str]:
    """Return the names of the values that nodes read; those that a gradient needs of its call are among them."""
    forwards = (node.forward for node in lifted.nodes if isinstance(node, GradientOf))
    return {name for node in (*lifted.nodes, *forwards) for name in inputs_of(node)}


def waited_in_time(lifted: Lifted) -> frozenset[str]:
    """Return the handles of collectives for which the program waits before anything reads their results; "" is one of them."""
    made: dict[str, str] = {}
    ended, early = {""}, set[str]()
    for node in lifted.nodes:
        early.update({made[name] for name in inputs_of(node) if name in made} - ended)
        if isinstance(node, Exchange):
            made.update(dict.fromkeys(node.outputs, node.handle))
        elif isinstance(node, End):
            ended.add(node.handle)
    return frozenset(ended - early)
