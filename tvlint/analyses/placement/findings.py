"""Findings about placements: one per operator and rule, over all axes and programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tvlint.analyses.dataflow.def_use import writes
from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.dataflow.flow import way
from tvlint.analyses.placement.declared_regions import claim_defects
from tvlint.analyses.placement.domain import Defect, Where
from tvlint.analyses.placement.interpreter import defects
from tvlint.findings import Finding, Related
from tvlint.rule import Rule

SHOWN = ("name", "axis", "has", "operator", "other")
"""The fields of a defect that messages show."""
NAMED = re.compile(r"`{(\w+)}`")


def of_rule(facts: Facts, rule: str) -> list[Defect]:
    """Return the defects of `rule`, those of derived placements first."""
    return [defect for defect in (*defects(facts), *claim_defects(facts)) if defect.rule == rule]


def report(facts: Facts, rule: Rule, message: Callable[[Defect], str], help: Callable[[Defect], str]) -> Iterator[Finding]:
    """Yield the defects of `rule` as findings, in sentences whose `{...}` are fields of the defect.

    A finding is about those in backticks; an axis that is ranks in words is no name.
    """
    for defect in of_rule(facts, rule.name):
        related: tuple[Related, ...] = ()
        if defect.made is not None and defect.made != defect.where:
            related = way(facts, defect.made, defect.where, defect.name, _made(facts, defect, defect.made))
        ranks = facts.fold.everywhere(defect.ranks or facts.ranks_running(defect.where[0]))
        text, advice = (
            name.replace("`{axis}`", "{axis}") if defect.ranks else name for name in (message(defect), help(defect))
        )
        shown = {name: getattr(defect, name) for name in SHOWN}
        yield rule.finding(
            text.format_map(shown),
            facts.place(*defect.where),
            advice.format_map(shown),
            related,
            ranks,
            about=tuple(shown[name] for name in NAMED.findall(text)),
        )


def _made(facts: Facts, defect: Defect, made: Where) -> str:
    names = writes(facts.plan.segments[made[0]].operators[made[1]])
    return f"`{defect.name if defect.name in names else next(iter(names), defect.name)}` gets its placement here"


def report_as_page_says(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield the defects of `rule` in the words of its page."""
    return report(facts, rule, lambda _: rule.message, lambda _: rule.help)
