"""missing-collective-member: a rank of the group does not run the collective."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import location_of
from tvlint.analyses.communication.collective_order import called, disagreements, names_of
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.run_counts import uneven_backwards
from tvlint.findings import Finding
from tvlint.ir.ranks import describe
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Collectives that some member of the group runs fewer times than the others; not where a whole backward is missing."""
    seen = set()
    unbalanced = {rank for found in uneven_backwards(facts.plan) for rank in found.ranks}
    for found in disagreements(facts):
        if found.kind != "absent":
            continue
        call = found.ours[0]
        if call.site in seen or unbalanced.intersection(found.absent):
            continue
        seen.add(call.site)
        yield rule.finding(
            f"{called(facts, call)} over {describe(call.members)} is run by {describe(c.rank for c in found.ours)}, "
            f"but not by {describe(found.absent)}",
            location_of(facts, call),
            "run the collective on every member of its group, equally often",
            ranks=facts.fold.everywhere(tuple(sorted({*found.absent, *(c.rank for c in found.ours)}))),
            about=names_of(call),
        )
