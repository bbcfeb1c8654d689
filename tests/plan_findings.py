"""Runs all plan rules on a plan."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import tvlint.checks
from tvlint.analyses.facts import Facts
from tvlint.findings import Finding
from tvlint.ir.plan import Plan
from tvlint.readers import plan_text

CHECKS = {
    module.name: import_module(f"tvlint.checks.{module.name}")
    for module in iter_modules(tvlint.checks.__path__)
    if not module.name.startswith("schedule_")
}


def findings_of_plan(plan: Plan) -> list[Finding]:
    """What all checks say of `plan`."""
    facts = Facts(plan)
    return [finding for module in CHECKS.values() for finding in module.check(facts)]


def findings_of_text(text: str) -> list[Finding]:
    """What all checks say of a plan in plan text."""
    plan = plan_text.read("example.plan", text).plan
    assert plan is not None
    return findings_of_plan(plan)


def rules_of_text(text: str) -> set[str]:
    """The rules that speak on a plan in plan text."""
    return {finding.rule for finding in findings_of_text(text)}
