"""collective-order-mismatch: members of a group run its collectives in different orders."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import location_of
from tvlint.analyses.communication.collective_order import called, disagreements, names_of
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.ir.ranks import describe
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield the first place where members of a communicator meet in different operations."""
    seen = set()
    for found in disagreements(facts):
        if found.kind not in ("order", "operation"):
            continue
        ours, theirs = found.ours[0], found.theirs[0]
        key = (ours.site, theirs.site)
        if key in seen:
            continue
        seen.add(key)
        what = "in another order" if found.kind == "order" else "differently"
        ranks = tuple(sorted(call.rank for call in (*found.ours, *found.theirs)))
        yield rule.finding(
            f"the members of {describe(ours.members)} run their collectives {what}: "
            f"{describe(call.rank for call in found.ours)} in {called(facts, ours)}, "
            f"{describe(call.rank for call in found.theirs)} in {called(facts, theirs)}",
            location_of(facts, theirs),
            "let every member of the group run the same collectives in the same order",
            (Related(f"rank {ours.rank} runs {called(facts, ours)} at the same turn", location_of(facts, ours)),),
            facts.fold.everywhere(ranks),
            about=(*names_of(ours), *names_of(theirs)),
        )
