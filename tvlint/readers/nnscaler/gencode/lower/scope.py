"""The names in one generated method, and the tensors and constants that its calls are given."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from tvlint.ir.location import Location
from tvlint.ir.operators import Communicate, Compute, Group, Operator, Value
from tvlint.readers.document import ReadError
from tvlint.readers.nnscaler.gencode.lower.operators import Body, Gradual, Undefined
from tvlint.readers.nnscaler.gencode.syntax.nodes import NotUnderstood
from tvlint.readers.nnscaler.gencode.syntax.records import Method, RankFile, Statement
from tvlint.readers.sources.python_syntax import NotConstant, constant, dotted


class Naming:
    """The body of a method as it is read: which value each name has now, and the operators so far."""

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

    def read(self, name: str, source: Location) -> str:
        found = self.current.get(name)
        if found is None:
            if name in self.parameters:
                return name
            self.body.undefined.append(Undefined(name, source, name in self.deleted))
            return name
        return found

    def write(self, name: str, source: Location) -> str:
        if name in self.parameters:
            raise ReadError(f"`{name}` is a parameter and is assigned in `{self.method.name}`", source)
        count = self.made.get(name, -1) + 1
        self.made[name] = count
        self.current[name] = fresh = name if count == 0 else f"{name}.{count}"
        return fresh

    def append(self, operator: Operator, reverse: Compute | Communicate | None = None, differentiable: bool = True) -> None:
        self.body.operators.append(Gradual(operator, reverse, differentiable and self.tracked))

    def tensor(self, node: ast.expr) -> str | None:
        """Return the name of the tensor that an argument is; None for a constant."""
        if isinstance(node, ast.Name) and node.id not in ("inf", "nan"):
            if node.id in self.parameters and node.id not in self.current:
                self.body.undefined.append(Undefined(node.id, self.file.source.at(node)))
            return node.id
        name = dotted(node)
        if name.startswith("self.") and name != "self.training":
            word = name.removeprefix("self.")
            if word in self.current:
                self.body.undefined.append(Undefined(name, self.file.source.at(node)))
            return word
        return None

    def constant(self, node: ast.expr, statement: Statement) -> Value:
        if dotted(node) == "self.training":
            return True
        try:
            return constant(node)
        except NotConstant as error:
            said = f"an argument is {error}, which is neither a tensor nor a constant"
            raise NotUnderstood(said, statement.source) from None

    def given(self, statement: Statement) -> tuple[tuple[str, ...], dict[str, Value]]:
        """Return the tensors and the keyword arguments of a communication."""
        tensors = []
        for argument in statement.call.args:
            name = self.tensor(argument)
            if name is not None:
                tensors.append(self.read(name, statement.source))
            elif not (isinstance(argument, ast.Tuple) and not argument.elts):
                raise ReadError("a communication is given something that is no tensor", statement.source)
        words = {word.arg or "": self.constant(word.value, statement) for word in statement.call.keywords}
        return tuple(tensors), words

    def integer(self, words: Mapping[str, Value], name: str, statement: Statement) -> int:
        value = words.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
            return value
        raise ReadError(f"`{dotted(statement.call.func)}` has {name}={value}", statement.source)

    def shape(self, words: Mapping[str, Value], name: str, statement: Statement) -> tuple[int, ...]:
        value = words.get(name)
        if isinstance(value, tuple):
            found = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool) and item >= 0)
            if len(found) == len(value):
                return found
        raise ReadError(f"`{dotted(statement.call.func)}` has {name}={value}", statement.source)

    def group(self, words: Mapping[str, Value], statement: Statement) -> Group:
        ranks = self.shape(words, "ranks", statement)
        if not ranks or len(set(ranks)) != len(ranks):
            raise ReadError(f"a group of the ranks {list(ranks)}", statement.source)
        return Group(ranks=ranks)

    def one(self, tensors: tuple[str, ...], statement: Statement) -> tuple[str, str]:
        if len(tensors) != 1 or len(statement.outputs) != 1:
            raise ReadError(f"`{dotted(statement.call.func)}` does not take one tensor to one", statement.source)
        return tensors[0], statement.outputs[0]
