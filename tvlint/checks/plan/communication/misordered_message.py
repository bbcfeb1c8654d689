"""misordered-message: messages are received in another order than they are sent."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.calls import Call, location_of, traffic
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.ir.operators import Receive, Send
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield receives that only their tag leads past an earlier message of the same channel; once per channel of operators."""
    seen = set()
    for sends, receives in traffic(facts).channels.values():
        place = {call: at for at, call in enumerate(sends)}
        latest = -1
        for receive in receives:
            at = place.get(receive.partner, -1) if receive.partner is not None else -1
            if 0 <= at < latest and receive.site not in seen:
                seen.add(receive.site)
                yield _finding(facts, receive, rule)
            latest = max(latest, at)


def _finding(facts: Facts, receive: Call, rule: Rule) -> Finding:
    send = receive.partner
    assert send is not None
    assert isinstance(receive.operator, Receive)
    assert isinstance(send.operator, Send)
    return rule.finding(
        f"rank {receive.rank} receives `{receive.operator.tensor}` (tag {receive.operator.tag}) after a message that rank "
        f"{send.rank} sends later",
        location_of(facts, receive),
        "receive in the order of sending: NCCL ignores tags",
        (Related("it is sent here", location_of(facts, send)),),
        facts.fold.everywhere(tuple(sorted({send.rank, receive.rank}))),
        about=(receive.operator.tensor,),
    )
