"""unmatched-receive: a receive without a matching send."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.unmatched_p2p import unmatched
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.ir.operators import Receive
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield receives without a send, one finding per operator."""
    for loose in unmatched(facts, Receive):
        assert isinstance(loose.operator, Receive)
        yield rule.finding(
            f"`{loose.operator.tensor}` is received from {loose.peers} by {facts.who(loose.ranks)}{loose.times}, "
            "but not sent there",
            loose.location,
            "add the send on the other rank, or remove the receive" + loose.hint,
            loose.related,
            facts.fold.everywhere(loose.ranks),
            about=(loose.operator.tensor,),
        )
