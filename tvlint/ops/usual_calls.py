"""One spelling for every way in which a function of torch is written down.

`F.linear`, `aten.mm`, `torch.ops.aten._softmax.default` and `layer_norm(x, [16], weight, bias)` are functions of the operator
table under other names, or with constants by position that the table knows by name. Rules and derived shapes go by the usual
spelling; the plan keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from tvlint.ir.operators import Compute, Literal, Operand, Value
from tvlint.ir.plan import Tensor
from tvlint.ops.annotations.declared import PREFIX
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.spec import Trait
from tvlint.ops.spelling import OF_ANOTHER_ORDER, OF_FLAGS, spellings, without_overload
from tvlint.ops.table import bound_in, has_trait, spec_of

_MODULES = frozenset({"torch", "nn", "functional", "F", "aten", "ops", "Tensor", "operator", "prims", "special", "_C", "_nn"})
_ALIASES = {
    "_softmax": "softmax", "_log_softmax": "log_softmax", "_safe_softmax": "softmax", "layernorm": "layer_norm",
    "rmsnorm": "rms_norm", "swish": "silu", "_unsafe_view": "reshape", "concat": "cat", "concatenate": "cat",
    "native_dropout": "dropout", "sdpa": "scaled_dot_product_attention", "t": "t", "flatten": "flatten", "dense": "linear",
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "_to_copy": "clone", "alias": "clone",
}  # fmt: skip
_NORMS = ("layer_norm", "rms_norm")


def usual(operator: Compute) -> Compute:
    """Return the operator as the table knows it; itself where it is that already, or where the table knows none like it."""
    op = usual_name(operator.op)
    last = "" if op.startswith(PREFIX) else op.rsplit(".", 1)[-1]
    inputs, attributes = operator.inputs, operator.attributes
    if last == "t" and len(inputs) == 1:
        op, inputs = "transpose", (*inputs, Literal(0), Literal(1))
    elif last == "flatten":
        op = "torch.Tensor.view"
    elif last in _NORMS:
        inputs, attributes = _norm(inputs, dict(attributes))
    elif last == "einsum" and inputs and isinstance(equation := inputs[0], Literal):
        inputs, attributes = inputs[1:], {**attributes, "equation": equation.value}
    elif last in ("softmax", "log_softmax") and len(inputs) == 3 and isinstance(inputs[2], Literal):
        inputs = inputs[:2]
    if op == operator.op and inputs == operator.inputs:
        return operator
    return replace(operator, op=op, inputs=inputs, attributes=attributes)


def as_of_flags(operator: Compute, tensors: Mapping[str, Tensor]) -> Compute:
    """Return what an operator that works bit by bit, or adds, is of flags; itself where an operand may be something else."""
    spec = spec_of(operator.op)
    adds = spec is not None and Trait.SUM in spec.traits and Trait.DIFFERENCE not in spec.traits
    name = OF_FLAGS.get("or_" if adds else without_overload(operator.op).rsplit(".", 1)[-1])
    if name is None or operator.in_place or operator.attributes or (spec is not None and not adds):
        return operator
    known = [tensors.get(operand) if isinstance(operand, str) else None for operand in operator.inputs]
    return replace(operator, op=name) if all(each is not None and each.dtype == "bool" for each in known) else operator


def is_copy(operator: Compute) -> bool:
    """Return whether an operator is `w.copy_(x)`."""
    is_named = without_overload(operator.op).rsplit(".", 1)[-1] == "copy_"
    return is_named and not operator.outputs and operator.in_place == (0,) and len(operator.inputs) == 2


def as_copy(operator: Compute, tensors: Mapping[str, Tensor]) -> Compute:
    """Return `w.copy_(x)` as what gives `w` anew: a copy of `x`, or its cast to the type of `w`.

    What copies between tensors of other shapes, or of types that are not known, is returned as it is.
    """
    into, taken = (*operator.inputs, "", "")[:2]
    if not is_copy(operator) or not isinstance(into, str) or not isinstance(taken, str) or into == taken:
        return operator
    target, source = tensors.get(into), tensors.get(taken)
    if operator.attributes.keys() - {"non_blocking"} or target is None or source is None or target.shape != source.shape:
        return operator
    if not target.dtype or not source.dtype:
        return operator
    op, how = ("torch.clone", {}) if target.dtype == source.dtype else ("torch.Tensor.to", {"dtype": target.dtype})
    return replace(operator, op=op, inputs=(taken,), attributes=how, outputs=(into,), in_place=())


def as_new(operator: Compute, tensors: Mapping[str, Tensor]) -> Compute:
    """Return a method that overwrites its operand (`w.mul_(x)`, `w.copy_(x)`) as the function that gives the operand anew.

    A method that the table has no function for is returned as it is, as is one that draws, that gives flags or another shape,
    or whose operand may hold no real numbers.
    """
    if operator.outputs or operator.in_place != (0,) or not isinstance(name := operator.inputs[0], str):
        return operator
    copy, target = as_copy(operator, tensors), tensors.get(name)
    op = without_overload(operator.op)
    if copy is not operator or not op.endswith("_") or op.endswith("__") or target is None:
        return copy
    if spec_of(op) is not None or has_trait(op[:-1], Trait.COMPARISON) or not target.dtype or holds_whole_numbers(target.dtype):
        return operator
    new = replace(operator, op=op[:-1], outputs=(name,), in_place=())
    bound = bound_in(new, tensors)
    if bound is None or bound.draws is not None or len(bound.outputs) != 1 or bound.outputs[0] != bound.operands[0]:
        return operator
    return new


@cache
def usual_name(op: str) -> str:
    """Return the name under which the table has the function, or `op` where it has none."""
    plain = without_overload(op)
    parts = plain.split(".")
    if spec_of(plain) is not None and parts[-1] not in _ALIASES:
        return plain
    if set(parts[:-1]) - _MODULES or OF_ANOTHER_ORDER.intersection(spellings(op)):
        return op
    last = _ALIASES.get(parts[-1], parts[-1])
    return last if spec_of(last) is not None or last in ("t", "flatten") else op


def _norm(inputs: tuple[Operand, ...], attributes: dict[str, Value]) -> tuple[tuple[Operand, ...], dict[str, Value]]:
    """Normalisation with the normalised shape second and epsilon last, both by name."""
    kept = list(inputs)
    if len(kept) > 1 and isinstance(kept[1], Literal) and isinstance(kept[1].value, int | tuple):
        shape = kept.pop(1).value  # type: ignore[union-attr]
        attributes.setdefault("normalized_shape", shape if isinstance(shape, tuple) else (shape,))
    if kept and isinstance(kept[-1], Literal) and isinstance(kept[-1].value, float):
        attributes.setdefault("eps", kept.pop().value)  # type: ignore[union-attr]
    return tuple(kept), attributes
