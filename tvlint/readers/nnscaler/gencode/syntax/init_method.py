"""`__init__` of a generated class: groups, parameters and reducers."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from tvlint.ir.operators import Value
from tvlint.plurals import counted
from tvlint.readers.nnscaler.gencode.syntax.expressions import opaque_op
from tvlint.readers.nnscaler.gencode.syntax.nodes import Nodes, NotUnderstood
from tvlint.readers.nnscaler.gencode.syntax.records import Opaque, Parameter, RankFile, Reducer
from tvlint.readers.sources.python_syntax import dotted

REDUCER = "nnscaler.runtime.adapter.Reducer"
_SETTINGS = frozenset(
    {
        "ranks",
        "max_bucket_size_bytes",
        "reduce_op",
        "async_op",
        "zero",
        "zero_ngroups",
        "zero_use_reduce_scatter",
        "align_size",
    }
)


def read_init(nodes: Nodes, found: RankFile, function: ast.FunctionDef) -> None:
    """Fill `found` with what `__init__` creates and registers."""
    _Init(nodes, found).read(function)


class _Init:
    def __init__(self, nodes: Nodes, found: RankFile) -> None:
        self.nodes = nodes
        self.found = found
        self.defaults: Mapping[str, Value] = {}
        self.constructed = False

    def read(self, function: ast.FunctionDef) -> None:
        defaults: dict[str, Value] = {}
        for name, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            if value is not None:
                defaults[name.arg] = self.nodes.constant(value, f"the default of `{name.arg}`")
        self.defaults = defaults
        self.nodes.undecorated(function)
        if [one.arg for one in function.args.args[:1]] != ["self"] or function.args.vararg or function.args.kwarg:
            raise self.nodes.fail(function, "`__init__` has other arguments than generated code has")
        if not all(isinstance(value, ast.Constant) and value.value is True for value in function.args.defaults):
            help = "generate the code again: it is `__init__(self, init_params=True, ...)`"
            raise self.nodes.fail(function, "`__init__` leaves parameters unfilled unless its caller asks for them", help)
        for node in function.body:
            try:
                self._statement(node)
            except NotUnderstood as error:
                self.found.opaque.append(Opaque((), (), opaque_op(node), str(error), self.nodes.source.at(node), True))

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Call() as call):
                self._registration(node, call)
            case ast.Assign(targets=[ast.Attribute() as target], value=ast.Call() as call):
                self._reducer(node, dotted(target), call)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case _:
                raise self.nodes.unknown(node, "`__init__`")

    def _registration(self, node: ast.Expr, call: ast.Call) -> None:
        callee = dotted(call.func)
        if self.found.prepared and callee:
            help = "generate the code again: `_post_init` ends `__init__`, since it fills parameters and builds reducers"
            raise self.nodes.fail(node, f"`__init__` calls `{callee}` after `_post_init`", help)
        if callee and not self.constructed:
            raise self.nodes.fail(node, f"`__init__` calls `{callee}` before `super().__init__()`")
        match callee.split("."):
            case ["self", "init_group"]:
                self.found.groups.append(
                    (self.nodes.integers(self.nodes.argument(call, 0, "ranks"), "a group"), self.nodes.source.at(node))
                )
            case ["self", "register_parameter" | "register_buffer" as which]:
                self._register(node, call, which == "register_parameter")
            case ["self", "add_full_map"]:
                self._full_map(node, call)
            case ["self", reducer, "add_param"]:
                self._add_parameter(node, reducer, call)
            case ["self", "add_reducer"]:
                name = dotted(self.nodes.argument(call, 0, "reducer")).removeprefix("self.")
                if name not in self.found.reducers:
                    raise self.nodes.fail(node, f"`{name or 'it'}` is added and is no reducer")
                if self.found.reducers[name].registered:
                    raise self.nodes.fail(node, f"`{name}` is added to the module twice")
                self.found.reducers[name] = replace(self.found.reducers[name], registered=True)
            case ["self", "_post_init"]:
                self._prepared(node, call)
            case _ if ast.unparse(call) == "super().__init__()":
                if self.found.groups or self.found.parameters or self.found.reducers:
                    raise self.nodes.fail(node, "`super().__init__()` forgets what was registered before it")
                self.constructed = True
            case _:
                raise self.nodes.not_understood(node, f"`__init__` calls `{callee}`, which generated code is not known to do")

    def _prepared(self, node: ast.Expr, call: ast.Call) -> None:
        """`_post_init` fills parameters unless the caller of `__init__` says otherwise."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if len(given) > 1 or any(ast.unparse(one) not in ("init_params", "True") for one in given):
            help = "generate the code again: `__init__` ends with `self._post_init(init_params)`"
            raise self.nodes.fail(node, "`_post_init` is not given `init_params`, which says whether it fills parameters", help)
        self.found.prepared = True

    def _register(self, node: ast.Expr, call: ast.Call, is_weight: bool) -> None:
        name = self.nodes.constant(self.nodes.argument(call, 0, "name"), "the name of a parameter")
        made = self.nodes.argument(call, 1, "param" if is_weight else "tensor")
        if isinstance(made, ast.Call) and dotted(made.func) == "torch.nn.Parameter":
            if len(made.args) + len(made.keywords) != 1:
                raise self.nodes.fail(node, "a parameter is given more than its tensor, which may keep it from being trained")
            made = self.nodes.argument(made, 0, "data")
        if not isinstance(name, str) or not isinstance(made, ast.Call) or dotted(made.func) != "torch.empty":
            raise self.nodes.fail(node, "a parameter is not registered as `torch.empty(shape, dtype=...)`")
        if len(made.args) > 1 or any(word.arg not in ("size", "dtype") for word in made.keywords):
            raise self.nodes.fail(node, f"`{name}` is made of more than a shape and a dtype")
        shape = self.nodes.integers(self.nodes.argument(made, 0, "size"), f"the shape of `{name}`")
        dtype = self.nodes.constant(self.nodes.argument(made, 1, "dtype"), f"the dtype of `{name}`")
        if name in self.found.parameters:
            raise self.nodes.fail(node, f"`{name}` is registered twice")
        if min(shape, default=0) < 0:
            raise self.nodes.fail(node, f"the shape of `{name}` is {shape}")
        self.found.parameters[name] = Parameter(
            name, shape, str(dtype).removeprefix("torch."), is_weight, self.nodes.source.at(node), name, shape
        )

    def _full_map(self, node: ast.Expr, call: ast.Call) -> None:
        name = self.nodes.constant(self.nodes.argument(call, 0, "attr"), "the name of a parameter")
        parameter = self.found.parameters.get(name) if isinstance(name, str) else None
        if parameter is None:
            raise self.nodes.stops(node, f"`add_full_map` names `{name}`, which is not registered")
        if len(call.args) != 7 or call.keywords:
            raise self.nodes.fail(node, "`add_full_map` does not have its seven arguments")
        number = self.nodes.integer(call.args[1], f"the id of the whole of `{name}`")
        is_weight = self.nodes.constant(call.args[2], "the kind of a parameter")
        full_name = self.nodes.constant(call.args[3], "the full name of a parameter")
        whole = self.nodes.integers(call.args[4], f"the whole shape of `{name}`")
        region = self._region(call.args[5], name)
        parts = self.nodes.integer(call.args[6], f"the number of parts of `{name}`")
        if not isinstance(full_name, str) or not isinstance(is_weight, bool) or len(region) != len(whole):
            raise self.nodes.fail(node, f"the full map of `{name}` is not one")
        if parts < 1:
            raise self.nodes.fail(node, f"the number of parts of `{name}` is {parts}")
        if is_weight != parameter.is_weight:
            kinds = ("buffer", "parameter")
            said = f"`{name}` is registered as a {kinds[parameter.is_weight]} and mapped as a {kinds[is_weight]}"
            raise self.nodes.fail(node, said)
        self.found.parameters[str(name)] = replace(
            parameter,
            full_name=full_name,
            whole=whole,
            region=region,
            parts=parts,
            number=number,
            map_source=self.nodes.source.at(node),
        )

    def _region(self, node: ast.expr, name: object) -> tuple[tuple[int, int], ...]:
        value = self.nodes.constant(node, f"the slices of `{name}`")
        box = []
        for entry in value if isinstance(value, tuple) else ():
            match entry:
                case ("slice", int(low), int(high)) | ("slice", int(low), int(high), None | 1):
                    box.append((low, high))
                case _:
                    raise self.nodes.fail(node, f"the slices of `{name}` are not all `slice(start, stop)`")
        return tuple(box)

    def _reducer(self, node: ast.Assign, target: str, call: ast.Call) -> None:
        name = target.removeprefix("self.")
        if not target.startswith("self.") or dotted(call.func) != REDUCER or call.args:
            raise self.nodes.not_understood(node, f"`__init__` makes `{target}` in a way that generated code is not known to")
        given: dict[str, Value] = {}
        if name in self.found.reducers or name in self.found.parameters:
            raise self.nodes.fail(node, f"`{target}` is made twice")
        for keyword in call.keywords:
            word = keyword.arg or ""
            if word not in _SETTINGS or word in given:
                raise self.nodes.fail(node, f"a reducer is not known to have the setting `{word}`, or has it twice")
            if isinstance(keyword.value, ast.Name) and keyword.value.id in self.defaults:
                given[word] = self.defaults[keyword.value.id]
            else:
                given[word] = self.nodes.constant(keyword.value, f"`{word}` of a reducer")
        ranks = given.get("ranks")
        if not isinstance(ranks, tuple) or not all(isinstance(rank, int) and rank >= 0 for rank in ranks):
            raise self.nodes.fail(node, "a reducer does not list its `ranks`")
        if not isinstance(given.get("async_op", False), bool):
            raise self.nodes.fail(node, f"`async_op` of `{name}` is {given['async_op']!r}, neither True nor False")
        groups = given.get("zero_ngroups", 1)
        if groups != 1 and (not given.get("zero") or given.get("zero_use_reduce_scatter")):
            said = f"`{name}` has {groups} groups (`zero_ngroups`), which it may have only with `zero` and all-reduce"
            raise self.nodes.fail(node, said)
        if given.get("zero") and (not isinstance(groups, int) or groups < 1 or len(ranks) % groups):
            raise self.nodes.fail(
                node, f"`{name}` of {counted(len(ranks), 'rank')} cannot be cut into {groups} groups (`zero_ngroups`)"
            )
        self.found.reducers[name] = Reducer(
            name,
            tuple(rank for rank in ranks if isinstance(rank, int)),
            str(given.get("reduce_op", "sum")),
            given.get("async_op") is True,
            bool(given.get("zero", False)),
            self.nodes.source.at(node),
            settings={word: value for word, value in given.items() if word != "ranks"},
        )

    def _add_parameter(self, node: ast.Expr, reducer: str, call: ast.Call) -> None:
        weight = dotted(self.nodes.argument(call, 0, "param")).removeprefix("self.")
        if reducer not in self.found.reducers:
            raise self.nodes.stops(node, f"`{reducer}` is used before it is made")
        if weight not in self.found.parameters:
            said = f"`{weight or 'an expression'}` is added to a reducer and is not registered"
            raise self.nodes.stops(node, said) if weight else self.nodes.fail(node, said)
        known = self.found.reducers[reducer]
        self.found.reducers[reducer] = replace(
            known, weights=(*known.weights, weight), added_at=(*known.added_at, self.nodes.source.at(node))
        )
