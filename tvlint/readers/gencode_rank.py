"""One `gencode{rank}.py`, as records: groups, parameters, reducers, methods and the schedule of a training step."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tvlint.ir.location import Location
from tvlint.ir.plan import Value
from tvlint.readers.document import ReadError
from tvlint.readers.gencode_syntax import NotConstant, Source, constant, dotted, integer, integers
from tvlint.readers.nnscaler_records import Sources

MODULE = "nnscaler.runtime.module.ParallelModule"
REDUCER = "nnscaler.runtime.adapter.Reducer"
EXECUTOR = "nnscaler.runtime.executor"
FLAGS = "nnscaler.flags.RuntimeFlag"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer of one rank, and which slice of which whole it is."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_weight: bool
    source: Location
    full_name: str = ""
    whole: tuple[int, ...] = ()
    region: tuple[tuple[int, int], ...] = ()
    parts: int = 1
    map_source: Location | None = None


@dataclass(frozen=True, slots=True)
class Reducer:
    """One gradient reducer and the parameters that were added to it."""

    name: str
    ranks: tuple[int, ...]
    reduce: str
    asynchronous: bool
    zero: bool
    zero_groups: int
    source: Location
    weights: tuple[str, ...] = ()
    registered: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """`outputs = call`, one line of a method."""

    outputs: tuple[str, ...]
    call: ast.Call
    source: Location


@dataclass(frozen=True, slots=True)
class Delete:
    """`del names`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """A segment, an adapter or a reducer's call; `reduces` names the reducer attribute of the last kind."""

    name: str
    arguments: tuple[str, ...]
    body: tuple[Statement | Delete, ...]
    returns: tuple[str, ...]
    source: Location
    returned_at: Location
    reduces: str = ""
    checkpointed: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """The data loader gives one micro-batch."""

    loader: str
    outputs: tuple[str, ...]
    source: Location


@dataclass(frozen=True, slots=True)
class Execute:
    """A method is run; `tracked` says that autograd records it (`fexecute` with `requires_grad=True`)."""

    method: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    forward: bool
    tracked: bool
    source: Location


@dataclass(frozen=True, slots=True)
class RunBackward:
    """Autograd is run from a segment's outputs to its inputs; an empty gradient stands for `None`."""

    segment: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    gradients: tuple[str, ...]
    results: tuple[str, ...]
    skips_reducer: bool
    source: Location


@dataclass(frozen=True, slots=True)
class Rename:
    """`new = old.detach()`."""

    new: str
    old: str


@dataclass(frozen=True, slots=True)
class ClearGradients:
    """`model.zero_grad()`; `skipped` when the flag before it says so."""

    skipped: bool
    source: Location


Action: TypeAlias = "Load | Execute | RunBackward | Rename | Delete | ClearGradients"


@dataclass(slots=True)
class RankFile:
    """All that one generated file says."""

    source: Source
    rank: int = -1
    rank_source: Location | None = None
    version: str = ""
    micro_batches: int | None = None
    groups: list[tuple[tuple[int, ...], Location]] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    reducers: dict[str, Reducer] = field(default_factory=dict)
    methods: dict[str, Method] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    returned: tuple[str, ...] = ()
    returned_at: Location | None = None
    train_source: Location | None = None
    modules: set[str] = field(default_factory=set)
    modules_before_class: set[str] = field(default_factory=set)
    base_module: str = ""
    class_source: Location | None = None
    names: set[str] = field(default_factory=set)
    """Names that are assigned or are arguments somewhere."""

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.source.path


def read_rank(source: Source) -> RankFile:
    """The records of a parsed file. Raises ReadError at the first construct that generated code is not known to hold."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.origins = Sources(source.path)
        self.found = RankFile(source)
        self.defaults: Mapping[str, Value] = {}

    def fail(self, node: ast.AST, message: str, help: str = "") -> ReadError:
        return ReadError(message, self.source.at(node), help)

    def unknown(self, node: ast.AST, where: str) -> ReadError:
        what = type(node).__name__ if not isinstance(node, ast.Expr) else type(node.value).__name__
        return self.fail(node, f"{where} holds a statement (`{what}`) that generated code is not known to have")

    def at(self, node: ast.AST) -> Location:
        """The place of `node`; its origin is the model's line in the comment above."""
        place = self.source.at(node)
        above = self.source.lines[place.line - 2].strip() if place.line is not None and place.line >= 2 else ""
        if not above.startswith("# File "):
            return place
        origin = self.origins.of(above[2:], lambda: "")
        return replace(place, origin=origin) if origin.line is not None else place

    def read(self) -> RankFile:
        model = train = None
        for node in self.source.tree.body:
            match node:
                case ast.Import(names=names):
                    self.found.modules.update((name.asname or name.name).split(".")[0] for name in names)
                case ast.ImportFrom(names=names):
                    self.found.modules.update(name.asname or name.name for name in names)
                case ast.Assign(targets=[ast.Name(id="runtime_version")], value=ast.Constant(value=str(version))):
                    self.found.version = version
                case ast.ClassDef(bases=[base]) if dotted(base) == MODULE and model is None:
                    model = node
                    self.found.modules_before_class = set(self.found.modules)
                    self.found.base_module = dotted(base).split(".")[0]
                    self.found.class_source = self.source.at(node)
                case ast.FunctionDef(name="_train_step") if train is None:
                    train = node
                case ast.FunctionDef(name="_infer_step"):
                    pass
                case ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise self.unknown(node, "the file")
        if model is None:
            raise ReadError(f"no class in this file is a `{MODULE}`", Location(self.source.path))
        if train is None:
            raise ReadError(
                "the file has no `_train_step`",
                self.source.at(model),
                "tvlint reads code that was generated for end-to-end training (`use_end2end`)",
            )
        for inner in ast.walk(self.source.tree):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                self.found.names.add(inner.id)
            elif isinstance(inner, ast.arg):
                self.found.names.add(inner.arg)
        self._model(model)
        self._train(train)
        return self.found

    def _model(self, model: ast.ClassDef) -> None:
        for node in model.body:
            match node:
                case ast.Assign(targets=[ast.Name(id="rank")], value=value):
                    self.found.rank = self._integer(value, "`rank`")
                    self.found.rank_source = self.source.at(node)
                case ast.Assign(targets=[ast.Name(id="nmicros_per_scheduler_step")], value=value):
                    self.found.micro_batches = self._integer(value, "`nmicros_per_scheduler_step`")
                case ast.Assign(targets=[ast.Name(id="use_scheduler")], value=ast.Constant(value=bool())):
                    pass
                case ast.Expr(value=ast.Constant()):
                    pass
                case ast.FunctionDef(name="__init__"):
                    self._init(node)
                case ast.FunctionDef(name="_forward_impl"):
                    pass
                case ast.FunctionDef(name=name):
                    if name in self.found.methods:
                        raise self.fail(node, f"`{name}` is defined twice")
                    self.found.methods[name] = self._method(node)
                case _:
                    raise self.unknown(node, "the class")
        if self.found.rank < 0:
            raise self.fail(model, "the class does not say its `rank`")

    def _integer(self, node: ast.AST, what: str) -> int:
        try:
            value = integer(node)
        except NotConstant as error:
            raise self.fail(node, f"{what} is {error}") from None
        if value < 0:
            raise self.fail(node, f"{what} is {value}")
        return value

    def _integers(self, node: ast.AST, what: str) -> tuple[int, ...]:
        try:
            return integers(node)
        except NotConstant as error:
            raise self.fail(node, f"{what} is {error}") from None

    def _constant(self, node: ast.AST, what: str) -> Value:
        try:
            return constant(node)
        except NotConstant as error:
            raise self.fail(node, f"{what} is {error}") from None

    def _init(self, function: ast.FunctionDef) -> None:
        defaults: dict[str, Value] = {}
        for name, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            if value is not None:
                defaults[name.arg] = self._constant(value, f"the default of `{name.arg}`")
        self.defaults = defaults
        for node in function.body:
            match node:
                case ast.Expr(value=ast.Call() as call):
                    self._registration(node, call)
                case ast.Assign(targets=[ast.Attribute() as target], value=ast.Call() as call):
                    self._reducer(node, dotted(target), call)
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case _:
                    raise self.unknown(node, "`__init__`")

    def _registration(self, node: ast.Expr, call: ast.Call) -> None:
        callee = dotted(call.func)
        match callee.split("."):
            case ["self", "init_group"]:
                self.found.groups.append((self._integers(self._argument(call, 0, "ranks"), "a group"), self.source.at(node)))
            case ["self", "register_parameter" | "register_buffer" as which]:
                self._register(node, call, which == "register_parameter")
            case ["self", "add_full_map"]:
                self._full_map(node, call)
            case ["self", reducer, "add_param"]:
                self._add_parameter(node, reducer, call)
            case ["self", "add_reducer"]:
                name = dotted(self._argument(call, 0, "reducer")).removeprefix("self.")
                if name not in self.found.reducers:
                    raise self.fail(node, f"`{name or 'it'}` is added and is no reducer")
                self.found.reducers[name] = replace(self.found.reducers[name], registered=True)
            case ["self", "_post_init"] | []:
                pass
            case _ if isinstance(call.func, ast.Attribute) and call.func.attr == "__init__":
                pass
            case _:
                raise self.fail(node, f"`__init__` calls `{callee}`, which generated code is not known to do")

    def _argument(self, call: ast.Call, position: int, name: str) -> ast.expr:
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        if position < len(call.args):
            return call.args[position]
        raise self.fail(call, f"`{dotted(call.func)}` lacks its argument `{name}`")

    def _register(self, node: ast.Expr, call: ast.Call, is_weight: bool) -> None:
        name = self._constant(self._argument(call, 0, "name"), "the name of a parameter")
        made = self._argument(call, 1, "param" if is_weight else "tensor")
        if isinstance(made, ast.Call) and dotted(made.func) == "torch.nn.Parameter":
            made = self._argument(made, 0, "data")
        if not isinstance(name, str) or not isinstance(made, ast.Call) or dotted(made.func) != "torch.empty":
            raise self.fail(node, "a parameter is not registered as `torch.empty(shape, dtype=...)`")
        shape = self._integers(self._argument(made, 0, "size"), f"the shape of `{name}`")
        dtype = self._constant(self._argument(made, 1, "dtype"), f"the dtype of `{name}`")
        if name in self.found.parameters:
            raise self.fail(node, f"`{name}` is registered twice")
        if min(shape, default=0) < 0:
            raise self.fail(node, f"the shape of `{name}` is {shape}")
        self.found.parameters[name] = Parameter(
            name, shape, str(dtype).removeprefix("torch."), is_weight, self.source.at(node), name, shape
        )

    def _full_map(self, node: ast.Expr, call: ast.Call) -> None:
        name = self._constant(self._argument(call, 0, "attr"), "the name of a parameter")
        parameter = self.found.parameters.get(name) if isinstance(name, str) else None
        if parameter is None:
            raise self.fail(node, f"`add_full_map` names `{name}`, which is not registered")
        if len(call.args) < 7:
            raise self.fail(node, "`add_full_map` does not have its seven arguments")
        is_weight = self._constant(call.args[2], "the kind of a parameter")
        full_name = self._constant(call.args[3], "the full name of a parameter")
        whole = self._integers(call.args[4], f"the whole shape of `{name}`")
        region = self._region(call.args[5], name)
        parts = self._integer(call.args[6], f"the number of parts of `{name}`")
        if not isinstance(full_name, str) or not isinstance(is_weight, bool) or len(region) != len(whole):
            raise self.fail(node, f"the full map of `{name}` is not one")
        self.found.parameters[str(name)] = replace(
            parameter,
            full_name=full_name,
            whole=whole,
            region=region,
            parts=parts,
            is_weight=parameter.is_weight and is_weight,
            map_source=self.source.at(node),
        )

    def _region(self, node: ast.expr, name: object) -> tuple[tuple[int, int], ...]:
        value = self._constant(node, f"the slices of `{name}`")
        box = []
        for entry in value if isinstance(value, tuple) else ():
            match entry:
                case ("slice", int(low), int(high)) | ("slice", int(low), int(high), None | 1):
                    box.append((low, high))
                case _:
                    raise self.fail(node, f"the slices of `{name}` are not all `slice(start, stop)`")
        return tuple(box)

    def _reducer(self, node: ast.Assign, target: str, call: ast.Call) -> None:
        name = target.removeprefix("self.")
        if not target.startswith("self.") or dotted(call.func) != REDUCER or call.args:
            raise self.fail(node, f"`__init__` makes `{target}` in a way that generated code is not known to")
        given: dict[str, Value] = {}
        for keyword in call.keywords:
            word = keyword.arg or ""
            if isinstance(keyword.value, ast.Name) and keyword.value.id in self.defaults:
                given[word] = self.defaults[keyword.value.id]
            else:
                given[word] = self._constant(keyword.value, f"`{word}` of a reducer")
        ranks = given.get("ranks")
        if not isinstance(ranks, tuple) or not all(isinstance(rank, int) and rank >= 0 for rank in ranks):
            raise self.fail(node, "a reducer does not list its `ranks`")
        groups = given.get("zero_ngroups", 1)
        self.found.reducers[name] = Reducer(
            name,
            tuple(rank for rank in ranks if isinstance(rank, int)),
            str(given.get("reduce_op", "sum")),
            given.get("async_op") is True,
            bool(given.get("zero", False)),
            groups if isinstance(groups, int) else 1,
            self.source.at(node),
        )

    def _add_parameter(self, node: ast.Expr, reducer: str, call: ast.Call) -> None:
        weight = dotted(self._argument(call, 0, "param")).removeprefix("self.")
        if reducer not in self.found.reducers:
            raise self.fail(node, f"`{reducer}` is used before it is made")
        if weight not in self.found.parameters:
            raise self.fail(node, f"`{weight or 'an expression'}` is added to a reducer and is not registered")
        known = self.found.reducers[reducer]
        self.found.reducers[reducer] = replace(known, weights=(*known.weights, weight))

    def _method(self, function: ast.FunctionDef) -> Method:
        arguments = _arguments(function)
        if arguments is None or not arguments or arguments[0] != "self" or function.decorator_list:
            raise self.fail(function, f"`{function.name}` has other arguments than generated code has")
        body: list[Statement | Delete] = []
        returns: tuple[str, ...] = ()
        returned_at = self.source.at(function)
        reduces = ""
        checkpointed = False
        inner: dict[str, ast.FunctionDef] = {}
        for index, node in enumerate(function.body):
            match node:
                case ast.Return(value=value) if index == len(function.body) - 1:
                    returned_at = self.source.at(node)
                    returns = self._names(value, node)
                case ast.Delete(targets=targets):
                    body.append(Delete(tuple(dotted(target) for target in targets)))
                case ast.Expr(value=ast.Call(func=func, args=[], keywords=[])) if dotted(func).endswith(".sync_grads"):
                    reduces = dotted(func).removeprefix("self.").removesuffix(".sync_grads")
                case ast.FunctionDef(name=name):
                    inner[name] = node
                case ast.Assign(targets=[target], value=ast.Call() as call):
                    if dotted(call.func) in ("ckpt.checkpoint", "torch.utils.checkpoint.checkpoint"):
                        checkpointed = True
                        body += self._recomputed(call, self._targets(target), inner)
                    else:
                        body.append(Statement(self._targets(target), call, self.at(node)))
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case _:
                    raise self.unknown(node, f"`{function.name}`")
        return Method(
            function.name,
            arguments[1:],
            tuple(body),
            returns,
            self.source.at(function),
            returned_at,
            reduces,
            checkpointed,
        )

    def _recomputed(
        self, call: ast.Call, outputs: tuple[str, ...], inner: Mapping[str, ast.FunctionDef]
    ) -> Iterator[Statement | Delete]:
        """The body of a function that is run under activation checkpointing, in place of the call.

        Generated code gives the function the caller's names; anything else is refused.
        """
        name = dotted(call.args[0]) if call.args else ""
        function = inner.get(name)
        if function is None:
            raise self.fail(call, "what is checkpointed is no function of this method")
        passed = tuple(dotted(arg) for arg in call.args[1:])
        if _arguments(function) != passed or not isinstance(function.body[-1], ast.Return):
            raise self.fail(call, f"`{name}` is called with other names than its own arguments")
        returned = self._names(function.body[-1].value, function.body[-1])
        if returned != outputs:
            raise self.fail(call, f"the results of `{name}` are renamed")
        for node in function.body[:-1]:
            match node:
                case ast.Delete():
                    pass
                case ast.Assign(targets=[target], value=ast.Call() as operation):
                    yield Statement(self._targets(target), operation, self.at(node))
                case _:
                    raise self.unknown(node, f"`{name}`")

    def _targets(self, node: ast.expr) -> tuple[str, ...]:
        return self._names(node, node)

    def _names(self, node: ast.expr | None, place: ast.AST) -> tuple[str, ...]:
        match node:
            case None:
                return ()
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(name for item in items for name in self._names(item, place))
            case ast.Name(id=name):
                return (name,)
            case ast.Attribute() if dotted(node).startswith("self."):
                return (dotted(node).removeprefix("self."),)
            case _:
                raise self.fail(place, "an expression stands where a name is expected")

    def _train(self, function: ast.FunctionDef) -> None:
        arguments = _arguments(function)
        if arguments is None or len(arguments) < 2:
            raise self.fail(function, "`_train_step` does not take the model and a data loader")
        model, *loaders = arguments
        self.found.train_source = self.source.at(function)
        skips = {"skip_reducer": False, "skip_zero_grad": False}
        for index, node in enumerate(function.body):
            match node:
                case ast.Assign(targets=[ast.Name(id="_")], value=ast.Constant(value=None)):
                    pass
                case ast.Assign(targets=[ast.Attribute() as target], value=ast.Constant(value=bool(flag))) if (
                    dotted(target).startswith(FLAGS) and target.attr in skips
                ):
                    skips[target.attr] = flag
                case ast.Expr(value=ast.Call(func=func, args=[])) if dotted(func) == f"{model}.zero_grad":
                    self.found.actions.append(ClearGradients(skips["skip_zero_grad"], self.source.at(node)))
                case ast.Delete(targets=targets):
                    self.found.actions.append(Delete(tuple(dotted(target) for target in targets)))
                case ast.Return(value=value) if index == len(function.body) - 1:
                    self.found.returned = self._names(value, node)
                    self.found.returned_at = self.source.at(node)
                case ast.Assign(targets=[target], value=ast.Call() as call):
                    outputs = tuple(name for name in self._targets(target) if name != "_")
                    self.found.actions.append(self._action(node, outputs, call, model, loaders, skips["skip_reducer"]))
                case ast.Pass() | ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise self.unknown(node, "`_train_step`")

    def _action(
        self, node: ast.Assign, outputs: tuple[str, ...], call: ast.Call, model: str, loaders: list[str], skips: bool
    ) -> Action:
        callee = dotted(call.func)
        source = self.source.at(node)
        if callee == "next":
            (loader,) = self._starred(call.args, call) or ("",)
            if loader not in loaders:
                raise self.fail(node, f"`next` of `{loader}`, which is no data loader")
            return Load(loader, outputs, source)
        if callee == f"{EXECUTOR}.backward":
            if len(call.args) != 4 or call.keywords:
                raise self.fail(node, "`backward` does not have its four arguments")
            segment = self._constant(call.args[0], "the name of a segment")
            inputs, made, gradients = (self._operands(arg, node) for arg in call.args[1:])
            if segment not in self.found.methods or len(made) != len(gradients):
                raise self.fail(node, f"`backward` of `{segment}` does not fit a segment")
            return RunBackward(str(segment), inputs, made, gradients, outputs, skips, source)
        if callee in (f"{EXECUTOR}.fexecute", f"{EXECUTOR}.aexecute"):
            forward = callee.endswith("fexecute")
            rest = call.args[1:] if forward else call.args
            method = dotted(rest[0]).removeprefix(f"{model}.") if rest else ""
            if method not in self.found.methods:
                raise self.fail(node, f"`{method or callee}` is run and is no method of the class")
            if forward and self._constant(call.args[0], "the name of a segment") != method:
                raise self.fail(node, f"`fexecute` names `{self._constant(call.args[0], '')}` and runs `{method}`")
            tracked = any(word.arg == "requires_grad" and _is_true(word.value) for word in call.keywords)
            inputs = self._starred(rest[1:], node)
            expected = len(self.found.methods[method].arguments)
            if len(inputs) != expected:
                raise self.fail(node, f"`{method}` is given {len(inputs)} values and takes {expected}")
            return Execute(method, inputs, outputs, forward, tracked, source)
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=old), attr="detach"), args=[], keywords=[]) if len(outputs) == 1:
                return Rename(outputs[0], old)
            case _:
                raise self.fail(node, f"`_train_step` calls `{callee or 'an expression'}`, which it is not known to do")

    def _starred(self, args: list[ast.expr], node: ast.AST) -> tuple[str, ...]:
        match args:
            case [ast.Starred(value=value)]:
                return self._operands(value, node)
            case []:
                return ()
            case _:
                raise self.fail(node, "arguments are not given as `*(...)`")

    def _operands(self, value: ast.expr, node: ast.AST) -> tuple[str, ...]:
        """The names in a tuple; an empty one for `None`."""
        if not isinstance(value, ast.Tuple):
            raise self.fail(node, "values are not given as a tuple")
        found = []
        for item in value.elts:
            if isinstance(item, ast.Constant) and item.value is None:
                found.append("")
            elif isinstance(item, ast.Name):
                found.append(item.id)
            else:
                raise self.fail(node, "a value of the schedule is an expression")
        return tuple(found)


def _arguments(function: ast.FunctionDef) -> tuple[str, ...] | None:
    """The names of plain positional arguments; None where there are others."""
    given = function.args
    if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults:
        return None
    return tuple(argument.arg for argument in given.args)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
