"""buffer-in-flight: a buffer is used while an asynchronous operator still works on it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.hazards import hazards
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule

_WHAT = {
    "write-over-read": "is overwritten while `{}` still reads it",
    "write-over-write": "is overwritten while `{}` still writes it",
    "alias-read-in-flight": "is read while `{}` writes into its storage",
}


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Writes to what is being read or written, and reads of another tensor in a storage that is being written."""
    for hazard in hazards(facts):
        if hazard.kind not in _WHAT or hazard.other is None:
            continue
        yield rule.finding(
            f"`{hazard.name}` {_WHAT[hazard.kind].format(hazard.handle)} on {facts.who(hazard.ranks)}",
            facts.place(hazard.segment, hazard.index),
            f"wait for `{hazard.handle}` first, or use another buffer",
            (Related(f"`{hazard.handle}` is issued here", facts.place(*hazard.other)),),
            facts.fold.everywhere(hazard.ranks),
            about=(hazard.name, hazard.handle),
        )
