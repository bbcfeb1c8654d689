"""One `gencode{rank}.py`, as records: groups, parameters, reducers, methods and the schedule of a training step."""

from __future__ import annotations

import ast

from tvlint.ir.location import Location
from tvlint.ops.annotations.declared import Declared
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.syntax.constants import without_constants
from tvlint.readers.nnscaler.gencode.syntax.expressions import opaque_op
from tvlint.readers.nnscaler.gencode.syntax.init_method import read_init
from tvlint.readers.nnscaler.gencode.syntax.method_body import read_autograd, read_method
from tvlint.readers.nnscaler.gencode.syntax.nodes import Nodes
from tvlint.readers.nnscaler.gencode.syntax.records import Opaque, RankFile, copied
from tvlint.readers.nnscaler.gencode.syntax.shadowed_names import only_own_names
from tvlint.readers.nnscaler.gencode.syntax.train_step import METHOD, read_forward, read_train_step
from tvlint.readers.sources.python_syntax import Source, dotted

MODULE = "nnscaler.runtime.module.ParallelModule"
FUNCTION = "torch.autograd.Function"


def read_rank(source: Source, operators: tuple[Declared, ...] = ()) -> RankFile:
    """Return the records of a parsed file. Raises ReadError at the first construct that generated code is not known to hold."""
    if source.made is None:
        return _Reader(source, operators).read()
    found: RankFile | None = source.made.get(operators)
    if found is None:
        found = source.made[operators] = _Reader(source, operators).read()
    return copied(found)


class _Reader:
    def __init__(self, source: Source, operators: tuple[Declared, ...]) -> None:
        self.source = source
        self.nodes = Nodes(source)
        self.found = RankFile(source, operators)
        self.forward: ast.FunctionDef | None = None

    def read(self) -> RankFile:
        only_own_names(self.nodes)
        model = train = None
        for node in self.source.tree.body:
            match node:
                case ast.FunctionDef(name=name, decorator_list=[]) if name not in ("_train_step", "_infer_step"):
                    self.found.modules.add(name)
                case ast.Import(names=names):
                    self.found.modules.update((name.asname or name.name).split(".")[0] for name in names)
                case ast.ImportFrom(names=names):
                    self.found.modules.update(name.asname or name.name for name in names)
                case ast.Assign(targets=[ast.Name(id="runtime_version")], value=ast.Constant(value=str(version))):
                    self.found.version = version
                case ast.ClassDef(bases=[base], name="GenModel") if dotted(base) == MODULE and model is None:
                    self.nodes.undecorated(node)
                    model = node
                    self.found.modules_before_class = set(self.found.modules)
                    self.found.base_module = dotted(base).split(".")[0]
                    self.found.class_source = self.nodes.source.at(node)
                case ast.ClassDef(bases=[base], name=name) if dotted(base) == FUNCTION and name not in self.found.autograd:
                    self.found.autograd[name] = read_autograd(self.nodes, node)
                    self.found.modules.add(name)
                case ast.Assign(targets=[ast.Name(id="_infer_step")], value=ast.Name(id="_train_step")):
                    pass
                case ast.FunctionDef(name="_train_step") if train is None:
                    self.nodes.undecorated(node)
                    train = node
                case ast.FunctionDef(name="_infer_step"):
                    pass
                case ast.Expr(value=ast.Constant()):
                    pass
                case ast.ClassDef() | ast.FunctionDef():
                    raise self.nodes.unknown(node, "the file")
                case _:
                    self._opaque(node, "the file")
        if model is None:
            raise ReadError(f"no class in this file is a `{MODULE}`", Location(self.source.path))
        for inner in self.source.nodes:
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                self.found.names.add(inner.id)
            elif isinstance(inner, ast.arg):
                self.found.names.add(inner.arg)
        self._model(model)
        if train is not None:
            read_train_step(self.nodes, self.found, train)
        elif self.forward is not None:
            read_forward(self.nodes, self.found, self.forward)
        else:
            raise self.nodes.fail(model, "the file has neither `_train_step` nor `_forward_impl`")
        without_constants(self.nodes, self.found)
        self.found.actions[:0] = self.found.opaque
        self.found.unclear = self.nodes.unclear
        return self.found

    def _opaque(self, node: ast.stmt, where: str) -> None:
        """Note a statement that is not understood: what it does is unknown before the step begins."""
        why = str(self.nodes.unknown(node, where))
        self.found.opaque.append(Opaque((), (), opaque_op(node), why, self.nodes.source.at(node), True))

    def _model(self, model: ast.ClassDef) -> None:
        names: set[str] = set()
        for node in sorted(model.body, key=lambda one: isinstance(one, ast.FunctionDef)):  # these run when all of it stands
            match node:
                case ast.Assign(targets=[ast.Name(id="rank")], value=value):
                    self.found.rank = self.nodes.integer(value, "`rank`")
                    self.found.rank_source = self.nodes.source.at(node)
                case ast.Assign(targets=[ast.Name(id="nmicros_per_scheduler_step")], value=value):
                    self.found.micro_batches = self.nodes.integer(value, "`nmicros_per_scheduler_step`")
                    self.found.micro_batches_source = self.nodes.source.at(node)
                case ast.Assign(targets=[ast.Name(id="use_scheduler")], value=ast.Constant(value=bool(flag))):
                    self.found.scheduled, self.found.scheduled_source = flag, self.nodes.source.at(node)
                case ast.Expr(value=ast.Constant()):
                    pass
                case ast.FunctionDef(name="__init__" | "_forward_impl" as name) if name in names:
                    raise self.nodes.fail(node, f"`{name}` is defined twice")
                case ast.FunctionDef(name="__init__"):
                    names.add("__init__")
                    read_init(self.nodes, self.found, node)
                case ast.FunctionDef(name="_forward_impl"):
                    names.add("_forward_impl")
                    self.nodes.undecorated(node)
                    self.forward = node
                case ast.FunctionDef(name=name) if METHOD.fullmatch(name):
                    if name in self.found.methods:
                        raise self.nodes.fail(node, f"`{name}` is defined twice")
                    self.found.methods[name] = read_method(self.nodes, node)
                    self.found.functions[name] = node
                case ast.ClassDef() | ast.FunctionDef():
                    raise self.nodes.unknown(node, "the class")
                case _:
                    self._opaque(node, "the class")
        for name in self.found.reducers.keys() & self.found.methods.keys():
            raise self.nodes.fail(model, f"`{name}` is a reducer and a method")
        if self.found.rank < 0:
            raise self.nodes.fail(model, "the class does not say its `rank`")
