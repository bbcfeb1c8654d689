"""Normalisation over channels: in groups of them, and by running statistics."""

from __future__ import annotations

from collections.abc import Sequence

from tvlint.ir.operators import Literal
from tvlint.ops.families.reductions import without_absent, without_none
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, Call, OpSpec, Trait, UnsupportedError, having


def _places(call: Call) -> tuple[str, ...]:
    if len(call.shape(0)) < 2:
        raise UnsupportedError(f"`{call.op}` of shape {call.shape(0)}")
    return tuple(f"x{i}" for i in range(len(call.shape(0)) - 2))


def _bind_group(call: Call) -> Bound:
    """Normalisation of every row over each of `num_groups` groups of channels and all positions."""
    inputs, attributes = list(call.inputs), dict(call.attributes)
    if len(inputs) > 1 and isinstance(inputs[1], Literal):
        attributes["num_groups"] = inputs.pop(1).value  # type: ignore[union-attr]
    if len(inputs) == 4 and isinstance(inputs[3], Literal):
        attributes["eps"] = inputs.pop(3).value  # type: ignore[union-attr]
    call = without_none(without_absent(Call(call.op, tuple(inputs), attributes, call.outputs)), "weight", "bias")
    call.reject_unknown("num_groups", "eps")
    call.expect(1, 3)
    shape, groups, epsilon = call.shape(0), call.attributes.get("num_groups"), call.attributes.get("eps", 1e-5)
    places = _places(call)
    if not isinstance(groups, int) or groups < 1 or shape[1] % groups or not isinstance(epsilon, int | float):
        raise UnsupportedError(f"`{call.op}` of {shape[1]} channels in {groups} groups")
    if any(call.shape(i) != shape[1:2] for i in range(1, len(call.inputs))):
        raise UnsupportedError(f"`{call.op}` of shape {shape} with weights of shape {call.shape(1)}")
    operands = (("n", "c", *places), *((("c",),) * (len(call.inputs) - 1)))
    affine = frozenset(range(1, len(operands)))
    return Bound(
        operands,
        operands[:1],
        whole=frozenset({"c", *places}),
        linear=(affine,) if affine else (),
        attributes=(groups, epsilon),
    )


def _group(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    x = operands[0]
    groups, epsilon = bound.attributes
    count = groups if isinstance(groups, int) else 1
    rows = x.reshape([x.shape[0], count, -1])
    size = field.number(rows.shape[2])
    centred = rows - field.divide(rows.sum(axis=2, keepdims=True), size)
    variance = field.divide((centred * centred).sum(axis=2, keepdims=True), size)
    margin = field.number(epsilon if isinstance(epsilon, int | float) else 0)
    result = field.divide(centred, field.function("sqrt", variance + margin)).reshape(x.shape)
    return (_affine(result, operands[1:]),)


def _affine(result: Array, operands: Sequence[Array]) -> Array:
    wide = [operand.reshape([1, -1, *([1] * (result.ndim - 2))]) for operand in operands]
    scaled = result * wide[0] if wide else result
    return scaled + wide[1] if len(wide) > 1 else scaled


def _bind_running(call: Call) -> Bound:
    """`batch_norm` outside training, by its running mean and variance.

    They come second and third in `torch.nn.functional`, and last in `torch.batch_norm`, which is not this function.
    """
    call = call.with_arguments("training", "momentum", "eps")
    call.reject_unknown("training", "momentum", "eps", "cudnn_enabled", "cudnn_enable")
    if call.flag("training"):
        raise UnsupportedError(
            f"`{call.op}` in training takes its statistics from the part of the batch that a rank has, and changes running ones"
        )
    call.expect(3, 5)
    shape, epsilon = call.shape(0), call.attributes.get("eps", 1e-5)
    places = _places(call)
    if any(call.shape(i) != shape[1:2] for i in range(1, len(call.inputs))) or not isinstance(epsilon, int | float):
        raise UnsupportedError(f"`{call.op}` of shape {shape} with statistics of shape {call.shape(1)}")
    operands = (("n", "c", *places), *((("c",),) * (len(call.inputs) - 1)))
    affine = frozenset(range(3, len(operands)))
    return Bound(
        operands,
        operands[:1],
        linear=(affine,) if affine else (),
        attributes=(epsilon,),
        zero_gradient=frozenset({1, 2}),
    )


def _running(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    x, mean, variance = operands[:3]
    (epsilon,) = bound.attributes
    wide = [1, -1, *([1] * (x.ndim - 2))]
    margin = field.number(epsilon if isinstance(epsilon, int | float) else 0)
    root = field.function("sqrt", variance + margin)
    return (_affine(field.divide(x - mean.reshape(wide), root.reshape(wide)), operands[3:]),)


def _torch(name: str) -> tuple[str, ...]:
    return (f"torch.{name}", f"torch.nn.functional.{name}", f"nnscaler.runtime.function.{name}")


SPECS = (
    *having((Trait.NONLINEAR,), OpSpec("group-norm", _torch("group_norm"), _bind_group, evaluate=_group)),
    *having(
        (Trait.NONLINEAR, Trait.RESTRICTED),
        OpSpec("batch-norm", ("torch.nn.functional.batch_norm",), _bind_running, evaluate=_running),
    ),
)
