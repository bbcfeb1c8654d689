"""Annotations of known operators that are not what the operator does.

The operator table says which dimension of an operand each dimension of a result comes from; so does an annotation, of which
dimensions are compared that it leaves free to be split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.facts import Facts
from tvlint.ir.operators import Compute, Literal
from tvlint.ir.plan import Plan
from tvlint.ops.annotations.declared import Declared, declared_name
from tvlint.ops.spec import Bound, Call, Family, Shape
from tvlint.ops.table import spec_of
from tvlint.plurals import counted

_MOST = 32
"""Annotations beyond this number of dimensions of one tensor are left out."""


@dataclass(frozen=True, slots=True)
class FalseAnnotation:
    """At (`segment`, `index`) the operator is annotated as `annotation`, and `wrong` says what of that is not so."""

    segment: str
    index: int
    op: str
    annotation: str
    wrong: str


def false_annotations(facts: Facts) -> Iterator[FalseAnnotation]:
    """Yield the annotations that say another function than the operator's; uses that are alike are looked up once."""
    plan, seen = facts.plan, dict[object, str]()
    for name, segment in plan.segments.items():
        for index, operator in enumerate(segment.operators):
            if not isinstance(operator, Compute) or not operator.annotation:
                continue
            use = _use(plan, operator)
            if use not in seen:
                seen[use] = _wrong(plan, operator)
            if seen[use]:
                yield FalseAnnotation(name, index, operator.op, operator.annotation, seen[use])


def _use(plan: Plan, operator: Compute) -> object:
    shapes = tuple(plan.tensors[name].shape if name in plan.tensors else name for name in map(_key, operator.inputs))
    return operator.op, operator.annotation, shapes, repr(operator.attributes), len(operator.outputs)


def _key(operand: object) -> str:
    return operand if isinstance(operand, str) else repr(operand)


def _wrong(plan: Plan, operator: Compute) -> str:
    """Return what of an annotation is not so; empty where all is, and where that is not known."""
    names = operator.tensor_operands
    if any(name not in plan.tensors for name in (*names, *operator.outputs)):
        return ""
    given = tuple(operand if isinstance(operand, Literal) else plan.tensors[operand].shape for operand in operator.inputs)
    shapes = [given_shape for given_shape in given if not isinstance(given_shape, Literal)]
    results = tuple(plan.tensors[name].shape for name in operator.outputs)
    if any(len(shape) > _MOST for shape in (*shapes, *results)):
        return ""
    said = declared_name("annotated", Declared("annotated", operator.annotation))
    claimed, known = _bound(said, given, results, operator), _bound(operator.op, given, results, operator)
    if claimed is None or known is None or len(claimed.operands) != len(known.operands):
        return ""
    for position, (mine, other) in enumerate(zip(claimed.outputs, known.outputs, strict=False)):
        if len(mine) != len(other) and not (not other and set(mine) <= {"1"}):
            return f"its result has {counted(len(other), 'dimension')}"
        for dim, (one, of) in enumerate(zip(mine, other, strict=False)):
            if results[position : position + 1] and results[position][dim : dim + 1] != (1,):
                sources, origins = _places(claimed, one), _places(known, of)
                if sources and origins and one not in claimed.whole and sources.isdisjoint(origins):
                    operand, place = min(origins)
                    return f"dimension {dim} of its result is dimension {place} of `{names[operand]}`"
    return ""


def _bound(op: str, given: tuple[Shape | Literal, ...], results: tuple[Shape, ...], operator: Compute) -> Bound | None:
    spec = spec_of(op)
    if spec is None or spec.family is not Family.INDEXED:
        return None
    return spec.bound(Call(op, given, operator.attributes, results))


def _places(bound: Bound, name: str) -> set[tuple[int, int]]:
    """Return the operands and dimensions that a name stands for."""
    return {(operand, dim) for operand, names in enumerate(bound.operands) for dim, each in enumerate(names) if each == name}
