"""Generated methods: segments, adapters, the calls of reducers, and functions with a backward of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import TypeAlias

from tvlint.readers.nnscaler.gencode.syntax.expressions import (
    TRAINING,
    as_call,
    filled_in,
    folded,
    is_constant,
    may_act,
    names_in,
    opaque_op,
)
from tvlint.readers.nnscaler.gencode.syntax.nodes import Nodes, NotUnderstood, arguments_of
from tvlint.readers.nnscaler.gencode.syntax.records import Autograd, Delete, Method, Opaque, Statement
from tvlint.readers.sources.python_syntax import dotted

Entry: TypeAlias = Statement | Delete | Opaque


def read_method(nodes: Nodes, function: ast.FunctionDef, constants: Mapping[str, ast.expr] | None = None) -> Method:
    """Return the statements of one method; `constants` are those of its arguments that are constants wherever it is run."""
    return _Body(nodes, constants or {}).read(function)


def read_autograd(nodes: Nodes, node: ast.ClassDef) -> Autograd:
    """Return a class of communications whose backward is written out."""
    found: dict[str, Method] = {}
    for member in node.body:
        match member:
            case ast.FunctionDef(name="forward" | "backward" as name, decorator_list=[ast.Name(id="staticmethod")]):
                found[name] = _Body(nodes, {}).read(member, "ctx")
            case _:
                raise nodes.unknown(member, f"`{node.name}`")
    if len(found) != 2 or len(node.body) != 2:
        raise nodes.fail(node, f"`{node.name}` does not have one `forward` and one `backward`")
    return Autograd(node.name, found["forward"], found["backward"])


class _Body:
    def __init__(self, nodes: Nodes, constants: Mapping[str, ast.expr]) -> None:
        self.nodes = nodes
        self.constants = dict(constants)
        self.inner: dict[str, ast.FunctionDef] = {}
        self.checkpointed = False
        self.reduces = ""

    def read(self, function: ast.FunctionDef, first: str = "self") -> Method:
        arguments = arguments_of(function)
        decorated = bool(function.decorator_list) and first == "self"
        if arguments is None or not arguments or arguments[0] != first or decorated:
            raise self.nodes.fail(function, f"`{function.name}` has other arguments than generated code has")
        taken = tuple(name for name in arguments[1:] if name not in self.constants)
        end = next((node for node in function.body if isinstance(node, ast.Return)), None)
        statements = function.body if end is None else function.body[: function.body.index(end)]
        body = list(self._entries(statements, function))
        returns: tuple[str, ...] = ()
        if end is not None:
            made, returns = self._returned(end, function)
            body += made
        if self.reduces and (body or returns or taken):
            raise self.nodes.fail(function, f"`{function.name}` runs a reducer and does something else as well")
        return Method(
            function.name,
            taken,
            tuple(body),
            returns,
            self.nodes.source.at(function),
            self.nodes.source.at(end or function),
            self.reduces,
            self.checkpointed,
            {name: self.constants[name] for name in returns if name in self.constants},
        )

    def _entries(self, statements: list[ast.stmt], function: ast.FunctionDef, tracked: bool = True) -> Iterator[Entry]:
        """Yield what the statements do; one that is not understood is opaque, and the others are read all the same."""
        for node in statements:
            try:
                yield from self._entry(node, function, tracked)
            except NotUnderstood as error:
                yield self._opaque(node, error)

    def _entry(self, node: ast.stmt, function: ast.FunctionDef, tracked: bool) -> Iterable[Entry]:
        match node:
            case ast.Delete(targets=targets):
                names = tuple(name for name in self.nodes.deleted(targets, node) if name not in self.constants)
                return [Delete(names)]
            case ast.Expr(value=ast.Call(func=func, args=[], keywords=[])) if dotted(func).endswith(".sync_grads"):
                if self.reduces:
                    raise self.nodes.fail(node, f"`{function.name}` runs two reducers")
                self.reduces = dotted(func).removeprefix("self.").removesuffix(".sync_grads")
                return []
            case ast.Expr(value=ast.Call() as call):
                return self._assigned((), call, node, function, tracked)
            case ast.FunctionDef(name=name, decorator_list=[]):
                self.inner[name] = node
                return []
            case ast.Assign(targets=[target], value=value):
                return self._assigned(self.nodes.targets(target), value, node, function, tracked)
            case ast.With(items=items, body=inside):
                recorded = [self._is_recorded(item) for item in items]
                return list(self._entries(inside, function, tracked and all(recorded)))
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return []
            case _:
                raise self.nodes.unknown(node, f"`{function.name}`")

    def _assigned(
        self, names: tuple[str, ...], value: ast.expr, node: ast.stmt, function: ast.FunctionDef, tracked: bool
    ) -> Iterable[Entry]:
        """Return the statements that give `names` what an expression makes; none for a constant, which is kept instead."""
        value = folded(filled_in(value, self.constants))
        for name in names:
            self.constants.pop(name, None)
        if len(names) < 2 and is_constant(value):
            self.constants.update(dict.fromkeys(names, value))
            return []
        call = as_call(value)
        if call is None:
            raise self.nodes.unknown(value, f"`{function.name}`")
        if dotted(call.func) in ("ckpt.checkpoint", "torch.utils.checkpoint.checkpoint"):
            return self._recomputed(call, names, function)
        return [Statement(names, call, self.nodes.at(node), tracked)]

    def _is_recorded(self, item: ast.withitem) -> bool:
        """Return whether autograd records what runs in a context that changes nothing else."""
        call = item.context_expr
        name = dotted(call.func) if isinstance(call, ast.Call) else ""
        if isinstance(call, ast.Call) and item.optional_vars is None:
            if name in ("torch.no_grad", "torch.inference_mode") and not call.args and not call.keywords:
                return False
            words = {word.arg: word.value for word in call.keywords}
            match words.get("enabled"):
                case ast.Constant(value=False) if name == "torch.autocast":
                    return True
        said = f"operators run in the context `{name or 'an expression'}`, and tvlint does not know what it changes"
        raise self.nodes.not_understood(call, said)

    def _opaque(self, node: ast.stmt, error: NotUnderstood) -> Opaque:
        """Return a statement that is not understood: what it gives names is unknown."""
        inputs, outputs = names_in(node)
        for name in outputs:
            self.constants.pop(name, None)
        return Opaque(inputs, outputs, opaque_op(node), str(error), self.nodes.at(node), may_act(node))

    def _returned(self, node: ast.Return, function: ast.FunctionDef) -> tuple[list[Entry], tuple[str, ...]]:
        """Return the statements that make what has no name of what a method gives, and the names of all."""
        made: list[Entry] = []
        names: list[str] = []
        for value in self.nodes.items(node.value):
            name = dotted(value).removeprefix("self.")
            if not name or "." in name or dotted(value) == TRAINING:
                name = f"returned.{len(names)}"
                try:
                    made += self._assigned((name,), value, node, function, True)
                except NotUnderstood as error:
                    made.append(replace(self._opaque(node, error), outputs=(name,), acts=may_act(value)))
            names.append(name)
        return made, tuple(names)

    def _recomputed(self, call: ast.Call, outputs: tuple[str, ...], around: ast.FunctionDef) -> Iterable[Entry]:
        """Return the body of a function that is run under activation checkpointing, in place of the call.

        Generated code gives the function the caller's names and all values that it uses; anything else is refused.
        """
        self.checkpointed = True
        name = dotted(call.args[0]) if call.args else ""
        function = self.inner.get(name)
        if function is None:
            raise self.nodes.fail(call, "what is checkpointed is no function of this method")
        match call.keywords:
            case [ast.keyword(arg="use_reentrant", value=ast.Constant(value=False))]:
                pass
            case _:
                said = f"`{name}` is not checkpointed with `use_reentrant=False` alone"
                help = "other ways lose gradients where no input needs one, or draw anew when they compute again"
                raise self.nodes.fail(call, said, help)
        later = _free(function) & (_bound(around) - {"self", *self.constants})
        if later:
            said = f"`{name}` uses `{min(later)}` without being given it, so it computes again with what that is by then"
            raise self.nodes.fail(function, said, "generated code hands all values to the function as arguments")
        names = tuple(one for one in arguments_of(function) or ("",) if one not in self.constants)
        passed = tuple(dotted(argument) for argument in call.args[1:] if not is_constant(argument))
        end = function.body[-1]
        if names != passed or not isinstance(end, ast.Return):
            raise self.nodes.fail(call, f"`{name}` is called with other names than its own arguments")
        if self.nodes.names(end.value, end) != outputs:
            raise self.nodes.fail(call, f"the results of `{name}` are renamed")
        before = dict(self.constants)
        entries = [entry for entry in self._entries(function.body[:-1], function) if not isinstance(entry, Delete)]
        self.constants = before | {one: self.constants[one] for one in outputs if one in self.constants}
        return list(self._under_own_names(around, function, entries, outputs))

    def _under_own_names(
        self,
        function: ast.FunctionDef,
        inner: ast.FunctionDef,
        body: Iterable[Statement | Opaque],
        outputs: tuple[str, ...],
    ) -> Iterator[Entry]:
        """Yield the body of a checkpointed function where values that share a name with others around it have new ones."""
        outside, around = set[str](), list[ast.AST](function.body)
        while around:
            node = around.pop()
            if node is not inner:
                outside.update((node.id,) if isinstance(node, ast.Name) else ())
                around.extend(ast.iter_child_nodes(node))
        known: dict[str, str] = {}
        for entry in body:
            names = {name: ast.Name(each_name, ast.Load()) for name, each_name in known.items()}
            shared = {name for name in entry.outputs if name in outside and name not in outputs and name != "_"}
            known.update({name: f"{name}.{inner.name}" for name in shared})
            given = tuple(known[name] if name in shared else name for name in entry.outputs)
            if isinstance(entry, Opaque):
                yield replace(entry, inputs=tuple(map(_name_of, entry.inputs, repeat(names))), outputs=given)
            else:
                call = filled_in(entry.call, names)
                assert isinstance(call, ast.Call)
                yield replace(entry, call=call, outputs=given)


def _name_of(name: str, names: Mapping[str, ast.Name]) -> str:
    return names[name].id if name in names else name


def _bound(function: ast.FunctionDef) -> set[str]:
    """Return the names that a method gives values, outside of the functions in it."""
    found = {argument.arg for argument in function.args.args}
    left = list[ast.AST](function.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        left.extend(() if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node))
    return found


def _free(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function uses and neither is given nor makes."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)} | {one.arg for one in function.args.args}
    return {name.id for name in names} - bound
