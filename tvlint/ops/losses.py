"""Losses over classes: cross-entropy, whole and in the steps in which it is written out where ranks hold some of the classes.

`cross_entropy` is the sum or mean of `cross-entropy-rows`, one loss for every row: the log-sum-exp of its scores minus the
score of its target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from tvlint.ir.operators import Value
from tvlint.ops.field import Array, Field
from tvlint.ops.named_arrays import as_array
from tvlint.ops.reductions import without_absent
from tvlint.ops.slicing import dimension
from tvlint.ops.spec import ONE, PREVIOUS, Bound, Call, MisfitError, OpSpec, Steps, Trait, UnsupportedError, having

_NEVER = -100
"""The target that the losses ignore unless they are told another."""

_ATTRIBUTES = ("weight", "size_average", "ignore_index", "reduce", "reduction")


def _loss(*more: str) -> Callable[[Call], Bound]:
    """A mean divides by the tokens that are not ignored: by all of them where targets are classes, which it takes on trust."""

    def bind(call: Call) -> Bound:
        call = without_absent(call)
        call.reject_unknown(*_ATTRIBUTES, *more)
        rows = _of_rows(call)
        if any(call.attributes.get(name) is not None for name in ("weight", "size_average", "reduce")):
            raise UnsupportedError(f"`{call.op}` with `weight`, `size_average` or `reduce`")
        ignored, reduction = call.attributes.get("ignore_index", _NEVER), call.attributes.get("reduction", "mean")
        if reduction not in ("sum", "none", "mean") or (reduction == "mean" and not _is_no_class(ignored)):
            raise UnsupportedError(f"`{call.op}` with a mean over tokens that are not ignored")
        tokens = frozenset({"t"})
        scalar = (ONE,) if call.outputs and call.outputs[0] == (1,) else ()
        return Bound(
            rows.operands,
            (("t",) if reduction == "none" else scalar,),
            reduced=tokens if reduction == "sum" else frozenset(),
            averaged=tokens if reduction == "mean" else frozenset(),
            whole=rows.whole,
            linear=() if more else (frozenset({0}),),
            attributes=(ignored, *(call.attributes.get(name, 0.0) for name in more)),
            zero_gradient=rows.zero_gradient,
            indices=rows.indices,
            assumption=f"no target of a `{call.op.rsplit('.', 1)[-1]}` with a mean is {ignored}, which it would not count"
            if reduction == "mean"
            else "",
        )

    return bind


def _is_no_class(ignored: Value) -> bool:
    return isinstance(ignored, int) and ignored < 0


def _of_rows(call: Call) -> Bound:
    """One loss for every row of scores, each with its target; the classes must be whole."""
    call.expect(2)
    scores, target = call.shape(0), call.shape(1)
    if len(scores) != 2 or len(target) != 1:
        raise UnsupportedError(f"`{call.op}` of shapes {scores} and {target}")
    if scores[0] != target[0]:
        raise MisfitError(f"`{call.op}` of shapes {scores} and {target}", f"{scores[0]} rows have to have as many targets")
    return Bound((("t", "c"), ("t",)), (("t",),), whole=frozenset({"c"}), zero_gradient=frozenset({1}), indices={1: "c"})


def _rows(call: Call) -> Bound:
    call.reject_unknown()
    return _of_rows(call)


def _linear_rows(call: Call) -> Bound:
    """As `masked_gather` of everything, with the other sign."""
    return replace(_rows(call), linear=(frozenset({0}),))


def _in_rows(rows: str) -> Callable[[Call], Steps]:
    """Return the loss of every row, and their sum or mean; nothing where the call says more than that."""

    def steps(call: Call) -> Steps:
        reduction = call.attributes.get("reduction", "mean")
        if call.attributes.get("ignore_index", _NEVER) != _NEVER or call.attributes.get("label_smoothing", 0.0) != 0:
            return ()
        each = (rows, (0, 1))
        return (each,) if reduction == "none" else (each, (str(reduction), (PREVIOUS,)))

    return steps


def _masked_gather(call: Call) -> Bound:
    """The score of every row's target where it is one of the columns `start:stop` that are held, and zero elsewhere."""
    call.reject_unknown("dim", "start", "stop")
    call.expect(2)
    scores, target = call.shape(0), call.shape(1)
    start, stop = call.attributes.get("start"), call.attributes.get("stop")
    last = len(scores) - 1
    if len(target) != last or dimension(call, "dim", len(scores), last) != last:
        raise UnsupportedError(f"`{call.op}` of shapes {scores} and {target}")
    if not isinstance(start, int) or not isinstance(stop, int):
        raise UnsupportedError(f"`{call.op}` without `start` and `stop`")
    rows = tuple(f"t{place}" for place in range(last))
    return Bound(
        ((*rows, "c"), rows),
        (rows,),
        frozenset({"c"}),
        linear=(frozenset({0}),),
        zero_gradient=frozenset({1}),
        ranges={"c": (start, stop)},
        indices={1: "c"},
    )


def _picked(scores: Array, target: Array, first: int, field: Field) -> Array:
    zero = field.number(0)
    columns = range(scores.shape[-1])
    return reduce(
        lambda one, other: one + other,
        [field.where(field.equal(target, first + c), scores[..., c], zero) for c in columns],
    )


def _pick(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return (_picked(operands[0], operands[1], bound.ranges.get("c", (0, 0))[0], field),)


def _log_chances(scores: Array, field: Field) -> Array:
    return scores - field.function("log", field.function("exp", scores).sum(axis=-1, keepdims=True))


def _entropies(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    scores, target = operands
    each = -_picked(_log_chances(scores, field), target, 0, field)
    return (field.where(field.equal(target, _NEVER), field.number(0), each),)


def _picked_rows(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return (-_picked(operands[0], operands[1], 0, field),)


def _cross_entropy(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    scores, target = operands
    ignored, smoothing = bound.attributes
    if not isinstance(ignored, int) or not isinstance(smoothing, int | float):
        raise UnsupportedError(f"`ignore_index` {ignored} and `label_smoothing` {smoothing}")
    chance = _log_chances(scores, field)
    chosen = _picked(chance, target, 0, field)
    loss = field.number(smoothing - 1) * chosen - field.number(smoothing / chance.shape[1]) * chance.sum(axis=1)
    return _reduced(bound, field.where(field.equal(target, ignored), field.number(0), loss), field)


def _likelihood(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    (ignored,) = bound.attributes
    each = -_picked(operands[0], operands[1], 0, field)
    return _reduced(bound, field.where(field.equal(operands[1], ignored), field.number(0), each), field)


def _reduced(bound: Bound, counted: Array, field: Field) -> tuple[Array, ...]:
    if bound.outputs[0] == bound.operands[1]:
        return (counted,)
    total = as_array(counted.sum())
    result = field.divide(total, field.number(len(counted))) if bound.averaged else total
    return (as_array(result).reshape([1] * len(bound.outputs[0])),)


def _torch(name: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for module in ("torch", "torch.Tensor", "torch.nn.functional"))


SPECS = (
    *having(
        (Trait.CLASS_LOSS, Trait.NONLINEAR),
        OpSpec(
            "cross-entropy",
            _torch("cross_entropy"),
            _loss("label_smoothing"),
            steps=_in_rows("cross-entropy-rows"),
            evaluate=_cross_entropy,
        ),
    ),
    *having(
        (Trait.CLASS_LOSS,),
        OpSpec("nll-loss", _torch("nll_loss"), _loss(), steps=_in_rows("nll-rows"), evaluate=_likelihood),
    ),
    *having((Trait.CLASS_LOSS, Trait.NONLINEAR), OpSpec("cross-entropy-rows", (), _rows, evaluate=_entropies)),
    OpSpec("nll-rows", (), _linear_rows, evaluate=_picked_rows),
    *having(
        (Trait.MASKED_LOOKUP,),
        OpSpec("masked-gather", ("masked_gather",), _masked_gather, evaluate=_pick, range_attributes={"c": ("start", "stop")}),
    ),
)
