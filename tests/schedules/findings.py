"""What all schedule rules say of rows."""

from __future__ import annotations

from tests.schedules.families import Rows
from tests.schedules.lowering import text
from tvlint.analyses.schedule.facts import ScheduleFacts
from tvlint.checks import load_check
from tvlint.findings import Finding
from tvlint.readers.schedule_csv import read
from tvlint.rule import RuleKind
from tvlint.rulebook.pages import load_rules

CHECKS = {rule.name: load_check(rule) for rule in load_rules().values() if rule.kind is RuleKind.SCHEDULE}


def facts_of(rows: Rows, budget: int | None = None) -> ScheduleFacts:
    """The facts of a schedule that is read from CSV."""
    schedule = read("schedule.csv", text(rows)).schedule
    assert schedule is not None
    return ScheduleFacts(schedule, budget)


def findings_of(rows: Rows, budget: int | None = None) -> list[Finding]:
    """The findings of the reader and of all checks."""
    document = read("schedule.csv", text(rows))
    assert document.schedule is not None
    facts = ScheduleFacts(document.schedule, budget)
    return [*document.findings, *(finding for check in CHECKS.values() for finding in check(facts))]


def rules_of(rows: Rows, budget: int | None = None) -> set[str]:
    """The rules that speak."""
    return {finding.rule for finding in findings_of(rows, budget)}
