"""interleaved-communicators: collectives of several groups are entered in opposite orders."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import location_of, traffic
from tvlint.analyses.communication.collective_order import disagreements
from tvlint.analyses.communication.communicator_order import crossed_issues
from tvlint.analyses.communication.deadlock import buffered_deadlock
from tvlint.analyses.communication.wait_cycles import cycles_of_collectives, in_words, names_of
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.ir.ranks import describe
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield cycles of ranks that each stand in a collective which the next has not reached, or has not issued yet."""
    if disagreements(facts):
        return
    cycles = cycles_of_collectives(buffered_deadlock(facts))
    if not cycles and not buffered_deadlock(facts).blocked:
        cycles = crossed_issues(traffic(facts))
    for cycle in cycles:
        stands = "; ".join(f"rank {call.rank} in {in_words(facts, call)} over {describe(call.members)}" for call in cycle[:8])
        yield rule.finding(
            f"ranks enter collectives of different groups in opposite orders: {stands}",
            location_of(facts, cycle[0]),
            "let all ranks enter the groups in one order",
            tuple(Related(f"rank {call.rank} stands here", location_of(facts, call)) for call in cycle[1:8]),
            facts.fold.everywhere(tuple(sorted({call.rank for call in cycle}))),
            about=names_of(*cycle[:8]),
        )
