"""value-made-twice: a value is replaced before anything reads it."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.made_twice import made_twice
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Names of a forward segment under which a value replaces another that nothing has read."""
    for found in made_twice(facts.plan):
        yield Finding(
            rule.name,
            rule.severity,
            f"`{found.name}` is made a second time before anything reads the first value",
            facts.place(found.segment, found.second),
            "give the second value a name of its own",
            (Related("it is made here before", facts.place(found.segment, found.first)),),
            facts.fold.everywhere(facts.ranks_running(found.segment)),
            about=(found.name,),
        )
