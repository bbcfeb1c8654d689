"""Casts to the type that a tensor has, which keep every number, and casts to the type of another tensor.

`x.float()` of a tensor of `float32`, and `x.type_as(y)` where both have one type, are `x`; `x.type_as(y)` of other types is the
cast to that of `y`. Types are those that the plan declares or that follow from its operators; a cast from or to a type that is
not known is left as it is, as is one that overwrites its operand. Operators that work bit by bit are known of flags only, which
is a matter of types, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tvlint.equivalence.verdict.declared_results import Kinds, have_declared_types, kinds_in
from tvlint.ir.operators import NOT_UNDERSTOOD, Backward, Compute, Literal, Operator
from tvlint.ir.plan import Plan, Tensor
from tvlint.ops.dtypes import SOME_REAL, SOME_WHOLE, expected_types
from tvlint.ops.families.elementwise import holds_whole_numbers
from tvlint.ops.kinds import Kind, is_of_reals, is_otherwise, kind_of
from tvlint.ops.spec import Trait
from tvlint.ops.table import bound_in, has_trait, spec_of
from tvlint.ops.usual_calls import as_of_flags


def without_needless_casts(plan: Plan) -> Plan:
    """Return the plan with copies in the place of casts that change nothing; the plan itself where it has none."""
    segments = plan.with_operators(lambda operator: _instead(operator, plan.tensors))
    if segments == dict(plan.segments) or not have_declared_types(plan, _relied_on(plan)):
        return plan
    return replace(plan, segments=segments)


def _relied_on(plan: Plan) -> Iterator[str]:
    """Yield the values whose types say what a cast is that changes: to whole numbers or flags, or to the type of another.

    A cast to other numbers keeps what such numbers, whole numbers and flags are.
    """
    for operator in plan.operators():
        cast = operator.forward if isinstance(operator, Backward) else operator
        if not isinstance(cast, Compute) or _plain(cast, plan.tensors) is cast:
            continue
        operand, *others = cast.tensor_operands
        yield from (*others, *([operand] if holds_whole_numbers(type_of_cast(cast, plan.tensors)) else []))


def with_flags(plan: Plan) -> Plan:
    """Return the plan with what operators are of flags, and nothing that is understood where they round; itself without any."""
    kinds = kinds_in(plan)
    segments = plan.with_operators(lambda operator: _of_kinds(operator, plan.tensors, kinds))
    return plan if segments == dict(plan.segments) else replace(plan, segments=segments)


def _of_kinds(operator: Operator, tensors: Mapping[str, Tensor], kinds: Kinds) -> Operator:
    if not isinstance(operator, Compute):
        return operator
    given = [kinds.get(name) for name in operator.tensor_operands]
    of_flags = as_of_flags(operator, tensors)
    if of_flags is not operator:
        return of_flags if all(kind is Kind.FLAGS for kind in given) else operator
    spec = spec_of(operator.op)
    if spec is None or operator.in_place:
        return operator
    bound = bound_in(operator, tensors)
    types = [_type(tensors.get(name), kind) for name, kind in zip(operator.tensor_operands, given, strict=True)]
    refused = expected_types(spec, bound, types, operator.attributes) if types and not spec.assumption else ""
    if refused:
        why = f"torch refuses it: {refused}"
    elif is_of_reals(operator, spec, given):
        return operator
    elif bound is not None:
        why = is_otherwise(operator, spec, bound, given)
    else:
        of_flags_alone = bool(given) and all(kind in (None, Kind.FLAGS) for kind in given)
        why = "adds what may be flags" if Trait.SUM in spec.traits and of_flags_alone else ""
    op = f"{operator.op} ({'such operands' if refused else 'whole numbers or flags'})"
    return replace(operator, op=op, attributes={NOT_UNDERSTOOD: why}) if why else operator


def _type(tensor: Tensor | None, kind: Kind | None) -> str:
    """Return the type that a tensor is declared to have, where it holds such numbers; else what is known of its type."""
    declared = "" if tensor is None else tensor.dtype
    held = kind_of(declared)
    if kind is None or held is kind or (kind is Kind.COUNTS and held is Kind.WHOLE):
        return declared
    return {Kind.FLAGS: "bool", Kind.REAL: SOME_REAL}.get(kind, SOME_WHOLE)


def _instead(operator: Operator, tensors: Mapping[str, Tensor]) -> Operator:
    if isinstance(operator, Compute):
        return _plain(operator, tensors)
    if not isinstance(operator, Backward) or any(operator.outputs[1:]):
        return operator
    forward = _plain(operator.forward, tensors)
    return operator if forward is operator.forward else replace(operator, forward=forward, outputs=operator.outputs[:1])


def _plain(cast: Compute, tensors: Mapping[str, Tensor]) -> Compute:
    """Return a copy, or the cast to a type, in the place of a cast of which both types are known."""
    if not has_trait(cast.op, Trait.CONVERSION) or cast.in_place or len(cast.outputs) != 1:
        return cast
    operand, wanted = cast.inputs[0], type_of_cast(cast, tensors)
    before = tensors.get(operand) if isinstance(operand, str) else None
    if before is None or wanted == "" or not (before.dtype or wanted is None):
        return cast
    if wanted in (None, before.dtype):
        return replace(cast, op="torch.clone", inputs=(operand,), attributes={})
    alike = len(cast.inputs) == 2
    return replace(cast, op="torch.Tensor.to", inputs=(operand,), attributes={"dtype": wanted}) if alike else cast


def type_of_cast(cast: Compute, tensors: Mapping[str, Tensor]) -> str | None:
    """Return the type that a cast is to; None where it is to no type, but to a device or as it is stored.

    Empty where it is not known, or is that of anything but a tensor.
    """
    operand, *others = cast.inputs
    if len(others) == 1 and isinstance(others[0], str):
        alike = tensors.get(others[0]) if not cast.attributes and cast.op.rsplit(".", 1)[-1] in ("type_as", "to") else None
        return alike.dtype if alike is not None else ""
    of_one = isinstance(operand, str) and all(isinstance(other, Literal) for other in others)
    bound = bound_in(cast, tensors) if of_one else None
    if bound is None:
        return ""
    if not bound.attributes:
        return None
    (said,) = bound.attributes if len(bound.attributes) == 1 else ("",)
    return said.removeprefix("torch.") if isinstance(said, str) else ""
