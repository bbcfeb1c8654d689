"""Proofs that the operator table is right: what an annotation claims, checked against what the operator computes.

A claim is two ways of computing the same. It is refuted by numbers on which they differ, and proved by Z3 when no operands
exist on which they do: at the shape of the call, for all operand values, whatever functions `exp`, `sqrt` and their like are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import reduce
from itertools import pairwise
from typing import Any

from tvlint.equivalence.solver.decide import CannotRunError, Decision, Draw, Refuted, decide
from tvlint.ir.operators import Literal
from tvlint.ops.field import Array, Field
from tvlint.ops.spec import Bound, Call, Names, OpSpec, UnsupportedError
from tvlint.ops.table import spec_of


class Kind(Enum):
    """The effect of splitting a dimension on the results."""

    MAPS = "maps"
    """The results on the parts, side by side, are the result."""
    SUMS = "sums"
    """The results on the parts add up to the result."""
    AVERAGES = "averages"
    """The results on the parts, each weighted by its share, add up to the result."""
    MAXIMA = "maxima"
    """The greatest of the results on the parts is the result."""
    MERGES = "merges"
    """The results on the parts and their log-sum-exps, merged by these, are the results."""
    WHOLE = "whole"
    """Nothing is claimed; the dimension must not be split."""


def claimed(bound: Bound, name: str) -> Kind:
    """Return what the annotation says of splitting `name`."""
    if name in bound.splits:
        return {"maps": Kind.MAPS, "max": Kind.MAXIMA, "merge": Kind.MERGES}[bound.splits[name]]
    if name in bound.whole:
        return Kind.WHOLE
    if name in bound.reduced:
        return Kind.SUMS
    return Kind.AVERAGES if name in bound.averaged else Kind.MAPS


def prove_annotation(spec: OpSpec, call: Call, name: str, parts: int, timeout: float) -> Decision:
    """Return whether splitting dimension `name` of the call into `parts` does what the annotation says; never for a `whole`
    one.
    """
    kind = claimed(spec.bind(call), name)
    if kind is Kind.WHOLE:
        return Refuted(f"`{name}` of `{spec.name}` must not be split")
    return prove_split(spec, call, name, kind, parts, timeout)


def prove_split(spec: OpSpec, call: Call, name: str, kind: Kind, parts: int, timeout: float) -> Decision:
    """Return whether a split of dimension `name` of the call into `parts` does what `kind` says, whatever is annotated."""

    def claim(draw: Draw, field: Field) -> list[tuple[Array, Array]]:
        bound = spec.bind(call).given_draws()
        operands = drawn_operands(bound, call, draw)
        whole = evaluate(spec, call, operands, field)
        cuts = _parts(spec, call, bound, name, parts, operands)
        try:
            results = [evaluate(spec, each_call, cut, field) for each_call, cut, _ in cuts]
        except (UnsupportedError, ValueError, IndexError) as error:
            raise CannotRunError(f"a part of `{name}` does not run: {error}") from error
        if any(len(result) != len(whole) for result in results):
            raise CannotRunError(f"a part of `{name}` has another number of results")
        if kind is Kind.MAPS and not any(name in names for names in bound.outputs):
            return [pair for result in results for pair in zip(whole, result, strict=True)]
        if kind is Kind.MERGES:
            return list(zip(whole, _merged(results, field), strict=True))
        shares = [share for _, _, share in cuts]
        return [
            (whole[i], _joined([result[i] for result in results], names, name, kind, shares, field))
            for i, names in enumerate(bound.outputs)
        ]

    return decide(claim, timeout)


def prove_linear(spec: OpSpec, call: Call, group: frozenset[int], timeout: float) -> Decision:
    """Return whether every output that depends on the operands of `group` is jointly linear in them while the others are
    fixed.
    """

    def claim(draw: Draw, field: Field) -> list[tuple[Array, Array]]:
        bound = spec.bind(call).given_draws()
        one = drawn_operands(bound, call, draw)
        other = [draw.numbers(f"y{i}", call.shapes[i]) if i in group else operand for i, operand in enumerate(one)]
        factor = draw.numbers("c", ())
        both = [a + b if i in group else a for i, (a, b) in enumerate(zip(one, other, strict=True))]
        scaled = [factor * a if i in group else a for i, a in enumerate(one)]
        reached = [i for i in range(len(bound.outputs)) if group & bound.row_wise.get(i, group)]
        results = ([evaluate(spec, call, x, field)[i] for i in reached] for x in (one, other, both, scaled))
        first, second, together, multiple = results
        sums = [(t, a + b) for t, a, b in zip(together, first, second, strict=True)]
        return [*sums, *((m, factor * a) for m, a in zip(multiple, first, strict=True))]

    return decide(claim, timeout)


def drawn_operands(bound: Bound, call: Call, draw: Draw, label: str = "x") -> list[Array]:
    """Return numbers, or indices, for each tensor operand of the call."""
    sizes = {
        name: size
        for names, shape in zip(bound.operands, call.shapes, strict=False)
        for name, size in zip(names, shape, strict=True)
    } | dict(bound.sizes)
    found = []
    for i, shape in enumerate(call.shapes):
        if i not in bound.indices:
            found.append(draw.numbers(f"{label}{i}", shape))
            continue
        low, high = bound.ranges.get(bound.indices[i], (0, sizes[bound.indices[i]]))
        found.append(draw.whole_numbers(f"{label}{i}", shape, low, high))
    if bound.draws is not None:
        found.append(draw.numbers(f"{label} drawn", tuple(sizes[name] for name in bound.draws.names)))
    return found


def evaluate(spec: OpSpec, call: Call, operands: Sequence[Array], field: Field) -> tuple[Array, ...]:
    """Return the results of the call. Raises UnsupportedError where the operator has no meaning."""
    if spec.evaluate is None:
        raise UnsupportedError(f"`{spec.name}` has no meaning, only an annotation")
    return spec.evaluate(spec.bind(call), operands, field)


def _parts(
    spec: OpSpec, call: Call, bound: Bound, name: str, parts: int, operands: Sequence[Array]
) -> list[tuple[Call, list[Array], tuple[int, int]]]:
    """For each part: the call that runs on it, its operands, and its size with that of the whole."""
    shapes = call.shapes
    size = next(
        s for names, shape in zip(bound.operands, shapes, strict=False) for n, s in zip(names, shape, strict=True) if n == name
    )
    edges = [size * i // parts for i in range(parts + 1)]
    found = []
    for low, high in pairwise(edges):
        cut = [_cut(operand, names, name, low, high) for operand, names in zip(operands, bound.operands, strict=False)]
        new = iter([operand.shape for operand in cut])
        attributes = dict(call.attributes)
        if name in bound.ranges and name in spec.range_attributes:
            offset = bound.ranges[name][0]
            attributes.update(zip(spec.range_attributes[name], (offset + low, offset + high), strict=True))
        if name in bound.counts:
            attributes[bound.counts[name]] = high - low
        inputs = tuple(operand if isinstance(operand, Literal) else next(new) for operand in call.inputs)
        outputs = call.outputs if call.outputs == ((1,),) else ()
        found.append((Call(call.op, inputs, attributes, outputs), cut, (high - low, size)))
    return found


def _cut(operand: Array, names: Names, name: str, low: int, high: int) -> Array:
    result: Array = operand[tuple(slice(low, high) if each_name == name else slice(None) for each_name in names)]
    return result


def _joined(
    results: Sequence[Array], names: Names, name: str, kind: Kind, shares: Sequence[tuple[int, int]], field: Field
) -> Array:
    import numpy as np

    if kind is Kind.MAPS:
        return np.concatenate(results, axis=names.index(name)) if name in names else results[0]
    if kind is Kind.MAXIMA:
        return reduce(lambda one, other: np.asarray(field.where(field.less(one, other), other, one)), results)
    weights = [field.divide(field.number(a), field.number(b)) if kind is Kind.AVERAGES else field.number(1) for a, b in shares]
    total: Any = field.number(0)
    for weight, result in zip(weights, results, strict=True):
        total = total + weight * result
    return np.asarray(total)


def _merged(results: Sequence[tuple[Array, ...]], field: Field) -> tuple[Array, ...]:
    """Results and log-sum-exps on the parts, merged one after the other."""
    spec = spec_of("merge_by_log_sum_exp")
    if spec is None or spec.evaluate is None or any(len(result) != 2 for result in results):
        raise CannotRunError("a part has no log-sum-exp")
    total = results[0]
    for result in results[1:]:
        operands = (*total, *result)
        call = Call("merge_by_log_sum_exp", tuple(operand.shape for operand in operands), {})
        total = spec.evaluate(spec.bind(call), operands, field)
    return total
