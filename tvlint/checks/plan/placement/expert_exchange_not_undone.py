"""expert-exchange-not-undone: tokens that went to experts are not brought back over the group that dispatched them."""

from __future__ import annotations

from collections.abc import Iterator

from tvlint.analyses.communication.all_to_all import unpaired
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding, Related
from tvlint.rule import Rule


def check(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Combines over another group than their dispatch, and dispatched tokens that are added to those that stayed."""
    for found in unpaired(facts):
        what = f"is combined over {found.taken}" if found.taken else "is combined before they came back"
        if found.rows:
            what = f"is combined with {found.rows}, so that others go back than came"
        if found.other:
            what = f"is added to `{found.other}`, whose tokens stayed"
        text = f"`{found.name}` holds tokens that were dispatched over {found.given}, but {what}"
        help, before = f"bring the tokens back with an all-to-all over {found.given}", "the tokens are dispatched here"
        if not found.given:
            text = f"`{found.name}` is combined over {found.taken}, but experts were applied to tokens that nothing dispatched"
            help, before = f"send the tokens with an all-to-all over {found.taken} before", "experts are applied here"
        yield rule.finding(
            text,
            facts.place(found.segment, found.index),
            help,
            (Related(before, facts.place(*found.dispatched), leads=True),),
            facts.fold.everywhere(found.ranks),
            about=tuple(filter(None, (found.name, found.other))),
        )
