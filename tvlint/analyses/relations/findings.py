"""Findings from the relations that a plan has on its own: what refutes it whatever its reference is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import uses, writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.relations.defect import Defect, reasons
from tvlint.analyses.relations.derivation.single_plan import Alone, derive_alone, sure_defects
from tvlint.findings import Finding, Reason, Severity
from tvlint.ir.location import Location
from tvlint.ir.operators import Compute, Operator
from tvlint.ops.spec import Trait
from tvlint.ops.table import has_trait
from tvlint.rule import Rule

_CALLED = {
    "gathers-wrong-pieces": "gather-of-unsharded",
    "gradient-added-twice": "gradient-of-another-tensor",
    "gradient-before-forward": "unbalanced-backward",
    "swapped-gradients": "gradient-of-another-tensor",
    "wrong-dimension": "shape-mismatch",
    "wrong-shape-claim": "unfounded-claim",
    "wrong-view-size": "shape-mismatch",
}
"""The rules that say of one plan what these reasons say of a pair."""

_SPLIT = {
    Trait.SOFTMAX: "softmax-over-shards",
    Trait.NORMALISATION: "norm-over-shards",
    Trait.CLASS_LOSS: "loss-over-shards",
}

_HELP = {
    "attention-over-local-keys": "gather the keys and values, or exchange heads for the sequence, before",
    "doubled-allreduce": "leave out this sum: the value is complete before",
    "gather-of-partial": "add the partial sums before, with an all-reduce or a reduce-scatter",
    "gather-of-unsharded": "leave out the gather, or gather over the ranks that hold different pieces",
    "gradient-of-another-tensor": "put each gradient in the place of its own tensor",
    "loss-over-shards": "gather the classes first, or use a loss that is made for shards of them",
    "mismatched-collective": "let all members run the same collective, with the same arguments",
    "mismatched-shards": "gather or split one operand so that all hold the same indices",
    "missing-allreduce": "add it up over the ranks that hold the other parts before it is used",
    "norm-over-shards": "gather the dimension first, or split another one",
    "partial-times-partial": "add up one of the two before they are multiplied",
    "pieces-not-in-rank-order": "send and gather the pieces in the order of the ranks",
    "reduce-scatter-of-replicated": "take the rank's own piece with a chunk: the value is complete before",
    "root-only-result-used": "use all-reduce or all-gather, or broadcast the result",
    "shape-mismatch": "give sizes and dimensions that the local tensor has",
    "softmax-over-shards": "gather the dimension first, or put the parts together with the maximum and sum over all ranks",
    "unbalanced-backward": "run the forward operator before, in the same micro-batch",
    "unfounded-claim": "claim the piece that the rank holds, or add the exchange that is missing",
    "use-before-definition": "produce or receive the value on this rank before it is read",
    "wrong-collective-group": "name the group that the rank is in",
    "wrong-gather-dim": "gather along the dimension in which the pieces differ",
    "wrong-reduce-op": "sum partial sums, and average what each rank has on its own",
}


def relations(facts: Facts) -> Alone | None:
    """Return what was derived of the plan on its own; computed once."""
    return facts.derived("relations", lambda: derive_alone(facts.plan))


def derived_findings(facts: Facts, rules: Mapping[str, Rule], found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what the relations show and nothing of what was `found` explains: at its operator, or before.

    What was exchanged in another order is gathered so at many places; a collective out of turn puts all later ones out.
    """
    alone = relations(facts)
    defects = [defect for defect in sure_defects(alone) if _rule_of(facts, defect) in rules] if alone is not None else []
    if alone is None or not defects:
        return
    reported = [finding for finding in found if finding.severity is not Severity.NOTE]
    explained = _explained(facts, reported)
    known = {finding.rule for finding in reported} & {"pieces-not-in-rank-order"}
    if any(finding.rule in rules and rules[finding.rule].topic == "plan/communication" for finding in reported):
        known.add("mismatched-collective")
    together = {defect.cause for defect in defects if defect.cause is not None and id(defect.place) in explained}
    named: dict[str, list[Defect]] = {}
    for each_defect in defects:
        if id(each_defect.place) not in explained and each_defect.cause not in together and each_defect.name not in known:
            named.setdefault(_rule_of(facts, each_defect), []).append(replace(each_defect, refutes=False))
    for name, members in named.items():
        at: dict[Location, list[Reason]] = {}
        for reason in reasons(alone.plan, members):
            at.setdefault(reason.location, []).append(reason)
        for alike in at.values():
            first, ranks = (
                min(alike, key=lambda sighting: sighting.ranks),
                tuple(sorted({rank for reason in alike for rank in reason.ranks})),
            )
            yield Finding(name, Severity.ERROR, first.message, first.location, _HELP[name], first.related, ranks)


def _rule_of(facts: Facts, defect: Defect) -> str:
    """Return the rule that says what a defect is; empty for what only a pair shows."""
    place = defect.place
    if defect.name == "split-dimension" and isinstance(place, Compute):
        return next((rule for trait, rule in _SPLIT.items() if has_trait(place.op, trait)), "attention-over-local-keys")
    if defect.name == "wrong-shape-claim" and not _claims_region(facts, place):
        return ""
    name = _CALLED.get(defect.name, defect.name)
    return name if name in _HELP else ""


def _claims_region(facts: Facts, operator: Operator | None) -> bool:
    """Return whether the results of the operator are claimed to be pieces of values; other claims are of their shapes alone."""
    tensors = [facts.plan.tensors.get(name) for name in writes(operator)] if operator is not None else []
    return any(tensor is not None and tensor.region is not None for tensor in tensors)


def _explained(facts: Facts, found: list[Finding]) -> set[int]:
    """Return the operators, by identity, that something was found at, and those that follow from them."""
    places = {place for finding in found for place in (finding.location, *(related.location for related in finding.related))}
    doubtful: set[str] = set()
    explained: set[int] = set()
    for name, segment in facts.plan.segments.items():
        for index, operator in enumerate(segment.operators):
            if facts.place(name, index, operator) in places or not doubtful.isdisjoint(uses(operator)):
                explained.add(id(operator))
                doubtful.update(writes(operator))
    return explained
