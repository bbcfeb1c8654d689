"""Check that partition constraints name operators and dimensions of the traced graph beside them, if there is one."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvlint.checkout.following import content_listed
from tvlint.findings import Finding, Related, Severity
from tvlint.ir.location import Location
from tvlint.ir.operators import Compute
from tvlint.ir.plan import Plan
from tvlint.ops.spec import Call, Trait
from tvlint.ops.table import interpreted, spec_of
from tvlint.plurals import counted
from tvlint.readers.nnscaler.trainer.graph_beside import graph_beside, operators_of

DIMENSION = re.compile(r"\([^()]*\)|[^\s()]+")
FROZEN = "^"
_MOST_DIMENSIONS = 5
"""Tensors of more dimensions are not tried for an operator."""

DIMENSION_RULE, OPERATOR_RULE = "constraint-of-no-dimension", "constraint-of-no-operator"
DIMENSION_HELP = "name a tensor by its place among inputs and outputs, and a dimension that its annotation lets be split"
OPERATOR_HELP = "give the full name of the function that is called, such as `torch.nn.functional.linear`"


@dataclass(frozen=True, slots=True)
class Constraint:
    """The operators named so, and the dimensions that may be split: tensor among inputs and outputs, dimension, place."""

    name: str
    location: Location
    allowed: tuple[tuple[int, int, Location], ...]


def constraint_misfits(path: str, constraints: Sequence[Constraint]) -> Iterator[Finding]:
    """Yield what the constraints name that there is not, with the traced graph in the folder of `path` where there is one.

    A dimension is reported where no operator of the name has it: which of them a constraint is about depends on modules, of
    which the graph as it is read knows nothing.
    """
    found = graph_beside(path) if constraints else None
    operators = list(operators_of(found[1]).values()) if found is not None else []
    beside = (Related("the traced graph", Location(found[0])),) if found is not None else ()
    for constraint in constraints:
        shown = f"`{constraint.name[:80]}`"
        matching = [operator for operator in operators if operator.op == constraint.name]
        for index, dimension, location in constraint.allowed:
            reason = _weightless(constraint.name, index, dimension)
            if found is not None and matching:
                reasons = [_misfit(found[1], operator, index, dimension) for operator in matching]
                reason = reasons[0] if all(reasons) else ""
            if reason:
                message = f"{shown} cannot be split at `{index},{dimension}`: {reason}"
                yield Finding(DIMENSION_RULE, Severity.WARNING, message, location, DIMENSION_HELP, beside if matching else ())
        if "." not in constraint.name:
            message = f"{shown} is no full name of a function, so that the constraint is about no operator"
            yield Finding(OPERATOR_RULE, Severity.WARNING, message, constraint.location, OPERATOR_HELP)
        elif found is not None and not matching and not _mentioned(found[0], constraint.name):
            message = f"the traced graph beside the constraints has no operator {shown}"
            yield Finding(OPERATOR_RULE, Severity.WARNING, message, constraint.location, OPERATOR_HELP, beside)


def _weightless(name: str, index: int, dimension: int) -> str:
    """Return why a function surely has no such dimension, whatever the model; empty where it may have."""
    rank = _rank_of_weight(name) if index == 1 else None
    return f"its tensor 1, the weight, has {counted(rank, 'dimension')}" if rank is not None and dimension >= rank else ""


def _rank_of_weight(name: str) -> int | None:
    """Return how many dimensions the second tensor of a function has, whatever the first; None where it may have several."""
    spec = spec_of(name) if interpreted(name) else None
    if spec is None or spec.traits.isdisjoint({Trait.PRODUCT, Trait.CONTRACTION}):
        return None
    sizes = [(2,) * rank for rank in range(1, _MOST_DIMENSIONS + 1)]
    ranks = {len(weight) for first in sizes for weight in sizes if spec.bound(Call(name, (first, weight), {})) is not None}
    return ranks.pop() if len(ranks) == 1 else None


def _misfit(graph: Plan, operator: Compute, index: int, dimension: int) -> str:
    """Return why the operator has no such dimension to split; empty where it has one, or that is not known."""
    tensors = (*operator.inputs, *operator.outputs)
    if index >= len(tensors):
        return f"it has {counted(len(operator.inputs), 'input')} and {counted(len(operator.outputs), 'output')}"
    given = tensors[index]
    if not isinstance(given, str):
        return f"its input {index} is no tensor"
    shape = graph.tensors[given].shape if given in graph.tensors else None
    if shape is None:
        return ""
    if dimension >= len(shape):
        return f"its tensor {index} has shape {shape}"
    annotated = _annotated(operator, index, len(shape))
    if annotated and all(part.endswith(FROZEN) or part.isdigit() for part in annotated[dimension].strip("()").split()):
        return f"`{operator.annotation[:120]}` keeps dimension {dimension} of tensor {index} whole"
    return ""


def _annotated(operator: Compute, index: int, rank: int) -> tuple[str, ...]:
    """Return the dimensions of a tensor as the operator's annotation has them; none where they cannot be distinguished."""
    sides = operator.annotation.split("->")
    if len(sides) != 2:
        return ()
    inputs, outputs = (side.split(",") for side in sides)
    if len(inputs) != len(operator.inputs) or len(outputs) != len(operator.outputs):
        return ()
    written = DIMENSION.findall((*inputs, *outputs)[index])
    if "*" in written:
        place = written.index("*")
        written[place : place + 1] = ["*"] * (rank - len(written) + 1)
    return tuple(written) if len(written) == rank else ()


def _mentioned(path: str, name: str) -> bool:
    """Return whether the file of the graph has exactly this text in it, in whatever role."""
    from tvlint.readers.nnscaler.gencode.traced_graph import LARGEST
    from tvlint.readers.sources.decompress import decompress

    data = decompress(content_listed(path, LARGEST), path)
    text = name.encode()
    return any(
        length + text in data for length in (struct.pack("<BB", 0x8C, len(text) & 0xFF), struct.pack("<cI", b"X", len(text)))
    )
