"""Findings about placements: one per operator and rule, over all axes and programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvlint.analyses.dataflow.facts import Facts
from tvlint.analyses.placement.declared_regions import claim_defects
from tvlint.analyses.placement.domain import Defect
from tvlint.analyses.placement.interpreter import defects
from tvlint.findings import Finding, Related
from tvlint.rule import Rule

SHOWN = ("name", "axis", "has", "operator", "other", "wants")
"""The fields of a defect that the messages of pages show."""


def of_rule(facts: Facts, rule: str) -> list[Defect]:
    """The defects of `rule`, those of derived placements first."""
    return [defect for defect in (*defects(facts), *claim_defects(facts)) if defect.rule == rule]


def report(facts: Facts, rule: Rule, message: Callable[[Defect], str], help: Callable[[Defect], str]) -> Iterator[Finding]:
    """Yield the defects of `rule` as findings."""
    for defect in of_rule(facts, rule.name):
        related: tuple[Related, ...] = ()
        if defect.made is not None and defect.made != defect.where:
            related = (Related(f"`{defect.name}` gets its placement here", facts.place(*defect.made)),)
        ranks = facts.fold.everywhere(defect.ranks) if defect.ranks else facts.ranks_running(defect.where[0])
        text = message(defect).replace(f"`{defect.axis}`", defect.axis) if defect.ranks else message(defect)
        advice = help(defect).replace(f"`{defect.axis}`", defect.axis) if defect.ranks else help(defect)
        yield Finding(rule.name, rule.severity, text, facts.place(*defect.where), advice, related, ranks)


def report_as_page_says(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Yield the defects of `rule` in the words of its page, whose `{...}` are fields of the defect."""

    def words(template: str) -> Callable[[Defect], str]:
        return lambda defect: template.format_map({name: getattr(defect, name) for name in SHOWN})

    return report(facts, rule, words(rule.message), words(rule.help))
