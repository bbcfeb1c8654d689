"""Codes of several ranks that are read with the scale of one: each rank chose the scale by its own greatest magnitude."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.gradients.precision import is_peak, is_quantisation
from tvlint.ir.once import first_of_each
from tvlint.ir.operators import Collective, Communicate, Compute
from tvlint.ir.plan import Plan, Program

_JOINS = (Collective.ALL_GATHER, Collective.GATHER, Collective.ALL_TO_ALL)
_REDUCES = (Collective.ALL_REDUCE, Collective.REDUCE)

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Foreign:
    """At `where` `codes`, which came from other ranks at `joined`, are read with `scale`, which is that of the own rank."""

    codes: str
    scale: str
    where: Where
    joined: Where
    ranks: tuple[int, ...]


def foreign_scales(plan: Plan) -> Iterator[Foreign]:
    """Operators that take codes of several ranks together with the own rank's scale, once each."""
    computes = plan.operators_of(Compute)
    if not any(is_quantisation(operator) for operator in computes):
        return
    found = (each for program in plan.programs for each in _in_program(plan, program))
    yield from first_of_each(found, lambda each: each.where)


def _in_program(plan: Plan, program: Program) -> Iterator[Foreign]:
    scales: dict[str, frozenset[str]] = {}
    """Numbers that follow from the greatest magnitudes, on this rank, of those tensors."""
    coded: dict[str, str] = {}
    joined: dict[str, tuple[str, Where]] = {}
    for name, index, operator in plan.run_by(program):
        where = (name, index)
        if isinstance(operator, Communicate):
            for source, output in zip(operator.inputs, operator.outputs, strict=False):
                if operator.kind in _JOINS and source in coded:
                    joined[output] = (coded[source], where)
                elif operator.kind in _REDUCES:
                    scales.pop(output, None)
            continue
        if not isinstance(operator, Compute):
            continue
        names = operator.tensor_operands
        for codes in names:
            if codes in joined and joined[codes][0] in names:
                scale, at = joined[codes]
                yield Foreign(codes, scale, where, at, program.ranks)
        if is_quantisation(operator) and len(names) > 1:
            if names[0] in scales.get(names[1], ()):
                coded.update(dict.fromkeys(operator.outputs, names[1]))
        elif is_peak(operator):
            scales.update(dict.fromkeys(writes(operator), frozenset(names)))
        elif names and all(name in scales for name in names):
            scales.update(dict.fromkeys(writes(operator), frozenset().union(*(scales[name] for name in names))))
