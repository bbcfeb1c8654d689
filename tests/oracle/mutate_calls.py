"""The mistakes in what a call says: constants, keywords, function, operands, members, way and root of a collective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oracle.mutant import Mutant, with_operators
from tvlint.ir.operators import Backward, Collective, Communicate, Compute, Group, Literal, Operator, ReduceGradients
from tvlint.ir.plan import Plan

ALIKE = (
    ("mse_loss", "l1_loss", "smooth_l1_loss"),
    ("layer_norm", "rms_norm"),
    ("maximum", "minimum", "add", "mul", "sub", "div"),
    ("sum", "mean", "amax", "logsumexp", "var"),
    ("cross_entropy", "nll_loss"),
    ("softmax", "log_softmax"),
    ("tanh", "gelu", "silu", "relu", "exp"),
    ("cumsum", "flip"),
    ("where", "masked_fill"),
)
"""Functions that are taken for each other."""

KEYWORDS: dict[str, tuple[Any, ...]] = {
    "eps": (0.3,),
    "label_smoothing": (0.1,),
    "ignore_index": (1, -1),
    "keepdim": (True,),
    "dim": (0, 1),
    "training": (True,),
    "groups": (2,),
    "stride": (2,),
    "padding": (1,),
    "dilation": (2,),
    "alpha": (2,),
    "rounding_mode": ("floor",),
    "approximate": ("tanh",),
    "reduction": ("sum", "none"),
    "beta": (0.5,),
    "normalized_shape": ((2,), (8, 4)),
    "inplace": (True,),
    "dtype": ("i64",),
    "output_size": (4,),
    "unbiased": (False,),
}
"""Keywords that are added to a call, and what they are given as."""

ROOTED = (Collective.BROADCAST, Collective.REDUCE, Collective.SCATTER, Collective.GATHER)


def of_calls(plan: Plan) -> Iterator[Mutant]:
    """Every operator with another call: in the forward operator, in its gradient, or in both alike."""
    for segment in plan.segments.values():
        for at, own in enumerate(segment.operators):
            where = f"{segment.name}/{at}"
            for kind, other in _changed(plan, own):
                yield Mutant(kind, where, with_operators(plan, segment, _put(segment.operators, at, other)))
            if isinstance(own, Compute):
                for kind, call in calls(own):
                    both = [_replaced(each, own, call) for each in segment.operators]
                    yield Mutant(f"{kind}, backward too", where, with_operators(plan, segment, both))


def _put(operators: tuple[Operator, ...], at: int, other: Operator) -> list[Operator]:
    return [*operators[:at], other, *operators[at + 1 :]]


def _replaced(each: Operator, old: Compute, new: Compute) -> Operator:
    if each is old:
        return new
    return replace(each, forward=new) if isinstance(each, Backward) and each.forward == old else each


def _changed(plan: Plan, own: Operator) -> Iterator[tuple[str, Operator]]:
    if isinstance(own, Compute):
        yield from calls(own)
    elif isinstance(own, Backward):
        yield from ((f"{kind}, backward only", replace(own, forward=call)) for kind, call in calls(own.forward))
    elif isinstance(own, Communicate | ReduceGradients):
        axes = tuple(axis.name for axis in plan.mesh.axes)
        for group in (*(Group(axes=(axis,)) for axis in axes), Group(axes=axes), Group(ranks=(0,)), Group(ranks=(0, 1))):
            if group != own.group:
                yield f"group {group.axes or group.ranks}", replace(own, group=group)
        for way in ("sum", "avg", "max", "min"):
            if way != (own.reduce or "sum"):
                yield f"reduce {way}", replace(own, reduce=way)
    if isinstance(own, Communicate):
        yield from _ways(own)


def _ways(own: Communicate) -> Iterator[tuple[str, Operator]]:
    for dim in (0, 1, -1):
        if own.dim not in (None, dim):
            yield f"dim {dim}", replace(own, dim=dim)
    for kind in Collective:
        if kind is own.kind:
            continue
        concat = 1 if kind is Collective.ALL_TO_ALL else None
        dim = 0 if own.dim is None else own.dim
        for root in (0, 1) if kind in ROOTED else (None,):
            yield f"kind {kind.value} {root}", replace(own, kind=kind, root=root, dim=dim, concat_dim=concat)


def calls(own: Compute) -> Iterator[tuple[str, Compute]]:
    """The call with one thing changed."""
    for at, operand in enumerate(own.inputs):
        before, after = own.inputs[:at], own.inputs[at + 1 :]
        if isinstance(operand, Literal):
            yield "constant left out", replace(own, inputs=(*before, *after))
            for value in _others(operand.value):
                yield f"constant {value}", replace(own, inputs=(*before, Literal(value), *after))
        if after:
            yield "operands swapped", replace(own, inputs=(*before, after[0], operand, *after[1:]))
    for key, old in own.attributes.items():
        yield f"without {key}", replace(own, attributes={k: v for k, v in own.attributes.items() if k != key})
        for value in _others(old):
            yield f"{key}={value}", replace(own, attributes={**own.attributes, key: value})
    for key, values in KEYWORDS.items():
        if key not in own.attributes:
            yield from ((f"{key}={value}", replace(own, attributes={**own.attributes, key: value})) for value in values)
    name = own.op.rsplit(".", 1)[-1]
    for functions in ALIKE:
        if name in functions:
            yield from ((other, replace(own, op=other)) for other in functions if other != name)


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value - 1, value * 2, -value]
    if isinstance(value, tuple):
        return [(*value[:i], other, *value[i + 1 :]) for i, one in enumerate(value) for other in _others(one)[:2]]
    return [other for other in ("sum", "mean", "none") if other != value] if isinstance(value, str) else [1]
