"""Products: linear, matmul, embedding, einsum."""

from __future__ import annotations

from dataclasses import replace

from tvlint.ir.plan import Literal
from tvlint.ops.spec import ONE, PREVIOUS, Bound, Call, OpSpec, Steps, UnsupportedError, stars


def _linear(call: Call) -> Bound:
    call.reject_unknown("bias")
    if len(call.inputs) == 3 and call.inputs[2] == Literal(None):
        call = replace(call, inputs=call.inputs[:2])
    operands, weight = call.shape(0), call.shape(1)
    if not operands or len(weight) != 2 or operands[-1] != weight[1]:
        raise UnsupportedError(f"`linear` of shapes {operands} and {weight}")
    rows = stars(len(operands) - 1)
    names: tuple[tuple[str, ...], ...] = ((*rows, "k"), ("n", "k"))
    if len(call.inputs) == 2:
        return Bound(names, ((*rows, "n"),), frozenset({"k"}), linear=(frozenset({0}), frozenset({1})))
    if len(call.inputs) > 3 or call.shape(2) != weight[:1]:
        raise UnsupportedError(f"`linear` of {len(call.inputs)} operands")
    return Bound((*names, ("n",)), ((*rows, "n"),), frozenset({"k"}))


def _biased(call: Call) -> Steps:
    biased = len(call.inputs) == 3 and call.inputs[2] != Literal(None)
    return (("linear", (0, 1)), ("add", (PREVIOUS, 2))) if biased else ()


def _matmul(call: Call) -> Bound:
    call.reject_unknown()
    left, right = call.shape(0), call.shape(1)
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise UnsupportedError(f"`matmul` of shapes {left} and {right}")
    rank = max(len(left), len(right)) - 2
    batch = stars(rank)

    def batch_names(shape: tuple[int, ...], other: tuple[int, ...]) -> tuple[str, ...]:
        own = len(shape) - 2
        names = []
        for position in range(own):
            index = rank - own + position
            theirs = index - (rank - (len(other) - 2))
            size = other[theirs] if theirs >= 0 else 1
            names.append(ONE if shape[position] == 1 and size != 1 else batch[index])
        return tuple(names)

    return Bound(
        ((*batch_names(left, right), "m", "k"), (*batch_names(right, left), "k", "n")),
        ((*batch, "m", "n"),),
        frozenset({"k"}),
        linear=(frozenset({0}), frozenset({1})),
    )


def _embedding(call: Call) -> Bound:
    call.reject_unknown("padding_idx", "start", "stop", "scale_grad_by_freq", "sparse", "max_norm", "norm_type")
    if call.attributes.get("max_norm") is not None or call.attributes.get("scale_grad_by_freq"):
        raise UnsupportedError("`embedding` with `max_norm` or `scale_grad_by_freq`")
    rows = stars(len(call.shape(0)))
    weight = call.shape(1)
    if len(weight) != 2:
        raise UnsupportedError(f"`embedding` with a weight of shape {weight}")
    start, stop = call.attributes.get("start"), call.attributes.get("stop")
    ranges = {"n": (start, stop)} if isinstance(start, int) and isinstance(stop, int) else {}
    return Bound(
        (rows, ("n", "e")),
        ((*rows, "e"),),
        frozenset({"n"}),
        linear=(frozenset({1}),),
        attributes=(call.attributes.get("padding_idx"),),
        zero_gradient=frozenset({0}),
        ranges=ranges,
    )


def _einsum(call: Call) -> Bound:
    call.reject_unknown("equation")
    equation = call.attributes.get("equation")
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        raise UnsupportedError("`einsum` without an explicit equation")
    left, right = equation.replace(" ", "").split("->")
    operands = tuple(tuple(term) for term in left.split(","))
    if len(operands) != len(call.inputs) or any(len(set(term)) != len(term) for term in operands):
        raise UnsupportedError(f"`einsum` equation `{equation}`")
    output = tuple(right)
    every = {name for term in operands for name in term}
    if not set(output) <= every or len(set(output)) != len(output):
        raise UnsupportedError(f"`einsum` equation `{equation}`")
    return Bound(
        operands, (output,), frozenset(every - set(output)), linear=tuple(frozenset({i}) for i in range(len(operands)))
    )


SPECS = (
    OpSpec("linear", ("torch.nn.functional.linear",), _linear, steps=_biased),
    OpSpec("matmul", ("torch.matmul", "torch.Tensor.matmul", "torch.bmm", "torch.mm"), _matmul),
    OpSpec("embedding", ("nnscaler.runtime.function.embedding", "torch.nn.functional.embedding"), _embedding),
    OpSpec("einsum", ("torch.einsum", "nnscaler.runtime.function.einsum"), _einsum),
)
