"""send-needs-buffering: ranks wait for each other unless sends are buffered."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import location_of
from tvlint.analyses.communication.deadlock import buffered_deadlock, unbuffered_deadlock
from tvlint.analyses.communication.wait_cycles import cycles_with_messages, in_words, names_of
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield cycles that only a backend that completes sends before their receive gets past."""
    if cycles_with_messages(buffered_deadlock(facts)):
        return
    for cycle in cycles_with_messages(unbuffered_deadlock(facts)):
        stands = "; ".join(f"rank {call.rank} in {in_words(facts, call)}" for call in cycle[:8])
        yield rule.finding(
            f"ranks wait for each other unless sends are buffered: {stands}",
            location_of(facts, cycle[0]),
            "let one side receive first, or issue send and receive together (`batch_isend_irecv`); NCCL does not buffer sends",
            tuple(Related(f"rank {call.rank} stands here", location_of(facts, call)) for call in cycle[1:8]),
            facts.fold.everywhere(tuple(sorted({call.rank for call in cycle}))),
            about=names_of(*cycle[:8]),
        )
