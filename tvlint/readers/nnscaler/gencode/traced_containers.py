"""Dictionaries and lists that a data loader gave while a graph was traced, taken apart into the tensors that were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvlint.findings import Finding
from tvlint.ir.operators import Compute, Literal, Operand, Value
from tvlint.ir.plan import Role
from tvlint.readers.nnscaler.gencode.lower.operators import IDENTITY
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind
from tvlint.readers.nnscaler.gencode.syntax.containers import GETITEM, Field, in_order
from tvlint.readers.nnscaler.pickle.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Traced:
    """What a graph was traced with: shape and dtype of what the loader gave, by position and keys, and of each parameter.

    Parameters are those that operators use, by full name, with the whole shape; `numbers` are their ids. `unsafe` is what
    loading the file would run.
    """

    given: Mapping[Field, Kind]
    parameters: Mapping[str, tuple[int, ...]]
    numbers: Mapping[str, str]
    unsafe: tuple[Finding, ...]


def taken_apart(inputs: Sequence[str], forward: Sequence[Compute], tensors: Tensors) -> tuple[dict[Field, str], list[Compute]]:
    """The tensors among `inputs` and in the objects among them, in order, and the operators that do more.

    A field that is read twice is one input and an identity of it.
    """
    known: dict[str, Field] = {name: (position, ()) for position, name in enumerate(inputs)}
    whole = {name for name in inputs if tensors.declared[name].dtype != "object"}
    found: dict[Field, str] = {known[name]: name for name in whole}
    kept: list[Compute] = []
    flags: dict[str, bool] = {}
    for operator in forward:
        if operator.op == "self_getattr" and len(operator.outputs) == 1 and operator.inputs == (Literal("training"),):
            flags[operator.outputs[0]] = True
            continue
        operator = _with_flags(operator, flags)
        part = _item(operator)
        if part is None or part[0] not in known or part[0] in whole:
            kept.append(operator)
            continue
        position, path = known[part[0]]
        field = position, (*path, part[1])
        name = operator.outputs[0]
        known[name] = field
        if tensors.declared[name].dtype == "object":
            continue
        whole.add(name)
        if field in found:
            kept.append(replace(operator, op=IDENTITY, inputs=(found[field],), attributes={}))
            continue
        found[field] = name
        tensors.declared[name] = replace(tensors.declared[name], role=Role.INPUT)
    order = {position: in_order({path for place, path in found if place == position}) for position in range(len(inputs))}
    return {(place, path): found[place, path] for place, paths in order.items() for path in paths}, kept


def _with_flags(operator: Compute, flags: Mapping[str, bool]) -> Compute:
    """The operator with flags of the module as the constants that they are while it trains."""
    if not any(operand in flags for operand in operator.inputs if isinstance(operand, str)):
        return operator
    place: dict[str, Value] = {}
    inputs: list[Operand] = []
    for position, operand in enumerate(operator.inputs):
        flag = flags.get(operand) if isinstance(operand, str) else None
        place[f"operand {position}"] = f"operand {len(inputs)}" if flag is None else flag
        if flag is None:
            inputs.append(operand)
    named = {value for value in operator.attributes.values() if isinstance(value, str)}
    positions = [i for i, operand in enumerate(operator.inputs) if isinstance(operand, str) and operand in flags]
    if any(f"operand {i}" not in named for i in positions):
        return operator
    attributes = {
        name: place.get(value, value) if isinstance(value, str) else value for name, value in operator.attributes.items()
    }
    return replace(operator, inputs=tuple(inputs), attributes=attributes)


def _item(operator: Compute) -> tuple[str, str | int] | None:
    operands: tuple[Operand, ...] = operator.inputs
    if operator.op != GETITEM or len(operands) != 2 or len(operator.outputs) != 1 or operator.attributes:
        return None
    name, key = operands
    if not isinstance(name, str) or not isinstance(key, Literal) or not isinstance(key.value, (str, int)):
        return None
    return name, key.value
