"""Pair two plans: whether they can be compared, and how their inputs correspond."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tvlint.analyses.dataflow.step_scope import micro_batches_of
from tvlint.analyses.gradients.lifecycle import weight_gradients
from tvlint.analyses.relations.defect import Defect
from tvlint.analyses.relations.derivation.given.equal_replicas import cut_inputs, first_replica
from tvlint.analyses.relations.derivation.given.trusted_inputs import Batch, Inputs, batch_of, inputs_of
from tvlint.analyses.relations.derivation.given.well_formed import first_rank, odd_replicas, underivable
from tvlint.analyses.relations.terms.terms import Telling
from tvlint.analyses.relations.transfer.context import Mismatch
from tvlint.findings import Verdict
from tvlint.ir.plan import Plan
from tvlint.plurals import counted

Progress: TypeAlias = Callable[[str, float], None]
"""Takes what is being done, and which share of all is done (0 to 1)."""
Decided: TypeAlias = Callable[[Verdict], object]
"""Takes a verdict that holds already, though more may be found: what decides it further, or a repair."""


@dataclass(frozen=True, slots=True)
class Case:
    """Two plans that can be compared, how their inputs correspond, and how the pair is derived."""

    parallel: Plan
    """The plan that is derived; it may be one replica of the one that is `written`."""
    written: Plan
    reference: Plan
    inputs: Inputs
    """The parallel plan's inputs, numbered like the reference's."""
    reference_inputs: Inputs
    batch: Batch
    micro_batches: int
    reference_micro_batches: int
    assume: frozenset[str]
    folded_axis: str = ""
    """The axis along which `written` writes out replicas of which `parallel` is one; empty where none is folded."""
    telling: Telling = Telling.AS_WRITTEN
    """How terms tell what is computed."""
    agrees: bool = False
    """Whether both programs are known to have given the same numbers."""


def pair(parallel: Plan, reference: Plan, assume: frozenset[str] = frozenset()) -> Case | Defect:
    """Return the pair as a case; or the gap that keeps the plans from being compared.

    A case has two well-formed plans, a reference of one rank, inputs that correspond one to one, and a batch of as many local
    batches as the parallel plan has replicas and micro-batches.
    """
    gap = _incomparable(parallel, reference)
    if gap is not None:
        return gap
    rank, outer = first_rank(parallel), inputs_of(reference)
    inner = _matched(inputs_of(parallel), outer)
    cut = cut_inputs(parallel, inner)
    if cut is not None:
        axis, slots, tensors = cut
        one = pair(first_replica(parallel, axis, tensors), reference, assume)
        if isinstance(one, Defect) or one.batch.dims == slots:
            return one
    gap = odd_replicas(parallel)
    if gap is not None:
        return gap
    if set(inner.names) & set(outer.names) and set(inner.names) != set(outer.names):
        text = f"the plans share some names of inputs and not others: {', '.join(outer.names)} and {', '.join(inner.names)}"
        return Defect("other-inputs", False, text, rank)
    for plan, word in ((reference, "reference"), (parallel, "plan")):
        if plan.micro_batches != micro_batches_of(plan):
            text = f"the {word} says {counted(plan.micro_batches, 'micro-batch')} and its programs run {micro_batches_of(plan)}"
            return Defect("other-batch", False, text, first_rank(plan))
    here, there = micro_batches_of(parallel), micro_batches_of(reference)
    try:
        batch = batch_of(outer, inner, (there, here * parallel.replication.count))
    except Mismatch as mismatch:
        return Defect(mismatch.name, mismatch.refutes, mismatch.message, rank)
    return Case(parallel, parallel, reference, inner, outer, batch, here, there, assume)


def _incomparable(parallel: Plan, reference: Plan) -> Defect | None:
    """Return why the plans cannot be compared at all; None where they can."""
    ranks = [rank for program in reference.programs for rank in program.ranks]
    if len(ranks) != 1 or reference.replication.count > 1:
        return Defect("parallel-reference", False, "the reference is not a single-device plan", first_rank(parallel))
    for plan in (parallel, reference):
        gap = underivable(plan)
        if gap is not None:
            return gap
    stated = (plan for plan in (parallel, reference) if plan.losses)
    places = {tuple(place for place, name in enumerate(plan.outputs) if name in plan.losses) for plan in stated}
    if len(places) > 1:
        word, other = (", ".join(f"`{name}`" for name in plan.losses) for plan in (parallel, reference))
        text = f"the loss of the plan is {word}, and that of the reference, {other}, is another result"
        return Defect("other-loss", False, text, first_rank(parallel))
    if _gradients_returned(parallel) != _gradients_returned(reference):
        text = "the plans return the gradients of different weights, which are compared as gradients only"
        return Defect("other-outputs", False, text, first_rank(parallel))
    return None


def _gradients_returned(plan: Plan) -> list[str]:
    """Return the full names of the weights whose gradients the plan returns, in order."""
    owner, tensors = weight_gradients(plan), plan.tensors
    return [tensors[owner[name]].logical or owner[name] for name in plan.outputs if name in owner]


def _matched(inner: Inputs, outer: Inputs) -> Inputs:
    """Return the parallel plan's inputs, numbered like the reference's.

    They correspond by name where the names are the same, by key where they are items of one sample with the same keys
    (`sample_7['ids']` and `sample_9['ids']`), else by order, and then keep their own names.
    """
    by_name = {name: name for name in outer.names}
    by_key = {key: name for name, key in _keys(outer).items()}
    called = (
        by_name
        if set(inner.names) == set(outer.names)
        else {name: by_key[key] for name, key in _keys(inner).items() if key in by_key}
    )
    if {*called.values()} != {*outer.names} or len(inner.names) != len(outer.names):
        return inner
    order = {name: i for i, name in enumerate(outer.names)}
    place = {called[name]: i for i, name in enumerate(inner.names)}
    number = {name: order[called[inner.names[i]]] for name, i in inner.number.items()}
    places = [place[name] for name in outer.names]
    return Inputs(outer.names, tuple(inner.shapes[i] for i in places), tuple(inner.dtypes[i] for i in places), number)


def _keys(inputs: Inputs) -> dict[str, str]:
    """Return the key of each input by its name, where all are items of one sample; else nothing."""
    parts = [name.partition("[") for name in inputs.names]
    if len({sample for sample, _, _ in parts}) > 1 or not all(key for _, _, key in parts):
        return {}
    return {name: key for name, (_, _, key) in zip(inputs.names, parts, strict=True)}
