"""Handles by which several communications are under way at once, so that it is open what a wait for one completes."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.def_use import handle_of
from tvlint.analyses.relations.defect import Defect, at
from tvlint.ir.operators import Operator, Wait
from tvlint.ir.plan import Plan


def reused_handles(plan: Plan) -> Iterator[Defect]:
    """Communication that takes a handle which another run has under way for the same micro-batch."""
    talking: dict[str, list[Operator]] = {}
    for name, segment in plan.segments.items():
        found = [operator for operator in segment.operators if isinstance(operator, Wait) or handle_of(operator)]
        if found:
            talking[name] = found
    for program in plan.programs if talking else ():
        started: dict[tuple[str, int], int] = {}
        reported: set[str] = set()
        for number, step in enumerate(program.steps):
            for each_operator in talking.get(step.segment, ()):
                if isinstance(each_operator, Wait):
                    key = (each_operator.handle, step.micro_batch)
                    oldest = next((other for other in started if other[0] == each_operator.handle), key)
                    started.pop(key if key in started else oldest, None)
                    continue
                handle = handle_of(each_operator)
                if started.setdefault((handle, step.micro_batch), number) != number and handle not in reported:
                    reported.add(handle)
                    text = f"`{handle}` on {{ranks}} is in flight already: a wait for it may complete either communication"
                    for rank in program.ranks:
                        yield at(each_operator, step.segment, Defect("reused-handle", False, text, rank))
