"""Collectives that take the greatest or least of the gradients of ranks and go on with it as a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import reads, writes
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.analyses.gradients.optimizer_updates import is_step
from tvlint.ir.operators import SUMS, Backward, Communicate, Compute, Operator, ReduceGradients
from tvlint.ir.plan import Plan
from tvlint.ir.reductions import EXTREMES
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait

_MOVES = (Trait.APART, Trait.CONVERSION, Trait.JOIN, Trait.RANGES, Trait.TRANSPOSE, Trait.VIEW)
_LINEAR = (*_MOVES, Trait.SCALING, Trait.SUM)


@dataclass(frozen=True, slots=True)
class Extreme:
    """At (`segment`, `index`) ranks take the `reduce` of their gradients `name`, and go on with it."""

    name: str
    reduce: str
    segment: str
    index: int


def extremes_of_gradients(plan: Plan) -> Iterator[Extreme]:
    """Yield such collectives; those of magnitudes, as for a norm or a scale, give no gradient.

    Of reducers in generated code the reader of that code says it.
    """
    run = dict.fromkeys(step.segment for step in plan.steps() if step.segment in plan.segments)
    operators = [(name, index, each) for name in run for index, each in enumerate(plan.segments[name].operators)]
    is_read = plan.format == "nnscaler-gencode"
    found = [at for at in operators if _takes_extreme(at[2]) and not (is_read and isinstance(at[2], ReduceGradients))]
    every = [operator for _, _, operator in operators] if found else []
    gradients = _with_what_follows(every, {name for each in every if isinstance(each, Backward) for name in writes(each)})
    owners = weight_gradients(plan) if found else {}
    wanted = {name for each in every if isinstance(each, Backward) for name in reads(each)} | owners.keys()
    wanted |= {name for each in every if isinstance(each, Compute) and is_step(each) for name in reads(each)}
    for segment, index, operator in found:
        if isinstance(operator, ReduceGradients):
            yield Extreme(plan.tensors[operator.weights[0]].gradient or operator.weights[0], operator.reduce, segment, index)
        elif isinstance(operator, Communicate):
            given = [name for name in reads(operator) if name in gradients]
            made = _with_what_follows(every, set(writes(operator)), _LINEAR if given else _MOVES)
            if not made.isdisjoint(wanted if given else owners):
                yield Extreme((given or [*reads(operator)])[0], operator.reduce, segment, index)


def _takes_extreme(operator: Operator) -> bool:
    if isinstance(operator, ReduceGradients):
        return operator.reduce in EXTREMES and bool(operator.weights)
    return isinstance(operator, Communicate) and operator.kind in SUMS and operator.reduce in EXTREMES


def _with_what_follows(operators: list[Operator], names: set[str], traits: tuple[Trait, ...] = _LINEAR) -> set[str]:
    """Return the names and what is made of them by collectives and by functions with one of the traits."""
    found = set(names)
    for operator in operators:
        linear = isinstance(operator, Communicate) or (isinstance(operator, Compute) and has_trait(operator.op, *traits))
        if linear and not found.isdisjoint(reads(operator)):
            found.update(writes(operator))
    return found
