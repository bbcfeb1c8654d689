"""Gradients that a plan reads and nothing makes, in every way in which a framework may take them.

A framework stops there, or takes such a gradient for zero, or for the start of a gradient, which is one throughout. A plan
that gives other gradients than the reference whichever of them it is, is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tvlint.analyses.dataflow.def_use import writes
from tvlint.equivalence.verdict.pairing import Case
from tvlint.ir.operators import Backward, Compute
from tvlint.ir.plan import Plan, Program, Segment

_WAYS = ("torch.zeros_like", "torch.ones_like")
_MOST_NAMES = 3
"""So many gradients are taken in all ways together."""


def ways_to_run(case: Case) -> Iterator[Case]:
    """Yield the case with each choice of numbers for the gradients that nothing makes; nothing where these are many, or where
    other ranks make them and run the same segment.
    """
    plan = case.parallel
    found = [dict.fromkeys(_unmade(plan, program)) for program in plan.programs]
    names = sorted({name for unmade in found for name, _, _ in unmade})
    places = dict.fromkeys(place for unmade in found for place in unmade)
    runs = [{step.segment for step in program.steps} for program in plan.programs]
    is_shared = any(
        place[-1] in run and place not in unmade for place in places for run, unmade in zip(runs, found, strict=True)
    )
    if is_shared or not 0 < len(names) <= _MOST_NAMES:
        return
    for chosen in product(_WAYS, repeat=len(names)):
        op_of, segments = dict(zip(names, chosen, strict=True)), dict(plan.segments)
        for name, of, segment in places:
            segments[segment] = _filled(segments[segment], Compute(op_of[name], (of,), (name,)))
        yield replace(case, parallel=replace(plan, segments=segments))


def _unmade(plan: Plan, program: Program) -> Iterator[tuple[str, str, str]]:
    """Yield the gradients that nothing on the ranks makes, each with what it is taken for the gradient of and where that is."""
    segments = [plan.segments[name] for name in dict.fromkeys(step.segment for step in program.steps)]
    made = {name for segment in segments for operator in segment.operators for name in writes(operator)}
    made.update(name for step in program.steps for name in step.outputs or ())
    for segment in segments:
        for operator in segment.operators:
            if not isinstance(operator, Backward):
                continue
            for name, of in zip(operator.inputs, operator.forward.outputs, strict=False):
                if name and name not in made and of not in plan.outputs:
                    yield name, of, segment.name


def _filled(segment: Segment, fill: Compute) -> Segment:
    """Return the segment, which makes the gradient before it reads it."""
    (name,) = fill.outputs
    place = next(at for at, each in enumerate(segment.operators) if isinstance(each, Backward) and name in each.inputs)
    return replace(segment, operators=(*segment.operators[:place], fill, *segment.operators[place:]))
