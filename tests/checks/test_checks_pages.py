"""Every plan or schedule rule is a page with a check, with the words for a defect, or found by relations alone."""

from __future__ import annotations

from pathlib import Path

from tvlint import checks
from tvlint.analyses.relations.findings import OF_RELATIONS
from tvlint.checks.schedule.pages import SOURCES
from tvlint.rule import RuleKind
from tvlint.rulebook.pages import load_rules

FOLDER = Path(checks.__file__).parent
RULES = [rule for rule in load_rules().values() if rule.kind in (RuleKind.PLAN, RuleKind.SCHEDULE)]


def test_every_page_has_a_check_or_words_and_every_check_a_page() -> None:
    modules = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.py") if path.stem != "__init__"}
    checked = [rule for rule in RULES if not rule.message and rule.name not in OF_RELATIONS]
    assert modules - {"pages", "plan/exchanges", "plan/steps", "schedule/pages", "schedule/messages"} == {
        f"{rule.topic}/{rule.name}".replace("-", "_") for rule in checked
    }


def test_words_come_with_help_and_every_schedule_rule_has_both() -> None:
    assert {rule.name for rule in RULES if bool(rule.message) != bool(rule.help)} == OF_RELATIONS
    assert [rule.name for rule in RULES if rule.message and not rule.help] == []
    assert {rule.name for rule in RULES if rule.kind is RuleKind.SCHEDULE} == SOURCES.keys()
    assert all(rule.message for rule in RULES if rule.kind is RuleKind.SCHEDULE)
