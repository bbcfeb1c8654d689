"""The body of one generated method on one rank, as operators."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from tvlint.ir.location import Location
from tvlint.ir.operators import NOT_UNDERSTOOD, Communicate, Compute, Literal, Operand, Operator, Value
from tvlint.ops.spelling import with_second_in_place
from tvlint.ops.table import meant, spec_of
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.lower.collectives import ADAPTER, Communications
from tvlint.readers.nnscaler.gencode.lower.operators import IDENTITY, Body, Gradual, Reverse
from tvlint.readers.nnscaler.gencode.syntax.containers import read_fields
from tvlint.readers.nnscaler.gencode.syntax.expressions import names_in, opaque_op
from tvlint.readers.nnscaler.gencode.syntax.nodes import Fails, NotUnderstood, stops
from tvlint.readers.nnscaler.gencode.syntax.records import Autograd, Delete, Execute, Method, Opaque, RankFile, Statement
from tvlint.readers.nnscaler.gencode.syntax.shadowed_names import MODULES
from tvlint.readers.sources.python_syntax import dotted

GETATTR = "builtins.getattr"
_OWN = "generated"
"""The module of functions that generated code has of its own."""
EMBEDDING = "nnscaler.runtime.function.embedding"


def lower(method: Method, file: RankFile) -> Body:
    """Return the operators of `method` as the file's rank runs it.

    Raises Fails where they end the run, and ReadError where the method does not run, or may not.
    """
    try:
        return _Lowering(method, file).run()
    except Fails as error:
        is_run = any(isinstance(action, Execute) and action.method == method.name for action in file.actions)
        said = error.problem
        raise stops(file.unclear or not is_run, said.message, said.location, said.help) from None


class _Lowering(Communications):
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
            elif isinstance(entry, Opaque):
                self._opaque(entry)
            else:
                self._understood(entry)
        returned = (name for name in self.method.returns if name not in self.method.constants)
        self.body.outputs = tuple(self.read(name, self.method.returned_at) for name in returned)
        return self.body

    def _understood(self, statement: Statement) -> None:
        """Append what a statement does; one whose arguments are not understood is opaque."""
        try:
            self._statement(statement)
        except NotUnderstood as error:
            inputs, _ = names_in(statement.call)
            self._opaque(Opaque(inputs, statement.outputs, opaque_op(statement.call), str(error), statement.source, True))

    def _opaque(self, entry: Opaque) -> None:
        inputs = tuple(self.current.get(name, name) for name in entry.inputs if name in self.current or name in self.parameters)
        outputs = tuple(self.write(name, entry.source) for name in entry.outputs)
        if entry.acts:
            self.append(Compute(entry.op, (), (), {NOT_UNDERSTOOD: entry.why}, source=entry.source))
        if outputs:
            self.append(Compute(entry.op, inputs, outputs, {NOT_UNDERSTOOD: entry.why}, source=entry.source))

    def _statement(self, statement: Statement) -> None:
        callee = dotted(statement.call.func)
        if _detaches(statement.call):
            (name,) = (self.tensor(statement.call.args[0]),)
            before = self.read(name or "", statement.source)
            for made in statement.outputs:
                fresh = self.write(made, statement.source)
                self.append(Compute(IDENTITY, (before,), (fresh,), source=statement.source), differentiable=False)
            return
        if not callee:
            raise NotUnderstood("what is called is no plain name", statement.source)
        self.tracked = statement.tracked
        function = self.file.autograd.get(callee.removesuffix(".apply")) if callee.endswith(".apply") else None
        if function is not None:
            self._apply(function, statement)
            return
        if callee.startswith(ADAPTER + "nn."):
            self.fused(callee.removeprefix(ADAPTER + "nn."), statement)
        elif callee.startswith(ADAPTER):
            self.communication(callee.removeprefix(ADAPTER), statement)
        else:
            self._compute(callee, statement)

    def _apply(self, function: Autograd, statement: Statement) -> None:
        """The operators of an adapter with a backward of its own, under names of its own."""
        tensors, words = self.given(statement)
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
        outputs = tuple(self.write(name, statement.source) for name in statement.outputs)
        names.update(zip(forward.outputs, outputs, strict=True))
        for name in made - set(forward.outputs):
            names[name] = f"{function.name}.{name}"
        operators = [_renamed(entry.operator, names) for entry in forward.operators]
        reverse = Reverse(
            tensors, outputs, backward.inputs, backward.outputs, tuple(entry.operator for entry in backward.operators)
        )
        for operator in operators[:-1]:
            self.append(operator, differentiable=False)
        self.body.operators.append(Gradual(operators[-1], None, self.tracked, reverse))

    def _compute(self, callee: str, statement: Statement) -> None:
        if (root := callee.partition(".")[0]) == "self" or root in self.made:
            raise NotUnderstood(f"`{callee}` is a method of a value, which may change it", statement.source)
        if _is_given(statement.call, "self"):
            raise NotUnderstood(f"`{callee}` is given the module, whose weights it may change", statement.source)
        inputs: list[Operand] = []
        nesting: list[Value] = []
        nested = False
        for argument in statement.call.args:
            if isinstance(argument, (ast.Tuple, ast.List)) and self._holds_tensor(argument):
                nested = True
                nesting.append(self._unfold(argument, inputs, statement))
            elif (name := self.tensor(argument)) is not None:
                inputs.append(self.read(name, statement.source))
                nesting.append("*")
            else:
                inputs.append(Literal(self.constant(argument, statement)))
                nesting.append("constant")
        attributes: dict[str, Value] = {}
        for keyword in statement.call.keywords:
            if keyword.arg is None:
                raise NotUnderstood("an operator is given `**` arguments", statement.source)
            name = self.tensor(keyword.value)
            if name is not None:
                attributes[keyword.arg] = f"operand {len(inputs)}"
                inputs.append(self.read(name, statement.source))
            elif isinstance(keyword.value, (ast.Tuple, ast.List)) and self._holds_tensor(keyword.value):
                start = len(inputs)
                attributes[keyword.arg] = (f"operands from {start}", self._unfold(keyword.value, inputs, statement))
            else:
                attributes[keyword.arg] = self.constant(keyword.value, statement)
        if nested:
            attributes["operands"] = tuple(nesting)
        outputs = tuple(self.write(name, statement.source) for name in statement.outputs)
        in_place = (0,) if attributes.get("inplace") is True else ()
        if callee == EMBEDDING and self.file.version and attributes.get("padding_idx") is not None:
            attributes["padding_row"] = attributes.pop("padding_idx")  # counted in the whole table since 0.4
        op = meant(_whole(callee), self.file.operators)
        operands, attributes = with_second_in_place(op, tuple(inputs), attributes)
        self.append(Compute(op, operands, outputs, attributes, in_place=in_place, source=statement.source))

    def _holds_tensor(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Tuple, ast.List)):
            return any(self._holds_tensor(item) for item in node.elts)
        return self.tensor(node) is not None

    def _unfold(self, node: ast.expr, inputs: list[Operand], statement: Statement) -> Value:
        if isinstance(node, (ast.Tuple, ast.List)):
            return tuple(self._unfold(item, inputs, statement) for item in node.elts)
        name = self.tensor(node)
        if name is None:
            return self.constant(node, statement)
        inputs.append(self.read(name, statement.source))
        return "*"


def _whole(callee: str) -> str:
    """Return the name of a function as the operator table is asked for it.

    Generated code names the functions of frameworks in full. What has a shorter name is a function of the file, or is imported
    from anywhere, whatever the table knows under that name.
    """
    if callee.partition(".")[0] in MODULES:
        return callee
    name = f"{_OWN}.{callee}"
    return name if spec_of(name) is not spec_of(callee) else callee


def _renamed(operator: Operator, names: Mapping[str, str]) -> Operator:
    """Return a communication between tensors of other names."""
    if not isinstance(operator, Communicate):
        place = getattr(operator, "source", None)
        raise ReadError("a function with a backward of its own does more than communicate", place or Location(""))
    inputs = tuple(names.get(name, name) for name in operator.inputs)
    return replace(operator, inputs=inputs, outputs=tuple(names.get(name, name) for name in operator.outputs))


def _is_given(call: ast.Call, name: str) -> bool:
    """Return whether a value itself, and not an attribute of it, is among the arguments of a call."""
    waiting: list[ast.expr] = [*call.args, *(keyword.value for keyword in call.keywords)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and node.id == name:
            return True
        if not isinstance(node, ast.Attribute):
            waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    return False


def _detaches(call: ast.Call) -> bool:
    """Return whether the call is `builtins.getattr(x, 'data')`: the value without its gradient."""
    match call:
        case ast.Call(args=[_, ast.Constant(value="data")], keywords=[]):
            return dotted(call.func) == GETATTR
        case _:
            return False
