"""`_train_step`: the schedule of one rank."""

from __future__ import annotations

import ast
import re

from tvlint.ir.location import Location
from tvlint.plurals import counted
from tvlint.readers.nnscaler.gencode.syntax.expressions import names_in, opaque_op
from tvlint.readers.nnscaler.gencode.syntax.nodes import Nodes, NotUnderstood, arguments_of
from tvlint.readers.nnscaler.gencode.syntax.records import (
    Action,
    ClearGradients,
    Delete,
    Execute,
    Load,
    Opaque,
    RankFile,
    Rename,
    RunBackward,
)
from tvlint.readers.sources.python_syntax import dotted

EXECUTOR = "nnscaler.runtime.executor"
LOADER = "arguments"
"""What gives the values that a model's own training loop passes to it."""
METHOD = re.compile(r"[a-z_]+\d+", re.ASCII)
"""What the methods of segments, adapters and reducers are called; no method of the class that they are added to is."""
FLAGS = "nnscaler.flags.RuntimeFlag"
_SWITCHES = frozenset({f"{FLAGS}.skip_reducer", f"{FLAGS}.skip_zero_grad"})


def read_train_step(nodes: Nodes, found: RankFile, function: ast.FunctionDef) -> None:
    """Fill `found` with the actions of the training step."""
    _Train(nodes, found).read(function)


def read_forward(nodes: Nodes, found: RankFile, function: ast.FunctionDef) -> None:
    """Fill `found` with one training step around `_forward_impl`, as the user's own loop makes it.

    That is: the arguments come from the data loader, autograd runs from what is returned, then gradients are reduced.
    """
    arguments = arguments_of(function)
    if arguments is None or len(arguments) < 2 or arguments[0] != "self":
        raise nodes.fail(function, "`_forward_impl` has other arguments than generated code has")
    place = nodes.source.at(function)
    found.train_source = place
    found.actions += [ClearGradients(False, place), Load(LOADER, arguments[1:], place)]
    runs: list[Execute] = []
    for index, node in enumerate(function.body):
        match node:
            case ast.Assign(targets=[target], value=ast.Call(args=given, keywords=[]) as call):
                method = dotted(call.func).removeprefix("self.")
                if method not in found.methods or runs:
                    raise nodes.fail(node, "`_forward_impl` is more than one segment, which tvlint does not read")
                runs.append(Execute(method, nodes.given(given, node), nodes.targets(target), True, True, nodes.at(node)))
                found.actions.append(runs[-1])
                if len(runs[-1].inputs) != len(found.methods[method].arguments):
                    raise nodes.fail(node, f"`{method}` is given {counted(len(given), 'value')} and takes other")
            case ast.Return(value=value) if index == len(function.body) - 1:
                found.returned = nodes.returned(value, node)
                found.returned_at = nodes.source.at(node)
            case ast.Delete() | ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise nodes.unknown(node, "`_forward_impl`")
    for run in runs:
        found.actions.append(RunBackward(run.method, (), run.outputs, ("",) * len(run.outputs), (), False, run.source))
    for each_method in found.methods.values():
        if each_method.reduces:
            found.actions.append(Execute(each_method.name, (), (), False, False, each_method.source))


class _Train:
    def __init__(self, nodes: Nodes, found: RankFile) -> None:
        self.nodes = nodes
        self.found = found

    def read(self, function: ast.FunctionDef) -> None:
        arguments = arguments_of(function)
        if arguments is None or len(arguments) < 2:
            raise self.nodes.fail(function, "`_train_step` does not take the model and a data loader")
        model, *loaders = arguments
        self.found.train_source = self.nodes.source.at(function)
        skips: dict[str, Location | None] = {"skip_reducer": None, "skip_zero_grad": None}
        for index, node in enumerate(function.body):
            try:
                self._statement(function, index, node, skips)
            except NotUnderstood as error:
                inputs, outputs = names_in(node)
                if not {model, *loaders, "nnscaler"}.isdisjoint(inputs):
                    raise
                place = self.nodes.source.at(node)
                self.found.actions.append(Opaque(inputs, outputs, opaque_op(node), str(error), place, True))

    def _statement(self, function: ast.FunctionDef, index: int, node: ast.stmt, skips: dict[str, Location | None]) -> None:
        model, *loaders = (argument.arg for argument in function.args.args)
        match node:
            case ast.Assign(targets=[ast.Name(id="_")], value=ast.Constant(value=None)):
                pass
            case ast.Assign(targets=[ast.Attribute() as target], value=ast.Constant(value=bool(flag))) if (
                dotted(target) in _SWITCHES
            ):
                skips[target.attr] = self.nodes.source.at(node) if flag else None
                self.found.switches_reducers |= target.attr == "skip_reducer"
            case ast.Expr(value=ast.Call(func=func, args=[], keywords=[])) if dotted(func) == f"{model}.zero_grad":
                self.found.actions.append(ClearGradients(skips["skip_zero_grad"] is not None, self.nodes.source.at(node)))
            case ast.Delete(targets=targets):
                self.found.actions.append(Delete(self.nodes.deleted(targets, node)))
            case ast.Return(value=value) if index == len(function.body) - 1:
                self.found.returned = self.nodes.returned(value, node)
                self.found.returned_at = self.nodes.source.at(node)
            case ast.Assign(targets=[target], value=ast.Call() as call):
                outputs = tuple(name for name in self.nodes.targets(target) if name != "_")
                self.found.actions.append(self._action(node, outputs, call, model, loaders, skips["skip_reducer"]))
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise self.nodes.unknown(node, "`_train_step`")

    def _action(
        self,
        node: ast.Assign,
        outputs: tuple[str, ...],
        call: ast.Call,
        model: str,
        loaders: list[str],
        skipped_at: Location | None,
    ) -> Action:
        callee = dotted(call.func)
        source = self.nodes.source.at(node)
        if callee == "next":
            given = self.nodes.starred(call.args, call)
            if len(given) != 1 or call.keywords:
                raise self.nodes.fail(node, f"`next` is given {counted(len(given), 'value')} and takes one data loader")
            if given[0] not in loaders:
                raise self.nodes.fail(node, f"`next` of `{given[0]}`, which is no data loader")
            return Load(given[0], outputs, source)
        if callee == f"{EXECUTOR}.backward":
            if call.keywords or any(isinstance(one, ast.Starred) for one in call.args):
                raise self.nodes.fail(node, "`backward` is given its arguments in another way than generated code gives them")
            if len(call.args) != 4:
                raise self.nodes.stops(node, "`backward` does not have its four arguments")
            segment = self.nodes.constant(call.args[0], "the name of a segment")
            inputs, made, gradients = (self.nodes.operands(arg, node) for arg in call.args[1:])
            if segment not in self.found.methods:
                raise self.nodes.stops(node, f"`backward` runs `{segment}`, which is no segment of the class")
            known = {
                name for action in self.found.actions for name in getattr(action, "outputs", getattr(action, "results", ()))
            }
            if len(made) != len(gradients) and known.issuperset(filter(None, gradients)):
                for_them = counted(len(gradients), "gradient")
                said = f"`backward` of `{segment}` is given {counted(len(made), 'result')} and {for_them} for them"
                raise self.nodes.fail(node, said, "each result has a gradient, or None where it is the loss")
            return RunBackward(str(segment), inputs, made, gradients, outputs, skipped_at is not None, source)
        if callee in (f"{EXECUTOR}.fexecute", f"{EXECUTOR}.aexecute"):
            forward = callee.endswith("fexecute")
            rest = call.args[1:] if forward else call.args
            method = dotted(rest[0]).removeprefix(f"{model}.") if rest else ""
            if method not in self.found.methods:
                said = f"`{method or callee}` is run and is no method of the class"
                raise self.nodes.stops(node, said) if METHOD.fullmatch(method) else self.nodes.fail(node, said)
            if forward and self.nodes.constant(call.args[0], "the name of a segment") != method:
                raise self.nodes.fail(node, f"`fexecute` names `{self.nodes.constant(call.args[0], '')}` and runs `{method}`")
            if any(word.arg != "requires_grad" for word in call.keywords):
                raise self.nodes.fail(node, f"`{callee}` is given more than it takes")
            tracked = all(_is_true(word.value) for word in call.keywords if word.arg == "requires_grad")
            inputs = self.nodes.starred(rest[1:], node)
            expected = len(self.found.methods[method].arguments)
            if len(inputs) != expected:
                raise self.nodes.stops(node, f"`{method}` is given {counted(len(inputs), 'value')} and takes {expected}")
            gives, taken = _flat(self.found.functions[method].body[-1]), _flat(node.targets[0])
            if gives and taken and gives != taken:
                raise self.nodes.stops(node, f"`{method}` returns {counted(gives, 'value')} and {taken} are taken")
            return Execute(method, inputs, outputs, forward, tracked, source, skipped_at)
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=old), attr="detach"), args=[], keywords=[]) if len(outputs) == 1:
                return Rename(outputs[0], old)
            case _:
                said = f"`_train_step` calls `{callee or 'an expression'}`, which it is not known to do"
                raise self.nodes.not_understood(node, said)


def _flat(node: ast.AST) -> int:
    """Return how many values a target or a `return` has, where these are two or more plain names; else 0."""
    values = (node.value if isinstance(node, ast.Return) else node) or node
    items = values.elts if isinstance(values, ast.Tuple) else []
    return len(items) if len(items) > 1 and all(isinstance(one, (ast.Name, ast.Attribute)) for one in items) else 0


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
