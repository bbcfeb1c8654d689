"""Normalisation over channels: in groups of them, by running statistics, and by those of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvlint.ir.operators import Literal
from tvlint.ops.families.reductions import without_absent, without_none
from tvlint.ops.field import Array, Field
from tvlint.ops.operator_sequence import Made, OperatorSequence
from tvlint.ops.spec import Bound, Call, OpSpec, Steps, Trait, UnsupportedError, having


def _places(call: Call) -> tuple[str, ...]:
    if len(call.shape(0)) < 2:
        raise UnsupportedError(f"`{call.op}` of shape {call.shape(0)}")
    return tuple(f"x{i}" for i in range(len(call.shape(0)) - 2))


def _by_groups(call: Call) -> Call:
    """Return the call with tensors alone as operands."""
    inputs, attributes = list(call.inputs), dict(call.attributes)
    if len(inputs) > 1 and isinstance(inputs[1], Literal):
        attributes["num_groups"] = inputs.pop(1).value  # type: ignore[union-attr]
    if len(inputs) == 4 and isinstance(inputs[3], Literal):
        attributes["eps"] = inputs.pop(3).value  # type: ignore[union-attr]
    call = without_none(without_absent(Call(call.op, tuple(inputs), attributes, call.outputs)), "weight", "bias")
    call.reject_unknown("num_groups", "eps")
    return call


def _groups_of_all(local: Call, whole: Call) -> Call:
    """Return the call on all channels, of which a rank states how many groups its own are."""
    call, part = _by_groups(whole), _by_groups(local)
    if len(part.inputs) < 1 or len(part.shape(0)) < 2 or part.shape(0)[1:2] == call.shape(0)[1:2]:
        return whole
    groups, _ = _bind_group(local).attributes
    channels, held = call.shape(0)[1], part.shape(0)[1]
    if not isinstance(groups, int) or channels * groups % held:
        raise UnsupportedError(f"`{call.op}` of {held} of {channels} channels in {groups} groups")
    return replace(call, attributes={**call.attributes, "num_groups": channels * groups // held})


def _bind_group(call: Call) -> Bound:
    """Normalisation of every row over each of `num_groups` groups of channels and all positions."""
    call = _by_groups(call)
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


def _bind_batch(call: Call) -> Bound:
    """`batch_norm` by its running mean and variance, and in training, where it has none, by those of the batch.

    They come second and third in `torch.nn.functional`, and last in `torch.batch_norm`, which is not this function.
    """
    call, of_batch = _by_batch(call)
    call.expect(*((1, 3) if of_batch else (3, 5)))
    shape, epsilon = call.shape(0), call.attributes.get("eps", 1e-5)
    places = _places(call)
    if any(call.shape(i) != shape[1:2] for i in range(1, len(call.inputs))) or not isinstance(epsilon, int | float):
        raise UnsupportedError(f"`{call.op}` of shape {shape} with statistics of shape {call.shape(1)}")
    operands = (("n", "c", *places), *((("c",),) * (len(call.inputs) - 1)))
    affine = frozenset(range(1 if of_batch else 3, len(operands)))
    return Bound(
        operands,
        operands[:1],
        whole=frozenset({"n", *places}) if of_batch else frozenset(),
        linear=(affine,) if affine else (),
        attributes=(epsilon, of_batch),
        zero_gradient=frozenset() if of_batch else frozenset({1, 2}),
    )


def _by_batch(call: Call) -> tuple[Call, bool]:
    """Return the call with tensors alone as operands, and whether its statistics are those of the batch, as in training."""
    inputs, words = list(call.inputs), ("training", "momentum", "eps")
    given = {word: value for word, value in call.attributes.items() if value is not None or word not in _STATISTICS}
    none = inputs[1:3] == [Literal(None)] * 2 or (len(inputs) < 2 and len(given) == len(call.attributes) - 2)
    if none and len(inputs) > 2:
        del inputs[1:3]
    call = without_none(replace(call, inputs=tuple(inputs), attributes=given), "weight", "bias").with_arguments(*words)
    call.reject_unknown(*words, "cudnn_enabled", "cudnn_enable")
    if call.flag("training") is not none:
        raise UnsupportedError(f"`{call.op}` in training changes the running statistics that it is given")
    return call, none


_STATISTICS = ("running_mean", "running_var")


def _batch_steps(call: Call) -> Steps:
    """Return normalisation by the mean and the variance of the batch; nothing where it is by running ones."""
    call, of_batch = _by_batch(call)
    if not of_batch:
        return ()
    places, sequence = _places(call), OperatorSequence()
    over = Literal((0, *range(2, len(places) + 2))), Literal(True)
    centred = sequence.then("sub", 0, sequence.then("mean", 0, *over))
    variance = sequence.then("mean", sequence.then("mul", centred, centred), *over)
    root = sequence.then("rsqrt", sequence.then("add", variance, Literal(call.attributes.get("eps", 1e-5))))
    made = sequence.then("mul", centred, root)
    for op, operand in zip(("mul", "add"), range(1, len(call.inputs)), strict=False):
        wide: int | Made = operand
        for _ in places:
            wide = sequence.then("unsqueeze", wide, Literal(-1))
        made = sequence.then(op, made, wide)
    return sequence.steps()


def _batch(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    epsilon, of_batch = bound.attributes
    x, *affine = operands
    wide, axes = [1, -1, *([1] * (x.ndim - 2))], (0, *range(2, x.ndim))
    margin = field.number(epsilon if isinstance(epsilon, int | float) else 0)
    if of_batch:
        count = field.number(x.size // x.shape[1])
        mean = field.divide(x.sum(axis=axes), count)
        centred = x - mean.reshape(wide)
        variance = field.divide((centred * centred).sum(axis=axes), count)
    else:
        mean, variance, *affine = affine
        centred = x - mean.reshape(wide)
    root = field.function("sqrt", variance + margin)
    return (_affine(field.divide(centred, root.reshape(wide)), affine),)


def _torch(name: str) -> tuple[str, ...]:
    return (f"torch.{name}", f"torch.nn.functional.{name}", f"nnscaler.runtime.function.{name}")


SPECS = (
    *having(
        (Trait.NONLINEAR, Trait.REAL, Trait.STATISTICS),
        OpSpec("group-norm", _torch("group_norm"), _bind_group, evaluate=_group, of_all=_groups_of_all),
    ),
    *having(
        (Trait.NONLINEAR, Trait.RESTRICTED, Trait.REAL, Trait.STATISTICS),
        OpSpec("batch-norm", ("torch.nn.functional.batch_norm",), _bind_batch, steps=_batch_steps, evaluate=_batch),
    ),
)
