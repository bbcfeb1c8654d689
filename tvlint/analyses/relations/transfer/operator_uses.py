"""Operators in use, forwards and as vector-Jacobian products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvlint.analyses.relations.transfer.relation import Value
from tvlint.ops.spec import ONE, Bound, Names


@dataclass(frozen=True, slots=True)
class Use:
    """An operator in use: annotated operands with values, the annotated result, and what identifies the computation.

    `places` says where each operand comes from: `i` is operand `i` of the operator, `~i` the gradient of its output `i`.
    """

    head: tuple[Any, ...]
    operands: tuple[tuple[Names, Value], ...]
    places: tuple[int, ...]
    result: Names
    reduced: frozenset[str]
    averaged: frozenset[str]
    whole: frozenset[str]
    linear: tuple[frozenset[int], ...]
    commutative: bool = False
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    shape_only: frozenset[int] = frozenset()
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of names of the result that no operand has."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """Names of `whole` that may be split all the same, as in `Bound`."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Names of `whole` of which some parts may be right, as in `Bound`."""
    masked: tuple[str, str] | None = None


def forward_use(op: str, bound: Bound, output: int, values: Sequence[Value], sizes: Mapping[str, int]) -> Use:
    """Return the use of forward operator `op` that makes output `output`."""
    chosen = bound.row_wise.get(output, frozenset(range(len(values))))
    kept = sorted(chosen)
    renumber = {old: new for new, old in enumerate(kept)}
    linear = tuple(
        frozenset(renumber[i] for i in group if i in chosen) for group in bound.linear if any(i in chosen for i in group)
    )
    return Use(
        head=(op, output, bound.attributes),
        operands=tuple((bound.operands[i], values[i]) for i in kept),
        places=tuple(kept),
        result=bound.outputs[output],
        reduced=bound.reduced,
        averaged=bound.averaged,
        whole=bound.whole,
        linear=linear,
        commutative=bound.commutative and len(kept) >= 2,
        ranges=bound.ranges,
        shape_only=frozenset(renumber[i] for i in bound.shape_only if i in chosen),
        sizes=sizes,
        splits=bound.splits,
        runs=bound.runs,
        masked=bound.masked,
    )


def gradient_use(
    op: str,
    bound: Bound,
    operand: int,
    values: Sequence[Value],
    gradients: Mapping[int, Value],
    parts: frozenset[str] = frozenset(),
) -> Use | None:
    """Return the use that makes the gradient of tensor operand `operand`; None when no gradient that is given reaches it.

    `gradients` are the gradients of the outputs, by position. For an operator that is linear in the operand the gradient
    needs the operands outside its linear group; otherwise it needs all. A dimension that the result lacks is summed; one that
    some of the gradients lack must be whole, since parts of it would add theirs more often than once. `parts` are
    names that must be whole and need not be here, since the gradients are those of the merged results. Of a commutative
    operator the gradient of the second operand is that of the first, of the operands exchanged.
    """
    outputs = [
        output
        for output in sorted(gradients)
        if operand in bound.row_wise.get(output, frozenset(range(len(values)))) and operand not in bound.zero_gradient
    ]
    if not outputs:
        return None
    reach = frozenset().union(*(bound.row_wise.get(output, frozenset(range(len(values)))) for output in outputs))
    group = next((g for g in bound.linear if operand in g), frozenset())
    needs = [i for i in sorted(reach) if i not in group and i not in bound.shape_only]
    exchanged = bound.commutative and operand == 1 and needs[:2] == [0, 1]
    if exchanged:
        needs[:2] = 1, 0
    gradient_operands = [(bound.outputs[output], gradients[output]) for output in outputs]
    operands = [*gradient_operands, *((bound.operands[i], values[i]) for i in needs)]
    shape_only = frozenset({len(operands)})
    operands.append((bound.operands[operand], values[operand]))
    result = bound.operands[operand]
    present = {name for names, _ in operands for name in names}
    product = bool(group) and all(len(g) == 1 for g in bound.linear)
    linear: tuple[frozenset[int], ...] = (frozenset(range(len(outputs))),)
    if product:
        linear = (*linear, *(frozenset({len(outputs) + k}) for k, i in enumerate(needs) if frozenset({i}) in bound.linear))
    symmetric = bound.commutative and bool(group)
    shared = [set(bound.outputs[output]) for output in outputs]
    uneven = frozenset().union(*shared) - frozenset.intersection(*map(frozenset, shared)) - frozenset(result) - {ONE}
    return Use(
        head=(f"{op} gradient", () if symmetric else (0 if exchanged else operand, tuple(outputs)), bound.attributes),
        operands=tuple(operands),
        places=(*(~output for output in outputs), *needs, operand),
        result=result,
        reduced=frozenset(present - set(result) - {ONE}),
        averaged=bound.averaged,
        whole=bound.whole | uneven,
        linear=linear,
        shape_only=shape_only,
        ranges=bound.ranges,
        splits={name: "maps" for name, kind in bound.splits.items() if kind == "maps" or name in parts},
        runs=bound.runs,
        masked=bound.masked,
    )
