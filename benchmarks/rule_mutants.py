"""Which share of single mistakes in correct plans the rules find alone:
`python -m benchmarks.rule_mutants [--missed] [--on-numbers]`.

Every communication, wait and run of the correct scenarios is dropped, or changed in its group, dimension, tag or operation, and
one of two gradients that are added up is dropped. A mutant that no rule can tell from a correct plan (a dropped communication
whose result nothing needs, say) counts as missed.

With `--on-numbers` plans and mutants are run, and the last lines count apart what runs show to compute something else or not to
run at all (`wrong`), to compute the same (`same`), and to leave a sum or mean over what ranks return to the loop around it
(`of the loop`), and plans that are not run: a kernel without numbers, nothing that is returned.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.mutant_numbers import results_of, verdict_of
from tests.builders.plan_findings import findings_of_plan
from tests.checks.test_scenarios import SCENARIOS
from tvlint.findings import Severity
from tvlint.ir.operators import Collective, Communicate, Compute, Group, Operator, Receive, ReduceGradients, Send, Wait
from tvlint.ir.plan import Plan, Role, Segment
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.readers.plan_text import reader as plan_text


def mutants(plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    """Class, place and plan of every mutant."""
    for name, segment in plan.segments.items():
        for index, operator in enumerate(segment.operators):
            for kind, operators in _changes(plan, segment.operators, index, operator):
                changed = replace(segment, operators=operators)
                yield kind, f"{name}/{index}", _with(plan, changed)
    yield from _schedules(plan)


def _changes(
    plan: Plan, operators: tuple[Operator, ...], index: int, operator: Operator
) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    before, after = operators[:index], operators[index + 1 :]
    if isinstance(operator, Communicate) and operator.kind is not Collective.BARRIER and operator.inputs and operator.outputs:
        same = Compute("identity", operator.inputs[:1], operator.outputs[:1])
        waits = tuple(each for each in after if not (isinstance(each, Wait) and each.handle == operator.handle and each.handle))
        yield "dropped collective", (*before, same, *waits)
        for axis in plan.mesh.axes:
            if operator.group.axes and axis.name not in operator.group.axes and axis.size > 1:
                yield "other axis", (*before, replace(operator, group=Group((axis.name,))), *after)
        if operator.kind in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER):
            reduce = "sum" if operator.reduce == "max" else "max"
            yield "other operation", (*before, replace(operator, reduce=reduce), *after)
        given = plan.tensors.get(operator.inputs[0])
        if operator.kind is Collective.ALL_GATHER and operator.dim in (0, 1) and given is not None and len(given.shape) > 1:
            yield "other dimension", (*before, replace(operator, dim=1 - operator.dim), *after)
    if isinstance(operator, Compute) and len(operator.inputs) == 2 and has_trait(operator.op, Trait.SUM):
        added = [plan.tensors.get(name) for name in operator.inputs if isinstance(name, str)]
        for place in range(2) if [each is not None and each.role is Role.GRADIENT for each in added] == [True, True] else ():
            yield "dropped addend", (*before, Compute("identity", operator.inputs[place : place + 1], operator.outputs), *after)
    if isinstance(operator, Wait):
        yield "dropped wait", (*before, *after)
    if isinstance(operator, Send | Receive):
        yield "dropped message", (*before, *after)
        if operator.tag == 0:
            yield "other tag", (*before, replace(operator, tag=7), *after)
    if isinstance(operator, ReduceGradients):
        yield "dropped reducer", (*before, *after)


def _schedules(plan: Plan) -> Iterator[tuple[str, str, Plan]]:
    if not any(segment.pipeline_stage >= 0 for segment in plan.segments.values()):
        return
    for number, program in enumerate(plan.programs):
        for at in range(len(program.steps)):
            steps = (*program.steps[:at], *program.steps[at + 1 :])
            programs = list(plan.programs)
            programs[number] = replace(program, steps=steps)
            yield "dropped step", f"program {number}/{at}", replace(plan, programs=tuple(programs))


def _with(plan: Plan, segment: Segment) -> Plan:
    return replace(plan, segments={**plan.segments, segment.name: segment})


def main() -> None:
    """Prints one line a class: how many mutants and how many are found."""
    made, found, ran = Counter[str](), Counter[str](), Counter[tuple[str, bool]]()
    on_numbers = "--on-numbers" in sys.argv
    for scenario in SCENARIOS:
        plan = None if scenario.rules else plan_text.read("example.plan", scenario.text).plan
        base = results_of(plan) if plan is not None and on_numbers else None
        for kind, place, mutant in mutants(plan) if plan is not None else ():
            made[kind] += 1
            spoken = any(finding.severity is not Severity.NOTE for finding in findings_of_plan(mutant))
            found[kind] += spoken
            verdict = verdict_of(base, mutant) if on_numbers else ""
            ran[verdict, spoken] += 1
            if not spoken and "--missed" in sys.argv:
                print(
                    f"{kind:18} {verdict:12} {scenario.name}: {place}" if on_numbers else f"{kind:18} {scenario.name}: {place}"
                )
    for kind, count in sorted(made.items()):
        print(f"{kind:18} {found[kind]:5} of {count:5}  {found[kind] / count:6.1%}")
    total = sum(made.values())
    print(f"{'all':18} {sum(found.values()):5} of {total:5}  {sum(found.values()) / max(total, 1):6.1%}")
    for verdict in sorted({verdict for verdict, _ in ran}) if on_numbers else ():
        spoken, count = ran[verdict, True], ran[verdict, True] + ran[verdict, False]
        print(f"{verdict:18} {spoken:5} of {count:5}  {spoken / count:6.1%}")


if __name__ == "__main__":
    main()
