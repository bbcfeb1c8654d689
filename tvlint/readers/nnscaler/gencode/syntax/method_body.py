"""Generated methods: segments, adapters, the calls of reducers, and functions with a backward of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace

from tvlint.readers.nnscaler.gencode.syntax.nodes import Nodes, arguments_of
from tvlint.readers.nnscaler.gencode.syntax.records import Autograd, Delete, Method, Statement
from tvlint.readers.sources.python_syntax import dotted


def read_method(nodes: Nodes, function: ast.FunctionDef) -> Method:
    """The statements of one method."""
    return _Body(nodes).read(function)


def read_autograd(nodes: Nodes, node: ast.ClassDef) -> Autograd:
    """A class of communications whose backward is written out."""
    found: dict[str, Method] = {}
    for member in node.body:
        match member:
            case ast.FunctionDef(name="forward" | "backward" as name, decorator_list=[ast.Name(id="staticmethod")]):
                found[name] = _Body(nodes).read(member, "ctx")
            case _:
                raise nodes.unknown(member, f"`{node.name}`")
    if len(found) != 2 or len(node.body) != 2:
        raise nodes.fail(node, f"`{node.name}` does not have one `forward` and one `backward`")
    return Autograd(node.name, found["forward"], found["backward"])


class _Body:
    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    def read(self, function: ast.FunctionDef, first: str = "self") -> Method:
        arguments = arguments_of(function)
        decorated = bool(function.decorator_list) and first == "self"
        if arguments is None or not arguments or arguments[0] != first or decorated:
            raise self.nodes.fail(function, f"`{function.name}` has other arguments than generated code has")
        body: list[Statement | Delete] = []
        returns: tuple[str, ...] = ()
        returned_at = self.nodes.source.at(function)
        reduces = ""
        checkpointed = False
        inner: dict[str, ast.FunctionDef] = {}
        constants: dict[str, ast.expr] = {}
        for index, node in enumerate(function.body):
            match node:
                case ast.Return(value=value) if index == len(function.body) - 1:
                    returned_at = self.nodes.source.at(node)
                    returns = self.nodes.names(value, node)
                case ast.Delete(targets=targets):
                    body.append(Delete(self.nodes.deleted(targets, node)))
                case ast.Expr(value=ast.Call(func=func, args=[], keywords=[])) if (
                    dotted(func).endswith(".sync_grads") and not reduces
                ):
                    reduces = dotted(func).removeprefix("self.").removesuffix(".sync_grads")
                case ast.FunctionDef(name=name):
                    self.nodes.undecorated(node)
                    inner[name] = node
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value) if (
                    dotted(value) == "self.training"
                ):
                    constants[name] = value
                case ast.Assign(targets=[target], value=ast.Call() as call):
                    if dotted(call.func) in ("ckpt.checkpoint", "torch.utils.checkpoint.checkpoint"):
                        checkpointed = True
                        held = _bound(function) - {"self", *constants}
                        recomputed = list(self._recomputed(call, self.nodes.targets(target), inner, held))
                        body += self._under_own_names(
                            function, inner[dotted(call.args[0])], recomputed, self.nodes.targets(target)
                        )
                    else:
                        body.append(Statement(self.nodes.targets(target), call, self.nodes.at(node)))
                case ast.With(items=[ast.withitem(context_expr=ast.Call() as context, optional_vars=None)], body=inside):
                    body += self._untracked(context, inside)
                case ast.Expr(value=ast.Constant()) | ast.Pass():
                    pass
                case _:
                    raise self.nodes.unknown(node, f"`{function.name}`")
        if reduces and (body or returns or arguments[1:]):
            raise self.nodes.fail(function, f"`{function.name}` runs a reducer and does something else as well")
        handed = next((name for name in returns if name in constants), None)
        if handed is not None:
            said = f"`{handed}`, which is `self.training`, is handed to another segment"
            help = "nothing sends it to another rank, where the step fails: read it in the pipeline stage that uses it"
            raise self.nodes.fail(function.body[-1], said, help)
        return Method(
            function.name,
            arguments[1:],
            tuple(_filled_in(body, constants)) if constants else tuple(body),
            returns,
            self.nodes.source.at(function),
            returned_at,
            reduces,
            checkpointed,
        )

    def _untracked(self, context: ast.Call, inside: list[ast.stmt]) -> Iterator[Statement | Delete]:
        """The body of `with torch.no_grad()`; other contexts change what operators compute, and are refused."""
        name = dotted(context.func)
        if name not in ("torch.no_grad", "torch.inference_mode") or context.args or context.keywords:
            raise self.nodes.fail(
                context, f"operators run in the context `{name or 'an expression'}`, and tvlint does not know what it changes"
            )
        for node in inside:
            match node:
                case ast.Delete(targets=targets):
                    yield Delete(self.nodes.deleted(targets, node))
                case ast.Assign(targets=[target], value=ast.Call() as call):
                    yield Statement(self.nodes.targets(target), call, self.nodes.at(node), tracked=False)
                case _:
                    raise self.nodes.unknown(node, f"`{name}`")

    def _recomputed(
        self, call: ast.Call, outputs: tuple[str, ...], inner: Mapping[str, ast.FunctionDef], outside: set[str]
    ) -> Iterator[Statement | Delete]:
        """The body of a function that is run under activation checkpointing, in place of the call.

        Generated code gives the function the caller's names and all values that it uses; anything else is refused.
        """
        name = dotted(call.args[0]) if call.args else ""
        function = inner.get(name)
        if function is None:
            raise self.nodes.fail(call, "what is checkpointed is no function of this method")
        match call.keywords:
            case [ast.keyword(arg="use_reentrant", value=ast.Constant(value=False))]:
                pass
            case _:
                said = f"`{name}` is not checkpointed with `use_reentrant=False` alone"
                help = "other ways lose gradients where no input needs one, or draw anew when they compute again"
                raise self.nodes.fail(call, said, help)
        later = _free(function) & outside
        if later:
            said = f"`{name}` uses `{min(later)}` without being given it, so it computes again with what that is by then"
            raise self.nodes.fail(function, said, "generated code hands all values to the function as arguments")
        passed = tuple(dotted(arg) for arg in call.args[1:])
        if arguments_of(function) != passed or not isinstance(function.body[-1], ast.Return):
            raise self.nodes.fail(call, f"`{name}` is called with other names than its own arguments")
        returned = self.nodes.names(function.body[-1].value, function.body[-1])
        if returned != outputs:
            raise self.nodes.fail(call, f"the results of `{name}` are renamed")
        for node in function.body[:-1]:
            match node:
                case ast.Delete():
                    pass
                case ast.Assign(targets=[target], value=ast.Call() as operation):
                    yield Statement(self.nodes.targets(target), operation, self.nodes.at(node))
                case ast.With(items=[ast.withitem(context_expr=ast.Call() as context, optional_vars=None)], body=inside):
                    yield from self._untracked(context, inside)
                case _:
                    raise self.nodes.unknown(node, f"`{name}`")

    def _under_own_names(
        self,
        function: ast.FunctionDef,
        inner: ast.FunctionDef,
        body: Iterable[Statement | Delete],
        outputs: tuple[str, ...],
    ) -> Iterator[Statement | Delete]:
        """The body of a checkpointed function where values that share a name with others around it have one of their own."""
        outside, around = set[str](), list[ast.AST](function.body)
        while around:
            node = around.pop()
            if node is not inner:
                outside.update((node.id,) if isinstance(node, ast.Name) else ())
                around.extend(ast.iter_child_nodes(node))
        known: dict[str, ast.expr] = {}
        for entry in body:
            if not isinstance(entry, Statement):
                yield entry
                continue
            call = _FillIn(known).visit(entry.call)
            shared = {name for name in entry.outputs if name in outside and name not in outputs and name != "_"}
            own = {name: f"{name}.{inner.name}" for name in shared}
            known.update((name, ast.Name(fresh, ast.Load())) for name, fresh in own.items())
            yield replace(entry, call=call, outputs=tuple(own.get(name, name) for name in entry.outputs))


def _bound(function: ast.FunctionDef) -> set[str]:
    """The names that a method gives values, outside of the functions in it."""
    found = {argument.arg for argument in function.args.args}
    left = list[ast.AST](function.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        left.extend(() if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node))
    return found


def _free(function: ast.FunctionDef) -> set[str]:
    """The names that a function uses and neither is given nor makes."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    own = {name.id for name in names if isinstance(name.ctx, ast.Store)} | {one.arg for one in function.args.args}
    return {name.id for name in names} - own


class _FillIn(ast.NodeTransformer):
    """Puts expressions in the place of the names that stand for them."""

    def __init__(self, constants: Mapping[str, ast.expr]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.constants.get(node.id)
        return node if found is None else ast.copy_location(copy(found), node)


def _filled_in(body: Iterable[Statement | Delete], constants: Mapping[str, ast.expr]) -> Iterator[Statement | Delete]:
    """The body with flags of the module, such as `self.training`, in the place of the names that it gives them."""
    for entry in body:
        if isinstance(entry, Statement):
            if not constants.keys().isdisjoint(entry.outputs):
                constants = {name: value for name, value in constants.items() if name not in entry.outputs}
            call = _FillIn(constants).visit(entry.call)
            yield replace(entry, call=call) if isinstance(call, ast.Call) else entry
        else:
            yield Delete(tuple(name for name in entry.names if name not in constants))
