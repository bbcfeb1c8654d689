"""Losses over classes: cross-entropy, whole and in the steps in which it is written out where ranks hold some of the classes.

`cross_entropy` is the sum or mean of `cross-entropy-rows`, one loss for every row: the log-sum-exp of its scores minus the
score of its target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from tvlint.ir.operators import Literal, Value
from tvlint.ops.families.reductions import mean_of_rows, without_absent
from tvlint.ops.families.slicing import dimension
from tvlint.ops.field import Array, Field, Rows, peak
from tvlint.ops.formulas import by_formula, constant, evaluated, two
from tvlint.ops.named_arrays import as_array
from tvlint.ops.operator_sequence import OperatorSequence
from tvlint.ops.spec import ONE, Bound, Call, MisfitError, OpSpec, Steps, Trait, UnsupportedError, having
from tvlint.ops.spelling import in_functional

_NEVER = -100
"""The target that the losses ignore by default."""

_ATTRIBUTES = ("weight", "size_average", "ignore_index", "reduce", "reduction")


def _loss(*more: str) -> Callable[[Call], Bound]:
    """A mean divides by the tokens that are not ignored: by all of them where targets are classes, which it takes on trust."""

    def bind(call: Call) -> Bound:
        call = without_absent(call)
        call.reject_unknown(*_ATTRIBUTES, *more)
        weighted = len(call.inputs) == 3
        rows = _of_rows(replace(call, inputs=call.inputs[:2]) if weighted else call)
        if any(call.attributes.get(name) is not None for name in ("weight", "size_average", "reduce")):
            raise UnsupportedError(f"`{call.op}` with `weight`, `size_average` or `reduce` as an attribute")
        if weighted and (call.shape(2) != call.shape(0)[1:] or call.attributes.get("label_smoothing", 0.0) != 0):
            raise UnsupportedError(f"`{call.op}` of shape {call.shape(0)} with weights of shape {call.shape(2)}")
        ignored, reduction = call.attributes.get("ignore_index", _NEVER), call.attributes.get("reduction", "mean")
        if reduction not in ("sum", "none", "mean") or isinstance(ignored, bool) or not isinstance(ignored, int):
            raise UnsupportedError(f"`{call.op}` with `reduction` {reduction} and `ignore_index` {ignored}")
        smoothing = call.attributes.get("label_smoothing", 0.0)
        if not isinstance(smoothing, int | float) or not 0 <= smoothing <= 1:
            raise UnsupportedError(f"`{call.op}` with `label_smoothing` {smoothing}")
        tokens = frozenset(rows.outputs[0])
        scalar = (ONE,) if call.outputs and call.outputs[0] == (1,) else ()
        return Bound(
            (*rows.operands, *((("c",),) if weighted else ())),
            (rows.outputs[0] if reduction == "none" else scalar,),
            reduced=tokens if reduction == "sum" else frozenset(),
            averaged=tokens if reduction == "mean" else frozenset(),
            whole=rows.whole,
            linear=() if more else (frozenset({0}),),
            attributes=(ignored, *(call.attributes.get(name, 0.0) for name in more)),
            zero_gradient=rows.zero_gradient | (frozenset({2}) if weighted else frozenset()),
            indices=rows.indices,
            no_index=ignored,
            assumption=f"no target of a `{call.op.rsplit('.', 1)[-1]}` with a mean is {ignored}, which it would not count"
            if reduction == "mean" and ignored < 0
            else "",
        )

    return bind


def _of_rows(call: Call, classes: int = 1) -> Bound:
    """One loss for every row of scores, each with its target; the dimension `classes` must be whole."""
    call.expect(2)
    scores, target = call.shape(0), call.shape(1)
    rank = len(scores)
    if rank < 2 or len(target) != rank - 1:
        raise UnsupportedError(f"`{call.op}` of shapes {scores} and {target}")
    rows = tuple(f"t{dim}" for dim in range(rank - 1))
    at = classes % rank
    if (*scores[:at], *scores[at + 1 :]) != target:
        raise MisfitError(f"`{call.op}` of shapes {scores} and {target}", f"{scores[0]} rows have to have as many targets")
    operands = ((*rows[:at], "c", *rows[at:]), rows)
    return Bound(operands, (rows,), whole=frozenset({"c"}), zero_gradient=frozenset({1}), indices={1: "c"})


def _rows(call: Call) -> Bound:
    """Return the loss of every row; with `smoothing`, all classes together have that share of it, in equal parts."""
    call = call.with_arguments("smoothing")
    call.reject_unknown("smoothing")
    return replace(_of_rows(call, -1), attributes=tuple(call.attributes.values()))


def _linear_rows(call: Call) -> Bound:
    """As `masked_gather` of everything, with the other sign."""
    call.reject_unknown()
    return replace(_of_rows(call, -1), linear=(frozenset({0}),))


def _in_rows(rows: str) -> Callable[[Call], Steps]:
    """Return the loss of every row, what it counts, and their sum or mean."""

    def steps(call: Call) -> Steps:
        call = without_absent(call)
        ignored, smoothing = call.attributes.get("ignore_index", _NEVER), call.attributes.get("label_smoothing", 0.0)
        reduction, sequence = str(call.attributes.get("reduction", "mean")), OperatorSequence()
        counts_all = reduction == "mean" and isinstance(ignored, int) and ignored < 0
        rank = len(call.shape(0))
        last = 0 if rank == 2 else sequence.then("permute", 0, Literal((0, *range(2, rank), 1)))
        made = sequence.then(rows, last, 1, *((Literal(smoothing),) if smoothing else ()))
        counts = [sequence.then("index_select", 2, Literal(0), 1)] if len(call.inputs) == 3 else []
        if not counts_all and ignored != _NEVER:
            counts.append(sequence.then("ne", 1, Literal(ignored)))
        for count in counts:
            made = sequence.then("mul", made, count)
        if reduction == "mean" and counts:
            count = counts[0] if len(counts) == 1 else sequence.then("mul", *counts)
            made = sequence.then("div", sequence.then("sum", made), sequence.then("sum", count))
            if call.outputs[:1] == ((1,),):
                sequence.then("unsqueeze", made, Literal(0))
        elif reduction != "none":
            sequence.then(reduction, made)
        return sequence.steps()

    return steps


def _masked_gather(call: Call) -> Bound:
    """Return the score of every row's target where it is one of the columns `start:stop` that are held, and zero elsewhere."""
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
    below: Array = scores - peak(scores, -1, field)
    return below - field.function("log", field.function("exp", below).sum(axis=-1, keepdims=True))


def _smoothed(scores: Array, target: Array, smoothing: Value, field: Field) -> Array:
    if isinstance(smoothing, bool) or not isinstance(smoothing, int | float):
        raise UnsupportedError(f"`label_smoothing` {smoothing}")
    chance = _log_chances(scores, field)
    chosen = _picked(chance, target, 0, field)
    if smoothing == 0:
        return as_array(-chosen)
    shared = field.number(smoothing / chance.shape[-1]) * chance.sum(axis=-1)
    return as_array(field.number(smoothing - 1) * chosen - shared)


def _entropy(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    """The log-sum-exp of the scores, less the score of the target; all scores have a share of that where it is smoothed."""
    scores, target = two(operands, (), field)
    share = constant(attributes[0]) if attributes else 0
    below = scores - rows.peak(scores)
    counted = field.number(1 - share) * rows.picked(below, target)
    if share:
        counted = counted + field.number(share) * mean_of_rows(field, rows, below)
    return field.function("log", rows.total(field.function("exp", below))) - counted


def _entropies(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    (losses,) = evaluated(_entropy)(bound, operands, field)
    return (field.where(field.equal(operands[1], _NEVER), field.number(0), losses),)


def _negative_pick(field: Field, rows: Rows, operands: Sequence[Any], attributes: tuple[Value, ...]) -> Any:
    return -rows.picked(*two(operands, (), field))


def _cross_entropy(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return _reduced(bound, _smoothed(_by_rows(operands[0]), operands[1], bound.attributes[1], field), operands, field)


def _likelihood(bound: Bound, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    return _reduced(bound, -_picked(_by_rows(operands[0]), operands[1], 0, field), operands, field)


def _by_rows(scores: Array) -> Array:
    """Return the scores with the classes, their second dimension, as the last."""
    import numpy as np

    return np.moveaxis(scores, 1, -1)


def _reduced(bound: Bound, rows: Array, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return the losses of rows, or their sum or mean, in which a row counts nothing, or as much as the weight of its class."""
    import numpy as np

    target, ignored = operands[1], bound.attributes[0]
    if not isinstance(ignored, int):
        raise UnsupportedError(f"`ignore_index` {ignored}")
    weighted = len(operands) == 3
    weights = _picked(np.stack([operands[2]] * len(rows)), target, 0, field) if weighted else field.number(1)
    counts = field.where(field.equal(target, ignored), field.number(0), weights)
    counted = rows * counts if weighted else field.where(field.equal(target, ignored), field.number(0), rows)
    if bound.outputs[0] == bound.operands[1]:
        return (counted,)
    total = as_array(counted.sum())
    if bound.averaged:
        every = field.number(rows.size) if ignored < 0 and not weighted else as_array(counts.sum())
        total = as_array(field.divide(total, every))
    return (total.reshape([1] * len(bound.outputs[0])),)


SPECS = (
    *having(
        (Trait.CLASS_LOSS, Trait.NONLINEAR, Trait.WIDE),
        OpSpec(
            "cross-entropy",
            in_functional("cross_entropy"),
            _loss("label_smoothing"),
            steps=_in_rows("cross-entropy-rows"),
            evaluate=_cross_entropy,
        ),
    ),
    *having(
        (Trait.CLASS_LOSS, Trait.WIDE),
        OpSpec("nll-loss", in_functional("nll_loss"), _loss(), steps=_in_rows("nll-rows"), evaluate=_likelihood),
    ),
    *having(
        (Trait.CLASS_LOSS, Trait.NONLINEAR, Trait.PICK),
        OpSpec("cross-entropy-rows", (), _rows, formula=_entropy, evaluate=_entropies),
    ),
    by_formula(_negative_pick, OpSpec("nll-rows", (), _linear_rows, traits=frozenset({Trait.PICK}))),
    *having(
        (Trait.MASKED_LOOKUP, Trait.PICK),
        OpSpec("masked-gather", ("masked_gather",), _masked_gather, evaluate=_pick, range_attributes={"c": ("start", "stop")}),
    ),
)
