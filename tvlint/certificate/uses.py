"""Uses of annotated operators: what they read, and in what they are linear, forwards and backwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvlint.certificate.form import Relation
from tvlint.certificate.tables import Rejected
from tvlint.ops.spec import ONE, Bound, Family, Names


@dataclass(frozen=True, slots=True)
class Use:
    """One use of an operator. `linear` are sets of positions among `operands`; `shapes` are operands of which only the shape
    counts, and which stand behind all others."""

    bound: Bound
    head: tuple[Any, ...]
    operands: tuple[tuple[Names, Relation], ...]
    shapes: tuple[tuple[Names, Relation], ...]
    result: Names
    summed: frozenset[str]
    whole: frozenset[str]
    linear: tuple[frozenset[int], ...]
    commutative: bool
    splits: Mapping[str, str]
    """Names of `whole` that may be split, and whether the results then lie side by side (`maps`) or are a fold of that kind."""
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a forward operator keeps for its gradient; operators in sequence keep that of each, with its operands."""

    op: str
    bound: Bound
    family: Family
    inputs: tuple[Relation, ...]
    outputs: tuple[Relation, ...]
    steps: Steps = ()


Steps: TypeAlias = "tuple[tuple[Kept, tuple[int, ...]], ...]"
"""Each operator with its operands: a place among those of the sequence, or, below 0, counted back, an operator before."""


def forward_use(op: str, bound: Bound, output: int, values: Sequence[Relation], sizes: Mapping[str, int]) -> Use:
    """The use that makes output `output`."""
    reach = sorted(bound.row_wise.get(output, range(len(values))))
    real = [i for i in reach if i not in bound.shape_only]
    return Use(
        bound,
        head=(op, output, bound.attributes),
        operands=tuple((bound.operands[i], values[i]) for i in real),
        shapes=tuple((bound.operands[i], values[i]) for i in reach if i in bound.shape_only),
        result=bound.outputs[output],
        summed=bound.reduced,
        whole=bound.whole,
        linear=tuple(frozenset(real.index(i) for i in group if i in real) for group in bound.linear if group & set(real)),
        commutative=bound.commutative and len(real) == 2,
        splits=bound.splits,
        sizes=sizes,
    )


def gradient_use(kept: Kept, operand: int, given: Mapping[int, Relation], shared: frozenset[str] = frozenset()) -> Use | None:
    """The use that makes the gradient of operand `operand` from those of the outputs; None when none of them reaches it.

    It is linear in the gradients together. Where the operator is linear in the operand it needs the operands outside the
    operand's group, otherwise all; of a product, it is linear in each of the others too. A name that is summed and that only
    some of the gradients have must be whole: what the others add would be added once for each part. `shared` are names that
    the operator needs whole and its gradient does not, because of what the gradients are.
    """
    op, bound, values = kept.op, kept.bound, kept.inputs
    everything = frozenset(range(len(values)))
    reach = {output: bound.row_wise.get(output, everything) for output in sorted(given)}
    outputs = [output for output, own in reach.items() if operand in own and operand not in bound.zero_gradient]
    if not outputs:
        return None
    group = next((own for own in bound.linear if operand in own), frozenset[int]())
    union = sorted(frozenset[int]().union(*(reach[output] for output in outputs)))
    needs = [i for i in union if i not in group and i not in bound.shape_only]
    operands = [(bound.outputs[output], given[output]) for output in outputs]
    operands += [(bound.operands[i], values[i]) for i in needs]
    shape = (bound.operands[operand], values[operand])
    product = bool(group) and all(len(own) == 1 for own in bound.linear)
    singles = (frozenset({len(outputs) + k}) for k, i in enumerate(needs) if product and frozenset({i}) in bound.linear)
    names = {name for own, _ in (*operands, shape) for name in own} - {ONE}
    had = [frozenset(bound.outputs[output]) for output in outputs]
    uneven = frozenset[str]().union(*had) - frozenset.intersection(*had) - frozenset(shape[0]) - {ONE}
    exchanged = bound.commutative and bool(group)
    if exchanged and len(values) != 2:
        raise Rejected(f"the gradient of `{op}` of {len(values)} operands is not known to the checker")
    return Use(
        bound,
        head=(f"{op} gradient", () if exchanged else (operand, tuple(outputs)), bound.attributes),
        operands=tuple(operands),
        shapes=(shape,),
        result=bound.operands[operand],
        summed=frozenset(names - set(bound.operands[operand])),
        whole=bound.whole | uneven,
        linear=(frozenset(range(len(outputs))), *singles),
        commutative=False,
        splits={name: "maps" for name, kind in bound.splits.items() if kind == "maps" or name in shared},
    )
