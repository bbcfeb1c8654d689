"""Declared operators whose tensors have several dimensions in one: on tensors that have each of them for itself.

`(h+ dh^ 3) c^, h+ -> ...` may be split over `h`, which is part of one dimension of the first operand and the whole of one of
the second. As the same function of a view of the first operand with the dimensions `h dh 3 c`, it is annotated as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvlint.ir.operators import Compute, Literal, Operand
from tvlint.ops.annotations.declared import (
    STAR,
    Annotation,
    AnnotationError,
    Sizes,
    apart,
    operands_of,
    parse,
    redeclared,
    size_of,
    solved,
    without_brackets,
)
from tvlint.ops.spec import Call, Shape, UnsupportedError, call_of

VIEW = "torch.Tensor.view"


def without_bracketed(operator: Compute, shapes: Mapping[str, Shape]) -> tuple[Compute, ...]:
    """Return the operator between views of its operands and results; the operator alone where it has no brackets.

    That it is too where sizes do not follow from the shapes of its operands and the constants that it is given by name.
    """
    said, _ = apart(operator.op)
    call = call_of(operator, shapes.get)
    if "(" not in said or call is None:
        return (operator,)
    try:
        annotation = parse(said.split("|")[0])
        return _between_views(operator, annotation, call)
    except (AnnotationError, UnsupportedError):
        return (operator,)


def _between_views(operator: Compute, annotation: Annotation, call: Call) -> tuple[Compute, ...]:
    given = operands_of(annotation, call)
    known = solved(annotation, given, call)
    stars: Shape = ()
    views: list[Compute] = []
    inputs: list[Operand] = []
    tensors_left = iter(given)
    for position, operand in enumerate(operator.inputs):
        if isinstance(operand, Literal):
            inputs.append(operand)
            continue
        tensor, shape = next(tensors_left)
        if tensor is not None and (STAR,) in tensor:
            head = tensor.index((STAR,))
            stars = shape[head : len(shape) - (len(tensor) - head - 1)]
        if not _has_brackets(tensor):
            inputs.append(operand)
            continue
        size = _each(tensor or (), stars, known, call)
        name = f"{operand}.as.{position}.{operator.outputs[0]}"
        views.append(replace(operator, op=VIEW, inputs=(operand,), outputs=(name,), attributes={"size": size}))
        inputs.append(name)
    back: list[Compute] = []
    outputs: list[str] = []
    for tensor, name in zip(annotation.outputs, operator.outputs, strict=True):
        wide = f"{name}.as" if _has_brackets(tensor) else name
        outputs.append(wide)
        if wide != name:
            size = _whole(tensor or (), stars, known, call)
            back.append(replace(operator, op=VIEW, inputs=(wide,), outputs=(name,), attributes={"size": size}))
    names = {name for tensor in (*annotation.operands, *annotation.outputs) for names in tensor or () for name in names}
    attributes = {word: value for word, value in operator.attributes.items() if word not in names or known.get(word) != value}
    op = redeclared(operator.op, without_brackets(annotation))
    return (*views, replace(operator, op=op, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes), *back)


def _has_brackets(tensor: Sizes | None) -> bool:
    return any(len(names) > 1 for names in tensor or ())


def _each(tensor: Sizes, stars: Shape, known: Mapping[str, int], call: Call) -> Shape:
    """Return the shape of a tensor with a dimension for each name and number."""
    found: list[int] = []
    for names in tensor:
        found.extend(stars if names == (STAR,) else [size_of((name,), known, call) for name in names])
    return tuple(found)


def _whole(tensor: Sizes, stars: Shape, known: Mapping[str, int], call: Call) -> Shape:
    """Return the shape of a tensor as it is annotated."""
    found: list[int] = []
    for names in tensor:
        found.extend(stars if names == (STAR,) else [size_of(names, known, call)])
    return tuple(found)
