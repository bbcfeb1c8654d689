"""`prove`: does the parallel plan train the same model as the reference plan?"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.relations.defect import Declare, Trouble, reasons, stops
from tvlint.analyses.relations.derivation.derive import derive
from tvlint.analyses.relations.derivation.gradients import held_by, weights_of
from tvlint.analyses.relations.derivation.nearest_reference_value import Nearest
from tvlint.analyses.relations.derivation.state import Derived, Slot
from tvlint.analyses.relations.derivation.trusted_inputs import inputs_of, slot_dims
from tvlint.analyses.relations.grounds import REFUTING, Ground
from tvlint.analyses.relations.terms.terms import Terms
from tvlint.analyses.relations.transfer.context import World
from tvlint.analyses.relations.transfer.relation import Values
from tvlint.equivalence.explain.context_graph import scenes
from tvlint.equivalence.explain.counterexample import difference
from tvlint.equivalence.explain.repair import Repair, repair, with_repair
from tvlint.equivalence.side_conditions.hazards_and_deadlock import check_order
from tvlint.equivalence.side_conditions.micro_batch_symmetry import check_wiring
from tvlint.equivalence.side_conditions.repeated_runs import without_repeated_runs
from tvlint.equivalence.side_conditions.unused_declarations import check_unused
from tvlint.equivalence.verdict.assumptions import assumptions
from tvlint.equivalence.verdict.compare_gradients import Expected, judge_gradients, judge_updates
from tvlint.equivalence.verdict.compare_outputs import judge_returned
from tvlint.equivalence.verdict.compare_roots import judge_roots
from tvlint.equivalence.verdict.compare_states import judge_states, written_out
from tvlint.equivalence.verdict.later_corrections import put_right_later
from tvlint.equivalence.verdict.pairing import expected_of, first_rank, matched, told_apart, unpaired
from tvlint.equivalence.verdict.replica_folding import (
    Folded,
    folded,
    of_first_replica,
    on_all_replicas,
    partly_returned,
    returns_declared,
)
from tvlint.findings import Outcome, Reason, StageCounts, Verdict
from tvlint.ir.plan import Plan

_CONSEQUENCES = ("other-operator", "gathers-different-values", "sum-of-different-values")
"""Gaps that a mistake made elsewhere leaves behind; told only where no mistake was found."""

_EXPRESSIONS = frozenset({*_CONSEQUENCES, "other-constant", "other-gradient", "other-output", "unequal-addends"})
"""Gaps between expressions, which normal forms of them may close."""

_CAUSES = 3
"""So many causes of one refuted plan are looked for behind one another."""

_TOLD_AS_WRITTEN = 64
"""What is wrong with a plan of so many ranks is found out on all of them, in its own slices; in larger ones on one replica."""


def prove(
    parallel: Plan,
    reference: Plan,
    *,
    assume: frozenset[str] = frozenset(),
    progress: Callable[[str, float], None] | None = None,
    solver_seconds: float | None = None,
) -> Verdict:
    """The verdict on the pair.

    Proved means: under the assumptions that the verdict lists, for all inputs and weights, every rank's gradient of every
    piece of every weight after reduction equals that of the reference, and so do the returned values. Refuted comes with a
    structural fact or a number; whatever could not be decided is Unknown. With `solver_seconds`, Z3 gives a second opinion on
    every annotation that a proof relied on, that many seconds at most on each; one that it refutes makes the verdict Unknown.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        tell = progress or (lambda text, share: None)
        once = without_repeated_runs(parallel)
        verdict = _proved(once, reference, assume, tell, repairs=True, solver_seconds=solver_seconds)
        if verdict.outcome is Outcome.UNKNOWN and any(reason.name in _EXPRESSIONS for reason in verdict.reasons):
            tell("deriving normal forms", 0.9)
            again = _proved(once, reference, assume, tell, repairs=False, solver_seconds=solver_seconds, normal=True)
            verdict = again if again.outcome is Outcome.PROVED else verdict
        verdict = verdict if once is parallel else _in_order(parallel, verdict)
        return _confirmed(parallel, reference, verdict)
    finally:
        if collecting:
            gc.enable()


def _confirmed(parallel: Plan, reference: Plan, verdict: Verdict) -> Verdict:
    """Return the verdict, which is left open where it rests on other values and none shows when both plans are run."""
    grounds = {REFUTING[reason.name] for reason in verdict.reasons if reason.refutes}
    if verdict.outcome is not Outcome.REFUTED or grounds != {Ground.DIFFERS}:
        return verdict
    from tvlint.equivalence.verdict.on_numbers import SEEDS, agree_on_numbers

    if not agree_on_numbers(parallel, reference):
        return verdict
    text = f"; and yet all gradients and returned values are the reference's in {SEEDS} runs on random numbers"
    found = [replace(reason, refutes=False, repair="") for reason in verdict.reasons]
    found[0] = replace(found[0], message=found[0].message + text)
    stages = replace(verdict.stages, refuted=0, unknown=verdict.stages.unknown + verdict.stages.refuted)
    return replace(verdict, outcome=Outcome.UNKNOWN, reasons=tuple(found), stages=stages)


def _in_order(plan: Plan, verdict: Verdict) -> Verdict:
    """Return the verdict on a plan that was derived without the runs that it repeats, whose order is that of the plan."""
    found = reasons(plan, check_order(plan)) if verdict.outcome is Outcome.PROVED else ()
    if not found:
        return verdict
    outcome = Outcome.REFUTED if any(reason.refutes for reason in found) else Outcome.UNKNOWN
    return replace(verdict, outcome=outcome, reasons=found)


def _proved(
    parallel: Plan,
    reference: Plan,
    assume: frozenset[str],
    tell: Callable[[str, float], None],
    repairs: bool,
    solver_seconds: float | None = None,
    fold: Folded | None = None,
    normal: bool = False,
    causes: int = _CAUSES,
) -> Verdict:
    """The verdict on the pair, with `normal` on normal forms of what both compute.

    With `fold` the parallel plan is one replica of a plan that writes all of them out; Unknown without proof stages then
    says nothing of that plan, as where replicas may wait for each other in more ways than one replica shows.
    Without `repairs` only Proved says anything.
    """
    blank = Verdict(reference.path, parallel.path, Outcome.UNKNOWN)
    gap = unpaired(parallel, reference)
    if gap is not None:
        return replace(blank, reasons=reasons(parallel, [gap]))
    outer = inputs_of(reference)
    inner = matched(inputs_of(parallel), outer)
    if set(inner.names) & set(outer.names) and set(inner.names) != set(outer.names):
        text = f"the plans share some names of inputs and not others: {', '.join(outer.names)} and {', '.join(inner.names)}"
        return replace(blank, reasons=reasons(parallel, [Trouble("other-inputs", False, text, first_rank(parallel))]))
    slots = slot_dims(outer, inner)
    if isinstance(slots, str):
        return replace(blank, reasons=reasons(parallel, [Trouble("other-inputs", False, slots, first_rank(parallel))]))
    count, dims = slots
    micro_batches = micro_batches_of(parallel)
    if parallel.micro_batches != micro_batches:
        text = f"the plan says {parallel.micro_batches} micro-batches and its programs run {micro_batches}"
        return replace(blank, reasons=reasons(parallel, [Trouble("other-batch", False, text, first_rank(parallel))]))
    if count != micro_batches * parallel.replication.count:
        text = (
            f"the reference's batch is {count} local batches, and the plan runs {parallel.replication.count} replicas "
            f"of {micro_batches} micro-batches"
        )
        return replace(blank, reasons=reasons(parallel, [Trouble("other-batch", False, text, first_rank(parallel))]))
    if fold is None:
        fold = folded(parallel, inner)
        if fold is not None and all(dim in (-1, own) for dim, own in zip(dims, fold.slots, strict=True)):
            verdict = _proved(
                fold.plan, reference, assume, tell, repairs, solver_seconds, fold=fold, normal=normal, causes=causes
            )
            large = parallel.mesh.size > _TOLD_AS_WRITTEN
            if verdict.outcome is not Outcome.UNKNOWN or (large and (verdict.stages.total or not repairs)):
                return verdict
        fold = None
    if fold is not None and dims != fold.slots:
        return blank
    tell("deriving the reference", 0.0)
    terms = Terms()
    terms.normal = normal
    values = Values(terms)
    dtypes: dict[int, str] = {}
    world = World(terms, values, count, False, False)
    alone = derive(world, reference, replace(outer, shapes=inner.shapes), dims, count, losses=None, dtypes=dtypes)
    expected = expected_of(world, reference, alone)
    if isinstance(expected, list):
        return replace(blank, reasons=reasons(reference, expected))
    terms.sealed = len(terms.keys)
    tell("deriving the parallel plan", 0.2)
    many = World(terms, values, 1, parallel.replication.count > 1, micro_batches > 1)

    held: dict[tuple[int, str], Slot] = {}

    def attempt(nearest: Nearest | None) -> tuple[Derived, list[Trouble]]:
        losses = frozenset(root.value.term for root in alone.roots)
        derived = derive(many, parallel, inner, dims, count, losses=losses, dtypes=dict(dtypes), nearest=nearest, assume=assume)
        if fold is not None:
            derived.stages, derived.classes = (own * parallel.replication.count for own in (derived.stages, derived.classes))
        troubles: list[Trouble] = []
        held.clear()
        weights = weights_of(parallel, derived)
        held.update(held_by(derived, weights))
        troubles.extend(derived.reductions)
        written = written_out(parallel, derived)
        troubles.extend(judge_gradients(many, parallel, weights, expected, held, written))
        troubles.extend(judge_states(many, parallel, derived, expected))
        replicas = parallel.replication.count if fold is None else 1
        troubles.extend(judge_returned(many, parallel, derived, expected.losses, replicas, micro_batches))
        if fold is not None:
            troubles.extend(partly_returned(many, fold, derived))
        troubles.extend(judge_updates(parallel, reference, weights, expected, derived.changed, written))
        troubles.extend(judge_roots(terms, parallel, alone, derived) if troubles else ())
        return derived, troubles

    derived, troubles = attempt(None)
    wiring = list(check_wiring(parallel, micro_batches))
    if not any(trouble.refutes for trouble in wiring):
        wiring += check_order(parallel if fold is None else fold.written)
    verdict = replace(
        blank,
        assumptions=assumptions(parallel, reference, told_apart(inner, outer), terms, derived, assume),
        facts=_facts(parallel, expected, micro_batches),
    )
    right = derived.finished and not derived.fatal and not any(map(stops, derived.troubles)) and not troubles
    if right and not wiring:
        wiring.extend((*derived.contradicted, *check_unused(parallel if fold is None else fold.written, reference)))
    proved = right and not wiring
    if proved and (fold is None or returns_declared(many, fold, derived)):
        stages = StageCounts(derived.stages, derived.classes, derived.stages, 0, 0)
        verdict = replace(verdict, outcome=Outcome.PROVED, stages=stages)
        if solver_seconds is None:
            return verdict
        from tvlint.equivalence.verdict.solver_recheck import with_opinion

        return with_opinion(verdict, parallel, many, derived, solver_seconds, tell)
    if not repairs or (fold is not None and (proved or parallel.mesh.size <= _TOLD_AS_WRITTEN)):
        return blank
    if right and wiring:
        told = wiring if fold is None else of_first_replica(fold, wiring)
        found = reasons(parallel, told, partial(scenes, parallel, terms, derived))
        outcome = Outcome.REFUTED if any(reason.refutes for reason in found) else Outcome.UNKNOWN
        open_ = fold is not None and outcome is Outcome.UNKNOWN
        return blank if open_ else replace(verdict, outcome=outcome, reasons=found, stages=_stage_counts(derived, found))
    tell("looking for causes", 0.8)
    derived, troubles = attempt(Nearest(terms, frozenset(derived.computed)))

    def proves(changed: Plan) -> bool:
        return _proved(changed, reference, assume, tell, repairs=False).outcome is Outcome.PROVED

    def judged(changed: Plan) -> Verdict:
        return _proved(changed, reference, assume, tell, repairs=True, causes=causes - 1)

    def mended(troubles: list[Trouble], beside: bool) -> Repair | None:
        written, told = (parallel, troubles) if fold is None else (fold.written, on_all_replicas(fold, troubles))
        return repair(written, told, proves, judged if beside and causes > 1 else None)

    explained = derived.finished and not derived.fatal and not troubles and not wiring
    different = _different(terms, derived, explained)
    if not explained and any(trouble.fix is not None for trouble in different):
        explained = mended(different, beside=False) is not None
        different = _different(terms, derived, explained)
    if fold is not None:
        wiring = of_first_replica(fold, wiring)
    open_ones = put_right_later(parallel, reference, derived)
    known = [replace(own, refutes=False) if own in open_ones else own for own in derived.troubles]
    told = [*wiring, *known, *different]
    if not any(trouble.refutes for trouble in told):
        told = [*told, *(replace(own, refutes=own.refutes and not open_ones) for own in troubles)]
    if any(trouble.refutes for trouble in told):
        told = [trouble for trouble in told if trouble.refutes or trouble.name not in _CONSEQUENCES]
    found = reasons(parallel, told, partial(scenes, parallel, terms, derived))
    outcome = Outcome.REFUTED if any(reason.refutes for reason in found) else Outcome.UNKNOWN
    verdict = replace(verdict, outcome=outcome, reasons=found, stages=_stage_counts(derived, found))
    refuted = outcome is Outcome.REFUTED
    if not refuted and fold is not None and wiring:
        return blank
    if not refuted and not any(isinstance(own.fix, Declare) for own in told):
        return verdict
    change = mended(told, beside=True)
    if change is None:
        return verdict
    found = with_repair(found, change)
    return replace(verdict, reasons=found, stages=_stage_counts(derived, found))


def _different(terms: Terms, derived: Derived, explained: bool) -> list[Trouble]:
    """The operators that differ from the reference's, with a number that shows it where one is found.

    Where the plan computes what the reference computes as well, an operator is not in its place but one more. A number shows
    that the plan is wrong only if the differences explain all: with the reference's operators in their places it proves.
    """
    told = []
    seen = set()
    for entry in derived.foreign:
        trouble = entry.trouble
        if terms.keys[entry.term][0].endswith(" gradient") and (trouble.rank, entry.forward) in seen:
            continue
        seen.add((trouble.rank, entry.forward))
        extra = trouble.name == "other-operator" and entry.nearest in derived.computed
        if entry.nearest is not None and not extra:
            shown = difference(terms, entry.nearest, entry.term)
            if shown and not explained:
                trouble = replace(trouble, message=f"{trouble.message}: {shown}")
            if shown and explained:
                trouble = replace(trouble, refutes=True, message=f"{trouble.message}: {shown}")
        told.append(trouble)
    return told


def _facts(plan: Plan, expected: Expected, micro_batches: int) -> tuple[tuple[str, str], ...]:
    mesh = " x ".join(f"{axis.name} {axis.size}" for axis in plan.mesh.axes)
    return (
        ("mesh", mesh or "of one rank"),
        ("ranks", str(plan.mesh.size)),
        ("micro-batches", str(micro_batches)),
        ("gradients", str(len(expected.gradients))),
        ("returned values", str(len(expected.losses))),
    )


def _stage_counts(derived: Derived, found: tuple[Reason, ...]) -> StageCounts:
    refuted = len({reason.location.pointer for reason in found if reason.refutes})
    unknown = len({reason.location.pointer for reason in found if not reason.refutes})
    proved = max(0, derived.stages - refuted - unknown)
    return StageCounts(derived.stages, derived.classes, proved, refuted, unknown)
