"""send-recv-deadlock: ranks wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import Call, location_of
from tvlint.analyses.communication.deadlock import buffered_deadlock
from tvlint.analyses.communication.wait_cycles import cycles_with_messages, in_words, names_of
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield cycles that stand even when sends complete at once."""
    for cycle in cycles_with_messages(buffered_deadlock(facts)):
        yield rule.finding(
            "ranks wait for each other: "
            + "; ".join(_waits(facts, call, cycle[(at + 1) % len(cycle)]) for at, call in enumerate(cycle[:8])),
            location_of(facts, cycle[0]),
            "reorder the operations, or issue them together (`batch_isend_irecv`)",
            tuple(Related(f"rank {call.rank} stands here", location_of(facts, call)) for call in cycle[1:8]),
            facts.fold.everywhere(tuple(sorted({call.rank for call in cycle}))),
            about=names_of(*cycle[:8]),
        )


def _waits(facts: Facts, call: Call, following: Call) -> str:
    return f"rank {call.rank} in {in_words(facts, call)} waits for rank {following.rank}"
