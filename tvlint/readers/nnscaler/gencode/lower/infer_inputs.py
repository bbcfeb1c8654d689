"""The shape of what a data loader gives, found by what the generated code can do with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from tvlint.ir.operators import Compute, Operator, Receive, Send, Value
from tvlint.readers.nnscaler.gencode.lower.methods import lower
from tvlint.readers.nnscaler.gencode.lower.operators import Body
from tvlint.readers.nnscaler.gencode.lower.replica import Replica
from tvlint.readers.nnscaler.gencode.lower.shapes import Contradiction, Kind, bound_of, results
from tvlint.readers.nnscaler.gencode.syntax.records import Execute, Load, RankFile

_MOST_DIMENSIONS = 4
_MOST_TRIALS = 20_000
_MOST_SIZES = 24


def loaders_of(files: Sequence[RankFile]) -> list[tuple[str, int]]:
    """Return what data loaders give, by loader and position, in the order of first use."""
    found: dict[tuple[str, int], None] = {}
    for file in files:
        for action in file.actions:
            if isinstance(action, Load):
                found.update(dict.fromkeys((action.loader, position) for position in range(len(action.outputs))))
    return list(found)


def fields_of(files: Sequence[RankFile]) -> dict[tuple[str, int], tuple[int, tuple[Value, ...]]]:
    """For what data loaders give: the position in what the loader gives, and the keys that lead from there."""
    found: dict[tuple[str, int], tuple[int, tuple[Value, ...]]] = {}
    for file in files:
        for action in file.actions:
            if isinstance(action, Load):
                for index in range(len(action.outputs)):
                    found[action.loader, index] = action.fields[index] if action.fields else (index, ())
    return found


def solved(replica: Replica, wanted: Sequence[tuple[str, int]], scalar: tuple[int, ...]) -> Mapping[tuple[str, int], Kind]:
    """Return the only shapes of the inputs with which all operators and messages of the first micro-batch fit.

    Nothing where there is no such shape, or more than one: the inputs then stay undeclared, and no proof is possible.
    """
    users = [file for file in replica.files if _first(file) is not None]
    if not wanted or not users:
        return {}
    trial = _Trial(users, scalar)
    names = {(load.loader, position) for load in trial.loads for position in range(len(load.outputs))}
    used = [key for key in wanted if key in names and trial.consumes(key)]
    fitting: list[Mapping[tuple[str, int], Kind]] = []
    for count, shapes in enumerate(product(*(trial.candidates() for _ in used))):
        if count > _MOST_TRIALS:
            break
        kinds = {key: (shape, trial.dtype(key)) for key, shape in zip(used, shapes, strict=True)}
        if trial.fits(kinds):
            fitting.append(kinds)
            if len(fitting) > 1:
                break
    return fitting[0] if len(fitting) == 1 else {}


def _first(file: RankFile) -> Load | None:
    """Return the rank's first load, if something there uses what it gives."""
    load = next((action for action in file.actions if isinstance(action, Load)), None)
    if load is None:
        return None
    used = any(isinstance(action, Execute) and set(load.outputs) & set(action.inputs) for action in file.actions)
    return load if used else None


class _Trial:
    """Runs the first segment after the load, shapes only."""

    def __init__(self, users: Sequence[RankFile], scalar: tuple[int, ...]) -> None:
        self.scalar = scalar
        self.loads = [load for load in map(_first, users) if load is not None]
        self.bodies: dict[tuple[int, str], Body] = {}
        self.users = users
        for file in users:
            for action in self._actions(file):
                self.bodies[file.rank, action.method] = lower(file.methods[action.method], file)
        self.weights: dict[str, Kind] = {
            name: (parameter.shape, parameter.dtype) for file in users for name, parameter in file.parameters.items()
        }
        self.sizes = self._sizes()

    def _actions(self, file: RankFile) -> list[Execute]:
        """Return the runs of the first micro-batch that follow from the load without anything received."""
        load = _first(file)
        known = set(load.outputs) if load is not None else set()
        found = []
        for action in file.actions:
            if isinstance(action, Execute) and action.inputs and set(action.inputs) <= known:
                found.append(action)
                known.update(action.outputs)
        return found

    def consumes(self, key: tuple[str, int]) -> bool:
        """Return whether the first segment reads this input."""
        return any(
            load.loader == key[0] and load.outputs[key[1]] in action.inputs
            for file, load in zip(self.users, self.loads, strict=True)
            for action in self._actions(file)
            if key[1] < len(load.outputs)
        )

    def _sizes(self) -> list[int]:
        found: dict[int, None] = {1: None}
        for body in self.bodies.values():
            for shape, _ in (*body.stated.values(), *body.sent.values()):
                found.update(dict.fromkeys(shape))
            for entry in body.operators:
                if isinstance(entry.operator, Compute) and entry.operator.op.endswith(("view", "reshape")):
                    size = entry.operator.attributes.get("size", entry.operator.attributes.get("shape"))
                    found.update(dict.fromkeys(n for n in size if isinstance(n, int)) if isinstance(size, tuple) else {})
        for shape, _ in self.weights.values():
            found.update(dict.fromkeys(shape))
        return [size for size in found if size > 0][:_MOST_SIZES]

    def candidates(self) -> Iterator[tuple[int, ...]]:
        """Yield all shapes that sizes in the code can make up."""
        for dimensions in range(1, _MOST_DIMENSIONS + 1):
            yield from product(self.sizes, repeat=dimensions)

    def dtype(self, key: tuple[str, int]) -> str:
        """Return an integer where only positions without gradient read the input, else what the weights are."""
        weight = next((dtype for _, dtype in self.weights.values() if dtype.startswith(("float", "bfloat"))), "float32")
        for file, load in zip(self.users, self.loads, strict=True):
            for action in self._actions(file):
                if load.outputs[key[1]] not in action.inputs:
                    continue
                inner = self.bodies[file.rank, action.method].inputs[action.inputs.index(load.outputs[key[1]])]
                readers = [
                    entry.operator
                    for entry in self.bodies[file.rank, action.method].operators
                    if isinstance(entry.operator, Compute) and inner in entry.operator.inputs
                ]
                if readers and all(operator.op.endswith("embedding") for operator in readers[:1]):
                    return "int64"
        return weight

    def fits(self, kinds: Mapping[tuple[str, int], Kind]) -> bool:
        """Return whether every operator and every message fits these inputs."""
        for file, load in zip(self.users, self.loads, strict=True):
            outer = {
                name: kinds[load.loader, position]
                for position, name in enumerate(load.outputs)
                if (load.loader, position) in kinds
            }
            for action in self._actions(file):
                body = self.bodies[file.rank, action.method]
                known = dict(self.weights)
                known.update(
                    {inner: outer[name] for inner, name in zip(body.inputs, action.inputs, strict=True) if name in outer}
                )
                if not all(self._fits(entry.operator, known, body) for entry in body.operators):
                    return False
                outer.update(
                    {name: known[inner] for inner, name in zip(body.outputs, action.outputs, strict=False) if inner in known}
                )
        return True

    def _fits(self, operator: Operator, known: dict[str, Kind], body: Body) -> bool:
        if isinstance(operator, Send):
            stated = body.sent.get(operator.tensor)
            derived = known.get(operator.tensor)
            return stated is None or derived is None or stated[0] == derived[0]
        if isinstance(operator, Receive):
            known[operator.tensor] = body.stated[operator.tensor]
            return True
        if isinstance(operator, Compute) and bound_of(operator, known, self.scalar) is None:
            operands = operator.tensor_operands
            return not all(name in known for name in operands) or not _understood(operator)
        try:
            known.update(results(operator, known, self.scalar))
        except Contradiction:
            return False
        return True


def _understood(operator: Compute) -> bool:
    from tvlint.ops.table import spec_of

    return spec_of(operator.op) is not None
