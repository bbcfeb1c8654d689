"""Dictionaries and lists that a data loader gave while a graph was traced, taken apart into the tensors that were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvlint.findings import Finding
from tvlint.ir.operators import Compute, Literal, Operand, Value
from tvlint.ir.plan import Role
from tvlint.readers.nnscaler.gencode.lower.operators import IDENTITY
from tvlint.readers.nnscaler.gencode.lower.shapes import Kind
from tvlint.readers.nnscaler.gencode.syntax.containers import Field, in_order
from tvlint.readers.nnscaler.gencode.syntax.expressions import ANCHORS, GETITEM, IFEXPR
from tvlint.readers.nnscaler.pickle.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Traced:
    """The sample that a graph was traced with: shape and dtype of loaded values, by position and keys, and of parameters.

    Parameters are those that operators use, by full name, with the whole shape; `numbers` are their ids. `unsafe` is what
    loading the file would run. `calls` are the operators by the name of their first result, on tensors of such names.
    """

    given: Mapping[Field, Kind]
    parameters: Mapping[str, tuple[int, ...]]
    numbers: Mapping[str, str]
    unsafe: tuple[Finding, ...]
    calls: Mapping[str, Compute]


def taken_apart(inputs: Sequence[str], forward: Sequence[Compute], tensors: Tensors) -> tuple[dict[Field, str], list[Compute]]:
    """Return the tensors among `inputs` and in the objects among them, in order, and the operators that do more.

    A field that is read twice is one input and an identity of it.
    """
    known: dict[str, Field] = {name: (position, ()) for position, name in enumerate(inputs)}
    whole = {name for name in inputs if tensors.declared[name].dtype != "object"}
    found: dict[Field, str] = {known[name]: name for name in whole}
    kept: list[Compute] = []
    constants: dict[str, Literal] = {}
    for given in forward:
        operator = _with_constants(given, constants)
        constant = _constant(operator)
        if constant is not None:
            constants.update(dict.fromkeys(operator.outputs, constant))
            continue
        operator = _chosen(operator)
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


def _constant(operator: Compute) -> Literal | None:
    """Return the constant that an operator makes while the model trains; None where it makes anything else."""
    if operator.attributes and operator.op not in ANCHORS:
        return None
    match operator.op, operator.inputs:
        case "self_getattr", (Literal(value="training"),):
            return Literal(True)
        case op, _ if op in ANCHORS:
            return Literal(None)
        case op, (Literal() as test, body, other) if op == IFEXPR:
            chosen = body if test.value else other
            return chosen if isinstance(chosen, Literal) else None
        case _:
            return None


def _chosen(operator: Compute) -> Compute:
    """Return a choice between tensors that is known as the identity that it is; every other operator as it is."""
    match operator.op, operator.inputs:
        case op, (Literal() as test, body, other) if op == IFEXPR and not operator.attributes:
            return replace(operator, op=IDENTITY, inputs=(body if test.value else other,))
        case _:
            return operator


def _with_constants(operator: Compute, constants: Mapping[str, Literal]) -> Compute:
    """Return the operator with constants in the place of the objects that stand for them."""
    if not any(operand in constants for operand in operator.tensor_operands):
        return operator
    named = {value for value in operator.attributes.values() if isinstance(value, str)}
    inputs: list[Operand] = []
    place: dict[str, Value] = {}
    for position, operand in enumerate(operator.inputs):
        constant = constants.get(operand) if isinstance(operand, str) else None
        if constant is not None and f"operand {position}" in named:
            place[f"operand {position}"] = constant.value
            continue
        place[f"operand {position}"] = f"operand {len(inputs)}"
        inputs.append(operand if constant is None else constant)
    attributes: dict[str, Value] = {}
    for name, value in operator.attributes.items():
        match value:
            case str():
                attributes[name] = place.get(value, value)
            case (str(start), *_) if start.startswith("operands from "):
                return operator
            case _:
                attributes[name] = value
    return replace(operator, inputs=tuple(inputs), attributes=attributes)


def _item(operator: Compute) -> tuple[str, str | int] | None:
    operands: tuple[Operand, ...] = operator.inputs
    if operator.op != GETITEM or len(operands) != 2 or len(operator.outputs) != 1 or operator.attributes:
        return None
    name, key = operands
    if not isinstance(name, str) or not isinstance(key, Literal) or not isinstance(key.value, (str, int)):
        return None
    return name, key.value
