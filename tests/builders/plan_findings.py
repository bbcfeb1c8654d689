"""Runs all plan rules on a plan."""

from __future__ import annotations

from tvlint import checks
from tvlint.analyses.dataflow.facts import Facts
from tvlint.findings import Finding
from tvlint.ir.plan import Plan
from tvlint.readers.plan_text import reader as plan_text
from tvlint.rule import RuleKind
from tvlint.rulebook.pages import load_rules

RULES = {name: rule for name, rule in load_rules().items() if rule.kind is RuleKind.PLAN}


def findings_of_plan(plan: Plan) -> list[Finding]:
    """What all checks say of `plan`."""
    return list(checks.findings_of_plan(Facts(plan), RULES))


def findings_of_text(text: str) -> list[Finding]:
    """What all checks say of a plan in plan text."""
    plan = plan_text.read("example.plan", text).plan
    assert plan is not None
    return findings_of_plan(plan)


def rules_of_text(text: str) -> set[str]:
    """The rules that speak on a plan in plan text."""
    return {finding.rule for finding in findings_of_text(text)}
