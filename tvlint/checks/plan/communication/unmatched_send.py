"""unmatched-send: a send without a matching receive."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.unmatched_p2p import unmatched
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.ir.operators import Send
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield sends without a receive, one finding per operator."""
    for loose in unmatched(facts, Send):
        assert isinstance(loose.operator, Send)
        yield rule.finding(
            f"`{loose.operator.tensor}` is sent to {loose.peers} by {facts.who(loose.ranks)}{loose.times}, "
            "but not received there",
            loose.location,
            "add the receive on the other rank, or remove the send" + loose.hint,
            loose.related,
            facts.fold.everywhere(loose.ranks),
            about=(loose.operator.tensor,),
        )
