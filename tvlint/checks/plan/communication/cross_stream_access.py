"""cross-stream-access: a stream uses a value of another stream without waiting for it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.streams import crossings
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Reads of what another stream produces, and writes to what another stream reads, without an event between them."""
    for found in crossings(facts.plan):
        name, origin = found.stream or "main", found.origin or "main"
        done = (
            f"is overwritten on stream `{name}` while stream `{origin}` may still read it"
            if found.overwrites
            else (f"is read on stream `{name}`, but stream `{origin}` may still be producing it")
        )
        yield rule.finding(
            f"`{found.name}` {done} on {facts.who(found.ranks)}",
            facts.place(found.segment, found.index),
            f"record an event on `{origin}` after its operator and await it on `{name}` before this one",
            (Related(f"the access on `{origin}`", facts.place(*found.other), leads=True),),
            facts.fold.everywhere(found.ranks),
            about=(found.name, name, origin),
        )
