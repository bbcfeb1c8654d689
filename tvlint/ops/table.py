"""The operator table: every operator that tvlint knows, by what is emitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from tvlint.ir.operators import Compute, Literal, Value
from tvlint.ir.plan import Tensor
from tvlint.ops import inert, kernels
from tvlint.ops.annotations import registered
from tvlint.ops.annotations.declared import PREFIX, Declared, declared_name, spec_of_declared
from tvlint.ops.families import (
    activations,
    attention,
    comparisons,
    convolution,
    creating,
    elementwise,
    errors,
    experts,
    joining,
    linear_algebra,
    losses,
    normalisation,
    optimizers,
    rearranging,
    reductions,
    selecting,
    shaping,
    slicing,
    statistics,
)
from tvlint.ops.spec import Bound, Call, Family, OpSpec, Trait, UnsupportedError, call_of
from tvlint.ops.spelling import HALF_TO_FLOAT, SHARING_A_GRADIENT, spellings, without_overload

LOOKUP, PICK, PICK_IN_RANGE = "embedding", "gather", "masked_gather"
"""Rows of a table by index, elements by index, and elements of a stated range by index, by the names of their rows."""

EQUAL = "eq"
"""Whether two numbers are equal, by its name."""


def _for_all_numbers(spec: OpSpec) -> OpSpec:
    """Return the operator, which has no meaning where Python does not compute with its constants, or sizes are below zero."""

    def bind(call: Call) -> Bound:
        try:
            bound = spec.bind(call)
        except (ArithmeticError, ValueError) as error:
            raise UnsupportedError(f"`{call.op}` with its constants: {error}") from None
        if any(size < 0 for size in bound.sizes.values()):
            raise UnsupportedError(f"`{call.op}` gives a dimension of a size below zero")
        return bound

    return replace(spec, bind=bind)


SPECS: tuple[OpSpec, ...] = tuple(map(_for_all_numbers, (
    *linear_algebra.SPECS,
    *elementwise.SPECS,
    *selecting.SPECS,
    *reductions.SPECS,
    *shaping.SPECS,
    *slicing.SPECS,
    *joining.SPECS,
    *attention.SPECS,
    *losses.SPECS,
    *experts.SPECS,
    *activations.SPECS,
    *comparisons.SPECS,
    *convolution.SPECS,
    *creating.SPECS,
    *errors.SPECS,
    *normalisation.SPECS,
    *optimizers.SPECS,
    *rearranging.SPECS,
    *statistics.SPECS,
    *registered.SPECS,
    *inert.SPECS,
)))  # fmt: skip

_BY_NAME = {key: spec for spec in SPECS for key in (spec.name, *spec.signatures)}
_BY_FUNCTION = {
    key.rsplit(".", 1)[-1]: spec for spec in reversed(SPECS) if spec.family is not Family.INERT for key in spec.signatures
}
_REGISTERED = {spec.name: spec for spec in registered.SPECS}
_KERNELS = {spec.name: spec for spec in kernels.KERNELS}
_NONLINEAR = (
    Trait.ACTIVATION, Trait.ATTENTION, Trait.COMMUNICATING_ATTENTION, Trait.NONLINEAR, Trait.NORMALISATION, Trait.SOFTMAX,
)  # fmt: skip


@cache
def spec_of(op: str) -> OpSpec | None:
    """Return the meaning of the function `op`, by signature or canonical name; None when the table does not have it.

    A name without a module (`layer_norm`) is the function of that name, and `F.linear` is `torch.nn.functional.linear`.
    Operators that a model's author registered are found by the last part of their path; those that a project declares carry
    what they mean in their name.
    """
    if op.startswith(PREFIX):
        return spec_of_declared(op, spec_of)
    found = _BY_NAME.get(op) or _REGISTERED.get(op.rsplit(".", 1)[-1]) or _BY_FUNCTION.get(op)
    return found or next((_named(_BY_NAME[whole], whole, op) for whole in spellings(op) if whole in _BY_NAME), None)


@cache
def has_trait(op: str, *traits: Trait) -> bool:
    """Return whether the table has `op` with one of the traits; a function that it does not have has none."""
    spec = spec_of(op)
    return spec is not None and not spec.traits.isdisjoint(traits)


def scaling_of(op: str, attributes: Sequence[Value]) -> tuple[Value, int] | None:
    """Return the constant of which a call multiplies its one operand with a power, and the power, 1 or -1; None for others.

    `attributes` are those of its bound: the place of the constant, and that.
    """
    if not has_trait(op, Trait.SCALING) or len(attributes) != 2:
        return None
    place, value = attributes
    if has_trait(op, Trait.PRODUCT):
        return value, 1
    return (value, -1) if place == 1 else None


def call_in(operator: Compute, tensors: Mapping[str, Tensor]) -> Call | None:
    """Return the call of an operator on operands of the shapes that these tensors have; None where one is not among them."""
    return call_of(operator, lambda name: tensors[name].shape if name in tensors else None)


def bound_in(operator: Compute, tensors: Mapping[str, Tensor]) -> Bound | None:
    """Return what an operator means of operands of the shapes that these tensors have; None where that is not known."""
    spec, call = spec_of(operator.op), call_in(operator, tensors)
    if spec is None or call is None:
        return None
    try:
        return spec.bind(call)
    except (UnsupportedError, ValueError):
        return None


def adds_both(op: str, attributes: Sequence[Value]) -> bool:
    """Return whether a call adds its operands, each of them once; `attributes` are those of its bound."""
    return has_trait(op, Trait.SUM) and not has_trait(op, Trait.DIFFERENCE) and tuple(attributes) == (1,)


def has_no_effect(op: str) -> bool:
    """Return whether a call of `op` is known to change nothing that the model uses."""
    spec = spec_of(op)
    return spec is not None and spec.family is Family.INERT


def canonical_name(op: str) -> str:
    """Return the name of the operator that the function `op` is in the table; empty for one that it does not have."""
    spec = spec_of(op)
    return "" if spec is None else spec.name


@cache
def differentiated(op: str) -> tuple[str, ...]:
    """Return the operators whose gradient a function of `aten` is by its name (`gelu_backward`); none for any other one."""
    name = without_overload(op).rsplit(".", 1)[-1]
    of = canonical_name(name.removesuffix("_backward")) if name.endswith("_backward") else ""
    return (of, *SHARING_A_GRADIENT.get(of, ())) if of else ()


@cache
def row_of(op: str) -> OpSpec | None:
    """Return what is stated of the function `op`: its meaning, or its kind alone; None for a function that is unknown."""
    return spec_of(op) or _KERNELS.get(without_overload(op).rsplit(".", 1)[-1])


@cache
def has_kind(op: str, *traits: Trait) -> bool:
    """Return whether `op` has one of the traits, by its meaning or, where that is not known, by its kind.

    A kind says what is wrong with operands. It proves nothing.
    """
    row = row_of(op)
    return row is not None and not row.traits.isdisjoint(traits)


def is_nonlinear(op: str) -> bool:
    """Return whether `op` is known not to be linear in its first operand, whatever its attributes are."""
    return has_kind(op, *_NONLINEAR)


def _named(spec: OpSpec, whole: str, op: str) -> OpSpec:
    """Return the operator, for calls of `op` as calls of the function `whole` that `op` stands for."""

    def usual(call: Call) -> Call:
        widens = HALF_TO_FLOAT.intersection(op.replace("::", ".").split("."))
        inputs = call.inputs[:2] if widens and call.inputs[2:] == (Literal(False),) else call.inputs
        return replace(call, op=whole, inputs=inputs)

    steps = spec.steps
    return replace(
        spec,
        bind=lambda call: spec.bind(usual(call)),
        steps=None if steps is None else lambda call: steps(usual(call)),
    )


def meant(op: str, declared: Sequence[Declared]) -> str:
    """Return the name under which the table finds the function `op` in a project that declares operators.

    A declaration is about the function of that name in any module, or in the one it names. It says more than what tvlint
    knows of functions by their own name alone, and never overrides what tvlint knows of a framework's function.
    """
    about = [one for one in declared if op == one.name or op.endswith(f".{one.name}")]
    if not about or interpreted(op):
        return op
    return declared_name(op, max(about, key=lambda one: len(one.name)))


def interpreted(op: str) -> str:
    """Return the canonical name of the operator of a framework that `op` is by its whole name, or as `F.gelu`; else nothing."""
    spec = next((_BY_NAME[name] for name in (op, *spellings(op)) if name in _BY_NAME), None)
    return spec.name if spec is not None and spec.name not in _REGISTERED else ""
