"""Findings from the relations that a plan has on its own: what refutes it whatever its reference is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tvlint.analyses.dataflow.def_use import uses, writes
from tvlint.analyses.dataflow.facts import Facts, once_per_plan
from tvlint.analyses.dataflow.flow import way
from tvlint.analyses.relations.declared_regions import contradictions
from tvlint.analyses.relations.defect import Defect, reasons
from tvlint.analyses.relations.derivation.single_plan import Alone, derive_alone, sure_defects
from tvlint.analyses.relations.matchers.matched import matched
from tvlint.findings import Finding, Reason, Related, Severity
from tvlint.ir.location import Location
from tvlint.ir.operators import Backward, Compute, Operator
from tvlint.ir.patterns import Pattern
from tvlint.ir.plan import Plan
from tvlint.ir.ranks import describe
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

_MOST_PLACES = 3
"""So many other places of a mistake are listed."""

_REPEATED = frozenset({"pieces-not-in-rank-order"})
"""What an exporter that does it once does wherever it exchanges pieces: a plan has one finding, with the other places."""

_NAMED = Pattern(r"`([^`]+)`")
"""What a finding is about is what its message names."""

OF_RELATIONS = frozenset(
    [
        "allreduce-of-shards",
        "attention-over-local-keys",
        "bias-added-to-partial",
        "broadcast-of-partial",
        "choice-over-shards",
        "clipped-by-other-gradients",
        "contraction-of-mismatched-shards",
        "divergent-replicas",
        "doubled-allreduce",
        "doubled-gradient-reduction",
        "gather-of-partial",
        "gather-of-unsharded",
        "gradient-sharded-unlike-weight",
        "loss-over-shards",
        "mean-by-local-count",
        "merged-twice",
        "merges-different-values",
        "mismatched-shards",
        "missing-allreduce",
        "norm-over-shards",
        "packed-split-across-shards",
        "partial-through-nonlinear",
        "partial-times-partial",
        "pieces-not-in-rank-order",
        "reduce-scatter-of-replicated",
        "root-only-result-used",
        "scan-over-shards",
        "softmax-over-shards",
        "state-of-another-shard",
        "unfounded-claim",
        "wrong-all-to-all-dim",
        "wrong-draws",
        "wrong-gather-dim",
        "wrong-placement-claim",
    ]
)
"""The rules whose mistakes the relations alone show; their pages have the help."""

_HELP = {
    "gradient-of-another-tensor": "put each gradient in the place of its own tensor",
    "gradient-of-another-operator": "go back through the operator that ran, with the operands that it had",
    "part-used-as-complete": "take the greatest over the ranks that hold the other parts before it is used",
    "mismatched-collective": "let all members run the same collective, with the same arguments",
    "missing-gradient-reduction": "sum it over the ranks that share the value",
    "shape-mismatch": "give sizes and dimensions that the local tensor has",
    "unbalanced-backward": "run the forward operator before, in the same micro-batch",
    "use-before-definition": "produce or receive the value on this rank before it is read",
    "wrong-collective-group": "name the ranks that hold the other parts of the sum, or the group that the rank is in",
    "wrong-range": "state the indices that the rank holds",
    "wrong-reduce-op": "sum partial sums, and average what each rank has on its own",
}
"""What helps where the relations show what other analyses find too."""


@once_per_plan
def _derived(facts: Facts) -> Alone | str:
    return derive_alone(facts.plan)


def relations(facts: Facts) -> Alone | None:
    """Return what was derived of the plan on its own."""
    found = _derived(facts)
    return found if isinstance(found, Alone) else None


def not_derived(facts: Facts) -> str:
    """Return why nothing was derived of the plan, in words; empty where something was."""
    found = _derived(facts)
    return found if isinstance(found, str) else ""


@once_per_plan
def wrong_in_relations(facts: Facts) -> tuple[Defect, ...]:
    """Return what the relations of the plan show to be wrong."""
    alone = relations(facts)
    return tuple(contradictions(facts)) if alone is None else (*sure_defects(alone), *matched(facts, alone))


def is_wrong_in_relations(facts: Facts, operator: Operator) -> bool:
    """Return whether relations show what is wrong with an operator, and not only that it does not fit."""
    return id(operator) in _wrong_operators(facts)


@once_per_plan
def _wrong_operators(facts: Facts) -> frozenset[int]:
    """Return the operators, by identity, of which relations show more than that they do not fit."""
    defects = wrong_in_relations(facts)
    return frozenset(id(each.place) for each in defects if _rule_of(facts, each) not in ("", "shape-mismatch"))


def noted_late(facts: Facts) -> bool:
    """Return whether a mistake shows only at the end of the derivation, so that what follows from it was derived before."""
    late = ("joined", "cut", "left")
    return any(isinstance(defect.cause, tuple) and defect.cause[0] in late for defect in wrong_in_relations(facts))


def derived_findings(facts: Facts, rules: Mapping[str, Rule], found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what the relations show and nothing of what was `found` explains: at its operator, or before.

    A collective out of turn puts all later ones out.
    """
    alone = relations(facts)
    defects = [defect for defect in wrong_in_relations(facts) if _rule_of(facts, defect) in rules]
    if not defects:
        return
    plan = facts.plan if alone is None else alone.plan
    reported = [finding for finding in found if finding.severity is Severity.ERROR]
    explained = _explained(facts, reported)
    known = {finding.rule for finding in reported} & _REPEATED
    if any(finding.rule in rules and rules[finding.rule].topic == "plan/communication" for finding in reported):
        known.add("mismatched-collective")
    together = {defect.cause for defect in defects if defect.cause is not None and id(defect.place) in explained}
    named: dict[str, list[Defect]] = {}
    for each_defect in defects:
        if id(each_defect.place) not in explained and each_defect.cause not in together and each_defect.name not in known:
            named.setdefault(_rule_of(facts, each_defect), []).append(replace(each_defect, refutes=False))
    reported_at: set[Location] = set()
    for name, members in named.items():
        at: dict[Location, list[Reason]] = {}
        for reason in reasons(plan, members):
            at.setdefault(reason.location, []).append(reason)
        new = [alike for place, alike in at.items() if place not in reported_at]
        reported_at.update(at)
        others = _also_at([alike[0].location for alike in new[1:]]) if name in _REPEATED else ""
        for alike in new[:1] if others else new:
            finding = _finding(rules[name], alike, plan, others)
            if not finding.related and alone is not None:
                finding = replace(finding, related=_way_to(facts, alone, members, finding))
            yield finding


def _finding(rule: Rule, alike: Sequence[Reason], plan: Plan, others: str) -> Finding:
    """Return what a rule finds at one place: an error, or a warning where something may make it right."""
    first = min(alike, key=lambda reason: (bool(reason.unless), reason.ranks))
    ranks = tuple(sorted({rank for reason in alike for rank in reason.ranks}))
    about = tuple(_NAMED.findall(first.message)) or None
    elsewhere = tuple(rank for rank in ranks if rank not in first.ranks)
    message = first.message + (f", unless {first.unless}" if first.unless else "")
    message += (f"; the same on {describe(elsewhere, plan.mesh)}" if elsewhere else "") + others
    severity = Severity.WARNING if first.unless else Severity.ERROR
    help = first.repair or _HELP.get(first.name) or _HELP.get(rule.name, rule.help)
    return Finding(rule.name, severity, message, first.location, help, first.related, ranks, about=about)


def _way_to(facts: Facts, alone: Alone, members: Iterable[Defect], finding: Finding) -> tuple[Related, ...]:
    """Return the way by which a part of a sum comes to where it is used; empty where that is not what was found."""
    for member in members:
        is_part = isinstance(member.cause, tuple) and member.cause[0] == "use of partial" and member.source is not None
        way_of_it = _way_of_partial(facts, alone, member) if is_part and _is_at(member.source, finding.location) else ()
        if way_of_it:
            return way_of_it
    return ()


def _also_at(places: Sequence[Location]) -> str:
    """Return the words for the other places of a mistake; nothing where there are none."""
    listed = [f"line {place.line}" if place.line else place.pointer for place in places[:_MOST_PLACES]]
    more = f" and {len(places) - len(listed)} more" if len(places) > len(listed) else ""
    return f"; the same at {', '.join(listed)}{more}" if listed else ""


def _is_at(source: Location | None, place: Location) -> bool:
    """Return whether both are one place, whatever of it they point at."""
    return source is not None and (source.path, source.line, source.column) == (place.path, place.line, place.column)


def _way_of_partial(facts: Facts, alone: Alone, defect: Defect) -> tuple[Related, ...]:
    """Return how a part of a sum comes from the operator that makes it to the one that takes it for the whole."""
    cause, segment = defect.cause, facts.plan.segments.get(defect.segment)
    if segment is None or not isinstance(cause, tuple):
        return ()
    use = next((index for index, operator in enumerate(segment.operators) if operator is defect.place), 0)
    held = alone.derived.locals.get((defect.rank, defect.segment), {})
    for index, operator in enumerate(segment.operators[:use]):
        for name in writes(operator):
            value = held.get(name)
            if value is not None and any(entry.origin == cause[1] for leaf in value.leaves for entry in leaf.pending):
                made = f"`{name}` is a part of a sum from here on"
                return way(facts, (defect.segment, index), (defect.segment, use), defect.subject, made)
    return ()


def _rule_of(facts: Facts, defect: Defect) -> str:
    """Return the rule that says what a defect is; empty for what only a pair shows."""
    place = defect.place
    if defect.name == "mismatched-shards" and isinstance(place, Compute) and has_trait(place.op, Trait.NORMALISATION):
        return "norm-over-shards"
    forward = place.forward if isinstance(place, Backward) else place
    if defect.name == "split-dimension" and isinstance(forward, Compute):
        return next((rule for trait, rule in _SPLIT.items() if has_trait(forward.op, trait)), "attention-over-local-keys")
    if defect.name == "wrong-shape-claim" and not _claims_region(facts, place):
        return ""
    used = isinstance(defect.cause, tuple) and defect.cause[:1] in (("use of partial",), ("missing-allreduce",))
    if defect.name == "missing-allreduce" and isinstance(place, Compute) and used:
        return "partial-through-nonlinear"
    if defect.name == "part-used-as-complete":
        return "partial-through-nonlinear"
    if defect.name.endswith("mismatched-shards") and facts.plan.mesh.size == 1:
        return "shape-mismatch"
    name = _CALLED.get(defect.name, defect.name)
    return name if name in OF_RELATIONS or name in _HELP else ""


def _claims_region(facts: Facts, operator: Operator | None) -> bool:
    """Return whether the results of the operator are claimed to be pieces of values; other claims are of their shapes alone."""
    tensors = [facts.plan.tensors.get(name) for name in writes(operator)] if operator is not None else []
    return any(tensor is not None and tensor.region is not None for tensor in tensors)


def _explained(facts: Facts, found: list[Finding]) -> set[int]:
    """Return the operators, by identity, that something was found at, and those that follow from them."""
    places = {finding.location for finding in found}
    doubtful: set[str] = set()
    explained: set[int] = set()
    for name, segment in facts.plan.segments.items():
        for index, operator in enumerate(segment.operators):
            if facts.place(name, index, operator) in places or not doubtful.isdisjoint(uses(operator)):
                explained.add(id(operator))
                doubtful.update(writes(operator))
    return explained
