"""Check micro-batch symmetry: every rank does for each micro-batch what it does for the first, with its own values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import has, reads, writes
from tvlint.analyses.dataflow.step_scope import only_ends
from tvlint.analyses.gradients.accumulators import accumulators
from tvlint.analyses.relations.defect import Defect, source_of
from tvlint.equivalence.side_conditions.aliasing import Renames
from tvlint.equivalence.side_conditions.gradient_finality import Finals
from tvlint.equivalence.side_conditions.message_matching import UNMATCHED, mispaired
from tvlint.equivalence.side_conditions.overwritten_inputs import taken_anew
from tvlint.equivalence.side_conditions.read_before_write import Early
from tvlint.equivalence.side_conditions.run_order import Turns
from tvlint.equivalence.side_conditions.step_bindings import distinguished_inputs, mismatched_bindings
from tvlint.ir.operators import Backward, Compute, Send
from tvlint.ir.plan import Phase, Plan, Program, Role, Segment, Step


def check_micro_batches(plan: Plan, micro_batches: int) -> Iterator[Defect]:
    """Yield what keeps the micro-batches from being alike on some rank."""
    found = refuted = False
    totals = accumulators(plan)
    finals, inputs, turns = Finals(plan), distinguished_inputs(plan), Turns(plan)
    renames, early = Renames(plan), Early(plan)
    for program in plan.programs:
        bound = (*mismatched_bindings(plan, program, inputs, totals), *renames.defects(program), *early.defects(program))
        defects = (*_counts(plan, program, micro_batches, totals), *bound, *finals.defects(program, micro_batches))
        for defect in defects or turns.defects(program, micro_batches):
            found, refuted = True, refuted or defect.refutes
            yield from (_on(defect, rank) for rank in program.ranks)
    if micro_batches > 1:
        yield from _mixed(plan)
    yield from taken_anew(plan)
    if not found:
        yield from _returned(plan)
        yield from mispaired(plan)
    elif not refuted:
        yield from (defect for defect in mispaired(plan) if defect.name in UNMATCHED and defect.refutes)


def _on(defect: Defect, rank: int) -> Defect:
    return replace(defect, rank=rank)


_IN_OTHER_PARTS = (
    "the {} of some micro-batches runs in other parts than that of others on {{ranks}}, which is not followed: choose a"
    " schedule that computes all of them alike"
)


def _counts(plan: Plan, program: Program, micro_batches: int, totals: Mapping[str, str]) -> Iterator[Defect]:
    """Every segment runs as often for each micro-batch as for the first."""
    steps: defaultdict[str, list[Step]] = defaultdict(list)
    for step in program.steps:
        steps[step.segment].append(step)
    every = set(range(micro_batches))
    for name, places in steps.items():
        if len(places) == micro_batches and {step.micro_batch for step in places} == every:
            continue
        segment, batches = plan.segments[name], Counter(step.micro_batch for step in places)
        if _once(plan, segment) or (set(batches) == {-1} and (micro_batches == 1 or _is_of_the_step(segment, places))):
            continue
        what = f"{segment.phase.value} of `{name}`"
        if set(batches) == {-1}:
            text = (
                f"the {what} on {{ranks}} belongs to no micro-batch, and the plan runs {micro_batches}: run it for each, "
                "or keep it to reducers, all-reduces of accumulated gradients and updates"
            )
            yield Defect("outside-micro-batches", False, text, -1, name)
            continue
        lacking = [batch for batch in range(micro_batches) if batch not in batches]
        if lacking:
            numbers = ", ".join(map(str, lacking))
            text = f"the {what} on {{ranks}} never runs for micro-batch {numbers} of {micro_batches}"
            again = [step for at, step in enumerate(places) if step.micro_batch in {each.micro_batch for each in places[:at]}]
            needed = _needed(plan, segment) or (len(places) == micro_batches and _sends_needed(plan, segment))
            certain = needed and not _stands_in(plan, steps, name, lacking)
            if not certain and plan.format == "capture":
                place = next(filter(None, map(source_of, segment.operators)), None)
                kind = segment.phase.value
                yield Defect("missing-micro-batch", False, _IN_OTHER_PARTS.format(kind), -1, name, "", place, cause=kind)
                continue
            if not certain:
                text += ": write what all micro-batches do alike as one segment, and run it for each of them"
            nearest = min(again or places, key=lambda step: abs(step.micro_batch - lacking[0]))
            yield Defect("missing-micro-batch", certain, text, -1, name, source=nearest.source)
        elif len(set(batches.values())) > 1 or len(batches) != micro_batches:
            text = f"the {what} on {{ranks}} does not run as often for every micro-batch"
            again = [step for step in places if batches[step.micro_batch] == max(batches.values())]
            adds = any(name in totals for operator in segment.operators for name in writes(operator))
            yield Defect("repeated-micro-batch", adds, text, -1, name, source=again[-1].source)


def _is_of_the_step(segment: Segment, steps: Sequence[Step]) -> bool:
    """Return whether the segment runs once, on what all micro-batches add up to; `Renames` finds what it has of only one."""
    return segment.phase in (Phase.REDUCE, Phase.OPTIMIZER) and len(steps) == 1


def _needed(plan: Plan, segment: Segment) -> bool:
    """Return whether gradients go through the segment."""
    made = {name for operator in segment.operators for name in (operator.outputs if isinstance(operator, Compute) else ())}
    back = [*plan.operators_of(Backward)]
    return any(operator in segment.operators or made.intersection(operator.forward.outputs) for operator in back)


def _sends_needed(plan: Plan, segment: Segment) -> bool:
    """Return whether the segment sends on gradients, or what has one."""
    with_gradients = {tensor.gradient_of for tensor in plan.tensors.values()} | {
        tensor.name for tensor in plan.tensors.values() if tensor.role is Role.GRADIENT
    }
    read = {name for operator in segment.operators for name in reads(operator)}
    return has(segment.operators, {Send}) and not read.isdisjoint(with_gradients)


def _stands_in(plan: Plan, steps: Mapping[str, Sequence[Step]], name: str, lacking: Sequence[int]) -> bool:
    """Return whether another segment computes for what this one lacks, and not for all that this one runs for."""
    batches = {each_name: {step.micro_batch for step in runs} for each_name, runs in steps.items()}
    return any(
        other != name
        and has(plan.segments[other].operators, {Backward, Compute, Send})
        and not found.isdisjoint(lacking)
        and not found >= batches[name]
        for other, found in batches.items()
    )


def _once(plan: Plan, segment: Segment) -> bool:
    """Return whether the segment makes nothing that belongs to a micro-batch, or only loads what another check sees missing."""
    if segment.phase is Phase.DATA:
        names = (name for operator in segment.operators if isinstance(operator, Compute) for name in operator.outputs)
        loads = all(plan.has_role(name, Role.INPUT) for name in names)
        return loads and all(isinstance(operator, Compute) for operator in segment.operators)
    return only_ends(segment)


def _mixed(plan: Plan) -> Iterator[Defect]:
    """Plans that give some runs names of their own and others none, which leaves open what a name means."""
    for program in plan.programs:
        ways = {
            given is not None
            for step in program.steps
            if step.micro_batch >= 0
            for given, names in (
                (step.inputs, plan.segments[step.segment].inputs),
                (step.outputs, plan.segments[step.segment].outputs),
            )
            if names
        }
        if len(ways) > 1:
            text = "some runs of {ranks} name their values and others do not"
            yield from (Defect("mixed-names", False, text, rank) for rank in program.ranks)


def _returned(plan: Plan) -> Iterator[Defect]:
    """Yield what is returned of one micro-batch is returned of all, in one order, and by one name on all ranks."""
    returned = {name: place for place, name in enumerate(plan.outputs)}
    owners: dict[str, int] = {}
    for program in plan.programs:
        given: dict[tuple[str, int, int], list[tuple[str, int]]] = {}
        turns: Counter[tuple[str, int]] = Counter()
        places: dict[int, list[tuple[int, str, int]]] = {}
        for step in program.steps:
            turn = turns[step.segment, step.micro_batch]
            turns[step.segment, step.micro_batch] += 1
            for position, name in enumerate(step.outputs or ()):
                given.setdefault((step.segment, turn, position), []).append((name, step.micro_batch))
                if name not in returned:
                    continue
                places.setdefault(step.micro_batch, []).append((returned[name], step.segment, position))
                if owners.setdefault(name, step.micro_batch) != step.micro_batch:
                    text = f"`{name}` of micro-batch {step.micro_batch} on {{ranks}} is that of {owners[name]} elsewhere"
                    yield from (Defect("returned-of-others", False, text, rank) for rank in program.ranks)
        for names in given.values():
            missing = [(name, micro_batch) for name, micro_batch in names if name not in returned]
            if missing and len(missing) < len(names):
                text = f"`{missing[0][0]}` of micro-batch {missing[0][1]} on {{ranks}} is not returned, and those of others are"
                yield from (Defect("missing-output", True, text, rank) for rank in program.ranks)
        if len({tuple(place[1:] for place in sorted(found)) for found in places.values()}) > 1:
            text = "values on {ranks} are returned of some micro-batches in another order than of others"
            yield from (Defect("returned-in-another-order", False, text, rank) for rank in program.ranks)
