"""The body of one generated method on one rank, as operators."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tvlint.ir.location import Location
from tvlint.ir.plan import Collective, Communicate, Compute, Group, Literal, Operand, Operator, Peer, Receive, Send, Value
from tvlint.ops.table import meant
from tvlint.readers.document import ReadError
from tvlint.readers.gencode_objects import read_fields
from tvlint.readers.gencode_records import Autograd, Delete, Method, RankFile, Statement
from tvlint.readers.gencode_syntax import NotConstant, constant, dotted

IDENTITY = "nnscaler.runtime.function.identity"
GETATTR = "builtins.getattr"
ADAPTER = "nnscaler.runtime.adapter."

_PLAIN: Mapping[str, Collective] = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "all_to_all": Collective.ALL_TO_ALL,
    "chunk": Collective.CHUNK,
}
FUSED: Mapping[str, tuple[Collective | None, Collective | None]] = {
    "allreduce_identity": (Collective.ALL_REDUCE, None),
    "identity_allreduce": (None, Collective.ALL_REDUCE),
    "allreduce_allreduce": (Collective.ALL_REDUCE, Collective.ALL_REDUCE),
    "allgather_split": (Collective.ALL_GATHER, Collective.CHUNK),
    "split_allgather": (Collective.CHUNK, Collective.ALL_GATHER),
    "allgather_reducescatter": (Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
    "reducescatter_allgather": (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
    "alltoall_alltoall": (Collective.ALL_TO_ALL, Collective.ALL_TO_ALL),
}
"""What a differentiable collective does forward and backward."""
_SUMMED = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER)


@dataclass(frozen=True, slots=True)
class Reverse:
    """A function with a backward of its own: it makes `outputs` of `inputs`, and `operators` make `given` of `taken`.

    `taken` are the gradients of the outputs and `given` those of the inputs, by position, under the names of `operators`.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    taken: tuple[str, ...]
    given: tuple[str, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Gradual:
    """A forward operator and, where autograd does not derive its gradient from the operator table, that of its result.

    `reverse` takes the gradient of the output to that of the input; its names are filled in when the backward is derived.
    `differentiable` is False for communication that autograd does not see.
    """

    operator: Operator
    reverse: Compute | Communicate | None = None
    differentiable: bool = True
    function: Reverse | None = None
    """What runs backward for all operators since the last function, of which this one is the last."""


@dataclass(frozen=True, slots=True)
class Undefined:
    """A name that is used and that nothing gives a value there; `deleted` says that it had one before."""

    name: str
    source: Location
    deleted: bool = False


@dataclass(slots=True)
class Body:
    """One method's operators on one rank; `outputs` are what it returns, under the names they have in the body."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    operators: list[Gradual] = field(default_factory=list)
    stated: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    """Shape and dtype of what is sent and received, as the code states them."""
    undefined: list[Undefined] = field(default_factory=list)
    bystander: list[tuple[int, int, Location]] = field(default_factory=list)
    """Moves (source, destination) in which the rank has no part."""


def lower(method: Method, file: RankFile) -> Body:
    """The operators of `method` as the file's rank runs it."""
    return _Lowering(method, file).run()


class _Lowering:
    def __init__(self, method: Method, file: RankFile) -> None:
        self.method = method
        self.file = file
        self.rank = file.rank
        self.parameters = file.parameters
        self.body = Body(method.name, method.arguments)
        self.current: dict[str, str] = {name: name for name in method.arguments}
        self.made: dict[str, int] = dict.fromkeys(method.arguments, 0)
        self.deleted: set[str] = set()
        self.tracked = True

    def run(self) -> Body:
        fields = read_fields(self.method.body, self.method.arguments)
        for index, entry in enumerate(self.method.body):
            if index in fields:
                name, field = fields[index]
                self.current[name] = field
            elif isinstance(entry, Delete):
                for name in entry.names:
                    if self.current.pop(name, None) is not None:
                        self.deleted.add(name)
            else:
                self._statement(entry)
        self.body.outputs = tuple(self._read(name, self.method.returned_at) for name in self.method.returns)
        return self.body

    def _read(self, name: str, source: Location) -> str:
        found = self.current.get(name)
        if found is None:
            if name in self.parameters:
                return name
            self.body.undefined.append(Undefined(name, source, name in self.deleted))
            return name
        return found

    def _write(self, name: str, source: Location) -> str:
        if name in self.parameters:
            raise ReadError(f"`{name}` is a parameter and is assigned in `{self.method.name}`", source)
        count = self.made.get(name, -1) + 1
        self.made[name] = count
        self.current[name] = fresh = name if count == 0 else f"{name}.{count}"
        return fresh

    def _statement(self, statement: Statement) -> None:
        callee = dotted(statement.call.func)
        if _detaches(statement.call):
            (name,) = (self._tensor(statement.call.args[0]),)
            before = self._read(name or "", statement.source)
            for made in statement.outputs:
                fresh = self._write(made, statement.source)
                self._append(Compute(IDENTITY, (before,), (fresh,), source=statement.source), differentiable=False)
            return
        if not callee:
            raise ReadError("what is called is no plain name", statement.source)
        self.tracked = statement.tracked
        function = self.file.autograd.get(callee.removesuffix(".apply")) if callee.endswith(".apply") else None
        if function is not None:
            self._apply(function, statement)
            return
        if callee.startswith(ADAPTER + "nn."):
            self._fused(callee.removeprefix(ADAPTER + "nn."), statement)
        elif callee.startswith(ADAPTER):
            self._communication(callee.removeprefix(ADAPTER), statement)
        else:
            self._compute(callee, statement)

    def _append(self, operator: Operator, reverse: Compute | Communicate | None = None, differentiable: bool = True) -> None:
        self.body.operators.append(Gradual(operator, reverse, differentiable and self.tracked))

    def _apply(self, function: Autograd, statement: Statement) -> None:
        """The operators of an adapter with a backward of its own, under names of its own."""
        tensors, words = self._given(statement)
        forward, backward = lower(function.forward, self.file), lower(function.backward, self.file)
        fits = len(tensors) == len(forward.inputs) == len(backward.outputs) and len(forward.outputs) == len(backward.inputs)
        if words or not fits or len(statement.outputs) != len(forward.outputs):
            raise ReadError(f"`{function.name}` does not fit what it is given and what is made of it", statement.source)
        self.body.undefined += [*forward.undefined, *backward.undefined]
        self.body.bystander += [*forward.bystander, *backward.bystander]
        names = dict(zip(forward.inputs, tensors, strict=True))
        made = {name for entry in forward.operators for name in getattr(entry.operator, "outputs", ())}
        back = {name for entry in backward.operators for name in getattr(entry.operator, "outputs", ())}
        whole = set(forward.outputs) <= made and set(backward.outputs) <= back
        if not whole or len(set(forward.outputs)) != len(forward.outputs):
            raise ReadError(f"`{function.name}` does not make what it gives", statement.source)
        outputs = tuple(self._write(name, statement.source) for name in statement.outputs)
        names.update(zip(forward.outputs, outputs, strict=True))
        for name in made - set(forward.outputs):
            names[name] = f"{function.name}.{name}"
        operators = [_renamed(entry.operator, names) for entry in forward.operators]
        reverse = Reverse(
            tensors, outputs, backward.inputs, backward.outputs, tuple(entry.operator for entry in backward.operators)
        )
        for operator in operators[:-1]:
            self._append(operator, differentiable=False)
        self.body.operators.append(Gradual(operators[-1], None, self.tracked, reverse))

    def _compute(self, callee: str, statement: Statement) -> None:
        inputs: list[Operand] = []
        nesting: list[Value] = []
        nested = False
        for argument in statement.call.args:
            if isinstance(argument, (ast.Tuple, ast.List)) and self._holds_tensor(argument):
                nested = True
                nesting.append(self._unfold(argument, inputs, statement))
            elif (name := self._tensor(argument)) is not None:
                inputs.append(self._read(name, statement.source))
                nesting.append("*")
            else:
                inputs.append(Literal(self._constant(argument, statement)))
                nesting.append("constant")
        attributes: dict[str, Value] = {}
        for keyword in statement.call.keywords:
            if keyword.arg is None:
                raise ReadError("an operator is given `**` arguments", statement.source)
            name = self._tensor(keyword.value)
            if name is not None:
                attributes[keyword.arg] = f"operand {len(inputs)}"
                inputs.append(self._read(name, statement.source))
            elif isinstance(keyword.value, (ast.Tuple, ast.List)) and self._holds_tensor(keyword.value):
                start = len(inputs)
                attributes[keyword.arg] = (f"operands from {start}", self._unfold(keyword.value, inputs, statement))
            else:
                attributes[keyword.arg] = self._constant(keyword.value, statement)
        if nested:
            attributes["operands"] = tuple(nesting)
        outputs = tuple(self._write(name, statement.source) for name in statement.outputs)
        in_place = (0,) if attributes.get("inplace") is True else ()
        callee = meant(callee, self.file.operators)
        self._append(Compute(callee, tuple(inputs), outputs, attributes, in_place=in_place, source=statement.source))

    def _tensor(self, node: ast.expr) -> str | None:
        """The name of the tensor that an argument is; None for a constant."""
        if isinstance(node, ast.Name) and node.id not in ("inf", "nan"):
            return node.id
        name = dotted(node)
        if name.startswith("self.") and name != "self.training":
            return name.removeprefix("self.")
        return None

    def _holds_tensor(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Tuple, ast.List)):
            return any(self._holds_tensor(item) for item in node.elts)
        return self._tensor(node) is not None

    def _unfold(self, node: ast.expr, inputs: list[Operand], statement: Statement) -> Value:
        if isinstance(node, (ast.Tuple, ast.List)):
            return tuple(self._unfold(item, inputs, statement) for item in node.elts)
        name = self._tensor(node)
        if name is None:
            return self._constant(node, statement)
        inputs.append(self._read(name, statement.source))
        return "*"

    def _constant(self, node: ast.expr, statement: Statement) -> Value:
        if dotted(node) == "self.training":
            return "self.training"
        try:
            return constant(node)
        except NotConstant as error:
            raise ReadError(f"an argument is {error}, which is neither a tensor nor a constant", statement.source) from None

    def _given(self, statement: Statement) -> tuple[tuple[str, ...], dict[str, Value]]:
        """The tensors and the keyword arguments of a communication."""
        tensors = []
        for argument in statement.call.args:
            name = self._tensor(argument)
            if name is not None:
                tensors.append(self._read(name, statement.source))
            elif not (isinstance(argument, ast.Tuple) and not argument.elts):
                raise ReadError("a communication is given something that is no tensor", statement.source)
        words = {word.arg or "": self._constant(word.value, statement) for word in statement.call.keywords}
        return tuple(tensors), words

    def _integer(self, words: Mapping[str, Value], name: str, statement: Statement) -> int:
        value = words.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
            return value
        raise ReadError(f"`{dotted(statement.call.func)}` has {name}={value}", statement.source)

    def _shape(self, words: Mapping[str, Value], name: str, statement: Statement) -> tuple[int, ...]:
        value = words.get(name)
        if isinstance(value, tuple):
            found = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool) and item >= 0)
            if len(found) == len(value):
                return found
        raise ReadError(f"`{dotted(statement.call.func)}` has {name}={value}", statement.source)

    def _group(self, words: Mapping[str, Value], statement: Statement) -> Group:
        ranks = self._shape(words, "ranks", statement)
        if not ranks or len(set(ranks)) != len(ranks):
            raise ReadError(f"a group of the ranks {list(ranks)}", statement.source)
        return Group(ranks=ranks)

    def _one(self, tensors: tuple[str, ...], statement: Statement) -> tuple[str, str]:
        if len(tensors) != 1 or len(statement.outputs) != 1:
            raise ReadError(f"`{dotted(statement.call.func)}` does not take one tensor to one", statement.source)
        return tensors[0], statement.outputs[0]

    def _communicate(
        self, kind: Collective | None, before: str, after: str, words: Mapping[str, Value], statement: Statement, forward: bool
    ) -> Compute | Communicate:
        if kind is None:
            return Compute(IDENTITY, (before,), (after,), source=statement.source)
        dim = concat = None
        if kind is Collective.ALL_TO_ALL:
            concat, dim = self._integer(words, "idim", statement), self._integer(words, "odim", statement)
            if not forward:
                concat, dim = dim, concat
        elif kind is not Collective.ALL_REDUCE:
            dim = self._integer(words, "dim", statement)
        reduce = "sum" if kind in _SUMMED else ""
        group = self._group(words, statement)
        return Communicate(kind, (before,), (after,), group, reduce, dim, concat, source=statement.source)

    def _fused(self, name: str, statement: Statement) -> None:
        tensors, words = self._given(statement)
        meaning = FUSED.get(name)
        unknown = set(words) - {"ranks", "dim", "idim", "odim"}
        if meaning is None or unknown:
            what = f"the keyword `{min(unknown)}`" if meaning is not None else "that"
            raise ReadError(f"`{ADAPTER}nn.{name}`: tvlint does not know {what}", statement.source)
        before, after = self._one(tensors, statement)
        made = self._write(after, statement.source)
        forward = self._communicate(meaning[0], before, made, words, statement, True)
        self._append(forward, self._communicate(meaning[1], "", "", words, statement, False))

    def _communication(self, name: str, statement: Statement) -> None:
        tensors, words = self._given(statement)
        if name in _PLAIN:
            unknown = set(words) - {"ranks", "dim", "idim", "odim"}
            if unknown and (unknown != {"async_op"} or words["async_op"] is not False):
                raise ReadError(f"`{ADAPTER}{name}`: tvlint does not know the keyword `{min(unknown)}`", statement.source)
            before, after = self._one(tensors, statement)
            made = self._write(after, statement.source)
            self._append(self._communicate(_PLAIN[name], before, made, words, statement, True), differentiable=False)
        elif name == "move":
            self._move(tensors, words, statement)
        elif name == "broadcast":
            self._broadcast(tensors, words, statement)
        else:
            raise ReadError(f"`{ADAPTER}{name}`: tvlint does not know that", statement.source)

    def _state(self, name: str, words: Mapping[str, Value], statement: Statement) -> None:
        self.body.stated[name] = (self._shape(words, "shape", statement), str(words.get("dtype", "")).removeprefix("torch."))

    def _move(self, tensors: tuple[str, ...], words: Mapping[str, Value], statement: Statement) -> None:
        source, target = self._integer(words, "src", statement), self._integer(words, "dst", statement)
        outputs = [name for name in statement.outputs if name != "_"]
        if len(tensors) > 1 or len(outputs) > 1:
            raise ReadError("a move of more than one tensor", statement.source)
        if source == self.rank and target != source:
            if not tensors:
                raise ReadError("a move sends nothing", statement.source)
            self._state(tensors[0], words, statement)
            self._append(Send(tensors[0], Peer(rank=target), source=statement.source), differentiable=False)
            self.current.update(dict.fromkeys(outputs, tensors[0]))
        elif target == self.rank and source != target:
            if len(outputs) == 1:
                made = self._write(outputs[0], statement.source)
                self._state(made, words, statement)
                self._append(Receive(made, Peer(rank=source), source=statement.source), differentiable=False)
            else:
                raise ReadError("what a move receives is thrown away", statement.source)
        else:
            self.body.bystander.append((source, target, statement.source))

    def _broadcast(self, tensors: tuple[str, ...], words: Mapping[str, Value], statement: Statement) -> None:
        root = self._integer(words, "src", statement)
        outputs = [name for name in statement.outputs if name != "_"]
        if len(tensors) > 1 or len(outputs) > 1 or (root == self.rank and not tensors):
            raise ReadError("a broadcast of more or less than one tensor", statement.source)
        taken = tensors if root == self.rank else ()
        made: tuple[str, ...] = ()
        if outputs and root == self.rank:
            self.current[outputs[0]] = tensors[0]
        elif outputs:
            made = (self._write(outputs[0], statement.source),)
            self._state(made[0], words, statement)
        group = self._group(words, statement)
        self._append(
            Communicate(Collective.BROADCAST, taken, made, group, root=root, source=statement.source), differentiable=False
        )


def _detaches(call: ast.Call) -> bool:
    """Whether the call is `builtins.getattr(x, 'data')`: the value without its gradient."""
    match call:
        case ast.Call(args=[_, ast.Constant(value="data")], keywords=[]):
            return dotted(call.func) == GETATTR
        case _:
            return False


def _renamed(operator: Operator, names: Mapping[str, str]) -> Operator:
    """A communication between tensors of other names."""
    if not isinstance(operator, Communicate):
        place = getattr(operator, "source", None)
        raise ReadError("a function with a backward of its own does more than communicate", place or Location(""))
    inputs = tuple(names.get(name, name) for name in operator.inputs)
    return replace(operator, inputs=inputs, outputs=tuple(names.get(name, name) for name in operator.outputs))
